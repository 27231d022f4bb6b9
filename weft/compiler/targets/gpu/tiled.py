"""Products of matrices and convolutions in tiles: a group makes a tile, its threads a few elements each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from ... import tensor as te
from ...graph.ir import Call, Expr
from ...tensor import ir as tir
from ...tensor.view import View, widened
from ..errors import CompileError
from ..loops.fusion import FusedGroup
from ..loops.kernels import Kernel
from ..loops.layouts import PLAIN, Layout
from ..loops.placement import Placement
from .devices import GpuDescription
from .products import Product, Sums, product_kernel, sizes_of
from .tile_schedule import Tile, choose_tile, schedule_tiled


@dataclass(frozen=True)
class TiledKernels:
    """Groups whose anchor is a product or a convolution that is worth a tile."""

    device: GpuDescription
    name: str = "tiled"

    def result_layout(self, group: FusedGroup, placement: Placement) -> Layout | None:
        return PLAIN if group.anchor is not None and self.tile(group.anchor) is not None else None

    def data_layout(self, group: FusedGroup, placement: Placement) -> Layout | None:
        return None

    def needs_blocks(self, anchor: Call) -> bool:
        return False

    def tile(self, anchor: Call) -> Tile | None:
        """The tile for an anchor; None where a thread an element does better."""
        sizes = sizes_of(anchor)
        return None if sizes is None else choose_tile(*sizes, self.device)

    def build(self, group: FusedGroup, layouts: Mapping[Expr, Layout], layout: Layout, name: str) -> Kernel:
        anchor = group.anchor
        tile = None if anchor is None else self.tile(anchor)
        if anchor is None or tile is None:
            raise CompileError("it has no product that is worth a tile", at=f"kernel {group.name!r}")
        return product_kernel(group, anchor, layouts, layout, name, _sums, partial(schedule_tiled, tile=tile))


def _stage(view: View, name: str) -> te.Tensor:
    """The view as a stage, in float32 where it has floats of 16 bits."""
    wide = widened(view)
    return te.compute(view.shape, lambda *index: wide[index], name)


def _sums(product: Product) -> Sums:
    """Stages ``left``, ``right`` and ``acc``, which adds up: bytes in int32."""
    left, right = _stage(product.left, "left"), _stage(product.right, "right")
    k = te.reduce_axis(left.shape[-1], "k")
    dtype: tir.DType = "int32" if left.dtype == "int8" else left.dtype

    def value(*index: tir.Expr) -> te.Reduction:
        *outer, row, column = index
        first = product.at(product.left, tuple(outer))
        return te.sum(left[(*first, row, k)].astype(dtype) * right[(*outer, k, column)].astype(dtype), [k])

    acc = te.compute(product.shape, value, "acc")
    return Sums(product.shape, acc.dtype, lambda index: acc[index])
