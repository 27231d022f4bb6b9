"""Products of matrices, and convolutions as such: operands as matrices, and kernels of what stands behind a product.

A convolution is a product of its weights (rows: output channels of a group, depth: what a window meets) and of a panel
(columns: pixels) that is never there as a whole: a tile of it is gathered into shared memory when it is needed, with
zeros, or what else the padding holds, around the image. A dense layer of tokens, which the contract writes as a
convolution of many images of one pixel, is the product that it was.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod

import numpy as np

from ... import tensor as te
from ...graph.ir import Call, Constant, Expr
from ...graph.registry import Anchor, operator
from ...operators.windows import met, padded_read
from ...tensor import ir as tir
from ...tensor.view import Builder, Index, View, broadcast, element_type
from ..loops.fusion import FusedGroup
from ..loops.kernels import Kernel, Operands, finished, lower_members
from ..loops.layouts import Layout


@dataclass(frozen=True)
class Product:
    """``left`` (..., rows, depth) times ``right`` (..., depth, columns), of ``shape``. Axes of 1 before the last two
    are the same for all."""

    left: View
    right: View
    shape: tuple[int, ...]

    def at(self, view: View, outer: Index) -> Index:
        """The index of a matrix of an operand, for that of a matrix of the result."""
        return tuple(tir.Const(0) if size == 1 else each for size, each in zip(view.shape, outer, strict=False))


@dataclass(frozen=True)
class Sums:
    """The finished sums of a product of ``shape``, of type ``dtype``, by the index of an element."""

    shape: tuple[int, ...]
    dtype: tir.DType
    read: Callable[[Index], tir.Expr]


def product_kernel(
    group: FusedGroup,
    anchor: Call,
    layouts: Mapping[Expr, Layout],
    name: str,
    sums_of: Callable[[Product], Sums],
    arrange: Callable[[te.Schedule], None],
) -> Kernel:
    """A group's kernel: a product by ``sums_of``, and its other members on the sums."""
    operands = Operands(Builder(), layouts)
    sums = sums_of(_product_of(anchor, operands))
    dtype = element_type(anchor.dtype)
    places: dict[Index, Index] = {}  # of the sums, by the index of the anchor's result

    def found(index: Index) -> tir.Expr:
        return sums.read(places[index]).astype(dtype)

    known: dict[Expr, View] = {anchor: View(anchor.shape, dtype, found)}
    result = lower_members(group, operands, known, lambda call, place, node: operands.constant(node))

    def value(*place: tir.Expr) -> tir.Expr:
        index = _index(anchor, place)
        places[index] = place
        return result[index]

    output = te.compute(sums.shape, value, operands.builder.name("out"))
    return finished(operands, group.root.shape, output, Layout(), name, arrange)


def _kind(call: Call) -> Anchor | None:
    return operator(str(call.op)).anchor


def sizes_of(anchor: Call) -> tuple[int, int, int, int] | None:
    """Products of matrices, and rows, columns and depth of each; None for another operator."""
    match _kind(anchor):
        case Anchor.PRODUCT if anchor.op != "product":  # the contract's has images as operands, and zero points
            return prod(anchor.shape[:-2]), anchor.shape[-2], anchor.shape[-1], anchor.args[0].shape[-1]
        case Anchor.CONVOLUTION if anchor.args[0].dtype in (*tir.FLOATS, "int8"):
            groups = anchor.attr("groups")
            pixels, depth = prod(anchor.shape[2:]), prod(anchor.args[1].shape[1:])
            if _is_of_tokens(anchor):
                return 1, anchor.shape[0], anchor.shape[1], depth
            return anchor.shape[0] * groups, anchor.shape[1] // groups, pixels, depth
    return None


def _is_of_tokens(anchor: Call) -> bool:
    """Whether a convolution is of several images of one pixel each, all with the same weights."""
    if _kind(anchor) is not Anchor.CONVOLUTION or anchor.shape[0] == 1 or any(anchor.attr("pads")):
        return False
    sizes = {size for each in (*anchor.args[:2], anchor) for size in each.shape[2:]}
    return sizes == {1} and anchor.attr("groups") == 1


def _product_of(anchor: Call, operands: Operands) -> Product:
    if _is_of_tokens(anchor):
        x, w = (_operand(operands, each) for each in anchor.args)
        pixel = tuple(tir.Const(0) for _ in anchor.shape[2:])
        left = View(x.shape[:2], x.dtype, lambda index: x[(*index, *pixel)])
        right = View((w.shape[1], w.shape[0]), w.dtype, lambda index: w[(index[1], index[0], *pixel)])
        return Product(left, right, anchor.shape[:2])
    return _of_convolution(anchor, operands) if _kind(anchor) is Anchor.CONVOLUTION else _of_matrices(anchor, operands)


def _operand(operands: Operands, value: Expr) -> View:
    return operands.constant(value) if isinstance(value, Constant) else operands.view(value)


def _of_matrices(anchor: Call, operands: Operands) -> Product:
    shape = anchor.shape
    first, second = (_operand(operands, each) for each in anchor.args)
    if anchor.op == "nn.dense":
        turned = second
        second = View(turned.shape[::-1], turned.dtype, lambda index: turned[index[::-1]])
    left, right = (broadcast(each, (*shape[:-2], *each.shape[-2:])) for each in (first, second))
    return Product(left, right, shape)


def _of_convolution(anchor: Call, operands: Operands) -> Product:
    """The depth goes through all channels of a pixel, then to the next pixel of the window: neighbours in depth are
    inside of the image together, or not."""
    x = _operand(operands, anchor.args[0])
    groups, strides, dilations = (anchor.attr(name) for name in ("groups", "strides", "dilations"))
    images, channels, *places = anchor.shape
    _, depth, *kernel = anchor.args[1].shape
    rows, taps = channels // groups, prod(kernel)
    fill = tir.Const(anchor.attrs.get("pad_value", 0), x.dtype)  # type: ignore[arg-type]
    read = padded_read(x, anchor.attr("pads"), fill)
    weights = _weights(anchor.args[1], operands)

    def weight(index: Index) -> tir.Expr:
        _, g, row, k = index
        return weights[(g * rows + row, k)]

    def pixel(index: Index) -> tir.Expr:
        n, g, k, column = index
        at = (n, g, *_unfolded(column, places))
        return read((n, g * depth + k % depth, *met(at, _unfolded(k // depth, kernel), strides, dilations)))

    # Weights are the same for all images.
    left = View((1, groups, rows, depth * taps), weights.dtype, weight)
    right = View((images, groups, depth * taps, prod(places)), x.dtype, pixel)
    return Product(left, right, (images, groups, rows, prod(places)))


def _weights(value: Expr, operands: Operands) -> View:
    """Weights (channels, depth of a pixel, window) as (channels, window * depth)."""
    if isinstance(value, Constant):
        turned = operands.array(np.moveaxis(value.value, 1, -1).reshape(value.shape[0], -1))
        return View(turned.shape, turned.dtype, lambda index: turned[index])
    view = operands.view(value)
    _, depth, *kernel = value.shape

    def weight(index: Index) -> tir.Expr:
        row, k = index
        return view[(row, k % depth, *_unfolded(k // depth, kernel))]

    return View((value.shape[0], depth * prod(kernel)), view.dtype, weight)


def _index(anchor: Call, index: Index) -> Index:
    """The index of the anchor's result for one of the stage that adds up."""
    if _kind(anchor) is not Anchor.CONVOLUTION:
        return index
    if _is_of_tokens(anchor):
        return (*index, *(tir.Const(0) for _ in anchor.shape[2:]))
    n, g, row, column = index
    rows = anchor.shape[1] // anchor.attr("groups")
    return (n, g * rows + row, *_unfolded(column, anchor.shape[2:]))


def _unfolded(number: tir.Expr, shape: list[int] | tuple[int, ...]) -> list[tir.Expr]:
    """The indices of the element with a number."""
    index: list[tir.Expr] = []
    for size in reversed(shape[1:]):
        index.insert(0, number % size)
        number = number // size
    return [number, *index]
