"""Quantisation, and the arithmetic of the integer contract (docs/integers.md), to the bit."""

from __future__ import annotations

from collections.abc import Callable

from ... import tensor as te
from ...graph.ir import Call
from ...tensor import ir as tir
from .view import Builder, Index, NotLoweredError, Rule, View, along, element_type, register_rules

SHORT = ("int8", "uint8", "int16", "uint16")
"""Integers that single precision computes with exactly."""


def _quantise(builder: Builder, call: Call, operands: tuple[View, ...]) -> View:
    x, scale, zero_point = operands
    target = element_type(call.dtype)
    if x.dtype != "float32" or scale.dtype != "float32" or target not in SHORT or call.attr("block"):
        raise NotLoweredError(f"quantise of {x.dtype} to {call.dtype}, or in blocks")
    low, high = tir.INTEGER_RANGES[target]
    axis = call.attr("axis")
    step, zero = along(scale, len(x.shape), axis), along(zero_point, len(x.shape), axis)

    def read(index: Index) -> tir.Expr:
        # Within the clamp single precision is exact; nan becomes the conversion's 0, as in NumPy's int64.
        wide = te.round(x[index] / step(index)) + zero(index).astype("float32")
        return tir.clamp(wide, float(low), float(high)).astype(target)

    return View(call.shape, target, read)


def _dequantise(builder: Builder, call: Call, operands: tuple[View, ...]) -> View:
    x, scale, zero_point = operands
    if scale.dtype != "float32" or x.dtype not in SHORT or call.attr("block"):
        raise NotLoweredError(f"dequantise of {x.dtype} by {scale.dtype}, or in blocks")
    axis = call.attr("axis")
    step, zero = along(scale, len(x.shape), axis), along(zero_point, len(x.shape), axis)

    def read(index: Index) -> tir.Expr:
        centred = x[index].astype("int32") - zero(index).astype("int32")
        return centred.astype("float32") * step(index)

    return View(call.shape, "float32", read)


def _requantise(builder: Builder, call: Call, operands: tuple[View, ...]) -> View:
    x, bias, multiplier, shift = operands
    low, high = call.attr("low"), call.attr("high")
    zero_point, left_shift = call.attr("zero_point"), call.attr("left_shift")
    target: tir.DType = "int32" if call.attr("out") == "int32" else "int8"

    def read(index: Index) -> tir.Expr:
        channel = (index[1],)
        product = (x[index].astype("int32") + bias[channel]).astype("int64") * multiplier[channel].astype("int64")
        amount = shift[channel].astype("int64")
        value = (product + (tir.Const(1) << (amount - 1))) >> amount
        # A product has at most 55 bits, so the sum with the zero point does not wrap.
        value = tir.clamp(value + zero_point, low, high)
        return (value << left_shift if left_shift else value).astype(target)

    return View(call.shape, target, read)


def _wide(formula: Callable[..., tir.Expr]) -> Rule:
    """Arithmetic in int32, which wraps; operands may be int8."""

    def rule(builder: Builder, call: Call, operands: tuple[View, ...]) -> View:
        return View(call.shape, "int32", lambda index: formula(call, *(x[index].astype("int32") for x in operands)))

    return rule


def _shifted(source: tir.DType, target: tir.DType) -> Rule:
    """128 less or more, which in eight bits is the same."""

    def rule(builder: Builder, call: Call, operands: tuple[View, ...]) -> View:
        x = operands[0]
        return View(call.shape, target, lambda index: x[index].astype("int8").astype("int8") + tir.Const(-128, "int8")
                    if target == "int8" else (x[index] + tir.Const(-128, "int8")).astype("uint8"))  # fmt: skip

    return rule


RULES: dict[str, Rule] = {
    "quantise": _quantise,
    "dequantise": _dequantise,
    "requantise": _requantise,
    "multiply": _wide(lambda call, a, b: a * b),
    "multiply_immediate": _wide(lambda call, x: x * call.attr("weight")),
    "subtract_immediate": _wide(lambda call, x: x - call.attr("value")),
    "multiply_accumulate": _wide(lambda call, accumulator, x: accumulator + x * call.attr("weight")),
    "to_signed": _shifted("uint8", "int8"),
    "to_unsigned": _shifted("int8", "uint8"),
}

register_rules(RULES)
