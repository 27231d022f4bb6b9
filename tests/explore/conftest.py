"""What the explorer's tests share."""

from __future__ import annotations

import pytest


@pytest.fixture
def groups_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Depthwise layers are not made dense, so that there is work which cores leave to the host."""
    monkeypatch.setattr("weft.compiler.targets.accel.passes.smaller_forms._MOST_WEIGHTS", 0)
