"""Division, functions of floats and conversions: evaluation, the interpreter, the text and the simplifier agree."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from weft.compiler import tensor as t
from weft.compiler.tensor.ir import FUNCTIONS
from weft.compiler.tensor.tensorize import fold

from . import brute_force

FLOATS = st.floats(width=32)


def literal(value: float) -> t.Const:
    return t.Const(value, "float32")


def stored(expr: t.Expr) -> Any:
    """What a program stores that computes ``expr``, as the interpreter runs it."""
    target = t.Buffer("y", (1,), expr.dtype)
    func = t.PrimFunc("f", (target,), target.store(0, expr))
    assert t.parse(t.function_text(func)) == func or "nan" in t.function_text(func)
    return t.interpret(func, {})["y"][0].item()


def same(a: Any, b: Any) -> bool:
    return a == b or (math.isnan(a) and math.isnan(b))


@given(function=st.sampled_from(sorted(FUNCTIONS)), values=st.lists(FLOATS, min_size=2, max_size=2))
def test_functions_have_one_value_everywhere(function: str, values: list[float]) -> None:
    expr = t.Call(function, tuple(map(literal, values[: FUNCTIONS[function]])))
    expected = t.evaluate(expr, {})
    assert same(stored(expr), expected)
    for simple in (t.simplify(expr), fold(expr)):
        assert isinstance(simple, t.Const)
        assert same(simple.value, expected)


@given(value=st.one_of(FLOATS, st.sampled_from([math.inf, -math.inf, 1e-45, -0.0])))
def test_bits_of_a_float_are_those_in_memory_and_make_it_again(value: float) -> None:
    expected = int(np.array(value, np.float32).view(np.int32))
    for bits in (literal(value).bits("int32"), literal(value).bits("uint32").astype("int32")):
        assert t.evaluate(bits, {}) == stored(bits) == expected
        assert same(stored(bits.bits("float32")), np.float32(value).item())


def test_types_of_another_width_have_no_bits_in_common() -> None:
    for expr, dtype in ((literal(1), "int64"), (t.Const(1, "int8"), "bool"), (t.Const(True, "bool"), "uint8")):
        with pytest.raises(t.IRError, match="have no bits in common; hint: both must be numbers of one width"):
            expr.bits(dtype)  # type: ignore[arg-type]


@given(a=FLOATS, b=FLOATS)
def test_division_follows_ieee(a: float, b: float) -> None:
    expr = literal(a) / literal(b)
    with np.errstate(all="ignore"):
        expected = (np.float32(a) / np.float32(b)).item()
    assert same(t.evaluate(expr, {}), expected)
    assert same(stored(expr), expected)


@given(a=FLOATS, b=FLOATS)
def test_the_larger_and_the_smaller_of_nan_are_nan(a: float, b: float) -> None:
    for expr in (t.maximum(literal(a), literal(b)), t.minimum(literal(a), literal(b))):
        assert same(stored(expr), t.evaluate(expr, {}))
        assert math.isnan(t.evaluate(expr, {})) == (math.isnan(a) or math.isnan(b))


@given(value=FLOATS, dtype=st.sampled_from(["int8", "uint8", "int32", "int64", "bool", "float32"]))
def test_conversions_of_floats_saturate(value: float, dtype: t.DType) -> None:
    expr = t.Cast(dtype, literal(value))
    expected = t.evaluate(expr, {})
    assert same(stored(expr), expected)
    if dtype not in ("bool", "float32"):
        limits = np.iinfo(dtype)
        nearest = 0 if math.isnan(value) else max(limits.min, min(limits.max, value))
        assert expected == (int(nearest) if math.isfinite(nearest) else nearest)


@pytest.mark.parametrize("value", [2.0**31, 2.0**63, -(2.0**63), 127.99, -128.99, 1e30, math.inf, -math.inf, math.nan])
def test_conversions_at_the_limits(value: float) -> None:
    for dtype in ("int8", "int32", "int64"):
        expr = t.Cast(dtype, literal(value))
        assert stored(expr) == t.evaluate(expr, {})


def softmax() -> t.Schedule:
    x = t.placeholder((3, 9), "float32", "x")
    k, j = t.reduce_axis(9, "k"), t.reduce_axis(9, "j")
    peak = t.compute((3,), lambda i: t.max(x[i, k], k), "peak")
    raised = t.compute((3, 9), lambda i, c: t.exp(x[i, c] - peak[i]), "raised")
    norm = t.compute((3,), lambda i: t.sum(raised[i, j], j), "norm")
    return t.create_schedule(t.compute((3, 9), lambda i, c: raised[i, c] / norm[i], "y"))


def gelu() -> t.Schedule:
    x = t.placeholder((3, 9), "float32", "x")
    return t.create_schedule(t.compute((3, 9), lambda i, c: x[i, c] * 0.5 * (t.erf(x[i, c] / 2**0.5) + 1.0), "y"))


def gelu_values(x: Any) -> Any:
    return x * 0.5 * (np.vectorize(math.erf)(x / 2**0.5) + 1)


def softmax_values(x: Any) -> Any:
    raised = np.exp(x - x.max(1, keepdims=True))
    return raised / raised.sum(1, keepdims=True)


@pytest.mark.parametrize(("make", "expected"), [(softmax, softmax_values), (gelu, gelu_values)])
def test_float_networks_are_what_numpy_computes(make: Callable[[], t.Schedule], expected: Callable[[Any], Any]) -> None:
    schedule = make()
    x = np.random.default_rng(0).normal(size=(3, 9)).astype(np.float32)
    found = t.interpret(schedule.func, {"x": x})["y"]
    np.testing.assert_allclose(found, expected(x.astype(np.float64)), rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(brute_force.run(schedule.func, {"x": x})["y"], found, rtol=1e-6)
    assert t.parse(str(schedule)) == schedule.func


def test_softmax_can_be_scheduled() -> None:
    schedule = softmax()
    x = np.random.default_rng(0).normal(size=(3, 9)).astype(np.float32)
    expected = t.interpret(schedule.func, {"x": x})["y"]
    for block in ("norm", "raised", "peak"):
        schedule.compute_at(block, "y_i")
    schedule.parallel("y_i")
    np.testing.assert_array_equal(t.interpret(schedule.func, {"x": x})["y"], expected)
    assert "y[y_i, y_c] = raised[0, y_c] / norm[0]" in str(schedule)


def test_the_text_of_functions_and_division() -> None:
    x, y = t.Var("x", "float32"), t.Var("y", "float32")
    assert t.expr_text(x / (y / x) * t.pow(x, 2.0)) == "x / (y / x) * pow(x, float32(2.0))"
    assert t.expr_text(1 / t.sqrt(x)) == "float32(1.0) / sqrt(x)"


def test_simplify_drops_what_changes_nothing() -> None:
    x = t.Var("x", "float32")
    assert t.simplify(t.floor(t.ceil(x / 1.0))) == t.ceil(x)


def test_tensorize_knows_functions() -> None:
    x = t.placeholder((8,), "float32", "x")
    schedule = t.create_schedule(t.compute((8,), lambda i: 1.0 / (t.exp(-x[i]) + 1.0), "y"))

    def lanes(name: str, function: Callable[[t.Expr], t.Expr]) -> t.TensorIntrinsic:
        return t.tensor_intrinsic(
            name,
            operands=[t.tile("d", (8,), "float32", "global", "out"), t.tile("a", (8,), "float32", "global", "in")],
            loops={"l": 8},
            meaning=lambda d, a, l: d.store(l, 1.0 / (1.0 + function(-a[l]))),  # noqa: E741
        )

    with pytest.raises(t.ScheduleError, match=r"but 'other' computes float32\(1.0\) / \(float32\(1.0\) \+ tanh"):
        schedule.tensorize("i", lanes("other", t.tanh))
    schedule.tensorize("i", lanes("sigmoid", t.exp))
    found = t.interpret(schedule.func, {"x": np.zeros(8, np.float32)})
    assert found["y"].tolist() == [0.5] * 8


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: t.Var("i") / 2, "'div' is not defined for int64; hint: use // for integers, or convert with"),
        (lambda: t.exp(t.Var("i")), r"'exp' of int64: the operand must be a float; hint: convert it with .astype"),
        (lambda: t.Call("exp", ()), "'exp' takes 1 operands, not 0"),
        (lambda: t.Call("gamma", (literal(1),)), "unknown function 'gamma'; hint: the functions are exp, log,"),
    ],
)
def test_wrong_uses_are_refused(build: Callable[[], t.Expr], message: str) -> None:
    with pytest.raises(t.IRError, match=message):
        build()
