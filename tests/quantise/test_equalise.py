"""Equalisation: the same function of floats, closer in 8 bits where channels are unlike."""

from __future__ import annotations

import numpy as np
import pytest
import weft
from weft.compiler.graph import Array, Constant, Expr, Module, calls, evaluate
from weft.compiler.operators import contract, nn
from weft.hw.config import PYNQ
from weft.quantise import Plan, QuantiseError, calibrate, equalised, plan, quantised

from .networks import NETWORKS, Weights, convolution, examples, image, module_of, random_network, relu
from .test_quantised import noise


def values(module: Module, inputs: dict[str, Array]) -> list[Array]:
    return list(evaluate(module, inputs).values())


@pytest.mark.parametrize("network", [*NETWORKS, *range(8)])
def test_the_function_of_floats_stays(network: str | int) -> None:
    """On the examples, and without an upper end of a clamp on all inputs; places and weights keep their names."""
    module = random_network(network) if isinstance(network, int) else NETWORKS[network]()
    found = plan(module)
    like = equalised(found, examples(module))
    assert list(like.values) == list(found.values)
    assert [each.name for each in like.weights.values()] == [each.name for each in found.weights.values()]
    for inputs in examples(module, 4) if network == "depthwise" else examples(module, 3, seed=5):
        for expected, value in zip(values(module, inputs), values(like.module, inputs), strict=True):
            np.testing.assert_allclose(value, expected, rtol=1e-4, atol=1e-4 * np.abs(expected).max())


def unequal(kind: str, clamp: float = float("inf")) -> Module:
    """Channels of sizes from 1 to 64, in one of the forms in which networks have them."""
    w, x = Weights(3), image(4)
    sizes = (2.0 ** np.arange(0, 6.4, 0.4)).astype(np.float32)

    def made(value: Expr, outputs: int = 16, kernel: int = 3, groups: int = 1) -> Expr:
        shape = outputs, value.shape[1] // groups, kernel, kernel
        scaled = Constant(w(*shape).value * sizes.reshape(16, 1, 1, 1), f"weight{w.count}")
        offsets = Constant(w(1, outputs, 1, 1).value * 0.3 * sizes.reshape(1, 16, 1, 1), f"offset{w.count}")
        return nn.add(nn.conv2d(value, scaled, pads=(kernel // 2,) * 4, groups=groups), offsets)

    def read(value: Expr, outputs: int, kernel: int) -> Expr:
        inverse = Constant(w(outputs, 16, kernel, kernel).value / sizes.reshape(1, 16, 1, 1), f"weight{w.count}")
        return nn.add(nn.conv2d(value, inverse, pads=(kernel // 2,) * 4), w(1, outputs, 1, 1))

    y = nn.clip(made(x), low=0.0, high=clamp)
    match kind:
        case "pair":
            return module_of(read(y, 4, 3), params=(x,))
        case "pooled":
            return module_of(read(nn.max_pool(y, kernel=(2, 2), strides=(2, 2)), 4, 1), params=(x,))
        case "residual":
            stream = nn.add(made(x), relu(made(read(y, 4, 3))))
            return module_of(nn.add(read(stream, 4, 3), read(nn.clip(stream, low=0.0), 4, 1)), params=(x,))
        case "gated":
            gate = nn.sigmoid(convolution(nn.reduce_mean(x, axes=(2, 3), keepdims=True), w, 16, 1))
            return module_of(read(nn.multiply(gate, y), 4, 3), params=(x,))
        case "gate that is read":
            gate = relu(made(x))
            product = relu(nn.multiply(y, nn.reduce_mean(gate, axes=(2, 3), keepdims=True)))
            return module_of(nn.add(read(product, 4, 3), read(gate, 4, 1)), params=(x,))
        case "flat":
            inverse = Constant((w(5, 16, 9).value / sizes[:, None]).reshape(5, 144), "dense")
            pooled = contract.reshape(nn.average_pool(y, kernel=(2, 2), strides=(2, 2)), shape=(1, 144))
            return module_of(nn.add(nn.dense(pooled, inverse), w(5)), params=(x,))
    assert kind == "groups"
    inner = nn.conv2d(y, Constant(w(16, 4, 1, 1).value / sizes[:, None, None, None], "inner"), groups=4)
    return module_of(relu(nn.add(inner, w(1, 16, 1, 1))), params=(x,))


def decibels(found: Plan, module: Module) -> float:
    """Of all outputs in 8 bits, on other inputs than those of the calibration."""
    eight = quantised(found, calibrate(found, examples(module, 16)))
    loaded = weft.load(weft.compile(eight, target="cpu"))
    pairs = [(values(module, each)[0], next(iter(loaded.run(each).values()))) for each in examples(module, 8, seed=9)]
    return noise(np.stack([one for one, _ in pairs]), np.stack([other for _, other in pairs]))


@pytest.mark.parametrize("kind", ["pair", "pooled", "residual", "gated", "flat"])
def test_unlike_channels_get_closer(kind: str) -> None:
    module = unequal(kind)
    found = plan(module)
    like = equalised(found, examples(module, 16))
    inputs = examples(module, 1, seed=7)[0]
    expected = values(module, inputs)[0]
    np.testing.assert_allclose(values(like.module, inputs)[0], expected, atol=2e-5 * np.abs(expected).max())
    assert decibels(like, module) > decibels(found, module) + 4


@pytest.mark.parametrize("kind", ["groups", "gate that is read"])
def test_only_what_belongs_together_is_divided(kind: str) -> None:
    module = unequal(kind)
    like = equalised(plan(module), examples(module))
    assert like.module != plan(module).module
    inputs = examples(module, 1, seed=7)[0]
    expected = values(module, inputs)[0]
    np.testing.assert_allclose(values(like.module, inputs)[0], expected, atol=2e-5 * np.abs(expected).max())


def test_a_clamp_keeps_channels_that_reach_it_and_leaves_others_room() -> None:
    """On inputs of three times the size, only what was cut off before is."""
    module = unequal("pair", clamp=20.0)
    found, given = plan(module), examples(module, 4)
    like = equalised(found, given)
    assert like.module != found.module
    for inputs in given:
        expected = values(module, inputs)[0]
        np.testing.assert_allclose(values(like.module, inputs)[0], expected, atol=2e-5 * np.abs(expected).max())
    before, after = (next(node.args[0] for node in calls(each.module.main.body) if node.op == "nn.clip")
                     for each in (found, like))  # fmt: skip
    seen: list[list[Array]] = [[], []]
    for inputs in given:
        for each, clamped, into in ((found, before, seen[0]), (like, after, seen[1])):
            evaluate(each.module, inputs, lambda node, value, clamped=clamped, into=into:  # type: ignore[misc]
                     into.append(np.asarray(value)) if node == clamped else None)  # fmt: skip
    one, other = (np.concatenate(each).max(axis=(0, 2, 3)) for each in seen)
    reaches = one >= 20
    assert 0 < reaches.sum() < 16
    np.testing.assert_allclose(other[reaches], one[reaches], rtol=1e-5)
    assert (other[~reaches] < np.maximum(20 / 2 + 1e-3, one[~reaches] * 1.0001)).all()
    assert other[~reaches].max() > 1.5 * one[~reaches].min()


def test_what_cannot_be_divided_stays_as_it_is() -> None:
    w, x = Weights(), image(4)
    y = convolution(x, w, 8)
    module = module_of(convolution(nn.multiply(y, nn.sigmoid(y)), w, 4), y, params=(x,))
    found = plan(module)
    assert equalised(found, examples(module)).module == found.module


def test_channels_without_a_value_keep_their_weights() -> None:
    w, x = Weights(), image(4)
    dead = w(8, 4, 3, 3).value.copy()
    dead[3] = 0
    y = relu(nn.conv2d(x, Constant(dead, "some"), pads=(1, 1, 1, 1)))
    module = module_of(convolution(y, w, 4), params=(x,))
    like = equalised(plan(module), examples(module))
    inputs = examples(module, 1, seed=2)[0]
    np.testing.assert_allclose(values(like.module, inputs)[0], values(module, inputs)[0], atol=1e-4)


def test_core_and_processor_agree() -> None:
    module = unequal("residual")
    like = equalised(plan(module), examples(module))
    eight = quantised(like, calibrate(like, examples(module)))
    core, cpu = weft.load(weft.compile(eight, PYNQ)), weft.load(weft.compile(eight, target="cpu"))
    inputs = examples(module, 1, seed=3)[0]
    np.testing.assert_array_equal(core.run(inputs)["y0"], cpu.run(inputs)["y0"])


def test_examples_are_wanted_and_reported() -> None:
    module = NETWORKS["plain"]()
    with pytest.raises(QuantiseError, match=r"there are no examples to equalise with"):
        equalised(plan(module), [])
    lines: list[str] = []
    equalised(plan(module), examples(module, 2), progress=lines.append)
    assert lines == ["channels: batch 1", "channels: batch 2", "equalising: 1 of 2", "equalising: 2 of 2"]
