"""A cache of its own for every test."""

from __future__ import annotations

from pathlib import Path

import pytest
from weft import cache


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A cache of its own, and no notice given yet."""
    monkeypatch.setenv("WEFT_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("WEFT_CACHE_LIMIT", raising=False)
    monkeypatch.setattr(cache, "_noticed", {})
    monkeypatch.setattr(cache, "_since_look", {})
    return tmp_path / "cache"
