"""Meanings of operators against plain Python, element by element."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from weft.compiler.graph import Array, Constant, GraphError, call, dtypes, evaluate_function
from weft.compiler.graph.ir import Function

INTEGERS = st.sampled_from(dtypes.INTEGERS)


def value_of(op: str, *operands: Array, **attrs: Any) -> Array:
    result = evaluate_function(Function((), call(op, *map(Constant, operands), **attrs)), ())
    assert isinstance(result, np.ndarray)
    return result


@st.composite
def pairs(draw: st.DrawFn) -> tuple[int, int, str]:
    """Two integers of a type, and the type."""
    dtype = draw(INTEGERS)
    low, high = dtypes.limits(dtype)
    number = st.one_of(st.integers(low, high), st.sampled_from([low, high, 0, 1]), st.integers(max(low, -9), 9))
    return draw(number), draw(number), dtype


def wrapped(value: int, dtype: str) -> int:
    low, high = dtypes.limits(dtype)
    return (value - low) % (high - low + 1) + low


@given(pairs())
def test_integer_arithmetic_wraps_and_divides_towards_zero(pair: tuple[int, int, str]) -> None:
    a, b, dtype = pair
    x, y = (np.array(value, dtype) for value in (a, b))
    assert value_of("nn.add", x, y) == wrapped(a + b, dtype)
    assert value_of("nn.subtract", x, y) == wrapped(a - b, dtype)
    assert value_of("nn.multiply", x, y) == wrapped(a * b, dtype)
    quotient = 0 if b == 0 else abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
    assert value_of("nn.divide", x, y) == wrapped(quotient, dtype)
    assert value_of("nn.maximum", x, y) == max(a, b)
    if b:
        assert value_of("nn.modulo", x, y) == a % b
        assert value_of("nn.modulo", x, y, truncated=True) == wrapped(a - quotient * b, dtype)


@pytest.mark.parametrize("channels", [1024, 1025, 1100])
def test_convolutions_sum_the_largest_products_exactly(channels: int) -> None:
    """float32 holds a sum of 1,024 of them, and not all sums of more."""
    x = np.full((1, channels, 1, 1), -128, np.int8)
    x[0, 0] = -127
    assert value_of("conv2d", x, x) == 127 * 127 + (channels - 1) * 2**14


@pytest.mark.parametrize("zero", [0, 1, 5])
def test_quantise_rounds_ties_to_even_before_the_zero_point(zero: int) -> None:
    ties = np.array([-1.5, -0.5, 0.5, 1.5, 2.5], np.float32)
    found = value_of("quantise", ties, np.array(1, np.float32), np.array(zero, np.int8))
    assert found.tolist() == [each + zero for each in (-2, 0, 0, 2, 2)]


def test_quantise_adds_wide_zero_points_exactly() -> None:
    """float32 has no 2^32 - 3."""
    found = value_of("quantise", np.array([-1, 0, 1], np.float32), np.float32(1), np.array(2**32 - 3, np.uint32))
    assert found.tolist() == [2**32 - 4, 2**32 - 3, 2**32 - 2]


@given(pairs())
def test_shifts(pair: tuple[int, int, str]) -> None:
    a, b, dtype = pair
    x, y = (np.array(value, dtype) for value in (a, b))
    width = 8 * x.dtype.itemsize
    gone = not 0 <= b < width
    assert value_of("nn.shift_left", x, y) == (0 if gone else wrapped(a << b, dtype))
    assert value_of("nn.shift_right", x, y) == a >> (width if gone else b)


@given(pairs(), INTEGERS)
def test_a_cast_between_integers_keeps_the_low_bits(pair: tuple[int, int, str], to: str) -> None:
    value, _, dtype = pair
    assert value_of("nn.cast", np.array(value, dtype), to=to) == wrapped(value, to)


@given(st.floats(width=32), INTEGERS)
def test_a_cast_from_a_float_takes_the_nearest_integer_that_fits(value: float, to: str) -> None:
    low, high = dtypes.limits(to)
    expected = 0 if np.isnan(value) else max(low, min(high, int(max(-1e30, min(1e30, value)))))
    for dtype in ("float32", "float64"):
        assert value_of("nn.cast", np.array(value, dtype), to=to) == expected


@pytest.mark.parametrize("to", ["float8_e4m3fn", "float8_e5m2"])
def test_a_cast_to_a_small_float_saturates_or_not(to: str) -> None:
    x = np.array([1e9, -np.inf, np.nan, 0.1], np.float32)
    largest = dtypes.limits(to)[1]
    full = value_of("nn.cast", x, to=to).astype(np.float32)
    np.testing.assert_array_equal(full[:3], [largest, -largest, np.nan])
    assert abs(full[3] - 0.1) < 0.02
    open_ended = value_of("nn.cast", x, to=to, saturate=False).astype(np.float32)
    assert not np.isfinite(open_ended[:3]).any()


SHAPES = st.lists(st.integers(1, 4), min_size=1, max_size=3).map(tuple)


def counted(shape: tuple[int, ...]) -> Array:
    return np.arange(math.prod(shape), dtype=np.int64).reshape(shape)


@given(SHAPES, st.data())
def test_a_slice_picks_start_plus_i_times_step(shape: tuple[int, ...], data: st.DataObject) -> None:
    starts, sizes, steps = [], [], []
    for length in shape:
        start = data.draw(st.integers(0, length - 1))
        step = data.draw(st.sampled_from([-3, -2, -1, 1, 2, 3]))
        most = (length - 1 - start) // step + 1 if step > 0 else start // -step + 1
        starts, sizes, steps = [*starts, start], [*sizes, data.draw(st.integers(0, most))], [*steps, step]
    x = counted(shape)
    result = value_of("slice", x, starts=starts, sizes=sizes, steps=steps)
    assert result.shape == tuple(sizes)
    for index in itertools.product(*map(range, sizes)):
        source = tuple(start + i * step for start, i, step in zip(starts, index, steps, strict=True))
        assert result[index] == x[source]


@given(SHAPES, st.data())
def test_dilate_and_pad_place_elements_among_constants(shape: tuple[int, ...], data: st.DataObject) -> None:
    factors = tuple(data.draw(st.integers(1, 3)) for _ in shape)
    before = tuple(data.draw(st.integers(0, 2)) for _ in shape)
    x = counted(shape) + 1
    spread = value_of("dilate", x, factors=factors)
    assert spread.sum() == x.sum()
    padded = value_of("pad", spread, pads=(*before, *before), value=0)
    for index in itertools.product(*map(range, shape)):
        place = tuple(b + i * f for b, i, f in zip(before, index, factors, strict=True))
        assert padded[place] == x[index]
    assert padded.sum() == x.sum()


@given(SHAPES, st.data())
def test_gathering_what_was_scattered_gives_it_back(shape: tuple[int, ...], data: st.DataObject) -> None:
    axis = data.draw(st.integers(0, len(shape) - 1))
    order = np.array(data.draw(st.permutations(range(shape[axis]))), np.int64)
    indices = np.broadcast_to(order.reshape([-1 if i == axis else 1 for i in range(len(shape))]), shape)
    updates = counted(shape) + 100
    placed = value_of("scatter_elements", counted(shape), indices - shape[axis], updates, axis=axis)
    np.testing.assert_array_equal(value_of("gather_elements", placed, indices, axis=axis), updates)
    twice = value_of("scatter_elements", np.zeros_like(updates), indices * 0, updates, axis=axis, reduction="add")
    np.testing.assert_array_equal(twice.sum(axis=axis), updates.sum(axis=axis))


@given(st.lists(st.integers(-3, 3), min_size=1, max_size=8), st.booleans())
def test_top_k_sorts_and_keeps_the_order_of_equal_elements(values: list[int], largest: bool) -> None:
    wanted = sorted(range(len(values)), key=lambda i: (-values[i] if largest else values[i], i))
    result = value_of("top_k", np.array(values, np.int8), k=len(values), axis=0, largest=largest)
    assert result.tolist() == wanted


@given(st.lists(st.integers(-9, 9), min_size=1, max_size=6), st.booleans(), st.booleans())
def test_cumulative_sums(values: list[int], exclusive: bool, reverse: bool) -> None:
    result = value_of(
        "nn.cumulative_sum", np.array(values, np.int32), axis=0, exclusive=exclusive, reverse=reverse
    ).tolist()
    for i in range(len(values)):
        part = values[i + exclusive :] if reverse else values[: i + 1 - exclusive]
        assert result[i] == sum(part)


def test_rules_that_disagree_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    from dataclasses import replace

    from weft.compiler.graph import registry

    wrong = replace(registry.operator("nn.abs"), numpy=lambda x: x.astype(np.float64))
    monkeypatch.setitem(registry._operators, "nn.abs", wrong)
    with pytest.raises(GraphError, match=r"nn.abs is float32\[2\], but its value is float64\[2\]"):
        value_of("nn.abs", np.zeros(2, np.float32))
