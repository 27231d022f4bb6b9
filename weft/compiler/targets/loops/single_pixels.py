"""Convolutions of single pixels as products of matrices: their data is brought together first, pixel by pixel.

In blocks of channels the data of a pixel lies in as many places as there are blocks, far from each other. A stage
copies it, with all channels of a pixel side by side and no halo; where there are strides, it copies the pixels alone
that are used. All pixels of the result then are one row, so that tiles are full in narrow images, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from ... import tensor as te
from ...graph.ir import Call, Constant, TensorType, Var
from ...graph.registry import call
from ...tensor import ir as tir
from ...tensor.view import View
from .convolution_sums import reader
from .kernels import Array
from .layouts import Layout

GATHERED = "gathered"
"""The stage that brings data together: (N, pixels, blocks of channels, b)."""


def has_single_pixels(node: Call) -> bool:
    """Whether each pixel of a convolution's result is made of one pixel of its data."""
    return all(size == 1 for size in node.args[1].shape[2:]) and not any(node.attr("pads"))


def as_row(node: Call, data: te.Tensor, layout: Layout, weights: Array, dtype: tir.DType) -> tuple[Call, View]:
    """A convolution of single pixels as one over an image that is one row high, and the data of that: (N, C/b, 1,
    pixels, b), brought together as ``dtype``."""
    batch, _, *sizes = node.shape
    blocks, at = data.shape[1], reader(node, layout)
    tap = (tir.Const(0),) * len(sizes)

    def gather(n: tir.Expr, pixel: tir.Expr, block: tir.Expr, lane: tir.Expr) -> tir.Expr:
        value = data[(n, block, *at(_places(pixel, sizes), tap), lane)]
        return value if dtype == data.dtype else value.astype(dtype)

    gathered = te.compute((batch, prod(sizes), blocks, layout.block), gather, GATHERED)
    x = Var("x", TensorType((batch, node.args[0].shape[1], 1, prod(sizes)), node.args[0].dtype))
    image = (*node.args[1].shape[:2], 1, 1)
    known = Constant(weights[: image[0]].reshape(image))
    op = str(node.op).replace("conv3d", "conv2d")
    row = call(op, x, known, groups=node.attr("groups"), span=node.span)
    shape = (batch, blocks, 1, prod(sizes), layout.block)
    return row, View(shape, gathered.dtype, lambda index: gathered[(index[0], index[3], index[1], index[4])])


def as_image(node: Call, sums: View) -> View:
    """The sums of the row as those of the convolution."""

    def read(index: tuple[tir.Expr, ...]) -> tir.Expr:
        n, c, *places = index
        return sums[(n, c, tir.Const(0), _number(places, node.shape[2:]))]

    return View(node.shape, sums.dtype, read)


def _places(pixel: tir.Expr, sizes: Sequence[int]) -> list[tir.Expr]:
    """Where a pixel is, along each axis."""
    places = []
    for size in reversed(sizes[1:]):
        places.append(pixel % size)
        pixel = pixel // size
    return [pixel, *reversed(places)]


def _number(places: Sequence[tir.Expr], sizes: Sequence[int]) -> tir.Expr:
    """The pixel at a place."""
    pixel, *others = places
    for place, size in zip(others, sizes[1:], strict=True):
        pixel = pixel * size + place
    return pixel
