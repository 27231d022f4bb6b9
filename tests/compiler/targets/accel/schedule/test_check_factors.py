"""A second factor of more than 25 bits and a shift outside of 1 to 63 are refused: when the function is built, or by
its data when it runs."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import weft
from weft.compiler import tensor as t
from weft.compiler.operators.integer import requantised
from weft.compiler.targets.accel.operators.intrinsics import intrinsics
from weft.compiler.targets.accel.schedule.check_factors import check_factors
from weft.compiler.targets.errors import FactorError
from weft.hw.config import TINY
from weft.runtime.errors import InputError

Array = np.ndarray[Any, Any]

LEAST, MOST = -(2**24), 2**24 - 1
ROWS = 4
SHAPE = (ROWS, 1, 1, 4)


def x() -> tuple[t.Tensor, t.Tensor]:
    """A parameter of int8, and it widened."""
    tensor = t.placeholder(SHAPE, "int8", "x")
    return tensor, t.compute(SHAPE, lambda *i: tensor[i].astype("int32"), "wide")


def scheduled(value: t.Tensor, params: list[t.Tensor], **names: str) -> t.Schedule:
    """Bits 24 to 31 of ``value``, which the factor's highest bits reach, stored; its stages tensorized to the
    intrinsics of these names."""
    out = t.compute(value.shape, lambda *i: (value[i] >> 24).astype("int8"), "y")
    return tensorized(t.create_schedule(out, params, "f"), y="shift_right_to_out", **names)


def tensorized(schedule: t.Schedule, **names: str) -> t.Schedule:
    """All intermediates in ``acc``, all int32 parameters copied there, every stage of one entry an instruction."""
    for stage in schedule.blocks()[:-1]:
        schedule.set_scope(stage, "acc")
    names[schedule.cache_write("y", "out")] = "store_out"
    for param in schedule.func.params:
        if param.dtype == "int32":
            readers = [
                block for block in schedule.blocks() if re.search(rf"\b{param.name}\[", stage_text(schedule, block))
            ]
            for reader in readers:
                names[schedule.cache_read(reader, param.name, "acc")] = "load_acc"
    for stage, name in names.items():
        intrinsic = intrinsics(TINY)[name]
        loops = schedule.get_loops(stage)
        schedule.tensorize(loops[-len(intrinsic.loops)], intrinsic)
    return schedule


def stage_text(schedule: t.Schedule, block: str) -> str:
    """The line that a stage stores by."""
    return str(schedule).split(f'with block("{block}"', 1)[1].split("\n")[1].split(" = ", 1)[1]


def data(schedule: t.Schedule, **given: Array) -> dict[str, Array]:
    """Arrays for all parameters that are read, 32-bit ones in the range of factors."""
    random = np.random.default_rng(1)
    arrays: dict[str, Array] = {}
    for param in schedule.func.params:
        low, high = (LEAST, MOST) if param.dtype == "int32" else (-128, 127)
        if param.name != "y":
            arrays[param.name] = random.integers(low, high, param.shape, np.dtype(param.dtype), endpoint=True)
    return arrays | given


def assert_equal(schedule: t.Schedule, arrays: dict[str, Array]) -> None:
    expected = t.interpret(schedule.func, arrays)["y"]
    np.testing.assert_array_equal(weft.build(schedule, "fsim", config=TINY).run(arrays)["y"], expected)
    assert len(np.unique(expected)) > 1


def product() -> t.Schedule:
    tensor, wide = x()
    p = t.placeholder(SHAPE, "int32", "p")
    value = t.compute(SHAPE, lambda *i: wide[i] * p[i], "product")
    return scheduled(value, [tensor, p], wide="load_acc8", product="mul")


def sum_of_products() -> t.Schedule:
    tensor, wide = x()
    p, k = t.placeholder(SHAPE, "int32", "p"), t.reduce_axis(ROWS, "k")
    value = t.compute((1, 1, 1, 4), lambda i, *e: t.sum(wide[(k, *e)] * p[(k, *e)], k), "product")
    out = t.compute(value.shape, lambda *i: (value[i] >> 24).astype("int8"), "y")
    schedule = t.create_schedule(out, [tensor, p], "f")
    *_, r, n, s, reduction = schedule.get_loops("product")
    schedule.reorder(reduction, r, n, s)
    return tensorized(schedule, y="shift_right_to_out", wide="load_acc8", product="multiply_accumulate")


def rescaled() -> t.Schedule:
    tensor, wide = x()
    p = t.placeholder((3, 1, 1, 4), "int32", "p")

    def formula(*i: t.Expr) -> t.Expr:
        bias, multiplier, shift = (p[(entry, *i[1:])] for entry in range(3))
        return requantised(wide[i], bias, multiplier, shift, 3, -100, 90).astype("int8")

    schedule = t.create_schedule(t.compute(SHAPE, formula, "y"), [tensor, p], "f")
    return tensorized(schedule, wide="load_acc8", y="requantise_to_out")


def parameters(multiplier: int) -> Array:
    """Of a requantise: a large bias, this multiplier in the last lane, and a shift."""
    p = np.zeros((3, 1, 1, 4), np.int32)
    p[0], p[1], p[2] = 2**30, 5, 32
    p[0, ..., 3], p[1, ..., 3], p[2, ..., 3] = 0, multiplier, 25
    return p


def changed(array: Array, at: tuple[int, ...], value: int) -> Array:
    array = array.copy()
    array[at] = value
    return array


@pytest.mark.parametrize("make", [product, sum_of_products])
@pytest.mark.parametrize("value", [MOST + 1, LEAST - 1, 2**31 - 1, -(2**31)])
def test_data_of_more_than_25_bits_are_refused_before_anything_runs(make: Callable[[], t.Schedule], value: int) -> None:
    schedule = make()
    arrays = data(schedule)
    built = weft.build(schedule, "fsim", config=TINY)
    message = (
        f"buffer 'p' of 'f' holds {value} at [2, 0, 0, 1], where it is a second factor, but the core multiplies by 25 "
        f"bits, {LEAST}..{MOST}; hint: "
    )
    with pytest.raises(InputError, match=re.escape(message)):
        built.run(arrays | {"p": changed(arrays["p"], (2, 0, 0, 1), value)})
    np.testing.assert_array_equal(built.run(arrays)["y"], t.interpret(schedule.func, arrays)["y"])


@pytest.mark.parametrize("make", [product, sum_of_products])
@pytest.mark.parametrize("value", [LEAST, MOST])
def test_data_of_25_bits_give_equal_integers(make: Callable[[], t.Schedule], value: int) -> None:
    schedule = make()
    arrays = data(schedule)
    assert_equal(schedule, arrays | {"p": changed(arrays["p"], (2, 0, 0, 1), value)})


def test_of_a_requantise_the_multiplier_and_the_shift_are_looked_at() -> None:
    schedule = rescaled()
    assert_equal(schedule, data(schedule, p=parameters(-(2**24))))
    with pytest.raises(InputError, match=re.escape("'p' of 'f' holds 16777216 at [1, 0, 0, 3], where it is a second")):
        weft.build(schedule, "fsim", config=TINY).run(data(schedule, p=parameters(2**24)))


@pytest.mark.parametrize("shift", [1, 62, 63])
def test_a_shift_that_the_core_takes_gives_equal_integers(shift: int) -> None:
    schedule = rescaled()
    assert_equal(schedule, data(schedule, p=changed(parameters(3), (2, 0, 0, 1), shift)))


@pytest.mark.parametrize("shift", [0, -1, 64, 2**31 - 1])
def test_a_shift_that_the_core_would_cut_is_refused_before_anything_runs(shift: int) -> None:
    schedule = rescaled()
    message = (
        f"buffer 'p' of 'f' holds {shift} at [2, 0, 0, 1], where it is a shift, but the core shifts by six bits and at "
        "least once, 1..63; hint: "
    )
    with pytest.raises(InputError, match=re.escape(message)):
        weft.build(schedule, "fsim", config=TINY).run(data(schedule, p=changed(parameters(3), (2, 0, 0, 1), shift)))


def test_elements_that_are_no_factor_may_be_anything() -> None:
    tensor, wide = x()
    p = t.placeholder((ROWS + 2, 1, 1, 4), "int32", "p")
    value = t.compute(SHAPE, lambda y, *e: wide[(y, *e)] * p[(y + 2, *e)], "product")
    schedule = scheduled(value, [tensor, p], wide="load_acc8", product="mul")
    arrays = data(schedule)
    assert_equal(schedule, arrays | {"p": changed(arrays["p"], (1, 0, 0, 3), 2**30)})
    with pytest.raises(InputError, match=re.escape("holds 1073741824 at [2, 0, 0, 0]")):
        weft.build(schedule, "fsim", config=TINY).run(arrays | {"p": changed(arrays["p"], (2, 0, 0, 0), 2**30)})


def of_sum(*, swap: bool = False, clamps: tuple[int, int] | None = None) -> t.Schedule:
    """``wide * (p + q)``, the sum clamped or not."""
    tensor, wide = x()
    p, q = t.placeholder(SHAPE, "int32", "p"), t.placeholder(SHAPE, "int32", "q")
    factor = t.compute(SHAPE, lambda *i: p[i] + q[i], "sum")
    names = {"sum": "add", "wide": "load_acc8", "product": "mul"}
    if clamps is not None:
        whole, (low, high) = factor, clamps
        above = t.compute(SHAPE, lambda *i: t.maximum(whole[i], low), "above")
        factor = t.compute(SHAPE, lambda *i: t.minimum(above[i], high), "below")
        names |= {"above": "max_immediate", "below": "min_immediate"}
    value = t.compute(SHAPE, lambda *i: factor[i] * wide[i] if swap else wide[i] * factor[i], "product")
    return scheduled(value, [tensor, p, q], **names)


def test_a_factor_that_is_computed_is_refused_when_it_is_built() -> None:
    message = (
        f"function 'f': stage 'product': the second factor of 'mul', 'sum', may be {-(2**31)}..{2**31 - 1}, but the "
        f"core multiplies by 25 bits, {LEAST}..{MOST}; hint: clamp it to {LEAST}..{MOST} in stages of their own, "
        "a maximum and a minimum, or swap the factors: 'wide' fits; in "
    )
    with pytest.raises(FactorError, match=re.escape(message) + r".*test_check_factors\.py") as caught:
        weft.build(of_sum(), "fsim", config=TINY)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize("options", [{"swap": True}, {"clamps": (LEAST, MOST)}, {"clamps": (-3, 5)}])
def test_one_that_is_clamped_or_the_first_gives_equal_integers(options: dict[str, Any]) -> None:
    schedule = of_sum(**options)
    random = np.random.default_rng(2)
    wide = {name: random.integers(-(2**31), 2**31, SHAPE).astype(np.int32) for name in "pq"}
    assert_equal(schedule, data(schedule, **wide))


@pytest.mark.parametrize("more", [0, 1])
def test_one_number_beyond_the_range_is_refused(more: int) -> None:
    tensor, wide = x()
    p = t.placeholder(SHAPE, "int32", "p")
    below = t.compute(SHAPE, lambda *i: t.minimum(p[i], MOST - 1), "below")
    above = t.compute(SHAPE, lambda *i: t.maximum(below[i], LEAST), "above")
    factor = t.compute(SHAPE, lambda *i: above[i] + (1 + more), "more")
    value = t.compute(SHAPE, lambda *i: wide[i] * factor[i], "product")
    schedule = scheduled(value, [tensor, p], wide="load_acc8", below="min_immediate", above="max_immediate",
                         more="add_immediate", product="mul")  # fmt: skip
    if not more:
        assert check_factors(schedule.func) == []
        return
    with pytest.raises(FactorError, match=rf"'more', may be {LEAST + 2}\.\.{MOST + 1}, but"):
        check_factors(schedule.func)


def of_matrix_product(inner: int) -> t.Schedule:
    """``(x @ w) * (x @ w)`` of ``inner`` blocks of 4 inputs, not stored anywhere near a core's size."""
    tensor, w = t.placeholder((ROWS, inner, 1, 1, 4), "int8", "x"), t.placeholder((inner, 4, 4), "int8", "w")
    kb, kr, ks = t.reduce_axis(inner, "kb"), t.reduce_axis(1, "kr"), t.reduce_axis(4, "ks")
    acc = t.compute(SHAPE, lambda y, r, n, o: t.sum(
        tensor[y, kb, kr, n, ks].astype("int32") * w[kb, r * 4 + o, kr * 4 + ks].astype("int32"), [kb, kr, ks]), "acc",
    )  # fmt: skip
    value = t.compute(SHAPE, lambda *i: acc[i] * acc[i], "product")
    out = t.compute(SHAPE, lambda *i: (value[i] >> 7).astype("int8"), "y")
    schedule = t.create_schedule(out, [tensor, w], "f")
    names = {schedule.cache_read("acc", "x", "inp"): "load_inp", schedule.cache_read("acc", "w", "wgt"): "loadw_wgt"}
    y, r, n, o, outer, *rest = schedule.get_loops("acc")
    schedule.reorder(outer, y, r, n, o, *rest)
    schedule.set_scope("acc", "acc")
    schedule.set_scope("product", "acc")
    names |= {schedule.cache_write("y", "out"): "store_out", "acc": "gemm", "product": "mul", "y": "shift_right_to_out"}
    for stage, name in names.items():
        intrinsic = intrinsics(TINY)[name]
        schedule.tensorize(schedule.get_loops(stage)[-len(intrinsic.loops)], intrinsic)
    return schedule


def test_a_sum_has_as_many_bits_as_its_terms_can_fill() -> None:
    schedule = of_matrix_product(3)
    assert_equal(schedule, data(schedule))
    assert check_factors(of_matrix_product(255).func) == []
    with pytest.raises(FactorError, match=r"'acc', may be -16646144\.\.16777216, but"):
        check_factors(of_matrix_product(256).func)


def test_a_largest_element_is_one_of_the_elements() -> None:
    tensor, wide = x()
    k = t.reduce_axis(ROWS, "k")
    peak = t.compute((1, 1, 1, 4), lambda i, *e: t.max(wide[(k, *e)], k), "peak")
    value = t.compute((1, 1, 1, 4), lambda *i: peak[i] * peak[i], "product")
    out = t.compute(value.shape, lambda *i: (value[i] >> 7).astype("int8"), "y")
    schedule = t.create_schedule(out, [tensor], "f")
    *_, r, n, s, reduction = schedule.get_loops("peak")
    schedule.reorder(reduction, r, n, s)
    schedule = tensorized(schedule, y="shift_right_to_out", wide="load_acc8", peak="max_accumulate", product="mul")
    assert_equal(schedule, data(schedule))
