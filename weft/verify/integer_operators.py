"""The operators of the integer contract (``docs/integers.md``) over the field, on plain tensors (N, C, ...).

Whatever is computed here is written down from the contract, not from the graph's own evaluator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..roundings import FLOAT32, HALF_AWAY, HALF_EVEN, HALF_UP, TWO_ROUNDINGS
from .errors import NotProvedError
from .field import MOST_TERMS, Elements, Numbers, add, halves, join, matrix_product, multiply, of_int
from .keyed import Keys
from .normal_forms import BYTE, LARGEST, TABLE_ENTRIES, Kinds, extreme, looked_up, narrowed, numbers_digest
from .normal_forms import requantise as requantised
from .values import MOST_DEGREE_OF_BYTE, Array, OneByte, Value, plain, without_repeats

Values = Sequence[Value]
Constants = Sequence[Array]
Attributes = Mapping[str, Any]


@dataclass(frozen=True)
class Context:
    """``one_byte``: functions of one 8-bit value are told apart by their 256 results, however they are written down,
    and every largest of several values is one by itself: right where graphs are compared with graphs."""

    keys: Keys
    one_byte: bool


Rule = Callable[[Context, Values, Constants, Attributes], Value]
"""Context, computed operands, constant operands, attributes -> result."""


# Sums of products


def _sums_of(found: Elements, low: float, high: float, size: float, degree: float) -> Value:
    return Value(lambda: plain(found), int(low), int(high), size, degree)


def convolution(context: Context, values: Values, constants: Constants, attrs: Attributes) -> Value:
    (x,), (w,) = values, constants
    pad = int(attrs["pad_value"])
    rows = w.reshape(len(w), -1).astype(np.int64)
    positive, negative = np.maximum(rows, 0).sum(1), np.minimum(rows, 0).sum(1)
    least, most = min(x.low, pad), max(x.high, pad)
    found = _convolved(x.elements(context.keys), w, attrs)
    weight = float(np.abs(rows).sum(1).max(initial=0))
    return _sums_of(
        found, int((positive * least + negative * most).min(initial=0)),
        int((positive * most + negative * least).max(initial=0)), max(weight * max(x.size, abs(pad)), 1), x.degree,
    )  # fmt: skip


def _convolved(x: Elements, w: Array, attrs: Mapping[str, Any]) -> Elements:
    """Tap by tap, in halves."""
    groups, outs, kernel = int(attrs["groups"]), len(w), w.shape[2:]
    if w[0].size > MOST_TERMS:
        raise NotProvedError(f"a sum of {w[0].size} products, of at most {MOST_TERMS}")
    parts = halves(_padded(x, attrs["pads"], of_int(attrs["pad_value"])))
    total: Any = None
    for (kh, kw), tap in _taps(parts, attrs, kernel):
        _, images, channels, height, width = tap.shape
        weights = w[:, :, kh, kw].astype(np.float64)
        if groups == channels == outs:
            found = tap * weights.reshape(1, 1, channels, 1, 1)
        else:
            split = tap.reshape(2, images, groups, channels // groups, height * width)
            found = weights.reshape(groups, outs // groups, -1) @ split
            found = found.reshape(2, images, outs, height, width)
        total = found if total is None else total + found
    return join(total)


def _padded(x: Any, pads: Sequence[int], value: Any) -> Any:
    top, left, bottom, right = pads
    if not any(pads):
        return x
    return np.pad(x, ((0, 0),) * (x.ndim - 2) + ((top, bottom), (left, right)), constant_values=value)


def _taps(x: Any, attrs: Mapping[str, Any], kernel: Sequence[int]) -> Iterator[tuple[tuple[int, int], Any]]:
    """What each tap of a window reads of ``x``, already padded, in the outputs' shape."""
    strides, dilations = attrs["strides"], attrs.get("dilations", (1, 1))
    sizes = [(x.shape[axis - 2] - (kernel[axis] - 1) * dilations[axis] - 1) // strides[axis] + 1 for axis in (0, 1)]
    for kh in range(kernel[0]):
        for kw in range(kernel[1]):
            rows, columns = (
                slice(first, first + (sizes[axis] - 1) * strides[axis] + 1, strides[axis])
                for axis, first in enumerate((kh * dilations[0], kw * dilations[1]))
            )
            yield (kh, kw), x[..., rows, columns]


def product(context: Context, values: Values, constants: Constants, attrs: Attributes) -> Value:
    """Of two tensors, image by image; one of them may be a constant."""
    x, w = values
    zero_x, zero_w = attrs["zero_points"]
    first = add(x.elements(context.keys), of_int(-zero_x))
    second = add(w.elements(context.keys)[:, :, : attrs["outputs"], 0], of_int(-zero_w))
    images, channels, height, width = first.shape
    found = [matrix_product(second[image].T, first[image].reshape(channels, -1)) for image in range(images)]
    low, high, size = _ends_of_product(x, zero_x, w, zero_w, channels)
    shape = (images, attrs["outputs"], height, width)
    return _sums_of(np.stack(found).reshape(shape), low, high, size, x.degree + w.degree)


def _ends_of_product(x: Value, zero_x: int, w: Value, zero_w: int, channels: int) -> tuple[int, int, float]:
    """Least and largest sum, and a bound of the coefficients: by the rows of the operand that is a constant, if one is,
    else by how many products are added."""
    for constant, zero, other, other_zero in ((x, zero_x, w, zero_w), (w, zero_w, x, zero_x)):
        if constant.numbers is not None and constant.is_byte:  # others could overflow here
            rows = constant.numbers - zero
            positive, negative = np.maximum(rows, 0).sum(1), np.minimum(rows, 0).sum(1)
            least, most = other.low - other_zero, other.high - other_zero
            low = (positive * least + negative * most).min(initial=0)
            high = (positive * most + negative * least).max(initial=0)
            weight = float((positive - negative).max(initial=1))
            return int(low), int(high), weight * (other.size + abs(other_zero))
    ends = [(a - zero_x) * (b - zero_w) * channels for a in (x.low, x.high) for b in (w.low, w.high)]
    return min(ends), max(ends), channels * (x.size + abs(zero_x)) * (w.size + abs(zero_w))


def sum_pool(context: Context, values: Values, constants: Constants, attrs: Attributes) -> Value:
    (x,), pad = values, int(attrs["pad_value"])
    padded = _padded(x.elements(context.keys), attrs["pads"], of_int(pad))
    total: Any = None
    for _, tap in _taps(padded, attrs, attrs["kernel"]):
        total = tap if total is None else add(total, tap)
    count = attrs["kernel"][0] * attrs["kernel"][1]
    return _sums_of(total, count * min(x.low, pad), count * max(x.high, pad), count * max(x.size, abs(pad)), x.degree)


def max_pool(context: Context, values: Values, constants: Constants, attrs: Attributes) -> Value:
    """Padding never wins."""
    x, keys, pads = values[0], context.keys, attrs["pads"]
    elements, kinds = _padded(x.open_elements, pads, of_int(BYTE[0])), _padded(x.kind, pads, 0)
    inside = _padded(np.ones(x.open_elements.shape[-2:], bool), pads, False)
    found: tuple[Elements, Kinds] | None = None
    bounds: tuple[Numbers, Numbers] | None = None
    taps = (_taps(each, attrs, attrs["kernel"]) for each in (elements, kinds, inside))
    for (_, tap), (_, kind), (_, there) in zip(*taps, strict=True):
        low = np.where(there, max(x.low, BYTE[0]), BYTE[0]).astype(np.int64)
        high = np.where(there, min(x.high, BYTE[1]), BYTE[0]).astype(np.int64)
        if found is None or bounds is None:
            found, bounds = (tap, kind), (low, high)
            continue
        found = extreme(keys, LARGEST, found, (tap, kind), bounds, (low, high))
        bounds = np.maximum(bounds[0], low), np.maximum(bounds[1], high)
    if found is None:
        raise NotProvedError("a pooling without a window")
    made = found
    return Value(lambda: made, *BYTE, size=x.size * attrs["kernel"][0] * attrs["kernel"][1], degree=x.degree)


# Element by element


def as_function_of_byte(x: Value) -> OneByte | None:
    """A value as a function of one of at most 256 numbers, if it is one. A straight one stays a polynomial, so what
    has a higher degree than a byte may have is none."""
    if x.of_byte is not None:
        return x.of_byte
    if x.high - x.low >= TABLE_ENTRIES or x.degree > MOST_DEGREE_OF_BYTE or x.kind.any():
        return None
    base = add(x.open_elements, of_int(-x.low))
    return OneByte(base, np.arange(x.low, x.high + 1)[:, None], x.size + abs(x.low), x.degree)


def _elementwise(
    context: Context, values: Values, of_numbers: Callable[..., Numbers], of_values: Callable[[], Value]
) -> Value:
    """By its 256 results where all operands are functions of one 8-bit value, if the context asks for that."""
    if not context.one_byte:
        return of_values()
    functions = [as_function_of_byte(x) for x in values]
    first = functions[0]
    if first is None or any(each is None or not _same(each.base, first.base) for each in functions):
        return of_values()
    table = of_numbers(*(each.table for each in functions if each is not None))
    if np.abs(table).max(initial=0) > 1 << 56:
        return of_values()
    return of_byte(replace(first, table=table), context.keys)


def of_byte(made: OneByte, keys: Keys) -> Value:
    """The value that a function gives. Channels that have one table need none each, so that it may be moved."""
    made = replace(made, table=without_repeats(made.table))
    low, high = int(made.table.min()), int(made.table.max())
    return Value(lambda: plain(made.elements(keys)), low, high, made.size, max(made.base_degree, 1), made)


def _same(a: Elements, b: Elements) -> bool:
    return a is b or (a.shape == b.shape and bool((a == b).all()))


def _wrapped(x: Numbers) -> Numbers:
    return x.astype(np.int32).astype(np.int64)


def _channels(parameters: Array, rank: int) -> Elements:
    return of_int(parameters).reshape((1, -1) + (1,) * (rank - 2))


def _rounded(sums: Numbers, multiplier: Numbers, shift: Numbers, rounding: str) -> Numbers:
    if rounding == FLOAT32:
        product = sums.astype(np.float32) * multiplier.astype(np.float32)
        return np.rint(product.astype(np.float64) / np.exp2(shift)).astype(np.int64)
    if rounding == TWO_ROUNDINGS:
        first = np.minimum(shift, 31)
        high, rest = (sums * multiplier + (np.int64(1) << (first - 1))) >> first, shift - first
        away = (high + (np.int64(1) << np.maximum(rest - 1, 0)) - (high < 0)) >> rest
        return np.where(rest > 0, away, high)
    exact, half = sums * multiplier, np.int64(1) << (shift - 1)
    if rounding == HALF_AWAY:
        return np.asarray(np.sign(exact) * ((np.abs(exact) + half) >> shift))
    if rounding == HALF_EVEN:
        below = exact >> shift
        rest = exact - (below << shift)
        return np.asarray(below + ((rest > half) | (rest == half) & (below % 2 == 1)))
    return np.asarray((exact + half) >> shift)


def requantise(context: Context, values: Values, constants: Constants, attrs: Attributes) -> Value:
    """A left shift is a step of its own: what is shifted is a value of at most 256 numbers, its result is none."""
    if left := attrs.get("left_shift", 0):
        narrow = requantise(context, values, constants, {**attrs, "left_shift": 0})
        return multiply_immediate(context, [narrow], (), {"weight": 1 << left})
    (x,), (bias, multiplier, shift) = values, (each.astype(np.int64) for each in constants[:3])
    zero_point, low, high = attrs["zero_point"], attrs["low"], attrs["high"]
    keys, rounding = context.keys, attrs.get("rounding", HALF_UP)

    def of_numbers(table: Numbers) -> Numbers:
        rounded = _rounded(_wrapped(table + bias), multiplier, shift, rounding)
        return np.asarray(np.clip(rounded + zero_point, low, high))

    def of_values() -> Value:
        elements = x.elements(keys)
        parts = [_channels(each, elements.ndim) for each in (bias, multiplier, shift)]
        limits = zero_point, low, high
        found = requantised(keys, elements, parts[0], parts[1], parts[2], limits, rounding=rounding)
        return Value(lambda: plain(found), low, high, float(1 + abs(zero_point)))

    return _elementwise(context, values, of_numbers, of_values)


def look_up(context: Context, values: Values, constants: Constants, attrs: Attributes) -> Value:
    (x,), table, keys = values, constants[-1].astype(np.int64), context.keys

    def of_numbers(entries: Numbers) -> Numbers:
        return table[entries.astype(np.int8).astype(np.int64) - BYTE[0]]

    def of_values() -> Value:
        argument = narrowed(keys, x.elements(keys), *x.bounds)
        found = looked_up(keys, argument, numbers_digest(keys, np.roll(table, BYTE[0])[:, None]))
        return Value(lambda: plain(found), *BYTE)

    return _elementwise(context, values, of_numbers, of_values)


def requantise_look_up(context: Context, values: Values, constants: Constants, attrs: Attributes) -> Value:
    narrow = requantise(context, values, constants[:3], {**attrs, "left_shift": 0})
    return look_up(context, [narrow], constants, attrs)


def _two(context: Context, values: Values) -> tuple[Elements, Elements]:
    """Both operands, the second with as many channels as the first, which may repeat."""
    a, b = (value.elements(context.keys) for value in values)
    if b.ndim > 1 and b.shape[1] not in (1, a.shape[1]):
        b = b[:, np.arange(a.shape[1]) % b.shape[1]]
    return a, b


def multiplied(context: Context, values: Values, constants: Constants, attrs: Attributes) -> Value:
    a, b = values

    def of_values() -> Value:
        ends = [x * y for x in (a.low, a.high) for y in (b.low, b.high)]
        return _sums_of(multiply(*_two(context, values)), min(ends), max(ends), a.size * b.size, a.degree + b.degree)

    return _elementwise(context, values, lambda x, y: _wrapped(x) * _wrapped(y), of_values)


def added(context: Context, values: Values, constants: Constants, attrs: Attributes) -> Value:
    a, b = values

    def of_values() -> Value:
        found = add(*_two(context, values))
        return _sums_of(found, a.low + b.low, a.high + b.high, a.size + b.size, max(a.degree, b.degree))

    return _elementwise(context, values, lambda x, y: x + y, of_values)


def scaled(x: Value, elements: Elements, weight: int) -> Value:
    """A value times a number."""
    low, high = sorted((x.low * weight, x.high * weight))
    return _sums_of(multiply(elements, of_int(weight)), low, high, x.size * max(abs(weight), 1), x.degree)


def multiply_immediate(context: Context, values: Values, constants: Constants, attrs: Attributes) -> Value:
    x, weight = values[0], int(attrs["weight"])
    return _elementwise(
        context, values, lambda table: _wrapped(table) * weight, lambda: scaled(x, x.elements(context.keys), weight)
    )


def subtract_immediate(context: Context, values: Values, constants: Constants, attrs: Attributes) -> Value:
    x, number = values[0], int(attrs["value"])

    def of_values() -> Value:
        found = add(x.elements(context.keys), of_int(-number))
        return _sums_of(found, x.low - number, x.high - number, x.size + abs(number), x.degree)

    return _elementwise(context, values, lambda table: table - number, of_values)


def maximum_immediate(context: Context, values: Values, constants: Constants, attrs: Attributes) -> Value:
    x, number = values[0], int(attrs["value"])

    def of_values() -> Value:
        other = plain(np.broadcast_to(of_int(number), x.open_elements.shape))
        limit = np.array(number)
        made = extreme(context.keys, LARGEST, (x.open_elements, x.kind), other, x.bounds, (limit, limit))
        return Value(lambda: made, max(x.low, number), max(x.high, number), x.size + 1 + abs(number), x.degree)

    return _elementwise(context, values, lambda table: np.maximum(_wrapped(table), number), of_values)


def multiply_accumulate(context: Context, values: Values, constants: Constants, attrs: Attributes) -> Value:
    total, x = values
    weight = int(attrs["weight"])

    def of_values() -> Value:
        part = scaled(x, x.elements(context.keys), weight)
        found = add(total.elements(context.keys), part.open_elements)
        return _sums_of(
            found, total.low + part.low, total.high + part.high, total.size + part.size, max(total.degree, x.degree)
        )

    return _elementwise(context, values, lambda table, of_x: table + _wrapped(of_x) * weight, of_values)


RULES: dict[str, tuple[Rule, int]] = {
    "conv2d": (convolution, 1),
    "product": (product, 0),
    "sum_pool": (sum_pool, 0),
    "max_pool": (max_pool, 0),
    "requantise": (requantise, 3),
    "look_up": (look_up, 1),
    "requantise_look_up": (requantise_look_up, 4),
    "multiply": (multiplied, 0),
    "add": (added, 0),
    "multiply_immediate": (multiply_immediate, 0),
    "subtract_immediate": (subtract_immediate, 0),
    "maximum_immediate": (maximum_immediate, 0),
    "multiply_accumulate": (multiply_accumulate, 0),
}
"""By operator, with how many of its last operands must be constants."""
