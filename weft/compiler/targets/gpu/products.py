"""Products of matrices, and convolutions as such: operands as matrices, and kernels of what stands behind a product.

A convolution is a product of its weights (rows: output channels of a group, depth: what a window meets) and of a panel
(columns: pixels) that is never there as a whole: a tile of it is gathered into shared memory when it is needed, with
zeros, or what else the padding holds, around the image. Where the result has its channels last, pixels of all images
are the rows, and channels the columns: neighbours in memory are neighbours in a row then. A dense layer of tokens,
which the contract writes as a convolution of many images of one pixel, is the product that it was.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import TypeAlias

import numpy as np

from ... import tensor as te
from ...graph.ir import Call, Constant, Expr
from ...graph.registry import Anchor, operator
from ...operators.windows import met, padded_read
from ...tensor import ir as tir
from ...tensor.view import Builder, Index, View, broadcast, element_type
from ..loops.fusion import FusedGroup
from ..loops.kernels import Kernel, Operands, finished, lower_members
from ..loops.layouts import PLAIN, Layout
from ..loops.product import moved_operands
from .padding import pad_value_of, padding_sums, reads_zeros


@dataclass(frozen=True)
class Product:
    """``left`` (..., rows, depth) times ``right`` (..., depth, columns), of ``shape``. Axes of 1 before the last two
    are the same for all. ``place``: the index of the anchor's result for one of the product; ``lacking``: what the
    anchor's result has beyond the sum. ``strides``: of the product's result in memory, where it is not row-major."""

    left: View
    right: View
    shape: tuple[int, ...]
    place: Callable[[Index], Index] = tuple
    lacking: Callable[[Index], tir.Expr] | None = None
    strides: tuple[int, ...] = ()

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
    layout: Layout,
    name: str,
    sums_of: Callable[[Product], Sums],
    arrange: Callable[[te.Schedule], None],
    row_bytes: int = 1,
) -> Kernel:
    """A group's kernel: a product by ``sums_of``, and its other members on the sums. ``layout``: of its result.
    ``row_bytes``: what rows of constant weights should be a multiple of, with zeros behind them; beyond 1, constant
    operands have their depth innermost."""
    operands = Operands(Builder(), layouts)
    moved = moved_operands(group, anchor, operands)
    product = _product_of(anchor, operands, moved, layout, row_bytes)
    sums = sums_of(product)
    dtype = element_type(anchor.dtype)
    places: dict[Index, Index] = {}  # of the sums, by the index of the anchor's result

    def found(index: Index) -> tir.Expr:
        value = sums.read(places[index])
        return (value if product.lacking is None else value + product.lacking(index)).astype(dtype)

    known = {**moved, anchor: View(anchor.shape, dtype, found)}
    result = lower_members(group, operands, known, lambda call, place, node: operands.constant(node))

    def value(*place: tir.Expr) -> tir.Expr:
        index = product.place(place)
        places[index] = place
        return result[index]

    output = te.compute(sums.shape, value, operands.builder.name("out"))
    kernel = finished(operands, group.root.shape, output, PLAIN, name, arrange)
    return replace(kernel, windows={output.name: product.strides}) if product.strides else kernel


def _kind(call: Call) -> Anchor | None:
    return operator(str(call.op)).anchor


def sizes_of(anchor: Call, *, channels_last: bool = False) -> tuple[int, int, int, int] | None:
    """Products of matrices, and rows, columns and depth of each; None for another operator. ``channels_last``: whether
    the result of a convolution has its channels last."""
    match _kind(anchor):
        case Anchor.PRODUCT if anchor.op != "product":  # the contract's has images as operands, and zero points
            return prod(anchor.shape[:-2]), anchor.shape[-2], anchor.shape[-1], anchor.args[0].shape[-1]
        case Anchor.CONVOLUTION if anchor.args[0].dtype in (*tir.FLOATS, "int8"):
            groups = anchor.attr("groups")
            pixels, depth = prod(anchor.shape[2:]), prod(anchor.args[1].shape[1:])
            if is_of_tokens(anchor):
                return 1, anchor.shape[0], anchor.shape[1], depth
            if channels_last:
                return groups, anchor.shape[0] * pixels, anchor.shape[1] // groups, depth
            return anchor.shape[0] * groups, anchor.shape[1] // groups, pixels, depth
    return None


def is_of_tokens(anchor: Call) -> bool:
    """Whether a convolution is of images of one pixel each, all with the same weights."""
    if _kind(anchor) is not Anchor.CONVOLUTION or any(anchor.attr("pads")):
        return False
    sizes = {size for each in (*anchor.args[:2], anchor) for size in each.shape[2:]}
    return sizes == {1} and anchor.attr("groups") == 1


def is_image_convolution(anchor: Call) -> bool:
    """Whether a call is a convolution over images, and no product of tokens."""
    return _kind(anchor) is Anchor.CONVOLUTION and len(anchor.shape) == 4 and not is_of_tokens(anchor)


def _product_of(
    anchor: Call, operands: Operands, moved: Mapping[Expr, View], layout: Layout, row_bytes: int
) -> Product:
    if is_of_tokens(anchor):
        x, w = (_operand(operands, each) for each in anchor.args)
        pixel = tuple(tir.Const(0) for _ in anchor.shape[2:])
        left = View(x.shape[:2], x.dtype, lambda index: x[(*index, *pixel)])
        right = View((w.shape[1], w.shape[0]), w.dtype, lambda index: w[(index[1], index[0], *pixel)])
        return Product(left, right, anchor.shape[:2], lambda index: (*index, *pixel))
    if _kind(anchor) is not Anchor.CONVOLUTION:
        return of_matrices(anchor, operands, moved, row_bytes)
    if layout.is_plain:
        return _of_images(anchor, operands, row_bytes)
    return _of_pixels(anchor, operands, layout.block, row_bytes)


def _operand(operands: Operands, value: Expr) -> View:
    return operands.constant(value) if isinstance(value, Constant) else operands.view(value)


def of_matrices(anchor: Call, operands: Operands, moved: Mapping[Expr, View], row_bytes: int) -> Product:
    """A product of matrices; ``moved``: the operands that are members of its group."""
    shape = anchor.shape
    left, right = anchor.args
    first = moved.get(left) or _operand(operands, left)
    if anchor.op == "nn.dense":
        turned = moved.get(right) or _operand(operands, right)
        second = View(turned.shape[::-1], turned.dtype, lambda index: turned[index[::-1]])
    elif isinstance(right, Constant) and row_bytes > 1:  # the depth lies innermost, as it does in tiles
        second = operands.constant(right, len(right.shape) - 2)
    else:
        second = moved.get(right) or _operand(operands, right)
    first, second = (broadcast(each, (*shape[:-2], *each.shape[-2:])) for each in (first, second))
    return Product(first, second, shape)


Weight: TypeAlias = Callable[[tir.Expr, tir.Expr, tir.Expr], tir.Expr]
"""By group, output channel of that, and depth."""

Pixel: TypeAlias = Callable[[tir.Expr, tir.Expr, Sequence[tir.Expr], tir.Expr], tir.Expr]
"""What the window of a pixel meets, by image, group, place in the image, and depth."""


def _of_images(anchor: Call, operands: Operands, row_bytes: int) -> Product:
    """Weights times pixels, image by image: the result is plain."""
    weight, pixel, depth, row, dtype = _factors(anchor, operands, row_bytes)
    groups = anchor.attr("groups")
    images, channels, *places = anchor.shape
    rows, pixels = channels // groups, prod(places)
    # Weights are the same for all images.
    left = View((1, groups, rows, row), dtype, lambda index: weight(*index[1:]))
    right = View((images, groups, depth, pixels), dtype,
                 lambda index: pixel(index[0], index[1], _unfolded(index[3], places), index[2]))  # fmt: skip

    def place(index: Index) -> Index:
        n, g, row, column = index
        return (n, g * rows + row, *_unfolded(column, places))

    return Product(left, right, (images, groups, rows, pixels), place, padding_sums(anchor, operands))


def _of_pixels(anchor: Call, operands: Operands, block: int, row_bytes: int) -> Product:
    """Pixels of all images times weights: the result has its channels last, ``block`` for a pixel."""
    weight, pixel, depth, length, dtype = _factors(anchor, operands, row_bytes)
    groups = anchor.attr("groups")
    images, channels, *places = anchor.shape
    columns, pixels = channels // groups, prod(places)

    def found(row: tir.Expr) -> list[tir.Expr]:
        return _unfolded(row, (images, *places)) if images > 1 else [tir.Const(0), *_unfolded(row, places)]

    def read(index: Index) -> tir.Expr:
        g, row, k = index
        n, *at = found(row)
        return pixel(n, g, at, k)

    def place(index: Index) -> Index:
        g, row, column = index
        n, *at = found(row)
        return (n, g * columns + column, *at)

    left = View((groups, images * pixels, depth), dtype, read)
    right = View((groups, length, columns), dtype, lambda index: weight(index[0], index[2], index[1]))

    strides = (columns, block, 1) if (groups, block) != (1, channels) else ()
    return Product(left, right, (groups, images * pixels, columns), place, padding_sums(anchor, operands), strides)


def _factors(anchor: Call, operands: Operands, row_bytes: int) -> tuple[Weight, Pixel, int, int, tir.DType]:
    """The weights, what windows meet, the depth, that of the weights, and the type of both. The depth goes through all
    channels of a pixel, with those that nobody uses, then to the next pixel of the window: neighbours in depth are
    inside of the image together, or not."""
    x = _operand(operands, anchor.args[0])
    groups, strides, dilations = (anchor.attr(name) for name in ("groups", "strides", "dilations"))
    _, depth, *kernel = anchor.args[1].shape
    rows, block = anchor.shape[1] // groups, operands.layouts.get(anchor.args[0], PLAIN).block
    depth = max(depth, block) if groups == 1 and isinstance(anchor.args[1], Constant) else depth
    fill = tir.Const(0 if reads_zeros(anchor) else pad_value_of(anchor), x.dtype)
    read = padded_read(x, anchor.attr("pads"), fill)
    weights = _weights(anchor.args[1], depth, operands, row_bytes)

    def weight(g: tir.Expr, row: tir.Expr, k: tir.Expr) -> tir.Expr:
        return weights[(g * rows + row, k)]

    def pixel(n: tir.Expr, g: tir.Expr, place: Sequence[tir.Expr], k: tir.Expr) -> tir.Expr:
        at = (n, g, *place)
        return read((n, g * depth + k % depth, *met(at, _unfolded(k // depth, kernel), strides, dilations)))

    return weight, pixel, depth * prod(kernel), weights.shape[1], x.dtype


def _weights(value: Expr, depth: int, operands: Operands, row_bytes: int) -> View:
    """Weights (channels, depth of a pixel, window) as (channels, window * ``depth``); constant ones are 0 beyond their
    own. Long rows of these are a multiple of ``row_bytes``."""
    if isinstance(value, Constant):
        wide = np.zeros((value.shape[0], depth, *value.shape[2:]), value.value.dtype)
        wide[:, : value.shape[1]] = value.value
        rows = np.moveaxis(wide, 1, -1).reshape(value.shape[0], -1)
        if rows.shape[1] * rows.itemsize >= 2 * row_bytes:  # short ones would grow by much
            rows = np.pad(rows, ((0, 0), (0, -rows.shape[1] % max(1, row_bytes // rows.itemsize))))
        turned = operands.array(rows)
        return View(turned.shape, turned.dtype, lambda index: turned[index])
    view = operands.view(value)
    kernel = value.shape[2:]

    def weight(index: Index) -> tir.Expr:
        row, k = index
        return view[(row, k % depth, *_unfolded(k // depth, kernel))]

    return View((value.shape[0], depth * prod(kernel)), view.dtype, weight)


def _unfolded(number: tir.Expr, shape: list[int] | tuple[int, ...]) -> list[tir.Expr]:
    """The indices of the element with a number."""
    index: list[tir.Expr] = []
    for size in reversed(shape[1:]):
        index.insert(0, number % size)
        number = number // size
    return [number, *index]
