"""Products and convolutions in whole tiles: a group makes a tile of the result, its warps parts of that, on tensor
cores or by threads.

Operands are stages whose sizes are whole tiles; what lies beyond the edges is zero, so warps always multiply whole
tiles. Only the result knows its true sizes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from math import prod

from ... import tensor as te
from ...graph.ir import Call, Constant, Expr
from ...tensor import ir as tir
from ...tensor.compute import TensorRead
from ...tensor.evaluate import ITEM_BYTES
from ...tensor.view import Index, View, element_type
from ...tensor.visitor import free_vars, map_exprs, walk_exprs
from ..errors import CompileError
from ..loops.fusion import FusedGroup
from ..loops.kernels import Kernel
from ..loops.layouts import PLAIN, Layout, channels_last
from ..loops.placement import Placement
from .devices import GpuDescription
from .intrinsics import MATRIX_BYTES, TURNED_BYTES
from .mma_shapes import MmaShape
from .padding import reads_zeros
from .products import Product, Sums, is_image_convolution, product_kernel, sizes_of
from .tensor_schedule import LEAST_TOGETHER, PART, TOTAL, schedule_tensor_cores, turned_name
from .tile_choice import choose_plan
from .tiles import Plan, Shape
from .vector_loops import neighbours_at_once


@dataclass(frozen=True)
class TensorKernels:
    """Groups whose anchor is a product or a convolution that one of ``shapes`` does."""

    device: GpuDescription
    shapes: tuple[Shape, ...]
    name: str = "tensor cores"

    def result_layout(self, group: FusedGroup, placement: Placement) -> Layout | None:
        if group.anchor is None:
            return None
        layout = channels_last(group.root) if _makes_images(group, placement) else PLAIN
        return None if self.plan(group.anchor, layout) is None else layout

    def data_layout(self, group: FusedGroup, placement: Placement) -> Layout | None:
        """Pixels that windows meet several times are copied by vectors: a conversion pays. Others are read where they
        are."""
        if group.anchor is None or not self.needs_blocks(group.anchor):
            return None
        data = group.anchor.args[0]
        wanted = channels_last(data)
        again = prod(group.anchor.args[1].shape[2:]) > 1
        return wanted if again or placement.layout(data) == wanted else None

    def needs_blocks(self, anchor: Call) -> bool:
        if not is_image_convolution(anchor) or not reads_zeros(anchor) or isinstance(anchor.args[0], Constant):
            return False
        data, weights = anchor.args
        own = channels_last(data).block if anchor.attr("groups") == 1 else weights.shape[1]
        if own != weights.shape[1] and not isinstance(weights, Constant):  # those of channels that nobody uses are zero
            return False
        together = own * ITEM_BYTES[element_type(data.dtype)]
        return together % LEAST_TOGETHER == 0 and self.plan(anchor, channels_last(anchor)) is not None

    def plan(self, anchor: Call, layout: Layout) -> tuple[Plan, Shape] | None:
        """The tile for an anchor with its result in a layout, and the product that makes it; None where they do not
        help."""
        sizes = sizes_of(anchor, channels_last=not layout.is_plain)
        if sizes is None:
            return None
        dtypes = {each.dtype for each in anchor.args[:2]}
        shape = next((each for each in self.shapes if {each.dtype} == dtypes), None)
        if shape is None:
            return None
        plan = choose_plan(*sizes, shape, self.device)
        return None if plan is None else (plan, shape)

    def build(self, group: FusedGroup, layouts: Mapping[Expr, Layout], layout: Layout, name: str) -> Kernel:
        anchor = group.anchor
        chosen = None if anchor is None else self.plan(anchor, layout)
        if anchor is None or chosen is None:
            raise CompileError(f"it has no product for {self.name}", at=f"kernel {group.name!r}")
        plan, shape = chosen
        arrange = partial(schedule_tensor_cores, plan=plan, shape=shape, device=self.device)
        sums = partial(tensor_sums, plan=plan, shape=shape)
        return product_kernel(group, anchor, layouts, layout, name, sums, arrange, SECTOR_BYTES)


SECTOR_BYTES = 32
"""What memory gives at a time."""


def _makes_images(group: FusedGroup, placement: Placement) -> bool:
    """Whether a group makes images of a convolution that other kernels read, so that it chooses how they lie."""
    anchor, root = group.anchor, group.root
    if anchor is None or not is_image_convolution(anchor) or root.shape != anchor.shape:
        return False
    return root in placement.readers and prod(root.shape[2:]) > 1


def tensor_sums(product: Product, plan: Plan, shape: Shape) -> Sums:
    """Stages ``left``, ``right``, ``acc`` and ``sums`` as `schedule_tensor_cores` takes them: of whole tiles, those of
    the sums counted by tile and by place in it. Where the depth has parts, ``part`` is the sum over each."""
    *outer, rows, columns = product.shape
    tile, parts = plan.tile, plan.parts
    depth = tile.depth * parts
    left = operand(product.left, tile.rows, depth, "left", shape)
    right = operand(turned(product.right), tile.columns, depth, "right", shape)
    deep = left.shape[-1] // parts
    k = te.reduce_axis(deep, "k")

    def value(*index: tir.Expr) -> te.Reduction:
        *matrix, down, across, row, column = index
        at = matrix.pop(0) * deep + k if parts > 1 else k
        a = left[(*product.at(product.left, tuple(matrix)), down * tile.rows + row, at)]
        b = right[(*product.at(product.right, tuple(matrix)), across * tile.columns + column, at)]
        return te.sum(a.astype(shape.sums) * b.astype(shape.sums), [k])

    tiles = (-(-rows // tile.rows), -(-columns // tile.columns), tile.rows, tile.columns)
    acc = te.compute((*([parts] if parts > 1 else []), *outer, *tiles), value, "acc")
    sums = te.compute(acc.shape, lambda *index: acc[index], "sums")

    def read(index: Index) -> tir.Expr:
        *matrix, row, column = index
        return sums[(*matrix, row // tile.rows, column // tile.columns, row % tile.rows, column % tile.columns)]

    if parts == 1:
        return Sums(product.shape, shape.sums, read)
    part = te.compute((parts, *product.shape), lambda *index: read(index), PART)
    p = te.reduce_axis(parts, "p")
    total = te.compute(product.shape, lambda *index: te.sum(part[(p, *index)], [p]), TOTAL)
    return Sums(product.shape, shape.sums, lambda index: total[index])


def operand(view: View, rows: int, depth: int, name: str, shape: Shape) -> te.Tensor:
    """An operand of a product, whose rows lie along the depth, as a stage of whole tiles. Where neighbours in memory
    are those in a column, the stage lies as they do, and another one has its rows."""
    if not isinstance(shape, MmaShape) or not _lies_turned(view):
        return padded(view, rows, depth, name)
    stage = padded(turned(view), depth, rows, name)
    *outer, deep, height = stage.shape
    return te.compute((*outer, height, deep), lambda *index: stage[(*index[:-2], index[-1], index[-2])],
                      turned_name(name))  # fmt: skip


def _lies_turned(view: View) -> bool:
    """Whether more neighbours lie together along the columns of a matrix than along its rows, of a type that tensor
    cores transpose as they load it."""
    size = ITEM_BYTES[view.dtype]
    if size != TURNED_BYTES:
        return False
    index = [tir.Var(f"i{axis}") for axis in range(len(view.shape))]
    value = map_exprs(view[tuple(index)], _loaded)
    if any(isinstance(node, tir.Select) and index[-2] in free_vars(node.cond) for node in walk_exprs(value)):
        return False
    along = [neighbours_at_once(value, loop, MATRIX_BYTES // size, LEAST_TOGETHER // size) for loop in index[-2:]]
    return along[0] > along[1]


def _loaded(node: tir.Expr) -> tir.Expr | None:
    """A read of a tensor as the loop IR has it."""
    return tir.Load(node.tensor.buffer, node.indices) if isinstance(node, TensorRead) else None


def turned(view: View) -> View:
    """The matrices of a view transposed."""
    *outer, rows, columns = view.shape
    return View((*outer, columns, rows), view.dtype, lambda index: view[(*index[:-2], index[-1], index[-2])])


def padded(view: View, rows: int, depth: int, name: str) -> te.Tensor:
    """The view as a stage of whole tiles, zero beyond its edges."""
    *outer, height, width = view.shape

    def value(*index: tir.Expr) -> tir.Expr:
        read = view[index]
        if height % rows:
            read = tir.select(index[-2] < height, read, tir.Const(0, view.dtype))
        if width % depth:
            read = tir.select(index[-1] < width, read, tir.Const(0, view.dtype))
        return read

    return te.compute((*outer, -(-height // rows) * rows, -(-width // depth) * depth), value, name)
