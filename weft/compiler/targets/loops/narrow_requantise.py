"""Requantising with constants in 32 bits: half the steps of what the contract writes down, and the same integers.

The contract is ``(x + bias) * multiplier + half >> shift``, plus the zero point, with a product of up to 55 bits. Here
the multiplier is ``2**SPARE`` larger, and so is the shift: it is above 32 then, and of the product the upper 32 bits
are enough, since the lower ones of ``half`` are 0. Zero point and half are one constant. Channels of larger shifts have
multipliers that are larger by less, where that makes all shifts the same. Values of 8 bits, as of a requantise of a
requantise, leave bits free: they are moved up first where shifts are small.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ....roundings import HALF_UP
from ...graph.ir import Call, Constant
from ...operators.integer import requantise_scalars
from ...tensor import ir as tir
from ...tensor.view import View

SPARE = 7
"""Bits that a product of 55 leaves free in 64, less a sign and the one that a sum may need."""

LOWEST_SHIFT, HIGHEST_SHIFT = 33 - SPARE, 61 - SPARE
LARGEST_OFFSET = 1 << 30
LARGEST_SUM = (1 << 31) - 1
LARGEST_VALUE = {"int8": 128, "uint8": 255}
"""Of types that are so narrow that their values can be moved up."""

Parameter = Callable[[int, Constant], View]
"""The view of a constant operand, at its position."""


def is_requantise(call: Call) -> bool:
    """Whether a call requantises."""
    return call.op == "requantise"


def adds_bias(call: Call) -> bool:
    """Whether it requantises sums to which it adds its first parameter, a bias of whole numbers."""
    return is_requantise(call) or call.op == "requantise_float32"


def narrow_requantise(call: Call, x: View, parameter: Parameter) -> View | None:
    """A requantise in this form; None where its parameters are not constant, or no shift fits."""
    if not is_requantise(call) or not all(isinstance(arg, Constant) for arg in call.args[1:]):
        return None
    if call.attr("rounding") != HALF_UP:
        return None
    bias, multiplier, shift = (arg.value.astype(np.int64) for arg in call.args[1:] if isinstance(arg, Constant))
    zero_point, low, high, left_shift = requantise_scalars(call)
    up = max(0, LOWEST_SHIFT - int(shift.min())) if x.dtype in LARGEST_VALUE else 0
    if up and LARGEST_VALUE[x.dtype] + int(np.abs(bias).max()) > LARGEST_SUM >> up:
        return None
    shift = shift + up
    if shift.min() < LOWEST_SHIFT or shift.max() > HIGHEST_SHIFT or np.abs(multiplier).max() >> 24:
        return None
    spare = np.maximum(SPARE - (shift - shift.min()), 0)
    if len(set((shift + spare).tolist())) > 1:
        spare = np.full_like(shift, SPARE)
    rest = shift + spare - 32
    offset = (1 << (rest - 1)) + (zero_point << rest)
    if np.abs(offset).max() >= LARGEST_OFFSET:
        return None
    values = (bias, multiplier << spare, offset, rest)
    places = (1, 2, 2, 3)
    views = [parameter(place, _one_if_same(value)) for place, value in zip(places, values, strict=True)]
    target: tir.DType = "int32" if call.attr("out") == "int32" else "int8"

    def read(index: tuple[tir.Expr, ...]) -> tir.Expr:
        channel = index[1]
        b, m, o, s = (each[(tir.Const(0) if each.shape == (1,) else channel,)] for each in views)
        total = x[index].astype("int32") + b
        upper = ((total << up if up else total).astype("int64") * m.astype("int64")) >> 32
        value = tir.clamp((upper.astype("int32") + o) >> s, low, high)
        return (value << left_shift if left_shift else value).astype(target)

    return View(call.shape, target, read)


def held_higher(value: tir.Expr, offset: int) -> tir.Expr | None:
    """A requantised int8 as the uint8 that is ``offset`` higher, in no more steps: what it is limited to is higher, and
    so is the constant that was added before the shift, or to the bits of a float. None for what neither
    `narrow_requantise` nor `requantise_float32` made, or where that constant would be too large."""
    match value:
        case tir.Cast(
            "int8",
            tir.BinOp(
                "min",
                tir.BinOp("max", tir.BinOp("add", tir.Bits("int32", _) as bits, tir.Const(added)), tir.Const(low)),
                tir.Const(high),
            ),
        ):
            return tir.clamp(bits + (int(added) + offset), int(low) + offset, int(high) + offset).astype("uint8")
        case tir.Cast(
            "int8",
            tir.BinOp(
                "min",
                tir.BinOp("max", tir.BinOp("shr", tir.BinOp("add", upper, tir.Const(added)), shift), tir.Const(low)),
                tir.Const(high),
            ),
        ) if isinstance(shift, tir.Const) and _is_upper_half(upper):
            places = int(shift.value)
            higher = int(added) + (offset << places)
            if (
                not 0 <= places <= HIGHEST_SHIFT
                or abs(higher) >= LARGEST_OFFSET
                or not 0 <= low + offset <= high + offset <= 255
            ):
                return None
            return tir.clamp((upper + higher) >> shift, int(low) + offset, int(high) + offset).astype("uint8")
    return None


def _is_upper_half(expr: tir.Expr) -> bool:
    """Whether it is the upper half of a product of two int32, which is up to 2**30."""
    match expr:
        case tir.Cast(
            "int32", tir.BinOp("shr", tir.BinOp("mul", tir.Cast("int64", a), tir.Cast("int64", b)), tir.Const(32))
        ):
            return a.dtype == b.dtype == "int32"
    return False


def _one_if_same(value: np.ndarray[tuple[int, ...], np.dtype[np.int64]]) -> Constant:
    """The parameter, as one number where all channels have the same: it becomes part of the code."""
    same = bool((value == value[0]).all())
    return Constant((value[:1] if same else value).astype(np.int32))
