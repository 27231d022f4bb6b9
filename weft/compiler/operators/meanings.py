"""What the NumPy meanings of operators share."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from ..graph.dtypes import HALVES
from ..graph.ir import Array

Meaning = Callable[..., Array]


def rounded_once(meaning: Meaning) -> Meaning:
    """``meaning`` with operands of 16-bit floats computed in float32; a float32 result is narrowed again."""

    @functools.wraps(meaning)
    def run(*operands: Array, **attrs: Any) -> Array:
        half = next((x.dtype for x in operands if x.dtype.name in HALVES), None)
        if half is None:
            return np.asarray(meaning(*operands, **attrs))
        wide = [x.astype(np.float32) if x.dtype.name in HALVES else x for x in operands]
        result = np.asarray(meaning(*wide, **attrs))
        return result.astype(half) if result.dtype == np.float32 else result

    return run
