"""Certificates (docs/certificates.md): what they cost, that right programs have them, and that wrong ones have not.

Of each network the processor time of compiling and of proving, in one process with one thread for matrix products. Of
random layers and chains those that are not proved (wanted: none). Of faults planted in their instructions, each a legal
value in one field: who finds those that the checker of programs passes, one certificate or ten runs of the functional
simulator on random inputs; what only the runs find must be nothing.

    python benchmarks/certificates.py --networks digits mobilenet_v2 resnet18 --size 64
    python benchmarks/certificates.py --networks resnet50
    python benchmarks/certificates.py --cases 100 --faults 10

Of faults planted in the compiler's source (those of tests/mutation that can change a program): in a copy of the package
with each, random layers, chains and digits are compiled and proved; no input is tried. A fault is found where something
is not proved, or where the compiler itself refuses or stops at what it compiles without the fault. The rest is named.

    python benchmarks/certificates.py --mutants 30 --mutant-cases 10
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # more threads wait in loops, which counts as processor time

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import weft
from weft.benchmarks.common import Record, print_table, write_json
from weft.compiler.compile import compile_model
from weft.compiler.graph import Attrs, Function, Module, Span, call
from weft.compiler.model import CompiledModel
from weft.compiler.targets.accel.check import Range, check_program
from weft.compiler.targets.accel.passes import accel_passes
from weft.compiler.targets.errors import CompileError
from weft.errors import WeftError
from weft.examples.models.build import ARCHITECTURES, build
from weft.hw.config import PYNQ, PYNQ_TABLES
from weft.hw.dram_rate import DramRate
from weft.hw.programs import disassemble
from weft.tests.compiler.targets.accel import chains, kernels
from weft.tests.compiler.targets.accel.test_random_shapes import KINDS, POINTWISE, Layer
from weft.tests.mutation.mutants import MUTANTS, Mutant
from weft.tests.mutation.runner import copy_package, mutated_source
from weft.tests.verify.planted import plant, with_program
from weft.verify import verify
from weft.verify.counterexample import random_inputs, simulated

DIGITS = Path(__file__).parent.parent / "examples" / "digits" / "digits.onnx"
RUNS = 10
OUTCOMES = ("planted", "passed the checker", "certificate", "first run", f"{RUNS} runs", "runs alone", "nobody")


MUTATED = tuple(
    f"compiler/targets/accel/{part}/" for part in ("link", "operators", "passes", "schedule", "stream", "walk")
)
"""Of which mutants are taken: the parts of the compiler that decide what a program does."""

SECONDS_AT_MOST = 300
"""For what is compiled and proved with a mutant."""


@dataclass(frozen=True)
class Case:
    """A compiled layer or chain, and its integer graph where there is one."""

    name: str
    model: CompiledModel
    integer: Module | None


def random_layer(seed: int) -> Case:
    choice = random.Random(seed)
    kind = choice.choice(KINDS)
    grouped = kind == "grouped"
    layer = Layer(
        kind=kind, config=choice.choice((*kernels.CONFIGS, PYNQ, PYNQ_TABLES)), threads=choice.randint(1, 4),
        rate=DramRate(latency=choice.randint(1, 500), bytes_per_cycle=choice.randint(1, 16)),
        batch=choice.randint(1, 3), groups=choice.randint(2, 5) if grouped else 1,
        channels=choice.randint(1, 7 if grouped else 21), filters=choice.randint(1, 7 if grouped else 21),
        size=(choice.randint(1, 19), choice.randint(1, 19)), kernel=(choice.randint(1, 5), choice.randint(1, 5)),
        strides=(choice.randint(1, 3), choice.randint(1, 3)),
        pads=tuple(choice.randint(0, 3) for _ in range(4)),  # type: ignore[arg-type]
        dilations=(1, 1) if kind == "sum_pool" else (choice.randint(1, 3), choice.randint(1, 3)), seed=seed,
    )  # fmt: skip
    if kind not in POINTWISE:
        grown = max(0, 1 - min(layer.output)) * 3
        layer = replace(layer, size=(layer.size[0] + grown, layer.size[1] + grown))
    plain = packed = layer.module()
    for step in accel_passes(kernels.blocks_of(layer.config), layer.rate.for_bus(layer.config)):
        packed = step(packed)
    options = {"config": layer.config, "vthreads": layer.threads, "dram": layer.rate}
    return Case(f"layer {seed} ({kind})", _compiled(replace(packed, stage="packed"), options), plain)


def random_chain(seed: int) -> Case:
    case = (chains.pooled_case if seed % 2 else chains.random_case)(seed)
    config = random.Random(seed).choice(chains.SQUARE)
    function = chains.chain_function(case, config)
    body = call(function, *function.params, span=Span((function.name,), "result"))
    main = Function(function.params, body, Attrs({"name": function.name, "outputs": ("output",)}))
    return Case(f"chain {seed}", _compiled(Module(main, "packed"), {"config": config}), None)


def _compiled(module: Module, options: dict[str, object]) -> CompiledModel:
    made = compile_model(module, "accel", options)
    assert isinstance(made, CompiledModel)
    return made


def cases(count: int) -> Iterator[Case]:
    """Layers and chains in turn; what fits no core is left out."""
    for seed in range(count):
        for make in (random_layer, random_chain):
            try:
                case = make(seed)
            except WeftError:
                continue
            if case.model.core is not None:
                yield case


def planted(case: Case, count: int, seed: int) -> Counter[str]:
    """Who finds ``count`` faults in the first program of a case."""
    tally: Counter[str] = Counter()
    choice, core, step = random.Random(seed), case.model.on_core, case.model.programs[0]
    instructions = disassemble(core.config, step.program)
    constants = tuple(Range(each.offset, each.offset + each.data.nbytes) for each in core.constants)
    inputs = [random_inputs(core, step, number) for number in range(RUNS)]
    right = [simulated(core, step, each) for each in inputs]
    for _ in range(count):
        fault = plant(choice, core.config, instructions)
        tally["planted"] += 1
        try:
            check_program(core.config, fault.program, step.program_offset, constants)
        except CompileError:
            continue
        wrong = with_program(case.model, 0, fault.program)
        found = not verify(wrong, seed=seed).proved
        shown = next((n for n in range(RUNS) if not _same(simulated(core, wrong.programs[0], inputs[n]), right[n])), -1)
        tally["passed the checker"] += 1
        tally["certificate"] += found
        tally["first run"] += shown == 0
        tally[f"{RUNS} runs"] += shown >= 0
        tally["runs alone"] += shown >= 0 and not found
        tally["nobody"] += shown < 0 and not found
        if shown >= 0 and not found:
            print(f"{case.name}: {fault.name} of instruction {fault.place}: {fault.old} became {fault.new}")
    return tally


def _same(first: object, second: object) -> bool:
    if not isinstance(first, dict) or not isinstance(second, dict):
        return first == second
    return all((first[name] == second[name]).all() for name in second)


def measure_cases(count: int, faults: int) -> tuple[list[Record], bool]:
    tried, alarms, tally, elements = 0, 0, Counter[str](), 0
    for number, case in enumerate(cases(count)):
        certificate = verify(case.model, case.integer, seed=number)
        tried += 1
        elements += certificate.elements
        if not certificate.proved:
            alarms += 1
            print(case.name, *map(str, certificate.alarms), sep="\n    ")
        elif faults:
            tally += planted(case, faults, number)
    what = "random layers and chains"
    records = [Record("several", what, "proved", tried - alarms, tried), Record("several", what, "elements", elements)]
    if faults:
        records += [Record("several", "faults in instructions", name, tally[name]) for name in OUTCOMES]
    return records, bool(alarms or tally["runs alone"])


def measure_network(name: str, size: int, config: str) -> tuple[list[Record], bool]:
    path = DIGITS if name == "digits" else build(name, size=size)
    began = time.process_time()
    model = weft.compile(path, config, cache=False)
    compiled = time.process_time() - began
    assert isinstance(model, CompiledModel)
    began = time.process_time()
    certificate = weft.certify(model, path)
    seconds = time.process_time() - began
    print(certificate.summary(), *map(str, certificate.alarms), sep="\n    ")
    workload = name if name == "digits" else f"{name} {size}"
    records = [
        Record(config, workload, "instructions", model.statistics["instructions"]),
        Record(config, workload, "compiling, CPU s", round(compiled, 2)),
        Record(config, workload, "proving, CPU s", round(seconds, 2)),
        Record(config, workload, "proving / compiling", round(seconds / compiled, 2), 1.0),
        Record(config, workload, "elements", certificate.elements),
        Record(config, workload, "chance of error", float(f"{certificate.error:.1e}")),
        Record(config, workload, "proved", int(certificate.proved), 1),
    ]
    return records, not certificate.proved


def measure_mutants(count: int, number_of_cases: int) -> list[Record]:
    """Which of so many mutants are found without any input, and by whom."""
    able = [mutant for mutant in MUTANTS if mutant.path.startswith(MUTATED)]
    chosen = random.Random(0).sample(able, min(count, len(able)))
    tally: Counter[str] = Counter({"proof": 0, "the compiler itself": 0, "nobody": 0})
    with tempfile.TemporaryDirectory(prefix="weft-certificates-") as folder:
        package = Path(folder) / "weft"
        copy_package(package, ("tests/verify",))
        right = _proved_alone(package, number_of_cases)
        for mutant in chosen:
            found = _found_by(package, mutant, number_of_cases, right)
            tally[found] += 1
            print(f"{mutant.name} ({mutant.path}): {found}", flush=True)
    what = "faults in the compiler"
    records = [Record("several", what, "planted", len(chosen))]
    return records + [Record("several", what, f"found by {name}", number) for name, number in tally.items()]


def _found_by(package: Path, mutant: Mutant, count: int, right: object) -> str:
    source = package / mutant.path
    before = source.read_text()
    source.write_text(mutated_source(mutant, package))
    try:
        outcome = _proved_alone(package, count)
    finally:
        source.write_text(before)
    if outcome == right:
        return "nobody"
    return "the compiler itself" if outcome is None or all(proved == tried for proved, tried in outcome) else "proof"


def _proved_alone(package: Path, count: int) -> list[tuple[int, int]] | None:
    """What a process proves with the package in a folder, of how many that it compiles: of random cases, and of
    digits. None where it stops."""
    records = package.parent / "records.json"
    records.unlink(missing_ok=True)
    command = [sys.executable, "-P", str(package / "benchmarks" / "certificates.py")]
    command += ["--cases", str(count), "--networks", "digits", "--json", str(records)]
    environment = os.environ | {"PYTHONPATH": str(package.parent), "WEFT_CACHE": str(package.parent / "cache")}
    try:
        subprocess.run(command, env=environment, capture_output=True, check=False, timeout=SECONDS_AT_MOST)
    except subprocess.TimeoutExpired:
        return None
    if not records.exists():
        return None
    found = [each for each in json.loads(records.read_text()) if each["figure"] == "proved"]
    return [(int(each["value"]), int(each["reference"])) for each in found]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", nargs="*", default=[], choices=["digits", *ARCHITECTURES])
    parser.add_argument("--size", type=int, default=224, help="height and width of a network's image")
    parser.add_argument("--config", default="pynq")
    parser.add_argument("--cases", type=int, default=0, help="random layers, and as many chains")
    parser.add_argument("--faults", type=int, default=0, help="planted in the instructions of each case")
    parser.add_argument(
        "--mutants", type=int, default=0, help="faults in the compiler's source, of those in tests/mutation"
    )
    parser.add_argument(
        "--mutant-cases", type=int, default=10, help="random layers, and as many chains, for each of them"
    )
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    records: list[Record] = []
    missed = False
    for name in options.networks:
        made, failed = measure_network(name, options.size, options.config)
        records += made
        missed |= failed
    if options.cases:
        made, failed = measure_cases(options.cases, options.faults)
        records += made
        missed |= failed
    if options.mutants:
        records += measure_mutants(options.mutants, options.mutant_cases)
    rows = [[r.workload, r.config, r.figure, str(r.value), "" if r.reference is None else str(r.reference)]
            for r in records]  # fmt: skip
    print_table("certificates", ["workload", "core", "figure", "value", "wanted"], rows)
    if options.json:
        write_json(options.json, records)
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
