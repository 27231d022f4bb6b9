"""The proof that a function stays inside its buffers: it accepts what never leaves them and names what may."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from weft.compiler import tensor as t
from weft.compiler.tensor.bounds import is_within
from weft.compiler.tensor.intervals import Facts

from .conv_example import Conv, accelerator_schedule, conv_schedule


def shifted(size: int, shift: int, guard: Callable[[Any], Any] | None = None) -> t.PrimFunc:
    """``y[i] = x[i + shift]`` for 6 elements; where ``guard`` does not hold, 0."""
    x = t.placeholder((size,), "int32", "x")

    def value(i: Any) -> Any:
        return x[i + shift] if guard is None else t.select(guard(i), x[i + shift], 0)

    return t.create_schedule(t.compute((6,), value, "y"), name="shifted").func


@given(st.integers(1, 9), st.integers(-3, 3), st.integers(-4, 9), st.integers(-4, 9), st.booleans())
def test_what_is_accepted_is_what_the_interpreter_runs(
    size: int, shift: int, low: int, high: int, guarded: bool
) -> None:
    """For one variable and constant limits the proof is exact, so that both directions hold."""
    func = shifted(size, shift, (lambda i: (i >= low) & (i < high)) if guarded else None)
    try:
        t.interpret(func, {"x": np.zeros(size, np.int32)})
    except t.InterpreterError:
        with pytest.raises(t.IRError, match=r"index '.*' of 'x' may be"):
            t.check_bounds(func)
    else:
        t.check_bounds(func)


@given(st.integers(1, 70), st.sampled_from([8, 16]), st.sampled_from([1, 2, 4]), st.integers(-3, 3))
def test_a_last_tile_that_is_shorter_is_looked_at_by_itself(size: int, tile: int, step: int, spare: int) -> None:
    """Tiles go on to a multiple of ``step``, and the last one ends with the array."""
    j, r = t.Var("j"), t.Var("r")
    left = t.minimum(t.Const(tile), size - j * tile)
    loops = ((j, t.Const(-(-size // tile))), (r, t.minimum((left + (step - 1)) // step * step, size - j * tile + 1)))
    facts = Facts({})
    for var, extent in loops:
        facts = facts.inside_loop(var, extent)
    ends = [min(-(-min(tile, size - at) // step) * step, size - at + 1) + at for at in range(0, size, tile)]
    assert is_within(j * tile + r, max(ends) - 1 + spare, facts, loops) == (spare >= 0)


def test_a_refusal_names_block_index_and_axis() -> None:
    message = (
        r"block 'y': index 'i \+ 3' of 'x' may be 3\.\.8, but axis 0 has 8 elements; "
        r"hint: guard the access: select\(condition, access, other value\)"
    )
    with pytest.raises(t.IRError, match=message):
        t.check_bounds(shifted(8, 3))


@pytest.mark.parametrize(("guarded", "accepted"), [(True, True), (False, False)])
def test_indices_that_are_data_need_a_guard(guarded: bool, accepted: bool) -> None:
    x, at = t.placeholder((5,), "int32", "x"), t.placeholder((6,), "int64", "at")

    def value(i: Any) -> Any:
        return t.select((at[i] >= 0) & (at[i] < 5), x[at[i]], -1) if guarded else x[at[i]]

    func = t.create_schedule(t.compute((6,), value, "y"), name="gather").func
    if accepted:
        t.check_bounds(func)
    else:
        with pytest.raises(t.IRError, match=r"index 'at\[i\]' of 'x' may be any\.\.any, but axis 0 has 5 elements"):
            t.check_bounds(func)


@pytest.mark.parametrize(("dtype", "bits", "accepted"), [("uint8", 0, True), ("int8", 0, False), ("int32", 61, False)])
def test_a_conversion_to_fewer_bits_says_what_an_index_is_at_most(dtype: t.DType, bits: int, accepted: bool) -> None:
    """Also of a product that may wrap; of such nothing else is known, so what is left of its high bits may be any."""
    x, at = t.placeholder((256,), "int32", "x"), t.placeholder((6,), "int64", "at")

    def value(i: Any) -> Any:
        return x[(at[i] * at[i] * at[i] >> bits).astype(dtype).astype("int64")]

    func = t.create_schedule(t.compute((6,), value, "y"), name="gather").func
    if accepted:
        t.check_bounds(func)
    else:
        with pytest.raises(t.IRError, match="axis 0 has 256 elements"):
            t.check_bounds(func)


def test_a_guard_holds_for_each_of_its_sides() -> None:
    """``j < i`` says something of ``j`` alone, since ``i`` has a largest value."""
    x = t.placeholder((4,), "int32", "x")
    func = t.create_schedule(t.compute((5, 9), lambda i, j: t.select(j < i, x[j], 0), "y"), name="triangle").func
    t.check_bounds(func)
    short = t.create_schedule(t.compute((6, 9), lambda i, j: t.select(j < i, x[j], 0), "y"), name="triangle").func
    with pytest.raises(t.BoundsError, match=r"index 'j' of 'x' may be 0\.\.4, but axis 0 has 4 elements"):
        t.check_bounds(short)


@given(sizes=st.tuples(*[st.integers(1, 3)] * 3), steps=st.tuples(*[st.integers(-3, 3)] * 2), start=st.integers(-7, 7))
@example(sizes=(1, 1, 1), steps=(2, 2), start=-1)
def test_a_guard_around_what_it_compares_is_enough(
    sizes: tuple[int, int, int], steps: tuple[int, int], start: int
) -> None:
    """Whether it always holds, at times, or never."""
    x = t.placeholder(sizes[2:], "int32", "x")

    def value(i: Any, j: Any) -> Any:
        place = i * steps[0] + j * steps[1] + start
        return t.select((place >= 0) & (place < sizes[2]), x[place], 0)

    t.check_bounds(t.create_schedule(t.compute(sizes[:2], value, "y"), name="guarded").func)


@pytest.mark.parametrize(("overwritten", "accepted"), [("y", True), ("at", False)])
def test_a_condition_on_data_holds_until_they_are_overwritten(overwritten: str, accepted: bool) -> None:
    x, y, at = (t.Buffer(name, (5,), "int64") for name in ("x", "y", "at"))
    first = {"y": y, "at": at}[overwritten].store(0, t.Const(7))
    guarded = t.If((at[0] >= 0) & (at[0] < 5), t.Seq((first, y.store(1, t.Load(x, (at[0],))))))
    func = t.PrimFunc("late", (x, y, at), guarded)
    if accepted:
        t.check_bounds(func)
    else:
        with pytest.raises(t.BoundsError, match=r"index 'at\[0\]' of 'x' may be any\.\.any"):
            t.check_bounds(func)


@pytest.mark.parametrize("conv", [Conv(), Conv(stride=2), Conv(kernel=1, padding=0), Conv(height=7, padding=2)])
def test_a_padded_convolution_is_accepted(conv: Conv) -> None:
    t.check_bounds(conv_schedule(conv).func)
    assert accelerator_schedule(conv).original == conv_schedule(conv).func


def test_loops_that_a_schedule_cut_are_accepted() -> None:
    x = t.placeholder((13, 11), "int32", "x")
    k = t.reduce_axis(11, "k")
    schedule = t.create_schedule(t.compute((13,), lambda i: t.sum(x[i, k], k), "y"), name="sums")
    outer, inner = schedule.split("i", 4)
    k_outer, _ = schedule.split("k", 3)
    schedule.reorder(outer, k_outer, inner)
    t.check_bounds(schedule.func)


def test_a_call_of_an_intrinsic_is_followed_to_its_elements() -> None:
    copy = t.tensor_intrinsic(
        "copy", operands=[t.tile("dst", (4,), "int32", "global", "out"), t.tile("src", (4,), "int32", "global", "in")],
        loops={"i": 4}, meaning=lambda dst, src, i: dst.store((i,), src[i]),
    )  # fmt: skip
    x = t.placeholder((8,), "int32", "x")
    schedule = t.create_schedule(t.compute((8,), lambda i: x[i], "y"), name="copied")
    _, inner = schedule.split("i", 4)
    schedule.tensorize(inner, copy)
    t.check_bounds(schedule.func)
