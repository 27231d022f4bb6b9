"""What tilings need of the scratchpads and what they cost, all of a kernel's at once, in NumPy; the cheapest first.

The cost is a plain estimate of cycles: matrix work, vector work and DRAM traffic beside each other (:mod:`.work`),
plus what cannot overlap. It ranks tilings; it is no timing model.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import islice, product

import numpy as np

from .....hw.config import CoreConfig
from .....hw.dram_rate import DramRate
from .....hw.isa import Scratchpad
from .....hw.memories import Memory
from ..operators.builder import Window
from ..operators.depthwise_mode import row_cycles, row_pitch
from ..operators.empty_matrices import RUN_CYCLES
from ..schedule.tiling import (
    AXES,
    CHANNEL_AXES,
    DEFAULT_ORDERS,
    EPILOGUE_OVERHEAD,
    LARGEST_SIZE,
    LOOP_ORDERS,
    Problem,
    Tiling,
    divides_epilogue,
    epilogues,
    sizes_worth_trying,
)  # fmt: skip
from .bursts import (
    answered,
    inputs_together,
    lost_to_latency,
    moved,
    moved_input,
    moved_matrix,
    moved_result,
    places_of,
)
from .tiles import Array, Buffers, Tiles
from .vector_alone import cycles_waiting, is_alone
from .window_chunks import chunks_of_window, reach_of_chunk
from .work import Work

INSTRUCTION_OVERHEAD = 6
"""Cycles lost where one matrix instruction follows another, beyond what ``exposed`` counts. Whole programs decide: with
24 ResNet-50 takes 0.5 % more on `pynq`, ResNet-18 0.5 % more on `wide`, a keyword spotter 3 % more on `tiny`
(`benchmarks/core/ablation.py`)."""

LOAD_OVERHEAD = 2
"""Cycles that the writer of a load engine loses between two LOADs (`hw.load_writer`)."""

WIDTHS_TRIED = 2
"""Of tiles: narrower ones than so many are not tried, unless none of these finds room."""

NEXT_WIDTH_SHARE = 0.75
"""Share of a width that the next one has at most, of tiles of one thread."""

VECTOR_PIPELINE = 14
"""Cycles from the issue of a micro-op to its write (`hw.vector_results`): one that reads the result waits for it."""

UNEVEN_PENALTY = 0.01
"""Share of the cost that each axis adds whose last tile is smaller: loop registers have to be set again. Without it
MobileNetV1 takes 0.06 % more cycles on `pynq`; MobileNetV2, ResNet-18 and a block of ViT take the same."""

BUS_ALONE_TIMES = 4
"""Times the work of every engine that the bus must have, for a layer to wait for nothing but the bus."""

BUS_CYCLE_WORTH = 0.04
"""What a cycle of the bus is worth beyond its own layer: what others load ahead waits for it, and other cores do. With
0.02 ResNet-50 reads 73 MB instead of 62 and takes 0.3 % more cycles."""

WITHOUT_THREADS = 1.03
"""Times the cycles of a layer whose tiles are of one thread, where another could have more: it overlaps less with its
neighbours than its own cycles say. Without it RegNetY-400MF takes 1.8 % more cycles, EfficientNet-B0 0.6 % fewer."""


ORDERS = sorted(LOOP_ORDERS)
PLACES = np.array([[AXES.index(axis) for axis in LOOP_ORDERS[name]] for name in ORDERS])
"""For each of ``ORDERS`` the loops over tiles, outermost first, as numbers of their axes."""


class TileLoops:
    """The loops over tiles: ``extents`` by place, outermost first, for each tiling (see ``tiling.tile_loops``)."""

    def __init__(self, problem: Problem, tiles: Tiles) -> None:
        outer, groups, height, width = problem.output
        sizes = (groups, tiles.groups), (height, tiles.rows), (width, tiles.columns)
        counts = np.array([np.full(len(tiles), outer), *(-(-size // tile) for size, tile in sizes)])
        self._axes = PLACES[np.searchsorted(ORDERS, tiles.order)].T
        self.extents = np.take_along_axis(counts, self._axes, axis=0)
        self._several = self.extents > 1
        self._times = np.cumprod(self.extents, axis=0)
        self.tiles = self._times[-1]
        self._each = np.arange(len(tiles))
        self._thread_place = np.where(tiles.threads > 1, _innermost(self._several), -1)
        self.threads = np.where(
            self._thread_place >= 0, np.minimum(tiles.threads, self.extents[self._thread_place, self._each]), 1
        )
        """Copies of what every tile has for itself that are alive at once."""

    def tiles_along(self, depends: frozenset[str]) -> Array:
        """Tiles that differ in these axes."""
        on = np.array([axis in depends for axis in AXES])
        count: Array = np.where(on[self._axes], self.extents, 1).prod(axis=0)
        return count

    def placed(self, depends: frozenset[str]) -> tuple[Array, Array]:
        """Copies alive and number of loads of a buffer that is filled at its home loop, the innermost that it depends
        on."""
        on = np.array([axis in depends for axis in AXES])
        home = _innermost(self._several & on[self._axes])
        loads = np.where(home >= 0, self._times[home, self._each], 1)
        return np.where((home >= 0) & (home == self._thread_place), self.threads, 1), loads

    def in_tiles(self, depends: frozenset[str], times: Array) -> tuple[Array, Array]:
        """As :meth:`placed`, of a buffer that is filled so many ``times`` in every tile. Threads whose buffers would
        hold the same have one for all of them."""
        on = np.array([axis in depends for axis in AXES])
        threaded = self._axes[self._thread_place, self._each]
        own = on[threaded] | (self._thread_place < 0)
        extent = self.extents[self._thread_place, self._each]
        turns = self.tiles // extent * -(-extent // self.threads)
        return np.where(own, self.threads, 1), np.where(own, self.tiles, turns) * times


def _innermost(mask: Array) -> Array:
    """The last place, along the first axis, at which it is true; -1 where there is none."""
    places: Array = np.where(mask, np.arange(len(mask))[:, None], -1).max(axis=0)
    return places


def buffers_of(problem: Problem, tiles: Tiles) -> Iterator[Buffers]:
    """What tilings keep in the scratchpads."""
    yield from _buffers(problem, tiles, TileLoops(problem, tiles))


def _buffers(problem: Problem, tiling: Tiles, loops: TileLoops) -> Iterator[Buffers]:
    config, kernel, parts = problem.config, problem.kernel, problem.parts
    threads, tiles = loops.threads, loops.tiles
    groups = tiling.groups * parts
    tile = groups * tiling.rows * tiling.columns
    epilogue = tiling.epilogue_groups * parts * tiling.epilogue_rows * tiling.columns
    epilogues_in_all = _epilogues(tiling) * tiles
    yield Buffers(Memory.OUT, epilogue, threads, 0)
    sizes = {"cd": tiling.epilogue_groups * parts, "y": tiling.epilogue_rows, "x": tiling.columns}
    small = {
        stage: math.prod(size for axis, size in sizes.items() if axis not in axes)
        for stage, axes in kernel.section.repeated
    }
    wide_bytes, bursts = moved_result(problem, tiling, config.read_outstanding)
    for stage in kernel.stages.widened:
        yield Buffers(Memory.ACC, small.get(stage, epilogue), threads, epilogues_in_all, wide_bytes, "load", bursts)
    written = {stage for stage, _ in kernel.stages.in_place}
    computed = sum(entries for stage, entries in small.items() if stage not in (*kernel.stages.widened, *written))
    whole = problem.vector_buffers - sum(stage not in small for stage in kernel.stages.widened)
    yield Buffers(Memory.ACC, epilogue * whole + computed, threads, 0, zone="vector")
    if problem.parameters:
        copies, loads = loops.placed(CHANNEL_AXES)
        yield Buffers(Memory.ACC, groups * problem.parameters, copies, loads, problem.parameter_bytes, "vector")
    if shared := kernel.section.shared_parameters:
        yield Buffers(
            Memory.ACC, shared, 1, np.ones(len(tiling), np.int64), Scratchpad.ACC.dram_bytes(config), "vector"
        )
    if kernel.window is None:
        return
    yield Buffers(Memory.ACC, tile, threads, 0, zone="matrix" if problem.is_matrix else "vector")
    height, width = kernel.window.reach(tiling.rows, tiling.columns)
    inside = 1 if problem.reduction else _inside(problem, tiling, kernel.window)
    chunks = chunks_of(problem, tiling)
    if not problem.is_matrix:
        height, width = reach_of_chunk(problem, kernel.window, tiling, (height, width))
        together = inputs_together(problem, kernel.window, (height, width), tiling.groups) * parts
        long = problem.window_places > 0
        read, bursts = moved(problem, config.out_bytes, together, config.read_outstanding, rows=long)
        entries = groups * height * width
        yield Buffers(Memory.ACC, entries, threads, tiles * chunks, read * inside, "load", bursts * inside)
        return
    read = np.where(tiling.reduction > 0, tiling.reduction, tiling.groups)
    together = inputs_together(problem, kernel.window, (height, width), read // kernel.blocks.input_parts)
    read_bytes, bursts = moved_input(problem, tiling, together * kernel.blocks.input_parts)
    pitch = row_pitch(width) if kernel.section.tapped else width
    copies, loads = _where(chunks == 1, loops.placed(problem.data_axes), loops.in_tiles(problem.data_axes, chunks))
    yield Buffers(Memory.INP, read * height * pitch, copies, loads, read_bytes * inside, bursts=bursts * inside)
    copies, loads = _where(chunks == 1, loops.placed(problem.matrix_axes), loops.in_tiles(problem.matrix_axes, chunks))
    matrices = groups * np.maximum(tiling.reduction, 1) * problem.taps
    of_matrix, bursts = moved_matrix(problem, tiling)
    kept = problem.kept_share
    yield Buffers(Memory.WGT, matrices, copies, loads, of_matrix * kept, bursts=bursts * kept)


def _where(condition: Array, first: tuple[Array, Array], second: tuple[Array, Array]) -> tuple[Array, Array]:
    return np.where(condition, first[0], second[0]), np.where(condition, first[1], second[1])


def _epilogues(tiling: Tiles) -> Array:
    """Of a tile."""
    count: Array = -(-tiling.groups // tiling.epilogue_groups) * -(-tiling.rows // tiling.epilogue_rows)
    return count


def _inside(problem: Problem, tiling: Tiles, window: Window) -> Array:
    """The share of the tiles' inputs that is no padding."""
    _, _, height, width = problem.output
    reach = window.reach(tiling.rows, tiling.columns)
    top, left, bottom, right = window.pads
    rows, columns = -(-height // tiling.rows) * reach[0], -(-width // tiling.columns) * reach[1]
    if window.row_step > 1:
        top = bottom = 0
    share: Array = np.maximum(0, 1 - (top + bottom) / rows) * np.maximum(0, 1 - (left + right) / columns)
    return share


def chunks_of(problem: Problem, tiling: Tiles) -> Array:
    """In how many chunks of the reduction a tile's accumulators are computed."""
    if not problem.reduction:
        return chunks_of_window(problem, tiling)
    count: Array = -(-problem.reduction // tiling.reduction)
    return count


def fills(problem: Problem, tilings: Sequence[Tiling]) -> Array:
    """For each tiling the share of the fullest scratchpad that is in use at once; above 1 it does not fit."""
    tiles = Tiles.of(tilings)
    return _fills(problem, list(buffers_of(problem, tiles)), len(tiles))


def _fills(problem: Problem, buffers: list[Buffers], count: int) -> Array:
    used = _used(problem, buffers, count)
    shares: Array = np.max([entries / problem.rooms[place] for place, entries in used.items()], axis=0)
    return shares


def fill(problem: Problem, tiling: Tiling) -> float:
    """:func:`fills` of one."""
    return float(fills(problem, [tiling])[0])


def entries_of(problem: Problem, tiling: Tiling) -> dict[str, int]:
    """Entries of each scratchpad that are in use at once."""
    used = _used(problem, list(buffers_of(problem, Tiles.of([tiling]))), 1)
    return {place: int(entries[0]) for place, entries in used.items()}


def _used(problem: Problem, buffers: list[Buffers], count: int) -> dict[str, Array]:
    used: dict[str, Array] = {place: np.zeros(count, np.int64) for place in problem.rooms}
    for buffer in buffers:
        used[_place(problem, buffer)] += np.asarray(buffer.entries * buffer.copies)
    return used


def _place(problem: Problem, buffer: Buffers) -> str:
    zone = f"{buffer.scratchpad} {buffer.zone}"
    return zone if zone in problem.rooms else buffer.scratchpad


@dataclass(frozen=True)
class Works(Work):
    """:class:`Work` of many tilings. ``fits``: whether the scratchpads have room. ``ahead``: of ``exposed``, cycles of
    the first load of weights in which the bus would not stand still anyhow. ``uneven``: axes whose last tile is
    smaller."""

    fits: Array = field(kw_only=True)
    ahead: Array = field(kw_only=True)
    uneven: Array = field(kw_only=True)


def estimates(problem: Problem, tilings: Sequence[Tiling]) -> Array:
    """Cycles of each tiling, roughly; infinite for those that do not fit the scratchpads."""
    return _cycles(problem, works_of(problem, Tiles.of(tilings)))


def _cycles(problem: Problem, works: Works) -> Array:
    cycles = works.used if problem.beside else works.cycles
    fitting: Array = np.where(works.fits, (cycles - works.ahead) * (1 + UNEVEN_PENALTY * works.uneven), np.inf)
    return fitting


def estimate(problem: Problem, tiling: Tiling) -> float | None:
    """:func:`estimates` of one; None if the tiling does not fit the scratchpads."""
    cycles = float(estimates(problem, [tiling])[0])
    return cycles if cycles < math.inf else None


def work_of(problem: Problem, tiling: Tiling) -> Work | None:
    """What a tiling costs; None if it does not fit the scratchpads."""
    found = works_of(problem, Tiles.of([tiling]))
    if not found.fits[0]:
        return None
    return Work(*(float(np.ravel(each)[0]) for each in (found.matrix, found.vector, found.traffic, found.exposed)))


def works_of(problem: Problem, tiling: Tiles) -> Works:
    """What tilings cost."""
    config = problem.config
    loops = TileLoops(problem, tiling)
    tiles = loops.tiles
    buffers = list(_buffers(problem, tiling, loops))
    used = _used(problem, buffers, len(tiling))
    fits = np.all([entries <= problem.rooms[place] for place, entries in used.items()], axis=0)
    outer, groups, height, width = problem.output
    pixels = outer * groups * problem.parts * height * width
    chunks = chunks_of(problem, tiling)
    matrix = (INSTRUCTION_OVERHEAD * tiles * chunks).astype(np.float64)
    if problem.kernel.section.tapped and problem.kernel.window is not None:
        matrix += outer * groups * height * row_cycles_of(problem.kernel.window, width, tiling.columns) * problem.taps
    elif problem.is_matrix:
        matrix += pixels * (problem.reduction or 1) * problem.taps * problem.kept_share
        matrix += problem.further_runs * RUN_CYCLES * -(-height // tiling.rows) * -(-width // tiling.columns) * outer
    vector = float(pixels * problem.vector_stages)
    if problem.kernel.window is not None and not problem.is_matrix:
        vector += pixels * problem.taps
    instructions = np.where(problem.is_matrix | (chunks > 1), tiles * chunks, 0)
    # Results; reads and writes share the memory.
    result_bytes, bursts = moved_result(problem, tiling, config.write_outstanding)
    traffic = np.full(len(tiling), pixels * result_bytes / problem.bytes_per_cycle)
    writing = answered(problem, pixels * bursts, config.write_outstanding)
    reading = np.zeros(len(tiling))
    exposed = np.zeros(len(tiling))
    ahead: Array = np.zeros(len(tiling))
    for buffer in buffers:
        if isinstance(buffer.loads, int):
            continue  # it is not loaded
        cycles = buffer.entries * buffer.entry_bytes / problem.bytes_per_cycle
        traffic += (cycles + LOAD_OVERHEAD) * buffer.loads
        reading += answered(problem, buffer.entries * buffer.bursts * buffer.loads, config.read_outstanding)
        instructions = instructions + buffer.loads
        if buffer.scratchpad is Memory.WGT and not problem.kernel.section.own_matrices:
            ahead = cycles + ahead
        exposed += cycles  # the first load has nothing to hide behind
        place = _place(problem, buffer)
        full = used[place] + buffer.entries > problem.rooms[place]  # no room to load ahead
        exposed += np.where((buffer.copies == 1) & (buffer.loads > 1) & full, cycles * (buffer.loads - 1), 0.0)
        if _comes_with_tiles(problem, buffer):
            in_vector = buffer.scratchpad is Memory.ACC
            free = problem.rooms[place] - used[place]
            places = places_of(problem, buffer.entries, buffer.copies, free, vector=in_vector)
            work = (vector if in_vector else np.maximum(matrix, vector)) / buffer.loads
            # A scratchpad takes an entry a cycle.
            exposed += lost_to_latency(problem, places, np.maximum(cycles, buffer.entries), work) * buffer.loads
    if is_alone(problem):
        times = _epilogues(tiling) * tiles
        exposed += cycles_waiting(problem, buffers, used[str(Memory.ACC)], vector, traffic, times)
    if not problem.beside:
        in_chunks = 1 if problem.is_matrix else chunks  # which are loaded while the vector engine works on others
        exposed += np.where((tiling.threads == 1) | (tiles == 1), vector / (tiles * in_chunks), 0.0)
    exposed += EPILOGUE_OVERHEAD * _epilogues(tiling) * tiles
    exposed += _at_the_ends(problem, tiling, tiles, chunks, vector)
    of_epilogues, waiting = _of_epilogues(problem, tiling, tiles)
    traffic += (instructions + of_epilogues) * config.instruction_bytes / problem.bytes_per_cycle
    traffic = np.maximum(traffic, np.maximum(reading, writing))
    exposed += waiting
    # Where the bus is busy all the time, the first weights are no more than a part of what it moves, which counts
    # already, or come beside the layer before; the last products are what the bus does not hide.
    spare = traffic - BUS_ALONE_TIMES * np.maximum(matrix, vector)
    ahead = np.maximum(np.minimum(ahead, spare) - matrix / (tiles * chunks), 0)
    exposed += np.where(_spills(problem, tiling, buffers), vector, 0.0)
    return Works(matrix, vector, traffic, exposed, fits=fits, ahead=ahead, uneven=uneven_axes(problem, tiling))


def uneven_axes(problem: Problem, tiling: Tiles) -> Array:
    """How many axes have a last tile that is smaller."""
    _, groups, height, width = problem.output
    axes = (
        (groups, tiling.groups), (height, tiling.rows), (width, tiling.columns), (tiling.rows, tiling.epilogue_rows),
        (problem.reduction, np.maximum(tiling.reduction, 1)),
    )  # fmt: skip
    count: Array = np.sum([np.asarray(size) % tile != 0 for size, tile in axes], axis=0)
    return count


def _comes_with_tiles(problem: Problem, buffer: Buffers) -> bool:
    """Whether it holds what the anchor of a layer reads, a part at a time."""
    if problem.is_matrix:
        return buffer.scratchpad in (Memory.INP, Memory.WGT)
    return problem.beside and problem.kernel.window is not None and buffer.zone == "load"


def _of_epilogues(problem: Problem, tiling: Tiles, tiles: Array) -> tuple[Array, Array]:
    """Instructions of the vector stages, which are read from DRAM, too, and cycles for which the stages wait for each
    other: each reads what the one before it has written."""
    groups = tiling.epilogue_groups * problem.parts
    entries = groups * tiling.epilogue_rows * tiling.columns
    times = _epilogues(tiling) * tiles
    stages = problem.kernel.stages
    repeated = len(stages.vector) - problem.vector_stages  # of which each epilogue computes a few entries again
    waiting: Array = times * problem.vector_stages * np.maximum(VECTOR_PIPELINE - entries, 0)
    waiting += times * repeated * np.maximum(VECTOR_PIPELINE, groups)
    return times * (len(stages.vector) + len(stages.widened) + 1), waiting


def row_cycles_of(window: Window, width: int, columns: Array) -> Array:
    """Cycles of the array in its depthwise mode for a row of ``width`` outputs, in tiles of so many columns."""
    known = {}
    for size in set(columns.tolist()):
        known[size] = sum(row_cycles(window, min(size, width - start)) for start in range(0, width, size))
    return np.array([known[size] for size in columns.tolist()], np.int64)


def _at_the_ends(problem: Problem, tiling: Tiles, tiles: Array, chunks: Array, vector: float) -> Array:
    """Cycles lost because a tile's results keep the next tile, or the end, waiting."""
    config = problem.config
    tile = tiling.groups * problem.parts * tiling.rows * tiling.columns
    stages = problem.vector_stages
    threads = np.minimum(tiling.threads, tiles)
    # Virtual threads that take turns at the chunks of their reductions all finish at the same time.
    together = np.where(chunks > 1, threads, 1)
    lost: Array = together * tile * max(stages, config.out_bytes / problem.bytes_per_cycle)
    if not problem.is_matrix:
        return lost
    room = problem.rooms.get("acc matrix", config.acc_depth // (2 if config.acc_banks > 1 else 1))
    lost = lost + np.where((threads + together) * tile > room, tile * stages * (tiles / together - 1), 0.0)
    if problem.vector_buffers:
        # Matrix work in a bank keeps everything else from writing there.
        lost += np.where(threads * tile > room, 2 * vector, 0.0)
    return lost


def _spills(problem: Problem, tiling: Tiles, buffers: Sequence[Buffers]) -> Array:
    """Whether results of the vector engine lie among those of the array, where the two take turns.

    It is so where they find no room in the bank that they share with parameters, nor among what is loaded (see
    :func:`scratchpads.accumulator_zones`).
    """
    config = problem.config
    if problem.beside or not problem.is_matrix or not problem.vector_buffers or config.acc_banks == 1:
        return np.zeros(len(tiling), np.bool_)
    own = np.full(len(tiling), config.acc_depth // config.acc_banks)
    others = np.full(len(tiling), config.acc_depth - config.acc_depth // 2) - own
    results = np.zeros(len(tiling), np.int64)
    for buffer in buffers:
        if buffer.scratchpad != Memory.ACC or buffer.zone == "matrix":
            continue
        if buffer.zone == "load":
            others = others - buffer.entries * buffer.copies
        elif isinstance(buffer.loads, int):  # they are computed
            results = results + buffer.entries * buffer.copies
        else:
            own = own - buffer.entries * buffer.copies
    epilogue = tiling.epilogue_groups * problem.parts * tiling.epilogue_rows * tiling.columns
    room = np.maximum(own, 0) // epilogue + np.maximum(others, 0) // epilogue
    spilled: Array = results > room * epilogue
    return spilled


def tilings(problem: Problem) -> Sequence[Tiling]:
    """Tilings that fit, of the ``WIDTHS_TRIED`` widest, cheapest first, where using the bus has a price for others.
    They are ranked with the largest epilogues that fit; some are then divided."""
    config, signature = replace(problem.config, name=""), problem.kernel.signature
    return _tilings(_Alike(signature, config, problem.threads, problem.beside, problem.rate, problem))


def narrower_tilings(problem: Problem) -> Iterator[Tiling]:
    """Of each width, the widest first, the tiling that needs the least room, and before it the cheapest, if
    :func:`tilings` leaves out the width: for where the first of those find no room in one piece."""
    for number, tiles in enumerate(_fitting(problem)):
        if number >= WIDTHS_TRIED:
            yield tiles[int(np.argmin(estimates(problem, tiles)))]
        yield tiles[int(np.argmin(fills(problem, tiles)))]


@dataclass(frozen=True)
class _Alike:
    """Problems that have the same tilings, whatever their kernels' names and constants are, are equal."""

    signature: str
    config: CoreConfig
    threads: int
    beside: bool
    rate: DramRate
    problem: Problem = field(compare=False)


@lru_cache(maxsize=512)
def _tilings(alike: _Alike) -> Tiles:
    problem = alike.problem
    found = list(islice(_fitting(problem), WIDTHS_TRIED))
    if not found:
        return Tiles.of([])
    if is_alone(problem) and problem.threads > 1:
        # Tiles that leave each other room need no threads.
        single = replace(problem, threads=1)
        found += islice(_fitting(single, int(found[0].columns[0]), NEXT_WIDTH_SHARE), 3 * WIDTHS_TRIED)
    candidates = Tiles.joined(found)
    works = works_of(problem, candidates)
    cycles = _cycles(problem, works) * np.where(candidates.threads < problem.threads, WITHOUT_THREADS, 1)
    ranked = candidates.take(np.argsort(cycles + BUS_CYCLE_WORTH * works.traffic, kind="stable"))
    divided = divides_epilogue(problem, ranked) & (ranked.epilogue_rows == ranked.rows)
    return replace(ranked, epilogue_groups=np.where(divided, 1, ranked.epilogue_groups))


def _fitting(problem: Problem, widest: float = LARGEST_SIZE, narrower: float = 1) -> Iterator[Tiles]:
    """The tilings of each width, of at most ``widest``, that has any that fit, the widest first. ``narrower``: share of
    a width that the next one has at most."""
    for columns in sizes_worth_trying(problem.output[3]):
        if columns <= widest and len(fitting := _largest_epilogues(problem, columns)):
            widest = columns * narrower
            yield fitting


def _largest_epilogues(problem: Problem, columns: int) -> Tiles:
    """All tilings with so many columns that fit, each with the largest epilogues with which it does, down to one with
    which nothing spills."""
    _, groups, height, _ = problem.output
    tiles = list(product(sizes_worth_trying(groups), sizes_worth_trying(height)))
    choices = [list(epilogues(problem, group, row, columns)) for group, row in tiles]
    last = np.array([len(each) - 1 for each in choices], np.int64)
    inner = list(product(problem.reductions, DEFAULT_ORDERS))
    reductions = np.array([reduction for reduction, _ in inner], np.int64)
    orders = np.array([order for _, order in inner])

    def with_epilogues(places: Array, number: int) -> Tiles:
        """Those at ``places`` of the product of ``tiles`` and ``inner``, with the epilogue of this number (the last
        one where it is -1, or where there are fewer)."""
        tile, rest = np.divmod(places, len(inner))
        of_tiles = [(*sizes, *each[min(number, len(each) - 1)]) for sizes, each in zip(tiles, choices, strict=True)]
        sizes = np.array(of_tiles, np.int64)[tile]
        every = np.ones(len(places), np.int64)
        return Tiles(sizes[:, 0], sizes[:, 1], columns * every, reductions[rest], orders[rest], sizes[:, 2],
                     sizes[:, 3], problem.threads * every, 0 * every)  # fmt: skip

    # Where the smallest epilogue does not fit, none does.
    left = np.arange(len(tiles) * len(inner))
    left = left[fills(problem, with_epilogues(left, -1)) <= 1]
    found, places = [], []
    number = 0
    while len(left):
        tried = with_epilogues(left, number)
        buffers = list(buffers_of(problem, tried))
        fits = _fills(problem, buffers, len(tried)) <= 1
        found.append(tried.take(fits))
        places.append(left[fits])
        good = fits & ~_spills(problem, tried, buffers)
        left = left[~good & (last[left // len(inner)] > number)]
        number += 1
    if not found:
        return Tiles.of([])
    return Tiles.joined(found).take(np.argsort(np.concatenate(places), kind="stable"))
