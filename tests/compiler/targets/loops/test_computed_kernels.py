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
    topological_order,
)
from weft.compiler.graph.dtypes import HALVES
from weft.compiler.passes.gradient import grad
from weft.compiler.targets.loops import computed_kernels
from weft.compiler.targets.loops.computed_kernels import as_product_of_columns

CASES: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ((2, 3, 6, 5), (4, 3, 3, 3), {}), ((1, 3, 6, 5), (4, 3, 2, 3), {"pads": (1, 0, 2, 1)}),
    ((2, 1, 7, 8), (5, 1, 3, 2), {"strides": (2, 3), "pads": (0, 1, 1, 0)}),
    ((2, 2, 7, 8), (1, 2, 2, 3), {"dilations": (3, 2)}), ((3, 4, 5, 5), (2, 4, 1, 1), {}),
    ((2, 4, 3, 3), (2, 4, 3, 3), {}),
    ((1, 2, 4, 5, 6), (3, 2, 2, 3, 2), {"strides": (1, 2, 1), "pads": (1, 0, 0) * 2}),
]  # fmt: skip

TRANSPOSED: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ((2, 3, 6, 5), (4, 3, 3, 3), {}), ((2, 3, 6, 5), (4, 3, 3, 3), {"pads": (1, 1, 1, 1)}),
    ((1, 3, 7, 8), (2, 3, 3, 2), {"strides": (2, 3), "pads": (1, 0, 1, 1)}),
    ((2, 2, 9, 8), (3, 2, 2, 3), {"dilations": (3, 2), "strides": (1, 2)}),
    ((2, 2, 8, 8), (3, 2, 1, 1), {"strides": (2, 2)}), ((2, 4, 1, 1), (3, 4, 3, 3), {"pads": (1, 1, 1, 1)}),
    ((1, 2, 4, 5, 6), (3, 2, 2, 3, 2), {"strides": (1, 2, 1), "pads": (1, 0, 0) * 2}),
]  # fmt: skip
"""Convolutions of which the gradient of the data is taken."""


def convolution(shape: tuple[int, ...], weights: tuple[int, ...], dtype: str = "float32", **attrs: Any) -> Call:
    op = "nn.conv2d" if len(shape) == 4 else "nn.conv3d"
    node = call(op, Var("x", TensorType(shape, dtype)), Var("w", TensorType(weights, dtype)), **attrs)
    return Call(node.op, node.args, node.attrs, node.type, Span(("conv",), "y"))


def rewritten(shape: tuple[int, ...], weights: tuple[int, ...], dtype: str = "float32", **attrs: Any) -> Expr | None:
    return as_product_of_columns(convolution(shape, weights, dtype, **attrs))


def require_equal(plain: Expr, body: Expr, operator: str = "nn.matmul") -> None:
    params = tuple(node for node in topological_order(plain) if isinstance(node, Var))
    generator = np.random.default_rng(0)
    given = {each.name: generator.normal(size=each.type.shape).astype(np.float32) for each in params}
    results = [
        evaluate(Module(Function(params, each, Attrs({"name": "main"}))), given)["output0"] for each in (plain, body)
    ]
    np.testing.assert_allclose(results[1], results[0], rtol=1e-5, atol=1e-5)
    assert operator in {node.op for node in calls(body)}


@pytest.mark.parametrize(("shape", "weights", "attrs"), CASES)
@pytest.mark.parametrize("form", ["_channels_last", "_batch_last", "_result_first"])
def test_every_form_is_the_convolution(
    form: str, shape: tuple[int, ...], weights: tuple[int, ...], attrs: dict[str, Any]
) -> None:
    plain = convolution(shape, weights, **attrs)
    body = getattr(computed_kernels, form)(plain)
    assert body.span == Span(("conv",), "y")
    assert [node.span.tensor for node in calls(body)].count("y") == 1
    require_equal(plain, body)


def gradients(shape: tuple[int, ...], weights: tuple[int, ...], attrs: dict[str, Any]) -> tuple[Call, Call]:
    """The convolutions in the gradients of data and kernels."""
    module = Module(Function((Var("x", TensorType(shape, "float32")), Var("w", TensorType(weights, "float32"))),
                             convolution(shape, weights, **attrs), Attrs({"name": "main"})))  # fmt: skip
    found = []
    for wrt in ("x", "w"):
        gradient = grad(module, wrt=wrt, seed=True, values=False)
        found.append(next(node for node in calls(gradient.main.body) if str(node.op).startswith("nn.conv")))
    return found[0], found[1]


@pytest.mark.parametrize(("shape", "weights", "attrs"), TRANSPOSED)
def test_kernels_that_were_turned_around_are_found_and_stay_as_they_lie(
    shape: tuple[int, ...], weights: tuple[int, ...], attrs: dict[str, Any]
) -> None:
    node, _ = gradients(shape, weights, attrs)
    body = computed_kernels._spread_out(node)
    require_equal(node, body)
    moved = [each.args[0] for each in calls(body) if each.op in ("transpose", "slice")]
    assert Var("w", TensorType(weights, "float32")) not in moved


@pytest.mark.parametrize(("shape", "weights", "attrs"), TRANSPOSED)
def test_the_gradient_of_kernels_computes_no_more_than_they_have(
    shape: tuple[int, ...], weights: tuple[int, ...], attrs: dict[str, Any]
) -> None:
    _, node = gradients(shape, weights, attrs)
    assert node.shape == (weights[1], weights[0], *weights[2:])


def test_other_moves_of_kernels_are_not_taken_for_a_turn() -> None:
    w = Var("w", TensorType((4, 4, 3, 3), "float32"))
    swapped = call("transpose", w, perm=(1, 0, 2, 3))
    assert computed_kernels._turned_kernel(swapped) is None
    assert computed_kernels._turned_kernel(call("nn.exp", w)) is None
    flipped = call("slice", swapped, starts=(0, 0, 2, 2), sizes=w.shape, steps=(1, 1, -1, -1))
    assert computed_kernels._turned_kernel(flipped) == w


def test_the_form_follows_what_is_large() -> None:
    def operands(shape: tuple[int, ...], weights: tuple[int, ...]) -> tuple[Expr, ...]:
        body = rewritten(shape, weights, pads=(1, 1, 1, 1))
        assert body is not None
        return next(node.args for node in calls(body) if node.op == "nn.matmul")

    assert operands((8, 128, 4, 4), (128, 128, 3, 3))[0].shape == (128, 128 * 9)  # kernels as they lie
    assert operands((8, 16, 32, 32), (16, 16, 3, 3))[1].shape == (16 * 9, 16)  # columns, then small kernels
    data, kernels = gradients((8, 128, 2, 2), (128, 128, 3, 3), {"pads": (1, 1, 1, 1)})
    for node, shape in ((data, (32, 128 * 9)), (kernels, (128, 128 * 9))):
        body = as_product_of_columns(node)
        assert body is not None
        assert next(each.shape for each in calls(body) if each.op == "nn.matmul") == shape


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


FEW_PLACES: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ((1, 40, 6, 7), (8, 5, 5, 4), {}), ((3, 18, 4, 4), (9, 2, 3, 3), {"strides": (2, 2), "pads": (1, 0, 0, 1)}),
    ((1, 16, 9, 9), (8, 2, 4, 3), {"strides": (2, 3), "pads": (0, 1, 1, 0)}),
    ((2, 8, 8, 38), (8, 1, 3, 18), {"dilations": (3, 2), "pads": (0, 0, 0, 1)}),
    ((1, 8, 5, 5), (8, 1, 5, 5), {}), ((1, 16, 3, 4, 5), (8, 2, 2, 3, 3), {"pads": (0, 1, 0) * 2}),
]  # fmt: skip
"""Convolutions with a filter for each group, and results of few places."""


def group_gradients(data: tuple[int, ...], strides: int) -> tuple[Call, Call]:
    """The convolutions in the gradients of a depthwise one, of the data and of the kernels."""
    plain = convolution(data, (data[1], 1, 3, 3), groups=data[1], strides=(strides,) * 2, pads=(1,) * 4)
    params = tuple(node for node in topological_order(plain) if isinstance(node, Var))
    module = grad(Module(Function(params, plain, Attrs({"name": "main"}))), wrt=["x", "w"], seed=True, values=False)
    found = [node for node in calls(module.main.body) if node.op == "nn.conv2d"]
    first, second = sorted(found, key=lambda node: node.shape[-1])
    return second, first


@pytest.mark.parametrize(("shape", "weights", "attrs"), FEW_PLACES)
def test_few_places_of_groups_are_sums_over_lanes_of_groups(
    shape: tuple[int, ...], weights: tuple[int, ...], attrs: dict[str, Any]
) -> None:
    plain = convolution(shape, weights, groups=weights[0], **attrs)
    body = as_product_of_columns(plain)
    assert body is not None
    assert body.span == Span(("conv",), "y")
    assert [node.span.tensor for node in calls(body)].count("y") == 1
    operators = [node.op for node in calls(body)]
    assert operators.count("nn.reduce_sum") == plain.tensor_type.size // weights[0]
    assert not {"nn.conv2d", "nn.conv3d"} & set(operators)
    require_equal(plain, body, operator="nn.reduce_sum")


@pytest.mark.parametrize("strides", [1, 2])
def test_the_gradient_of_small_depthwise_kernels_has_few_places(strides: int) -> None:
    of_data, of_kernels = group_gradients((4, 16, 8, 8), strides)
    body = as_product_of_columns(of_kernels)
    assert body is not None
    assert "nn.conv2d" not in {node.op for node in calls(body)}
    require_equal(of_kernels, body, operator="nn.reduce_sum")
    assert "nn.reduce_sum" not in {node.op for node in calls(as_product_of_columns(of_data) or of_data)}


def test_groups_stay_loops_where_lanes_run_along_rows_or_places_are_many() -> None:
    def stays(shape: tuple[int, ...], weights: tuple[int, ...], dtype: str = "float32", **attrs: Any) -> bool:
        body = as_product_of_columns(convolution(shape, weights, dtype, groups=weights[0], **attrs))
        return body is None

    assert not stays((1, 8, 18, 17), (8, 1, 16, 15))
    assert stays((1, 8, 18, 18), (8, 1, 16, 16)), "rows of 16"
    assert not stays((1, 8, 18, 34), (8, 1, 16, 16), dilations=(1, 2)), "rows of which every other element is met"
    assert stays((1, 7, 18, 17), (7, 1, 16, 15)), "too few groups for lanes"
    assert stays((1, 8, 8, 8), (8, 1, 2, 2)), "many places"
    assert stays((1, 8, 3, 3), (8, 1, 2, 1)), "less to add up than places"
    assert not stays((1, 8, 18, 18), (8, 1, 16, 16), "bfloat16"), "rows of 16 bits gain nothing"


@pytest.mark.parametrize("dtype", HALVES)
def test_few_places_in_sixteen_bits_are_added_up_in_32(dtype: str) -> None:
    body = as_product_of_columns(convolution((1, 8, 9, 9), (8, 1, 7, 7), dtype, groups=8))
    assert body is not None
    assert body.dtype == dtype
    sums = [node for node in calls(body) if node.op == "nn.reduce_sum"]
    terms = [node for node in calls(body) if node.op == "nn.multiply"]
    assert len(sums) == 9
    assert {node.dtype for node in (*sums, *terms)} == {"float32"}


def test_a_convolution_in_groups_is_padded_before() -> None:
    plain = convolution((2, 4, 5, 6), (4, 2, 3, 2), groups=2, pads=(1, 0, 2, 1), strides=(2, 1))
    body = as_product_of_columns(plain)
    assert isinstance(body, Call)
    assert body.op == "nn.conv2d"
    assert body.span == plain.span
    assert not any(body.attr("pads"))
    given = {"x": np.random.default_rng(0).normal(size=(2, 4, 5, 6)).astype(np.float32),
             "w": np.random.default_rng(1).normal(size=(4, 2, 3, 2)).astype(np.float32)}  # fmt: skip
    params = tuple(node for node in topological_order(plain) if isinstance(node, Var))
    found = [evaluate(Module(Function(params, each, Attrs({"name": "main"}))), given)["output0"]
             for each in (plain, body)]  # fmt: skip
    np.testing.assert_array_equal(found[0], found[1])
