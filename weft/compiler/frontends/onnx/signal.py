"""Fourier transforms, as products with matrices of cosines and sines: one, or two of far smaller ones."""

from __future__ import annotations

import math

import numpy as np

from ...graph import Array, Constant, Expr
from ..forms import crop_or_pad
from .node import Converted, Node, converter
from .types import dtype_name


def _fourier(length: int, frequencies: int, inverse: bool) -> tuple[Array, Array]:
    """cos and sin of 2 pi k t / length, (length, frequencies); an inverse has the sign turned and divides by length."""
    steps = np.arange(length)
    quarter, rest = np.divmod(4 * steps, length)
    angle, on_axis = 2 * np.pi * steps / length, rest == 0  # where a wave is 0 or 1, which its function only nearly is
    cosine = np.where(on_axis, np.array([1.0, 0.0, -1.0, 0.0])[quarter], np.cos(angle))
    sine = np.where(on_axis, np.array([0.0, 1.0, 0.0, -1.0])[quarter], np.sin(angle))
    turns = np.outer(steps, np.arange(frequencies)) % length
    if inverse:
        return cosine[turns] / length, sine[turns] / length
    return cosine[turns], 0.0 - sine[turns]


def _transform(node: Node, real: Expr, imaginary: Expr | None, length: int, count: int, inverse: bool) -> list[Expr]:
    """Real and imaginary parts (..., count) of the transform of the last axis."""
    rows = _rows(length)
    if rows > 1:
        return _in_two_steps(node, real, imaginary, rows, length // rows, count, inverse)
    cosine, sine = (node.like(matrix, real) for matrix in _fourier(length, count, inverse))
    out = [node.call("nn.matmul", real, cosine), node.call("nn.matmul", real, sine)]
    if imaginary is None:
        return [*out]
    return [
        node.call("nn.subtract", out[0], node.call("nn.matmul", imaginary, sine)),
        node.call("nn.add", out[1], node.call("nn.matmul", imaginary, cosine)),
    ]


SHORTEST_CUT = 128
"""Shorter transforms are one product: two would take as long with what moves between them."""


def _rows(length: int) -> int:
    """The first of two factors of a length, near to each other, by which a transform is cut; 1 where it is not."""
    if length < SHORTEST_CUT:
        return 1
    factor = next(each for each in range(math.isqrt(length), 0, -1) if length % each == 0)
    return factor if 4 * (factor + length // factor) < length else 1


def _in_two_steps(
    node: Node, real: Expr, imaginary: Expr | None, rows: int, columns: int, count: int, inverse: bool
) -> list[Expr]:
    """A transform of ``rows * columns`` points by the step of Cooley and Tukey (Mathematics of Computation 19, 1965):
    points are rows that follow each other. Columns are transformed, turned by a part of a turn each, and what is left
    are transforms of as many points as there are columns, of which the first ``count`` results are kept."""
    length, front = rows * columns, real.shape[:-1]
    last = len(front)
    swapped = [*range(last), last + 1, last]

    def by_columns(part: Expr) -> Expr:
        return node.transpose(node.reshape(part, (*front, rows, columns)), swapped)

    made = _transform(node, by_columns(real), None if imaginary is None else by_columns(imaginary), rows, rows, inverse)
    turns = np.arange(columns)[:, None] * np.arange(rows) * ((2 if inverse else -2) * np.pi / length)
    cosine, sine = (node.like(wave(turns), real) for wave in (np.cos, np.sin))

    def turned(operator: str, factors: tuple[Expr, Expr]) -> Expr:
        products = [node.call("nn.multiply", part, factor) for part, factor in zip(made, factors, strict=True)]
        return node.transpose(node.call(operator, *products), swapped)

    kept = -(-count // rows)
    parts = _transform(
        node, turned("nn.subtract", (cosine, sine)), turned("nn.add", (sine, cosine)), columns, kept, inverse
    )
    whole = [node.reshape(node.transpose(part, swapped), (*front, kept * rows)) for part in parts]
    return [part if kept * rows == count else node.slice(part, last, 0, count) for part in whole]


def _component(node: Node, x: Expr, number: int) -> Expr:
    """The real (0) or imaginary (1) part: an index of the last axis, which goes away."""
    return node.reshape(node.slice(x, len(x.shape) - 1, number, 1), x.shape[:-1])


@converter("DFT")
def _dft(node: Node) -> Converted:
    x = node.input(0)
    rank = len(x.shape)
    if node.opset >= 20:
        axis = node.checked_axis(int(node.constant(2, "the axis").reshape(())) if node.has(2) else -2, rank)
    else:
        axis = node.axis(rank, 1)
    inverse, onesided = bool(node.integer("inverse", 0)), bool(node.integer("onesided", 0))
    length = int(node.constant(1, "the length").reshape(())) if node.has(1) else x.shape[axis]
    if inverse and onesided:
        length = length if node.has(1) else 2 * (x.shape[axis] - 1)
        whole = _mirrored(node, _sized(node, x, axis, length // 2 + 1), axis, length)
        result = _along(node, whole, axis, length, length, inverse=True)
        return node.slice(result, rank - 1, 0, 1)
    count = length // 2 + 1 if onesided else length
    return _along(node, _sized(node, x, axis, length), axis, length, count, inverse)


def _sized(node: Node, x: Expr, axis: int, length: int) -> Expr:
    after = [length - size if i == axis else 0 for i, size in enumerate(x.shape)]
    return crop_or_pad(node, x, [0] * len(after), after, 0.0)


def _mirrored(node: Node, x: Expr, axis: int, length: int) -> Expr:
    """All frequencies of a real signal from the first half: the others are conjugates."""
    rest = length - x.shape[axis]
    tail = node.slice(x, axis, rest, rest, -1) if rest else x
    sign = node.like([1.0, -1.0], x)
    return node.call("concat", x, node.call("nn.multiply", tail, sign), axis=axis) if rest else x


def _along(node: Node, x: Expr, axis: int, length: int, count: int, inverse: bool) -> Expr:
    """The transform of ``x`` (..., 1 or 2) along ``axis``; the result's last axis holds real and imaginary parts."""
    rank = len(x.shape)
    order = [i for i in range(rank - 1) if i != axis] + [axis]
    real = node.transpose(_component(node, x, 0), order)
    imaginary = node.transpose(_component(node, x, 1), order) if x.shape[-1] == 2 else None
    lift = len(real.shape) == 1
    if lift:
        real = node.reshape(real, (1, length))
        imaginary = None if imaginary is None else node.reshape(imaginary, (1, length))
    made = _transform(node, real, imaginary, length, count, inverse)
    back = [order.index(i) for i in range(rank - 1)]
    moved = [node.transpose(node.reshape(part, part.shape[1:]) if lift else part, back) for part in made]
    return node.call("concat", *(node.reshape(part, (*part.shape, 1)) for part in moved), axis=rank - 1)


@converter("STFT")
def _stft(node: Node) -> Converted:
    x = node.input(0)
    step = int(node.constant(1, "the step").reshape(()))
    window = node.optional(2)
    length = int(node.constant(3, "the length of a frame").reshape(())) if node.has(3) else 0
    length = length or (window.shape[0] if window is not None else x.shape[1])
    frames = (x.shape[1] - length) // step + 1
    places = np.arange(frames)[:, None] * step + np.arange(length)
    real = _component(node, x, 0) if len(x.shape) == 3 else x
    imaginary = _component(node, x, 1) if len(x.shape) == 3 and x.shape[2] == 2 else None
    count = length // 2 + 1 if node.integer("onesided", 1) else length

    def framed(part: Expr) -> Expr:
        cut = node.call("gather", part, Constant(places.astype(np.int64)), axis=1)
        return node.call("nn.multiply", cut, window) if window is not None else cut

    parts = _transform(node, framed(real), None if imaginary is None else framed(imaginary), length, count, False)
    return node.call("concat", *(node.reshape(part, (*part.shape, 1)) for part in parts), axis=3)


@converter("MelWeightMatrix")
def _mel_weight_matrix(node: Node) -> Converted:
    """Triangular filters (dft_length // 2 + 1, bins), at equal distances on the mel scale."""
    names = ("the number of bins", "the length", "the sample rate", "the lowest frequency", "the highest frequency")
    bins, length, rate, low, high = (node.constant(i, name).reshape(()).item() for i, name in enumerate(names))
    spectrum = length // 2 + 1
    mel_low, mel_high = (2595 * np.log10(1 + edge / 700) for edge in (low, high))
    mels = mel_low + np.arange(bins + 2) * (mel_high - mel_low) / (bins + 2)
    places = ((length + 1) * (700 * (10 ** (mels / 2595) - 1)) // rate).astype(np.int64)
    result = np.zeros((spectrum, bins))
    for i in range(bins):
        lower, centre, upper = places[i : i + 3]
        if centre == lower:
            result[centre, i] = 1
        else:
            result[lower : centre + 1, i] = (np.arange(lower, centre + 1) - lower) / (centre - lower)
        if upper > centre:
            result[centre:upper, i] = (upper - np.arange(centre, upper)) / (upper - centre)
    return node.like(result, dtype_name(node.integer("output_datatype", 1)))
