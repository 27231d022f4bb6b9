"""The CPU's loops of convolutions of single pixels: blocks of pixels, brought together, meet all weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from ... import tensor as te
from ...tensor.evaluate import ITEM_BYTES
from ...tensor.ir import Var
from ...tensor.tree import find_buffer
from ..loops.nests import extent_of, own_loops, tidy
from ..loops.single_pixels import GATHERED
from .processor import Processor

PIXELS_SHARE = 4
"""Data of a block of pixels takes this part of the second-level cache, at most, unless these were few."""

FEWEST_PIXELS = 48
"""Of a block, where an image has them: all weights are read again for each block."""

FEWEST_BLOCKS = 8
"""With as many blocks each brings its own data together; with fewer, threads share that, too."""


def pixel_block(sizes: Sequence[int], nbytes: int, cost: Callable[[int], float], target: Processor) -> int:
    """Pixels of a block: of whole rows of an image, or a part of the only one. ``sizes``: of the result; ``nbytes``: of
    a pixel's data; ``cost``: of a row of so many pixels."""
    rows, width = sizes[-2:]
    count, each = (rows, width) if rows > 1 else (width, 1)
    whole = [some * each for some in range(1, count + 1) if count % some == 0]
    most = max(target.second.nbytes // PIXELS_SHARE // nbytes, FEWEST_PIXELS)
    fitting = [pixels for pixels in whole if FEWEST_PIXELS <= pixels <= most]
    if not fitting:
        return next((pixels for pixels in whole if pixels >= FEWEST_PIXELS), whole[-1])
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


def gather(schedule: te.Schedule, before: Sequence[Var], target: Processor) -> int:
    """Bring data together; ``before``: the loops of `loops_of_pixels`. Gives how many elements lie from a pixel to the
    next: the pixels of a tile must not all take the same few lines of the nearest cache."""
    if prod(extent_of(schedule, loop) for loop in before[:-1]) >= FEWEST_BLOCKS:
        schedule.compute_at(GATHERED, before[-2])
    *outer, lane = own_loops(schedule, GATHERED)
    for loop in outer:
        schedule.parallel(loop)
    schedule.vectorize(lane)
    buffer = find_buffer(schedule.func, GATHERED)
    stride, nbytes = buffer.strides[1], ITEM_BYTES[buffer.dtype]
    apart, line = target.nearest.way_bytes // 2 // nbytes, target.nearest.line // nbytes
    if stride % apart:
        return stride
    schedule.storage_align(GATHERED, 1, apart, line)
    return stride + line
