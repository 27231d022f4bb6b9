"""Float networks in 8 bits: close to the float ones, and the same integers on every target."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import weft
from weft.compiler.graph import Array, Call, Constant, Module, TensorType, Var, calls, evaluate
from weft.compiler.operators import contract, nn
from weft.hw.config import PYNQ
from weft.quantise import Plan, QuantiseError, Range, calibrate, plan, quantised

from .networks import NETWORKS, Weights, convolution, examples, image, module_of, random_network

CORE_ONLY = {"conv2d", "nn.conv2d", "nn.dense", "max_pool", "nn.max_pool", "sum_pool", "nn.average_pool"}
"""Operators that the host has no part in."""


def in_eight_bits(module: Module) -> tuple[Plan, Module]:
    found = plan(module)
    return found, quantised(found, calibrate(found, examples(module)))


def noise(expected: Array, found: Array) -> float:
    """In decibels below the signal."""
    return float(10 * np.log10((expected.astype(np.float64) ** 2).sum() / ((expected - found) ** 2).sum()))


@pytest.mark.parametrize("name", NETWORKS)
def test_networks_are_close_and_the_same_on_core_and_processor(name: str) -> None:
    module = NETWORKS[name]()
    _, eight = in_eight_bits(module)
    compiled = weft.compile(eight, PYNQ)
    core, cpu = weft.load(compiled), weft.load(weft.compile(eight, target="cpu"))
    assert not {op for layer in compiled.layers if layer.device != "core" for op in layer.operators} & CORE_ONLY
    for inputs in examples(module, 4, seed=9):
        expected, found, again = evaluate(module, inputs), core.run(inputs), cpu.run(inputs)
        for output, value in expected.items():
            assert noise(value, found[output]) > 22
            np.testing.assert_array_equal(found[output], again[output])


@pytest.mark.parametrize("seed", range(12))
def test_random_networks_are_close_and_the_same_on_core_and_processor(seed: int) -> None:
    module = random_network(seed)
    _, eight = in_eight_bits(module)
    core, cpu = weft.load(weft.compile(eight, PYNQ)), weft.load(weft.compile(eight, target="cpu"))
    inputs = examples(module, 1)[0]
    expected, found, again = evaluate(module, inputs), core.run(inputs), cpu.run(inputs)
    for output, value in expected.items():
        assert noise(value, found[output]) > 20
        np.testing.assert_array_equal(found[output], again[output])


@pytest.mark.parametrize("name", NETWORKS)
def test_every_product_has_eight_bits_on_all_sides(name: str) -> None:
    """By the graph, whatever the planner says."""
    found, eight = in_eight_bits(NETWORKS[name]())
    products = [node for node in calls(eight.main.body) if node.op in ("nn.conv2d", "nn.dense", "nn.matmul")]
    assert products
    assert len(found.weights) + 2 * (name == "attention") == len(products)
    for node in products:
        for arg in node.args:
            while isinstance(arg, Call) and arg.op in ("reshape", "transpose", "nn.max_pool"):
                arg = arg.args[0]
            assert isinstance(arg, Call)
            assert arg.op == "dequantise"


def test_functions_of_one_value_are_one_place() -> None:
    """Swish: no 8 bits between the sigmoid and the product; the gate of a channel is a place."""
    found = plan(NETWORKS["squeeze_excite"]())
    kinds = [value.op for value in found.values.values() if isinstance(value, Call)]
    assert kinds == [
        "nn.add", "nn.multiply", "nn.reduce_mean", "nn.clip", "nn.add", "nn.sigmoid", "nn.multiply", "nn.add",
    ]  # fmt: skip


def test_offsets_join_a_product_whose_channels_were_moved() -> None:
    """To the front, and from the last axis: perm and its inverse differ."""
    w, x = Weights(), Var("x", TensorType((6, 8), "float32"))
    stack = contract.reshape(nn.dense(x, w(5, 8)), shape=(1, 6, 5))
    module = module_of(nn.add(contract.transpose(stack, perm=(2, 0, 1)), w(5, 1, 1)), params=(x,))
    found, eight = in_eight_bits(module)
    assert [value.op for value in found.values.values() if isinstance(value, Call)] == ["nn.add"]
    inputs = examples(module, 1)[0]
    result = weft.load(weft.compile(eight, PYNQ)).run(inputs)["y0"]
    assert noise(evaluate(module, inputs)["y0"], result) > 30
    np.testing.assert_array_equal(result, weft.load(weft.compile(eight, target="cpu")).run(inputs)["y0"])


def test_normalisations_stay_in_floats() -> None:
    found = plan(NETWORKS["attention"]())
    kinds = [value.op for value in found.values.values() if isinstance(value, Call)]
    assert not {"nn.reduce_mean", "nn.subtract", "nn.divide", "nn.sqrt"} & set(kinds)
    assert kinds.count("nn.softmax") == 1


def test_what_floats_alone_read_gets_no_eight_bits_between() -> None:
    """The turned half of rotary positions: negative, and put together again, before floats multiply it."""
    w, x = Weights(), Var("x", TensorType((1, 32), "float32"))
    angle = Var("angle", TensorType((1, 32), "float32"))
    query = nn.dense(x, w(32, 32))
    low, high = (contract.slice(query, starts=(0, start), sizes=(1, 16), steps=(1, 1)) for start in (0, 16))
    turned = contract.concat(nn.negative(high), low, axis=1)
    cosine, sine = nn.sqrt(angle), nn.exp(angle)
    module = module_of(nn.add(nn.multiply(query, cosine), nn.multiply(turned, sine)), params=(x, angle))
    assert [value.op for value in plan(module).values.values() if isinstance(value, Call)] == ["nn.dense"]
    # A product that reads the same makes it 8 bits.
    product = module_of(nn.dense(turned, w(8, 32)), params=(x,))
    assert "concat" in [value.op for value in plan(product).values.values() if isinstance(value, Call)]


def test_weights_have_a_scale_a_channel_and_no_zero_point() -> None:
    module = NETWORKS["plain"]()
    found, eight = in_eight_bits(module)
    pairs = [
        (node.args[0].value, node.args[1].value, node.args[2].value) for node in calls(eight.main.body)
        if node.op == "dequantise" and isinstance(node.args[0], Constant) and isinstance(node.args[1], Constant)
        and isinstance(node.args[2], Constant)
    ]  # fmt: skip
    originals = {weight.value.shape: weight.value.value for weight in found.weights.values()}
    assert len(pairs) == 3
    for integers, scale, zero in pairs:
        original = originals[integers.shape]
        assert scale.shape == (len(original),)
        assert not zero.any()
        assert (np.abs(integers).reshape(len(integers), -1).max(1) == 127).all()
        back = integers * scale.reshape(-1, *[1] * (original.ndim - 1))
        assert (np.abs(back - original) <= 0.5001 * scale.reshape(-1, *[1] * (original.ndim - 1))).all()


def test_a_channel_without_weights_and_a_place_that_is_always_zero() -> None:
    w, x = Weights(), image()
    dead = Constant(np.zeros((4, 3, 3, 3), np.float32), "dead")
    module = module_of(convolution(nn.conv2d(x, dead, pads=(1, 1, 1, 1)), w, 4), params=(x,))
    _, eight = in_eight_bits(module)
    inputs = examples(module, 1)[0]
    found, expected = weft.load(weft.compile(eight, PYNQ)).run(inputs)["y0"], evaluate(module, inputs)["y0"]
    assert noise(expected, found) > 30


def test_what_cannot_be_quantised_is_refused() -> None:
    module = NETWORKS["plain"]()
    found, eight = in_eight_bits(module)
    with pytest.raises(QuantiseError, match=r"the model is quantised already; hint: give the float model"):
        plan(eight)
    with pytest.raises(QuantiseError, match=r"'x' has no range; hint: calibrate the plan"):
        quantised(found, {})
    with pytest.raises(QuantiseError, match=r"'model.onnx' is no module of the graph IR; hint: "):
        plan("model.onnx")  # type: ignore[arg-type]
    x = image()
    with pytest.raises(QuantiseError, match=r"no convolution and no product with weights"):
        plan(module_of(nn.add(x, x), params=(x,)))
    assert Range(0.0, 0.0).scale == 1.0


TAKES_A_PLAN: dict[str, Callable[[Any, Any], object]] = {
    "calibrate": calibrate,
    "equalised": weft.quantise.equalised,
    "refined": lambda plan, examples: weft.quantise.refined(plan, {}, examples),
    "four_bits_that_pay": lambda plan, examples: weft.quantise.four_bits_that_pay(plan, {}, examples, weft.compile),
    "quantised": lambda plan, _: quantised(plan, {}),
    "four_bits": lambda plan, _: weft.quantise.four_bits(plan, 64),
    "trainable": lambda plan, _: weft.quantise.trainable(plan, {}),
}


@pytest.mark.parametrize("name", TAKES_A_PLAN)
def test_a_module_in_place_of_its_plan_is_refused(name: str) -> None:
    with pytest.raises(QuantiseError, match=r"Module.* is no plan; hint: weft.quantise.plan\(module\) makes one"):
        TAKES_A_PLAN[name](NETWORKS["plain"](), [])


@pytest.mark.parametrize("name", list(TAKES_A_PLAN)[:4])
@pytest.mark.parametrize("examples", [{"x": np.zeros(2)}, "images.npz", None])
def test_the_inputs_of_one_example_are_no_examples(name: str, examples: object) -> None:
    with pytest.raises(QuantiseError, match=r"examples is .*, but must be a list of inputs by name; hint: of one"):
        TAKES_A_PLAN[name](plan(NETWORKS["plain"]()), examples)
