"""Machine code computes what the interpreter computes, however the loops are scheduled."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from weft.compiler import tensor as t
from weft.compiler.targets.errors import CompileError
from weft.compiler.targets.llvm.expressions import vectorisable
from weft.compiler.tensor.ir import Buffer, Load
from weft.compiler.tensor.visitor import statements

from tests.compiler.tensor.programs import PROGRAMS
from tests.compiler.tensor.test_random_schedules import random_step

from ..jit import HOST, random_arrays, run_compiled

INTEGERS: list[t.DType] = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]
SMALL = replace(HOST, vector_bytes=16, registers=16, dot_product=False)


def check(schedule: t.Schedule, threads: int = 1, seed: int = 0) -> None:
    arrays = random_arrays(schedule.func, seed)
    expected = t.interpret(schedule.func, arrays)
    found = run_compiled(schedule.func, arrays, threads=threads)
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array, err_msg=f"{name}\n{schedule}")


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_scheduled_at_random_it_gives_the_interpreters_integers(data: st.DataObject) -> None:
    schedule = PROGRAMS[data.draw(st.sampled_from(sorted(PROGRAMS)))]()
    for _ in range(data.draw(st.integers(0, 6))):
        try:
            random_step(schedule, data)
        except t.ScheduleError:
            continue
    for loop in [node for node in statements(schedule.func.body) if isinstance(node, t.For)]:
        kind = data.draw(st.sampled_from(["vectorize", "unroll", "parallel", "serial"]))
        try:
            schedule._mark(kind, loop.var)
        except t.ScheduleError:
            continue
    check(schedule, data.draw(st.sampled_from([1, 2])))


def _unary(dtype: t.DType, formula: object, size: int = 37) -> t.Schedule:
    x, y = t.placeholder((size,), dtype, "x"), t.placeholder((size,), dtype, "y")
    out = t.compute((size,), lambda i: formula(x[i], y[i]), "out")  # type: ignore[operator]
    schedule = t.create_schedule(out, [x, y])
    schedule.vectorize("i")
    return schedule


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("op", ["add", "sub", "mul", "min", "max", "and", "or", "lt", "le", "eq", "ne"])
def test_integer_operators_wrap_as_in_the_interpreter(op: str, dtype: t.DType) -> None:
    check(_unary(dtype, lambda a, b: t.BinOp(op, a, b)))


def test_a_choice_by_floats_is_made_in_lanes_and_one_by_an_index_guards_what_it_loads() -> None:
    zero = t.Const(0.0, "float32")
    chosen = _unary("float32", lambda a, b: t.select((zero < a) & (b < a), b, zero))
    check(chosen)
    i = t.Var("i")
    load = Load(Buffer("x", (5,), "float32"), (i,))
    assert vectorisable(t.select(zero < load, load, zero), i)
    assert not vectorisable(t.select(i < 5, load, zero), i)
    assert not vectorisable(t.select((i < 5) & (zero < load), load, zero), i)
    divided = t.BinOp("floordiv", i, t.Const(1) + i)
    assert not vectorisable(t.select(zero < load, divided, i), i)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_division_rounds_down_and_shifts_keep_the_sign(dtype: t.DType) -> None:
    one, seven = t.Const(1, dtype), t.Const(7, dtype)
    check(_unary(dtype, lambda a, b: (a // seven) + (a % seven) + (a >> 3) + (b << 2)))
    nonzero = _unary(dtype, lambda a, b: t.select(b.eq(0), a, a // t.select(b.eq(0), one, b)))
    check(nonzero)


def test_the_smallest_integer_divided_by_minus_one_wraps() -> None:
    schedule = _unary("int32", lambda a, b: a // b + a % b, size=4)
    low = np.full(4, -(2**31), np.int32)
    arrays = {"x": low, "y": np.full(4, -1, np.int32)}
    np.testing.assert_array_equal(run_compiled(schedule.func, arrays)["out"], low)


@pytest.mark.parametrize("source", [*INTEGERS, "float32", "bool"])
@pytest.mark.parametrize("target", [*INTEGERS, "float32", "bool"])
def test_conversions_wrap_and_saturate_as_the_interpreters(source: t.DType, target: t.DType) -> None:
    scale = 100 if source == "float32" else 1
    check(_unary(source, lambda a, b: (a * scale if scale > 1 else a).astype(target)))


def test_floats_that_fit_no_integer_become_the_nearest_and_nan_becomes_0() -> None:
    values = np.array([np.nan, np.inf, -np.inf, 3e9, -3e9, 1.9, -1.9, 0.5], np.float32)
    schedule = _unary("float32", lambda a, b: a.astype("int32"), size=8)
    arrays = {"x": values, "y": values}
    expected = t.interpret(schedule.func, arrays)["out"]
    np.testing.assert_array_equal(run_compiled(schedule.func, arrays)["out"], expected)


@pytest.mark.parametrize("function", ["exp", "tanh", "log", "sqrt", "erf", "sin", "cos", "floor", "ceil", "round"])
def test_functions_are_as_exact_as_single_precision(function: str) -> None:
    special = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 88.0, 89.0, -87.0, -95.0, -103.5, -110.0, 0.5, 2.5]
    ramp = np.linspace(-20, 20, 4001)
    values = np.concatenate([special, ramp, np.geomspace(1e-30, 1e4, 500)]).astype(np.float32)
    schedule = _unary("float32", lambda a, b: t.ir.Call(function, (a,)), size=values.size)
    arrays = {"x": values, "y": values}
    expected = t.interpret(schedule.func, arrays)["out"]
    found = run_compiled(schedule.func, arrays)["out"]
    np.testing.assert_allclose(found, expected, rtol=3e-7, atol=1e-44)


def test_nan_wins_minimum_and_maximum_on_either_side() -> None:
    x = np.array([np.nan, 1, 2, np.nan], np.float32)
    y = np.array([1, np.nan, 3, np.nan], np.float32)
    for op in (t.minimum, t.maximum):
        found = run_compiled(_unary("float32", op, size=4).func, {"x": x, "y": y})["out"]
        np.testing.assert_array_equal(np.isnan(found), [True, True, False, True])
        found = run_compiled(_unary("float32", lambda a, b, op=op: op(a, 0.0), size=4).func, {"x": x, "y": y})["out"]
        np.testing.assert_array_equal(np.isnan(found), [True, False, False, True])


def test_lanes_walk_memory_forwards_backwards_and_in_steps() -> None:
    x = t.placeholder((100,), "int32", "x")
    out = t.compute((33,), lambda i: x[i * 3] + x[99 - i] + x[i // 2] + i.astype("int32"), "out")
    schedule = t.create_schedule(out)
    schedule.vectorize("i")
    check(schedule)


def test_a_buffer_inside_a_parallel_loop_is_private_to_its_thread() -> None:
    x = t.placeholder((8, 20000), "int32", "x")
    k = t.reduce_axis(20000, "k")
    doubled = t.compute((8, 20000), lambda i, j: x[i, j] * 2, "doubled")
    out = t.compute((8,), lambda i: t.sum(doubled[i, k], k), "out")
    schedule = t.create_schedule(out)
    (row, _) = schedule.get_loops("out")
    schedule.compute_at("doubled", row)
    schedule.parallel(row)
    check(schedule, threads=2)


def test_an_intrinsic_that_fills_its_result_is_refused_with_the_way_out() -> None:
    intrinsic = t.tensor_intrinsic(
        "dot",
        operands=[t.tile("acc", (4,), "int32", "global", "inout", align=1),
                  t.tile("a", (4,), "int32", "global", "in", align=1)],
        loops={"i": 4},
        meaning=lambda acc, a, i: acc.store((i,), acc[i] + a[i]),
    )  # fmt: skip
    x = t.placeholder((3, 4), "int32", "x")
    k = t.reduce_axis(3, "k")
    schedule = t.create_schedule(t.compute((4,), lambda i: t.sum(x[k, i], k), "out"))
    lane, row = schedule.get_loops("out")
    schedule.reorder(row, lane)
    schedule.tensorize(lane, intrinsic)
    with pytest.raises(CompileError, match=r"block 'out' fills its result inside of intrinsic 'dot'.*decompose_reduc"):
        run_compiled(schedule.func, random_arrays(schedule.func))


def test_an_intrinsic_without_machine_code_runs_as_its_meaning() -> None:
    intrinsic = t.tensor_intrinsic(
        "add", operands=[t.tile("acc", (4,), "int32", "global", "out", align=1),
                         t.tile("a", (4,), "int32", "global", "in", align=1)],
        loops={"i": 4}, meaning=lambda acc, a, i: acc.store((i,), a[i] + 1),
    )  # fmt: skip
    x = t.placeholder((3, 4), "int32", "x")
    schedule = t.create_schedule(t.compute((3, 4), lambda i, j: x[i, j] + 1, "out"))
    schedule.tensorize("j", intrinsic)
    check(schedule)


@pytest.mark.parametrize("lanes", [0, 1])
def test_narrow_vectors_give_the_same(lanes: int) -> None:
    schedule = PROGRAMS["padded_conv"]()
    for block in schedule.blocks():
        loops = schedule.get_loops(block)
        schedule.vectorize(loops[-1]) if lanes and block != "acc" else None
    arrays = random_arrays(schedule.func)
    expected = t.interpret(schedule.func, arrays)["out"]
    np.testing.assert_array_equal(run_compiled(schedule.func, arrays, SMALL)["out"], expected)


@pytest.mark.parametrize("kind", ["serial", "vectorize"])
def test_arithmetic_on_data_wraps(kind: str) -> None:
    """Sums of loop variables do not wrap, and machine code is made by that; sums of data may."""
    x, out = t.Buffer("x", (4,), "int64"), t.Buffer("out", (4,), "int64")
    i = t.Var("i")
    wrapped = t.select(x[i] + 1 < x[i], t.Const(1), t.Const(0))
    func = t.PrimFunc("wraps", (x, out), t.For(i, t.Const(4), kind, out.store(i, wrapped)))
    values = np.array([2**63 - 1, -(2**63), 0, 2**63 - 1])
    found = run_compiled(func, {"x": values})["out"]
    np.testing.assert_array_equal(found, t.interpret(func, {"x": values})["out"])
    np.testing.assert_array_equal(found, [1, 0, 0, 1])


@pytest.mark.parametrize("op", ["floordiv", "mod"])
def test_the_smallest_number_is_divided_by_minus_one(op: str) -> None:
    x, out = t.Buffer("x", (3,), "int32"), t.Buffer("out", (3,), "int32")
    i = t.Var("i")
    value = t.BinOp(op, x[i], t.Const(-1, "int32"))
    func = t.PrimFunc("negated", (x, out), t.For(i, t.Const(3), "vectorize", out.store(i, value)))
    values = np.array([-(2**31), 5, -7], np.int32)
    np.testing.assert_array_equal(run_compiled(func, {"x": values})["out"], t.interpret(func, {"x": values})["out"])


def test_what_iterations_write_is_read_again_by_the_next() -> None:
    """Iterations that are written out do not read twice what they do not write."""
    func = t.parse("""def counted(
    steps: int16[1] @ "global",
    a: int32[4] @ "global",
    out: int32[4] @ "global",
):
    for r in unroll(3):
        for i in vectorize(4):
            with block("a", "spatial"):
                a[i] = a[i] * int32(3) + steps[0].astype(int32)
        for j in vectorize(4):
            with block("out", "spatial"):
                out[j] = a[j] + r.astype(int32)
""")
    arrays = {"steps": np.array([5], np.int16), "a": np.arange(4, dtype=np.int32)}
    expected = t.interpret(func, {name: array.copy() for name, array in arrays.items()})
    for name, found in run_compiled(func, arrays, SMALL).items():
        np.testing.assert_array_equal(found, expected[name], name)
