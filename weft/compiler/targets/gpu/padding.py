"""What the padding of a convolution of bytes adds to its sums, so that operands can be read with zeros around.

Vectors are copied to shared memory as they are, or zeros in their place. Padding of another value, as a zero point is,
adds that times the weights that meet it: the same for all pixels whose windows leave the image alike, so there is a
small table of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from ...graph.ir import Call, Constant
from ...tensor import ir as tir
from ...tensor.view import Index
from ..loops.kernels import Array, Operands


@dataclass(frozen=True)
class _Edges:
    """Of an axis of the result: how many of its ``size`` windows begin before the image, and how many end behind it.
    Pixels alike have one number: the first ones, one for all inside, the last ones."""

    size: int
    before: int
    after: int

    @property
    def places(self) -> list[int]:
        """A pixel of each number."""
        return [*range(self.before + 1), *range(self.size - self.after, self.size)]

    def number(self, place: tir.Expr) -> tir.Expr:
        first, last = tir.minimum(place, self.before), self.size - 1 - self.after
        return first + tir.maximum(place - last, 0) if self.after else first


def pad_value_of(anchor: Call) -> int:
    """What the padding of a convolution holds."""
    return int(str(anchor.attrs.get("pad_value", 0)))


def reads_zeros(anchor: Call) -> bool:
    """Whether zeros may stand for the padding of a convolution: it has none, they are zeros, or `padding_sums` gives
    the rest."""
    return not any(anchor.attr("pads")) or not pad_value_of(anchor) or isinstance(anchor.args[1], Constant)


def padding_sums(anchor: Call, operands: Operands) -> Callable[[Index], tir.Expr] | None:
    """What zeros in the padding's place lack of the sum at (n, channel, ...); None where that is nothing."""
    fill, weights = pad_value_of(anchor), anchor.args[1]
    if not fill or not any(anchor.attr("pads")) or not isinstance(weights, Constant):
        return None
    edges = [_edges(anchor, axis) for axis in range(len(anchor.shape) - 2)]
    table = operands.array(_table(anchor, weights.value, edges) * np.int32(fill))

    def lacking(index: Index) -> tir.Expr:
        _, channel, *places = index
        return table[(*(edge.number(place) for edge, place in zip(edges, places, strict=True)), channel)]

    return lacking


def _edges(anchor: Call, axis: int) -> _Edges:
    size = anchor.shape[2 + axis]
    outside = [any(_outside(anchor, axis, place)) for place in range(size)]
    before = next((place for place in range(size) if not outside[place]), size)
    after = next((place for place in range(size) if not outside[size - 1 - place]), size)
    return _Edges(size, before, after) if before < size else _Edges(size, size - 1, 0)


def _outside(anchor: Call, axis: int, place: int) -> list[bool]:
    """Which places of a window along an axis are outside of the image."""
    stride, dilation, before = (anchor.attr(name)[axis] for name in ("strides", "dilations", "pads"))
    met = (place * stride + tap * dilation - before for tap in range(anchor.args[1].shape[2 + axis]))
    return [not 0 <= each < anchor.args[0].shape[2 + axis] for each in met]


def _table(anchor: Call, weights: Array, edges: Sequence[_Edges]) -> Array:
    """Sums of the weights that meet padding, by the numbers of a pixel and by channel."""
    taps = weights.astype(np.int64).sum(1)
    table = np.zeros((*(len(edge.places) for edge in edges), weights.shape[0]), np.int64)
    for at in product(*(range(len(edge.places)) for edge in edges)):
        met = np.zeros(taps.shape[1:], bool)
        for axis, (number, edge) in enumerate(zip(at, edges, strict=True)):
            shape = [-1 if each == axis else 1 for each in range(met.ndim)]
            met |= np.array(_outside(anchor, axis, edge.places[number])).reshape(shape)
        table[at] = (taps * met).reshape(weights.shape[0], -1).sum(1)
    return table.astype(np.int32)
