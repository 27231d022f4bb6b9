"""How much of a sweep `make test` runs; `make test-long` runs the rest."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def few(values: Iterable[Any], count: int = 2) -> list[Any]:
    """Parameters of a test, of which those after the first ``count`` are left to the long tests."""
    return [value if at < count else pytest.param(value, marks=pytest.mark.long) for at, value in enumerate(values)]
