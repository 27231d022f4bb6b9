"""Attention as one kernel: scores of queries with keys, their softmax, and the sum of values by these weights.

The kernel goes through the queries a few rows at a time, as many as a register tile has, and keeps the scores of those
with all keys: so the matrix of scores is never in memory. Softmax divides at the end, where there are fewer elements,
unless something stands between it and the sum. Between the parts elementwise operators may stand: a scale, a mask.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

from ... import tensor as te
from ...graph.ir import Call, Constant, Expr
from ...graph.registry import Role, role_of
from ...graph.visit import topological_order
from ...tensor import ir as tir
from ...tensor.view import Builder, View, broadcast
from ..errors import CompileError
from .fusion import FusedGroup
from .kernels import Kernel, Operands, finished, lower_members
from .layouts import PLAIN, Layout
from .placement import Placement

QUERIES, KEYS, VALUES, SCORES, RAW, SUM = "queries", "keys", "values", "acc", "raw", "sum"
"""Stages: queries and values copied into plain rows, where they are not; panels of keys; a tile of scores, and rows of
such; the sum of values."""


@dataclass(frozen=True)
class AttentionTiles:
    """``rows``: queries at a time. ``keys``: columns of the scores in registers. ``values``: columns of the result in
    registers. ``block``: queries of which the scores are kept. ``packed``: whether panels of keys are copied."""

    rows: int
    keys: int
    values: int
    block: int
    packed: bool


class AttentionSchedule(Protocol):
    """A target's way to compute attention."""

    def tiles(self, shape: tuple[int, ...], depth: int, keys: int, plain: bool) -> AttentionTiles:
        """For a result of this shape, and so many keys of ``depth`` elements. ``plain``: whether each step of the
        first product could read keys where they are."""

    def arrange(self, schedule: te.Schedule, tiles: AttentionTiles, apart: int, rows: list[str]) -> None:
        """Schedule the kernel. ``apart``: elements from a query to the next. ``rows``: the stages between the products,
        in order; each works on rows of scores."""


@dataclass(frozen=True)
class AttentionKernels:
    """Groups whose product computes the weights by which it sums."""

    schedule: AttentionSchedule
    name: str = "attention"

    def result_layout(self, group: FusedGroup, placement: Placement) -> Layout | None:
        return PLAIN if is_attention(group) else None

    def data_layout(self, group: FusedGroup, placement: Placement) -> Layout | None:
        return None

    def needs_blocks(self, anchor: Call) -> bool:
        return False

    def build(self, group: FusedGroup, layouts: Mapping[Expr, Layout], layout: Layout, name: str) -> Kernel:
        anchor = group.anchor
        if anchor is None or not is_attention(group):
            raise CompileError("it has no attention", at=f"kernel {group.name!r}")
        parts = parts_of(group, anchor)
        operands = Operands(Builder(), layouts)
        views: dict[Expr, View] = {}

        def lower(part: FusedGroup) -> View:
            return lower_members(part, operands, views, lambda call, place, node: operands.constant(node))

        def rows_of(value: Expr, stage: str) -> View:
            if isinstance(value, Call) and value in group.members:  # a transposition
                view = lower(replace(group, members=(value,)))
            else:
                view = _operand(operands, value)
            return view if _lies_in_rows(value, group, layouts) else _copied(view, stage)

        queries, keys = parts.product.args
        depth, count = keys.shape[-2:]
        plain_keys = isinstance(keys, Constant) or layouts[keys].is_plain
        tiles = self.schedule.tiles(anchor.shape, depth, count, plain_keys)
        right = _copied(_operand(operands, keys), KEYS) if tiles.packed else _operand(operands, keys)
        views[parts.product] = _scores(rows_of(queries, QUERIES), right, parts.product.shape)
        rows: list[str] = []
        scores = lower(parts.scores)
        if parts.scores.root != parts.product:
            scores = _stored(scores, "scores", rows)
        weights, total = _powers(scores, rows)
        divided = parts.weights.root != parts.softmax
        if divided:
            views[parts.softmax] = _over(weights, total)
            weights = _stored(lower(parts.weights), "weights", rows)
        summed = _sum(weights, rows_of(anchor.args[1], VALUES), anchor.shape)
        views[anchor] = summed if divided else _over(summed, total)
        result = lower(parts.rest)
        output = te.compute(result.shape, lambda *index: result[index], operands.builder.name("out"))
        arrange = partial(self.schedule.arrange, tiles=tiles, apart=_apart(queries, group, layouts), rows=rows)
        return finished(operands, result.shape, output, PLAIN, name, arrange)


def is_attention(group: FusedGroup) -> bool:
    """Whether the group's product computes its own first operand, by softmax."""
    anchor = group.anchor
    computes = anchor is not None and role_of(anchor) is Role.MATRIX_PRODUCT and anchor.args[0] in group.members
    return computes and any(role_of(node) is Role.SOFTMAX for node in group.members)


@dataclass(frozen=True)
class Parts:
    """The members of an attention in the order of its stages."""

    product: Call
    scores: FusedGroup
    softmax: Call
    weights: FusedGroup
    rest: FusedGroup


def parts_of(group: FusedGroup, anchor: Call) -> Parts:
    """The parts of a group that is an attention with this product at its end."""

    def up_to(value: Expr) -> tuple[Call, ...]:
        inside = set(topological_order(value))
        return tuple(node for node in group.members if node in inside)

    weights = up_to(anchor.args[0])
    softmax = next(node for node in weights if role_of(node) is Role.SOFTMAX)
    scores = up_to(softmax.args[0])
    product = next(node for node in scores if role_of(node) is Role.MATRIX_PRODUCT)
    behind = tuple(node for node in weights if node not in scores)
    rest = tuple(node for node in group.members if node not in weights)
    part = partial(replace, group)
    return Parts(product, part(members=scores), softmax, part(members=behind), part(members=rest))


def _operand(operands: Operands, value: Expr) -> View:
    return View.of(operands.array(value.value)) if isinstance(value, Constant) else operands.view(value)


def _lies_in_rows(value: Expr, group: FusedGroup, layouts: Mapping[Expr, Layout]) -> bool:
    """Whether a tile can read the rows of an operand where they lie: not in another layout."""
    source = _source(value, group)
    return isinstance(source, Constant) or layouts[source].is_plain


def _source(value: Expr, group: FusedGroup) -> Expr:
    """What is in memory: an operand, or what the group transposes."""
    return value.args[0] if isinstance(value, Call) and value in group.members else value


def _apart(value: Expr, group: FusedGroup, layouts: Mapping[Expr, Layout]) -> int:
    """Elements from a row of an operand to the next, as a tile reads it."""
    if isinstance(value, Call) and value in group.members and _lies_in_rows(value, group, layouts):
        perm = value.attr("perm")
        return int(tir.row_major_strides(value.args[0].shape)[perm[-2]])
    return value.shape[-1]


def _copied(view: View, stage: str) -> View:
    return View.of(te.compute(view.shape, lambda *index: view[index], stage))


def _stored(view: View, name: str, rows: list[str]) -> View:
    """The view computed into a buffer, as one of the stages of ``rows``."""
    rows.append(name)
    return _copied(view, name)


def _scores(queries: View, keys: View, shape: tuple[int, ...]) -> View:
    """The product of queries and keys: tiles, of which rows are made."""
    left = broadcast(queries, (*shape[:-2], *queries.shape[-2:]))
    right = broadcast(keys, (*shape[:-2], *keys.shape[-2:]))
    d = te.reduce_axis(keys.shape[-2], "d")

    def value(*index: tir.Expr) -> te.Reduction:
        *outer, row, key = index
        return te.sum(left[(*outer, row, d)] * right[(*outer, d, key)], [d])

    return _copied(View.of(te.compute(shape, value, SCORES)), RAW)


def _powers(scores: View, rows: list[str]) -> tuple[View, View]:
    """What softmax is made of: powers of the scores, of which the largest of a row is 1, and the sum of each row."""
    outer, count = scores.shape[:-1], scores.shape[-1]
    k, j = te.reduce_axis(count, "k"), te.reduce_axis(count, "j")
    largest = te.compute(outer, lambda *index: te.max(scores[(*index, k)], [k]), "largest")
    rows.append(largest.name)
    shifted = View(scores.shape, "float32", lambda index: te.exp(scores[index] - largest[index[:-1]]))
    powers = _stored(shifted, "powers", rows)
    total = te.compute(outer, lambda *index: te.sum(powers[(*index, j)], [j]), "total")
    rows.append(total.name)
    return powers, View.of(total)


def _over(view: View, total: View) -> View:
    return View(view.shape, "float32", lambda index: view[index] / total[index[:-1]])


def _sum(weights: View, values: View, shape: tuple[int, ...]) -> View:
    """The sum of the rows of values by their weights."""
    right = broadcast(values, (*shape[:-2], *values.shape[-2:]))
    n = te.reduce_axis(weights.shape[-1], "n")

    def value(*index: tir.Expr) -> te.Reduction:
        *outer, row, column = index
        return te.sum(weights[(*outer, row, n)] * right[(*outer, n, column)], [n])

    return View.of(te.compute(shape, value, SUM))
