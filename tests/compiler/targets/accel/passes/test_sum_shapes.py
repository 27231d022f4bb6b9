"""A residual sum of rows joins the product that it adds to, whose rows are laid out as an image."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import weft
from weft.compiler.graph import Attrs, Call, Constant, Expr, Function, Module, TensorType, Var, call, evaluate
from weft.compiler.passes import PassManager, integer_passes

ROWS, WIDTH = 7, 24


def quantised(x: Expr, scale: float = 0.05) -> Call:
    step, zero = Constant(np.float32(scale)), Constant(np.int8(-3))
    return call("dequantise", call("quantise", x, step, zero), step, zero)


def dense(x: Expr, width: int, scale: float = 0.05) -> Call:
    values = np.random.default_rng(width).integers(-127, 128, (width, x.shape[-1])).astype(np.int8)
    weights = call("dequantise", Constant(values), Constant(np.float32(0.002)), Constant(np.int8(0)))
    rows = call("reshape", x, shape=x.shape[1:])
    return quantised(call("reshape", call("nn.dense", rows, weights), shape=(1, x.shape[1], width)), scale)


def once(x: Expr) -> Expr:
    """The width comes back with the sum."""
    return call("nn.add", x, dense(dense(x, 40), WIDTH, 0.04))


def twice(x: Expr) -> Expr:
    return once(quantised(once(x), 0.07))


def product_first(x: Expr) -> Expr:
    return call("nn.add", dense(dense(x, 40), WIDTH, 0.04), x)


def launches(body: Callable[[Expr], Expr]) -> int:
    """How often the core runs for a residual sum of rows and one more layer; all results are those of the contract."""
    x = Var("x", TensorType((1, ROWS, WIDTH), "float32"))
    result = dense(quantised(body(quantised(x)), 0.06), 12)
    module = Module(Function((x,), result, Attrs({"name": "main", "outputs": ("y",)})))
    model = weft.compile(module, "tiny")
    assert isinstance(model, weft.CompiledModel)
    values = {"x": np.random.default_rng(0).normal(0, 3, x.type.shape).astype(np.float32)}
    wanted = evaluate(PassManager(integer_passes()).run(module), values)["y"]
    assert len(np.unique(wanted)) > 10
    np.testing.assert_array_equal(weft.load(model, "fsim").run(values)["y"], wanted)
    return len(model.programs)


@pytest.mark.parametrize("body", [once, twice, product_first])
def test_rows_with_residual_sums_are_one_launch(body: Callable[[Expr], Expr]) -> None:
    assert launches(body) == 1
