"""Attention as one launch: a group makes some rows of the result, and holds their scores with all keys in shared
memory.

Both products go by whole tiles (`tensor_schedule.py`): their first operands, queries and weights, are in shared memory
as a whole, keys and values go by in a ring. Between them warps make rows of scores to weights in registers. So the
matrix of scores is never in the device's memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from math import inf, prod

from ... import tensor as te
from ...graph.ir import Call, Expr
from ...tensor import ir as tir
from ...tensor.errors import ScheduleError
from ...tensor.evaluate import ITEM_BYTES
from ...tensor.tree import find_buffer
from ...tensor.view import Builder, Index, View
from ..errors import CompileError
from ..loops.attention import Parts, is_attention, parts_of
from ..loops.fusion import FusedGroup
from ..loops.kernels import Kernel, Operands, finished, lower_members
from ..loops.layouts import PLAIN, Layout
from ..loops.nests import REGISTER, extent_of, largest_divisor, own_loops, tidy
from ..loops.placement import Placement
from ..loops.product import moved_operands
from ..memory_plan import Lifetime, aligned, plan_tightly
from .devices import GpuDescription
from .digits import BLOCK_AXES, SHARED
from .intrinsics import LANES
from .products import Product, of_matrices, sizes_of
from .shared_memory import ALIGNMENT
from .tensor_cores import SECTOR_BYTES, operand, turned
from .tensor_schedule import Stages, hold, load_together, multiply, rows_apart, store_together, stored_together
from .tile_choice import ALL_BYTES, LAUNCH_CYCLES, choose_plan, estimated_cycles
from .tiles import ROW_PADDING, SUMS_PADDING, Plan, Shape, TensorTile, tiles_of
from .warp_rows import MOST_EACH, exchanged_in, reduce_by_lanes, spread_by_lanes

FIRST = Stages("queries", "keys", "products")
SECOND = Stages("weights", "values", "acc")
"""Stages of both products."""

RAW, OWN, SCORES, LARGEST, POWERS, TOTAL, SUMS = "raw", "own", "scores", "largest", "powers", "total", "sums"
"""Rows of the first product in shared memory, and those of a warp in registers, where softmax is made of them; the
second product."""

MOST_KEYS = MOST_EACH * LANES
"""Whose scores a warp holds in registers."""

SCORE_INSTRUCTIONS = 16
"""For each score, from the first product's sum to the second one's operand."""

LEAST_QUERIES = 8
"""Below these a tile is mostly empty."""


@dataclass(frozen=True)
class AttentionPlan:
    """``shape`` multiplies, by tiles ``first`` of the scores and ``second`` of the result, with as many rows."""

    shape: Shape
    first: TensorTile
    second: TensorTile


@dataclass(frozen=True)
class GpuAttention:
    """Groups that are an attention whose rows of scores a group's shared memory has room for, with products that one of
    ``shapes`` does."""

    device: GpuDescription
    shapes: tuple[Shape, ...]
    name: str = "attention"

    def result_layout(self, group: FusedGroup, placement: Placement) -> Layout | None:
        return PLAIN if is_attention(group) else None

    def data_layout(self, group: FusedGroup, placement: Placement) -> Layout | None:
        return None

    def needs_blocks(self, anchor: Call) -> bool:
        return False

    def makes(self, product: Call, anchor: Call) -> bool:
        """Whether these two products are one kernel: there is room, and it is not estimated to take longer than three
        launches that hand each other the scores."""
        plan = self.plan(product, anchor)
        return plan is not None and self._cycles(plan, product, anchor) <= self._cycles_apart(
            plan.shape, product, anchor
        )

    def plan(self, product: Call, anchor: Call) -> AttentionPlan | None:
        """The tiles that take the least time by an estimate."""
        plans = self.plans(product, anchor)
        return min(plans, key=lambda plan: self._cycles(plan, product, anchor), default=None)

    def plans(self, product: Call, anchor: Call) -> list[AttentionPlan]:
        """All tiles that there is room for."""
        dtypes = {each.dtype for each in (*product.args, *anchor.args)}
        shape = next((each for each in self.shapes if {each.dtype} == dtypes), None)
        (queries, width), (depth, keys) = anchor.shape[-2:], product.args[1].shape[-2:]
        if shape is None or queries < LEAST_QUERIES or keys > MOST_KEYS:
            return []
        tiles = tiles_of(shape)
        plans = [
            AttentionPlan(shape, first, second) for first in tiles for second in tiles if first.rows == second.rows
        ]
        most = max(self.device.shared_bytes, self.device.shared_most)
        return [plan for plan in plans if shared_bytes_of(plan, depth, keys, width, self.device) <= most]

    def _cycles(self, plan: AttentionPlan, product: Call, anchor: Call) -> float:
        """Of both products, each as if all panels of a group were one with a depth as long as those of all; and of what
        is between them."""
        batch, queries, width = prod(anchor.shape[:-2]), *anchor.shape[-2:]
        depth, keys = product.args[1].shape[-2:]
        held = shared_bytes_of(plan, depth, keys, width, self.device)
        cycles = 0.0
        for tile, deep, columns in ((plan.first, depth, keys), (plan.second, keys, width)):
            panels = -(-columns // tile.columns)
            sizes = batch, queries, tile.columns, aligned(deep, tile.depth) * panels
            cycles += estimated_cycles(Plan(tile), sizes, plan.shape, self.device, held)
        rows = plan.first.rows
        each = -(-batch * -(-queries // rows) // self.device.multiprocessors)
        return cycles + each * rows * _keys_held(plan, keys) * SCORE_INSTRUCTIONS / (4 * LANES)

    def _cycles_apart(self, shape: Shape, product: Call, anchor: Call) -> float:
        """Of three launches."""
        scores = prod(product.shape) * ITEM_BYTES[shape.dtype]
        cycles = 2 * LAUNCH_CYCLES + 3 * scores / ALL_BYTES
        for call in (product, anchor):
            sizes = sizes_of(call)
            plan = None if sizes is None else choose_plan(*sizes, shape, self.device)
            if sizes is None or plan is None:
                return inf
            cycles += estimated_cycles(plan, sizes, shape, self.device)
        return cycles

    def build(self, group: FusedGroup, layouts: Mapping[Expr, Layout], layout: Layout, name: str) -> Kernel:
        anchor = group.anchor
        parts = None if anchor is None or not is_attention(group) else parts_of(group, anchor)
        plan = None if anchor is None or parts is None else self.plan(parts.product, anchor)
        if anchor is None or parts is None or plan is None:
            raise CompileError("it has no attention for this device", at=f"kernel {group.name!r}")
        operands = Operands(Builder(), layouts)
        result = _result(group, parts, anchor, operands, plan)
        output = te.compute(result.shape, lambda *index: result[index], operands.builder.name("out"))
        arrange = partial(_arrange, plan=plan, device=self.device)
        return finished(operands, result.shape, output, PLAIN, name, arrange)


def _keys_held(plan: AttentionPlan, keys: int) -> int:
    """Columns of scores: whole tiles of the first product, and whole steps of the second one."""
    return aligned(keys, max(plan.first.columns, plan.second.depth, LANES))


@lru_cache(maxsize=4096)
def shared_bytes_of(plan: AttentionPlan, depth: int, keys: int, width: int, device: GpuDescription) -> int:
    """Of a group. It loads queries, makes scores by a ring of keys, weights of these, and the result's sums of those by
    a ring of values, panel by panel."""
    size = ITEM_BYTES[plan.shape.dtype]
    rows, held = plan.first.rows, _keys_held(plan, keys)

    def matrix(rows: int, columns: int) -> int:
        return rows * (columns * size + ROW_PADDING)

    def sums(columns: int) -> int:
        return rows * (columns + SUMS_PADDING) * 4

    def ring(tile: TensorTile) -> int:
        return tile.copies(device) * max(matrix(tile.columns, tile.depth), matrix(tile.depth, tile.columns))

    needed = {
        FIRST.left: (matrix(rows, aligned(depth, plan.first.depth)), 0, 1), FIRST.right: (ring(plan.first), 1, 1),
        RAW: (sums(held), 1, 2), SECOND.left: (matrix(rows, held), 2, 3), SECOND.right: (ring(plan.second), 3, 3),
        SUMS: (sums(plan.second.columns), 3 if width > plan.second.columns else 4, 4),
    }  # fmt: skip
    _, size = plan_tightly([Lifetime(name, *each) for name, each in needed.items()], 0, alignment=ALIGNMENT)
    return size


def _result(group: FusedGroup, parts: Parts, anchor: Call, operands: Operands, plan: AttentionPlan) -> View:
    """All stages, and the result that reads them."""
    moved = moved_operands(group, parts.product, operands) | moved_operands(parts.rest, anchor, operands)

    def lower(part: FusedGroup, known: dict[Expr, View]) -> View:
        return lower_members(part, operands, moved | known, lambda call, place, node: operands.constant(node))

    rows, held = plan.first.rows, _keys_held(plan, parts.product.shape[-1])
    first = of_matrices(parts.product, operands, moved, SECTOR_BYTES)
    scores = lower(parts.scores, {parts.product: _scores(first, plan, held)})
    weights = lower(parts.weights, {parts.softmax: _softmax(scores, rows, held)})
    second = of_matrices(anchor, operands, moved | {anchor.args[0]: weights}, SECTOR_BYTES)
    return lower(parts.rest, {anchor: _summed(second, plan, held)})


def _product(product: Product, depth: int, columns: int, tile: TensorTile, shape: Shape, stages: Stages) -> te.Tensor:
    """A product of whole tiles with ``columns`` in all, by tile and place in it. Its first operand becomes a stage,
    too, with rows of ``depth``."""
    left = _by_tiles(product.left, tile.rows, depth, tir.Const(0, shape.dtype), stages.left)
    right = operand(turned(product.right), columns, depth, stages.right, shape)
    k = te.reduce_axis(depth, f"{stages.acc}_k")

    def value(*index: tir.Expr) -> te.Reduction:
        *matrix, down, panel, row, column = index
        a = left[(*matrix, down, row, k)]
        b = right[(*matrix, panel * tile.columns + column, k)]
        return te.sum(a.astype(shape.sums) * b.astype(shape.sums), [k])

    *outer, down, rows, _ = left.shape
    return te.compute((*outer, down, columns // tile.columns, rows, tile.columns), value, stages.acc)


def _scores(product: Product, plan: AttentionPlan, held: int) -> View:
    """The first product, of which all columns of a row lie together."""
    tile = plan.first
    acc = _product(product, aligned(product.left.shape[-1], tile.depth), held, tile, plan.shape, FIRST)
    *outer, down, _, rows, _ = acc.shape

    def by_row(*index: tir.Expr) -> tir.Expr:
        *place, row, column = index
        return acc[(*place, column // tile.columns, row, column % tile.columns)]

    raw = te.compute((*outer, down, rows, held), by_row, RAW)
    # Whole rows are read by vectors; what lies behind the last key is left out afterwards.
    own = te.compute(raw.shape, lambda *index: raw[index], OWN)

    def read(index: Index) -> tir.Expr:
        *matrix, row, column = index
        return own[(*matrix, row // rows, row % rows, column)].astype(product.left.dtype)

    return View(product.shape, product.left.dtype, read)


def _summed(product: Product, plan: AttentionPlan, held: int) -> View:
    """The second product."""
    tile = plan.second
    acc = _product(product, held, aligned(product.shape[-1], tile.columns), tile, plan.shape, SECOND)
    sums = te.compute(acc.shape, lambda *index: acc[index], SUMS)

    def read(index: Index) -> tir.Expr:
        *matrix, row, column = index
        place = (row // tile.rows, column // tile.columns, row % tile.rows, column % tile.columns)
        return sums[(*matrix, *place)].astype(product.left.dtype)

    return View(product.shape, product.left.dtype, read)


def _softmax(scores: View, rows: int, held: int) -> View:
    """Along each row of scores; behind the last key there is nothing that counts."""
    values = _by_tiles(scores, rows, held, tir.Const(float("-inf"), "float32"), SCORES)
    k, j = te.reduce_axis(held, "k"), te.reduce_axis(held, "j")
    shape = values.shape
    largest = te.compute(shape[:-1], lambda *index: te.max(values[(*index, k)], [k]), LARGEST)
    powers = te.compute(shape, lambda *index: te.exp(values[index] - largest[index[:-1]]), POWERS)
    total = te.compute(shape[:-1], lambda *index: te.sum(powers[(*index, j)], [j]), TOTAL)

    def value(index: Index) -> tir.Expr:
        *matrix, row, key = index
        tile = (*matrix, row // rows, row % rows)
        return (powers[(*tile, key)] * (1.0 / total[tile])).astype(scores.dtype)

    return View(scores.shape, scores.dtype, value)


def _by_tiles(view: View, rows: int, width: int, beyond: tir.Const, name: str) -> te.Tensor:
    """A stage of the view's rows by tiles of ``rows``, each row ``width`` long; with ``beyond`` beyond its edges."""
    *outer, height, columns = view.shape

    def value(*index: tir.Expr) -> tir.Expr:
        *matrix, tile, row, column = index
        at = tile * rows + row
        read = view[(*matrix, at, column)].astype(beyond.dtype)
        if height % rows:
            read = tir.select(at < height, read, beyond)
        return tir.select(column < columns, read, beyond) if columns < width else read

    return te.compute((*outer, -(-height // rows), rows, width), value, name)


def _arrange(schedule: te.Schedule, plan: AttentionPlan, device: GpuDescription) -> None:
    """A group for a tile of rows: scores by panels of keys, their rows to weights by warps, then the result by panels
    of columns."""
    tidy(schedule)
    first, second = plan.first, plan.second
    output = schedule.blocks()[-1]
    *outer, m, n = schedule.get_loops(output)
    count = stored_together(schedule, output, n, device)
    down, m = schedule.split(m, second.rows)
    across, n, each = schedule.split(n, factors=[None, second.columns // count, count])
    schedule.reorder(*outer, down, across, m, n, each)
    for loop in (*outer, down):
        schedule.bind(loop, BLOCK_AXES[0])
    for name, scope in ((SUMS, SHARED), (SECOND.acc, REGISTER)):
        schedule.set_scope(name, scope)
        schedule.compute_at(name, across, whole=2)
    _rows_of_sums(schedule, SUMS, second, plan.shape)
    store_together(schedule, m, n, each, second, second.threads(device))
    for name in (SECOND.left, RAW):
        schedule.set_scope(name, SHARED)
    schedule.compute_at(SECOND.left, down, whole=2)
    rows_apart(schedule, SECOND.left)
    _weigh(schedule, prod(first.warps), device)
    schedule.compute_at(RAW, down, whole=2)
    *_, row, key = own_loops(schedule, RAW)
    panel, key = schedule.split(key, first.columns)
    schedule.reorder(panel, row, key)
    schedule.set_scope(FIRST.acc, REGISTER)
    schedule.compute_at(FIRST.acc, panel, whole=2)
    _rows_of_sums(schedule, RAW, first, plan.shape)
    load_together(schedule, FIRST.left, down, first.threads(device))
    multiply(schedule, FIRST, (FIRST.right,), first, plan.shape, device)
    multiply(schedule, SECOND, (SECOND.right,), second, plan.shape, device)


def _rows_of_sums(schedule: te.Schedule, name: str, tile: TensorTile, shape: Shape) -> None:
    schedule.storage_align(name, find_buffer(schedule.func, name).ndim - 2, 32, SUMS_PADDING)
    hold(schedule, name, tile, shape)


def _weigh(schedule: te.Schedule, warps: int, device: GpuDescription) -> None:
    """Rows of weights, each by a warp that holds it."""
    exchanged = {name: exchanged_in(schedule, name) for name in (LARGEST, TOTAL)}
    *_, row, key = own_loops(schedule, SECOND.left)
    together = largest_divisor(extent_of(schedule, key) // LANES, device.neighbours)
    turn, row = schedule.split(row, warps)
    for name in (TOTAL, POWERS, LARGEST, SCORES, OWN):
        schedule.set_scope(name, REGISTER)
        schedule.compute_at(name, turn)
    for name, how in exchanged.items():
        if how is None or not reduce_by_lanes(schedule, name, *how, together):
            raise ScheduleError("it cannot be added up by lanes", at=f"stage {name!r}")
    for name in (OWN, SCORES, POWERS):
        spread_by_lanes(schedule, name, own_loops(schedule, name), together)
    spread_by_lanes(schedule, SECOND.left, [row, key], together)
