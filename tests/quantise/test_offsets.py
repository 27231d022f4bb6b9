"""Offsets behind products: whole in the product's unit, so that a core adds them without multiplying its sums."""

from __future__ import annotations

import numpy as np
import pytest
import weft
from weft.compiler.graph import Call, Constant, Expr, Module, TensorType, Var, calls
from weft.compiler.operators import contract, nn
from weft.hw.config import PYNQ
from weft.quantise.offsets import with_whole_offsets

from .networks import NETWORKS, Weights, convolution, examples, image, module_of, relu

PRODUCTS = ("nn.conv2d", "nn.dense")


def quantised(module: Module) -> Module:
    plan = weft.quantise.plan(module)
    made: Module = weft.quantise.quantised(plan, weft.quantise.calibrate(plan, examples(module)))
    return made


def steps_of(module: Module) -> list[np.ndarray]:
    """Offsets right behind a product, in units of its sums."""
    found = []
    for node in calls(module.main.body):
        if node.op not in ("nn.add", "nn.subtract"):
            continue
        constant = next((arg for arg in node.args if isinstance(arg, Constant)), None)
        product = next((arg for arg in node.args if isinstance(arg, Call) and arg.op in PRODUCTS), None)
        if constant is None or product is None:
            continue
        scales: list[np.ndarray] = []
        for arg in product.args:
            while isinstance(arg, Call) and arg.op != "dequantise":
                arg = arg.args[0]
            scales.append(arg.args[1].value.astype(np.float64))  # type: ignore[attr-defined]
        found.append(constant.value.reshape(-1) / (scales[0] * scales[1]))
    return found


def multiplied(module: Module) -> int:
    """Layers on the core that multiply their sums by a constant."""
    compiled = weft.compile(module, PYNQ)
    assert isinstance(compiled, weft.CompiledModel)
    return sum("packed_multiply_immediate" in layer.operators for layer in compiled.layers)


@pytest.mark.parametrize("name", NETWORKS)
def test_offsets_are_whole(name: str) -> None:
    for steps in steps_of(quantised(NETWORKS[name]())):
        np.testing.assert_allclose(steps, np.rint(steps), rtol=2**-22)


def pooled_and_subtracted() -> Module:
    """Moves before a product, and offsets that are taken off."""
    w, x = Weights(), image()
    y = nn.max_pool(relu(convolution(x, w, 8)), kernel=(2, 2), strides=(2, 2))
    rows = contract.reshape(y, shape=(1, 72))
    return module_of(nn.subtract(nn.dense(rows, w(5, 72)), w(5)), params=(x,))


def test_they_are_found_behind_moves_and_where_they_are_taken_off() -> None:
    every = steps_of(quantised(pooled_and_subtracted()))
    assert len(every) == 2
    for steps in every:
        np.testing.assert_allclose(steps, np.rint(steps), rtol=2**-22)


def test_the_core_multiplies_no_sum() -> None:
    assert multiplied(quantised(pooled_and_subtracted())) == 0


def test_trained_ones_as_well() -> None:
    plan = weft.quantise.plan(pooled_and_subtracted())
    eight = weft.quantise.trainable(plan, weft.quantise.calibrate(plan, examples(pooled_and_subtracted())))
    assert multiplied(weft.quantise.deployed(eight, eight.start)) == 0


def product(weights: np.ndarray, offset: np.ndarray, *, scales: np.ndarray | None = None) -> Module:
    """A dense layer of 8 bits with an offset; the input has steps of 1/8, the weights of 1/4."""
    x = Var("x", TensorType((1, weights.shape[1]), "float32"))

    def eight(value: Expr, scale: np.ndarray, zero: np.ndarray) -> Expr:
        return contract.dequantise(value, Constant(scale), Constant(zero), axis=0)

    step, zero = np.array(0.125, np.float32), np.zeros((), np.int8)
    rounded = eight(contract.quantise(x, Constant(step), Constant(zero)), step, zero)
    by_channel = np.full(len(weights), 0.25, np.float32) if scales is None else scales
    w = eight(Constant(weights), by_channel, np.zeros(by_channel.shape, np.int8))
    return module_of(nn.add(nn.dense(rounded, w), Constant(offset)), params=(x,))


def offset_of(module: Module) -> np.ndarray:
    body = with_whole_offsets(module).main.body
    assert isinstance(body, Call)
    constant = next(arg for arg in body.args if isinstance(arg, Constant))
    return constant.value


def test_a_channel_without_weights_keeps_its_offset() -> None:
    module = product(np.array([[3, -4], [0, 0]], np.int8), np.array([0.1, 0.1], np.float32))
    np.testing.assert_array_equal(offset_of(module), np.array([0.09375, 0.1], np.float32))


def test_one_scale_serves_all_channels() -> None:
    weights = np.array([[3, -4], [5, 6]], np.int8)
    module = product(weights, np.array([0.1, 0.2], np.float32), scales=np.array(0.25, np.float32))
    np.testing.assert_array_equal(offset_of(module), np.array([0.09375, 0.1875], np.float32))


def test_a_product_in_floats_keeps_its_offset() -> None:
    module = pooled_and_subtracted()
    assert with_whole_offsets(module).main.body == module.main.body or all(
        np.array_equal(a.value, b.value)
        for a, b in zip(_constants(module), _constants(with_whole_offsets(module)), strict=True)
    )


def _constants(module: Module) -> list[Constant]:
    return [arg for node in calls(module.main.body) for arg in node.args if isinstance(arg, Constant)]
