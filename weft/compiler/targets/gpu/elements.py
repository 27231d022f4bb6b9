"""Threads for the elements of a result."""

from __future__ import annotations

from collections.abc import Sequence

from ... import tensor as te
from ...tensor.ir import Var
from ..loops.nests import extent_of
from .devices import GpuDescription
from .digits import BLOCK_AXES, THREAD


def bind_elements(schedule: te.Schedule, loops: Sequence[Var], device: GpuDescription) -> None:
    """Threads for the innermost of ``loops``, which are directly nested, groups for the others."""
    threads: list[Var] = []
    left = device.threads
    rest = list(loops)
    while rest and left > 1:
        loop = rest.pop()
        extent = extent_of(schedule, loop)
        if extent <= left:
            threads.insert(0, loop)
            left //= max(1, extent)
            continue
        outer, inner = schedule.split(loop, _part(extent, left))
        rest.append(outer)
        threads.insert(0, inner)
        break
    for loop in rest:
        schedule.bind(loop, BLOCK_AXES[0])
    for loop in threads:
        schedule.bind(loop, THREAD)


def _part(extent: int, most: int) -> int:
    """Iterations of a loop for one group: a divisor that is at least half of ``most``, if there is one."""
    return next((size for size in range(most, most // 2, -1) if extent % size == 0), most)
