"""More cases of `operator_sweep`: convolutions and products of integers, in Python's integers and fractions."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np

from benchmarks.frontends.sweep_cases import Array, Case, case


@dataclass(frozen=True)
class Window:
    """Of a convolution of images (N, C, H, W) by weights (M, C / group, kernel)."""

    group: int = 1
    pads: tuple[int, ...] = (0, 0, 0, 0)
    strides: tuple[int, ...] = (1, 1)
    dilations: tuple[int, ...] = (1, 1)

    @property
    def attributes(self) -> dict[str, Any]:
        return {"group": self.group, **{name: list(getattr(self, name)) for name in ("pads", "strides", "dilations")}}


WINDOWS = {
    "": Window(), "pads": Window(pads=(1, 0, 2, 1)), "strides": Window(strides=(2, 1), pads=(1, 1, 1, 1)),
    "dilated": Window(dilations=(2, 2), pads=(1, 1, 1, 1)), "groups": Window(2), "depthwise": Window(4, (1, 1, 1, 1)),
}  # fmt: skip


def convolved(x: Array, w: Array, window: Window) -> Array:
    """Sums of products of whole numbers; around the image are zeros."""
    x = np.pad(x, ((0, 0), (0, 0), window.pads[0::2], window.pads[1::2]))
    (high, wide), (down, right), (by, beside) = w.shape[2:], window.dilations, window.strides
    sizes = [(x.shape[2 + a] - window.dilations[a] * (w.shape[2 + a] - 1) - 1) // window.strides[a] + 1 for a in (0, 1)]
    found = np.zeros((x.shape[0], w.shape[0], *sizes), np.int64)
    inputs, outputs = w.shape[1], w.shape[0] // window.group
    for m, i, j in np.ndindex(w.shape[0], *sizes):
        first = m // outputs * inputs
        part = x[:, first : first + inputs, i * by :: down, j * beside :: right][:, :, :high, :wide]
        found[:, m, i, j] = (part * w[m]).sum((1, 2, 3))
    return found


def requantised(sums: Array, factors: Array, zero: int, dtype: Any) -> Array:
    """Whole numbers times fractions, which broadcast, rounded with halves to even, and bounded."""
    info = np.iinfo(dtype)
    pairs = zip(*(each.reshape(-1) for each in np.broadcast_arrays(sums, factors)), strict=True)
    flat = [min(max(round(int(value) * factor) + zero, info.min), info.max) for value, factor in pairs]
    return np.array(flat, dtype).reshape(sums.shape)


def fraction(value: Any) -> Fraction:
    return Fraction(float(value))


fractions = np.frompyfunc(fraction, 1, 1)


def drawn(random: np.random.Generator, dtype: Any, *shape: int) -> Array:
    """All numbers of a type, the ends among them."""
    info = np.iinfo(dtype)
    found = random.integers(info.min, info.max + 1, shape).astype(dtype)
    found.reshape(-1)[:2] = info.min, info.max
    return found


@dataclass(frozen=True)
class Scales:
    """``of_weights``: one, or one for each channel (4). The name tells what is tried."""

    name: str
    x: float
    y: float
    of_weights: list[float] = field(default_factory=lambda: [0.02])


SCALES = [
    Scales("", 0.013, 0.7), Scales("by channel", 0.013, 0.7, [0.02, 0.0043, 0.1, 0.031]),
    Scales("results at the ends", 0.25, 0.004), Scales("results near the zero point", 0.001, 30.0),
]  # fmt: skip


def convolutions() -> Iterator[Case]:
    """QLinearConv and ConvInteger, of signed and unsigned bytes. Around the image lies the zero point."""
    for number, (kinds, (form, window)) in enumerate(
        itertools.product(((np.uint8, np.int8), (np.int8, np.int8), (np.uint8, np.uint8)), WINDOWS.items())
    ):
        random = np.random.default_rng(number)
        x = drawn(random, kinds[0], 2, 4, 5, 6)
        w = drawn(random, kinds[1], 4, 4 // window.group, 3, 2)
        x_zero, w_zero = (np.array((np.iinfo(kind).min + np.iinfo(kind).max) // 2 + 9, kind) for kind in kinds)
        names = f"{np.dtype(kinds[0]).name} by {np.dtype(kinds[1]).name} {form}".strip()
        sums = convolved(x.astype(int) - int(x_zero), w.astype(int) - int(w_zero), window)
        yield case(f"ConvInteger {names}", "ConvInteger", [x, w, x_zero, w_zero], sums.astype(np.int32),
                   constants=(1, 2, 3), opset=10, **window.attributes)  # fmt: skip
        yield case(f"ConvInteger {names}, no zero points", "ConvInteger", [x, w],
                   convolved(x.astype(int), w.astype(int), window).astype(np.int32), constants=(1,), opset=10,
                   **window.attributes)  # fmt: skip
        for scales in SCALES if not form else SCALES[:2]:
            of_weights = np.array(scales.of_weights, np.float32)
            zero = np.array([w_zero] * of_weights.size, kinds[1])
            if of_weights.size == 1:
                of_weights, zero = of_weights.reshape(()), zero.reshape(())
            step, result = np.array(scales.x, np.float32), np.array(scales.y, np.float32)
            factors = fractions(of_weights) * fraction(step) / fraction(result)
            if of_weights.size > 1:
                factors = factors.reshape(-1, 1, 1)
            y_zero = np.array(int(x_zero) - 4, kinds[0])
            bias = random.integers(-3000, 3000, 4).astype(np.int32)
            wanted = requantised(sums + bias.reshape(-1, 1, 1), np.asarray(factors), int(y_zero), kinds[0])
            yield case(f"QLinearConv {names} {scales.name}".strip(), "QLinearConv",
                       [x, step, x_zero, w, of_weights, zero, result, y_zero, bias], wanted,
                       constants=tuple(range(1, 9)), opset=10, **window.attributes)  # fmt: skip


def products() -> Iterator[Case]:
    """QLinearMatMul and MatMulInteger: zero points and scales of tensors, of rows and of columns; batches."""
    kinds = ((np.uint8, np.int8), (np.int8, np.int8), (np.uint8, np.uint8), (np.int8, np.uint8))
    for number, (pair, by, batch) in enumerate(itertools.product(kinds, ("tensor", "row and column"), ((), (2,)))):
        random = np.random.default_rng(number)
        a, b = drawn(random, pair[0], *batch, 5, 33), drawn(random, pair[1], *batch, 33, 7)
        name = f"{np.dtype(pair[0]).name} by {np.dtype(pair[1]).name}, by {by}{', a batch' if batch else ''}"
        one = by == "tensor" or bool(batch)
        a_zero = random.integers(0, 100, 1 if one else 5).astype(pair[0])
        b_zero = random.integers(0, 100, 1 if by == "tensor" else 7).astype(pair[1])
        zeros = [each.reshape(()) if each.size == 1 else each for each in (a_zero, b_zero)]
        if batch and by != "tensor":
            continue  # of columns in a batch, the text leaves the shape open
        left = a.astype(int) - (a_zero.astype(int) if one else a_zero.astype(int).reshape(-1, 1))
        sums = left @ (b.astype(int) - b_zero.astype(int))
        yield case(f"MatMulInteger {name}", "MatMulInteger", [a, b, *zeros], sums.astype(np.int32), constants=(2, 3),
                   opset=10)  # fmt: skip
        a_step = np.array([0.013] if one else [0.013, 0.02, 0.0071, 0.1, 0.03], np.float32)
        b_step = np.array([0.02] if by == "tensor" else [0.02, 0.01, 0.3, 0.004, 0.05, 0.011, 0.07], np.float32)
        result, y_zero = np.array(0.9, np.float32), np.array(3, pair[0])
        factors = fractions(a_step.reshape(-1, 1)) * fractions(b_step) / fraction(result)
        wanted = requantised(sums, factors, 3, pair[0])
        steps = [each.reshape(()) if each.size == 1 else each for each in (a_step, b_step)]
        if steps[0].ndim:
            continue  # scales of rows: an operand that onnxruntime and weft both take by tensor or column
        yield case(f"QLinearMatMul {name}", "QLinearMatMul",
                   [a, steps[0], zeros[0], b, steps[1], zeros[1], result, y_zero], wanted,
                   constants=(1, 2, 4, 5, 6, 7), opset=21)  # fmt: skip
