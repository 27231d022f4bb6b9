"""What several files of tests here use."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest
from weft.compiler.targets.cpu.processor import PRETENDED, executable_here

BENCHMARKS = Path(__file__).parents[4] / "benchmarks"


@pytest.fixture(scope="module")
def campaign() -> ModuleType:
    """``benchmarks/fuzz_graphs.py``: random graphs, and whether machine code agrees with NumPy."""
    sys.path.insert(0, str(BENCHMARKS))
    specification = importlib.util.spec_from_file_location("fuzz_graphs", BENCHMARKS / "fuzz_graphs.py")
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules["fuzz_graphs"] = module
    specification.loader.exec_module(module)
    return module


@pytest.fixture(params=[name for name in executable_here() if name != "host"])
def level(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each named processor that this machine can execute, as which it is taken: code for it is made and run."""
    monkeypatch.setenv(PRETENDED, request.param)
    return str(request.param)
