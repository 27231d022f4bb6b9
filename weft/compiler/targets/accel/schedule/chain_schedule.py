"""Schedules of chains: layers that run tile by tile in one function, whose results in between stay on the core.

The last layer is tiled as any other (`schedule`). The layers before it are computed where their results are read:
inside the loop over tiles, or, where each output group reads only its own input group, inside the loop over chunks of
the last reduction. What windows of neighbouring tiles share is computed for each of them, or rolled: it stays in the
accumulator for the tile below (`rolled_reader`). The iterations of all these loops overlap (`pipelined`), each layer
later than the one before it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ....tensor.ir import Block, Var
from ....tensor.schedule import Schedule
from ....tensor.tree import find_block
from ...errors import CompileError
from ..operators.lower import Kernel, Section, Stages
from .pipelined import pipeline
from .tiling import ChainTiling, Problem, Tiling, tile_loops

MATRIX_DIMENSIONS = 2
"""Dimensions of an entry of ``wgt``, which is copied whole: the depthwise mode leaves some of its rows unused."""

ROWS = 2
"""The dimension of a packed activation that goes over the rows of the picture."""

Caches = dict[tuple[str, str], str]
"""Copies of parameters and weights: (reading stage, parameter) -> copying stage."""


def attach_vector(
    schedule: Schedule, stages: Stages, vector: tuple[str, ...], loop: Var, *, exact: bool = False
) -> None:
    """Compute vector stages, and what they read of DRAM as int32, inside ``loop``."""
    for name in (*reversed(vector), *stages.widened):
        schedule.compute_at(name, loop, exact=exact)
    for name, overwritten in stages.in_place:
        # What an earlier stage wrote over has the name of either.
        made = find_block(schedule.func, overwritten)[-1]
        schedule.inplace(name, made.body.buffer.name if isinstance(made, Block) else overwritten)


def order_reduction(schedule: Schedule, section: Section, problem: Problem, tiling: Tiling | None) -> Var | None:
    """Bring the reduction's loops into the order of a matrix or vector instruction; gives the loop over chunks, into
    which ``tiling`` may cut it. CompileError where a tile takes a part of the input channel groups of a pixel that lie
    together."""
    loops, blocks = schedule.get_loops(section.stages.reduce), problem.kernel.blocks
    if not section.matrix_weights:
        no, cd, y, x, r, n, so, *taps = loops[-9:]
        entries = schedule.split(r, blocks.output_rows) if blocks.output_parts > 1 else [r]
        chunk = []
        if tiling is not None and tiling.reduction:
            outer, taps[problem.window_axis] = schedule.split(taps[problem.window_axis], tiling.reduction)
            chunk = [outer]
        schedule.reorder(*chunk, no, cd, *entries[:-1], y, x, *taps, entries[-1], n, so)
        return chunk[0] if chunk else None
    if section.tapped:  # the micro-ops of a row share columns of taps
        no, ko, y, x, ro, n, so, th, tw, kh, kw = loops[-11:]
        schedule.reorder(no, ko, th, tw, y, x, ro, n, so, kh, kw)
        return None
    if not section.input_groups:
        no, ko, y, x, ro, n, so, kh, kw, rk, sk = loops[-11:]
        schedule.reorder(no, ko, y, x, kh, kw, ro, n, so, rk, sk)
        return None
    no, ko, y, x, ro, n, so, kc, kh, kw, rk, sk = loops[-12:]
    if tiling is None:
        schedule.reorder(no, ko, y, x, kc, kh, kw, ro, n, so, rk, sk)
        return None
    at_once, parts = tiling.portion or tiling.reduction, blocks.input_parts
    if at_once % parts:
        raise CompileError(f"a tile takes {at_once} input channel groups at a time, of which {parts} lie together",
                           hint=f"take a multiple of {parts}")  # fmt: skip
    groups, *of_pixel = schedule.split(kc, parts) if parts > 1 else [kc]
    outer, inner = schedule.split(groups, at_once // parts)
    schedule.reorder(outer, no, ko, y, x, inner, *of_pixel, kh, kw, ro, n, so, rk, sk)
    if tiling.portion:
        schedule.unroll(outer)
        return None
    return outer if tiling.reduction < section.input_groups else None


def attach_chain(
    schedule: Schedule, problem: Problem, tiling: ChainTiling, caches: Caches, loops: Sequence[Var], part: Var | None
) -> None:
    """Place all that the last layer's products read. ``loops``: over tiles, then perhaps over chunks of the reduction,
    outermost first; the reduction and the vector stages of the last layer are in their places. ``part``: the loop over
    parts of the channel groups, if cores share these."""
    kernel = problem.kernel
    picture = len(tile_loops(problem, tiling)) - 2
    at = {True: loops[-1], False: loops[picture]}
    places = innermost(problem, tiling)
    readers = list(zip(kernel.sections, places, strict=True))
    rolled = int(rolled_reader(problem, tiling))
    exact = rolled > 0  # rows are rolled where a tile fills its buffer
    moved: dict[str, str] = {}
    for number, (section, place) in reversed(list(enumerate(readers))):
        schedule.compute_at(section.stages.data, at[place], exact=exact)
        if number and number == rolled:
            rows = loops[[loop.axis for loop in tile_loops(problem, tiling)].index("y")]
            moved[schedule.roll(section.stages.data, rows, ROWS)] = section.stages.data
        if number:
            producer = kernel.producers[number - 1]
            attach_vector(schedule, producer.stages, producer.stages.vector[:-1], at[place], exact=exact)
            schedule.compute_at(producer.stages.reduce, at[place], exact=exact)
            order_reduction(schedule, producer, problem, None)
    late = _late(problem, tiling, places)
    late |= {name: late[stage] for name, stage in moved.items()}
    for section, place, cut in zip(kernel.sections, (*places[1:], True), cut_sections(kernel), strict=True):
        for stage, name in _constants(section, caches):
            if tiling.resident and part is not None and cut and name not in shared_copies(section, caches):
                schedule.compute_at(name, part, MATRIX_DIMENSIONS if stage == section.stages.reduce else 0)
            if not tiling.resident and name not in shared_copies(section, caches):
                own = section is not kernel.section or stage == section.stages.reduce
                whole = MATRIX_DIMENSIONS if stage == section.stages.reduce else 0
                schedule.compute_at(name, at[place] if own else loops[picture + 1], whole)
                late[name] = late[section.stages.reduce]
    pipeline(schedule, loops, late)


def cut_sections(kernel: Kernel) -> list[bool]:
    """For each layer, whether a part of the last one's channel groups needs no other than its own part of them."""
    cut = [kernel.share.groups > 1]
    for reader in reversed(kernel.sections[1:]):
        cut.insert(0, cut[0] and not reader.input_groups)
    return cut


def innermost(problem: Problem, tiling: Any) -> list[Any]:
    """For each layer, whether its input is there for the innermost loop only: a chunk of the last reduction or a tile
    of channels. Otherwise it is there for all channels of a part of the picture. Of many tilings at once these are
    arrays, as their sizes are."""
    kernel = problem.kernel
    last = kernel.section
    places = [not last.input_groups or tiling.reduction < last.input_groups]
    for producer in reversed(kernel.producers):
        places.insert(0, (not producer.input_groups) & places[0])
    return places


def rolled_reader(problem: Problem, tiling: Any) -> Any:
    """The number of the layer whose windows find a part of their rows where the tile above left them; 0 if none does.
    Of many tilings at once it is an array, as their sizes are.

    It is one that the vector engine computes, since what that reads lies in the accumulator, in which rows can be
    moved: the last whose windows of neighbouring tiles meet in at most half of their rows. The tiles of a column must
    follow one another.
    """
    kernel = problem.kernel
    _, groups, height, width = problem.output
    beside = (tiling.order == "yxc") & (tiling.columns < width)
    inside = (tiling.groups < groups) | (tiling.reduction < kernel.section.input_groups)
    reader, left = 0 * tiling.rows, tiling.rolling & (tiling.rows < height)  # left: those of which it is not known yet
    made, apart = tiling.rows, tiling.rows
    in_place = {name for section in kernel.sections for name, _ in section.stages.in_place}
    places = innermost(problem, tiling)
    for number in range(len(kernel.producers), 0, -1):
        section = kernel.sections[number]
        if section.window is None:
            return reader
        reach = (section.window.kernel[0] - 1) * section.window.dilations[0] + 1
        made, apart = (made - 1) * section.window.strides[0] + reach, apart * section.window.strides[0]
        on_vector_engine = not section.matrix_weights and section.stages.data not in in_place
        if on_vector_engine and section.window.row_step == 1:
            meets = left & (apart < made) & (made <= 2 * apart)
            follows = np.logical_not(beside | places[number] & inside)
            reader, left = np.where(meets & follows, number, reader), left & np.logical_not(meets)
    return reader


def _late(problem: Problem, tiling: ChainTiling, places: Sequence[bool]) -> dict[str, int]:
    """By how many iterations of the innermost loop each stage is late."""
    kernel = problem.kernel
    in_picture = tile_loops(problem, tiling)[-1].extent
    if kernel.section.input_groups:
        in_picture *= -(-kernel.section.input_groups // tiling.reduction)
    late: dict[str, int] = {}
    rolled = int(rolled_reader(problem, tiling))  # what it reads is there once, so it takes turns with what makes that
    now = 0
    for number, (section, place) in enumerate(zip(kernel.sections, places, strict=True)):
        step = 1 if place else in_picture
        if tiling.ahead if number == 0 else tiling.skewed and number != rolled:
            now += step
        stages = section.stages
        names = (stages.reduce, *stages.widened, *stages.vector, stages.output)
        late |= {name: now for name in names if name}
    return late


def shared_copies(section: Section, caches: Caches) -> set[str]:
    """The copies of parameters that all channel groups share: they stay for all tiles."""
    return {caches[key] for key in section.stages.parameters if key[1] in section.shared}


def _constants(section: Section, caches: Caches) -> Iterator[tuple[str, str]]:
    """(reading stage, copying stage) of a layer's weights and parameters."""
    stages = section.stages
    yield from ((stage, caches[stage, name]) for stage, name in stages.parameters)
    if stages.weights:
        yield stages.reduce, stages.weights
