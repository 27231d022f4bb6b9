"""Kernels with a plain result, which any group can be, and changes of layout."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ... import tensor as te
from ...graph.ir import Call, Expr
from ...tensor import ir as tir
from ...tensor.view import Builder
from .fusion import FusedGroup
from .kernels import Kernel, Operands, finished, lower_members
from .layouts import PLAIN, Layout, to_memory, unused
from .placement import Placement
from .target import LoopTarget
from .unpacked_weights import unpacked_operand


@dataclass(frozen=True)
class PlainKernels:
    """Any group. ``arrange`` schedules its stages."""

    arrange: Callable[[te.Schedule], None]
    name: str = "plain"

    def result_layout(self, group: FusedGroup, placement: Placement) -> Layout | None:
        return PLAIN

    def data_layout(self, group: FusedGroup, placement: Placement) -> Layout | None:
        return None

    def needs_blocks(self, anchor: Call) -> bool:
        return False

    def build(self, group: FusedGroup, layouts: Mapping[Expr, Layout], layout: Layout, name: str) -> Kernel:
        operands = Operands(Builder(), layouts)
        result = lower_members(
            group, operands, unpacked_operand(group, operands), lambda call, place, node: operands.constant(node)
        )
        output = te.compute(result.shape, lambda *index: result[index], operands.builder.name("out"))
        return finished(operands, result.shape, output, PLAIN, name, self.arrange)


def converting_kernel(value: Expr, source: Layout, layout: Layout, name: str, target: LoopTarget) -> Kernel:
    """The same tensor in another layout. Channels that pad the last block are `unused`."""
    builder = Builder()
    operands = Operands(builder, {value: source})
    view = operands.view(value)
    block = source.block or layout.block
    channels = value.shape[1] if block else 0
    if layout.is_plain and source.block and channels % block == 0:
        # The same memory as of (N, C, ...), with the channels of a block as an axis.
        shape = (value.shape[0], channels // block, block, *value.shape[2:])
        output = te.compute(shape, lambda n, cb, lane, *rest: view[(n, cb * block + lane, *rest)], builder.name("out"))
    elif layout.is_plain:
        output = te.compute(value.shape, lambda *index: view[index], builder.name("out"))
    else:
        block = layout.block

        def read(n: tir.Expr, cb: tir.Expr, *rest: tir.Expr) -> tir.Expr:
            *places, lane = rest
            c = cb * block + lane
            element = view[(n, c, *places)]
            if channels % block:
                element = tir.select(c < channels, element, unused(view, n, *places))
            return to_memory(element, layout)

        n, _, *sizes = value.shape
        output = te.compute((n, -(-channels // block), *sizes, block), read, builder.name("out"))

    def arrange(schedule: te.Schedule) -> None:
        target.arrange_blocked(schedule, ())

    return finished(operands, value.shape, output, layout, name, target.arrange_plain if layout.is_plain else arrange)
