"""Products of a step's operands by threads: each has some rows and columns of its warp's part of the tile.

A warp's threads are 4 x 8, and its rows and columns are dealt out to them in turn: what they read at once lies in
different banks, rows of operands being what they are apart (`tensor_schedule.py`), and neighbours store neighbours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ... import tensor as te
from ...tensor.ir import DType, Var
from ..loops.nests import own_loops
from .digits import THREAD

WARP_ROWS, WARP_COLUMNS = 4, 8
"""Threads of a warp."""

TOGETHER = 4
"""Elements of the depth that a thread reads at once."""


@dataclass(frozen=True)
class ThreadShape:
    """Products of ``dtype`` by threads, added up in ``sums``."""

    dtype: DType
    sums: DType


THREAD_SHAPES = (ThreadShape("float32", "float32"),)
"""Types of which 16 bytes are `TOGETHER` elements."""


def _dealt_out(
    schedule: te.Schedule, loops: Sequence[Var], warp_rows: int, warp_columns: int
) -> tuple[list[Var], list[Var]]:
    """Loops over warps and threads, and those over what each has, which are written out."""
    rows, columns = loops
    warp_row, i, row = schedule.split(rows, factors=[None, warp_rows // WARP_ROWS, WARP_ROWS])
    warp_column, j, column = schedule.split(columns, factors=[None, warp_columns // WARP_COLUMNS, WARP_COLUMNS])
    threads = [warp_row, warp_column, row, column]
    for loop in threads:
        schedule.bind(loop, THREAD)
    for loop in (i, j):
        schedule.unroll(loop)
    return threads, [i, j]


def hold_by_threads(schedule: te.Schedule, name: str, warp_rows: int, warp_columns: int) -> None:
    """A stage over the tile of sums: each thread the sums that it holds."""
    threads, own = _dealt_out(schedule, own_loops(schedule, name)[-2:], warp_rows, warp_columns)
    schedule.reorder(*threads, *own)


def multiply_by_threads(
    schedule: te.Schedule, rows: Var, columns: Var, depth: Var, warp_rows: int, warp_columns: int
) -> None:
    """The loops that add up, over the tile and the depth of a step."""
    deep, k = schedule.split(depth, TOGETHER)
    threads, own = _dealt_out(schedule, (rows, columns), warp_rows, warp_columns)
    schedule.reorder(*threads, deep, k, *own)
    for loop in (deep, k):
        schedule.unroll(loop)
