"""Products of several output groups are cut by group where the vector engine takes their results, or gives their
accumulators back, group by group.

One instruction computes all output groups of a tile, and the vector engine waits for its end. Cut, it works on the
first group while the array computes the next one; and the first products of a tile begin in the accumulators that it
is done with. The parts have the loops of the whole but the outermost, so no loop register is set again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from math import prod

import numpy as np

from .....hw.config import CoreConfig
from .....hw.isa import Engine, Gemm, Loop
from .....hw.memories import Memory
from ...llvm.scan import scan
from .accesses import Ints, Stream, Touched, runs_of, stream_of
from .stream import RECENT, Access, Issue

SMALLEST_PART_MICRO_OPS = 32
"""Micro-ops of a part: shorter ones would not fill the array's pipeline."""

MOST_PARTS_OF_PRODUCT = 64
"""Of an instruction."""

Level = tuple[int, int, int, int]
"""Extent and strides (dst, a, b) of a loop."""

_Shape = tuple[tuple[int, ...], tuple[int, ...]]
"""Extents and strides of an access."""


@dataclass(frozen=True, slots=True)
class Product:
    """A product that can be cut, and its loops, innermost first."""

    gemm: Gemm
    levels: tuple[Level, ...]

    @property
    def groups(self) -> tuple[int, int, int]:
        """First accumulator, how many output groups, and how far these are apart."""
        extent, stride, *_ = self.levels[-1]
        return self.gemm.dst, extent, stride

    @property
    def group(self) -> _Shape:
        """The accumulators of an output group, from its first."""
        moving = [(extent, stride) for extent, stride, *_ in self.levels[:-1] if stride]
        return tuple(extent for extent, _ in moving), tuple(stride for _, stride in moving)

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
class _Groups:
    """Of the products that can be cut, by their numbers: first accumulator, how many output groups, how far these are
    apart, and the shape of one. ``number``: of the product at each instruction that touches accumulators, or -1."""

    number: Ints
    first: Ints
    count: Ints
    apart: Ints
    shape: Ints

    @property
    def columns(self) -> tuple[Ints, ...]:
        return self.number, self.first, self.count, self.apart, self.shape


def split_products(config: CoreConfig, issues: Sequence[Issue]) -> Stream:
    """The stream with such products cut; it means the same."""
    stream = stream_of(issues)
    products = {place: product for place, product in products_of(stream) if _long_enough(product)}
    if not products:
        return stream
    return stream.cut({place: products[place].parts(stream[place]) for place in _cut(config, stream.touched, products)})


def products_of(issues: Sequence[Issue]) -> Iterator[tuple[int, Product]]:
    """The products of several output groups, with their positions."""
    held: dict[int, Level] = {}
    for position, issue in enumerate(issues):
        match issue.instruction:
            case Loop(engine=Engine.GEMM) as loop:
                held[loop.level] = loop.extent, loop.dst_stride, loop.a_stride, loop.b_stride
            case Gemm(depthwise=0) as gemm if gemm.levels:
                product = _product(gemm, [held[level] for level in range(gemm.levels)])
                if product is not None:
                    yield position, product


def product_at(issues: Sequence[Issue], position: int) -> Product | None:
    """The product at a position; None where it is not one of several output groups."""
    match issues[position].instruction:
        case Gemm(depthwise=0) as gemm if gemm.levels:
            return _product(gemm, levels_at(issues, position, Engine.GEMM, gemm.levels))
    return None


def levels_at(issues: Sequence[Issue], position: int, engine: Engine, count: int) -> list[Level]:
    """What so many loops of an engine are at a position, innermost first: looked for from there back."""
    held: dict[int, Level] = {}
    for place in reversed(range(position)):
        if len(held) == count:
            break
        match issues[place].instruction:
            case Loop(engine=own) as loop if own is engine and loop.level < count:
                held.setdefault(loop.level, (loop.extent, loop.dst_stride, loop.a_stride, loop.b_stride))
    return [held[level] for level in range(count)]


def _product(gemm: Gemm, levels: Sequence[Level]) -> Product | None:
    groups, stride, *_ = levels[-1]
    return Product(gemm, tuple(levels)) if stride and groups > 1 else None


def _long_enough(product: Product) -> bool:
    """Whether each of its output groups may be a part."""
    *below, (groups, *_) = product.levels
    return groups <= MOST_PARTS_OF_PRODUCT and prod(level[0] for level in below) >= SMALLEST_PART_MICRO_OPS


def access_of(memory: Memory, start: int, levels: Sequence[Level], operand: int) -> Access:
    """What an instruction touches through ``levels``, by the place of its stride there."""
    moving = [(level[0], level[operand]) for level in levels if level[operand]]
    return Access(memory, start, tuple(extent for extent, _ in moving), tuple(stride for _, stride in moving))


def _cut(config: CoreConfig, touched: Touched, products: Mapping[int, Product]) -> list[int]:
    """The positions of the products that are to be cut, in their order."""
    shapes: defaultdict[_Shape, int] = defaultdict(count().__next__)
    of_group = [shapes[each.group] for each in products.values()]
    touching = _touching(touched, shapes)
    numbers = {place: number for number, place in enumerate(products)}
    first, counts, apart = np.array([each.groups for each in products.values()], np.int64).T.copy()
    groups = _Groups(
        np.array([numbers.get(place, -1) for place in touching.positions.tolist()], np.int64),
        first, counts, apart, np.array(of_group, np.int64),
    )  # fmt: skip
    taken, given_back = (np.zeros(len(products), np.int64) for _ in range(2))
    for backwards, found in ((1, taken), (0, given_back)):
        reader = np.full(config.acc_depth, -1, np.int64)
        _scan(backwards, *touching.columns, *groups.columns, len(touching.positions), reader, found)
    starting = np.array([each.gemm.zero for each in products.values()], np.int64)
    chosen: list[int] = np.fromiter(products, np.int64)[taken | given_back & starting > 0].tolist()
    return chosen


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
