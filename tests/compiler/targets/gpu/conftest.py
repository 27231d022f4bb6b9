"""Settings of the tests that run kernels on whatever OpenCL there is."""

from __future__ import annotations

from types import ModuleType

import pytest
from weft.runtime.gpu.opencl import OPTIONS_VARIABLE

from benchmarks.campaigns import fuzz_graphs


@pytest.fixture(scope="module")
def campaign() -> ModuleType:
    """``benchmarks/campaigns/fuzz_graphs.py``: random graphs, and whether a target agrees with NumPy."""
    return fuzz_graphs


@pytest.fixture(autouse=True)
def quickly_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels are compiled without optimisation, which takes a fifth of the time and says the same of their meaning."""
    monkeypatch.setenv(OPTIONS_VARIABLE, "-cl-opt-disable")
