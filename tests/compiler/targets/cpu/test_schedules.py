"""Default schedules of plain kernels: reductions along rows use lanes, and what a row needs is computed with it."""

from __future__ import annotations

import numpy as np
import pytest
import weft
from hypothesis import given, settings
from hypothesis import strategies as st
from weft.compiler import tensor as te
from weft.compiler.graph import Constant, Expr, TensorType, Var, call, evaluate
from weft.compiler.targets.cpu.schedules import schedule_blocked, schedule_plain
from weft.compiler.targets.loops.in_place import overwritable
from weft.compiler.tensor import ir as tir

from .jit import random_arrays, run_compiled
from .test_link import check, module_of

REDUCTIONS = ("nn.reduce_sum", "nn.reduce_max", "nn.reduce_min", "nn.reduce_mean", "nn.softmax", "nn.arg_max")


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_reductions_along_any_axis(data: st.DataObject) -> None:
    draw = data.draw
    shape = tuple(draw(st.sampled_from([1, 2, 7, 16, 33, 100])) for _ in range(draw(st.integers(1, 3))))
    axis = draw(st.integers(0, len(shape) - 1))
    op = draw(st.sampled_from(REDUCTIONS))
    x = Var("x", TensorType(shape, draw(st.sampled_from(["float32", "int32"])) if op.endswith("sum") else "float32"))
    attrs = {"axis": axis} if op == "nn.softmax" else {"keepdims": draw(st.booleans())}
    attrs |= {"axis": axis} if op == "nn.arg_max" else {"axes": (axis,)} if op != "nn.softmax" else {}
    value: Expr = call(op, x, **attrs)
    if value.dtype == "float32":
        value = call("nn.add", value, value)
    check(module_of(value, params=(x,)), draw(st.sampled_from([1, 2])))


@pytest.mark.parametrize("op", ["nn.reduce_max", "nn.reduce_min", "nn.reduce_sum", "nn.softmax"])
def test_infinite_values_and_nan_in_a_row(op: str) -> None:
    x = Var("x", TensorType((6, 37), "float32"))
    value = call(op, x, axis=1) if op == "nn.softmax" else call(op, x, axes=(1,), keepdims=False)
    module = module_of(value, params=(x,))
    given = np.random.default_rng(0).standard_normal((6, 37)).astype(np.float32)
    given[0, 5], given[1, 36], given[2, 0], given[3] = np.nan, np.inf, -np.inf, -np.inf
    given[4, 3], given[4, 4] = np.inf, -np.inf
    with np.errstate(invalid="ignore"):
        expected = evaluate(module, {"x": given})["out0"]
    found = weft.load(weft.compile(module, target="cpu")).run({"x": given})["out0"]
    np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.parametrize("shape", [(8,), (1003,), (9, 40), (3, 4, 5), (6, 3, 3)])
@pytest.mark.parametrize("op", ["nn.reduce_max", "nn.reduce_min", "nn.reduce_sum", "nn.reduce_mean"])
def test_reductions_of_all_elements(op: str, shape: tuple[int, ...]) -> None:
    x = Var("x", TensorType(shape, "float32"))
    module = module_of(call(op, x, axes=tuple(range(len(shape)))), params=(x,))
    loaded = weft.load(weft.compile(module, target="cpu", threads=1))
    given = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    for special in (None, np.nan, np.inf, -np.inf):
        values = given.copy()
        values.flat[values.size // 2] = values.flat[0] if special is None else special
        np.testing.assert_allclose(
            loaded.run({"x": values})["out0"], evaluate(module, {"x": values})["out0"], rtol=1e-5, atol=1e-5
        )


@pytest.mark.parametrize("axes", [(0, 2, 3), (0, 1, 2, 3)])
def test_long_sums_are_sums_of_sums(axes: tuple[int, ...]) -> None:
    """Statistics of a batch of images whose mean is far from 0: one running sum of floats loses what is added last."""
    x = Var("x", TensorType((32, 4, 56, 56), "float32"))
    module = module_of(call("nn.reduce_mean", x, axes=axes, keepdims=False), params=(x,))
    given = np.random.default_rng(0).standard_normal((32, 4, 56, 56)).astype(np.float32) + np.float32(3)
    found = weft.load(weft.compile(module, target="cpu", threads=1)).run({"x": given})["out0"]
    np.testing.assert_allclose(found, given.mean(axes, dtype=np.float64), rtol=3e-7)


def test_a_pooling_of_many_pixels_is_a_sum_of_sums() -> None:
    x, i, j = te.placeholder((1, 1, 64, 64, 8), "float32", "x"), te.reduce_axis(64, "i"), te.reduce_axis(64, "j")
    total = te.compute((1, 1, 1, 1, 8), lambda n, c, y, z, lane: te.sum(x[n, c, i, j, lane], [i, j]), "total")
    schedule = te.create_schedule(
        te.compute((1, 1, 1, 1, 8), lambda n, c, y, z, lane: total[n, c, y, z, lane] / 4096.0, "out")
    )
    schedule_blocked(schedule, ["total"])
    arrays = random_arrays(schedule.func)
    arrays["x"] = arrays["x"] + np.float32(3)
    expected = arrays["x"].mean((2, 3), dtype=np.float64).reshape(1, 1, 1, 1, 8)
    np.testing.assert_allclose(run_compiled(schedule.func, arrays)["out"], expected, rtol=3e-7)


def test_what_lies_in_a_row_is_combined_by_lanes() -> None:
    x, i, j = te.placeholder((5, 70), "float32", "x"), te.reduce_axis(5, "i"), te.reduce_axis(70, "j")
    schedule = te.create_schedule(te.compute((), lambda: te.sum(x[i, j], [i, j]), "out"))
    schedule_plain(schedule)
    assert "range(70, order='any')" in str(schedule)
    arrays = random_arrays(schedule.func)
    expected = arrays["x"].sum()
    np.testing.assert_allclose(run_compiled(schedule.func, arrays)["out"], expected, rtol=1e-5)


def normalised(columns: int) -> te.Schedule:
    """Each row less its mean."""
    x, k = te.placeholder((5, columns), "float32", "x"), te.reduce_axis(columns, "k")
    total = te.compute((5,), lambda i: te.sum(x[i, k], [k]), "total")
    return te.create_schedule(te.compute((5, columns), lambda i, j: x[i, j] - total[i] / float(columns), "out"))


def test_a_row_is_computed_as_a_whole_and_may_replace_its_operand() -> None:
    schedule = normalised(70)
    assert overwritable(schedule.func, 1, {}, 0) == (True,)
    schedule_plain(schedule)
    assert [loop.name for loop in schedule.get_loops("total")][:1] == ["out_i"] == [
        loop.name for loop in schedule.get_loops("out")
    ][:1]  # fmt: skip
    assert "range(70, order='any')" in str(schedule)
    assert overwritable(schedule.func, 1, {}, 0) == (True,)
    arrays = random_arrays(schedule.func)
    found = run_compiled(schedule.func, arrays, threads=2)["out"]
    np.testing.assert_allclose(found, te.interpret(schedule.func, arrays)["out"], atol=1e-6)


def test_what_several_rows_need_is_computed_before_them() -> None:
    """A softmax over channels: a maximum belongs to a pixel, and rows are of pixels."""
    x, k = te.placeholder((8, 6), "float32", "x"), te.reduce_axis(8, "k")
    largest = te.compute((6,), lambda j: te.max(x[k, j], [k]), "largest")
    schedule = te.create_schedule(te.compute((8, 6), lambda i, j: x[i, j] - largest[j], "out"))
    schedule_plain(schedule)
    assert not {loop.name for loop in schedule.get_loops("largest")} & {
        loop.name for loop in schedule.get_loops("out")
    }  # fmt: skip


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_transpositions_of_any_shape(data: st.DataObject) -> None:
    draw = data.draw
    shape = tuple(draw(st.sampled_from([1, 2, 3, 4, 5, 8, 9, 16, 20])) for _ in range(draw(st.integers(2, 4))))
    perm = tuple(draw(st.permutations(range(len(shape)))))
    x = Var("x", TensorType(shape, draw(st.sampled_from(["float32", "int32"]))))
    check(module_of(call("transpose", x, perm=perm), params=(x,)), draw(st.sampled_from([1, 2])))


@pytest.mark.parametrize(("rows", "columns", "size"), [(20, 13, 8), (8, 8, 8), (7, 30, 4), (3, 30, 0)])
def test_squares_are_transposed_in_registers(rows: int, columns: int, size: int) -> None:
    x = te.placeholder((2, rows, columns), "float32", "x")
    schedule = te.create_schedule(te.compute((2, columns, rows), lambda n, i, j: x[n, j, i], "out"))
    schedule_plain(schedule)
    assert (f"transposed_tile_{size}" in str(schedule)) == bool(size)
    arrays = random_arrays(schedule.func)
    for found in (run_compiled(schedule.func, arrays)["out"], te.interpret(schedule.func, arrays)["out"]):
        np.testing.assert_array_equal(found, arrays["x"].transpose(0, 2, 1))
    assert overwritable(schedule.func, 1, {}, 0) == (False,)


@pytest.mark.parametrize("columns", [8, 21])
def test_pairs_of_rows_are_interleaved(columns: int) -> None:
    x = te.placeholder((3, 2, columns), "float32", "x")
    schedule = te.create_schedule(te.compute((3, columns, 2), lambda n, i, j: x[n, j, i], "out"))
    schedule_plain(schedule)
    assert f"interleaved_8_{columns}" in str(schedule)
    arrays = random_arrays(schedule.func)
    for found in (run_compiled(schedule.func, arrays)["out"], te.interpret(schedule.func, arrays)["out"]):
        np.testing.assert_array_equal(found, arrays["x"].transpose(0, 2, 1))


@settings(max_examples=15, deadline=None)
@given(st.data())
def test_conversions_into_blocks_and_back(data: st.DataObject) -> None:
    """A convolution with padding between two conversions, over images and volumes."""
    draw = data.draw
    size = tuple(draw(st.sampled_from([1, 3, 4, 8, 13])) for _ in range(draw(st.integers(2, 3))))
    channels, made = (draw(st.sampled_from([3, 4, 8, 16, 20])) for _ in range(2))
    x = Var("x", TensorType((2, channels, *size), "float32"))
    weights = Constant(np.random.default_rng(0).standard_normal((made, channels, *(1,) * len(size))).astype(np.float32))
    pads = (*(0,) * (len(size) - 1), 1) * 2
    check(module_of(call(f"nn.conv{len(size)}d", x, weights, pads=pads), params=(x,)), terms=1.0)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_moves_of_tensors_with_axes_of_one_element(data: st.DataObject) -> None:
    draw = data.draw
    shape = tuple(draw(st.sampled_from([1, 1, 2, 5, 33])) for _ in range(4))
    x = Var("x", TensorType(shape, draw(st.sampled_from(["int8", "float32"]))))
    op = draw(st.sampled_from(["pad", "slice", "concat", "expand", "transpose", "nn.reduce_sum"]))
    match op:
        case "pad":
            value = call(op, x, pads=tuple(draw(st.integers(0, 3)) for _ in range(8)), value=draw(st.integers(-3, 3)))
        case "slice":
            starts = tuple(draw(st.integers(0, size - 1)) for size in shape)
            sizes = tuple(size - start for size, start in zip(shape, starts, strict=True))
            value = call(op, x, starts=starts, sizes=sizes, steps=(1, 1, 1, 1))
        case "concat":
            value = call(op, x, x, axis=draw(st.integers(0, 3)))
        case "expand":
            value = call(op, x, shape=tuple(draw(st.integers(1, 20)) if size == 1 else size for size in shape))
        case "transpose":
            value = call(op, x, perm=tuple(draw(st.permutations(range(4)))))
        case _:
            wide = call("nn.cast", x, to="int32") if x.dtype == "int8" else x
            value = call(op, wide, axes=(draw(st.integers(0, 3)),), keepdims=True)
    check(module_of(value, params=(x,)), 1)


def test_lanes_run_over_the_last_axis_of_several_elements() -> None:
    x = te.placeholder((3, 5, 40, 1), "int8", "x")
    filled = te.compute((3, 8, 40, 1), lambda n, c, h, w: te.select(c < 5, x[n, c, h, w], tir.Const(0, "int8")), "out")
    schedule = te.create_schedule(filled)
    schedule_plain(schedule)
    assert "vectorize(40)" in str(schedule)
    arrays = random_arrays(schedule.func)
    expected = np.concatenate([arrays["x"], np.zeros((3, 3, 40, 1), np.int8)], axis=1)
    np.testing.assert_array_equal(run_compiled(schedule.func, arrays)["out"], expected)
