"""Products of matrices and convolutions in tiles: a group makes a tile of the result, its threads a few elements each.

A convolution is a product of its weights (rows: output channels of a group, depth: what a window meets) and of a panel
(columns: pixels) that is never there as a whole: a tile of it is gathered into shared memory when it is needed, with
zeros, or what else the padding holds, around the image.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from math import prod

from ... import tensor as te
from ...graph.ir import Call, Constant, Expr
from ...graph.registry import Anchor, operator
from ...operators.windows import met, padded_read
from ...tensor import ir as tir
from ...tensor.view import Builder, Index, View, broadcast, element_type, widened
from ..errors import CompileError
from ..loops.fusion import FusedGroup
from ..loops.kernels import Kernel, Operands, finished, lower_members
from ..loops.layouts import Layout
from ..loops.placement import Placement
from .devices import GpuDescription
from .tile_schedule import Tile, choose_tile, schedule_tiled


@dataclass(frozen=True)
class TiledKernels:
    """Groups whose anchor is a product or a convolution that is worth a tile."""

    device: GpuDescription
    name: str = "tiled"

    def block(self, group: FusedGroup, placement: Placement) -> int | None:
        return 0 if group.anchor is not None and self.tile(group.anchor) is not None else None

    def data_layout(self, group: FusedGroup, placement: Placement) -> Layout | None:
        return None

    def needs_blocks(self, anchor: Call) -> bool:
        return False

    def tile(self, anchor: Call) -> Tile | None:
        """The tile for an anchor; None where a thread an element does better."""
        sizes = _sizes(anchor)
        return None if sizes is None else choose_tile(*sizes, self.device)

    def build(self, group: FusedGroup, layouts: Mapping[Expr, Layout], layout: Layout, name: str) -> Kernel:
        anchor = group.anchor
        tile = None if anchor is None else self.tile(anchor)
        if anchor is None or tile is None:
            raise CompileError("it has no product that is worth a tile", at=f"kernel {group.name!r}")
        operands = Operands(Builder(), layouts)
        product = _of_convolution if _kind(anchor) is Anchor.CONVOLUTION else _of_matrices
        acc = product(anchor, operands)
        dtype = element_type(anchor.dtype)
        places: dict[Index, Index] = {}  # of the stage that adds up, by the index of the anchor's result

        def sums(index: Index) -> tir.Expr:
            return acc[places[index]].astype(dtype)

        known: dict[Expr, View] = {anchor: View(anchor.shape, dtype, sums)}
        result = lower_members(group, operands, known, lambda call, place, node: operands.constant(node))

        def value(*place: tir.Expr) -> tir.Expr:
            index = _index(anchor, place)
            places[index] = place
            return result[index]

        output = te.compute(acc.shape, value, operands.builder.name("out"))
        arrange = partial(schedule_tiled, tile=tile)
        return finished(operands, group.root.shape, output, Layout(), name, arrange)


def _kind(call: Call) -> Anchor | None:
    return operator(str(call.op)).anchor


def _sizes(anchor: Call) -> tuple[int, int, int, int] | None:
    """Products of matrices, and rows, columns and depth of each; None for another operator."""
    match _kind(anchor):
        case Anchor.PRODUCT:
            return prod(anchor.shape[:-2]), anchor.shape[-2], anchor.shape[-1], anchor.args[0].shape[-1]
        case Anchor.CONVOLUTION if anchor.args[0].dtype in (*tir.FLOATS, "int8"):
            groups = anchor.attr("groups")
            pixels, depth = prod(anchor.shape[2:]), prod(anchor.args[1].shape[1:])
            return anchor.shape[0] * groups, anchor.shape[1] // groups, pixels, depth
    return None


def _stage(view: View, name: str) -> te.Tensor:
    """The view as a stage, in float32 where it has floats of 16 bits."""
    wide = widened(view)
    return te.compute(view.shape, lambda *index: wide[index], name)


def _operand(operands: Operands, value: Expr) -> View:
    return operands.constant(value) if isinstance(value, Constant) else operands.view(value)


def _sum(left: te.Tensor, right: te.Tensor, shape: tuple[int, ...]) -> te.Tensor:
    """The stage that adds up: ``left`` (..., rows, depth) times ``right`` (..., depth, columns), bytes in int32. Axes
    of 1 before the last two are the same for all."""
    k = te.reduce_axis(left.shape[-1], "k")
    dtype: tir.DType = "int32" if left.dtype == "int8" else left.dtype

    def value(*index: tir.Expr) -> te.Reduction:
        *outer, row, column = index
        first = [tir.Const(0) if size == 1 else each for size, each in zip(left.shape, outer, strict=False)]
        return te.sum(left[(*first, row, k)].astype(dtype) * right[(*outer, k, column)].astype(dtype), [k])

    return te.compute(shape, value, "acc")


def _of_matrices(anchor: Call, operands: Operands) -> te.Tensor:
    shape = anchor.shape
    first, second = (_operand(operands, each) for each in anchor.args)
    if anchor.op == "nn.dense":
        turned = second
        second = View(turned.shape[::-1], turned.dtype, lambda index: turned[index[::-1]])
    left, right = (broadcast(each, (*shape[:-2], *each.shape[-2:])) for each in (first, second))
    stages = _stage(left, "left"), _stage(right, "right")
    return _sum(*stages, shape)


def _of_convolution(anchor: Call, operands: Operands) -> te.Tensor:
    x, w = (_operand(operands, each) for each in anchor.args)
    groups, strides, dilations = (anchor.attr(name) for name in ("groups", "strides", "dilations"))
    images, channels, *places = anchor.shape
    _, depth, *kernel = w.shape
    rows = channels // groups
    taps = prod(kernel)
    fill = tir.Const(anchor.attrs.get("pad_value", 0), x.dtype)  # type: ignore[arg-type]
    read = padded_read(x, anchor.attr("pads"), fill)

    def weight(index: Index) -> tir.Expr:
        _, g, row, k = index
        return w[(g * rows + row, k // taps, *_unfolded(k % taps, kernel))]

    def pixel(index: Index) -> tir.Expr:
        n, g, k, column = index
        at = (n, g, *_unfolded(column, places))
        return read((n, g * depth + k // taps, *met(at, _unfolded(k % taps, kernel), strides, dilations)))

    # Weights are the same for all images.
    left = _stage(View((1, groups, rows, depth * taps), w.dtype, weight), "left")
    right = _stage(View((images, groups, depth * taps, prod(places)), x.dtype, pixel), "right")
    return _sum(left, right, (images, groups, rows, prod(places)))


def _index(anchor: Call, index: Index) -> Index:
    """The index of the anchor's result for one of the stage that adds up."""
    if _kind(anchor) is not Anchor.CONVOLUTION:
        return index
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
