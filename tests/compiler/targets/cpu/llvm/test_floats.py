"""Floats of every width: machine code rounds as the interpreter does, which rounds as NumPy and ml_dtypes do."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from weft.compiler import tensor as t

from ..jit import Array, run_compiled

INTEGERS: list[t.DType] = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "bool"]
HALVES: list[t.DType] = ["float16", "bfloat16"]
SPECIAL = [0.0, -0.0, 1.0, np.inf, -np.inf, np.nan, 65504.0, 65520.0, 65536.0, 3.4e38, 1e-8, 1 + 2**-9, 1 + 2**-11]


def values_of(dtype: t.DType, seed: int) -> Array:
    """Numbers of every magnitude, ties of narrower types, and special ones; 512 of them."""
    generator = np.random.default_rng(seed)
    wide = generator.standard_normal(256) * 10.0 ** generator.integers(-9, 9, 256)
    ties = (1 + generator.integers(0, 256, 128) / 128 + 1 / 256) * 2.0 ** generator.integers(-20, 15, 128)
    near = ties[:64] * (1 + generator.choice([-1, 1], 64) * 2.0**-40)  # beside a tie: visible in double precision only
    small = generator.uniform(-9, 9, 64 - len(SPECIAL))
    rest = generator.permutation(np.concatenate([wide, ties, near, SPECIAL, small]))
    with np.errstate(over="ignore"):
        return rest.astype(t.NUMPY_TYPES[dtype])


def both(formula: object, source: t.DType, seed: int = 0) -> tuple[Array, Array]:
    """What machine code and what the interpreter make of ``formula(x, y)``, vectorised."""
    x, y = t.placeholder((512,), source, "x"), t.placeholder((512,), source, "y")
    schedule = t.create_schedule(t.compute((512,), lambda i: formula(x[i], y[i]), "out"), [x, y])  # type: ignore[operator]
    schedule.vectorize("i")
    arrays = {"x": values_of(source, seed), "y": values_of(source, seed + 1)}
    return run_compiled(schedule.func, arrays)["out"], t.interpret(schedule.func, arrays)["out"]


def same(found: Array, wanted: Array) -> None:
    np.testing.assert_array_equal(found.astype(np.float64), wanted.astype(np.float64))


@pytest.mark.parametrize("dtype", [*HALVES, "float64"])
@pytest.mark.parametrize("op", ["add", "sub", "mul", "div", "min", "max", "lt", "le", "eq", "ne"])
def test_operators_round_once(dtype: t.DType, op: str) -> None:
    same(*both(lambda a, b: t.BinOp(op, a, b), dtype))


@pytest.mark.parametrize("source", t.FLOATS)
@pytest.mark.parametrize("target", t.FLOATS)
def test_conversions_between_floats_round_once(source: t.DType, target: t.DType) -> None:
    for seed in range(3):
        same(*both(lambda a, b: a.astype(target), source, seed))


@pytest.mark.parametrize("target", INTEGERS)
@pytest.mark.parametrize("source", t.FLOATS)
def test_floats_become_integers(source: t.DType, target: t.DType) -> None:
    same(*both(lambda a, b: a.astype(target), source))


@pytest.mark.parametrize("target", t.FLOATS)
@pytest.mark.parametrize("source", INTEGERS)
def test_integers_become_floats(source: t.DType, target: t.DType) -> None:
    x = t.placeholder((300,), source, "x")
    schedule = t.create_schedule(t.compute((300,), lambda i: x[i].astype(target), "out"), [x])
    schedule.vectorize("i")
    kind = t.NUMPY_TYPES[source]
    generator = np.random.default_rng(0)
    if source == "bool":
        values = generator.random(300) < 0.5
    else:
        limits = np.iinfo(kind)
        shifts = generator.integers(0, 7, 300).astype(kind)  # numbers of every magnitude
        values = generator.integers(limits.min, limits.max, 300, kind, endpoint=True) >> shifts
    arrays = {"x": values}
    same(run_compiled(schedule.func, arrays)["out"], t.interpret(schedule.func, arrays)["out"])


@pytest.mark.parametrize("function", ["exp", "tanh", "log", "sqrt", "erf", "sin", "cos", "floor", "ceil", "round"])
@pytest.mark.parametrize("dtype", [*HALVES, "float64"])
def test_functions_of_other_floats(function: str, dtype: t.DType) -> None:
    found, wanted = both(lambda a, b: t.ir.Call(function, (a,)), dtype)
    step = float(ml_dtypes.finfo(t.NUMPY_TYPES[dtype]).eps)  # a value next to a tie may be rounded to either side
    np.testing.assert_allclose(found.astype(np.float64), wanted.astype(np.float64), rtol=step, atol=1e-9)
