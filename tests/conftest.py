"""Settings for every test."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import typer.main
from hypothesis import Phase, is_hypothesis_test, settings
from weft.cache import cache_folder

# Where an environment forbids bytecode, each worker rewrites the assertions of all tests (ten seconds of processor
# time), and each process that a test starts compiles whatever it imports of the package (one second).
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# NumPy's matrices here are small. A second thread of its library waits in loops, which takes the time of other workers.
os.environ["OPENBLAS_NUM_THREADS"] = "1"

# Typer reads the annotations of every command of the app three times for each command line, which a process of a user
# does for one command; a worker runs hundreds of lines. Signatures are other ones only where targets are.
READS_ANNOTATIONS = "get_params_from_function"
_read_annotations = vars(typer.main)[READS_ANNOTATIONS]


@cache
def _annotations(command: Any, _targets: object) -> Any:
    return _read_annotations(command)


def _annotations_now(command: Any) -> Any:
    if inspect.isfunction(command):
        return _annotations(command, None)
    from weft.cli.target_options import offered_options  # imports the compiler

    return _annotations(command, offered_options())


vars(typer.main)[READS_ANNOTATIONS] = _annotations_now

# No deadline: one example may wait for the C++ compiler. A failure prints the line that repeats it.
settings.register_profile("weft", deadline=None, print_blob=True)
settings.load_profile("weft")
# For tests.mutation: the first failure is all that counts, and the same faults are caught in every run.
settings.register_profile(
    "mutation", deadline=None, derandomize=True, database=None, phases=[Phase.explicit, Phase.generate]
)


KEPT = (
    "test_kept_models", "test_kept_kernels", "test_hits", "test_on_demand", "test_no_cache", "test_litert_kernels",
    "test_signatures",
)  # fmt: skip
"""Modules whose tests are about compiled models and kernels that are kept, in folders of their own."""


@pytest.fixture(autouse=True)
def _compiled_anew(request: pytest.FixtureRequest) -> Iterator[None]:
    """Tests change parts of the compiler in memory, which no key of a kept model or kernel can know: what they compile
    is neither kept nor looked for."""
    patch = pytest.MonkeyPatch()
    if request.module.__name__.rpartition(".")[2] not in KEPT:
        from weft import kept_models

        patch.setattr(kept_models, "_subject", lambda *_: None)
        patch.setattr(kept_models, "_kernels_key", lambda: None)
    yield
    patch.undo()


USERS_CACHE = cache_folder("any").parent
"""The cache of this run, whatever folder a test puts in its place."""


@pytest.fixture(autouse=True)
def _built_quickly(request: pytest.FixtureRequest) -> Iterator[None]:
    """Most cores run some thousand cycles in one test: the optimiser would take longer than they do. The tiny one,
    which many tests run, is compiled once for all. Long campaigns have all cores optimised. Verilator's runtime, 20
    seconds of the compiler, is never made for the empty cache of one test."""
    rtl: Any = sys.modules.get("weft.sim.rtl")
    if rtl is None or request.node.get_closest_marker("long"):
        yield
        return
    from weft.hw.config import TINY
    from weft.sim import build as rtl_build
    from weft.sim.waves import Waves

    build, compiled_runtime = rtl.build_library, rtl_build.runtime_object

    def build_library(config: Any, *arguments: Any, **settings: Any) -> Any:
        for_all = replace(config, name=TINY.name) == TINY and settings["waves"] is Waves.NONE
        return build(config, *arguments, **{**settings, "quick": not for_all})

    def runtime_object(source: str, flags: Any, root: Path | None) -> Path:
        return compiled_runtime(source, flags, USERS_CACHE)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rtl, "build_library", build_library)
        patch.setattr(rtl_build, "runtime_object", runtime_object)
        yield


NEED_TORCH = (Path(__file__).parent / "pytorch", Path(__file__).parent / "compiler" / "frontends" / "torch")
"""Folders whose tests need PyTorch, which is an extra: `make test-torch` installs it and runs them."""


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    return True if collection_path.parent in NEED_TORCH and not find_spec("torch") else None


def pytest_report_header() -> str:
    return "" if find_spec("torch") else "PyTorch is not installed: its tests run by `make test-torch`"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--certify", action="store_true", help="Prove whatever a test compiles for a core.")
    parser.addoption("--thorough", action="store_true", help="Run all examples of generated tests, not a third.")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Generated tests run a third of their examples, others in each run: on a machine of two slow cores all of them
    take most of an hour. `make test-long` and the planted faults run all."""
    if config.getoption("--thorough"):
        return
    functions = {item.function for item in items if isinstance(item, pytest.Function)}
    for function in (function for function in functions if is_hypothesis_test(function)):
        full = function._hypothesis_internal_use_settings  # a test takes settings by its decorator alone
        function._hypothesis_internal_use_settings = settings(full, max_examples=max(full.max_examples // 3, 2))


@pytest.fixture(autouse=True)
def _certified(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.config.getoption("--certify"):
        from tests.certified import certify_all  # imports the compiler

        certify_all(monkeypatch)
