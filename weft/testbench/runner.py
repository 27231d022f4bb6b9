"""Runs files of cocotb tests on a built core, and keeps what is needed to look at a failure."""

from __future__ import annotations

import json
import os
import secrets
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from unittest.mock import patch
from xml.etree import ElementTree

from ..hw.config import CoreConfig
from ..hw.verilog import TOP
from ..sim.build import Progress
from ..sim.waves import Waves, wave_format
from .build import build_bench, require_cocotb
from .errors import BenchError
from .simulators import VERILATOR, build_for, find_simulator, find_waves

SETTINGS = "WEFT_TESTBENCH"
"""Environment variable with a :class:`Settings`, as JSON, for the simulator's process."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What the bench is told: the core, the seed, a file for the functional coverage, and whether to test at length."""

    config: CoreConfig
    seed: int
    coverage: Path | None = None
    long: bool = False

    def to_json(self) -> str:
        # The simulator runs in a folder of its own.
        coverage = None if self.coverage is None else str(self.coverage.resolve())
        return json.dumps({"config": self.config.to_json(), "seed": self.seed, "coverage": coverage, "long": self.long})

    @staticmethod
    def from_json(text: str) -> Settings:
        values = json.loads(text)
        coverage = None if values["coverage"] is None else Path(values["coverage"])
        config = CoreConfig.from_json(values["config"])
        return Settings(config=config, seed=values["seed"], coverage=coverage, long=values["long"])


@dataclass(frozen=True)
class TestOutcome:
    """One test: ``problem`` is empty if it passed."""

    name: str
    problem: str
    seconds: float

    __test__ = False  # for pytest: not a test


@dataclass(frozen=True)
class RunOutcome:
    """One run of a file. ``waves``: the waveform of all its tests, where there is one; ``options``: how it was run,
    in words of ``weft test-hw``."""

    file: Path
    seed: int
    tests: tuple[TestOutcome, ...]
    log: Path
    waves: Path | None
    options: tuple[str, ...] = ()

    @property
    def failed(self) -> tuple[TestOutcome, ...]:
        return tuple(test for test in self.tests if test.problem)

    @property
    def passed(self) -> bool:
        """Did tests run, and did all pass?"""
        return bool(self.tests) and not self.failed


def random_seed() -> int:
    """A seed for a run that was given none."""
    return secrets.randbelow(1 << 31)


def run_file(
    file: Path,
    settings: Settings,
    folder: Path,
    *,
    waves: bool = False,
    only: str | None = None,
    simulator: str = VERILATOR,
    progress: Progress | None = None,
) -> RunOutcome:
    """Run a file's cocotb tests with log, results and waveform in ``folder``.

    ``only``: those in whose name this regular expression is found. ``simulator``: one that cocotb drives.
    :class:`BenchError` if there is nothing to run, no such simulator, or it ends without results.
    """
    require_cocotb()
    if not file.is_file():
        raise BenchError(f"there is no file {file}")
    folder.mkdir(parents=True, exist_ok=True)
    log, results = folder / "log.txt", folder / "results.xml"
    for old in (log, results, *(folder.glob("dump.*"))):
        old.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory() as name:
        build = Path(name)
        if simulator == VERILATOR:
            wanted = wave_format() if waves else Waves.NONE
            program = build_bench(settings.config, wanted, progress=progress)
            (build / TOP).symlink_to(program)  # cocotb asks for a folder with a program of this name
            runner = find_simulator(VERILATOR)
        else:
            runner = build_for(simulator, settings.config, build, waves=waves, progress=progress)
        if progress is not None:
            progress(f"{file.stem}: running, seed {settings.seed}")
        # SystemExit is the simulator's status; what went wrong stands in the results, or else in the log.
        with _import_path(file.parent.resolve()), suppress(SystemExit):
            runner.test(
                test_module=file.stem,
                hdl_toplevel=TOP,
                hdl_toplevel_lang="verilog",
                build_dir=build,
                test_dir=folder.resolve(),
                results_xml=str(results.resolve()),
                log_file=str(log.resolve()),
                test_filter=None if only is None else rf"\..*{only}",
                seed=settings.seed,
                waves=waves,
                extra_env={SETTINGS: settings.to_json(), "PYTHONWARNINGS": "ignore::DeprecationWarning"},
            )
        dump = find_waves(folder, build) if waves else None
        if dump is not None and dump.parent == build:
            dump = Path(shutil.move(dump, folder / f"dump{dump.suffix}"))
    tests = _read_results(results) if results.exists() else ()
    if not tests:
        end = "".join(log.read_text().splitlines(keepends=True)[-20:]) if log.exists() else ""
        what = f" with {only!r} in its name" if only is not None else ""
        raise BenchError(f"{file} ran no test{what}; the log {log} ends with\n{end}")
    options = () if simulator == VERILATOR else ("--sim", simulator)
    return RunOutcome(file, settings.seed, tests, log, dump, options)


def run_failed(
    outcome: RunOutcome,
    settings: Settings,
    folder: Path,
    *,
    simulator: str = VERILATOR,
    progress: Progress | None = None,
) -> RunOutcome:
    """Repeat what has failed, with the same seed and a waveform. The tests are those of ``outcome``."""
    names = "|".join(test.name for test in outcome.failed)
    again = run_file(
        outcome.file, settings, folder, waves=True, only=f"({names})$", simulator=simulator, progress=progress
    )
    return replace(again, tests=outcome.tests)


def how_to_look(waves: Path) -> str:
    """Commands that show a waveform."""
    path = shlex.quote(str(waves))
    return f"surfer {path}    # https://surfer-project.org; or: gtkwave {path}"


def _read_results(path: Path) -> tuple[TestOutcome, ...]:
    """Outcomes in cocotb's JUnit file."""
    tests = []
    for case in ElementTree.parse(path).iter("testcase"):
        problems = [*case.findall("failure"), *case.findall("error")]
        text = "\n".join(item.get("message") or item.text or "failed" for item in problems)
        if case.find("skipped") is None:
            tests.append(TestOutcome(case.get("name", ""), text, float(case.get("time", 0))))
    return tuple(tests)


@contextmanager
def _import_path(folder: Path) -> Iterator[None]:
    """Let the simulator's Python import from ``folder``, and cocotb not know of a pytest around it."""
    environment: Mapping[str, str] = {key: value for key, value in os.environ.items() if key != "PYTEST_CURRENT_TEST"}
    with patch.dict(os.environ, environment, clear=True), patch.object(sys, "path", [str(folder), *sys.path]):
        yield
