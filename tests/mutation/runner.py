"""Runs the tests of a file on a copy of the package with one fault in that file."""

from __future__ import annotations

import ast
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

from .mutants import Mutant

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "weft"
NOT_COPIED = (".*", "build", "dist")

CORE_QUICK = (
    "tests/hw/test_scratchpad.py",
    "tests/hw/test_inp_memory.py",
    "tests/hw/test_layout_fifo.py",
    "tests/hw/test_skid_buffer.py",
    "tests/hw/test_write_dma.py",
    "tests/hw/test_registers.py",
    "tests/hw/test_read_buffer.py",
    "tests/hw/test_run_control.py",
    "tests/hw/test_tokens.py",
    "tests/hw/test_acc_memory.py",
    "tests/hw/test_fetch.py",
    "tests/hw/test_axi.py",
    "tests/hw/test_loops.py",
    "tests/hw/test_engine.py",
    "tests/hw/test_mac_array.py",
    "tests/hw/test_interrupt.py",
    "tests/hw/test_store.py",
    "tests/hw/test_gemm.py",
    "tests/hw/test_load.py",
    "tests/hw/test_weight_records.py",
    "tests/hw/test_vector.py",
    "tests/hw/test_core_bus.py",
)
"""Test files that run parts of the core, or all of it, in Amaranth's simulator."""

SIM_QUICK = (
    "tests/sim/test_work.py",
    "tests/sim/test_microops.py",
    "tests/sim/test_fsim.py",
    "tests/sim/test_harness.py",
)
"""Test files of the simulators that need no core."""

BUILDING = (
    "tests/hw/test_core.py",
    "tests/sim/test_rtl.py",
    "tests/sim/test_faults.py",
    "tests/sim/test_timing.py",
    "tests/sim/test_fuzz.py",
    "tests/sim/test_system.py",
)
"""Test files for which Verilator builds a core."""

SUITES = {"hw": (*CORE_QUICK, *BUILDING), "sim": (*SIM_QUICK, "tests/sim/test_faults.py", "tests/sim/test_timing.py")}
"""For the folders whose files are tested together: the test files in question, in the order of their cost."""

LEFT_OUT = ("test_fsim_equals_rtl_on_pynq",)
"""Tests whose core takes a minute to build."""

SECONDS_AT_MOST = 1800
"""A suite that takes longer hangs, which counts as caught."""


class SuiteError(Exception):
    """The suite could not be run, or it fails without any fault."""


@dataclass(frozen=True)
class Outcome:
    """``caught_by``: the first test that failed, or why the run ended; empty if the fault went unnoticed."""

    caught_by: str
    seconds: float
    key: str


def mutated_source(mutant: Mutant, root: Path = PACKAGE) -> str:
    """The file's text with the fault; :class:`SuiteError` if its line is not there exactly once."""
    source = (root / mutant.path).read_text()
    if (count := source.count(mutant.old)) != 1:
        raise SuiteError(f"mutant {mutant.name!r}: {mutant.old!r} stands {count} times in {mutant.path}, not once")
    return source.replace(mutant.old, mutant.new)


def run_suite(mutant: Mutant | None, suite: Sequence[str], cache: Path) -> tuple[str, float]:
    """The first failure (empty: none) and the seconds; without a mutant the suite runs on the package as it is."""
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="weft-mutant-") as folder:
        copy = Path(folder) / "copy"
        copy_project(copy, suite)
        if mutant is not None:
            (copy / "weft" / mutant.path).write_text(mutated_source(mutant))
        caught_by = _first_failure(copy, suite, cache)
    return caught_by, time.monotonic() - begin


def copy_project(copy: Path, suite: Sequence[str]) -> None:
    """The package with its tests and their compiled files: they are those of unchanged sources."""
    shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(*NOT_COPIED))
    if not needs_package(suite):
        (copy / "weft" / "__init__.py").write_text("")


def needs_package(suite: Sequence[str]) -> bool:
    """Whether tests may use what ``import weft`` gives. It imports the compiler, which takes longer than most tests of
    the core and of the simulators: these do without."""
    return any(not path.startswith(("tests/hw/", "tests/sim/")) for path in suite)


def suite_of(mutant: Mutant) -> tuple[str, ...]:
    """The test files for a mutant: those that it names, or those that import its file, directly or not.

    Files of one folder of ``SUITES`` share its list. For others the tests lie in the folder of the same name below
    ``tests`` or in the one above it, and those count that import the file directly (all of them, if none does). The
    file's own come first.
    """
    if mutant.tests:
        return mutant.tests
    source = PACKAGE / mutant.path
    modules = set(_modules_of(source))
    stem = source.stem

    def own(path: str) -> bool:
        return stem.startswith(Path(path).stem.removeprefix("test_"))

    if listed := SUITES.get(Path(mutant.path).parts[0]):
        able = [path for path in listed if modules & imported(ROOT / path)]
        return tuple(sorted(able, key=lambda path: (path in BUILDING, not own(path))))
    folder = ROOT / "tests" / Path(mutant.path).parent
    beside, above = (
        sorted(str(path.relative_to(ROOT)) for path in each.glob("test_*.py")) for each in (folder, folder.parent)
    )
    direct = [path for path in (*beside, *above) if own(path) or modules & set(_imports_of(ROOT / path))]
    return tuple(sorted(direct or beside or above, key=lambda path: not own(path)))


def _modules_of(source: Path) -> list[Path]:
    """The Python modules that stand for a file: itself, or those beside C++ that name it, because they compile it."""
    if source.suffix == ".py":
        return [source]
    return [path for path in source.parent.glob("*.py") if f'"{source.name}"' in path.read_text()]


@cache
def imported(path: Path) -> frozenset[Path]:
    """Files of the repository that the file imports, directly or not."""
    found: set[Path] = set()
    left = [path]
    while left:
        for target in _imports_of(left.pop()):
            if target not in found:
                found.add(target)
                left.append(target)
    return frozenset(found)


@cache
def _imports_of(path: Path) -> tuple[Path, ...]:
    nodes = ast.walk(ast.parse(path.read_text()))
    return tuple(dict.fromkeys(target for node in nodes for target in _targets(path, node)))


def _targets(path: Path, node: ast.AST) -> list[Path]:
    """Files that an import statement names: a module, or modules of a package."""
    if not isinstance(node, ast.ImportFrom):
        return []
    parts = node.module.split(".") if node.module else []
    if node.level:
        folder = path.parents[node.level - 1]
    elif parts[0] == "weft":
        folder, parts = PACKAGE, parts[1:]
    elif parts[0] in ("tests", "benchmarks", "examples"):
        folder = ROOT
    else:
        return []
    base = folder.joinpath(*parts)
    candidates = [base.with_suffix(".py"), *((base / alias.name).with_suffix(".py") for alias in node.names)]
    return [candidate for candidate in candidates if candidate.is_file()]


def _first_failure(copy: Path, suite: Sequence[str], cache: Path) -> str:
    options = ["-x", "-q", "--no-header", "--tb=no", "-rfE", "-p", "no:cacheprovider", "--hypothesis-profile=mutation"]
    options += ["--thorough"]
    options += [f"--deselect=tests/sim/test_fuzz.py::{name}" for name in LEFT_OUT]
    environment = os.environ | {
        "PYTHONPATH": str(copy),
        # Mutants must not push real cores out of the user's cache; the compiled Yosys is shared.
        "WEFT_CACHE": str(cache),
        "YOWASP_CACHE_DIR": os.environ.get("YOWASP_CACHE_DIR", str(_user_cache() / "YoWASP")),
    }
    command = [sys.executable, "-P", "-m", "pytest", *options, *suite]
    try:
        result = subprocess.run(
            command, cwd=copy, env=environment, capture_output=True, text=True, check=False, timeout=SECONDS_AT_MOST
        )
    except subprocess.TimeoutExpired:
        return f"no answer within {SECONDS_AT_MOST} s"
    if result.returncode == 0:
        return ""
    for line in result.stdout.splitlines():
        if line.startswith(("FAILED ", "ERROR ")):
            return line.partition(" ")[2]
    if result.returncode < 0:
        return f"ended by signal {-result.returncode}"
    raise SuiteError(f"pytest ended with status {result.returncode}:\n{(result.stdout + result.stderr)[-2000:]}")


def _user_cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")


class State:
    """Outcomes on disk, so that an interrupted campaign goes on where it was.

    An outcome counts as long as the mutated file is the same and, for a survivor, the tests are too.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._outcomes: dict[str, Outcome] = {}
        if path.exists():
            self._outcomes = {name: Outcome(**values) for name, values in json.loads(path.read_text()).items()}

    def find(self, name: str, keys: tuple[str, str]) -> Outcome | None:
        """``keys``: what the key of a caught mutant and that of a survivor must be."""
        outcome = self._outcomes.get(name)
        if outcome is None or outcome.key != keys[not outcome.caught_by]:
            return None
        return outcome

    def add(self, name: str, caught_by: str, seconds: float, keys: tuple[str, str]) -> Outcome:
        outcome = self._outcomes[name] = Outcome(caught_by, seconds, keys[not caught_by])
        self._path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = self._path.with_suffix(".tmp")
        unfinished.write_text(json.dumps({name: asdict(each) for name, each in self._outcomes.items()}, indent=1))
        unfinished.rename(self._path)
        return outcome


def keys_of(mutant: Mutant) -> tuple[str, str]:
    """See :class:`State`."""
    source, suite = mutated_source(mutant), suite_of(mutant)
    return _digest([source]), _digest([source, *suite, *_texts({str(Path(test).parent) for test in suite})])


def keys_without_fault(test: str) -> tuple[str, str]:
    """Keys of the run of one test file on the package as it is: it depends on all of that."""
    key = _digest([*package_texts(), *_texts({str(Path(test).parent)})])
    return key, key


@cache
def package_texts() -> tuple[str, ...]:
    """What the package's files hold."""
    files = sorted(path for path in PACKAGE.rglob("*") if path.suffix in (".py", ".h", ".cpp"))
    return tuple(path.read_text() for path in files)


def _texts(folders: Iterable[str]) -> Iterator[str]:
    for folder in sorted(folders):
        for path in sorted((ROOT / folder).iterdir()):
            if path.is_file():
                yield f"{path.name}\n{path.read_text()}"


def _digest(texts: Iterable[str]) -> str:
    state = hashlib.sha256()
    for text in texts:
        state.update(f"{len(text)}:{text}".encode())
    return state.hexdigest()[:16]
