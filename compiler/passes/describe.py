"""What every real value of a model is in integers, operator by operator: see `integer_form` for the descriptions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from ..graph import Array, Call, Constant, Expr, Family, Function, Span, Var, call
from ..graph.registry import operator
from .cleanup import static_value
from .computed_product import computed_product
from .describe_windows import average_pool, max_pool, nudged_from_zero, padded, reduction
from .emit_integers import concatenated
from .host import host_call
from .integer_form import (
    INT32_SAFE,
    Affine,
    Concatenated,
    IntegerForm,
    Integers,
    Mapped,
    Real,
    Refusal,
    Sum,
    as_affine,
    as_image,
    channels_in,
    clipped,
    moved,
    per_channel,
    scaled,
    shifted,
    term_times,
    with_channels_at,
    with_span,
)
from .static_weights import Weights, static_weights

_NO_INTEGER_FORM = "has no integer form and is computed in float32"
_EXACT_IN_FLOAT32 = 1 << 24
_LARGEST_BYTE = 255


@dataclass(frozen=True)
class Describer:
    """``described``: the values below the one that is described, by id. ``integers``: for each int8 or uint8 value the
    int8 one that stands for it. ``uses``: of every value. ``block``: of the array that multiplies computed matrices; 0
    where the host does. ``volumes``: whether there are convolutions and poolings over
    volumes of bytes."""

    described: Mapping[int, IntegerForm]
    integers: Mapping[int, Expr]
    uses: Mapping[Expr, int]
    block: int = 0
    volumes: bool = False

    def describe(self, node: Expr) -> IntegerForm:
        """A real value in integers, or why it has to be computed in floating point."""
        if node.static:
            return Refusal("it is a constant")
        if isinstance(node, Var):
            return Refusal(f"input {node.name!r} is float32")
        if not isinstance(node, Call) or isinstance(node.op, Function):
            return Refusal("it is not an operator")
        name = f"{node.op.removeprefix('nn.')} {node.span.node!r}"
        described = self._describe_call(node, name)
        return described if isinstance(described, Refusal) else with_span(described, node.span)

    def _describe_call(self, node: Call, name: str) -> IntegerForm:
        op = str(node.op)
        match op:
            case "dequantise":
                return self._dequantise(node, name)
            case "nn.conv3d" if not self.volumes:
                return self._product_of_computed(node, name)
            case "nn.conv2d" | "nn.conv3d" | "nn.dense":
                return self._weighted(node, name)
            case "nn.matmul":
                return self._product_of_computed(node, name)
            case "nn.maximum" | "nn.minimum":
                return self._bounded(node, op, name)
            case "nn.add" | "nn.subtract" | "nn.multiply" | "nn.divide":
                return self._binary(node, op, name)
            case "concat":
                return self._concat(node)
            case "gather" | "gather_elements" | "gather_nd" if node.args[0].static:
                return self._look_up(node, name)
        x = self.described.get(id(node.args[0]), Refusal(f"{name} works on 8-bit integers as they are"))
        if isinstance(x, Refusal):
            return x
        match op:
            case "nn.clip":
                return clipped(x, node.attr("low"), node.attr("high"))
            case "nn.negative":
                return scaled(x, per_channel_number(x, -1.0), name)
            case "nn.max_pool" if self.volumes and len(node.attr("kernel")) == 3:
                return max_pool(x, node)
            case "nn.max_pool" | "nn.average_pool" if len(node.attr("kernel")) != 2:
                return Refusal(f"{name} has a window of {len(node.attr('kernel'))} axes, not of 2")
            case "nn.max_pool":
                return max_pool(x, node)
            case "nn.average_pool":
                return average_pool(x, node, name)
            case "pad":
                return padded(x, node, name)
            case "dilate":
                return Refusal(f"{name} puts zeros between elements")
            case "nn.reduce_mean" | "nn.reduce_sum" | "nn.reduce_max" | "nn.reduce_min":
                return reduction(x, node, name)
        if operator(op).family in (Family.MOVE, Family.INDEX) and all(
            isinstance(arg, Constant) for arg in node.args[1:]
        ):
            return moved(x, node) if node.dtype == "float32" else Refusal(f"{name} {_NO_INTEGER_FORM}")
        return Refusal(f"{name} {_NO_INTEGER_FORM}")

    def _dequantise(self, node: Call, name: str) -> IntegerForm:
        q, scale, zero_point = node.args
        if id(q) not in self.integers:
            return Refusal(f"{name} is of {q.dtype}, not of 8 bits")
        if not isinstance(scale, Constant) or not isinstance(zero_point, Constant) or scale.value.ndim:
            return Refusal(f"{name} has no single scale that is known at compile time")
        zero = int(zero_point.value) - (128 if q.dtype == "uint8" else 0)
        if not -128 <= zero <= 127:
            return Refusal(f"{name} has a zero point outside of 8 bits")
        exclusive = self.uses.get(q, 0) == 1 and self.uses.get(node, 0) == 1
        return Integers(self.integers[id(q)], float(scale.value), zero, exclusive)

    # Products

    def _weighted(self, node: Call, name: str) -> IntegerForm:
        """A convolution or a dense layer, which is a 1 x 1 convolution."""
        x = self.described[id(node.args[0])]
        if not isinstance(x, Integers):
            return x if isinstance(x, Refusal) else Refusal(f"the input of {name} is not quantised")
        weights = static_weights(node.args[1], name)
        if isinstance(weights, Refusal):
            return weights if node.args[1].static else self._product_of_computed(node, name)
        is_dense = node.op == "nn.dense"
        w = weights.centred.reshape(*weights.centred.shape, 1, 1) if is_dense else weights.centred
        image = call("reshape", x.q, shape=(*x.shape, 1, 1), span=node.span) if is_dense else x.q
        attrs = {**node.attrs, "pad_value": x.zero_point}
        span = node.span.merged(node.args[1].span)
        if _copies(w) > _MOST_COPIES:
            return _product_by_digits(x, image, replace(weights, centred=w), node, attrs, name)
        narrow, copies, groups = _narrow(w, 1 if is_dense else node.attr("groups"))
        if groups is not None:
            attrs["groups"] = groups
        if copies > 1:
            image = call("concat", *[image] * copies, axis=1, span=Span(x.q.span.nodes))
        constant = Constant(narrow, weights.name, node.args[1].span)
        accumulator = call("conv3d" if node.op == "nn.conv3d" else "conv2d", image, constant, span=span, **attrs)
        return _affine_product(x, accumulator, replace(weights, centred=w), node.shape, span)

    def _product_of_computed(self, node: Call, name: str) -> IntegerForm:
        """A product of two computed tensors: exactly, on the host, in floats that hold every sum of whole numbers."""
        operands = []
        for arg in node.args:
            x = self.described[id(arg)]
            if isinstance(x, Refusal) and arg.static:
                x = _constant_integers(arg) or Refusal(f"the operands of {name} are not both quantised")
            if not isinstance(x, Integers):
                return x if isinstance(x, Refusal) else Refusal(f"the operands of {name} are not both quantised")
            operands.append(x)
        if len(node.shape) < 2:
            return Refusal(f"{name} works on a tensor without channels")
        a, b = operands
        depth = a.shape[-1] if node.op == "nn.matmul" else math.prod(b.shape[1:])
        peak = float(_LARGEST_BYTE**2 * depth)
        if peak > INT32_SAFE:
            return Refusal(f"the sums of {name} may not fit 32 bits")
        if self.block and node.op == "nn.matmul" and a.shape[:-2] == b.shape[:-2] and 0 not in (*a.shape, *b.shape):
            return computed_product(a, b, self.block, node.span)
        reason = f"{name} multiplies two computed tensors"
        dtype = "float32" if peak < _EXACT_IN_FLOAT32 else "float64"
        whole = [_whole(x, dtype, reason, node.span) for x in operands]
        product = host_call(str(node.op), tuple(whole), node.attrs, reason, node.span)
        channels = node.shape[1]
        return Affine(
            host_call("nn.cast", (product,), {"to": "int32"}, reason, node.span), np.zeros(channels, np.int64),
            np.full(channels, a.scale * b.scale), np.zeros(channels), np.full(channels, peak), node.shape,
            span=a.span.merged(b.span), host=reason,
        )  # fmt: skip

    # Arithmetic of two operands

    def _binary(self, node: Call, op: str, name: str) -> IntegerForm:
        a, b = node.args
        if a.static and not b.static and op != "nn.divide":
            if op != "nn.subtract":
                return self._with_constant(b, op, a, node, name)
            x = self.described[id(b)]
            negative = x if isinstance(x, Refusal) else scaled(x, per_channel_number(x, -1.0), name)
            return negative if isinstance(negative, Refusal) else _with_constant(negative, "nn.add", a, node, name)
        if b.static:
            return self._with_constant(a, op, b, node, name)
        if op == "nn.divide":
            return Refusal(f"{name} divides by a computed tensor")
        x, y = self.described[id(a)], self.described[id(b)]
        if isinstance(x, Refusal) or isinstance(y, Refusal):
            return x if isinstance(x, Refusal) else y
        if op == "nn.multiply" and isinstance(x, Integers) and isinstance(y, Integers):
            gated = _gated(x, y, node) or _gated(y, x, node)
            if gated is not None:
                return gated
        if op == "nn.add" and isinstance(x, Affine) and isinstance(y, Affine):
            nudged = nudged_from_zero(x, y) or nudged_from_zero(y, x)
            if nudged is not None:
                return nudged
        return _arithmetic(_expanded(x, node), _expanded(y, node), node, op, name)

    def _bounded(self, node: Call, op: str, name: str) -> IntegerForm:
        """The larger or the smaller of a value and one number: a clip with one end."""
        constants = [arg for arg in node.args if arg.static]
        computed = [arg for arg in node.args if not arg.static]
        if len(constants) != 1 or math.prod(constants[0].shape) != 1:
            return Refusal(f"{name} {_NO_INTEGER_FORM}")
        x, bound = self.described[id(computed[0])], float(static_value(constants[0]).reshape(()))
        if isinstance(x, Refusal) or math.isnan(bound) or computed[0].shape != node.shape:
            return x if isinstance(x, Refusal) else Refusal(f"{name} {_NO_INTEGER_FORM}")
        return clipped(x, bound, math.inf) if op == "nn.maximum" else clipped(x, -math.inf, bound)

    def _with_constant(self, x: Expr, op: str, constant: Expr, node: Call, name: str) -> IntegerForm:
        described = self.described[id(x)]
        return described if isinstance(described, Refusal) else _with_constant(described, op, constant, node, name)

    # Several operands

    def _concat(self, node: Call) -> IntegerForm:
        parts: list[Real] = []
        for arg in node.args:
            part = self.described[id(arg)]
            if isinstance(part, Refusal) and arg.static:
                part = _constant_integers(arg) or part
            if isinstance(part, Refusal):
                return part
            parts.append(part)
        integers = [part for part in parts if isinstance(part, Integers)]
        if len(integers) == len(parts) and len({(part.scale, part.zero_point) for part in integers}) == 1:
            q = concatenated([part.q for part in integers], node.attr("axis"), node.shape, node.span)
            return replace(integers[0], q=q, exclusive=False)
        return Concatenated(tuple(parts), node.attr("axis"), node.shape)

    def _look_up(self, node: Call, name: str) -> IntegerForm:
        """Rows of a quantised table at computed indices."""
        table = _constant_integers(node.args[0])
        if table is None or any(index.static for index in node.args[1:]):
            return Refusal(f"{name} {_NO_INTEGER_FORM}")
        reason = f"{name} picks at computed places, which the accelerator does not do"
        return replace(table, q=host_call(str(node.op), (table.q, *node.args[1:]), node.attrs, reason, node.span))


def per_channel_number(x: Real, value: float) -> Array:
    """One number for every channel of a value."""
    found = per_channel(x, np.array(value))
    return np.array([value]) if found is None else found


def _constant_integers(node: Expr) -> Integers | None:
    """A constant that the model holds in 8 bits with one scale, moved or not."""
    weights = _tensor(node)
    if weights is None:
        return None
    values, scale = weights
    low, high = int(values.min(initial=0)), int(values.max(initial=0))
    if high - low > _LARGEST_BYTE:
        return None
    zero = max(-128, min(-128 - low, 127 - high)) if low < -128 or high > 127 else 0
    if not -128 <= zero <= 127 or not -128 <= low + zero <= high + zero <= 127:
        return None
    return Integers(Constant((values + zero).astype(np.int8), span=node.span), scale, zero, span=node.span)


def _tensor(node: Expr) -> tuple[Array, float] | None:
    """Integers without zero point and their one scale."""
    row = call("reshape", node, shape=(1, math.prod(node.shape)))
    found = static_weights(row, "a constant")
    if isinstance(found, Refusal):
        return None
    return found.centred.reshape(node.shape), float(found.scale[0])


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
    op = "conv3d" if node.op == "nn.conv3d" else "conv2d"
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
    peak = np.abs(w.centred).sum(axis=axes) * float(_LARGEST_BYTE)
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


def _expanded(x: Real, node: Call) -> Real:
    """An operand of ``node`` as often as its broadcasting repeats it."""
    if x.shape == node.shape or not isinstance(x, Integers):
        return x
    reason = f"{str(node.op).removeprefix('nn.')} {node.span.node!r} repeats a computed tensor along an axis"
    q = host_call("expand", (x.q,), {"shape": node.shape}, reason, Span(node.span.nodes))
    return replace(x, q=q, exclusive=False)


def _gated(x: Integers, gate: Integers, node: Call) -> Affine | None:
    """``x`` times one number a channel, (N, C, 1, 1): the gates of squeeze and excite. None for other shapes."""
    wanted = (*x.shape[:2], *(1 for _ in x.shape[2:]))
    if len(x.shape) < 3 or x.shape != node.shape or gate.shape != wanted or gate.shape == x.shape:
        return None
    return _elementwise_product(x, gate, node)


def _arithmetic(x: Real, y: Real, node: Call, op: str, name: str) -> IntegerForm:
    """A sum, a difference or a product of two values."""
    if x.shape != y.shape:
        return Refusal(f"{name} broadcasts a computed tensor that is not quantised")
    match op:
        case "nn.add":
            return _sum(x, y, 1.0, name)
        case "nn.subtract":
            return _sum(x, y, -1.0, name)
        case "nn.multiply" if isinstance(x, Integers) and isinstance(y, Integers):
            return _elementwise_product(x, y, node)
    return Refusal(f"{name} of computed tensors has no integer form here")


def _with_constant(x: Real, op: str, constant: Expr, node: Call, name: str) -> IntegerForm:
    """``x`` and a constant: a factor or an offset a channel, or a tensor that the model has in 8 bits."""
    value = static_value(constant)
    if not np.isfinite(value).all():
        return Refusal(f"the constant operand of {name} is not finite")
    try:
        grows = np.broadcast_shapes(x.shape, value.shape) != x.shape
    except ValueError:
        grows = True
    if grows:
        return Refusal(f"{name} repeats a computed tensor along the axes of a constant of shape {value.shape}")
    channel = per_channel(x, value)
    if channel is None and isinstance(x, Integers):
        aligned = (1,) * (len(x.shape) - value.ndim) + value.shape
        varying = [axis for axis, size in enumerate(aligned) if size != 1]
        if len(varying) == 1:
            turned = with_channels_at(x, varying[0])
            channel, x = per_channel(turned, value), turned
    if channel is None:
        whole = None if op == "nn.divide" else _constant_integers(constant)
        if whole is None:
            return Refusal(f"the constant operand of {name} has the shape {value.shape}, not one value a channel")
        spread = np.ascontiguousarray(np.broadcast_to(static_value(whole.q), x.shape))
        return _arithmetic(x, replace(whole, q=Constant(spread, span=node.span)), node, op, name)
    if op == "nn.divide":
        if np.any(channel == 0):
            return Refusal(f"{name} divides by zero")
        return scaled(x, 1 / channel, name)
    if op == "nn.multiply":
        return scaled(x, channel, name)
    return shifted(x, -channel if op == "nn.subtract" else channel, name)


def _sum(x: Real, y: Real, sign: float, name: str) -> IntegerForm:
    for value in (x, y):
        if isinstance(value, Mapped):
            return _sum_below_a_move(x, y, value, sign, name)
    sums: list[Sum] = []
    for value in (x, y):
        part = _as_sum(value)
        if part is None:
            return Refusal(f"{name} adds a tensor that is not quantised; quantise both operands")
        sums.append(part)
    terms = tuple(term_times(term, sign) for term in sums[1].terms)
    span = sums[0].span.merged(sums[1].span)
    return Sum(sums[0].terms + terms, sums[0].offset + sign * sums[1].offset, span=span)


def _as_sum(value: Real) -> Sum | None:
    match value:
        case Integers():
            return Sum((value,), np.zeros(channels_in(value.shape)), span=value.span)
        case Affine() if not value.clamped and not value.host:
            return Sum((value,), np.zeros(len(value.scale)), span=value.span)
        case Sum() if not value.clamped:
            return value
    return None


def _sum_below_a_move(x: Real, y: Real, mapped: Mapped, sign: float, name: str) -> IntegerForm:
    """A sum with a value that is moved: the other value is moved back, or has moved the same way."""
    a, b = (_moved_back(value, mapped) for value in (x, y))
    if a is None or b is None:
        return Refusal(f"{name} adds a tensor that is not quantised; quantise both operands")
    inner = _sum(a, b, sign, name)
    return inner if isinstance(inner, Refusal) else replace(mapped, inner=inner, span=x.span.merged(y.span))


def _moved_back(value: Real, mapped: Mapped) -> Real | None:
    """What becomes ``value`` by the move of ``mapped``."""
    if value is mapped:
        return mapped.inner
    if isinstance(value, Integers) and mapped.undo is not None:
        return replace(value, q=mapped.undo(value.q), exclusive=False)
    shape = mapped.inner.shape
    if not isinstance(value, Mapped) or value.inner.shape != shape or value.move is None or mapped.move is None:
        return None
    places = np.arange(math.prod(shape)).reshape(shape)
    return value.inner if np.array_equal(value.move(places), mapped.move(places)) else None


def _elementwise_product(x: Integers, y: Integers, node: Call) -> Affine:
    def centred(value: Integers) -> Expr:
        q = as_image(value.q)
        return q if value.zero_point == 0 else call("subtract_immediate", q, value=value.zero_point, span=node.span)

    if isinstance(x.q, Constant) and y.shape == x.shape:
        x, y = y, x
    channels = channels_in(x.shape)
    correction = np.zeros(channels, np.int64)
    if y.zero_point and isinstance(y.q, Constant):
        # x * (q - zero), with q as it is: the core reads constants of 8 bits
        product: Expr = call("multiply", centred(x), as_image(y.q), span=node.span)
        product = call("multiply_accumulate", product, as_image(x.q), weight=-y.zero_point, span=node.span)
        correction += y.zero_point * x.zero_point
    else:
        product = call("multiply", centred(x), centred(y), span=node.span)
    return replace(
        as_affine(x), accumulator=product, correction=correction, scale=np.full(channels, x.scale * y.scale),
        peak=np.full(channels, 65536.0), span=x.span.merged(y.span),
    )  # fmt: skip
