"""Values of quantised models in floating point are made only for those who read them."""

from __future__ import annotations

from importlib import import_module

import numpy as np
import pytest
from weft.compiler.graph import Attrs, Constant, Expr, Function, Module, TensorType, Var, call
from weft.compiler.passes.legalise import legalise_for

LEGALISE = import_module("weft.compiler.passes.legalise")
SCALE, ZERO = Constant(np.float32(0.1)), Constant(np.int8(0))


def module(x: Var, result: Expr) -> Module:
    return Module(Function((x,), result, Attrs({"name": "main", "outputs": ("y",)})))


def convolution(x: Var) -> Expr:
    weights = call("dequantise", Constant(np.full((4, 4, 3, 3), 3, np.int8)), SCALE, ZERO)
    return call("nn.conv2d", call("dequantise", x, SCALE, ZERO), weights, pads=(1,) * 4)


@pytest.mark.parametrize("reads_floats", [False, True])
def test_sums_are_handed_over_where_somebody_reads_them(monkeypatch: pytest.MonkeyPatch, reads_floats: bool) -> None:
    asked: list[str] = []
    handed_over = LEGALISE.handed_over
    monkeypatch.setattr(LEGALISE, "handed_over", lambda x, name, span: asked.append(name) or handed_over(x, name, span))
    x = Var("x", TensorType((1, 4, 6, 6), "int8"))
    result = convolution(x)
    if not reads_floats:
        result = call("quantise", result, Constant(np.float32(0.5)), ZERO)
    legalise_for(0, core=True).run(module(x, result))
    assert len(asked) == reads_floats


def test_a_long_row_of_floats_is_made_in_its_order() -> None:
    x = Var("x", TensorType((1, 4, 6, 6), "int8"))
    value = convolution(x)
    for _ in range(3000):
        value = call("nn.tanh", value)
    made = legalise_for(0, core=True).run(module(x, value)).main.body
    assert made.type == value.type
