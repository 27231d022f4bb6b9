"""Operators at ties, bounds and special values: weft, onnxruntime, ONNX's reference and OpenVINO against exact numbers.

    python benchmarks/frontends/operator_sweep.py             # weft in NumPy and compiled for this processor
    python benchmarks/frontends/operator_sweep.py --targets numpy cpu opencl --filter Resize
    python benchmarks/frontends/operator_sweep.py --openvino  # where it is installed, too

Answers are exact where the standard's text gives them to the last bit (fractions and integers of Python), and within
some units of the last place where it does not. Where it gives none, tools are compared with weft's meaning in NumPy.
docs/values.md says of each disagreement who is right. The exit status says whether weft is on the side of the exact
answers in all, and whether every disagreement of onnxruntime and the reference is explained there.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import weft
from onnx.reference import ReferenceEvaluator
from weft.compiler.frontends.onnx.specialise import specialise
from weft.compiler.graph import evaluate

from benchmarks.common import Record, each_of, print_table, write_json
from benchmarks.frontends import sweep_cases, sweep_norms, sweep_quantised, sweep_recurrent, sweep_windows
from benchmarks.frontends.sweep_cases import Array, Case
from examples.precise import precise_session

PAGE = Path(__file__).parents[2] / "docs" / "values.md"
SOURCES = (
    sweep_cases.float_arithmetic,
    sweep_cases.integer_arithmetic,
    sweep_cases.functions,
    sweep_cases.casts,
    sweep_cases.quantisers,
    sweep_windows.reductions,
    sweep_windows.equals,
    sweep_windows.windows,
    sweep_windows.resizing,
    sweep_windows.special_rows,
    sweep_norms.normalisations,
    sweep_norms.responses,
    sweep_norms.norms_of_windows,
    sweep_norms.determinants,
    sweep_norms.deformed,
    sweep_recurrent.recurrent,
    sweep_quantised.convolutions,
    sweep_quantised.products,
)
TARGETS = ("numpy", "cpu", "opencl", "cuda")
Judged = Callable[[Case], Array]


def all_cases() -> Iterator[Case]:
    with np.errstate(all="ignore"):
        yield from itertools.chain.from_iterable(source() for source in SOURCES)


def by_weft(target: str) -> Judged:
    def run(case: Case) -> Array:
        found = specialise(case.model, case.inputs)
        if target == "numpy":
            (result,) = evaluate(found.module, found.inputs).values()
        else:
            (result,) = weft.load(weft.compile(found.module, target=target)).run(found.inputs).values()
        return np.asarray(result)

    return run


def by_onnxruntime(case: Case) -> Array:
    """Without its own rewrites."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = precise_session(case.model.SerializeToString(), options)
    if any(x.dtype.kind == "V" or x.dtype == ml_dtypes.bfloat16 for x in case.inputs.values()):
        raise TypeError("this type has no NumPy array in onnxruntime")
    found = np.asarray(session.run(None, case.inputs)[0])
    wanted = None if case.exact is None else case.exact.dtype
    return found.view(wanted) if found.dtype == np.uint8 and wanted is not None and wanted.kind == "V" else found


def by_reference(case: Case) -> Array:
    return np.asarray(ReferenceEvaluator(case.model).run(None, case.inputs)[0])


def by_openvino(case: Case) -> Array:
    import openvino

    core = openvino.Core()
    core.set_property("CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    compiled = core.compile_model(core.read_model(case.model.SerializeToString()), "CPU")
    return np.asarray(next(iter(compiled(case.inputs).values())))


JUDGED: dict[str, Judged] = {"onnxruntime": by_onnxruntime, "reference": by_reference, "openvino": by_openvino}


def ordered(values: Array) -> Array:
    """Floats as integers of which neighbours differ by one; both zeros are 0."""
    width = values.dtype.itemsize * 8
    bits = values.view(f"int{width}").astype(object)
    return np.where(bits < 0, -(bits + (1 << width - 1)), bits)


def differing(found: Array, wanted: Array, ulps: float, near: float = 0) -> int:
    """How many elements of ``found`` are not ``wanted``; all where shape or type differ. Any NaN is NaN. Floats
    may be ``ulps`` units of the last place apart, or ``near``."""
    if found.shape != wanted.shape or found.dtype != wanted.dtype:
        return max(wanted.size, 1)
    if found.dtype.kind in "biu" or (found.dtype.kind == "V" and found.dtype.itemsize == 1):
        wide = (found.astype(np.float64), wanted.astype(np.float64)) if found.dtype.kind == "V" else (found, wanted)
        return int(np.count_nonzero((wide[0] != wide[1]) & ~((wide[0] != wide[0]) & (wide[1] != wide[1]))))
    a, b = found.astype(np.float64), wanted.astype(np.float64)
    far = np.array(np.abs(ordered(found) - ordered(wanted)) > ulps, bool) & (a != b)
    with np.errstate(invalid="ignore"):  # infinities
        far &= ~(abs(a - b) <= near)
    return int(np.count_nonzero(np.where(np.isnan(a) | np.isnan(b), np.isnan(a) != np.isnan(b), far)))


@dataclass(frozen=True)
class Outcome:
    """How one tool did in one case: elements that differ of ``elements``, or why it has no answer."""

    case: str
    tool: str
    elements: int
    wrong: int = 0
    missing: str = ""


def outcomes(cases: Iterable[Case], tools: dict[str, Judged]) -> Iterator[Outcome]:
    """Of the tools, against the exact answer, or against weft's NumPy where there is none."""
    for case in cases:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            wanted = case.exact if case.exact is not None else by_weft("numpy")(case)
            for name, tool in tools.items():
                try:
                    found = tool(case)
                except Exception as error:  # what a tool lacks it says in many ways
                    yield Outcome(case.name, name, wanted.size, missing=f"{type(error).__name__}: {error}"[:120])
                    continue
                yield Outcome(case.name, name, wanted.size, differing(found, wanted, case.ulps, case.near))


def explained() -> list[str]:
    """How the names of the cases begin whose disagreements docs/values.md explains."""
    rows = [line.split("|")[1] for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    return [name.strip() for row in rows for name in row.replace("`", "").split(";")]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--targets", nargs="+", choices=TARGETS, default=("numpy", "cpu"), help="of weft")
    parser.add_argument("--filter", default="", help="only cases in whose name this stands")
    parser.add_argument("--every", type=int, default=1, help="only one case in so many")
    parser.add_argument("--openvino", action="store_true", help="compare with OpenVINO, which must be installed")
    parser.add_argument("--verbose", action="store_true", help="what tools have no answer to, too")
    parser.add_argument("--json", type=Path, help="write flat records to this file")
    arguments = parser.parse_args()
    onnxruntime.set_default_logger_severity(4)
    ours: dict[str, Judged] = {f"weft {target}": by_weft(target) for target in arguments.targets}
    tools = {**ours, "onnxruntime": by_onnxruntime, "reference": by_reference}
    if arguments.openvino:
        tools["openvino"] = by_openvino
    cases = [case for case in all_cases() if arguments.filter in case.name][:: arguments.every]
    totals: dict[str, Counter[str]] = defaultdict(Counter)
    good, known = True, explained()
    for outcome in outcomes(each_of(cases, lambda case: case.name), tools):
        state = "missing" if outcome.missing else "wrong" if outcome.wrong else "right"
        totals[outcome.tool][state] += 1
        if state == "right" or (state == "missing" and not arguments.verbose and outcome.tool not in ours):
            continue
        named = any(outcome.case.startswith(name) for name in known if name)
        good &= outcome.tool not in ours and (named or state == "missing" or outcome.tool == "openvino")
        text = outcome.missing or f"{outcome.wrong} of {outcome.elements} elements differ"
        print(f"{outcome.tool}: {outcome.case}: {text}{'' if named or outcome.missing else ' (not in docs/values.md)'}")
    print_table(
        f"{len(cases)} cases, onnx {onnx.__version__}, onnxruntime {onnxruntime.__version__}",
        ["", "as the standard", "otherwise", "no answer"],
        [[tool, *(str(count[state]) for state in ("right", "wrong", "missing"))] for tool, count in totals.items()],
    )
    if arguments.json:
        write_json(
            arguments.json,
            [
                Record(tool, "operator sweep", state, count)
                for tool, counts in totals.items()
                for state, count in counts.items()
            ],
        )
    print("weft is on the standard's side" if good else "MISSED: see above")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
