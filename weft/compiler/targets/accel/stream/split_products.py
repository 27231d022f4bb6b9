"""Products of several output groups are cut by group where the vector engine takes their results, or gives their
accumulators back, group by group.

One instruction computes all output groups of a tile, and the vector engine waits for its end. Cut, it works on the
first group while the array computes the next one; and the first products of a tile begin in the accumulators that it
is done with. The parts have the loops of the whole but the outermost, so no loop register is set again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from .....hw.config import CoreConfig
from .....hw.isa import Engine, Gemm, Loop
from .....hw.memories import Memory
from .stream import RECENT, Access, Issue, Selector

SMALLEST_PART = 32
"""Micro-ops of a part: shorter ones would not fill the array's pipeline."""

MOST_PARTS = 64
"""Of an instruction."""

Level = tuple[int, int, int, int]
"""Extent and strides (dst, a, b) of a loop."""

Positions = npt.NDArray[np.int32]
"""Of instructions in the stream; -1: of none."""


@dataclass(frozen=True, slots=True)
class Product:
    """A product that can be cut, and its loops, innermost first."""

    gemm: Gemm
    levels: tuple[Level, ...]

    @property
    def accumulators(self) -> npt.NDArray[np.int64]:
        """A row for each iteration of the outermost loop."""
        return self.gemm.dst + _offsets(self.levels)

    def parts(self, whole: Issue, size: int = 1) -> list[Issue]:
        """Parts of so many iterations of the outermost loop each, which runs in them where there are several."""
        *below, (count, to_dst, to_src, to_wgt) = self.levels
        levels = below if size == 1 else [*below, (size, to_dst, to_src, to_wgt)]
        return [
            self._part(whole, levels, start * to_dst, start * to_src, start * to_wgt) for start in range(0, count, size)
        ]

    def _part(self, whole: Issue, levels: Sequence[Level], to_dst: int, to_src: int, to_wgt: int) -> Issue:
        gemm = self.gemm
        part = replace(
            gemm, levels=len(levels), dst=gemm.dst + to_dst, src=gemm.src + to_src, wgt=gemm.wgt + to_wgt
        )  # fmt: skip
        written = _access(Memory.ACC, part.dst, levels, 1)
        reads = _access(Memory.INP, part.src, levels, 2), _access(Memory.WGT, part.wgt, levels, 3), written
        return Issue(part, reads, (written,), whole.layer, whole.tile)


class _Touching(NamedTuple):
    """What an instruction reads and writes of the accumulators."""

    position: int
    by_vector: bool
    read: list[Selector]
    written: list[Selector]


def split_products(config: CoreConfig, issues: Sequence[Issue]) -> list[Issue]:
    """The stream with such products cut; it means the same."""
    products = {place: product for place, product in products_of(issues) if _long_enough(product)}
    if not products:
        return list(issues)
    touching = _touching(issues)
    cut = _taken_by_group(config, touching, products) | _given_back_by_group(config, touching, products)
    stream: list[Issue] = []
    for position, issue in enumerate(issues):
        stream += products[position].parts(issue) if position in cut else [issue]
    return stream


def products_of(issues: Sequence[Issue]) -> Iterator[tuple[int, Product]]:
    """The products of several output groups, with their positions."""
    held: dict[int, Level] = {}
    for position, issue in enumerate(issues):
        match issue.instruction:
            case Loop(engine=Engine.GEMM) as loop:
                held[loop.level] = loop.extent, loop.dst_stride, loop.a_stride, loop.b_stride
            case Gemm(depthwise=0) as gemm if gemm.levels:
                levels = tuple(held[level] for level in range(gemm.levels))
                count, stride, *_ = levels[-1]
                if stride and count > 1:
                    yield position, Product(gemm, levels)


def _long_enough(product: Product) -> bool:
    """Whether each of its output groups may be a part."""
    *below, (count, *_) = product.levels
    return count <= MOST_PARTS and prod(level[0] for level in below) >= SMALLEST_PART


@lru_cache(maxsize=4096)
def _offsets(levels: tuple[Level, ...]) -> npt.NDArray[np.int64]:
    """Of the accumulators, a row for each iteration of the outermost loop."""
    offsets = np.zeros(1, np.int64)
    for extent, stride, *_ in levels[:-1]:
        if stride:
            offsets = np.add.outer(offsets, np.arange(extent) * stride).ravel()
    count, stride, *_ = levels[-1]
    return np.add.outer(np.arange(count) * stride, offsets)


def _access(memory: Memory, start: int, levels: Sequence[Level], operand: int) -> Access:
    moving = [(level[0], level[operand]) for level in levels if level[operand]]
    return Access(memory, start, tuple(extent for extent, _ in moving), tuple(stride for _, stride in moving))


def _touching(issues: Sequence[Issue]) -> list[_Touching]:
    """The instructions that touch accumulators."""
    found = []
    for position, issue in enumerate(issues):
        reads, writes = issue.accesses
        read = [access.selector() for access in reads if access.memory is Memory.ACC]
        written = [access.selector() for access in writes if access.memory is Memory.ACC]
        if read or written:
            found.append(_Touching(position, issue.instruction.engine is Engine.VECTOR, read, written))
    return found


def _taken_by_group(config: CoreConfig, touching: Sequence[_Touching], products: dict[int, Product]) -> set[int]:
    """Products whose groups different instructions of the vector engine read, before anything writes them again."""
    found = set()
    reader = np.full(config.acc_depth, -1, np.int32)
    for each in reversed(touching):
        product = products.get(each.position)
        if product is not None and _differ(reader[product.accumulators]):
            found.add(each.position)
        for selector in each.written:
            reader[selector] = -1
        if each.by_vector:
            for selector in each.read:
                reader[selector] = each.position
    return found


def _given_back_by_group(config: CoreConfig, touching: Sequence[_Touching], products: dict[int, Product]) -> set[int]:
    """Products that start sums where different instructions of the vector engine have just read others."""
    found = set()
    reader = np.full(config.acc_depth, -1, np.int32)
    for each in touching:
        product = products.get(each.position)
        if product is not None and product.gemm.zero:
            readers = reader[product.accumulators]
            if readers.max() > each.position - RECENT and _differ(readers):
                found.add(each.position)
        if each.by_vector:
            for selector in (*each.read, *each.written):
                reader[selector] = each.position
    return found


def _differ(readers: Positions) -> bool:
    """Whether every part has a reader, and not all the same."""
    of_parts = np.maximum.reduce(readers, axis=1).tolist()
    return bool(0 <= min(of_parts) < max(of_parts))
