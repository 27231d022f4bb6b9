"""ONNX's own backend suite, all of it, on a backend of ours.

    python benchmarks/campaigns/onnx_suite.py --backend reference
    python benchmarks/campaigns/onnx_suite.py --backend reference --filter resize --verbose
    python benchmarks/campaigns/onnx_suite.py --backend reference --update        # writes the list of expected failures
    python benchmarks/campaigns/onnx_suite.py --backend opencl --every 40

Every test runs in a process that may crash or hang without harm to the others. A skipped test counts as failed.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import time
import unittest
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import weft
from weft.compiler.frontends.onnx.backend import ExecutingBackend, ReferenceBackend
from weft.compiler.graph import Array, Module
from weft.runtime.gpu.open import CUDA_VARIABLE, EMULATED

from benchmarks.campaigns.isolated import Broken, Isolated

LISTS = Path(__file__).parents[2] / "tests" / "onnx"
SECONDS_AT_MOST = 120.0
OTHERS = (
    "onnx 1.23, 1,916 tests: onnxruntime 1.31 passes 1,484, TVM 0.27 passes 728. Scoreboard of 2026-07, 1,914 tests: "
    "onnx's reference 1,882, best compiler 1,873, onnxruntime 1,571, OpenVINO 1,387."
)
in_numpy: list[str] = []
"""Why operators of the test that runs were left to NumPy by a compiler, one line each."""


DEVICES = {"cuda": os.environ.get(CUDA_VARIABLE, EMULATED)}
"""What runs the code of a target: that of CUDA the interpreter, unless WEFT_CUDA_DEVICE names a GPU."""


def _compile_and_run(module: Module, inputs: Mapping[str, Array], target: str) -> Mapping[str, Array]:
    model = weft.compile(module, target=target)
    in_numpy.extend(layer.reason for layer in model.layers if layer.device == "numpy")
    return weft.load(model, DEVICES.get(target)).run(inputs)


class CpuBackend(ExecutingBackend):
    """Compiles for this machine's processor."""

    execute = staticmethod(partial(_compile_and_run, target="cpu"))


class OpenClBackend(ExecutingBackend):
    """Compiles for the device with OpenCL that weft chooses by itself."""

    execute = staticmethod(partial(_compile_and_run, target="opencl"))


class CudaBackend(ExecutingBackend):
    """Compiles to PTX, which the interpreter runs."""

    execute = staticmethod(partial(_compile_and_run, target="cuda"))


BACKENDS: dict[str, type[ExecutingBackend]] = {
    "reference": ReferenceBackend, "cpu": CpuBackend, "opencl": OpenClBackend, "cuda": CudaBackend,
}  # fmt: skip
"""The backends by name."""


@dataclass(frozen=True)
class Case:
    """One test of the suite. ``group``: the folder or kind that it belongs to."""

    name: str
    group: str


@dataclass(frozen=True)
class Outcome:
    """What became of a test: ``state`` is pass, fail, crash, timeout or skip.

    ``in_numpy``: whether a compiler left an operator of it to NumPy.
    """

    name: str
    group: str
    state: str
    message: str
    seconds: float
    in_numpy: bool = False

    @property
    def passed(self) -> bool:
        return self.state == "pass"


class Suite:
    """The tests of the installed onnx for one backend."""

    def __init__(self, backend: str) -> None:
        import onnx.backend.test

        self.backend = backend
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            runner = onnx.backend.test.BackendTest(BACKENDS[backend], __name__)
        self._tests: dict[Case, tuple[type[unittest.TestCase], str]] = {}
        for group, tests in runner.test_cases.items():
            short = re.sub(r"^OnnxBackend|ModelTest$", "", group)
            for name in sorted(dir(tests)):
                if name.startswith("test_") and name.endswith("_cpu"):
                    self._tests[Case(name.removesuffix("_cpu"), short)] = (tests, name)

    def cases(self, pattern: str = "") -> list[Case]:
        """The tests whose name contains a match of ``pattern``."""
        return [case for case in self._tests if re.search(pattern, case.name)]

    def run_here(self, case: Case) -> Outcome:
        """Run a test in this process."""
        tests, name = self._tests[case]
        result = unittest.TestResult()
        in_numpy.clear()
        start = time.perf_counter()
        with warnings.catch_warnings(), open(os.devnull, "w") as nowhere:
            warnings.simplefilter("ignore")
            with redirect_stdout(nowhere), redirect_stderr(nowhere):
                tests(name).run(result)
        seconds = time.perf_counter() - start
        bad = [text for _, text in (*result.failures, *result.errors)]
        if bad:
            return Outcome(case.name, case.group, "fail", _last_words(bad[0]), seconds)
        state = "skip" if result.skipped else "pass"
        return Outcome(case.name, case.group, state, result.skipped[0][1] if result.skipped else "", seconds,
                       bool(in_numpy))  # fmt: skip

    def run(self, cases: Iterable[Case], seconds_at_most: float = SECONDS_AT_MOST) -> Iterator[Outcome]:
        """Run tests in another process, which is replaced when it crashes or takes too long."""
        for case, result in Isolated(self.run_here, seconds_at_most).run(list(cases)):
            if isinstance(result, Broken):
                result = Outcome(case.name, case.group, result.state, result.message, result.seconds)
            yield result


def _last_words(text: str) -> str:
    """The last lines of a traceback that say something, in one line."""
    start = max((found.start() for found in re.finditer(r"^[\w.]+(Error|Exception)\b", text, re.MULTILINE)), default=0)
    return " ".join(text[start:].split())[:300]


def expected_failures(backend: str) -> set[str]:
    """The tests that are known not to pass."""
    path = list_of_failures(backend)
    lines = path.read_text().splitlines() if path.exists() else []
    return {line.split("#")[0].strip() for line in lines if line.split("#")[0].strip()}


def list_of_failures(backend: str) -> Path:
    return LISTS / f"expected_fail_{backend}.txt"


def surprises(outcomes: Iterable[Outcome], expected: set[str]) -> list[str]:
    """What is not as the list says: one line a test."""
    found = []
    for outcome in outcomes:
        if outcome.passed and outcome.name in expected:
            found.append(f"{outcome.name} passes, but is listed as a failure: take it off the list (--update)")
        elif not outcome.passed and outcome.name not in expected:
            found.append(f"{outcome.name}: {outcome.state}: {outcome.message}")
    return found


def write_list(backend: str, outcomes: Iterable[Outcome], ran: set[str]) -> None:
    """Replace the expected failures among the tests that ``ran`` by those that did not pass."""
    kept = expected_failures(backend) - ran
    names = sorted(kept | {outcome.name for outcome in outcomes if not outcome.passed})
    head = f"# Tests of ONNX's suite that do not pass on {backend!r}. Written by: benchmarks/campaigns/onnx_suite.py "
    head += "--update\n"
    list_of_failures(backend).write_text(head + "".join(f"{name}\n" for name in names))


def table(outcomes: list[Outcome]) -> str:
    """Counts by group and state; last, how many pass with operators that the compiler leaves to NumPy."""
    states = ("pass", "fail", "crash", "timeout", "skip")
    lines = [f"{'group':<20}" + "".join(f"{state:>9}" for state in states) + f"{'tests':>9}{'NumPy':>9}"]
    groups = [*dict.fromkeys(outcome.group for outcome in outcomes), "all"]
    for group in groups:
        counts = Counter(outcome.state for outcome in outcomes if group in (outcome.group, "all"))
        numbers = "".join(f"{counts[state]:>9,}" for state in states)
        helped = sum(o.passed and o.in_numpy for o in outcomes if group in (o.group, "all"))
        lines.append(f"{group:<20}{numbers}{counts.total():>9,}{helped:>9,}")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", choices=sorted(BACKENDS), default="reference")
    parser.add_argument("--filter", default="", metavar="RE", help="only tests whose name matches")
    parser.add_argument("--every", type=int, default=1, metavar="N",
                        help="only one test in N, and none of the published networks if N is above 1")  # fmt: skip
    parser.add_argument("--update", action="store_true", help="write the list of expected failures")
    parser.add_argument("--json", type=Path, help="write every outcome to this file")
    parser.add_argument("--verbose", action="store_true", help="say why each failure failed")
    parser.add_argument("--seconds", type=float, default=SECONDS_AT_MOST, help="processor time that a test may take")
    options = parser.parse_args()
    suite = Suite(options.backend)
    outcomes: list[Outcome] = []
    cases = suite.cases(options.filter)
    if options.every > 1:
        cases = [case for case in cases if case.group != "Real"][:: options.every]
    for outcome in suite.run(cases, options.seconds):
        outcomes.append(outcome)
        if options.verbose and not outcome.passed:
            print(f"{outcome.state:8}{outcome.name}: {outcome.message}", flush=True)
    print(table(outcomes))
    print(OTHERS)
    if options.json:
        options.json.write_text(json.dumps([asdict(outcome) for outcome in outcomes], indent=1))
    if options.update:
        write_list(options.backend, outcomes, {outcome.name for outcome in outcomes})
        return 0
    unexpected = surprises(outcomes, expected_failures(options.backend))
    print("\n".join(unexpected[:50]) if unexpected else "as expected")
    return 1 if unexpected else 0


if __name__ == "__main__":
    sys.exit(main())
