"""Products of which the weights alone are quantised (*weight-only*): constants of 8 bits or fewer behind a dequantise.

Such weights stay integers, packed in 2, 4 or 8 bits, and become floats where they are multiplied:

    result[r, o] = sum over blocks b of scale[b, o] * sum over k in b of x[r, k] * (code[k, o] - zero[b, o])

A product of few rows, such as a step of a language model, takes as long as reading its weights does; that is why they
are not widened beforehand. With more rows each panel of weights is widened once and used for all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

from ... import tensor as te
from ...graph.ir import Call, Expr
from ...tensor import ir as tir
from ...tensor.view import Builder, View
from ..errors import CompileError
from .fusion import FusedGroup
from .kernels import Kernel, Operands, finished
from .layouts import PLAIN, Layout
from .placement import Placement
from .product import ACC, LEFT, Blocking, ProductSchedule, build_product, moved_operands, result_of, stage_in_float32
from .quantised_weights import Weights, is_weight_only, weights_of
from .unpacked_weights import as_floats, factors

PART = "part"
"""Stage: the sums of one block, before its scale."""


class WeightOnlySchedule(Protocol):
    """A target's way to compute such products of few rows."""

    def lanes(self, rows: int, columns: int) -> int:
        """Columns of a panel, which divide all; 0 where the rows are too many for this way, or no panel fits."""

    def arrange(self, schedule: te.Schedule, lanes: int) -> None:
        """Schedule the kernel: its stages are `LEFT` (a copy of the rows, if they are not read where they lie),
        `PART`, `ACC`, and the result."""


@dataclass(frozen=True)
class WeightOnlyKernels:
    """Groups whose anchor is such a product, and which have its weights' dequantise as a member."""

    few: WeightOnlySchedule
    many: ProductSchedule
    name: str = "product"

    def result_layout(self, group: FusedGroup, placement: Placement) -> Layout | None:
        anchor = group.anchor
        return PLAIN if anchor is not None and anchor.args[-1] in group.members and is_weight_only(anchor) else None

    def data_layout(self, group: FusedGroup, placement: Placement) -> Layout | None:
        return None

    def needs_blocks(self, anchor: Call) -> bool:
        return False

    def build(self, group: FusedGroup, layouts: Mapping[Expr, Layout], layout: Layout, name: str) -> Kernel:
        anchor = group.anchor
        if anchor is None or not is_weight_only(anchor):
            raise CompileError("it has no product with quantised weights", at=f"kernel {group.name!r}")
        weights = weights_of(anchor)
        others = replace(group, members=tuple(node for node in group.members if node is not anchor.args[1]))
        lanes = self.few.lanes(anchor.shape[-2], anchor.shape[-1])
        if lanes:
            return _of_few_rows(self.few, lanes, others, anchor, weights, layouts, name)

        def second(operands: Operands, blocking: Blocking) -> View:
            width = blocking.tile.lanes
            return as_floats(operands, weights, width if anchor.shape[-1] % width == 0 else anchor.shape[-1])

        return build_product(self.many, others, layouts, name, second)


def _of_few_rows(
    schedule: WeightOnlySchedule, lanes: int, group: FusedGroup, anchor: Call, weights: Weights,
    layouts: Mapping[Expr, Layout], name: str,
) -> Kernel:  # fmt: skip
    operands = Operands(Builder(), layouts)
    views = moved_operands(group, anchor, operands)
    first = anchor.args[0]
    left = views[first] if first in views else operands.view(first)
    if first in views or not layouts[first].is_plain:
        left = stage_in_float32(left, LEFT)
    code, zero, scale = factors(operands, weights, lanes)
    steps, in_byte = weights.block // weights.in_byte, weights.in_byte
    step, place = te.reduce_axis(steps, "step"), te.reduce_axis(in_byte, "place")

    def of_block(b: tir.Expr, *index: tir.Expr) -> te.Reduction:
        *outer, row, column = index
        at = b * steps + step
        weight = code(at, place, column) - zero(b, column)
        return te.sum(left[(*outer, row, at * in_byte + place)] * weight, [step, place])

    blocks = len(weights.scales)
    part = te.compute((blocks, *anchor.shape), of_block, PART)
    b = te.reduce_axis(blocks, "b")
    acc = te.compute(anchor.shape, lambda *index: te.sum(part[(b, *index)] * scale(b, index[-1]), [b]), ACC)
    output = result_of(group, anchor, operands, views, acc.__getitem__)
    return finished(operands, anchor.shape, output, PLAIN, name, partial(schedule.arrange, lanes=lanes))
