"""Means and the like of rows in the kernel that needs them: layer and RMS norms are one kernel."""

from __future__ import annotations

import numpy as np
import pytest
import weft
from hypothesis import given, settings
from hypothesis import strategies as st
from weft.compiler.graph import Attrs, Call, Constant, Expr, Function, Module, TensorType, Tuple, Var, call, evaluate
from weft.compiler.targets.loops.fusion import FusedGroup, group_calls
from weft.compiler.targets.loops.fusion_limits import FusionLimits

from ..cpu.programs import compiled

X = Var("x", TensorType((6, 40), "float32"))
Y = Var("y", TensorType((6, 40), "float32"))
LIMITS = FusionLimits(before_reductions=True, row_statistics=True)


def number(value: float) -> Constant:
    return Constant(np.float32(value))


def reduced(value: Expr, op: str = "nn.reduce_mean") -> Call:
    return call(op, value, axes=(len(value.shape) - 1,), keepdims=True)


def layer_norm(x: Expr) -> Call:
    centred = call("nn.subtract", x, reduced(x))
    variance = reduced(call("nn.multiply", centred, centred))
    inverse = call("nn.divide", number(1), call("nn.sqrt", call("nn.add", variance, number(1e-5))))
    weights = Constant(np.random.default_rng(0).standard_normal(x.shape[-1]).astype(np.float32))
    return call("nn.add", call("nn.multiply", call("nn.multiply", centred, inverse), weights), weights)


def rms_norm(x: Expr) -> Call:
    squares = reduced(call("nn.multiply", x, x))
    return call("nn.divide", x, call("nn.sqrt", call("nn.add", squares, number(1e-6))))


def module_of(result: Expr, *params: Var) -> Module:
    return Module(Function(params or (X, Y), result, Attrs({"name": "main", "outputs": ("out",)})))


def check(result: Expr, *params: Var) -> list[tuple[str, ...]]:
    """The operators of each kernel of the compiled model, whose result is right."""
    module = module_of(result, *params)
    generator = np.random.default_rng(1)
    given_ = {each.name: generator.standard_normal(each.type.shape).astype(np.float32) for each in module.main.params}
    model = compiled(module)
    found, expected = weft.load(model).run(given_)["out"], evaluate(module, given_)["out"]
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    return [layer.operators for layer in model.layers if layer.kind == "plain"]


def operators(groups: list[FusedGroup]) -> list[tuple[str, ...]]:
    return [tuple(str(node.op) for node in group.members) for group in groups]


@pytest.mark.parametrize("shape", [(6, 40), (1, 5, 7), (2, 3, 2), (3, 1000), (1, 64), (2, 4, 3, 9), (2, 2, 2, 2, 9)])
@pytest.mark.parametrize("norm", [layer_norm, rms_norm])
def test_a_norm_is_one_kernel(norm, shape: tuple[int, ...]) -> None:  # type: ignore[no-untyped-def]
    x = Var("x", TensorType(shape, "float32"))
    assert len(check(norm(x), x)) == 1


@pytest.mark.parametrize("norm", [layer_norm, rms_norm])
def test_a_norm_of_an_image_whose_channels_are_in_blocks_is_one_kernel(norm) -> None:  # type: ignore[no-untyped-def]
    x = Var("x", TensorType((1, 32, 6, 10), "float32"))
    weights = Constant(np.random.default_rng(0).standard_normal((32, 32, 3, 3)).astype(np.float32) / 10)

    def convolved(value: Expr) -> Call:
        return call("nn.conv2d", value, weights, pads=(1, 1, 1, 1))

    model = compiled(module_of(convolved(norm(convolved(x))), x))
    kinds = [layer.kind for layer in model.layers if layer.kind != "convert"]
    assert kinds == ["convolution", "blocked", "convolution"]
    check(convolved(norm(convolved(x))), x)


def test_what_stands_behind_joins_and_a_sum_before_is_made_once() -> None:
    total = call("nn.add", X, Y)
    kernels = check(call("nn.sigmoid", call("nn.add", layer_norm(total), total)))
    assert [len(each) for each in kernels] == [1, 12]


def test_a_statistic_that_something_else_needs_is_a_kernel_of_its_own() -> None:
    mean = reduced(X)
    result = call("nn.subtract", X, mean)
    body = Tuple((result, mean))
    assert operators(group_calls(body, LIMITS)) == [("nn.reduce_mean",), ("nn.subtract",)]
    assert operators(group_calls(result, LIMITS)) == [("nn.reduce_mean", "nn.subtract")]
    assert operators(group_calls(result, FusionLimits())) == [("nn.reduce_mean",), ("nn.subtract",)]


def test_what_takes_long_is_not_computed_twice() -> None:
    def shares(function: str) -> list[tuple[str, ...]]:
        powers = call(function, call("nn.subtract", X, reduced(X, "nn.reduce_max")))
        return operators(group_calls(call("nn.divide", powers, reduced(powers, "nn.reduce_sum")), LIMITS))

    assert len(shares("nn.exp")) == 1
    assert [each[-1] for each in shares("nn.erf")] == ["nn.erf", "nn.divide"]


def test_a_value_of_a_row_that_takes_long_is_made_once() -> None:
    logs = call("nn.log", reduced(call("nn.exp", X), "nn.reduce_sum"))
    assert operators(group_calls(call("nn.subtract", X, logs), LIMITS)) == [
        ("nn.exp", "nn.reduce_sum", "nn.log"), ("nn.subtract",),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "result",
    [
        call("nn.subtract", X, call("nn.reduce_mean", X, axes=(0,), keepdims=True)),  # of columns
        call("nn.subtract", X, call("nn.reduce_mean", X, axes=(0, 1), keepdims=True)),  # of all
    ],
)
def test_others_stay_apart(result: Call) -> None:
    assert len(group_calls(result, LIMITS)) > 1


def test_a_value_that_a_product_makes_stays_with_it() -> None:
    weights = Constant(np.random.default_rng(0).standard_normal((40, 40)).astype(np.float32))
    biased = call("nn.add", call("nn.dense", X, weights), number(3))
    found = operators(group_calls(layer_norm(biased), LIMITS))
    assert [each[0] for each in found] == ["nn.dense", "nn.reduce_mean"]
    assert found[0] == ("nn.dense", "nn.add")
    powers = call("nn.exp", call("nn.dense", X, weights))
    result = call("nn.subtract", Y, reduced(powers, "nn.reduce_sum"))
    assert operators(group_calls(result, LIMITS)) == [("nn.dense", "nn.exp"), ("nn.reduce_sum", "nn.subtract")]


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_random_statistics_of_rows(data: st.DataObject) -> None:
    values: list[Expr] = [X, Y]
    for _ in range(data.draw(st.integers(2, 8))):
        chosen = data.draw(st.sampled_from(values))
        if data.draw(st.booleans()):
            chosen = reduced(chosen, data.draw(st.sampled_from(["nn.reduce_mean", "nn.reduce_max", "nn.reduce_min"])))
        op = data.draw(st.sampled_from(["nn.add", "nn.subtract", "nn.maximum"]))
        values.append(call("nn.sigmoid", call(op, chosen, data.draw(st.sampled_from(values)))))
    full = [each for each in values if each.shape == X.shape]
    check(call("nn.add", full[-1], values[-1]))


def widened(value: Expr) -> Call:
    return call("dequantise", value, number(0.05), Constant(np.array(3, np.int8)))


def softmax(value: Expr) -> Call:
    return call("nn.softmax", value, axis=1)


@pytest.mark.parametrize("rows", [layer_norm, rms_norm, softmax])
def test_rows_of_bytes_are_widened_where_they_are_read(rows) -> None:  # type: ignore[no-untyped-def]
    x = Var("x", TensorType((6, 40), "int8"))
    result = rows(widened(x))
    assert [each[0] for each in operators(group_calls(result, LIMITS))] == ["dequantise"]
    module = module_of(result, x)
    given_ = {"x": np.random.default_rng(1).integers(-128, 128, (6, 40)).astype(np.int8)}
    found = weft.load(compiled(module)).run(given_)["out"]
    np.testing.assert_allclose(found, evaluate(module, given_)["out"], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("rows", [layer_norm, rms_norm, softmax])
def test_widened_rows_give_the_same_to_the_bit_as_rows_that_another_kernel_widened(rows) -> None:  # type: ignore[no-untyped-def]
    shape = (200, 40)
    x, wide = Var("x", TensorType(shape, "int8")), Var("x", TensorType(shape, "float32"))
    values = np.random.default_rng(1).integers(-128, 128, shape).astype(np.int8)
    apart = evaluate(module_of(widened(x), x), {"x": values})["out"]
    found = weft.load(compiled(module_of(rows(widened(x)), x))).run({"x": values})["out"]
    wanted = weft.load(compiled(module_of(rows(wide), wide))).run({"x": apart})["out"]
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("rows", [layer_norm, softmax])
def test_what_is_needed_elsewhere_or_can_be_widened_before_is_not_widened_where_rows_are_read(rows) -> None:  # type: ignore[no-untyped-def]
    x = Var("x", TensorType((6, 40), "int8"))
    shared = widened(x)
    assert len(group_calls(Tuple((rows(shared), shared)), LIMITS)) == 2
    weights = Constant(np.ones((40, 40), np.float32))
    product = call("nn.matmul", X, weights)
    scales = (number(0.1), Constant(np.array(0, np.int8)))
    behind = rows(call("dequantise", call("quantise", product, *scales), *scales))
    assert operators(group_calls(behind, LIMITS))[0] == ("nn.matmul", "quantise", "dequantise")
    floats = rows(call("nn.add", X, Y))  # as many bytes as each of what it is made of
    assert operators(group_calls(floats, LIMITS))[0] == ("nn.add",)
