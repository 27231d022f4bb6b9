"""Products of several output groups are cut by group where the vector engine takes their results, or gives their
accumulators back, group by group.

One instruction computes all output groups of a tile, and the vector engine waits for its end. Cut, it works on the
first group while the array computes the next one; and the first products of a tile begin in the accumulators that it
is done with. The parts have the loops of the whole but the outermost, so no loop register is set again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import count

import numpy as np

from .....hw.config import CoreConfig
from .....hw.isa import Engine, Gemm, Opcode
from .....hw.memories import Memory
from ...llvm.scan import scan
from .accesses import Stream, Touched, ranges, runs_of, stream_of
from .rows import Ints, Rows, loops_held
from .stream import RECENT, Access, Issue

SMALLEST_PART_MICRO_OPS = 32
"""Micro-ops of a part: shorter ones would not fill the array's pipeline."""

MOST_PARTS_OF_PRODUCT = 64
"""Of an instruction."""

Level = tuple[int, int, int, int]
"""Extent and strides (dst, a, b) of a loop."""

LEVEL_FIELDS = ("extent", "dst_stride", "a_stride", "b_stride")
"""Those of a LOOP that are a level."""

_Shape = tuple[tuple[int, ...], tuple[int, ...]]
"""Extents and strides of an access."""


@dataclass(frozen=True, slots=True)
class Product:
    """A product that can be cut, and its loops, innermost first."""

    gemm: Gemm
    levels: tuple[Level, ...]

    def parts(self, whole: Issue, size: int = 1) -> list[Issue]:
        """Parts of so many iterations of the outermost loop each, which runs in them where there are several; the last
        one may have fewer."""
        *below, (groups, to_dst, to_src, to_wgt) = self.levels
        parts = []
        for start in range(0, groups, size):
            extent = min(size, groups - start)
            levels = below if extent == 1 else [*below, (extent, to_dst, to_src, to_wgt)]
            parts.append(self._part(whole, levels, start * to_dst, start * to_src, start * to_wgt))
        return parts

    def _part(self, whole: Issue, levels: Sequence[Level], to_dst: int, to_src: int, to_wgt: int) -> Issue:
        gemm = self.gemm
        part = replace(
            gemm, levels=len(levels), dst=gemm.dst + to_dst, src=gemm.src + to_src, wgt=gemm.wgt + to_wgt
        )  # fmt: skip
        written = access_of(Memory.ACC, part.dst, levels, 1)
        reads = access_of(Memory.INP, part.src, levels, 2), access_of(Memory.WGT, part.wgt, levels, 3), written
        return Issue(part, reads, (written,), whole.layer, whole.tile)


@dataclass(frozen=True)
class _Touching:
    """The instructions that touch accumulators. Instruction n has a position in the stream, may be the vector engine's,
    and has the accesses ``firsts[n] .. firsts[n + 1] - 1``. Each access ``writes`` or reads entries from its first of
    ``starts`` on, in runs of its shape: those of shape s are ``begins[s] .. begins[s + 1] - 1``, each from one entry up
    to another one."""

    positions: Ints
    by_vector: Ints
    firsts: Ints
    writes: Ints
    shapes: Ints
    starts: Ints
    begins: Ints
    run_starts: Ints
    run_stops: Ints

    @property
    def columns(self) -> tuple[Ints, ...]:
        return (self.positions, self.by_vector, self.firsts, self.writes, self.shapes, self.starts, self.begins,
                self.run_starts, self.run_stops)  # fmt: skip


@dataclass(frozen=True)
class _Products:
    """The products that can be cut: where they are, how many loops they have, and what all registers hold, the last
    axis as of `LEVEL_FIELDS`; how many output groups, and how far these are apart; fields of the instruction."""

    positions: Ints
    depth: Ints
    levels: Ints
    counts: Ints
    apart: Ints
    dst: Ints
    src: Ints
    wgt: Ints
    zero: Ints

    def groups(self) -> tuple[list[_Shape], Ints]:
        """The different output groups, and which of them those of each product are."""
        inner = np.arange(self.levels.shape[1]) < self.depth[:, None] - 1
        extents, strides = (np.where(inner, self.levels[:, :, field], 0) for field in (0, 1))
        different, which = np.unique(np.hstack([extents, strides]), axis=0, return_inverse=True)
        shapes = []
        for row in different.reshape(len(different), 2, -1).tolist():
            moving = [(extent, stride) for extent, stride in zip(*row, strict=True) if stride]
            shapes.append((tuple(extent for extent, _ in moving), tuple(stride for _, stride in moving)))
        return shapes, which.reshape(-1)


def split_products(config: CoreConfig, issues: Sequence[Issue]) -> Stream:
    """The stream with such products cut; it means the same."""
    stream = stream_of(issues)
    products = _products(stream.rows)
    if not len(products.positions):
        return stream
    chosen = _cut(config, stream.touched, products)
    if not len(chosen):
        return stream
    return stream.replaced(products.positions[chosen], products.counts[chosen], _parts(stream.rows, products, chosen))


def _products(rows: Rows) -> _Products:
    """The products of several output groups, each of which may be a part."""
    positions = rows.places(Opcode.GEMM)
    depth = rows.column("levels", positions)
    may = (rows.column("depthwise", positions) == 0) & (depth > 0)
    positions, depth = positions[may], depth[may]
    levels = np.moveaxis(loops_held(rows, Engine.GEMM, positions, LEVEL_FIELDS), 0, -1)
    counts, apart, *_ = levels[np.arange(len(positions)), depth - 1].T
    inner = np.where(np.arange(levels.shape[1]) < depth[:, None] - 1, levels[:, :, 0], 1).prod(axis=1)
    cut = (apart > 0) & (counts > 1) & (counts <= MOST_PARTS_OF_PRODUCT) & (inner >= SMALLEST_PART_MICRO_OPS)
    return _Products(positions[cut], depth[cut], levels[cut], counts[cut], apart[cut],
                     *(rows.column(name, positions[cut]) for name in ("dst", "src", "wgt", "zero")))  # fmt: skip


def _parts(rows: Rows, products: _Products, chosen: Ints) -> Rows:
    """An instruction for each output group of the products that are chosen: those of a form and of the same loops give
    parts of one form."""
    alike = np.column_stack([rows.form_of[products.positions[chosen]], products.depth[chosen],
                             products.levels[chosen].reshape(len(chosen), -1)])  # fmt: skip
    _, examples, which = np.unique(alike, axis=0, return_index=True, return_inverse=True)
    forms = []
    for number in chosen[examples].tolist():
        place, depth = int(products.positions[number]), int(products.depth[number])
        gemm = rows[place].instruction
        assert isinstance(gemm, Gemm)
        levels = [(extent, dst, a, b) for extent, dst, a, b in products.levels[number, :depth].tolist()]
        forms.append(Product(gemm, tuple(levels)).parts(rows[place])[0])
    examples_of = Rows.of(forms)
    group, of = ranges(np.zeros_like(chosen), products.counts[chosen])
    outermost = products.levels[chosen, products.depth[chosen] - 1]
    first = np.column_stack([products.dst, products.src, products.wgt])[chosen]
    dst, src, wgt = (first[of] + group[:, None] * outermost[of, 1:]).T
    places = products.positions[chosen][of]
    # Addresses of a part: its fields, then what it reads of inp and wgt, and reads and writes of acc.
    return Rows(
        examples_of.forms, examples_of.form_of[which.reshape(-1)[of]], np.column_stack([dst, src, wgt, src, wgt, dst]),
        rows.layers[places], rows.tiles[places],
    )  # fmt: skip


def product_at(issues: Sequence[Issue], position: int) -> Product | None:
    """The product at a position; None where it is not one of several output groups."""
    match issues[position].instruction:
        case Gemm(depthwise=0) as gemm if gemm.levels:
            return _product(gemm, levels_at(issues, position, Engine.GEMM, gemm.levels))
    return None


def levels_at(issues: Sequence[Issue], position: int, engine: Engine, count: int) -> list[Level]:
    """What so many loops of an engine are at a position, innermost first."""
    held = loops_held(stream_of(issues).rows, engine, np.array([position]), LEVEL_FIELDS)[:, 0, :count]
    return [(extent, dst, a, b) for extent, dst, a, b in held.T.tolist()]


def _product(gemm: Gemm, levels: Sequence[Level]) -> Product | None:
    groups, stride, *_ = levels[-1]
    return Product(gemm, tuple(levels)) if stride and groups > 1 else None


def access_of(memory: Memory, start: int, levels: Sequence[Level], operand: int) -> Access:
    """What an instruction touches through ``levels``, by the place of its stride there."""
    moving = [(level[0], level[operand]) for level in levels if level[operand]]
    return Access(memory, start, tuple(extent for extent, _ in moving), tuple(stride for _, stride in moving))


def _cut(config: CoreConfig, touched: Touched, products: _Products) -> Ints:
    """The numbers of the products that are to be cut, in their order."""
    shapes: defaultdict[_Shape, int] = defaultdict(count().__next__)
    groups, which = products.groups()
    of_group = np.array([shapes[each] for each in groups], np.int64)[which]
    touching = _touching(touched, shapes)
    number = np.full(len(touched.engines), -1, np.int64)
    number[products.positions] = np.arange(len(products.positions))
    taken, given_back = (np.zeros(len(products.positions), np.int64) for _ in range(2))
    for backwards, found in ((1, taken), (0, given_back)):
        reader = np.full(config.acc_depth, -1, np.int64)
        _scan(backwards, *touching.columns, number[touching.positions], products.dst, products.counts, products.apart,
              of_group, len(touching.positions), reader, found)  # fmt: skip
    return np.flatnonzero(taken | given_back & products.zero > 0)


def _touching(found: Touched, shapes: defaultdict[_Shape, int]) -> _Touching:
    known = [(shapes[extents, strides], start) if memory is Memory.ACC else (-1, 0)
             for memory, start, extents, strides in found.known]  # fmt: skip
    of_shape, starts = np.array(known, np.int64).reshape(-1, 2)[found.sets].T
    own = np.flatnonzero(of_shape >= 0)
    positions, firsts = np.unique(found.positions[own], return_index=True)
    runs = [runs_of(extents, strides) for extents, strides in shapes]
    return _Touching(
        positions, (found.engines[positions] == Engine.VECTOR).astype(np.int64),
        np.append(firsts, len(own)).astype(np.int64), found.writes[own].astype(np.int64), of_shape[own], starts[own],
        np.cumsum([0, *(len(first) for first, _ in runs)]), *(np.concatenate(each) for each in zip(*runs, strict=True)),
    )  # fmt: skip


@scan
def _scan(
    backwards: int, positions: Ints, by_vector: Ints, firsts: Ints, writes: Ints, shapes: Ints, starts: Ints,
    begins: Ints, run_starts: Ints, run_stops: Ints, number: Ints, first: Ints, count: Ints, apart: Ints, shape: Ints,
    instructions: int, reader: Ints, found: Ints,
) -> None:  # fmt: skip
    """Mark the products whose groups different instructions of the vector engine had just before; ``backwards``: those
    that different ones read behind them, before anything writes there. Of each entry the ``reader`` is known."""
    for step in range(instructions):
        place = step
        if backwards:
            place = instructions - 1 - step
        product = number[place]
        if product >= 0:
            least = positions[instructions - 1]
            most = -1
            for group in range(count[product]):
                last = -1
                start = first[product] + group * apart[product]
                for run in range(begins[shape[product]], begins[shape[product] + 1]):
                    for entry in range(start + run_starts[run], start + run_stops[run]):
                        last = max(last, reader[entry])
                least = min(least, last)
                most = max(most, last)
            if least >= 0 and least < most and most > positions[place] - RECENT:
                found[product] = 1
        for order in range(2):
            written = 1 - order
            for access in range(firsts[place], firsts[place + 1]):
                if writes[access] == written:
                    value = positions[place]
                    if backwards and written:
                        value = -1
                    if by_vector[place] or value < 0:
                        for run in range(begins[shapes[access]], begins[shapes[access] + 1]):
                            for entry in range(starts[access] + run_starts[run], starts[access] + run_stops[run]):
                                reader[entry] = value
