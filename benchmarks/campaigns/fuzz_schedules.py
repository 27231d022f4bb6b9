"""Random schedules of random computations: each step keeps the meaning or is refused by name, whatever runs the result.

Case ``n`` depends on ``n`` and the seed alone. Legal and illegal primitives are applied to a computation of one to
three stages; every third case is one in the layout of a core and ends in its intrinsics. A refused step must be a
`ScheduleError` that leaves the schedule as it was. What comes out must compute what the function did before, in the
interpreter, on this machine's processor (every ``--cpu-each`` case) and, where it fits, on the functional simulator;
a function that reads beyond its tensors must be refused by both. Integers must be equal; floats may differ by
``TOLERANCE`` steps of their type, relative to the largest element.

Cases run in a process of its own, which may crash or hang. A failing one is shrunk to the steps that it needs and
printed as a program, which ``--keep DIR`` also writes.

    python benchmarks/campaigns/fuzz_schedules.py --cases 10000
    python benchmarks/campaigns/fuzz_schedules.py --cases 1 --first 1234
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import weft
from weft.compiler import tensor as t
from weft.compiler.graph.dtypes import step as float_step
from weft.compiler.targets.accel.check import ProgramError
from weft.compiler.targets.accel.operators.intrinsics import intrinsics
from weft.compiler.targets.accel.schedule.random_kernels import random_kernel, random_plan
from weft.compiler.targets.errors import FactorError
from weft.compiler.tensor.random_programs import random_array, random_program
from weft.compiler.tensor.random_steps import random_step
from weft.compiler.tensor.schedule import Step, apply_step
from weft.compiler.tensor.visitor import stores_of
from weft.hw.config import TINY
from weft.runtime.errors import InputError

from benchmarks.common import Record, print_table, write_json

Arrays = Mapping[str, np.ndarray[Any, Any]]

TOLERANCE = 64
SECONDS = 60.0
"""Of the processor for one case; what takes longer counts as a hang. On a clock, ``PATIENCE`` times as much."""

PATIENCE = 10

MOST_STEPS = 12
CORE_EACH = 3
MOST_FAILURES = 20
SAID_EACH = 100
"""Cases between two lines of progress in a file."""

BAD = ("wrong", "crash", "hang")


@dataclass(frozen=True)
class Case:
    """A function, the steps to be tried on it, refused ones among them, and what runs the result."""

    func: t.PrimFunc
    steps: tuple[Step, ...]
    arrays: int
    targets: tuple[str, ...]
    threads: int = 1


@dataclass
class Outcome:
    """``wrong``: in words, empty if nothing is. ``counts``: of steps and runs."""

    wrong: str = ""
    counts: Counter[str] = field(default_factory=Counter)


def drawn(number: int, seed: int, cpu_each: int = 1) -> Case:
    """Case ``number``. Steps are drawn while they are applied; the case ends where one goes wrong."""
    chance = random.Random(f"{seed}/{number}")
    on_core = number % CORE_EACH == CORE_EACH - 1
    func = random_kernel(chance, TINY) if on_core else random_program(chance)
    schedule, steps = t.Schedule(func), []
    plan = random_plan(schedule, chance, TINY) if on_core else None
    for _ in range(10_000 if on_core else chance.randint(1, MOST_STEPS)):
        step = next(plan, None) if plan is not None else random_step(schedule, chance, intrinsics(TINY))
        if step is None:
            break
        try:
            apply_step(schedule, step, intrinsics(TINY))
        except t.ScheduleError:
            if on_core and step.primitive == "tensorize" and chance.random() < 0.95:
                continue  # there are many that do not fit; a few stay in the case
        except Exception:
            steps.append(step)
            break
        steps.append(step)
    targets = (*(("cpu",) if number % cpu_each == 0 else ()), *(("fsim",) if on_core else ()))
    return Case(func, tuple(steps), chance.getrandbits(32), targets, chance.choice((1, 1, 2)))


def inputs_of(case: Case) -> dict[str, np.ndarray[Any, Any]]:
    """Arrays for all parameters that the function does not write."""
    written = {buffer.name for buffer, _ in stores_of(case.func.body)}
    chance = random.Random(case.arrays)
    return {
        param.name: random_array(chance, param.shape, param.dtype)
        for param in case.func.params if param.name not in written
    }  # fmt: skip


def check(case: Case) -> Outcome:
    """Apply the steps and run the result everywhere."""
    outcome = Outcome()
    try:
        outcome.wrong = _fault(case, outcome.counts)
    except Exception as error:  # whatever it raises is a finding; the campaign goes on
        last = traceback.extract_tb(error.__traceback__)[-1]
        outcome.wrong = f"{type(error).__name__}: {error} ({Path(last.filename).name}:{last.lineno})"
    return outcome


def _fault(case: Case, counts: Counter[str]) -> str:
    schedule = t.Schedule(case.func)
    for step in case.steps:
        before = schedule.func, schedule.trace
        try:
            apply_step(schedule, step, intrinsics(TINY))
        except t.ScheduleError:
            counts["steps refused"] += 1
            if (schedule.func, schedule.trace) != before:
                return f"{step} was refused, but changed the schedule"
            continue
        counts["steps taken"] += 1
        t.check_legal(schedule.func, t.SCHEDULED)
    arrays = inputs_of(case)
    try:
        wanted: Arrays | None = t.interpret(case.func, arrays)
    except t.InterpreterError:
        wanted = None
        counts["read beyond a tensor"] += 1
    if wanted is not None:
        found = t.interpret(schedule.func, arrays)
        counts["interpreted"] += 1
        wrong = difference(wanted, found)
        if wrong:
            return f"interpreter: {wrong}"
    for target in case.targets:
        wrong = _run(case, schedule, target, arrays, wanted, counts)
        if wrong:
            return f"{target}: {wrong}"
    return ""


def _run(
    case: Case, schedule: t.Schedule, target: str, arrays: Arrays, wanted: Arrays | None, counts: Counter[str]
) -> str:
    options: dict[str, Any] = {"threads": case.threads} if target == "cpu" else {"config": TINY}
    try:
        built = weft.build(schedule, target, **options)
    except ProgramError as error:  # the checker found what the compiler did wrong
        return f"its program is refused: {error}"
    except t.BoundsError as error:
        counts[f"{target}: refused for its bounds"] += 1
        return f"refused, but the interpreter runs it: {error}" if wanted is not None else ""
    except FactorError:
        counts[f"{target}: refused for a factor"] += 1
        return ""
    except weft.WeftError:
        counts[f"{target}: refused"] += 1
        return ""
    if wanted is None:
        return "what reads beyond a tensor was not refused"
    try:
        found = built.run(arrays)
    except InputError as error:
        if target == "cpu" or "but the core" not in error.message:
            raise
        counts[f"{target}: refused for its data"] += 1
        arrays = {name: array >> 7 if array.dtype == np.int32 else array for name, array in arrays.items()}
        wanted, found = t.interpret(case.func, arrays), built.run(arrays)
    counts[f"{target}: run"] += 1
    return difference(wanted, found)


def difference(wanted: Arrays, found: Arrays) -> str:
    """What differs, in words; empty if nothing does."""
    for name, before in wanted.items():
        after = found.get(name, before)
        if (before.dtype, before.shape) != (after.dtype, after.shape):
            return f"{name} is {after.dtype}{list(after.shape)}, not {before.dtype}{list(before.shape)}"
        if before.dtype.kind in "iub":
            if not np.array_equal(before, after):
                return f"{name} ({before.dtype}) differs"
            continue
        a, b = before.astype(np.float64), after.astype(np.float64)
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        finite = np.abs(a[np.isfinite(a)]).max(initial=1.0)
        with np.errstate(invalid="ignore"):
            close = np.abs(a - b) <= TOLERANCE * float_step(before.dtype.name) * finite
        if not (same | close).all():
            return f"{name} ({before.dtype}) differs by {np.abs(a - b)[~(same | close)].max():.3g}"
    return ""


def program(case: Case) -> str:
    """The case as a program of its own."""
    lines = [
        "import random",
        "import weft",
        "from weft.compiler import tensor as t",
        "from weft.compiler.targets.accel.operators.intrinsics import intrinsics",
        "from weft.compiler.tensor.random_programs import random_array",
        "",
        f"func = t.parse('''{t.function_text(case.func)}''')",
        "schedule = t.Schedule(func)",
    ]
    for step in case.steps:
        arguments = {
            name: f"intrinsics(weft.TINY)[{value!r}]" if name == "intrinsic" else repr(value)
            for name, value in step.arguments
        }
        given = ", ".join(f"{name}={value}" for name, value in arguments.items())
        given = f"*{arguments['order']}" if step.primitive == "reorder" else given
        lines += ["try:", f"    schedule.{step.primitive}({given})", "except t.ScheduleError as error:",
                  "    print(error)"]  # fmt: skip
    lines += [
        f"chance, read = random.Random({case.arrays}), {list(inputs_of(case))}",
        "arrays = {p.name: random_array(chance, p.shape, p.dtype) for p in func.params if p.name in read}",
        "print(t.interpret(func, arrays), t.interpret(schedule.func, arrays))",
    ]
    for target in case.targets:
        options = f"threads={case.threads}" if target == "cpu" else "config='tiny'"
        lines.append(f"print(weft.build(schedule, {target!r}, {options}).run(arrays))")
    return "\n".join(lines)


def shrunk(case: Case, fails: Callable[[Case], bool]) -> Case:
    """The case with as few steps and targets as fail: large parts are left out first."""
    size = max(1, len(case.steps) // 2)
    while size:
        place = 0
        while place < len(case.steps):
            smaller = replace(case, steps=(*case.steps[:place], *case.steps[place + size :]))
            if fails(smaller):
                case = smaller
            else:
                place += size
        size //= 2
    for targets in ((), *((target,) for target in case.targets)):
        if len(targets) < len(case.targets) and fails(replace(case, targets=targets)):
            return replace(case, targets=targets)
    return case


class Worker:
    """Runs cases in another process, which is started again where it ends."""

    def __init__(self) -> None:
        self._context = multiprocessing.get_context("spawn")
        self._process: Any = None

    def run(self, case: Case | tuple[int, int, int]) -> Outcome:
        """The outcome of a case, or of the one with a number, a seed and ``cpu_each``."""
        if self._process is None:
            self._connection, far = self._context.Pipe()
            self._process = self._context.Process(target=_serve, args=(far,), daemon=True)
            self._process.start()
            far.close()
        try:
            self._connection.send(case)
            if self._connection.poll(PATIENCE * SECONDS):
                answer: Outcome = self._connection.recv()
                return answer
            late = True
        except (EOFError, OSError):
            self._process.join()
            late = self._process.exitcode == -signal.SIGXCPU
        wrong = f"it did not end within {SECONDS:.0f} s"
        if not late:
            wrong = f"the process crashed, exit status {self._process.exitcode}"
        self.close()
        return Outcome(wrong)

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._process = None


def _serve(connection: Connection) -> None:
    while True:
        try:
            case = connection.recv()
        except EOFError:
            return
        _, most = resource.getrlimit(resource.RLIMIT_CPU)
        resource.setrlimit(resource.RLIMIT_CPU, (int(time.process_time() + SECONDS) + 1, most))
        connection.send(check(case if isinstance(case, Case) else drawn(*case)))


def report(number: int, seed: int, cpu_each: int, wrong: str, fails: Callable[[Case], bool]) -> str:
    """A failing case, shrunk, as text."""
    case = shrunk(drawn(number, seed, cpu_each), fails)
    return f"# case {number}, seed {seed}: {wrong}\n{program(case)}\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cpu-each", type=int, default=1, help="run each so many-th case on this machine's processor")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so long")
    parser.add_argument("--keep", type=Path, help="folder for programs that fail")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="weft-fuzz-") as cache:
        os.environ["WEFT_CACHE"] = cache
        counts, failures = run(options)
    figures = {**dict(sorted(counts.items())), "failures": failures}
    print_table("Random schedules", ("figure", "value"), [(name, f"{value:,}") for name, value in figures.items()])
    if options.json:
        write_json(options.json, (Record("tiny", "random schedules", name, value) for name, value in figures.items()))
    return 1 if failures else 0


def run(options: argparse.Namespace) -> tuple[Counter[str], int]:
    """What was done, and how many cases failed."""
    counts: Counter[str] = Counter()
    failures, started, worker = 0, time.monotonic(), Worker()
    for number in range(options.first, options.first + options.cases):
        outcome = worker.run((number, options.seed, options.cpu_each))
        counts.update(outcome.counts)
        counts["cases"] += 1
        if outcome.wrong:
            failures += 1
            text = report(
                number, options.seed, options.cpu_each, outcome.wrong, lambda each: bool(worker.run(each).wrong)
            )
            print(text, flush=True)
            if options.keep:
                options.keep.mkdir(parents=True, exist_ok=True)
                (options.keep / f"{options.seed}-{number}.py").write_text(text)
        end = "\r" if sys.stderr.isatty() else "" if counts["cases"] % SAID_EACH else "\n"
        if end:
            print(f"{counts['cases']:,} of {options.cases:,} cases, {failures} failures", end=end, file=sys.stderr)
        if failures >= MOST_FAILURES or time.monotonic() - started > options.seconds:
            break
    worker.close()
    counts["seconds"] = round(time.monotonic() - started)
    return counts, failures


if __name__ == "__main__":
    sys.exit(main())
