"""Products in integers: of quantised weights on the array, of computed tensors where there is room for their sums."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from ..graph import Array, Call, Constant, Expr, Role, Span, call, role_of
from ..graph.dtypes import EXACT_IN_FLOAT32, LARGEST_BYTE
from ..graph.host import host_call
from .computed_product import computed_product
from .describer import Describer
from .form import INT32_SAFE, Affine, IntegerForm, Integers, Refusal
from .moves import constant_integers
from .static_weights import Weights, static_weights, two_digits
from .two_digits import product_of_two


def weighted(describer: Describer, node: Call, name: str) -> IntegerForm:
    """A convolution over two or, where the target has volumes, three axes; or a dense layer, a 1 x 1 convolution."""
    is_dense, is_volume = len(node.shape) == 2, len(node.shape) == 5
    if is_volume and not describer.volumes:
        return product_of_computed(describer, node, name)
    x = describer.described[id(node.args[0])]
    if not isinstance(x, Integers):
        return x if isinstance(x, Refusal) else Refusal(f"the input of {name} is not quantised")
    if not node.args[1].static:
        return product_of_computed(describer, node, name)
    image = call("reshape", x.q, shape=(*x.shape, 1, 1), span=node.span) if is_dense else x.q
    attrs = {**node.attrs, "pad_value": x.zero_point}
    span = node.span.merged(node.args[1].span)
    weights = static_weights(node.args[1], name)
    if isinstance(weights, Refusal):
        two = two_digits(node.args[1]) if describer.core else None
        if two is None:
            return weights
        coarse, fine = (_of_image(each) for each in two) if is_dense else two
        op = "conv3d" if is_volume else "conv2d"
        return product_of_two(x, image, op, (coarse, fine), attrs, node.shape, span) or weights
    w = _of_image(weights).centred if is_dense else weights.centred
    if _copies(w) > _MOST_COPIES:
        return _product_by_digits(x, image, replace(weights, centred=w), node, attrs, name)
    narrow, copies, groups = _narrow(w, 1 if is_dense else node.attr("groups"))
    if groups is not None:
        attrs["groups"] = groups
    if copies > 1:
        image = call("concat", *[image] * copies, axis=1, span=Span(x.q.span.nodes))
    constant = Constant(narrow, weights.name, node.args[1].span)
    accumulator = call("conv3d" if is_volume else "conv2d", image, constant, span=span, **attrs)
    return _affine_product(x, accumulator, replace(weights, centred=w), node.shape, span)


def _of_image(w: Weights) -> Weights:
    """Those of a dense layer, which is a 1 x 1 convolution."""
    return replace(w, centred=w.centred.reshape(*w.centred.shape, 1, 1))


def product_of_computed(describer: Describer, node: Call, name: str) -> IntegerForm:
    """A product of two computed tensors: exactly, on the host, in floats that hold every sum of whole numbers."""
    operands = []
    for arg in node.args:
        x = describer.described[id(arg)]
        if isinstance(x, Refusal) and arg.static:
            x = constant_integers(arg) or Refusal(f"the operands of {name} are not both quantised")
        if not isinstance(x, Integers):
            return x if isinstance(x, Refusal) else Refusal(f"the operands of {name} are not both quantised")
        operands.append(x)
    if len(node.shape) < 2:
        return Refusal(f"{name} works on a tensor without channels")
    a, b = operands
    is_matrices = role_of(node) is Role.MATRIX_PRODUCT
    depth = a.shape[-1] if is_matrices else math.prod(b.shape[1:])
    peak = float(LARGEST_BYTE**2 * depth)
    if peak > INT32_SAFE:
        return Refusal(f"the sums of {name} may not fit 32 bits")
    # Matrices on the core are tensors that it has made: constant ones, a different one for each image, stay here.
    on_core = describer.block and is_matrices and not node.args[1].static
    if on_core and a.shape[:-2] == b.shape[:-2] and 0 not in (*a.shape, *b.shape):
        return computed_product(a, b, describer.block, node.span)
    reason = f"{name} multiplies two computed tensors"
    dtype = "float32" if peak < EXACT_IN_FLOAT32 else "float64"
    whole = [_whole(x, dtype, reason, node.span) for x in operands]
    product = host_call(str(node.op), tuple(whole), node.attrs, reason, node.span)
    channels = node.shape[1]
    return Affine(
        host_call("nn.cast", (product,), {"to": "int32"}, reason, node.span), np.zeros(channels, np.int64),
        np.full(channels, a.scale * b.scale), np.zeros(channels), np.full(channels, peak), node.shape,
        span=a.span.merged(b.span), host=reason,
    )  # fmt: skip


def _narrow(w: Array, groups: int) -> tuple[Array, int, int | None]:
    """Whole-number weights as int8. Where they do not fit they are written as sums, beside each other: the input has to
    stand there as often as the second result says. The third: groups, if they change."""
    low, high = int(w.min(initial=0)), int(w.max(initial=0))
    if low >= -128 and high <= 127:
        return w.astype(np.int8), 1, None
    if groups > 1:
        outputs, inputs = w.shape[0] // groups, w.shape[1]
        dense = np.zeros((w.shape[0], inputs * groups, *w.shape[2:]), w.dtype)
        for group in range(groups):
            rows = slice(group * outputs, (group + 1) * outputs)
            dense[rows, group * inputs : (group + 1) * inputs] = w[rows]
        w = dense
    copies = _copies(w)
    parts = [(w + number) // copies for number in range(copies)]
    return np.concatenate(parts, axis=1).astype(np.int8), copies, 1


def _copies(w: Array) -> int:
    """How many int8 numbers whole-number weights are the sums of."""
    return max(-(-int(w.max(initial=0)) // 127), -(int(w.min(initial=0)) // 128), 1)


_MOST_COPIES = 3
"""Weights of 8 bits less a zero point are sums of so many int8 numbers at most. Wider ones are written as digits."""


def _product_by_digits(
    x: Integers, image: Expr, w: Weights, node: Call, attrs: Mapping[str, object], name: str
) -> Affine:
    """A product with weights of more than 8 bits: one for each of their digits of base 256, the highest first, on the
    host, which has sums of 32 bits in memory."""
    reason = f"the weights of {name} have more than 8 bits"
    op = "conv3d" if len(node.shape) == 5 else "conv2d"
    span = node.span.merged(node.args[1].span)
    rest = w.centred.astype(np.int64)
    digits: list[Array] = []
    while rest.any():
        digit = (rest + 128) % 256 - 128
        digits.append(digit.astype(np.int8))
        rest = (rest - digit) >> 8
    total: Expr | None = None
    for number, digit in enumerate(reversed(digits)):
        constant = Constant(digit, f"{w.name}.{number}" if w.name else "", node.args[1].span)
        part = host_call(op, (image, constant), attrs, reason, span)
        if total is not None:
            total = host_call("multiply_immediate", (total,), {"weight": 256}, reason, Span(span.nodes))
            part = host_call("add", (total, part), {}, reason, span)
        total = part
    assert total is not None  # weights of 0 alone have one digit
    return replace(_affine_product(x, total, w, node.shape, span), host=reason)


def _affine_product(x: Integers, accumulator: Expr, w: Weights, shape: tuple[int, ...], span: Span) -> Affine:
    axes = tuple(range(1, w.centred.ndim))
    total = w.centred.sum(axis=axes)
    peak = np.abs(w.centred).sum(axis=axes) * float(LARGEST_BYTE)
    return Affine(
        accumulator, -x.zero_point * total, x.scale * w.scale, np.zeros(len(w.scale)), peak, shape,
        span=span.merged(x.span),
    )  # fmt: skip


def _whole(x: Integers, dtype: str, reason: str, span: Span) -> Expr:
    """The integers of ``x`` minus their zero point, on the host, as floats."""
    if isinstance(x.q, Constant):
        return Constant((x.q.value.astype(np.int64) - x.zero_point).astype(dtype), span=span)
    wide = host_call("nn.cast", (x.q,), {"to": dtype}, reason, Span(span.nodes))
    if not x.zero_point:
        return wide
    return host_call("nn.subtract", (wide, Constant(np.array(x.zero_point, dtype))), {}, reason, Span(span.nodes))
