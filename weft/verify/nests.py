"""Micro-ops of the affine loops of GEMM and VECTOR: all their indices at once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt

Indices = npt.NDArray[np.int64]
Level = tuple[int, int, int, int]
"""Extent, and the strides of dst, a (src) and b (wgt)."""

UNSET: Level = (1, 0, 0, 0)


@dataclass(frozen=True)
class MicroOps:
    """Offsets of every micro-op in order; ``first``: whether it begins a reduction."""

    dst: Indices
    a: Indices
    b: Indices
    first: npt.NDArray[np.bool_]

    @cached_property
    def ends(self) -> tuple[tuple[int, int], ...]:
        """Least and largest offset of dst, a and b."""
        return tuple((int(each.min()), int(each.max())) for each in (self.dst, self.a, self.b))

    @cached_property
    def distinct(self) -> tuple[Indices, Indices]:
        """The offsets of b, each once, and for every micro-op which of these it has."""
        offsets, each = np.unique(self.b, return_inverse=True)
        return offsets, each


@lru_cache(maxsize=4096)
def micro_ops(levels: tuple[Level, ...]) -> MicroOps:
    """Of loops, outermost first."""
    found: list[Indices] = [np.zeros(1, np.int64) for _ in range(3)]
    first = np.ones(1, bool)
    for extent, *strides in levels:
        steps = np.arange(extent, dtype=np.int64)
        found = [np.add.outer(total, steps * stride).ravel() for total, stride in zip(found, strides, strict=True)]
        starts = np.ones(extent, bool) if strides[0] else steps == 0
        first = np.logical_and.outer(first, starts).ravel()
    dst, a, b = found
    return MicroOps(dst, a, b, first)


@dataclass(frozen=True)
class ProductIndices:
    """Loops of a GEMM as products of matrices: offsets of dst (rows, columns), src (rows, reduction) and wgt (columns,
    reduction), and those of the loops around, which move all three."""

    dst: Indices
    src: Indices
    wgt: Indices
    around: tuple[tuple[int, int, int], ...]


@lru_cache(maxsize=4096)
def product_indices(levels: tuple[Level, ...]) -> ProductIndices | None:
    """None where two iterations meet in one accumulator other than along the reduction."""
    rows = tuple(level for level in levels if level[1] and not level[3])
    columns = tuple(level for level in levels if level[1] and level[3] and not level[2])
    reduction = tuple(level for level in levels if not level[1])
    outer = micro_ops(tuple(level for level in levels if level[1] and level[2] and level[3]))
    of_rows, of_columns, of_terms = (micro_ops(part) for part in (rows, columns, reduction))
    dst = np.add.outer(of_rows.dst, of_columns.dst)
    if np.bincount(np.add.outer(outer.dst, dst).ravel()).max() > 1:
        return None
    around = tuple(zip(outer.dst.tolist(), outer.a.tolist(), outer.b.tolist(), strict=True))
    return ProductIndices(dst, np.add.outer(of_rows.a, of_terms.a), np.add.outer(of_columns.b, of_terms.b), around)


def turns(dst: Indices) -> list[Indices]:
    """Numbers of micro-ops in groups: the n-th that meets each destination is in the n-th."""
    order = np.argsort(dst, kind="stable")
    ordered, places = dst[order], np.arange(len(dst))
    starts = np.r_[True, ordered[1:] != ordered[:-1]]
    turn = np.empty(len(dst), np.int64)
    turn[order] = places - np.maximum.accumulate(np.where(starts, places, 0))
    return [np.flatnonzero(turn == number) for number in range(int(turn.max()) + 1)]


def independent(dst: Indices, reads: Indices, depth: int) -> int:
    """How many of the first micro-ops read nothing (``reads``: (entries, micro-ops)) that an earlier of them writes."""
    numbers = np.arange(len(dst))
    written = np.full(depth, len(dst))
    written[dst[::-1]] = numbers[::-1]
    late = (written[reads] < numbers).any(0)
    return int(np.argmax(late)) if late.any() else len(dst)
