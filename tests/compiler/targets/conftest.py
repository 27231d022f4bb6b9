"""What several files of tests of targets use."""

from __future__ import annotations

import pytest


@pytest.fixture
def small_models_use_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels of small models are shared by threads, as those of large ones are."""
    monkeypatch.setattr("weft.compiler.targets.cpu.kernels.WORK_WORTH_THREADS", 0)
