"""Faults planted in the accelerator's compiler, and who finds them without any input: proofs of random models.

A reference process compiles and proves models of every form (`certificate_forms`), and notes which lines of the
compiler each of them runs. Then, in a process with one fault, the models that run the changed line are compiled and
proved until one of them finds it. What becomes another program and is proved runs on the functional simulator as well,
with random inputs: a fault that it shows is one that the certificate has missed.

What became of each fault is kept in weft's cache, so a campaign that was interrupted goes on where it was.
"""

from __future__ import annotations

import ast
import importlib
import json
import multiprocessing
import random
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from functools import cache
from itertools import zip_longest
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar
from unittest import mock

import numpy as np
import weft
from weft.cache import cache_key, kept
from weft.compiler.graph import evaluate
from weft.compiler.targets.llvm.scan import Scan
from weft.content import content_digest
from weft.progress import progress
from weft.verify import verify

from benchmarks.campaigns import certificate_forms
from benchmarks.campaigns.certificate_forms import Case, all_cases, case_of
from benchmarks.campaigns.in_memory import planted
from benchmarks.common import Record
from tests.mutation.mutants import MUTANTS, Mutant
from tests.mutation.runner import imported, mutated_source, package_texts

Result = TypeVar("Result")

ROOT = Path(weft.__file__).parent
COMPILER = "compiler/targets/accel/"

NOT_MUTATED = ("check.py", "check_at_once.py", "cost/", "operators/host_moves.py", "link/host_part.py")
"""Parts of the compiler that decide nothing of what a program of the core computes: the checker, estimates of cost, and
the host's part, which a certificate trusts."""

NOT_TRIED = tuple(str(ROOT / COMPILER / each) for each in NOT_MUTATED)

SECONDS = 60.0
"""Of the processor, after which no further model is tried on a fault."""

HANGS = 600
"""Seconds beyond these after which a process with a fault does not end."""

WANTED = 0.99
"""Of the faults that anything shows, those that one run of the verifier, or the compiler, finds without an input."""

SAME_AT_MOST, OTHER_AT_MOST = 80, 16
"""Models that a mutant is tried on: of those that stay the same, and of those that become other programs, which are
proved and run."""


class Found(StrEnum):
    """What became of a fault, the worst first."""

    MISSED = "missed: fsim shows it"
    PROOF = "the proof"
    COMPILER = "the compiler itself"
    STOPPED = "the compiler dies, or does not end"
    OTHER = "nobody: other programs, proved and equal on fsim"
    SAME = "nobody: the same programs"
    NOT_RUN = "nobody: no model runs the line"
    NOT_PLANTED = "not planted: it changes what is done at an import"


@dataclass(frozen=True)
class Tried:
    """A model of the reference run: its content, the CPU seconds that it takes, and the lines that it runs, by file."""

    form: str
    seed: int
    digest: str
    seconds: float
    lines: Mapping[str, Sequence[int]]


FINDS = (Found.PROOF, Found.COMPILER, Found.STOPPED)
"""Without any input."""

SURVIVORS = (Found.MISSED, Found.OTHER, Found.SAME, Found.NOT_RUN)


@dataclass(frozen=True)
class Outcome:
    """``case``: the model that shows it; ``tried``: how many models were compiled."""

    found: Found
    case: str = ""
    text: str = ""
    tried: int = 0


def able() -> list[Mutant]:
    """Faults in what decides what a program computes."""
    return [
        mutant for mutant in MUTANTS
        if mutant.path.startswith(COMPILER) and not mutant.path.removeprefix(COMPILER).startswith(NOT_MUTATED)
    ]  # fmt: skip


def drawn(names: Sequence[str], sample: int | None) -> list[Mutant]:
    """Faults by name (all if there is none), or so many of them, always the same."""
    chosen = [mutant for mutant in able() if not names or mutant.name in names]
    return chosen if sample is None else random.Random(0).sample(chosen, min(sample, len(chosen)))


def measure_mutants(names: Sequence[str], seeds: int, sample: int | None, seconds: float) -> tuple[list[Record], bool]:
    """``names``: of mutants, all if empty, or ``sample`` of them. ``seeds``: models of each form. ``seconds``: of the
    processor, for each mutant."""
    chosen = drawn(names, sample)
    outcomes: dict[str, Outcome] = {}
    with progress("models without a fault") as shown:
        tried = kept_reference(seeds)
        print(f"{len(tried)} models in {sum(each.seconds for each in tried):.0f} CPU s", flush=True)
        for number, mutant in enumerate(chosen):
            shown.count(f"faults, {mutant.name}", number, len(chosen))
            outcome = outcomes[mutant.name] = kept_outcome(mutant, tried, seeds, seconds)
            by = f" ({outcome.case})" if outcome.case else ""
            print(f"{mutant.path.removeprefix(COMPILER)} {mutant.name}: {outcome.found}{by}", flush=True)
            if outcome.found is Found.MISSED:
                print(f"    {outcome.text}", flush=True)
    return records_of(outcomes)


def records_of(outcomes: Mapping[str, Outcome]) -> tuple[list[Record], bool]:
    """What became of the faults, by name, and whether too few were found. Of programs that are other ones, and proved,
    and equal on the simulator, most are slower, or faster: so there are two shares."""
    what, numbers = "faults in the compiler", dict.fromkeys(Found, 0)
    for outcome in outcomes.values():
        numbers[outcome.found] += 1
    found = sum(numbers[kind] for kind in FINDS)
    shown = found + numbers[Found.MISSED]
    share = found / shown if shown else 1.0
    of_others = found / (shown + numbers[Found.OTHER]) if found else 0.0
    for kind in SURVIVORS:
        names = sorted(name for name, outcome in outcomes.items() if outcome.found is kind)
        if names:
            print(f"{kind} ({len(names)}): {', '.join(names)}")
    records = [Record("several", what, "planted", len(outcomes))]
    for kind, number in numbers.items():
        records.append(Record("several", what, kind.value, number, 0 if kind is Found.MISSED else None))
    records.append(Record("several", what, "share found of those that anything shows", round(share, 4), WANTED))
    records.append(Record("several", what, "share found of those that change the program", round(of_others, 4)))
    return records, bool(numbers[Found.MISSED]) or share < WANTED


@cache
def _sources() -> tuple[str, ...]:
    """What a campaign depends on: the package, and what makes models and judges them."""
    forms = Path(certificate_forms.__file__)
    return (*package_texts(), *(path.read_text() for path in sorted({Path(__file__), forms, *imported(forms)})))


def kept_reference(seeds: int) -> list[Tried]:
    """The models that there are without a fault; afterwards this process has imported all that compiling imports."""

    def make() -> bytes:
        tried, modules = reference_run(seeds)
        return json.dumps([[asdict(each) for each in tried], modules]).encode()

    for path in (ROOT / COMPILER).rglob("*.py"):
        importlib.import_module(".".join((weft.__name__, *path.relative_to(ROOT).with_suffix("").parts)))
    tried, modules = json.loads(kept("certificate-mutants", cache_key(*_sources(), seeds), make))
    for name in modules:
        if name.startswith(f"{weft.__name__}.") or "." not in name:
            importlib.import_module(name)
    return [Tried(**each) for each in tried]


def kept_outcome(mutant: Mutant, tried: Sequence[Tried], seeds: int, seconds: float) -> Outcome:
    def make() -> bytes:
        return json.dumps(asdict(outcome_of(mutant, tried, seconds))).encode()

    key = cache_key(*_sources(), seeds, seconds, mutant.path, mutant.old, mutant.new)
    found = json.loads(kept("certificate-mutants", key, make))
    return Outcome(**(found | {"found": Found(found["found"])}))


def reference_run(seeds: int) -> tuple[list[Tried], list[str]]:
    """These models, and the names of the modules that they needed, from a process of its own: a process compiles equal
    functions once."""

    def work() -> tuple[list[Tried], list[str]]:
        run_scans_in_python()
        return list(reference(seeds)), [*sys.modules]

    found = _forked(work, None)
    if found is None:
        raise SystemExit("the reference run has stopped")
    return found


def outcome_of(mutant: Mutant, tried: Sequence[Tried], seconds: float = SECONDS) -> Outcome:
    """What becomes of a fault, in a process of its own, within about so many seconds of the processor."""
    source = (ROOT / mutant.path).read_text()
    lines = changed_lines(source, mutant.old)
    run = [each for each in tried if lines is None or lines & set(each.lines.get(mutant.path, ()))]
    if not run:
        return Outcome(Found.NOT_RUN)
    cases = [(each.form, each.seed, each.digest) for each in forms_in_turn(run)[:SAME_AT_MOST]]

    def work() -> Outcome:
        if not planted(str(ROOT / mutant.path), source, mutated_source(mutant, ROOT)):
            return Outcome(Found.NOT_PLANTED)
        run_scans_in_python()
        return judged(cases, seconds)

    found = _forked(work, seconds + HANGS)
    return Outcome(Found.STOPPED) if found is None else found


def run_scans_in_python() -> None:
    """From now on in this process, but for the checker: the machine code of a scan has no lines, and no fault."""
    by_machine = Scan.__call__

    def call(self: Scan, *arguments: Any) -> int:
        path = self.python.__code__.co_filename
        if path.startswith(str(ROOT / COMPILER)) and not path.startswith(NOT_TRIED):
            return int(self.python(*arguments) or 0)
        return by_machine(self, *arguments)

    mock.patch.object(Scan, "__call__", call).start()


def forms_in_turn(models: Sequence[Tried]) -> list[Tried]:
    """The quickest model of each form, then the next of each: forms differ more than models of one form."""
    of_forms: dict[str, list[Tried]] = {}
    for each in sorted(models, key=lambda each: each.seconds):
        of_forms.setdefault(each.form, []).append(each)
    rounds = zip_longest(*of_forms.values())
    return [each for several in rounds for each in several if each is not None]


def _forked(work: Callable[[], Result], seconds: float | None) -> Result | None:
    """What ``work`` gives in a copy of this process; None where that dies, or takes longer."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=lambda: sender.send(work()))
    process.start()
    sender.close()
    try:
        return receiver.recv() if receiver.poll(seconds) else None
    except EOFError:
        return None
    finally:
        process.kill()
        process.join()


def changed_lines(source: str, old: str) -> set[int] | None:
    """The lines whose running runs a text that is to be changed: those of the statement around it. None for what is
    run when the module is imported."""
    first = source[: source.index(old)].count("\n") + 1
    last = first + old.rstrip("\n").count("\n")
    lines: set[int] | None = None
    smallest = len(source)
    for function in ast.walk(ast.parse(source)):
        if not isinstance(function, ast.FunctionDef):
            continue
        for node in ast.walk(function):
            if not isinstance(node, ast.stmt) or node is function:
                continue
            begin, end = node.lineno, node.end_lineno or node.lineno
            if begin <= last and first <= end and end - begin < smallest and begin <= first:
                lines, smallest = set(range(begin, end + 1)), end - begin
    return lines


# In the process with the fault


def digest_of(case: Case) -> str:
    """What stands for all that is compiled and proved."""
    model, witness = case.model, case.model.witness
    parts = [model.core, model.steps] if witness is None else [model.core, model.steps, witness.text]
    return content_digest(*parts)


def reference(seeds: int) -> Iterator[Tried]:
    """Models that are proved, each with its lines."""
    for form, seed in all_cases(range(seeds)):
        began = time.process_time()
        with Lines() as lines:
            case = case_of(form, seed)
        if case is None:
            continue
        if not verify(case.model, case.integer, seed=seed).proved:
            print(f"{case.name} is not proved without any fault", file=sys.stderr)
            continue
        yield Tried(form, seed, digest_of(case), time.process_time() - began, lines.found)


class Lines:
    """Which lines of the accelerator's compiler run in a block, by file."""

    def __init__(self) -> None:
        self.found: dict[str, list[int]] = {}

    def __enter__(self) -> Lines:
        begin = str(ROOT / COMPILER)
        found: dict[str, set[int]] = {}

        def of_frame(frame: FrameType, event: str, _: object) -> Any:
            if not frame.f_code.co_filename.startswith(begin):
                return None
            lines = found.setdefault(frame.f_code.co_filename, set())

            def of_line(frame: FrameType, event: str, _: object) -> Any:
                if event == "line":
                    lines.add(frame.f_lineno)
                return of_line

            return of_line

        self._sets = found
        sys.settrace(of_frame)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)
        self.found = {str(Path(path).relative_to(ROOT)): sorted(lines) for path, lines in self._sets.items()}


def judged(cases: Sequence[tuple[str, int, str]], seconds: float = SECONDS) -> Outcome:
    """The first case that shows a fault, or what became of those that time was enough for."""
    worst, others, number, stop = Outcome(Found.SAME), 0, 0, time.process_time() + seconds
    for form, seed, digest in cases:
        if number and time.process_time() > stop:
            break
        number += 1
        name = f"{form} {seed}"
        try:
            case = case_of(form, seed)
        except Exception as error:
            return Outcome(Found.COMPILER, name, f"{type(error).__name__}: {error}"[:300], number)
        if case is None:
            return Outcome(Found.COMPILER, name, "refused, or left to the host", number)
        if digest_of(case) == digest:
            continue
        certificate = verify(case.model, case.integer, seed=seed)
        if not certificate.proved:
            return Outcome(Found.PROOF, name, str(certificate.alarms[0])[:600], number)
        difference = difference_on_fsim(case, seed)
        if difference:
            return Outcome(Found.MISSED, name, difference, number)
        worst = Outcome(Found.OTHER, name)
        others += 1
        if others == OTHER_AT_MOST:
            break
    return replace(worst, tried=number)


def difference_on_fsim(case: Case, seed: int) -> str:
    """Where the model differs from its integer graph for random inputs; empty where it does not."""
    generator = np.random.default_rng(seed)
    values = {}
    for spec in case.model.inputs:
        if spec.dtype.startswith("float"):
            values[spec.name] = generator.normal(0, 3, spec.shape).astype(spec.dtype)
        elif spec.dtype in ("int8", "uint8", "int16"):
            ends = np.iinfo(spec.dtype)
            values[spec.name] = generator.integers(ends.min, ends.max + 1, spec.shape).astype(spec.dtype)
        else:  # numbers of tokens or places
            values[spec.name] = generator.integers(0, 2, spec.shape).astype(spec.dtype)
    try:
        found = weft.load(case.model, "fsim").run(values)
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:300]
    for name, wanted in evaluate(case.integer, values).items():
        if not np.array_equal(found[name], wanted, equal_nan=wanted.dtype.kind == "f"):
            return f"output {name!r} differs in {int((found[name] != wanted).sum())} elements"
    return ""
