"""AdaRound (Nagel et al., 2020, arXiv:2004.10568): weights rounded up or down by what their layer loses.

Of a layer only second moments matter. With weights ``w`` that become ``w + d``, inputs ``x`` in 8 bits and results
``y`` in floats, the mean square error is ``d G d' - 2 d B`` and a constant, where ``G`` is the mean of ``x x'`` and
``B`` that of ``x (y - w x)'``: what the layers before have lost. So a step of the descent costs the same however many
examples there are. The paper also looks through the activation behind the layer, which has no such form; here the
layer's own result counts.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from ..compiler.graph import Array
from .insert import LARGEST

STEPS = 300
"""Of gradient descent, by Adam."""

RATE = 0.05
WARM = 0.2
"""The part of the steps before anything drives the roundings to a side."""

SHARPNESS = 20.0, 2.0
"""Of the term that drives them, at its start and at its end: the exponent of the paper's equation 24."""

WEIGHT = 1.0
"""Of that term for a weight, where weights that are rounded at random lose 1 each."""

STRETCH = -0.1, 1.1
"""Ends of the rectified sigmoid, equation 23."""

FLIPS = 256
"""At most, of one row, of single weights behind the descent."""


@dataclass(frozen=True)
class Moments:
    """Means over positions, for each group: ``inputs`` (groups, k, k) of x x', ``missing`` (groups, outputs, k) of
    (y - w x) x'; ``count`` positions."""

    inputs: Array
    missing: Array
    count: int


def moments(pairs: Iterable[tuple[Array, Array]], weights: Array, *, centred: bool) -> Moments:
    """Of inputs (groups, k, n) in 8 bits and results (groups, outputs, n) in floats, of weights (groups, outputs, k).

    ``centred``: an offset takes off what is wrong in the mean, so that only what varies counts.
    """
    groups, outputs, depth = weights.shape
    inputs, missing = np.zeros((groups, depth, depth)), np.zeros((groups, outputs, depth))
    means = np.zeros((groups, depth)), np.zeros((groups, outputs))
    count = 0
    for x, y in pairs:
        left = y - weights.astype(x.dtype) @ x
        turned = x.transpose(0, 2, 1)
        inputs += x @ turned
        missing += left @ turned
        means[0][:] += x.sum(axis=2)
        means[1][:] += left.sum(axis=2)
        count += x.shape[2]
    inputs, missing = inputs / count, missing / count
    if centred:
        mean, error = (each / count for each in means)
        inputs -= mean[:, :, None] * mean[:, None, :]
        missing -= error[:, :, None] * mean[:, None, :]
    return Moments(inputs, missing, count)


def rounded_weights(real: Array, scale: Array, found: Moments) -> Array:
    """Whole steps (groups, outputs, k) for weights of ``real`` steps of a scale, each one up or down.

    No row loses more by these moments than it does when it is rounded to the nearest.
    """
    inputs = _shrunk(found)
    nearest = np.clip(np.rint(real), -LARGEST, LARGEST)
    descended = _descended(real, scale, inputs, found.missing)
    descended = np.where(np.abs(nearest) == LARGEST, nearest, descended)  # these say what the scale is
    chosen = _flipped(descended, real, scale, inputs, found.missing)
    before, after = (_losses((steps - real) * scale, inputs, found.missing) for steps in (nearest, chosen))
    return np.asarray(np.where((after < before)[:, :, None], chosen, nearest))


def _shrunk(found: Moments) -> Array:
    """Moments with less between different inputs, the less, the fewer positions there were: of few, much is chance."""
    depth = found.inputs.shape[1]
    share = depth / (depth + found.count)
    own = np.eye(depth, dtype=bool)
    return np.where(own, found.inputs, (1 - share) * found.inputs)


def _losses(errors: Array, inputs: Array, missing: Array) -> Array:
    return np.asarray(((errors @ inputs - 2 * missing) * errors).sum(axis=2))


def _descended(real: Array, scale: Array, inputs: Array, missing: Array) -> Array:
    low, high = STRETCH
    floor = np.floor(real)
    share = np.clip((real - floor - low) / (high - low), 1e-4, 1 - 1e-4)
    places = np.log(share / (1 - share)).astype(np.float32)
    unit = np.square(scale) * np.trace(inputs, axis1=1, axis2=2)[:, None, None] / inputs.shape[1] / 12
    some = unit > np.finfo(np.float32).tiny  # a row whose inputs never vary has nothing to choose
    factor = np.where(some, 2 * scale / np.where(some, unit, 1), 0).astype(np.float32)
    moment, square, wanted = inputs.astype(np.float32), scale.astype(np.float32), missing.astype(np.float32)
    offset = (floor - real).astype(np.float32)
    first, second = np.zeros_like(places), np.zeros_like(places)
    warm = int(WARM * STEPS)
    for step in range(STEPS):
        sigmoid = 1 / (1 + np.exp(-places))
        up = np.clip(sigmoid * (high - low) + low, 0, 1)
        gradient = ((offset + up) * square @ moment - wanted) * factor
        if step >= warm:
            progress = (step - warm) / max(1, STEPS - warm)
            sharpness = SHARPNESS[1] + 0.5 * (SHARPNESS[0] - SHARPNESS[1]) * (1 + np.cos(progress * np.pi))
            away = 2 * up - 1
            gradient -= WEIGHT * 2 * sharpness * np.sign(away) * np.abs(away) ** (sharpness - 1)
        gradient *= (high - low) * sigmoid * (1 - sigmoid) * ((up > 0) & (up < 1))
        first += 0.1 * (gradient - first)
        second += 0.001 * (gradient * gradient - second)
        unbiased = first / (1 - 0.9 ** (step + 1)), second / (1 - 0.999 ** (step + 1))
        places -= RATE * unbiased[0] / (np.sqrt(unbiased[1]) + 1e-8)
    return np.asarray(np.clip(floor + (places >= 0), -LARGEST, LARGEST))


def _flipped(steps: Array, real: Array, scale: Array, inputs: Array, missing: Array) -> Array:
    """As long as it helps, the weight of each row is rounded to its other side that helps most."""
    steps, floor = steps.copy(), np.floor(real)
    gradient = ((steps - real) * scale) @ inputs - missing
    own = np.einsum("gkk->gk", inputs)[:, None, :]
    movable = (np.abs(steps) < LARGEST) & (floor > -LARGEST) & (floor + 1 < LARGEST)
    for _ in range(FLIPS):
        change = np.where(steps == floor, scale, -scale)
        gain = np.where(movable, change * (2 * gradient + change * own), 0)
        best = gain.argmin(axis=2)[:, :, None]
        helps = np.take_along_axis(gain, best, 2) < 0
        if not helps.any():
            break
        move = np.where(helps, np.take_along_axis(change, best, 2), 0)
        np.put_along_axis(steps, best, np.take_along_axis(steps, best, 2) + np.sign(move), 2)
        gradient += move * inputs[np.arange(len(inputs))[:, None], best[:, :, 0]]
    return steps
