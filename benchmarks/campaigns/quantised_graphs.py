"""Quantised models of every kind, compiled for the core: what compiles, and whether every integer is right.

Four parts. ``suite``: every model of ONNX's suite that onnxruntime's `quantize_static` quantises but whole networks,
with int8 and uint8 activations and with weights by channel or not; those that are not quantised or refused stand in
``tests/onnx/quantised_suite.txt``, which ``--update`` writes. ``random``: random graphs in random forms; graph ``n``
depends on ``n`` and the seed alone. ``core``: the same of what is particular to the core. ``networks``: small exports
of the kinds of networks that people quantise.

Each is quantised by onnxruntime, read, compiled for the core twice, with every layer's result kept and with layers
chained on the core, and run on the functional simulator, or with ``--device rtl`` on the RTL, whose cycles must then be
the timing model's. Every layer on the core and every result must equal the integer graph's NumPy meaning (floats: to
the last digits), the model as it was read must agree with onnxruntime, and so must the result, as closely as 8 bits
allow. The exit status is not 0 if anything is refused, fails or differs, but for what the list of the suite says. What
onnxruntime itself cannot quantise is counted apart.

    python benchmarks/campaigns/quantised_graphs.py
    python benchmarks/campaigns/quantised_graphs.py random --first 1234 --graphs 1 --verbose
    python benchmarks/campaigns/quantised_graphs.py suite networks --filter conv --json graphs.json
    python benchmarks/campaigns/quantised_graphs.py random core --graphs 50 --device rtl --config tiny
"""

from __future__ import annotations

import argparse
import re
import sys
import time
import traceback
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import weft
from weft.compiler.compile import prepared
from weft.compiler.frontends import from_onnx
from weft.compiler.graph import Expr, Module, evaluate
from weft.compiler.model import CompiledModel
from weft.compiler.targets.accel.link.phases import split_phases
from weft.compiler.targets.registry import find_target
from weft.compiler.targets.target import target_options
from weft.errors import WeftError
from weft.hw.config import CoreConfig, named_config
from weft.runtime.profile_whatif import predict_runs
from weft.sim.dram import DramModel

from benchmarks.campaigns.isolated import Broken, Isolated
from benchmarks.campaigns.quantised_core import FEATURES, core_model, features
from benchmarks.campaigns.quantised_random import random_model
from benchmarks.campaigns.quantised_suite import FORMS, Tests, suite_tests, surprises, with_weights, write_list
from benchmarks.common import Record, print_table, write_json
from benchmarks.zoo.quantised_forms import PLAIN, Array, Form, Inputs, NotQuantisedError, quantised, random_form
from benchmarks.zoo.quantised_networks import NETWORKS, network
from examples.precise import precise_session

PARTS = ("suite", "random", "core", "networks")
DEVICES = ("fsim", "rtl")
SECONDS_AT_MOST = 180.0

READ_STEPS = 4.0
"""How far the model as it was read may be from onnxruntime, in steps of 1/255 of the result's range."""

MEAN_STEPS = 6.0
"""The same for the mean difference of the compiled model, whose layers may each round differently by one step."""

FLOAT_TOLERANCE = 1e-4
"""Of the largest element: kernels and NumPy round floats differently."""


@dataclass(frozen=True)
class Case:
    """``operand_weights``: all inputs but the first are constants."""

    part: str
    name: str
    form: Form
    number: int = 0
    seed: int = 0
    operand_weights: bool = False

    def __str__(self) -> str:
        weights = ", operands as weights" if self.operand_weights else ""
        return f"{self.part} {self.name} ({self.form}{weights})"


@dataclass(frozen=True)
class Outcome:
    """What became of a case. ``state``: "equal", "wrong", "refused", "error", "timeout", "crash" or "not quantised".

    ``operators``: of the float model. ``on_core``: layers there. ``reasons``: why each other layer is on the host.
    ``in_numpy``: layers that no target has a kernel for. ``features``: of the core's part (`quantised_core`).
    """

    state: str
    message: str = ""
    operators: tuple[str, ...] = ()
    on_core: int = 0
    on_host: int = 0
    in_numpy: int = 0
    reasons: tuple[str, ...] = ()
    features: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def good(self) -> bool:
        return self.state in ("equal", "not quantised")


@dataclass
class Trial:
    """All cases on one core. ``device``: of `DEVICES`."""

    config: CoreConfig
    tests: Tests = field(default_factory=dict)
    device: str = "fsim"
    _known: dict[bytes, Outcome] = field(default_factory=dict)

    def run(self, case: Case) -> Outcome:
        """Quantise, compile, run and compare a case; whatever it raises is its outcome."""
        started = time.perf_counter()
        operators: tuple[str, ...] = ()
        try:
            model, batches = self._float_model(case)
            operators = tuple(sorted({node.op_type for node in model.graph.node}))
            made = quantised(model, batches, case.form)
            found = (self._seldom_again if case.part == "suite" else self._compared)(made, batches[0])
        except NotQuantisedError as error:
            found = Outcome("not quantised", str(error))
        except WeftError as error:
            internal = (
                not hasattr(error, "message") or "pass " in str(error)[:40] or type(error).__name__ == "GraphError"
            )
            found = Outcome("error" if internal else "refused", f"{type(error).__name__}: {error}")
        except Exception as error:
            place = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{Path(place.filename).name}:{place.lineno}"
            found = Outcome("error", f"{type(error).__name__}: {error} ({where})")
        return Outcome(
            found.state, found.message[:600], operators, found.on_core, found.on_host, found.in_numpy, found.reasons,
            found.features, time.perf_counter() - started,
        )  # fmt: skip

    def _float_model(self, case: Case) -> tuple[onnx.ModelProto, list[Inputs]]:
        match case.part:
            case "random":
                return random_model(case.number, case.seed)
            case "core":
                return core_model(case.number, case.seed)
            case "networks":
                return network(case.name)
        model, inputs = with_weights(*self.tests[case.name], all_operands=case.operand_weights)
        return model, [inputs]

    def _seldom_again(self, model: onnx.ModelProto, inputs: Inputs) -> Outcome:
        """What `_compared` gives, once for each file: without weights, forms by channel or not are the same."""
        digest = sha256(model.SerializeToString(deterministic=True))
        for name in sorted(inputs):
            digest.update(inputs[name].tobytes())
        if digest.digest() not in self._known:
            self._known[digest.digest()] = self._compared(model, inputs)
        return self._known[digest.digest()]

    def _compared(self, model: onnx.ModelProto, inputs: Inputs) -> Outcome:
        shapes = {name: value.shape for name, value in inputs.items()}
        module = from_onnx(model, {each.name: shapes[each.name] for each in model.graph.input if is_open(each)})
        try:
            expected = onnxruntime_results(model, inputs)
        except Exception as error:  # of any class of its own
            raise NotQuantisedError(f"onnxruntime cannot run it: {error}") from error
        given = {param.name: inputs[param.name] for param in module.main.params}
        finest = finest_scale(model)
        undefined = False

        def observe(_: Expr, value: Any) -> None:
            nonlocal undefined
            undefined |= isinstance(value, np.ndarray) and value.dtype.kind == "f" and bool(np.isnan(value).any())

        wrong = far(evaluate(module, given, observe), expected, READ_STEPS, finest)
        if wrong and undefined:
            raise NotQuantisedError("0/0 or the like inside it: ONNX does not say to which integer that is rounded")
        if wrong:
            return Outcome("wrong", f"as read, {wrong}")
        accel = find_target("accel")
        packed = prepared(module, accel, target_options(accel, {"config": self.config}))
        compiled = weft.compile(packed, self.config, keep=True)
        layers, outputs = graph_layers(packed, given)
        values, unequal = self._run(compiled, given, keep=True)
        on_core = [layer for layer in compiled.layers if layer.device == "core"]
        unequal |= {
            layer.name: int(np.count_nonzero(values[layer.output] != wanted))
            for layer, wanted in zip(on_core, layers, strict=True) if not np.array_equal(values[layer.output], wanted)
        }  # fmt: skip
        unequal |= {f"output {name}": 0 for name, value in outputs.items() if not equal(values[name], value)}
        if len(on_core) > 1:  # chained, they are another program, of whose results only the last can be read
            results, differing = self._run(weft.compile(packed, self.config), given)
            unequal |= {f"{name}, chained": count for name, count in differing.items()}
            unequal |= {
                f"output {name}, chained": 0 for name, value in outputs.items() if not equal(results[name], value)
            }
        hosts = [layer for layer in compiled.layers if layer.device != "core"]
        message = "unequal: " + ", ".join(f"{name} ({count})" for name, count in unequal.items())
        message = message if unequal else far(values, expected, MEAN_STEPS, finest, mean=True)
        return Outcome(
            "wrong" if message else "equal", message, on_core=len(compiled.layers) - len(hosts), on_host=len(hosts),
            in_numpy=sum(layer.device == "numpy" for layer in hosts),
            reasons=tuple(dict.fromkeys(reason for layer in hosts for reason in layer.reason.split("; "))),
            features=features(packed),
        )  # fmt: skip

    def _run(self, model: CompiledModel, given: Inputs, *, keep: bool = False) -> tuple[Inputs, dict[str, int]]:
        """The results on the device; and where it has time, by how many cycles they are not the timing model's."""
        if model.core is None:
            return weft.load(model).run(given, keep=keep), {}
        if self.device == "fsim":
            return weft.load(model, weft.FsimDevice(self.config, timing=False)).run(given, keep=keep), {}
        dram = DramModel(bytes_per_cycle=self.config.bus_bytes)
        loaded = weft.load(model, weft.RtlDevice(self.config, dram=dram))
        values = loaded.run(given, keep=keep)
        apart = (loaded.cycles or 0) - sum(run.result.cycles or 0 for run in predict_runs(model, dram))
        return values, {"cycles": apart} if apart else {}


def is_open(value: onnx.ValueInfoProto) -> bool:
    """Whether a size of an input is not fixed."""
    return any(dim.dim_value < 1 for dim in value.type.tensor_type.shape.dim)


def graph_layers(module: Module, inputs: Inputs) -> tuple[list[Array], dict[str, Array]]:
    """What every function on the core gives in NumPy, packed, in the order of the compiled layers; and the outputs."""
    results: dict[Expr, Array] = {}

    def observe(node: Expr, value: Any) -> None:
        results[node] = value

    outputs = evaluate(module, inputs, observe)
    return [results[node] for phase in split_phases(module) if phase.on_core for node in phase.calls], outputs


def onnxruntime_results(model: onnx.ModelProto, inputs: Inputs) -> dict[str, Array]:
    """The model's results, node by node: no fusions, which round differently."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = precise_session(model.SerializeToString(), options)
    known = {value.name for value in session.get_inputs()}
    results = session.run(None, {name: value for name, value in inputs.items() if name in known})
    return {value.name: np.asarray(result) for value, result in zip(session.get_outputs(), results, strict=True)}


def equal(found: Array, wanted: Array) -> bool:
    if wanted.dtype.kind != "f":
        return bool(np.array_equal(found, wanted))
    largest = float(np.abs(wanted[np.isfinite(wanted)]).max(initial=1e-30))
    return bool(np.allclose(found, wanted, rtol=FLOAT_TOLERANCE, atol=FLOAT_TOLERANCE * largest, equal_nan=True))


def finest_scale(model: onnx.ModelProto) -> float:
    """The least scale of an activation in the model: what is rounded there differs by so much."""
    scales = {node.input[1] for node in model.graph.node if node.op_type == "QuantizeLinear"}
    known = [each for each in model.graph.initializer if each.name in scales]
    return min((float(onnx.numpy_helper.to_array(each).min()) for each in known), default=0.0)


def far(found: dict[str, Array], expected: dict[str, Array], steps: float, finest: float, *, mean: bool = False) -> str:
    """Which result is more than ``steps`` from what is expected; empty if none is. A step is a 255th of the result's
    range, or ``finest`` where that is more.

    Whole numbers other than 8-bit ones are indices: half of them must be equal.
    """
    for name, wanted in expected.items():
        value = found[name]
        if value.shape != wanted.shape or value.dtype != wanted.dtype:
            return f"{name} is {value.dtype}{list(value.shape)}, not {wanted.dtype}{list(wanted.shape)}"
        if not wanted.size:
            continue
        if wanted.dtype.kind in "iub" and wanted.dtype.itemsize != 1:
            if np.mean(value == wanted) < 0.5:
                return f"{name}: {np.mean(value != wanted):.0%} of the indices differ from onnxruntime's"
            continue
        a, b = value.astype(np.float64), wanted.astype(np.float64)
        finite = np.isfinite(b)
        if not np.array_equal(finite, np.isfinite(a)):
            return f"{name}: infinite elsewhere than in onnxruntime"
        extent = float(b[finite].max(initial=0) - b[finite].min(initial=0)) or 1.0
        apart = np.abs(a - b)[finite] / max(extent / 255, finest)
        distance = float(apart.mean() if mean else apart.max(initial=0))
        if distance > steps:
            return f"{name}: {distance:.1f} steps from onnxruntime's"
    return ""


# The cases


def suite_cases(tests: Tests, seed: int) -> list[Case]:
    """Each test in each form of `FORMS` and in a random one, which depends on its name and the seed; a function's body,
    which is another way to write a test, in the first and the last of them.

    Where it has several operands, all but the first are weights in these; in the plain form, and in the random one for
    half of the tests, they are computed ones.
    """
    cases = []
    for name, (_, inputs) in tests.items():
        weights = len(inputs) > 1 and next(iter(inputs.values())).dtype == np.float32
        is_body = "_expanded" in name
        cases += [Case("suite", name, form, operand_weights=weights) for form in FORMS[:: 3 if is_body else 1]]
        if not is_body:
            random = np.random.default_rng((zlib.crc32(name.encode()), seed))
            form, fixed = random_form(random), bool(random.random() < 0.5)
            cases.append(Case("suite", name, form, operand_weights=weights and fixed))
            cases += [Case("suite", name, PLAIN)] if weights else []
    return cases


def random_cases(first: int, count: int, seed: int, part: str = "random") -> list[Case]:
    return [
        Case(part, str(number), random_form(np.random.default_rng((seed, number, 1))), number, seed)
        for number in range(first, first + count)
    ]


def network_cases(seed: int) -> list[Case]:
    """Each network in onnxruntime's own form, in int8 QDQ by channels, in QOperator form and in a random one."""
    fixed = (
        PLAIN, Form("QDQ", "QInt8", "QInt8", per_channel=True, pre_process=True),
        Form("QOperator", "QUInt8", "QUInt8"),
    )  # fmt: skip
    return [
        Case("networks", name, form)
        for number, name in enumerate(NETWORKS)
        for form in (*fixed, random_form(np.random.default_rng((seed, number, 2))))
    ]


# The report


def print_report(outcomes: Sequence[tuple[Case, Outcome]]) -> None:
    states = ("equal", "wrong", "refused", "error", "timeout", "crash", "not quantised")
    rows = []
    for part in dict.fromkeys(case.part for case, _ in outcomes):
        mine = [outcome for case, outcome in outcomes if case.part == part]
        counts = Counter(outcome.state for outcome in mine)
        core = sum(outcome.on_core > 0 for outcome in mine)
        rows.append([part, *(str(counts[state]) for state in states), str(core), str(len(mine))])
    print_table("Quantised models on the core", ("part", *states, "some on the core", "cases"), rows)
    by_operator: dict[str, Counter[str]] = {}
    for _, outcome in outcomes:
        for operator in outcome.operators:
            by_operator.setdefault(operator, Counter())[outcome.state] += 1
    rows = [
        [operator, *(str(counts[state]) for state in states)]
        for operator, counts in sorted(by_operator.items(), key=lambda item: (-_bad(item[1]), item[0]))
    ]
    print_table("By operator of the float model", ("operator", *states), rows)
    print_reasons("Why models do not compile, or are wrong", [
        outcome.message for _, outcome in outcomes if not outcome.good
    ])  # fmt: skip
    rows = [[each, str(sum(each in outcome.features for _, outcome in outcomes))] for each in FEATURES]
    print_table("Particular to the core", ("what", "cases that have it"), rows)
    print_reasons("Why layers are on the host", [reason for _, outcome in outcomes for reason in outcome.reasons])


def _bad(counts: Counter[str]) -> int:
    return counts.total() - counts["equal"] - counts["not quantised"]


def print_reasons(title: str, messages: Iterable[str], most: int = 40) -> None:
    counts = Counter(re.sub(r"'[^']*'|\d[\d,.]*", "_", message)[:150] for message in messages)
    if counts:
        rows = [[message, str(count)] for message, count in counts.most_common(most)]
        print_table(title, ("reason", "cases"), rows)


def records_of(outcomes: Sequence[tuple[Case, Outcome]], config: str) -> list[Record]:
    """Flat figures: of each part, of each operator, and one a case."""
    records = []
    for part in dict.fromkeys(case.part for case, _ in outcomes):
        counts = Counter(outcome.state for case, outcome in outcomes if case.part == part)
        records += [Record(config, part, state, count) for state, count in sorted(counts.items())]
    for case, outcome in outcomes:
        workload = str(case)
        records.append(Record(config, workload, "state", outcome.state, "equal"))
        if outcome.message:
            records.append(Record(config, workload, "message", outcome.message))
        records += [
            Record(config, workload, "layers on the core", outcome.on_core),
            Record(config, workload, "layers on the host", outcome.on_host),
            Record(config, workload, "layers in NumPy", outcome.in_numpy),
            Record(config, workload, "seconds", round(outcome.seconds, 2)),
        ]
        records += [Record(config, workload, "host", reason) for reason in outcome.reasons]
        records += [Record(config, workload, "operator", operator) for operator in outcome.operators]
        records += [Record(config, workload, "feature", feature) for feature in outcome.features]
    return records


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join(PARTS)}; default: all")
    parser.add_argument("--config", default="pynq", help="named configuration")
    parser.add_argument("--device", default="fsim", choices=DEVICES, help="what runs the core's programs")
    parser.add_argument("--graphs", type=int, default=300, help="random graphs")
    parser.add_argument("--first", type=int, default=0, help="number of the first random graph")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--filter", default="", metavar="RE", help="only cases whose text matches")
    parser.add_argument("--every", type=int, default=1, help="only one case in so many")
    parser.add_argument("--seconds", type=float, default=SECONDS_AT_MOST, help="processor time that a case may take")
    parser.add_argument("--verbose", action="store_true", help="print each case that is not equal as it comes")
    parser.add_argument("--update", action="store_true", help="write the list of the suite's models that do not run")
    parser.add_argument("--json", type=Path, help="write flat records to this file")
    options = parser.parse_args()
    parts = options.parts or PARTS
    for part in parts:
        if part not in PARTS:
            parser.error(f"there is no part {part!r}; choose from {', '.join(PARTS)}")
    onnxruntime.set_default_logger_severity(4)
    trial = Trial(named_config(options.config), suite_tests() if "suite" in parts else {}, options.device)
    made: dict[str, Callable[[], list[Case]]] = {
        "suite": lambda: suite_cases(trial.tests, options.seed),
        "random": lambda: random_cases(options.first, options.graphs, options.seed),
        "core": lambda: random_cases(options.first, options.graphs, options.seed, "core"),
        "networks": lambda: network_cases(options.seed),
    }
    cases = [case for part in parts for case in made[part]() if re.search(options.filter, str(case))]
    outcomes: list[tuple[Case, Outcome]] = []
    for case, result in Isolated(trial.run, options.seconds).run(cases[:: options.every]):
        if isinstance(result, Broken):
            result = Outcome(result.state, result.message, seconds=result.seconds)
        outcomes.append((case, result))
        if options.verbose and not result.good:
            print(f"{result.state:<9}{case}: {result.message}", flush=True)
    print_report(outcomes)
    if options.json:
        write_json(options.json, records_of(outcomes, trial.config.name))
    found = [(case.name, outcome.state, outcome.message) for case, outcome in outcomes if case.part == "suite"]
    if options.update:
        write_list(found)
    unexpected = surprises(found, every="suite" in parts and not options.filter and options.every == 1)
    print("\n".join(unexpected))
    others = all(outcome.good for case, outcome in outcomes if case.part != "suite")
    return 0 if others and not unexpected else 1


if __name__ == "__main__":
    sys.exit(main())
