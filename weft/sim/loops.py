"""Affine loops of the gemm and vector engines as NumPy index arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
import numpy.typing as npt

Indices = npt.NDArray[np.int64]


@dataclass(frozen=True)
class LoopLevel:
    """One level as a LOOP instruction sets it."""

    extent: int = 1
    dst_stride: int = 0
    a_stride: int = 0
    b_stride: int = 0


@dataclass(frozen=True)
class LoopNest:
    """Levels of one GEMM or VECTOR, outermost first."""

    levels: tuple[LoopLevel, ...]

    @property
    def count(self) -> int:
        """Number of micro-ops."""
        return prod(level.extent for level in self.levels)

    def largest(self, base: int, operand: str) -> int:
        """Largest index that operand ``dst``, ``a`` or ``b`` reaches from ``base``."""
        return base + sum((level.extent - 1) * int(getattr(level, f"{operand}_stride")) for level in self.levels)

    def part(self, start: int, stop: int) -> tuple[Indices, Indices, Indices, npt.NDArray[np.bool_]]:
        """Offsets (dst, a, b) of micro-ops ``start`` to ``stop``, and which of them begin a reduction (``zero``)."""
        number = np.arange(start, stop, dtype=np.int64)
        offsets = [np.zeros(stop - start, np.int64) for _ in range(3)]
        first = np.ones(stop - start, np.bool_)
        for level in reversed(self.levels):
            number, iteration = np.divmod(number, level.extent)
            for offset, stride in zip(offsets, (level.dst_stride, level.a_stride, level.b_stride), strict=True):
                if stride:
                    offset += iteration * stride
            if level.dst_stride == 0:
                first &= iteration == 0
        return offsets[0], offsets[1], offsets[2], first


def affine(base: int, extents: Sequence[int], strides: Sequence[int]) -> Indices:
    """``base + i0*strides[0] + i1*strides[1] + ...`` for all iterations, row-major, flat."""
    indices = np.full(1, base, np.int64)
    for extent, stride in zip(extents, strides, strict=True):
        indices = (indices[:, None] + np.arange(extent, dtype=np.int64) * stride).reshape(-1)
    return indices
