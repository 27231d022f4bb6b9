"""QONNX, in which Brevitas exports and FINN and hls4ml read: quantise and dequantise in one node, of any width.

Up to 8 bits a node becomes the QDQ form with the tighter ends as a clamp, weights become integers at once; wider ones
become 16 or 32 bits. What has no integers of a known kind (a zero point that is no whole number, a scale that is
computed) is the formula itself, in floats.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ...graph import Array, Constant, Expr
from ...graph.dtypes import numpy_dtype
from .node import CONVERTERS, Converted, Node

DOMAINS = ("qonnx.custom_op.general", "onnx.brevitas")


def _from_zero(value: Array, magnitude: Callable[[Array], Array]) -> Array:
    return np.asarray(np.sign(value) * magnitude(np.abs(value)))


_ROUNDINGS: dict[str, Callable[[Array], Array]] = {
    "ROUND": np.rint,
    "HALF_EVEN": np.rint,
    "CEIL": np.ceil,
    "FLOOR": np.floor,
    "UP": lambda x: _from_zero(x, np.ceil),
    "DOWN": np.trunc,
    "ROUND_TO_ZERO": np.trunc,
    "HALF_UP": lambda x: _from_zero(x, lambda size: np.floor(size + 0.5)),
    "HALF_DOWN": lambda x: _from_zero(x, lambda size: np.ceil(size - 0.5)),
}
"""Of an array, by the attribute ``rounding_mode``. UP and DOWN, and the halves, are away from 0 and towards it."""


@dataclass(frozen=True)
class _Range:
    """The least and the largest integer of a width."""

    low: int
    high: int

    @staticmethod
    def of(bits: int, *, signed: bool, narrow: bool) -> _Range:
        if signed:
            return _Range(-(1 << bits - 1) + narrow, (1 << bits - 1) - 1)
        return _Range(0, (1 << bits) - 1 - narrow)

    @property
    def dtype(self) -> str:
        """The smallest type of whole bytes that holds them; empty: none of 32 bits or fewer."""
        for bits in (8, 16, 32):
            for kind, low in ((f"int{bits}", -(1 << bits - 1)), (f"uint{bits}", 0)):
                if low <= self.low and self.high < low + (1 << bits):
                    return kind
        return ""


def _quant(node: Node) -> Converted:
    x, scale, zero = node.input(0), node.input(1), node.input(2)
    width = float(node.constant(3, "the bit width").reshape(()))
    signed, narrow = bool(node.integer("signed", 1)), bool(node.integer("narrow", 0))
    rounding = _rounding(node, "ROUND")
    if width != int(width) or not 1 <= width <= 62:
        raise node.error(f"a width of {width:g} bits is not supported", hint="give a whole number of bits, 1 to 62")
    if width == 1 and signed:
        return _bipolar_value(node, x, scale)
    span = _Range.of(int(width), signed=signed, narrow=narrow)
    known, zeros = node.scope.static_value(scale), node.scope.static_value(zero)
    axis = _axis(known.shape, x.shape) if known is not None else None
    whole = zeros is not None and zeros.size == 1 and float(zeros.reshape(())).is_integer()
    if known is None or zeros is None or axis is None or not whole or not span.dtype:
        return _formula(node, x, scale, zero, rounding, span)
    number = int(zeros.reshape(()))
    weights = node.scope.static_value(x)
    if weights is not None:
        moved = _ROUNDINGS[rounding](np.clip(weights / known + np.float32(number), span.low, span.high))
        return _integers(node, Constant(moved.astype(numpy_dtype(span.dtype)), span=node.span), known, number, axis)
    if not span.low <= number <= span.high:
        return _formula(node, x, scale, zero, rounding, span)
    if rounding not in ("ROUND", "HALF_EVEN"):
        x = _formula(node, x, scale, zero, rounding, span)
    else:
        x = _clamped(node, x, known, number, span)
    scales, zero_points = _parameters(node, known, number, axis, span.dtype)
    q = node.call("quantise", x, scales, zero_points, axis=max(axis, 0))
    return node.call("dequantise", q, scales, zero_points, axis=max(axis, 0))


def _clamped(node: Node, x: Expr, scale: Array, zero: int, span: _Range) -> Expr:
    """``x`` within what the width holds; as it is where its type holds no more."""
    limits = np.iinfo(span.dtype)
    if (span.low, span.high) == (limits.min, limits.max):
        return x
    if scale.size == 1:
        step = float(scale.reshape(()))
        return node.call("nn.clip", x, low=(span.low - zero) * step, high=(span.high - zero) * step)
    low, high = (node.like((end - zero) * scale.astype(np.float64), x) for end in (span.low, span.high))
    return node.call("nn.minimum", node.call("nn.maximum", x, low), high)


def _axis(scale: tuple[int, ...], shape: tuple[int, ...]) -> int | None:
    """The axis of ``shape`` along which a scale varies; -1: one for all; None: along several."""
    aligned = (1,) * (len(shape) - len(scale)) + scale
    varying = [axis for axis, size in enumerate(aligned) if size != 1]
    if not varying:
        return -1
    return varying[0] if len(varying) == 1 and len(aligned) == len(shape) else None


def _parameters(node: Node, scale: Array, zero: int, axis: int, dtype: str) -> tuple[Constant, Constant]:
    scales = scale.reshape(()) if axis < 0 else scale.reshape(-1)
    zeros = np.full(scales.shape, zero, numpy_dtype(dtype))
    return Constant(scales.astype(np.float32), span=node.span), Constant(zeros, span=node.span)


def _integers(node: Node, q: Constant, scale: Array, zero: int, axis: int) -> Expr:
    """Integers that are known as real numbers."""
    low, high = np.iinfo(q.dtype).min, np.iinfo(q.dtype).max
    if not low <= zero <= high:
        raise node.error(f"the zero point {zero} is outside of what its width holds")
    return node.call("dequantise", q, *_parameters(node, scale, zero, axis, q.dtype), axis=max(axis, 0))


def _rounded(node: Node, x: Expr, rounding: str) -> Expr:
    """`_ROUNDINGS` of what is computed while the model runs."""

    def magnitude(op: str, shift: float) -> Expr:
        size = node.call("nn.abs", x)
        size = node.call("nn.add", size, node.like(shift, x)) if shift else size
        return node.call("nn.multiply", node.call("nn.sign", x), node.call(op, size))

    match rounding:
        case "ROUND" | "HALF_EVEN":
            return node.call("nn.round", x)
        case "CEIL" | "FLOOR":
            return node.call(f"nn.{rounding.lower()}", x)
        case "UP":
            return magnitude("nn.ceil", 0)
        case "HALF_UP":
            return magnitude("nn.floor", 0.5)
        case "HALF_DOWN":
            return magnitude("nn.ceil", -0.5)
    return magnitude("nn.floor", 0)


def _formula(node: Node, x: Expr, scale: Expr, zero: Expr, rounding: str, span: _Range) -> Expr:
    moved = node.call("nn.add", node.call("nn.divide", x, scale), zero)
    clamped = node.call("nn.clip", moved, low=float(span.low), high=float(span.high))
    back = node.call("nn.subtract", _rounded(node, clamped, rounding), zero)
    return node.call("nn.multiply", back, scale)


def _rounding(node: Node, default: str) -> str:
    rounding = node.string("rounding_mode", default).upper()
    if rounding not in _ROUNDINGS:
        raise node.error(f"the rounding mode {rounding!r} is not known", hint=f"known: {', '.join(_ROUNDINGS)}")
    return rounding


def _bipolar_quant(node: Node) -> Converted:
    return _bipolar_value(node, node.input(0), node.input(1))


def _bipolar_value(node: Node, x: Expr, scale: Expr) -> Expr:
    """The scale where x is 0 or more, else its negative."""
    known, weights = node.scope.static_value(scale), node.scope.static_value(x)
    axis = _axis(known.shape, x.shape) if known is not None else None
    if known is not None and weights is not None and axis is not None:
        signs = np.where(weights >= 0, 1, -1).astype(np.int8)
        return _integers(node, Constant(signs, span=node.span), known, 0, axis)
    positive = node.call("nn.less_equal", node.like(0, x), x)
    real = node.call("nn.multiply", node.call("nn.where", positive, node.like(1, x), node.like(-1, x)), scale)
    if known is None or axis is None:
        return real
    scales, zeros = _parameters(node, known, 0, axis, "int8")
    q = node.call("quantise", real, scales, zeros, axis=max(axis, 0))
    return node.call("dequantise", q, scales, zeros, axis=max(axis, 0))


def _trunc(node: Node) -> Converted:
    """Fewer bits: the lowest of the integers are cut off. With six operands the result has a scale of its own."""
    x, scale, zero = node.input(0), node.input(1), node.input(2)
    before = float(node.constant(3, "the bit width").reshape(()))
    own_scale = len(node.inputs) > 5
    after = float(node.constant(5 if own_scale else 4, "the new bit width").reshape(()))
    rounding = _rounding(node, "FLOOR")
    integers = node.call("nn.round", node.call("nn.add", node.call("nn.divide", x, scale), zero))
    if not own_scale:
        fewer = node.call("nn.divide", integers, node.like(2.0 ** (before - after), x))
        back = node.call("nn.subtract", _rounded(node, fewer, rounding), zero)
        return node.call("nn.multiply", back, scale)
    signed, narrow = bool(node.integer("signed", 1)), bool(node.integer("narrow", 0))
    span = _Range.of(int(after), signed=signed, narrow=narrow)
    wider = node.input(4)
    exponent = np.rint(np.log2(node.known(wider, "the new scale") / node.known(scale, "the scale")))
    factor = node.like(np.exp2(exponent), x)  # a power of two, whatever the scales say
    cut: Expr = node.call("nn.divide", integers, factor)
    cut = _rounded(node, node.call("nn.clip", cut, low=float(span.low), high=float(span.high)), rounding)
    moved_zero = node.call("nn.divide", zero, factor)
    return node.call("nn.multiply", node.call("nn.subtract", cut, moved_zero), wider)


def _float_quant(node: Node) -> Converted:
    raise node.error("floats of few bits are not computed", hint="export the model with integers: IntQuant or QCDQ")


for _domain in DOMAINS:
    for _name, _convert in (
        ("Quant", _quant), ("IntQuant", _quant), ("BipolarQuant", _bipolar_quant), ("Trunc", _trunc),
        ("FloatQuant", _float_quant),
    ):  # fmt: skip
        CONVERTERS[f"{_domain}.{_name}"] = _convert
