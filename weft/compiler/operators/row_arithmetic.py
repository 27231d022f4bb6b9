"""Arithmetic of int8 rows that their operators share: in NumPy, in loops, and what their types allow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..graph.ir import Array, Attrs, Call, TensorType
from ..graph.registry import Accuracy, Family, Fusion
from ..tensor import ir as tir
from ..tensor.view import Index, View
from . import numerics
from .reasons import INTEGER_HAS_NO_GRADIENT
from .type_rules import integer, require

Int64 = NDArray[np.int64]

ENTRIES = 256
"""Of a table."""

TABLE = TensorType((ENTRIES,), "int32")

LONGEST_ROW = 1 << 14
"""Elements of a row whose squares are summed: the sum fits 32 bits."""

MEAN_BITS = 16
"""Fraction bits of a mean."""

ENDS = {"zero_point": 0, "low": -128, "high": 127}
"""The attributes of an int8 result, with their defaults."""

ROW_ENTRY: dict[str, Any] = {
    "family": Family.HOST, "gradient": INTEGER_HAS_NO_GRADIENT, "accuracy": Accuracy.EXACT, "fusion": Fusion.REDUCTION,
}  # fmt: skip
"""What the entries of all operators on int8 rows say."""


# In NumPy


def scaled_by(x: Array, factor: Array | int, shift: Array | int) -> Int64:
    """``x * factor / 2**shift``, rounded half up: a requantise without bias and clamp."""
    return np.asarray((x * factor + (np.int64(1) << (np.asarray(shift, np.int64) - 1))) >> shift, np.int64)


def mean_factor(count: int) -> tuple[int, int]:
    multiplier, shift = numerics.quantise_multiplier(np.array(2.0**MEAN_BITS / count))
    return int(multiplier[0]), int(shift[0])


def spread_of(squares: Array, total: Array, count: int, fraction: int) -> Int64:
    """``(count * squares - total**2) * 2**fraction``."""
    if fraction >= 0:
        return np.asarray((squares * count - total * total) << fraction, np.int64)
    return np.asarray(scaled_by(squares, count, -fraction) - scaled_by(total, total, -fraction), np.int64)


# In loops


def wide(x: tir.Expr) -> tir.Expr:
    return x.astype("int64")


def product_of(x: tir.Expr, factor: tir.Expr | int, shift: tir.Expr | int) -> tir.Expr:
    """As `scaled_by`, of int64."""
    half = tir.Const(1 << (shift - 1)) if isinstance(shift, int) else tir.Const(1) << (shift - 1)
    return (x * factor + half) >> shift


def entry_of(table: View, place: tir.Expr) -> tir.Expr:
    """Of a table at the low 8 bits of a number."""
    return wide(table[(wide(place.astype("uint8")),)])


def row_of(index: Index, axes: Sequence[int]) -> Index:
    return tuple(tir.Const(0) if axis in axes else each for axis, each in enumerate(index))


def narrowed(value: tir.Expr, call: Call) -> tir.Expr:
    low, high = (call.attr(name) if name in call.attrs else ENDS[name] for name in ("low", "high"))
    return tir.clamp(value + call.attr("zero_point"), low, high).astype("int8")


# Types


def check_ends(attrs: Attrs) -> None:
    """Zero point and clamp of an int8 result."""
    _, low, high = (integer(attrs, name, -128, 127) for name in ENDS)
    require(low <= high, f"low {low} is above high {high}")
