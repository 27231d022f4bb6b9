"""Runs the short suite on a copy of the package with one fault in it."""

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
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

from .mutants import Mutant

ROOT = Path(__file__).parents[2]
COPIED = ("hw", "sim", "runtime", "compiler", "docs", "tests/hw", "tests/sim")
"""Folders that the suite needs; ``docs`` because a test compares the manual with the registers."""

QUICK = (
    "tests/hw/test_scratchpad.py",
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
    "tests/hw/test_vector.py",
)
BUILDING = (
    "tests/hw/test_core.py",
    "tests/sim/test_rtl.py",
    "tests/sim/test_faults.py",
    "tests/sim/test_timing.py",
    "tests/sim/test_fuzz.py",
)
SUITE = (*QUICK, *BUILDING)
"""Test files that run RTL: parts of the core in Amaranth's simulator, then those for which Verilator builds a core."""

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


def mutated_source(mutant: Mutant, root: Path = ROOT) -> str:
    """The module's text with the fault; :class:`SuiteError` if its line is not there exactly once."""
    path = root / "hw" / f"{mutant.module}.py"
    source = path.read_text()
    if (count := source.count(mutant.old)) != 1:
        raise SuiteError(f"mutant {mutant.name!r}: {mutant.old!r} stands {count} times in {path.name}, not once")
    return source.replace(mutant.old, mutant.new)


def run_suite(mutant: Mutant | None, cache: Path) -> tuple[str, float]:
    """The first failure (empty: none) and the seconds; without a mutant the suite runs on the package as it is."""
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="weft-mutant-") as folder:
        package = Path(folder) / "weft"
        copy_package(package)
        if mutant is not None:
            (package / "hw" / f"{mutant.module}.py").write_text(mutated_source(mutant))
        caught_by = _first_failure(package, ordered_suite(mutant), cache)
    return caught_by, time.monotonic() - begin


def copy_package(package: Path) -> None:
    """What the suite needs, with its compiled files: they are those of unchanged sources."""
    ignored = shutil.ignore_patterns(".*", "*.onnx")
    for name in COPIED:
        shutil.copytree(ROOT / name, package / name, ignore=ignored)
    for name in ("pyproject.toml", "tests/conftest.py"):
        shutil.copy2(ROOT / name, package / name)
    # The package's own would import the compiler, which takes longer than most of the tests.
    (package / "__init__.py").touch()


def ordered_suite(mutant: Mutant | None) -> list[str]:
    """Files that import the mutant's module, directly or not: quick ones first, of these the module's own."""
    if mutant is None:
        return list(SUITE)
    able = [path for path in SUITE if ROOT / "hw" / f"{mutant.module}.py" in _imported(ROOT / path)]
    own = {path for path in able if mutant.module.startswith(Path(path).stem.removeprefix("test_"))}
    return sorted(able, key=lambda path: (path in BUILDING, path not in own))


@cache
def _imported(path: Path) -> frozenset[Path]:
    """Files of the repository that the file imports, directly or not."""
    found: set[Path] = set()
    left = [path]
    while left:
        current = left.pop()
        for node in ast.walk(ast.parse(current.read_text())):
            for target in _targets(current, node):
                if target not in found:
                    found.add(target)
                    left.append(target)
    return frozenset(found)


def _targets(path: Path, node: ast.AST) -> list[Path]:
    """Files that an import statement names: a module, or modules of a package."""
    if not isinstance(node, ast.ImportFrom):
        return []
    parts = node.module.split(".") if node.module else []
    if node.level:
        folder = path.parents[node.level - 1]
    elif parts[0] == "weft":
        folder, parts = ROOT, parts[1:]
    else:
        return []
    base = folder.joinpath(*parts)
    candidates = [base.with_suffix(".py"), *((base / alias.name).with_suffix(".py") for alias in node.names)]
    return [candidate for candidate in candidates if candidate.is_file()]


def _first_failure(package: Path, suite: list[str], cache: Path) -> str:
    options = ["-x", "-q", "--no-header", "--tb=no", "-rfE", "-p", "no:cacheprovider", "--hypothesis-profile=mutation"]
    options += [f"--deselect=tests/sim/test_fuzz.py::{name}" for name in LEFT_OUT]
    environment = os.environ | {
        "PYTHONPATH": str(package.parent),
        # Mutants must not push real cores out of the user's cache; the compiled Yosys is shared.
        "WEFT_CACHE": str(cache),
        "YOWASP_CACHE_DIR": os.environ.get("YOWASP_CACHE_DIR", str(_user_cache() / "YoWASP")),
    }
    command = [sys.executable, "-P", "-m", "pytest", *options, *suite]
    try:
        result = subprocess.run(
            command, cwd=package, env=environment, capture_output=True, text=True, check=False, timeout=SECONDS_AT_MOST
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

    An outcome counts as long as the mutated module is the same and, for a survivor, the tests are too.
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
    source = mutated_source(mutant)
    return _digest([source]), _digest([source, *_texts("tests/hw", "tests/sim")])


def keys_of_all() -> tuple[str, str]:
    """Keys of the run without a fault, which depends on everything."""
    key = _digest(_texts("hw", "sim", "tests/hw", "tests/sim"))
    return key, key


def _texts(*folders: str) -> Iterator[str]:
    for folder in folders:
        for path in sorted((ROOT / folder).iterdir()):
            if path.is_file():
                yield f"{path.name}\n{path.read_text()}"


def _digest(texts: Iterator[str] | list[str]) -> str:
    state = hashlib.sha256()
    for text in texts:
        state.update(f"{len(text)}:{text}".encode())
    return state.hexdigest()[:16]
