"""Quotients as products with a reciprocal: only where none can tell, or nothing jumps behind."""

from __future__ import annotations

import numpy as np
import pytest
from weft.compiler.graph import Attrs, Call, Constant, Expr, Function, Module, TensorType, Var, call, calls, evaluate
from weft.compiler.targets.loops.prepare import prepare
from weft.compiler.targets.loops.quotients import as_product

X = Var("x", TensorType((4, 500), "float32"))


def divided(*divisor: float) -> Call:
    return call("nn.divide", X, Constant(np.array(divisor, np.float32).reshape(() if len(divisor) == 1 else -1)))


def results(result: Expr) -> tuple[list[str], np.ndarray, np.ndarray]:
    module = Module(Function((X,), result, Attrs({"name": "main", "outputs": ("out",)})))
    after = prepare(module)
    values = {"x": np.random.default_rng(0).standard_normal((4, 500)).astype(np.float32) * 8}
    found, expected = (evaluate(each, values)["out"] for each in (after, module))
    return [str(node.op) for node in calls(after.main.body)], found, expected


@pytest.mark.parametrize("function", ["nn.erf", "nn.tanh", "nn.sigmoid"])
@pytest.mark.parametrize("divisor", [2**0.5, -3.0, 1e30, 0.7])
def test_a_smooth_function_of_a_quotient_multiplies(function: str, divisor: float) -> None:
    operators, found, expected = results(call(function, divided(divisor)))
    assert operators == ["nn.multiply", function]
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_so_does_softmax() -> None:
    operators, found, expected = results(call("nn.softmax", divided(7.0), axis=1))
    assert operators == ["nn.multiply", "nn.softmax"]
    np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.parametrize("divisor", [2.0, 0.125, -(2.0**30), 2.0**-126])
def test_a_power_of_two_keeps_every_bit(divisor: float) -> None:
    operators, found, expected = results(call("nn.floor", divided(divisor)))
    assert operators == ["nn.multiply", "nn.floor"]
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    "divisor", [(41.0,), (0.0,), (2.0**127,), (2.0**-140,), (np.inf,), tuple(range(1, 501)), (2.0,) * 499 + (3.0,)]
)
def test_other_quotients_stay(divisor: tuple[float, ...]) -> None:
    operators, found, expected = results(call("nn.floor", divided(*divisor)))
    assert operators == ["nn.divide", "nn.floor"]
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("divisor", [0.0, 2.0**-140, 3e38])
def test_numbers_whose_reciprocal_is_not_normal_stay_before_smooth_functions(divisor: float) -> None:
    assert results(call("nn.erf", divided(divisor)))[0] == ["nn.divide", "nn.erf"]


def test_a_constant_without_elements_stays() -> None:
    x = Var("x", TensorType((4, 0), "float32"))
    quotient = call("nn.divide", x, Constant(np.zeros(0, np.float32)))
    assert as_product(quotient) is None
    assert as_product(call("nn.erf", quotient)) is None
