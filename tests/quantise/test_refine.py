"""Rounding that is learned and offsets that are corrected: less is lost, by brute force and by definition."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import weft
from weft.compiler.graph import Array, Constant, Expr, Function, Module, TensorType, Var, calls, evaluate, substitute
from weft.compiler.operators import contract, nn
from weft.hw.config import PYNQ
from weft.quantise import Plan, QuantiseError, Range, calibrate, plan, quantised, refined
from weft.quantise.adaround import moments, rounded_weights
from weft.quantise.insert import weight_scale

from .networks import NETWORKS, Weights, convolution, examples, image, module_of, random_network, relu
from .test_quantised import noise


def sample(depth: int, count: int, seed: int) -> tuple[Array, Array, Array]:
    """Weights (1, 6, depth), inputs (1, depth, count) that depend on each other and are not 0 in the mean, results."""
    generator = np.random.default_rng(seed)
    mixed = generator.normal(size=(depth, depth)) @ generator.normal(size=(depth, count)) + 1
    weights = generator.normal(size=(1, 6, depth)) * 5
    results = weights @ mixed[None] + generator.normal(size=(1, 6, count)) + 2
    return weights, mixed[None], results


@pytest.mark.parametrize("centred", [False, True])
def test_moments_tell_the_error_of_any_weights(centred: bool) -> None:
    weights, x, y = sample(8, 50, 0)
    found = moments([(x[:, :, :20], y[:, :, :20]), (x[:, :, 20:], y[:, :, 20:])], weights, centred=centred)

    def error(of: Array) -> Array:
        left = y - of @ x
        return np.asarray((left.var(axis=2) if centred else (left**2).mean(axis=2))[0])

    changed = weights + np.random.default_rng(1).normal(size=weights.shape)
    d = (changed - weights)[0]
    predicted = ((d @ found.inputs[0]) * d).sum(1) - 2 * (d * found.missing[0]).sum(1)
    np.testing.assert_allclose(predicted, error(changed) - error(weights), rtol=1e-8)


@pytest.mark.parametrize("seed", range(3))
def test_roundings_are_nearly_the_best_of_all(seed: int) -> None:
    """Against all 512 roundings of each row."""
    weights, x, y = sample(9, 4000, seed)
    scale = np.full(weights.shape, 0.7)
    found = moments([(x, y)], weights, centred=True)
    real = weights / scale

    def lost(steps: Array) -> Array:
        return np.asarray((y - steps * scale @ x).var(axis=2)[0])

    chosen = rounded_weights(real, scale, found)
    ups = np.array(list(itertools.product((0, 1), repeat=9)))
    best = np.min([lost(np.floor(real) + up) for up in ups], axis=0)
    nearest, own = lost(np.rint(real)), lost(chosen)
    assert np.isin(chosen - np.floor(real), (0, 1)).all()
    assert (own <= nearest * 1.001).all()
    assert np.mean((own - best) / (nearest - best + 1e-9)) < 0.35


def test_weights_at_the_end_of_eight_bits_stay_there() -> None:
    weights, x, y = sample(9, 100, 5)
    real = np.where(np.arange(9) % 2, 127.0, -127.0) * np.ones((1, 6, 1)) + 1e-9
    chosen = rounded_weights(real, np.ones_like(real), moments([(x, y)], weights, centred=False))
    np.testing.assert_array_equal(np.abs(chosen), 127)


def decibels(found: Plan, ranges: dict[str, Range], module: Module, seed: int) -> float:
    eight = quantised(found, ranges)
    pairs = [(evaluate(module, each), evaluate(eight, each)) for each in examples(module, 6, seed=seed)]
    found_noise = [noise(one[name], other[name]) for one, other in pairs for name in one
                   if (one[name] != other[name]).any()]  # fmt: skip
    return float(np.mean(found_noise))


def coarse(found: Plan) -> Plan:
    """The plan with an outlier in each output channel of each weight, so that steps of weights are what is lost."""
    generator = np.random.default_rng(0)
    module = found.module
    changed: dict[Expr, Expr] = {}
    for weight in found.weights.values():
        value = weight.value.value.copy()
        if weight.axis == 0 and value[0].size > 4:
            flat = value.reshape(len(value), -1)
            flat[np.arange(len(flat)), generator.integers(flat.shape[1], size=len(flat))] = 12 * np.abs(flat).max()
        changed[weight.value] = Constant(value, weight.value.name)
    main = module.main
    return plan(Module(Function(main.params, substitute(main.body, changed), main.attrs), module.stage))


def test_less_is_lost_on_other_inputs() -> None:
    """In the mean over networks whose steps of weights are coarse."""
    gains: dict[str, list[float]] = {"rounding": [], "both": []}
    for seed in range(3):
        found = coarse(plan(random_network(seed)))
        module = found.module
        given = examples(module, 24, seed=50)
        ranges = calibrate(found, given)
        before = decibels(found, ranges, module, 60)
        for name, bias, rounding in (("rounding", False, True), ("both", True, True)):
            after = decibels(refined(found, ranges, given, bias=bias, rounding=rounding), ranges, module, 60)
            gains[name].append(after - before)
    means = {name: float(np.mean(each)) for name, each in gains.items()}
    assert means["rounding"] > 1, gains
    assert means["both"] > means["rounding"], gains


@pytest.mark.parametrize("name", ["residual", "depthwise", "attention"])
def test_the_new_plan_has_the_same_places_and_weights_that_eight_bits_hold(name: str) -> None:
    module = NETWORKS[name]()
    found, given = plan(module), examples(module, 4)
    ranges = calibrate(found, given)
    better = refined(found, ranges, given)
    assert list(better.values) == list(found.values)
    assert list(better.offsets) == list(found.offsets)
    assert [each.name for each in better.weights.values()] == [each.name for each in found.weights.values()]
    for one, other in zip(found.weights.values(), better.weights.values(), strict=True):
        scale = weight_scale(one.value.value, one.axis)
        if one.axis is not None:
            scale = scale.reshape([-1 if axis == one.axis else 1 for axis in range(one.value.value.ndim)])
        again = weight_scale(other.value.value, other.axis)
        np.testing.assert_allclose(again.reshape(-1), scale.reshape(-1), rtol=1e-6)
        steps = other.value.value / scale
        np.testing.assert_allclose(steps, np.rint(steps), atol=1e-3)
        assert np.abs(steps - one.value.value / scale).max() < 1.001
    eight = quantised(better, ranges)
    core, cpu = weft.load(weft.compile(eight, PYNQ)), weft.load(weft.compile(eight, target="cpu"))
    for output, value in core.run(given[0]).items():
        np.testing.assert_array_equal(value, cpu.run(given[0])[output])


@pytest.mark.parametrize("subtracted", [False, True])
def test_the_mean_error_of_a_channel_is_taken_off(subtracted: bool) -> None:
    """Ranges that cut off most of what is above 0 make an error in the mean, which the next offset takes off."""
    w, x = Weights(), image()
    y = relu(convolution(x, w, 8))
    last = nn.conv2d(y, w(4, 8, 1, 1))
    module = module_of((nn.subtract if subtracted else nn.add)(last, w(1, 4, 1, 1)), params=(x,))
    found, given = plan(module), examples(module, 16)
    ranges = calibrate(found, given)
    cut = next(name for name in found.values if "value" in name)
    ranges[cut] = Range(0.0, ranges[cut].high / 4)

    def error(of: Plan) -> Array:
        eight = quantised(of, ranges)
        errors = [evaluate(module, each)["y0"] - evaluate(eight, each)["y0"] for each in given]
        return np.asarray(np.mean(errors, axis=(0, 1, 3, 4)))

    before, after = error(found), error(refined(found, ranges, given, rounding=False))
    assert np.abs(after).max() < 0.05 * np.abs(before).max()


def test_products_of_stacks_and_of_left_weights_are_rounded_to_the_nearest() -> None:
    w, x = Weights(), Var("x", TensorType((1, 6, 8), "float32"))
    y = nn.matmul(contract.reshape(w(1, 4, 6), shape=(1, 4, 6)), x)
    module = module_of(nn.matmul(y, w(8, 5)), nn.matmul(x, w(1, 8, 3)), params=(x,))
    found, given = plan(module), examples(module, 4)
    ranges = calibrate(found, given)
    eight, before = quantised(refined(found, ranges, given), ranges), quantised(found, ranges)
    integers = [[node.args[0].value for node in calls(each.main.body) if isinstance(node.args[0], Constant)]
                for each in (before, eight)]  # fmt: skip
    same = [np.array_equal(one, other) for one, other in zip(*integers, strict=True)]
    assert sorted(same) == [False, True, True]


def test_bad_examples_are_refused() -> None:
    module = NETWORKS["plain"]()
    found = plan(module)
    ranges = calibrate(found, examples(module))
    with pytest.raises(QuantiseError, match=r"there are no examples to refine with"):
        refined(found, ranges, [])
    with pytest.raises(QuantiseError, match=r"the examples lack input 'x'"):
        refined(found, ranges, [{}])
    with pytest.raises(QuantiseError, match=r"input 'x' must be float32\[1, 3, 6, 6\], not \[1, 3, 6\]"):
        refined(found, ranges, [{"x": np.zeros((1, 3, 6), np.float32)}])
    with pytest.raises(QuantiseError, match=r"'x' has no range; hint: calibrate the plan"):
        refined(found, {}, examples(module, 1))
