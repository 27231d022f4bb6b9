"""Certificates (docs/certificates.md): what they cost, that right programs have them, and that wrong ones have not.

Of each network the processor time of compiling and of proving, in one process with one thread for matrix products. Of
random models of every form (`campaigns/certificate_forms.py`) those that are not proved (wanted: none). Of faults
planted in their instructions, each a legal value in one field: who finds those that the checker of programs passes, one
certificate or ten runs of the functional simulator on random inputs; what only the runs find must be nothing.

    python benchmarks/core/certificates.py --networks digits mobilenet_v2 resnet18 --size 64
    python benchmarks/core/certificates.py --networks resnet50
    python benchmarks/core/certificates.py --seeds 8 --faults 10
    python benchmarks/core/certificates.py --seeds 20 --forms moved bent --first 100
    python benchmarks/core/certificates.py --seeds 40 --models 1000

Of faults planted in the compiler's source (tests/mutation): in a copy of the package with each, those random models are
compiled and proved that run the changed line; no input is tried. A fault is found where something is not proved, or
where the compiler itself refuses or stops at what it compiles without the fault. What is proved although it became
another program runs on the functional simulator: what that finds must be nothing. The rest is named. What became of a
fault is kept until a source changes, so an interrupted campaign goes on.

    python benchmarks/core/certificates.py --mutants
    python benchmarks/core/certificates.py --mutants --sample 40 --mutant-seeds 4
    python benchmarks/core/certificates.py --mutants taps-columns-first border-is-shifted
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # more threads wait in loops, which counts as processor time

import argparse
import itertools
import random
import sys
import time
import warnings
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import weft
from weft.compiler.model import CompiledModel
from weft.compiler.targets.accel.check import Range, check_program
from weft.compiler.targets.errors import CompileError
from weft.hw.programs import disassemble
from weft.progress import progress
from weft.verify import verify
from weft.verify.counterexample import random_inputs, simulated

from benchmarks.campaigns.certificate_forms import FORMS, Case, all_cases, case_of
from benchmarks.campaigns.certificate_mutants import SECONDS, able, measure_mutants
from benchmarks.common import Record, print_table, write_json
from examples.models.build import ARCHITECTURES, build
from tests.verify.planted import plant, with_program

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx"
RUNS = 10
OUTCOMES = ("planted", "passed the checker", "certificate", "first run", f"{RUNS} runs", "runs alone", "nobody")


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


def measure_cases(chosen: Sequence[tuple[str, int]], faults: int) -> tuple[list[Record], bool]:
    tried, alarms, tally, elements = Counter[str](), 0, Counter[str](), 0
    cores: set[str] = set()
    began = time.process_time()
    with progress("random models") as shown:
        for number, (form, seed) in enumerate(chosen):
            rate = 60 * number / max(time.process_time() - began, 0.1)
            shown.count(f"random models, {alarms} not proved, {rate:.0f} a CPU minute", number, len(chosen))
            case = case_of(form, seed)
            if case is None:
                continue
            certificate = verify(case.model, case.integer, seed=seed)
            tried[form] += 1
            elements += certificate.elements
            cores.add(repr(case.model.config))
            if not certificate.proved:
                alarms += 1
                print(case.name, *map(str, certificate.alarms), sep="\n    ", flush=True)
            elif faults:
                tally += planted(case, faults, seed)
    seconds = time.process_time() - began
    what, count = "random models", tried.total()
    records = [
        Record("several", what, "proved", count - alarms, count), Record("several", what, "elements", elements),
        Record("several", what, "cores", len(cores)),
        Record("several", what, "CPU s of compiling and proving", round(seconds)),
        *(Record("several", what, f"of form {form!r}", number) for form, number in tried.items()),
    ]  # fmt: skip
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


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", nargs="*", default=[], choices=["digits", *ARCHITECTURES])
    parser.add_argument("--size", type=int, default=224, help="height and width of a network's image")
    parser.add_argument("--config", default="pynq")
    parser.add_argument(
        "--seeds", type=int, default=0, help="random models of each form; of some that take long, fewer"
    )
    parser.add_argument("--first", type=int, default=0, help="the first of these seeds")
    parser.add_argument("--models", type=int, metavar="N", help="no more than so many of these models")
    parser.add_argument("--forms", nargs="*", default=list(FORMS), choices=list(FORMS))
    parser.add_argument("--faults", type=int, default=0, help="planted in the instructions of each model")
    parser.add_argument(
        "--mutants", nargs="*", metavar="NAME",
        help="faults in the compiler's source, of those in tests/mutation: these, or all that can change a program",
    )  # fmt: skip
    parser.add_argument("--mutant-seeds", type=int, default=10, help="models of each form that these are tried on")
    parser.add_argument("--sample", type=int, metavar="N", help="so many of these faults, drawn at random")
    parser.add_argument("--mutant-seconds", type=float, default=SECONDS, help="of the processor, for each fault")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    records: list[Record] = []
    missed = False
    for name in options.networks:
        made, failed = measure_network(name, options.size, options.config)
        records += made
        missed |= failed
    if options.seeds:
        seeds = range(options.first, options.first + options.seeds)
        chosen = list(itertools.islice(all_cases(seeds, options.forms), options.models))
        made, failed = measure_cases(chosen, options.faults)
        records += made
        missed |= failed
    if options.mutants is not None:
        unknown = sorted({*options.mutants} - {mutant.name for mutant in able()})
        if unknown:
            parser.error(f"no fault of the compiler is called {unknown[0]!r}")
        made, failed = measure_mutants(options.mutants, options.mutant_seeds, options.sample, options.mutant_seconds)
        records += made
        missed |= failed
    rows = [[r.workload, r.config, r.figure, str(r.value), "" if r.reference is None else str(r.reference)]
            for r in records]  # fmt: skip
    print_table("certificates", ["workload", "core", "figure", "value", "wanted"], rows)
    if options.json:
        write_json(options.json, records)
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
