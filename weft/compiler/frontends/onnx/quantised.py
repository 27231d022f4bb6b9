"""Quantisation. Quantised forms (QDQ, QLinear*, *Integer) all become the QDQ form: dequantise, float operator,
quantise; legalise then finds the integer arithmetic again."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from ...graph import Call, Constant, Expr
from ...graph.dtypes import EXACT_IN_FLOAT32, LARGEST_BYTE, numpy_dtype
from ...graph.registry import apply
from .node import CONVERTERS, Converted, Converter, Node, converter
from .types import dtype_name


def _scalar_if_one(node: Node, value: Expr) -> Expr:
    """One scale for all of a tensor may come as an array of one element."""
    if len(value.shape) != 1 or value.shape != (1,):
        return value
    return Constant(value.value.reshape(()), span=node.span) if isinstance(value, Constant) else node.reshape(value, ())


def quantisation(node: Node, scale: int, zero_point: int, dtype: str) -> tuple[Expr, Expr]:
    """Scale and zero point from operands ``scale`` and ``zero_point``, of equal shape ((), (C,), or one a block).

    ``dtype`` is the type of the zero point when it is left out. Either may be computed while the model runs.
    """
    scales, given = node.input(scale), node.optional(zero_point)
    known = node.scope.static_value(scales)
    zero = np.zeros(scales.shape, numpy_dtype(dtype)) if given is None else node.scope.static_value(given)
    if known is None or zero is None:
        zeros = given if given is not None else Constant(np.zeros(scales.shape, numpy_dtype(dtype)), span=node.span)
        return _scalar_if_one(node, scales), _scalar_if_one(node, zeros)
    if node.scope.reading.quantised and (not np.all(np.isfinite(known)) or np.any(known <= 0)):
        cause = "a tensor that holds inf was quantised: leave its node out (nodes_to_exclude)"
        raise node.error("every scale must be a finite number above 0", cause if np.isinf(known).any() else "")
    known = known.reshape(()) if known.size == 1 and known.ndim <= 1 else known
    zero = np.broadcast_to(zero.reshape(()) if zero.size == 1 else zero, known.shape)
    return Constant(known, span=node.span), Constant(zero, span=node.span)


def _placed(node: Node, x: Expr, scale: Expr, axis: int) -> dict[str, int]:
    """The attributes that say along which axis a scale lies."""
    if not scale.shape:
        return {"axis": 1}
    block = node.integer("block_size", 0) if node.op in ("QuantizeLinear", "DequantizeLinear") else 0
    axis %= max(len(x.shape), 1)
    if not block and x.shape and x.shape[axis] == 1 and scale.shape == tuple(size for size in x.shape if size != 1):
        axis = x.shape.index(scale.shape[0])  # onnxruntime writes axis 0 for biases of any shape, also (1, channels)
    return {"axis": axis, "block": block}


def dequantised(node: Node, value: int, scale: int, zero_point: int, axis: int = 1) -> Call:
    """Operand ``value`` as the real numbers that it stands for."""
    x = node.input(value)
    scales, zeros = quantisation(node, scale, zero_point, x.dtype)
    return node.call("dequantise", x, scales, zeros, **_placed(node, x, scales, axis))


def quantised(node: Node, x: Expr, scale: int, zero_point: int, axis: int = 1, dtype: str = "uint8") -> Call:
    """``x`` in small integers (or floats), of the type of the zero point, or ``dtype`` where it is left out."""
    scales, zeros = quantisation(node, scale, zero_point, dtype)
    precision = node.integer("precision", 0)
    if precision and dtype_name(precision) != scales.dtype:
        scales = _in_precision(node, scales, dtype_name(precision))
    saturate = bool(node.integer("saturate", 1))
    return node.call("quantise", x, scales, zeros, saturate=saturate, **_placed(node, x, scales, axis))


def _in_precision(node: Node, scales: Expr, precision: str) -> Expr:
    """Scales in the type that a QuantizeLinear divides in."""
    if isinstance(scales, Constant):
        return node.like(scales.value, precision)
    return node.cast(scales, precision)


def raw_integers(node: Node, value: int, zero_point: int, axis: int = 1) -> Call:
    """Operand ``value`` minus its zero point, as real numbers with scale 1 (the ``...Integer`` operators)."""
    return raw(node, node.input(value), node.optional(zero_point), axis)


def raw(node: Node, x: Expr, zeros: Expr | None, axis: int) -> Call:
    """``x`` minus its zero point, 0 where there is none, as `raw_integers` gives it."""
    zeros = Constant(np.zeros((), x.dtype)) if zeros is None else zeros
    shape = () if math.prod(zeros.shape) == 1 else (math.prod(zeros.shape),)
    known = node.scope.static_value(zeros)
    zeros = node.reshape(zeros, shape) if known is None else Constant(known.reshape(shape))
    ones = Constant(np.ones(zeros.shape, np.float32))
    return node.call("dequantise", x, ones, zeros, axis=axis if zeros.shape else 1)


def summed_exactly(node: Node, a: Call, b: Call, depth: int, axes: tuple[int, ...]) -> tuple[Expr, Expr]:
    """Two operands of `raw_integers` in a type that holds every sum of ``depth`` of their products.

    That is float32 up to 2**24, float64 beyond. ``axes`` of ``b`` are those summed over. The accelerator computes with
    the integers themselves where it knows their zero points.
    """
    if node.scope.reading.quantised and a.args[2].static and b.args[2].static:
        return a, b
    constants = [arg.value for arg in b.args if isinstance(arg, Constant)]
    sums = np.abs(apply(b, constants)).sum(axes) if len(constants) == len(b.args) else np.array(LARGEST_BYTE * depth)
    if LARGEST_BYTE * sums.max(initial=0) <= EXACT_IN_FLOAT32:
        return a, b
    return node.cast(a, "float64"), node.cast(b, "float64")


def product_of_integers(
    node: Node, a: Call, b: Call, depth: int, axes: tuple[int, ...], multiply: Callable[[Expr, Expr], Expr]
) -> Expr:
    """The product of two operands of `raw_integers`, exactly; the rest as for `summed_exactly`.

    For the accelerator, where the zero point of ``a`` is computed while the model runs: the product with another zero
    point, which is known, less what the difference makes.
    """
    q, _, zero = a.args
    if not node.scope.reading.quantised or zero.static or not b.static or zero.shape or q.dtype not in _CENTRES:
        return multiply(*summed_exactly(node, a, b, depth, axes))
    centre = _CENTRES[q.dtype]
    ones = multiply(Constant(np.ones(a.shape, np.float32)), b)
    sums = node.scope.static_value(ones)
    moved = node.call("nn.subtract", node.cast(zero, "float32"), node.like(centre, "float32"))
    correction = node.call("nn.multiply", moved, ones if sums is None else Constant(sums))
    return node.call("nn.subtract", multiply(raw(node, q, node.like(centre, q), 1), b), correction)


_CENTRES = {"int8": 0, "uint8": 128}
"""The zero point for which 8-bit values are smallest."""


def whole(node: Node, x: Expr) -> Expr:
    """Real numbers that are whole, as the int32 that ONNX gives; a cast back to float finds ``x`` again."""
    result = node.cast(x, "int32")
    node.scope.reading.whole[result] = x
    return result


@converter("QuantizeLinear", "com.amd.quark.ExtendedQuantizeLinear", "com.vai.quantize.VitisQuantizeLinear")
def _quantize_linear(node: Node) -> Converted:
    wanted = node.integer("output_dtype", 0)
    return quantised(
        node, node.input(0), 1, 2, node.integer("axis", 1), dtype_name(wanted) if wanted else "uint8"
    )  # fmt: skip


@converter("DequantizeLinear", "com.amd.quark.ExtendedDequantizeLinear", "com.vai.quantize.VitisDequantizeLinear")
def _dequantize_linear(node: Node) -> Converted:
    result = dequantised(node, 0, 1, 2, node.integer("axis", 1))
    wanted = node.integer("output_dtype", 0)
    return node.cast(result, dtype_name(wanted)) if wanted else result


@converter("DynamicQuantizeLinear")
def _dynamic_quantize_linear(node: Node) -> Converted:
    return dynamically(node, node.input(0))


def dynamically(node: Node, x: Expr) -> tuple[Expr, Expr, Expr]:
    """``x`` in uint8 over its own range, and that range's scale and zero point, as DynamicQuantizeLinear has them."""
    axes = tuple(range(len(x.shape)))
    low = node.call("nn.minimum", node.call("nn.reduce_min", x, axes=axes), node.like(0, x))
    high = node.call("nn.maximum", node.call("nn.reduce_max", x, axes=axes), node.like(0, x))
    scale: Expr = node.call("nn.divide", node.call("nn.subtract", high, low), node.like(255, x))
    # of nothing but zeros the formula makes 0 / 0; with a scale of 1 they are the integer 0, as onnxruntime has it
    scale = node.call("nn.where", node.call("nn.equal", scale, node.like(0, x)), node.like(1, x), scale)
    zero: Expr = node.call("nn.round", node.call("nn.divide", node.call("nn.negative", low), scale))
    zero = node.cast(node.call("nn.clip", zero, low=0.0, high=255.0), "uint8")
    return node.call("quantise", x, scale, zero), scale, zero


def _qlinear_binary(op: str) -> Converter:
    def convert(node: Node) -> Converted:
        a, b = dequantised(node, 0, 1, 2), dequantised(node, 3, 4, 5)
        return quantised(node, node.call(op, a, b), 6, 7)

    return convert


CONVERTERS["QLinearAdd"] = _qlinear_binary("nn.add")


@converter("QLinearMul")
def _qlinear_mul(node: Node) -> Converted:
    """The product of the integers, times one factor: it is (a - za) * (b - zb) * (sa * sb / sy), rounded once."""
    scales = [node.scope.static_value(node.input(index)) for index in (1, 4, 6)]
    whole_tensors = all(scale is not None and scale.size == 1 for scale in scales)
    if node.scope.reading.quantised or not whole_tensors:
        return _qlinear_binary("nn.multiply")(node)
    sa, sb, sy = (np.asarray(scale, np.float32).reshape(()) for scale in scales)
    product = node.call("nn.multiply", raw_integers(node, 0, 2), raw_integers(node, 3, 5))
    _, zero = quantisation(node, 6, 7, "uint8")
    scaled = node.call("nn.multiply", product, node.like(sa * sb / sy, "float32"))
    return node.call("quantise", scaled, node.like(1, "float32"), zero)


def qlinear_unary(function: Callable[[Node, Expr], Expr]) -> Converter:
    """The quantised form of a function of one tensor: operands x, its scale and zero point, the result's."""

    def convert(node: Node) -> Converted:
        return quantised(node, function(node, dequantised(node, 0, 1, 2)), 3, 4)

    return convert


CONVERTERS["QLinearSigmoid"] = qlinear_unary(lambda node, x: node.call("nn.sigmoid", x))


@converter("QLinearWhere")
def _qlinear_where(node: Node) -> Converted:
    x, y = dequantised(node, 1, 2, 3), dequantised(node, 4, 5, 6)
    return quantised(node, node.call("nn.where", node.input(0), x, y), 7, 8)


@converter("QLinearConcat")
def _qlinear_concat(node: Node) -> Converted:
    inputs = [dequantised(node, i, i + 1, i + 2) for i in range(2, len(node.inputs), 3)]
    axis = node.integer("axis", 1) % max(len(inputs[0].shape), 1)
    return quantised(node, node.call("concat", *inputs, axis=axis), 0, 1)
