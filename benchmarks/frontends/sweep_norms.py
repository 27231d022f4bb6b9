"""More cases of `operator_sweep`: normalisations, norms of windows, determinants, deformable convolutions.

Data are whole numbers whose means are exact, so that what is left to rounding is a root and a product or two.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np

from benchmarks.frontends.sweep_cases import Array, Case, case
from benchmarks.frontends.sweep_exact import nearest

EPSILON = float(np.float32(1e-5))
"""As an attribute holds it."""


def rows(count: int = 6, width: int = 8, seed: int = 0) -> Array:
    """Whole numbers whose mean is one, in each row, and none of which is the mean; also rows of equals, of zeros, and
    far from 0."""
    random = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        half = random.choice(np.arange(1, 20), width // 2, replace=False)
        found.append(random.permutation(np.concatenate([half, -half])) + random.integers(-3, 4))
    return np.array([*found, [5] * width, [0] * width, found[0] + 1_000_000, found[1] * 4096], np.float64)


def moved_and_scaled(x: Array, axes: tuple[int, ...], epsilon: float, *, centred: bool = True) -> Array:
    less = x - x.mean(axes, keepdims=True) if centred else x
    return less / np.sqrt((less**2).mean(axes, keepdims=True) + epsilon)


def normalisations() -> Iterator[Case]:
    x = rows()
    scale, offset = (np.random.default_rng(seed).integers(1, 9, 8) / 4 for seed in (1, 2))
    for dtype, ulps in ((np.float32, 4), (np.float16, 1), (ml_dtypes.bfloat16, 1), (np.float64, 4)):
        name, some = np.dtype(dtype).name, x if np.dtype(dtype).itemsize >= 4 else x[:8]
        terms = [scale.astype(dtype), offset.astype(dtype)]
        plain = [some.astype(dtype), terms[0], None]
        wanted = moved_and_scaled(some, (1,), EPSILON) * scale
        kind = 11 if dtype == np.float64 else 1
        yield case(f"LayerNormalization {name}", "LayerNormalization", plain, wanted.astype(dtype), constants=(1,),
                   ulps=ulps, opset=17, axis=1, epsilon=1e-5, stash_type=kind)  # fmt: skip
        wanted = moved_and_scaled(some, (1,), EPSILON, centred=False) * scale
        yield case(f"RMSNormalization {name}", "RMSNormalization", plain[:2], wanted.astype(dtype), constants=(1,),
                   ulps=ulps, opset=23, axis=1, epsilon=1e-5, stash_type=kind)  # fmt: skip
    image = np.stack([rows(14, 8, seed) for seed in (3, 4)])[:, :16].reshape(2, 4, 4, 8)  # four rows a channel
    image[:, :, :, :] = np.concatenate([image[:, :, :2], -image[:, :, :2]], 2)  # the mean of a channel is 0
    of_channels = [np.array([1, 2, 0.5, -1]), np.array([0, 3, -2, 1])]
    terms = [each.astype(np.float32) for each in of_channels]
    wide = [each.reshape(4, 1, 1) for each in of_channels]
    f32 = image.astype(np.float32)
    wanted = moved_and_scaled(image, (2, 3), EPSILON) * wide[0]
    flat = [terms[0], np.zeros(4, np.float32)]
    yield case("InstanceNormalization", "InstanceNormalization", [f32, *flat], wanted.astype(np.float32),
               constants=(1, 2), ulps=4, opset=22, epsilon=1e-5)  # fmt: skip
    grouped = moved_and_scaled(image.reshape(2, 2, -1), (2,), EPSILON).reshape(image.shape) * wide[0]
    yield case("GroupNormalization", "GroupNormalization", [f32, *flat], grouped.astype(np.float32),
               constants=(1, 2), ulps=4, opset=21, num_groups=2, epsilon=1e-5)  # fmt: skip
    for axes in ((0, 2, 3), (2, 3)):
        wanted = moved_and_scaled(image, axes, 0)
        wanted = np.where(np.isfinite(wanted), wanted, 0)
        yield case(f"MeanVarianceNormalization over {axes}", "MeanVarianceNormalization", [f32],
                   wanted.astype(np.float32), ulps=4, opset=13, axes=list(axes))  # fmt: skip
    mean, variance = np.array([0, 1, -2, 4], np.float32), np.array([1, 4, 0.25, 16], np.float32)
    tuned = (image - mean.reshape(4, 1, 1)) / np.sqrt(variance.reshape(4, 1, 1).astype(float)) * wide[0] + wide[1]
    yield case("BatchNormalization, whole deviations", "BatchNormalization", [f32, *terms, mean, variance],
               tuned.astype(np.float32), constants=(1, 2, 3, 4), ulps=1, opset=15, epsilon=0.0)  # fmt: skip
    for p, axis in itertools.product((1, 2), (0, -1)):
        norm = (np.abs(x) ** p).sum(axis, keepdims=True) ** (1 / p)
        wanted = np.divide(x, norm, out=np.zeros_like(x), where=norm != 0)
        yield case(f"LpNormalization p={p} axis={axis}", "LpNormalization", [x.astype(np.float32)],
                   wanted.astype(np.float32), ulps=3, opset=22, p=p, axis=axis)  # fmt: skip
    holes = x[:4].astype(np.float32)
    holes[0, 3], holes[1, 2] = math.nan, math.inf
    ones = np.ones(8, np.float32)
    for op, opset in (("LayerNormalization", 17), ("RMSNormalization", 23)):
        whole = moved_and_scaled(x[:4], (1,), EPSILON, centred=op[0] == "L").astype(np.float32)
        # Behind an infinity: its own is inf / inf, the others' are 0 by their root mean square, NaN by their mean.
        whole[0], whole[1] = math.nan, math.nan if op[0] == "L" else 0
        whole[1, 2] = math.nan
        yield case(f"{op} with NaN and infinity", op, [holes, ones], whole, constants=(1,), ulps=4, opset=opset,
                   axis=1, epsilon=1e-5)  # fmt: skip


def responses() -> Iterator[Case]:
    """LRN: the sum of squares of neighbours in depth, which reach less far to the front where their number is even."""
    x = np.random.default_rng(0).integers(-9, 10, (2, 7, 2, 3)).astype(np.float32)
    x[0, 3, 0, 0] = 1e10
    for size, (alpha, beta, bias) in itertools.product((1, 2, 3, 4, 5, 9), ((1e-4, 0.75, 1.0), (0.5, 1.0, 2.0))):
        squares = np.zeros(x.shape)
        for channel in range(7):
            first, last = channel - (size - 1) // 2, channel + math.ceil((size - 1) / 2)
            squares[:, channel] = (x[:, max(first, 0) : last + 1].astype(float) ** 2).sum(1)
        factors = [float(np.float32(each)) for each in (alpha, beta, bias)]
        wanted = x / (factors[2] + factors[0] / size * squares) ** factors[1]
        yield case(f"LRN size={size} beta={beta}", "LRN", [x], wanted.astype(np.float32), ulps=6, opset=13,
                   size=size, alpha=alpha, beta=beta, bias=bias)  # fmt: skip


def norms_of_windows() -> Iterator[Case]:
    x = np.random.default_rng(0).integers(-9, 10, (1, 2, 7, 6)).astype(np.float32)
    forms: list[tuple[str, dict[str, Any]]] = [
        ("", {}), ("pads", {"pads": [1, 0, 2, 1]}), ("ceil", {"ceil_mode": 1}), ("dilated", {"dilations": [2, 2]}),
        ("ceil, pads", {"ceil_mode": 1, "pads": [0, 0, 1, 1]}),
    ]  # fmt: skip
    for (name, attributes), p in itertools.product(forms, (1, 2, 3)):
        wanted = norm_of_windows(x, p, **attributes)
        yield case(f"LpPool p={p} {name}", "LpPool", [x], wanted.astype(np.float32), ulps=0 if p == 1 else 2, opset=22,
                   kernel_shape=[3, 3], strides=[2, 2], p=p, **attributes)  # fmt: skip
    for p in (1, 2, 3):
        whole = (np.abs(x.astype(float)) ** p).sum((2, 3), keepdims=True) ** (1 / p)
        yield case(f"GlobalLpPool p={p}", "GlobalLpPool", [x], whole.astype(np.float32), ulps=0 if p == 1 else 2, p=p)


def norm_of_windows(x: Array, p: int, **attributes: Any) -> Array:
    """Of windows of 3 by 3 at every second place; outside of the image are zeros."""
    pads, dilation = attributes.get("pads", [0] * 4), attributes.get("dilations", [1])[0]
    reach, sizes = 2 * dilation + 1, []
    for axis in (0, 1):
        size = x.shape[2 + axis]
        span = size + pads[axis] + pads[2 + axis] - reach
        count = (-(-span // 2) if attributes.get("ceil_mode") else span // 2) + 1
        sizes.append(count - ((count - 1) * 2 >= size + pads[axis]))
    padded = np.pad(np.abs(x.astype(float)) ** p, [(0, 0), (0, 0), (pads[0], 9), (pads[1], 9)])
    found = np.zeros((*x.shape[:2], *sizes))
    for i, j in np.ndindex(*sizes):
        window = padded[:, :, 2 * i : 2 * i + reach : dilation, 2 * j : 2 * j + reach : dilation]
        found[:, :, i, j] = window.sum((2, 3)) ** (1 / p)
    return found


def determinants() -> Iterator[Case]:
    random = np.random.default_rng(0)
    for dtype, size in itertools.product((np.float32, np.float64), (1, 2, 3, 4)):
        some = random.integers(-5, 6, (4, size, size))
        some[0] = np.eye(size)[random.permutation(size)]
        some[1] = np.triu(some[1]) + np.eye(size, dtype=int) * 7 * (np.diag(some[1]) == 0)
        some[2, -1] = 0  # a row of zeros
        exact = np.array([float(determinant(each)) for each in some], dtype)
        keep = exact != 0
        keep[2] = True
        yield case(f"Det {np.dtype(dtype).name} {size} x {size}", "Det", [some[keep].astype(dtype)], exact[keep],
                   ulps=16, opset=22)  # fmt: skip


def determinant(matrix: Array) -> Fraction:
    """By elimination in fractions."""
    left, found = [[Fraction(int(each)) for each in row] for row in matrix], Fraction(1)
    for place in range(len(left)):
        pivot = next((row for row in range(place, len(left)) if left[row][place]), None)
        if pivot is None:
            return Fraction(0)
        if pivot != place:
            left[place], left[pivot], found = left[pivot], left[place], -found
        found *= left[place][place]
        for row in range(place + 1, len(left)):
            part = left[row][place] / left[place][place]
            left[row] = [a - part * b for a, b in zip(left[row], left[place], strict=True)]
    return found


def deformed() -> Iterator[Case]:
    """Convolutions that read at places with quarters of pixels, also beside the image: exact."""
    random = np.random.default_rng(0)
    forms: list[tuple[str, dict[str, Any], int, int, bool]] = [
        ("", {}, 1, 1, False), ("masked", {}, 1, 1, True), ("groups", {}, 2, 1, True),
        ("offset groups", {}, 1, 2, True),
        ("both groups", {}, 2, 2, True), ("pads, strides", {"pads": [1, 1, 2, 0], "strides": [2, 1]}, 1, 2, True),
        ("dilated", {"dilations": [2, 1], "pads": [1, 1, 1, 1]}, 1, 1, True),
    ]  # fmt: skip
    for name, attributes, group, offset_group, masked in forms:
        x = random.integers(-9, 10, (2, 4, 5, 6)).astype(np.float32)
        w = random.integers(-4, 5, (4, 4 // group, 2, 3)).astype(np.float32)
        bias = random.integers(-9, 10, 4).astype(np.float32)
        pads, strides = attributes.get("pads", [0] * 4), attributes.get("strides", [1, 1])
        dilations = attributes.get("dilations", [1, 1])
        sizes = [(x.shape[2 + a] + pads[a] + pads[2 + a] - dilations[a] * (w.shape[2 + a] - 1) - 1) // strides[a] + 1
                 for a in (0, 1)]  # fmt: skip
        offset = (random.integers(-12, 13, (2, offset_group * 12, *sizes)) / 4).astype(np.float32)
        mask = (random.integers(0, 5, (2, offset_group * 6, *sizes)) / 4).astype(np.float32) if masked else None
        wanted = np.zeros((2, 4, *sizes), np.float32)
        for n, m, i, j in np.ndindex(*wanted.shape):
            total = Fraction(float(bias[m]))
            for c, p, q in np.ndindex(*w.shape[1:]):
                channel = m // (4 // group) * (4 // group) + c
                place = (channel // (4 // offset_group)) * 6 + p * 3 + q
                row = Fraction(float(offset[n, 2 * place, i, j])) + i * strides[0] - pads[0] + p * dilations[0]
                column = Fraction(float(offset[n, 2 * place + 1, i, j])) + j * strides[1] - pads[1] + q * dilations[1]
                factor = Fraction(float(w[m, c, p, q])) * (1 if mask is None else Fraction(float(mask[n, place, i, j])))
                total += factor * between(x[n, channel], row, column)
            wanted[n, m, i, j] = nearest(total, "float32")
        yield case(f"DeformConv {name}", "DeformConv", [x, w, offset, bias, mask][: 5 if masked else 4], wanted,
                   constants=(1, 3), opset=22, group=group, offset_group=offset_group, kernel_shape=[2, 3],
                   **attributes)  # fmt: skip


def between(image: Array, row: Fraction, column: Fraction) -> Fraction:
    """Of the four pixels around a place; those outside are 0."""
    top, left, found = math.floor(row), math.floor(column), Fraction(0)
    for i, j in itertools.product((top, top + 1), (left, left + 1)):
        if 0 <= i < image.shape[0] and 0 <= j < image.shape[1]:
            found += (1 - abs(row - i)) * (1 - abs(column - j)) * Fraction(float(image[i, j]))
    return found
