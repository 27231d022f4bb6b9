"""How much of a sweep `make test` runs; `make test-long` runs the rest."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def few(values: Iterable[Any], count: int = 2) -> list[Any]:
    """Parameters of a test, of which those after the first ``count`` are left to the long tests. A tuple has a value
    for each of several names."""
    rows = [value if isinstance(value, tuple) else (value,) for value in values]
    return [pytest.param(*row, marks=[pytest.mark.long] if at >= count else []) for at, row in enumerate(rows)]
