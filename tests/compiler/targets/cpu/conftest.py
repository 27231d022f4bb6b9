"""What several files of tests here use."""

from __future__ import annotations

from types import ModuleType

import pytest
from weft.compiler.targets.cpu.processor import PRETENDED, executable_here

from benchmarks.campaigns import fuzz_graphs


@pytest.fixture(scope="module")
def campaign() -> ModuleType:
    """``benchmarks/campaigns/fuzz_graphs.py``: random graphs, and whether machine code agrees with NumPy."""
    return fuzz_graphs


@pytest.fixture(params=[name for name in executable_here() if name != "host"])
def level(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each named processor that this machine can execute, as which it is taken: code for it is made and run."""
    monkeypatch.setenv(PRETENDED, request.param)
    return str(request.param)
