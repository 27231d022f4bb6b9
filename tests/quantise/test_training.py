"""Training in 8 bits: gradients of rounding, and integers that are those of the accelerator."""

from __future__ import annotations

import numpy as np
import pytest
import weft
from weft.compiler.graph import Array, Attrs, Constant, Function, Module, TensorType, Var, call, evaluate
from weft.compiler.operators import contract, nn
from weft.hw.config import PYNQ
from weft.quantise import GRADIENTS, Plan, QuantiseError, Range, calibrate, deployed, plan, quantised, trainable
from weft.train import Training, adam, cross_entropy

from .networks import NETWORKS, Weights, convolution, examples, module_of, relu

IMAGES, CLASSES, SIZE = 16, 3, 6


def classifier(batch: int) -> Module:
    w, x = Weights(7), Var("x", TensorType((batch, 1, SIZE, SIZE), "float32"))
    y = relu(convolution(relu(convolution(x, w, 8)), w, 8, groups=8))
    pooled = contract.reshape(nn.average_pool(y, kernel=(SIZE, SIZE)), shape=(batch, 8))
    return module_of(nn.add(nn.dense(pooled, w(CLASSES, 8)), w(CLASSES)), params=(x,))


def data(seed: int = 0) -> dict[str, Array]:
    """Stripes: along rows, along columns, and none."""
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, CLASSES, IMAGES)
    stripes = np.where(np.arange(SIZE) % 2, 1.0, -1.0)
    patterns = np.stack([np.tile(stripes, (SIZE, 1)), np.tile(stripes, (SIZE, 1)).T, np.zeros((SIZE, SIZE))])
    noise = generator.normal(size=(IMAGES, 1, SIZE, SIZE)) * 0.3
    return {"x": (patterns[labels][:, None] + noise).astype(np.float32), "labels": labels}


def ranges_of(found: Plan, batch: int) -> dict[str, Range]:
    images = data()["x"]
    return calibrate(found, [{"x": images[start : start + batch]} for start in range(0, IMAGES, batch)])


@pytest.mark.parametrize("power_of_two", [False, True])
def test_what_was_trained_is_what_the_core_computes(power_of_two: bool) -> None:
    """From one plan at two batch sizes: the loss falls, and core and processor give the same integers."""
    large, small = plan(classifier(IMAGES)), plan(classifier(1))
    ranges = ranges_of(small, 1)
    eight = trainable(large, ranges, power_of_two=power_of_two)
    step = adam(cross_entropy(eight.module), list(eight.start), custom=GRADIENTS)
    loaded = weft.load(weft.compile(step.module, target="cpu", strict=True))
    training = Training(step, eight.start, loaded)
    losses = [float(training.step(data(number), 0.02)["loss"]) for number in range(40)]
    assert np.mean(losses[-5:]) < 0.4 * np.mean(losses[:5])
    values = training.parameters
    final = deployed(trainable(small, ranges, power_of_two=power_of_two), values)
    compiled = weft.compile(final, PYNQ)
    moves = {"quantise", "pad", "reshape", "transpose", "slice", "unfold", "dequantise"}
    assert {op for layer in compiled.layers if layer.device != "core" for op in layer.operators} <= moves
    core, cpu = weft.load(compiled), weft.load(weft.compile(final, target="cpu"))
    exponent = values[f"{list(small.values)[-1]}.log2_scale"]
    scale = float(np.exp2(np.round(exponent) if power_of_two else exponent))
    for image in data(99)["x"]:
        found = core.run({"x": image[None]})["y0"]
        np.testing.assert_array_equal(found, cpu.run({"x": image[None]})["y0"])
        # The simulation of rounding in floats is that of training; it rounds ties the other way.
        assert np.abs(found - evaluate(final, {"x": image[None]})["y0"]).max() <= 2.01 * scale


def normalised(groups: int) -> Module:
    """Convolutions around a normalisation of 8 channels in groups, each an image of its own where there are 8."""
    w, x = Weights(8), Var("x", TensorType((1, 3, 12, 12), "float32"))
    y = contract.reshape(convolution(x, w, 8), shape=(1, groups, 8 // groups * 144))
    centred = nn.subtract(y, nn.reduce_mean(y, axes=(2,), keepdims=True))
    variance = nn.reduce_mean(nn.multiply(centred, centred), axes=(2,), keepdims=True)
    y = nn.divide(centred, nn.sqrt(nn.add(variance, Constant(np.array(1e-5, np.float32)))))
    y = nn.add(nn.multiply(contract.reshape(y, shape=(1, 8, 12, 12)), w(1, 8, 1, 1)), w(1, 8, 1, 1))
    return module_of(convolution(relu(y), w, 4), params=(x,))


@pytest.mark.parametrize("groups", [8, 2])
def test_normalisations_in_integers_are_the_same_on_core_and_processor(groups: int) -> None:
    found = plan(normalised(groups))
    eight = trainable(found, calibrate(found, examples(found.module)))
    moved = {name: value + np.float32(0.0137) for name, value in eight.start.items()}
    final = deployed(eight, moved)
    core = weft.load(weft.compile(final, PYNQ, integers="all"))
    cpu = weft.load(weft.compile(final, target="cpu", integers="all"))
    for inputs in examples(found.module, 8, seed=5):
        np.testing.assert_array_equal(core.run(inputs)["y0"], cpu.run(inputs)["y0"])


@pytest.mark.parametrize("name", NETWORKS)
def test_training_starts_where_calibration_ended(name: str) -> None:
    """The same integers, but where 2 ** log2(scale) is rounded to the other side."""
    found = plan(NETWORKS[name]())
    ranges = calibrate(found, examples(found.module))
    eight = trainable(found, ranges)
    one, other = quantised(found, ranges), deployed(eight, eight.start)
    for inputs in examples(found.module, 2, seed=3):
        for expected, value in zip(evaluate(one, inputs).values(), evaluate(other, inputs).values(), strict=True):
            assert np.abs(expected - value).max() <= 0.02 * np.abs(expected).max()


def fake(x: Var, scale: Var, zero_point: int, axis: int = 1) -> Module:
    zero = Constant(np.full(scale.shape, zero_point, np.int8))
    eight = call("dequantise", call("quantise", x, scale, zero, axis=axis), scale, zero, axis=axis)
    weights = Constant(np.random.default_rng(0).normal(size=x.shape).astype(np.float32))
    loss = nn.reduce_sum(nn.multiply(eight, weights), axes=tuple(range(len(x.shape))))
    return Module(Function((x, scale), loss, Attrs({"name": "main", "outputs": ("loss",)})))


@pytest.mark.parametrize("shape", [(), (3,)])
@pytest.mark.parametrize("zero_point", [0, -128, 100])
def test_gradients_of_rounding_are_those_of_the_definition(shape: tuple[int, ...], zero_point: int) -> None:
    generator = np.random.default_rng(1)
    x = generator.normal(size=(4, 3, 5)).astype(np.float32) * 100
    scale = generator.uniform(0.3, 0.8, shape).astype(np.float32)
    module = fake(Var("x", TensorType(x.shape, "float32")), Var("s", TensorType(shape, "float32")), zero_point)
    found = evaluate(weft.grad(module, wrt=["x", "s"], custom=GRADIENTS), {"x": x, "s": scale})
    spread = scale.reshape(1, -1, 1) if shape else scale
    upstream = np.random.default_rng(0).normal(size=x.shape).astype(np.float32)
    steps = x / spread
    low, high = -128 - zero_point, 127 - zero_point
    inside = (steps >= low) & (steps <= high)
    assert 0.05 < inside.mean() < 0.99
    np.testing.assert_allclose(found["grad_x"], np.where(inside, upstream, 0), rtol=1e-6)
    per_scale = np.where(inside, np.rint(steps) - steps, np.clip(steps, low, high)) * upstream
    elements = x.size // max(1, scale.size)
    expected = per_scale.sum((0, 2)) if shape else per_scale.sum()
    np.testing.assert_allclose(found["grad_s"], expected / np.sqrt(elements * 127), rtol=1e-3, atol=1e-3)


def test_bad_values_are_refused() -> None:
    found = plan(classifier(1))
    ranges = ranges_of(found, 1)
    eight = trainable(found, ranges)
    start = eight.start
    with pytest.raises(QuantiseError, match=r"'x' has no range; hint: calibrate"):
        trainable(found, {})
    with pytest.raises(QuantiseError, match=r"'q' is not among what is trained"):
        deployed(eight, {**start, "q": np.zeros(1)})
    with pytest.raises(QuantiseError, match=r"'w1' must be float32\[8, 1, 3, 3\], not float64\[8, 1, 3, 3\]"):
        deployed(eight, {**start, "w1": start["w1"].astype(np.float64)})
    for name in ("x.log2_scale", "w1"):
        with pytest.raises(QuantiseError, match=f"'{name}' has no value; hint: give all that was trained"):
            deployed(eight, {other: value for other, value in start.items() if other != name})
