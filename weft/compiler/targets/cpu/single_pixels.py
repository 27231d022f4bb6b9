"""The CPU's loops of convolutions of single pixels: blocks of pixels, brought together, meet all weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from ... import tensor as te
from ...tensor.ir import Var
from ..loops.nests import extent_of, own_loops, tidy
from ..loops.single_pixels import GATHERED
from .processor import Processor

PIXELS_SHARE = 4
"""Data of a block of pixels takes this part of the second-level cache, at most."""

FEWEST_BLOCKS = 8
"""With as many blocks each brings its own data together; with fewer, threads share that, too."""


def pixel_block(sizes: Sequence[int], nbytes: int, cost: Callable[[int], float], target: Processor) -> int:
    """Pixels of a block: of whole rows of an image, or a part of the only one. ``sizes``: of the result; ``nbytes``: of
    a pixel's data; ``cost``: of a row of so many pixels."""
    rows, width = sizes[-2:]
    count, each = (rows, width) if rows > 1 else (width, 1)
    limit = target.second.nbytes // PIXELS_SHARE
    fitting = [
        some * each for some in range(1, count + 1)
        if count % some == 0 and (some == 1 or some * each * nbytes <= limit)
    ]  # fmt: skip
    return min(fitting, key=lambda pixels: (cost(pixels) / pixels, -pixels))


def loops_of_pixels(schedule: te.Schedule, pixels: int) -> tuple[list[Var], Var]:
    """The loops outside of a block of so many pixels, the innermost over tiles of channels, and that over them."""
    n, o, g, *front, y, x, lane = schedule.get_loops(schedule.blocks()[-1])
    if extent_of(schedule, y) > 1:
        block, inside = schedule.split(y, pixels // extent_of(schedule, x))
        before = [n, *front, block, o]
        schedule.reorder(*before, g, inside, x, lane)
        pixel = schedule.fuse(inside, x)
    else:
        block, pixel = schedule.split(x, pixels)
        before = [n, *front, y, block, o]
        schedule.reorder(*before, g, pixel, lane)
    tidy(schedule)
    return before, pixel


def gather(schedule: te.Schedule, before: Sequence[Var]) -> None:
    """Bring data together; ``before``: the loops of `loops_of_pixels`."""
    if prod(extent_of(schedule, loop) for loop in before[:-1]) >= FEWEST_BLOCKS:
        schedule.compute_at(GATHERED, before[-2])
    *outer, lane = own_loops(schedule, GATHERED)
    for loop in outer:
        schedule.parallel(loop)
    schedule.vectorize(lane)
