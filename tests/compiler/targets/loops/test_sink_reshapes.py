"""Elementwise operators before a reshape: the same bits, in fewer kernels."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest
import weft
from hypothesis import given, settings
from hypothesis import strategies as st
from weft.compiler.graph import Attrs, Call, Constant, Expr, Function, Module, TensorType, Var, call, calls, evaluate
from weft.compiler.targets.loops.sink_reshapes import with_reshapes_last

from ..cpu.programs import compiled

WEIGHTS = np.random.default_rng(0).standard_normal((32, 16)).astype(np.float32)
ROWS = Var("rows", TensorType((12, 16), "float32"))
DENSE = call("nn.dense", ROWS, Constant(WEIGHTS))


def constant(*shape: int, seed: int = 1) -> Constant:
    return Constant(np.random.default_rng(seed).standard_normal(shape).astype(np.float32))


def module_of(result: Expr, *params: Var) -> Module:
    return Module(Function(params or (ROWS,), result, Attrs({"name": "main", "outputs": ("out",)})))


def operators(module: Module) -> list[str]:
    return [str(node.op) for node in calls(module.main.body)]


def check(module: Module) -> Module:
    after = with_reshapes_last(module)
    generator = np.random.default_rng(2)
    values = {each.name: generator.standard_normal(each.type.shape).astype(np.float32) for each in module.main.params}
    np.testing.assert_array_equal(evaluate(after, values)["out"], evaluate(module, values)["out"])
    return after


def tokens(value: Expr = DENSE) -> Call:
    return call("reshape", value, shape=(1, 3, 4, 32))


@pytest.mark.parametrize(
    "other", [(), (1,), (32,), (1, 32), (4, 1), (1, 3, 4, 1), (3, 1, 1), (3, 4, 32), (1, 3, 4, 32), (1, 1, 1, 1, 1)]
)
@pytest.mark.parametrize("swapped", [False, True])
def test_the_reshape_comes_last(other: tuple[int, ...], swapped: bool) -> None:
    operands = (tokens(), constant(*other))
    value = call("nn.add", *(operands[::-1] if swapped else operands))
    after = operators(check(module_of(value)))
    regroups = other not in ((4, 1), (3, 1, 1)) and len(other) < 5  # a part of the rows, or more axes than there are
    assert after == (["nn.dense", "nn.add", "reshape"] if regroups else ["nn.dense", "reshape", "nn.add"])


def test_a_dense_layer_of_tokens_is_one_kernel_with_bias_activation_and_residual() -> None:
    x = Var("x", TensorType((3, 4, 32), "float32"))
    biased = call("nn.add", constant(32), call("reshape", DENSE, shape=(3, 4, 32)))
    gelu = call("nn.multiply", biased, call("nn.erf", call("nn.multiply", biased, constant())))
    module = module_of(call("nn.add", x, gelu), ROWS, x)
    check(module)
    model = compiled(module)
    names = ("nn.dense", "nn.add", "nn.multiply", "nn.erf", "nn.multiply", "nn.add")
    assert next(layer.operators for layer in model.layers if layer.kind != "alias") == names
    generator = np.random.default_rng(3)
    values = {each.name: generator.standard_normal(each.type.shape).astype(np.float32) for each in (ROWS, x)}
    expected = evaluate(module, values)["out"]
    np.testing.assert_allclose(weft.load(model).run(values)["out"], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("swapped", [False, True])
def test_what_is_made_of_inputs_is_no_tensor_of_its_own(swapped: bool) -> None:
    """A velocity times the momentum waited in memory for the gradient, which is a reshaped product."""
    velocity = Var("velocity", TensorType((1, 3, 4, 32), "float32"))
    operands = (tokens(), call("nn.multiply", velocity, Constant(np.float32(0.9))))
    module = module_of(call("nn.add", *(operands[::-1] if swapped else operands)), ROWS, velocity)
    assert operators(check(module)).count("nn.multiply") == 1
    model = compiled(module)
    (kernel,) = (layer for layer in model.layers if layer.kind != "alias")
    assert sorted(kernel.operators) == ["nn.add", "nn.dense", "nn.multiply"]
    assert model.statistics["arena_bytes"] == 0


def test_the_slope_of_an_activation_is_part_of_the_product_behind_it() -> None:
    """It is made of a kept value, which a barrier sets apart."""
    x = Var("x", TensorType((12, 32), "float32"))
    before = call("reshape", call("barrier", x, Constant(np.array(1))), shape=(3, 4, 32))
    slope = call("nn.multiply", call("nn.exp", call("nn.negative", before)), constant(1))
    module = module_of(call("nn.multiply", call("reshape", DENSE, shape=(3, 4, 32)), slope), ROWS, x)
    after = check(module)
    layers = [layer.operators for layer in compiled(after).layers if layer.operators]
    assert any({"nn.dense", "nn.exp", "nn.multiply"} <= set(each) for each in layers)


@pytest.mark.parametrize(
    ("axes", "keepdims", "moved"),
    [((3,), True, True), ((3,), False, True), ((0, 1, 2), False, True), ((1, 2), True, True), ((0, 3), False, True),
     ((1,), True, False), ((2, 3), False, False), ((0,), False, False)],
)  # fmt: skip
def test_reductions_of_whole_axes_move_too(axes: tuple[int, ...], keepdims: bool, moved: bool) -> None:
    value = call("nn.reduce_max", tokens(), axes=axes, keepdims=keepdims)
    after = operators(check(module_of(value)))
    assert after[:2] == (["nn.dense", "nn.reduce_max"] if moved else ["nn.dense", "reshape"])


@pytest.mark.parametrize(
    "value",
    [
        call("nn.add", call("reshape", ROWS, shape=(3, 4, 16)), constant(16)),  # nothing takes the sum in
        call("nn.add", call("reshape", DENSE, shape=(12, 1, 32)), constant(12, 5, 32)),  # more elements than before
        call("nn.batch_norm", call("reshape", DENSE, shape=(1, 32, 12)), *(constant(32) for _ in range(4))),
        call("nn.softmax", tokens(), axis=3),
    ],
)
def test_what_stays(value: Call) -> None:
    module = module_of(value)
    assert with_reshapes_last(module) is module


def test_scalar_quantisation_moves_and_one_along_an_axis_stays() -> None:
    def quantised(*shape: int) -> Call:
        scale, zero = Constant(np.full(shape, 0.1, np.float32)), Constant(np.zeros(shape, np.int8))
        return call("quantise", tokens(), scale, zero, axis=1)

    assert operators(check(module_of(quantised()))) == ["nn.dense", "quantise", "reshape"]
    assert operators(check(module_of(quantised(3)))) == ["nn.dense", "reshape", "quantise"]


def shapes_of(size: int) -> st.SearchStrategy[tuple[int, ...]]:
    factors = st.lists(st.sampled_from([1, 2, 3, 4, 6]), max_size=4)
    return factors.filter(lambda found: size % prod(found) == 0).flatmap(
        lambda found: st.permutations([*found, size // prod(found)]).map(tuple)
    )


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_random_reshapes_and_operands_keep_every_bit(data: st.DataObject) -> None:
    shape = data.draw(shapes_of(12 * 32))
    value: Expr = call("reshape", DENSE, shape=shape)
    for number in range(data.draw(st.integers(1, 3))):
        kept = data.draw(st.tuples(*[st.booleans()] * len(shape)))
        other = tuple(size if keep else 1 for size, keep in zip(shape, kept, strict=True))
        other = other[data.draw(st.integers(0, len(other))) :]
        value = call(data.draw(st.sampled_from(["nn.add", "nn.maximum"])), value, constant(*other, seed=number))
    if data.draw(st.booleans()):
        axes = tuple(axis for axis in range(len(shape)) if data.draw(st.booleans()))
        value = call("nn.reduce_max", value, axes=axes or (0,), keepdims=data.draw(st.booleans()))
    check(module_of(value))
