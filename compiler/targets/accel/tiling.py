"""Choosing tiles: what fits the scratchpads, what it costs, best first.

The cost is a plain estimate of cycles: the busiest of matrix work, vector work and DRAM traffic, plus what cannot
overlap. It ranks tilings; it is no timing model.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import product

from ....hw.config import CoreConfig
from ....hw.dram_rate import USUAL_RATE, DramRate
from ....hw.isa import VectorOp
from ....hw.memories import SCRATCHPADS, Memory
from .builder import Window
from .depthwise_mode import row_cycles, row_pitch
from .lower import Kernel
from .scratchpads import has_zones_in_turn

AXES = ("no", "cd", "y", "x")
"""Tiled axes of the output: batch groups, channel groups, rows, columns."""

INSTRUCTION_OVERHEAD = 24
"""Cycles assumed lost where one matrix instruction follows another, tokens included."""

UNEVEN_PENALTY = 0.01
"""Share of the cost that each axis adds whose last tile is smaller: loop registers have to be set again."""


@dataclass(frozen=True)
class Tiling:
    """Sizes of a tile and the order of the loops over tiles.

    ``groups``, ``rows``, ``columns``: channel groups, rows and columns of the output. ``reduction``: input channel
    groups at a time (0 where there are none to choose from). ``channels_outer``: channel tiles outermost, so that
    weights stay while the tiles of the picture pass; otherwise the input stays. ``epilogue_groups``, ``epilogue_rows``:
    the part of a tile that goes through the vector stages at a time. ``threads``: virtual threads. ``portion``: input
    channel groups whose loads and products are instructions of their own (see ``first_layer.py``); 0: all of a tile's.
    """

    groups: int
    rows: int
    columns: int
    reduction: int
    channels_outer: bool
    epilogue_groups: int
    epilogue_rows: int
    threads: int
    portion: int = 0


@dataclass(frozen=True)
class ChainTiling(Tiling):
    """Of a chain: its last layer's tiles, and how all layers go through them.

    ``resident``: weights and parameters are loaded once, not with each tile. ``skewed``: each layer is an iteration
    later than the one before it. ``ahead``: inputs are loaded an iteration before they are used.
    """

    resident: bool = True
    skewed: bool = True
    ahead: bool = False


@dataclass(frozen=True)
class Problem:
    """The sizes of a kernel that tiling looks at; everything in scratchpad entries.

    ``beside``: other kernels run while this one waits. ``rate``: of the DRAM that the schedule is for; only costs ask.
    """

    config: CoreConfig
    kernel: Kernel
    threads: int
    beside: bool = False
    rate: DramRate = USUAL_RATE

    @cached_property
    def bytes_per_cycle(self) -> int:
        """What the core moves at most between scratchpads and DRAM."""
        return self.rate.for_bus(self.config)

    @cached_property
    def output(self) -> tuple[int, int, int, int]:
        """Extents of the axes."""
        outer, groups, height, width = self.kernel.output.shape[:4]
        return outer, groups, height, width

    @cached_property
    def parts(self) -> int:
        """Accumulator groups in one channel group."""
        return self.kernel.blocks.input_rows // self.kernel.blocks.output_rows

    @cached_property
    def is_matrix(self) -> bool:
        return bool(self.kernel.matrix_weights)

    @property
    def reduction(self) -> int:
        """Input channel groups that a matrix product runs over; 0 where each output group has an input group."""
        return self.kernel.input_groups

    @property
    def data_axes(self) -> frozenset[str]:
        """Axes on which the anchor's input depends."""
        return DATA_AXES if self.reduction else DATA_AXES | CHANNEL_AXES

    @property
    def matrix_axes(self) -> frozenset[str]:
        """Axes on which the matrices in ``wgt`` depend."""
        return CHANNEL_AXES | IMAGE_AXES if self.kernel.section.own_matrices else CHANNEL_AXES

    @cached_property
    def rooms(self) -> dict[str, int]:
        """Entries of each scratchpad that the kernel may fill; ``beside`` another also of the zones of ``acc``."""
        config = self.config
        rooms = {str(memory): config.depth(memory) for memory in SCRATCHPADS}
        if self.beside:
            rooms["out"] //= 2
            rooms["acc"] //= 2
            if has_zones_in_turn(config):
                bank = config.acc_depth // config.acc_banks
                rooms |= {"acc matrix": bank, "acc load": config.acc_depth - 2 * bank, "acc vector": bank // 2}
        return rooms

    @property
    def taps(self) -> int:
        return self.kernel.section.taps

    @cached_property
    def vector_buffers(self) -> int:
        """Accumulator-sized buffers of the vector stages, beside the anchor's."""
        stages, small = self.kernel.stages, dict(self.kernel.section.repeated)
        in_place = sum(stage not in small for stage, _ in stages.in_place)
        return self.vector_stages - 1 - in_place + sum(stage not in small for stage in stages.widened)

    @cached_property
    def vector_stages(self) -> int:
        """Vector stages that compute every entry of the result."""
        small = dict(self.kernel.section.repeated)
        return sum(stage not in small for stage in self.kernel.stages.vector)

    @cached_property
    def parameters(self) -> int:
        """Accumulator entries of parameters (and depthwise weights) for one accumulator group."""
        return self.requantise_parameters + (self.taps if self.kernel.stages.weights else 0)

    @cached_property
    def requantise_parameters(self) -> int:
        stages = self.kernel.stages
        return sum(VectorOp.REQUANTISE.b_entries for stage, _ in stages.parameters if stage != stages.reduce)

    @property
    def input_bytes(self) -> float:
        """Bytes for which the bus is taken by one input entry of a matrix product.

        Where an entry holds a part of the channels that are stored together, the entries of one part lie apart: each is
        a burst, and there can be no more of them than reads may be under way.
        """
        config = self.config
        if self.kernel.blocks.dram_block == config.block_in:
            return config.inp_bytes
        return max(config.inp_bytes, self.bytes_per_cycle * self.rate.latency / config.read_outstanding)

    @property
    def parameter_bytes(self) -> float:
        """Bytes in DRAM of one entry of ``parameters``, on average: depthwise weights are widened on the way."""
        weights = self.parameters - self.requantise_parameters
        stored = self.requantise_parameters * self.config.acc_bytes + weights * self.config.out_bytes
        return stored / self.parameters


@dataclass(frozen=True)
class _Loop:
    """A loop over tiles: its axis, how many, and how many run as virtual threads."""

    axis: str
    extent: int


def tile_loops(problem: Problem, tiling: Tiling) -> list[_Loop]:
    """Loops over tiles, outermost first, those that run once included."""
    sizes = {"no": 1, "cd": tiling.groups, "y": tiling.rows, "x": tiling.columns}
    order = ("no", "cd", "y", "x") if tiling.channels_outer else ("no", "y", "x", "cd")
    return [_Loop(axis, -(-problem.output[AXES.index(axis)] // sizes[axis])) for axis in order]


def thread_axis(problem: Problem, tiling: Tiling) -> str:
    """The axis whose tiles become virtual threads: the innermost that has several; empty if there is none."""
    several = [loop.axis for loop in tile_loops(problem, tiling) if loop.extent > 1]
    return several[-1] if several and tiling.threads > 1 else ""


def home_axis(problem: Problem, tiling: Tiling, depends: frozenset[str]) -> str:
    """The innermost loop over tiles on which a buffer depends; empty if it is the same for all tiles."""
    axes = [loop.axis for loop in tile_loops(problem, tiling) if loop.extent > 1 and loop.axis in depends]
    return axes[-1] if axes else ""


DATA_AXES = frozenset({"no", "y", "x"})
CHANNEL_AXES = frozenset({"cd"})
IMAGE_AXES = frozenset({"no"})


@dataclass(frozen=True)
class _Buffer:
    scratchpad: Memory
    entries: int
    copies: int  # alive at once
    loads: int  # how often it is filled from DRAM; 0 for results
    entry_bytes: float = 0  # bytes read for an entry, on average
    zone: str = ""  # of ``acc``: what its zone is called there


def buffers_of(problem: Problem, tiling: Tiling) -> Iterator[_Buffer]:
    """What a tiling keeps in the scratchpads."""
    config, kernel, parts = problem.config, problem.kernel, problem.parts
    loops = tile_loops(problem, tiling)
    axis = thread_axis(problem, tiling)
    threads = min(tiling.threads, next((loop.extent for loop in loops if loop.axis == axis), 1))

    def placed(depends: frozenset[str]) -> tuple[int, int]:
        """Copies alive and number of loads of a buffer that is filled at its home loop."""
        home = home_axis(problem, tiling, depends)
        loads = 1
        for loop in loops if home else []:
            loads *= loop.extent
            if loop.axis == home:
                break
        return (threads if home and home == axis else 1), loads

    groups = tiling.groups * parts
    tile = groups * tiling.rows * tiling.columns
    tiles = 1
    for loop in loops:
        tiles *= loop.extent
    epilogue = tiling.epilogue_groups * parts * tiling.epilogue_rows * tiling.columns
    epilogues = -(-tiling.groups // tiling.epilogue_groups) * -(-tiling.rows // tiling.epilogue_rows) * tiles
    yield _Buffer(Memory.OUT, epilogue, threads, 0)
    sizes = {"cd": tiling.epilogue_groups * parts, "y": tiling.epilogue_rows, "x": tiling.columns}
    small = {
        stage: math.prod(size for axis, size in sizes.items() if axis not in axes)
        for stage, axes in kernel.section.repeated
    }
    for stage in kernel.stages.widened:
        yield _Buffer(Memory.ACC, small.get(stage, epilogue), threads, epilogues, config.out_bytes, "load")
    written = {stage for stage, _ in kernel.stages.in_place}
    computed = sum(entries for stage, entries in small.items() if stage not in (*kernel.stages.widened, *written))
    whole = problem.vector_buffers - sum(stage not in small for stage in kernel.stages.widened)
    yield _Buffer(Memory.ACC, epilogue * whole + computed, threads, 0, zone="vector")
    if problem.parameters:
        copies, loads = placed(CHANNEL_AXES)
        yield _Buffer(Memory.ACC, groups * problem.parameters, copies, loads, problem.parameter_bytes, "vector")
    if kernel.window is None:
        return
    yield _Buffer(Memory.ACC, tile, threads, 0, zone="matrix" if problem.is_matrix else "vector")
    height, width = kernel.window.reach(tiling.rows, tiling.columns)
    inside = 1 if problem.reduction else _inside(problem, tiling, kernel.window)
    if not problem.is_matrix:
        yield _Buffer(Memory.ACC, groups * height * width, threads, tiles, config.out_bytes * inside, "load")
        return
    chunks = _chunks(problem, tiling)
    read = tiling.reduction or tiling.groups
    data_copies, data_loads = placed(problem.data_axes) if chunks == 1 else (threads, tiles * chunks)
    pitch = row_pitch(width) if kernel.section.tapped else width
    yield _Buffer(Memory.INP, read * height * pitch, data_copies, data_loads, problem.input_bytes * inside)
    wgt_copies, wgt_loads = placed(problem.matrix_axes) if chunks == 1 else (threads, tiles * chunks)
    matrices = groups * (tiling.reduction or 1) * problem.taps
    yield _Buffer(Memory.WGT, matrices, wgt_copies, wgt_loads, config.wgt_bytes)


def _inside(problem: Problem, tiling: Tiling, window: Window) -> float:
    """The share of the tiles' inputs that is no padding."""
    _, _, height, width = problem.output
    rows, columns = window.reach(tiling.rows, tiling.columns)
    top, left, bottom, right = window.pads
    rows, columns = -(-height // tiling.rows) * rows, -(-width // tiling.columns) * columns
    if window.row_step > 1:
        top = bottom = 0
    return max(0, 1 - (top + bottom) / rows) * max(0, 1 - (left + right) / columns)


def _chunks(problem: Problem, tiling: Tiling) -> int:
    """How often a tile's accumulators are continued with other input channel groups."""
    return -(-problem.reduction // tiling.reduction) if problem.reduction else 1


def fill(problem: Problem, tiling: Tiling) -> float:
    """The share of the fullest scratchpad that is in use at once; above 1 the tiling does not fit."""
    used = _used(problem, list(buffers_of(problem, tiling)))
    return max(entries / problem.rooms[place] for place, entries in used.items())


def smallest_tiling(problem: Problem) -> Tiling:
    """The tiling that needs the least of every scratchpad."""
    return Tiling(1, 1, 1, min(1, problem.reduction), True, 1, 1, 1)


def entries_of(problem: Problem, tiling: Tiling) -> dict[str, int]:
    """Entries of each scratchpad that are in use at once."""
    return _used(problem, list(buffers_of(problem, tiling)))


def _used(problem: Problem, buffers: list[_Buffer]) -> dict[str, int]:
    used = dict.fromkeys(problem.rooms, 0)
    for buffer in buffers:
        used[_place(problem, buffer)] += buffer.entries * buffer.copies
    return used


def _place(problem: Problem, buffer: _Buffer) -> str:
    zone = f"{buffer.scratchpad} {buffer.zone}"
    return zone if zone in problem.rooms else buffer.scratchpad


@dataclass(frozen=True)
class Work:
    """Cycles, roughly, in which a tiling uses the array, the vector engine and the memory, and those in which it uses
    none of them because nothing overlaps. ``uneven``: axes whose last tile is smaller."""

    matrix: float
    vector: float
    traffic: float
    exposed: float
    uneven: int


def estimate(problem: Problem, tiling: Tiling) -> float | None:
    """Cycles, roughly; None if the tiling does not fit the scratchpads."""
    work = work_of(problem, tiling)
    if work is None:
        return None
    # What one kernel leaves unused the others take, so beside them everything that is used counts.
    used = sum if problem.beside else max
    return (used((work.matrix, work.vector, work.traffic)) + work.exposed) * (1 + UNEVEN_PENALTY * work.uneven)


def work_of(problem: Problem, tiling: Tiling) -> Work | None:
    """What a tiling costs; None if it does not fit the scratchpads."""
    config = problem.config
    buffers = list(buffers_of(problem, tiling))
    used = _used(problem, buffers)
    if any(entries > problem.rooms[place] for place, entries in used.items()):
        return None
    outer, groups, height, width = problem.output
    pixels = outer * groups * problem.parts * height * width
    tiles = 1
    for loop in tile_loops(problem, tiling):
        tiles *= loop.extent
    chunks = _chunks(problem, tiling)
    matrix = float(INSTRUCTION_OVERHEAD * tiles * chunks)
    if problem.kernel.section.tapped and problem.kernel.window is not None:
        parts = [min(tiling.columns, width - start) for start in range(0, width, tiling.columns)]
        row = sum(row_cycles(problem.kernel.window, part) for part in parts)
        matrix += outer * groups * height * row * problem.taps
    elif problem.is_matrix:
        matrix += pixels * (problem.reduction or 1) * problem.taps
    vector = float(pixels * problem.vector_stages)
    if problem.kernel.window is not None and not problem.is_matrix:
        vector += pixels * problem.taps
    traffic = pixels * config.out_bytes / problem.bytes_per_cycle  # results; reads and writes share the memory
    exposed = 0.0
    for buffer in buffers:
        cycles = buffer.entries * buffer.entry_bytes / problem.bytes_per_cycle
        traffic += cycles * buffer.loads
        if buffer.loads:
            exposed += cycles  # the first load has nothing to hide behind
        place = _place(problem, buffer)
        if buffer.copies == 1 and buffer.loads > 1 and used[place] + buffer.entries > problem.rooms[place]:
            exposed += cycles * (buffer.loads - 1)  # no room to load ahead
    if (tiling.threads == 1 or tiles == 1) and not problem.beside:
        exposed += vector / tiles
    epilogues = -(-tiling.groups // tiling.epilogue_groups) * -(-tiling.rows // tiling.epilogue_rows) * tiles
    exposed += INSTRUCTION_OVERHEAD * epilogues / 4 + _at_the_ends(problem, tiling, tiles, chunks, vector)
    uneven = sum(
        size % tile != 0
        for size, tile in (
            (groups, tiling.groups), (height, tiling.rows), (width, tiling.columns),
            (tiling.rows, tiling.epilogue_rows), (problem.reduction, tiling.reduction or 1),
        )
    )  # fmt: skip
    return Work(matrix, vector, traffic, exposed, uneven)


def _at_the_ends(problem: Problem, tiling: Tiling, tiles: int, chunks: int, vector: float) -> float:
    """Cycles lost because a tile's results keep the next tile, or the end, waiting."""
    config = problem.config
    tile = tiling.groups * problem.parts * tiling.rows * tiling.columns
    stages = problem.vector_stages
    threads = min(tiling.threads, tiles)
    # Virtual threads that take turns at the chunks of their reductions all finish at the same time.
    together = threads if chunks > 1 else 1
    lost = together * tile * max(stages, config.out_bytes / problem.bytes_per_cycle)
    if not problem.is_matrix:
        return lost
    room = problem.rooms.get("acc matrix", config.acc_depth // (2 if config.acc_banks > 1 else 1))
    if (threads + together) * tile > room:
        lost += tile * stages * (tiles / together - 1)
    if threads * tile > room and problem.vector_buffers:
        lost += 2 * vector  # matrix work in a bank keeps everything else from writing there
    return lost


def tilings(problem: Problem) -> Sequence[Tiling]:
    """Tilings that fit, the cheapest first. Narrower tiles than the two widest that fit are not tried."""
    config = replace(problem.config, name="")
    return _tilings(_Alike(problem.kernel.signature, config, problem.threads, problem.beside, problem.rate, problem))


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
def _tilings(alike: _Alike) -> Sequence[Tiling]:
    problem = alike.problem
    _, groups, height, width = problem.output
    candidates: list[tuple[float, int, Tiling]] = []
    widths = 0
    reductions = sizes_worth_trying(problem.reduction) or [0]
    for columns in sizes_worth_trying(width):
        before = len(candidates)
        for group, row, reduction, outer in product(
            sizes_worth_trying(groups), sizes_worth_trying(height), reductions, (True, False)
        ):
            for epilogue_group, epilogue_row in epilogues(problem, group, row, columns):
                tiling = Tiling(group, row, columns, reduction, outer, epilogue_group, epilogue_row, problem.threads)
                cost = estimate(problem, tiling)
                if cost is not None:
                    candidates.append((cost, len(candidates), tiling))
                    break  # the largest epilogue that fits
        widths += len(candidates) > before
        if widths == 2:
            break
    return tuple(tiling for _, _, tiling in sorted(candidates, key=lambda entry: entry[:2]))


def epilogues(problem: Problem, groups: int, rows: int, columns: int) -> Iterator[tuple[int, int]]:
    """Parts of a tile for the vector stages, the largest first."""
    if problem.kernel.window is None:
        yield groups, rows
        return
    half = problem.config.out_depth // (2 * problem.threads)
    sizes = [(groups, rows), *((1, row) for row in sizes_worth_trying(rows))]
    for group, row in sizes:
        if group * problem.parts * row * columns <= half or (group, row) == sizes[-1]:
            yield group, row


def sizes_worth_trying(extent: int) -> list[int]:
    """Tile sizes worth trying, the largest first: the smallest for each number of tiles."""
    return sorted({-(-extent // count) for count in range(1, extent + 1)}, reverse=True)
