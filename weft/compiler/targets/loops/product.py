"""Products of matrices in register tiles; all tensors are plain, or read as if they were.

The result is cut into blocks of rows and columns, which threads share out; within a block, panels of columns as wide as
the tile go by one after the other, and within a panel the rows. Each panel of the second operand may be copied first,
so that it is read in one stream; a constant lies in panels already.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, Protocol

import numpy as np

from ... import tensor as te
from ...graph.dtypes import HALVES
from ...graph.ir import Call, Constant, Expr
from ...graph.registry import Anchor, Role, operator, role_of
from ...tensor import ir as tir
from ...tensor.view import Builder, Read, View, broadcast, element_type, widened
from ..errors import CompileError
from .columns import columns_of
from .fusion import FusedGroup
from .kernels import Array, Kernel, Operands, Tile, finished, lower_members
from .layouts import PLAIN, Layout
from .placement import Placement
from .unpacked_weights import unpacked_operand

LEFT, PANEL, ACC = "left", "panel", "acc"
"""Stages: copies of the rows of the first operand and of panels of the second one; what adds up."""

COMPUTED_IN_FLOAT32 = ("float32", *HALVES)

Step = Literal["floats", "bytes", "pairs", "words", "elements"]
"""What is multiplied at a time: values of float32; bytes by fours; values of bfloat16 by twos; bytes that were widened
to int16 before, by twos, or by fours of which each is multiplied by itself."""


@dataclass(frozen=True)
class Blocking:
    """``tile``: accumulators in registers. ``rows``, ``columns``: of a block. ``copied``: whether the first operand is
    copied into plain rows first; ``packed``: whether panels of the second one are copied. ``run``: where each block of
    rows is copied for itself, when it is used, the elements of a row that lie side by side; else 0."""

    tile: Tile
    rows: int
    columns: int
    copied: bool
    packed: bool
    run: int = 0


class ProductSchedule(Protocol):
    """A target's way to compute products."""

    @property
    def pairs(self) -> bool:
        """Whether there is an instruction for values of bfloat16 by twos."""

    def blocking(self, shape: tuple[int, ...], depth: int, plain: tuple[bool, bool], constant: bool) -> Blocking:
        """How to compute a result of this shape, each element of which is a sum of ``depth`` products, or of as many
        fours of bytes or twos of bfloat16.

        ``plain``: whether each operand can be read where it lies, in row-major order. ``constant``: whether the second
        is constant, and so may lie in any order.
        """

    def by_blocks(self, blocking: Blocking, shape: tuple[int, ...], depth: int, run: int) -> Blocking:
        """The same tile for rows that are copied block by block, as `Blocking.run` says."""

    def arrange(self, schedule: te.Schedule, blocking: Blocking, depth: int, step: Step = "floats") -> None:
        """Schedule the kernel: its stages are `LEFT` and `PANEL` (copies of the operands, where the blocking has
        them), `ACC`, which adds up, and the result. ``depth``: elements of a row of the first operand. Of bytes
        there may be sums of rows and of columns, too."""


@dataclass(frozen=True)
class ProductKernels:
    """Groups whose anchor is a product of matrices of floats."""

    schedule: ProductSchedule
    name: str = "product"

    def result_layout(self, group: FusedGroup, placement: Placement) -> Layout | None:
        return PLAIN if group.anchor is not None and is_matrix_product(group.anchor) else None

    def data_layout(self, group: FusedGroup, placement: Placement) -> Layout | None:
        return None

    def needs_blocks(self, anchor: Call) -> bool:
        return False

    def build(self, group: FusedGroup, layouts: Mapping[Expr, Layout], layout: Layout, name: str) -> Kernel:
        return build_product(self.schedule, group, layouts, name)


Second = Callable[[Operands, Blocking], View]
"""A second operand (depth, columns) that is computed where panels of it are copied."""


def build_product(
    schedule: ProductSchedule, group: FusedGroup, layouts: Mapping[Expr, Layout], name: str,
    second_operand: Second | None = None,
) -> Kernel:  # fmt: skip
    """The kernel of a group that has a product of matrices as its anchor."""
    anchor = group.anchor
    if anchor is None or not is_matrix_product(anchor):
        raise CompileError("it has no product of matrices", at=f"kernel {group.name!r}")
    operands = Operands(Builder(), layouts)
    first, second = anchor.args
    shape, depth = anchor.shape, first.shape[-1]
    matrix = constant_matrix(anchor, "float32")
    second_plain = matrix is not None or (role_of(anchor) is Role.MATRIX_PRODUCT and _is_plain(second, layouts))
    plain = _is_plain(first, layouts), second_plain
    blocking = schedule.blocking(shape, depth, plain, matrix is not None)
    views = moved_operands(group, anchor, operands)
    left, blocking = rows_of(anchor, operands, views, schedule, blocking, depth)
    if blocking.copied:
        left = stage_in_float32(left, LEFT)
    if second_operand is not None:
        blocking = replace(blocking, packed=True)
        right = second_operand(operands, blocking)
    elif matrix is not None and shape[-1] % blocking.tile.lanes == 0:
        right = _panels(operands, matrix, blocking.tile.lanes)
    elif matrix is not None:
        right = operands.constant(Constant(matrix))
    else:
        right = second_of(anchor, operands, views)
    if blocking.packed:
        right = stage_in_float32(right, PANEL)
    left, right = (broadcast(view, (*shape[:-2], *view.shape[-2:])) for view in (left, right))
    k = te.reduce_axis(depth, "k")

    def value(*index: tir.Expr) -> te.Reduction:
        *outer, row, column = index
        return te.sum(left[(*outer, row, k)] * right[(*outer, k, column)], [k])

    acc = te.compute(shape, value, ACC)
    output = result_of(group, anchor, operands, views, acc.__getitem__)
    arrange = partial(schedule.arrange, blocking=blocking, depth=depth)
    return finished(operands, shape, output, PLAIN, name, arrange)


def is_matrix_product(call: Call) -> bool:
    """Whether a call is a product of matrices of floats; constant weights count too."""
    return (
        operator(str(call.op)).anchor is Anchor.PRODUCT and call.args[0].dtype in COMPUTED_IN_FLOAT32
        and not isinstance(call.args[0], Constant)
    )  # fmt: skip


def rows_of(
    anchor: Call, operands: Operands, views: Mapping[Expr, View], schedule: ProductSchedule, blocking: Blocking,
    depth: int,
) -> tuple[View, Blocking]:  # fmt: skip
    """The first operand, and how its rows are copied, if they are. ``views``: of members before the anchor. ``depth``:
    as a schedule's blocking takes it."""
    first = anchor.args[0]
    columns = columns_of(anchor) if first in views else None
    if columns is not None:
        blocks = schedule.by_blocks(blocking, anchor.shape, depth, columns.run)
        return columns.rows(views[columns.met]), blocks
    if first in views or (blocking.copied and first.dtype in HALVES):
        blocking = schedule.by_blocks(blocking, anchor.shape, depth, first.shape[-1])
    return views[first] if first in views else operands.view(first), blocking


def second_of(anchor: Call, operands: Operands, views: Mapping[Expr, View]) -> View:
    """The second operand, (..., depth, columns), wherever it lies."""
    value = anchor.args[1]
    if isinstance(value, Constant):
        view = operands.constant(value, in_memory=True)  # from where the instructions of a tile take it
    else:
        view = views[value] if value in views else operands.view(value)
    return transposed(view) if anchor.op == "nn.dense" else view


def result_of(group: FusedGroup, anchor: Call, operands: Operands, views: dict[Expr, View], sums: Read) -> te.Tensor:
    """The group's result, of the anchor's sums in float32, which are rounded to its type."""
    dtype = element_type(anchor.dtype)
    views[anchor] = View(anchor.shape, dtype, lambda index: sums(index).astype(dtype))
    result = lower_members(group, operands, views, lambda call, place, node: operands.constant(node))
    return te.compute(anchor.shape, lambda *index: result[index], operands.builder.name("out"))


def moved_operands(group: FusedGroup, anchor: Call, operands: Operands) -> dict[Expr, View]:
    """The operands that are moves or casts in the group, which the copies read through, and weights that it widens."""
    views = unpacked_operand(group, operands)
    before = _before(anchor, group)
    for node in group.members:
        if node in before and node not in views:
            part = replace(group, members=(node,))
            lower_members(part, operands, views, lambda call, place, constant: operands.constant(constant))
    return views


def _before(anchor: Call, group: FusedGroup) -> set[Expr]:
    """The members that the operands are made of."""
    members, found = set(group.members), set[Expr]()
    waiting = list(anchor.args)
    while waiting:
        value = waiting.pop()
        if isinstance(value, Call) and value in members and value not in found:
            found.add(value)
            waiting += value.args
    return found


def constant_matrix(call: Call, dtype: str) -> Array | None:
    """The second operand as (..., depth, columns), if it is a constant of this type."""
    value = call.args[1]
    if not isinstance(value, Constant) or len(value.shape) < 2 or value.dtype != dtype:
        return None
    return np.ascontiguousarray(value.value.T if call.op == "nn.dense" else value.value)


def _is_plain(value: Expr, layouts: Mapping[Expr, Layout]) -> bool:
    """Whether a value can be read where it is; a member of the kernel is not there."""
    return value.dtype == "float32" and (isinstance(value, Constant) or (value in layouts and layouts[value].is_plain))


def _panels(operands: Operands, matrix: Array, lanes: int) -> View:
    """Constant matrices cut into panels of ``lanes`` columns, each row-major and one behind the other."""
    *lead, depth, columns = matrix.shape
    panels = operands.array(matrix.reshape(*lead, depth, columns // lanes, lanes).swapaxes(-3, -2))

    def value(index: tuple[tir.Expr, ...]) -> tir.Expr:
        *outer, row, column = index
        return panels[(*outer, column // lanes, row, column % lanes)]

    return View(matrix.shape, "float32", value)


def transposed(view: View) -> View:
    return View(view.shape[::-1], view.dtype, lambda index: view[index[::-1]])


def stage_in_float32(view: View, name: str) -> View:
    """The view computed into a buffer, in float32."""
    wide = widened(view)
    tensor = te.compute(view.shape, lambda *index: wide[index], name)
    return View(view.shape, "float32", lambda index: tensor[index])
