"""The interpreter against one scalar at a time, against NumPy, and its refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from weft.compiler import tensor as t
from weft.compiler.tensor import interpreter

from . import brute_force
from .programs import PROGRAMS


def random_arrays(schedule: t.Schedule, seed: int = 0) -> dict[str, Any]:
    """Values over the whole range for the placeholders of a program."""
    random = np.random.default_rng(seed)
    arrays = {}
    for buffer in schedule.func.params:
        if buffer.name not in schedule.blocks():
            limits = np.iinfo(t.NUMPY_TYPES[buffer.dtype])
            arrays[buffer.name] = random.integers(limits.min, limits.max, buffer.shape, endpoint=True).astype(
                limits.dtype
            )
    return arrays


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("limit", [1, 20, 1 << 20])
def test_grids_of_any_size_give_what_single_steps_give(
    program: str, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    schedule = PROGRAMS[program]()
    arrays = random_arrays(schedule)
    expected = brute_force.run(schedule.func, arrays)
    monkeypatch.setattr(interpreter, "GRID_LIMIT", limit)
    found = t.interpret(schedule.func, arrays)
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array)


def run_text(text: str, **arrays: Any) -> dict[str, Any]:
    """Interpret the text of a function."""
    return t.interpret(t.parse(text), arrays)


def test_int32_sums_and_int8_casts_wrap() -> None:
    text = """
def f(x: int32[3] @ "global", y: int8[1] @ "global"):
    with allocate(int32[1] @ "global") as s:
        for k in range(3):
            with block("s", "reduce", over=[k], init=int32(0)):
                s[0] = s[0] + x[k]
        y[0] = s[0].astype(int8)
"""
    values = np.array([2**31 - 1, 2**31 - 1, 300], np.int32)
    assert run_text(text, x=values)["y"] == np.array(2**32 + 298).astype(np.int8)


def test_a_sum_of_bytes_wraps_at_the_width_of_its_type() -> None:
    text = """
def f(x: int8[200000] @ "global", y: int32[1] @ "global"):
    for k in range(200000):
        with block("y", "reduce", over=[k], init=int32(0)):
            y[0] = y[0] + x[k].astype(int32) * x[k].astype(int32)
"""
    found = run_text(text, x=np.full(200000, -128, np.int8))
    assert found["y"][0] == np.array(200000 * 2**14).astype(np.int32) == -1018167296


def test_a_product_of_bytes_wraps_at_the_width_of_its_type() -> None:
    x = t.placeholder((2, 5), "int8", "x")
    k = t.reduce_axis(5, "k")
    func = t.lower([t.compute((2,), lambda i: t.product(x[i, k], k), "y")], [x], "f")
    values = np.array([[3, 100, -7, 11, 5], [2, 2, 2, 2, 2]], np.int8)
    assert t.interpret(func, {"x": values})["y"].tolist() == [np.array(3 * 100 * -7 * 11 * 5).astype(np.int8), 32]


def test_a_recurrence_runs_in_order() -> None:
    text = """
def f(x: int32[8] @ "global"):
    for i in range(7):
        x[i + 1] = x[i + 1] + x[i]
"""
    text = text.replace("x: int32", 'given: int32[8] @ "global", x: int32').replace(
        "    for i", "    for j in range(8):\n        x[j] = given[j]\n    for i"
    )
    found = run_text(text, given=np.arange(8, dtype=np.int32))
    np.testing.assert_array_equal(found["x"], np.cumsum(np.arange(8)))


def test_stores_that_meet_accumulate_one_after_another() -> None:
    text = """
def f(x: int32[4] @ "global", y: int32[3] @ "global"):
    for i in range(3):
        y[i] = int32(0)
    for j in range(4):
        for k in range(2):
            y[(j + k) // 2] = y[(j + k) // 2] + x[j]
"""
    found = run_text(text, x=np.array([1, 10, 100, 1000], np.int32))
    np.testing.assert_array_equal(found["y"], [1 + 1 + 10, 10 + 100 + 100 + 1000, 1000])


def test_a_select_guards_the_loads_and_shifts_behind_it() -> None:
    text = """
def f(x: int64[4] @ "global", y: int64[6] @ "global"):
    for i in range(6):
        y[i] = select((1 <= i) & (i < 5), select(x[i - 1] < 0, 7, 1 << x[i - 1]), -1)
"""
    found = run_text(text, x=np.array([3, -2, 0, 1], np.int64))
    np.testing.assert_array_equal(found["y"], [-1, 8, 7, 1, 2, -1])


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("y[i] = x[i + 1]", r"index 4 of dimension 0 is outside 'x', which has 4 elements there"),
        ("y[i + 1] = x[i]", r"index 4 of dimension 0 is outside 'y', which has 4 elements there"),
        ("y[i] = x[i] << 40", r"shift by 100, but int32 has 32 bits"),
        ("y[i] = x[i] // x[0]", r"division by zero"),
    ],
)
def test_what_goes_wrong_is_named(statement: str, message: str) -> None:
    statement = statement.replace("<< 40", "<< int32(100)")
    text = f"""
def f(x: int32[4] @ "global", y: int32[4] @ "global"):
    for i in range(4):
        {statement}
"""
    with pytest.raises(t.InterpreterError, match=message):
        run_text(text, x=np.zeros(4, np.int32))


def test_missing_and_wrong_arrays_are_refused() -> None:
    schedule = PROGRAMS["wrapping"]()
    with pytest.raises(t.InterpreterError, match="no array was given for parameter 'x' of 'main'"):
        t.interpret(schedule.func, {})
    with pytest.raises(t.InterpreterError, match=r"parameter 'x' is int8\[12\], but the array is int32\[12\]"):
        t.interpret(schedule.func, {"x": np.zeros(12, np.int32)})


def test_the_given_arrays_are_not_changed() -> None:
    text = 'def f(x: int32[2] @ "global"):\n    for i in range(2):\n        x[i] = x[i] + int32(1)\n'
    given = np.array([1, 2], np.int32)
    assert run_text(text, x=given)["x"].tolist() == [2, 3]
    assert given.tolist() == [1, 2]


def test_float_programs_run_in_single_precision() -> None:
    x = t.placeholder((5, 7), "float32", "x")
    k = t.reduce_axis(7, "k")
    total = t.compute((5,), lambda i: t.sum(x[i, k] * x[i, k], k), "total")
    largest = t.compute((5,), lambda i: t.max(x[i, k], k), "largest")
    schedule = t.create_schedule([total, largest])
    values = np.random.default_rng(0).normal(size=(5, 7)).astype(np.float32)
    found = t.interpret(schedule.func, {"x": values})
    np.testing.assert_allclose(found["total"], (values**2).sum(1), rtol=1e-6)
    np.testing.assert_array_equal(found["largest"], values.max(1))
    assert t.parse(t.function_text(schedule.func)) == schedule.func
