"""Convolutions whose kernels are computed become products of matrices; all others stay."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from weft.compiler.graph import (
    Attrs,
    Call,
    Constant,
    Expr,
    Function,
    Module,
    Span,
    TensorType,
    Var,
    call,
    calls,
    evaluate,
)
from weft.compiler.targets.loops import computed_kernels
from weft.compiler.targets.loops.computed_kernels import as_product_of_columns


def rewritten(shape: tuple[int, ...], weights: tuple[int, ...], dtype: str = "float32", **attrs: Any) -> Expr | None:
    op = "nn.conv2d" if len(shape) == 4 else "nn.conv3d"
    node = call(op, Var("x", TensorType(shape, dtype)), Var("w", TensorType(weights, dtype)), **attrs)
    return as_product_of_columns(Call(node.op, node.args, node.attrs, node.type, Span(("conv",), "y")))


@pytest.mark.parametrize(
    ("shape", "weights", "attrs"),
    [
        ((2, 3, 6, 5), (4, 3, 3, 3), {}), ((1, 3, 6, 5), (4, 3, 2, 3), {"pads": (1, 0, 2, 1)}),
        ((2, 1, 7, 8), (5, 1, 3, 2), {"strides": (2, 3), "pads": (0, 1, 1, 0)}),
        ((2, 2, 7, 8), (1, 2, 2, 3), {"dilations": (3, 2)}), ((3, 4, 5, 5), (2, 4, 1, 1), {}),
        ((2, 4, 3, 3), (2, 4, 3, 3), {}),
        ((1, 2, 4, 5, 6), (3, 2, 2, 3, 2), {"strides": (1, 2, 1), "pads": (1, 0, 0) * 2}),
    ],
)  # fmt: skip
def test_the_product_is_the_convolution(
    shape: tuple[int, ...], weights: tuple[int, ...], attrs: dict[str, Any]
) -> None:
    body = rewritten(shape, weights, **attrs)
    assert body is not None
    assert body.span == Span(("conv",), "y")
    assert [node.span.tensor for node in calls(body)].count("y") == 1
    x, w = Var("x", TensorType(shape, "float32")), Var("w", TensorType(weights, "float32"))
    plain = call("nn.conv2d" if len(shape) == 4 else "nn.conv3d", x, w, **attrs)
    generator = np.random.default_rng(0)
    given = {each.name: generator.normal(size=each.type.shape).astype(np.float32) for each in (x, w)}
    results = [
        evaluate(Module(Function((x, w), each, Attrs({"name": "main"}))), given)["output0"] for each in (plain, body)
    ]
    np.testing.assert_allclose(results[1], results[0], rtol=1e-5, atol=1e-5)
    assert "nn.matmul" in {node.op for node in calls(body)}


def test_what_has_better_loops_or_none_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    assert rewritten((1, 4, 5, 5), (4, 2, 3, 3), groups=2) is None
    assert rewritten((1, 4, 5, 5), (4, 4, 3, 3), dtype="float64") is None
    assert rewritten((0, 4, 5, 5), (4, 4, 3, 3)) is None
    x = Var("x", TensorType((1, 4, 5, 5), "float32"))
    assert as_product_of_columns(call("nn.conv2d", x, Constant(np.zeros((4, 4, 3, 3), np.float32)))) is None
    assert as_product_of_columns(call("nn.exp", x)) is None
    assert rewritten((1, 4, 5, 5), (4, 4, 3, 3)) is not None
    monkeypatch.setattr(computed_kernels, "COLUMN_BYTES", 4 * 9 * 9 * 4 - 1)
    assert rewritten((1, 4, 5, 5), (4, 4, 3, 3)) is None
    monkeypatch.setattr(computed_kernels, "COLUMN_BYTES", 4 * 9 * 9 * 4)
    assert rewritten((1, 4, 5, 5), (4, 4, 3, 3)) is not None
