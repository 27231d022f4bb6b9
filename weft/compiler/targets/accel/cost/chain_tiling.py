"""Choosing tiles for chains: what layers in one function need of the scratchpads, what they cost, best first; many
tilings at once, in NumPy.

As in `tiling`, the cost is an estimate that ranks; whether a chain is better than its layers apart is decided on
programs (`passes/chain`). Each layer computes what the windows of the next one meet, for each tile anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import chain, islice, product

import numpy as np

from .....hw.isa import Scratchpad
from .....hw.memories import SCRATCHPADS, Memory
from ..operators.builder import Window
from ..operators.depthwise_mode import row_cycles, row_pitch
from ..operators.lower import Kernel, Section
from ..schedule.chain_schedule import cut_sections, innermost, rolled_reader
from ..schedule.tiling import ChainTiling, Problem, divides_epilogue, epilogues, matrix_bytes, sizes_worth_trying
from .tiles import Array, ChainTiles

SPANS_KEPT = 3
"""Widths of tiles that are tried: the widest that fit; all, where the last layer has no products of channels, and wider
tiles fill the accumulator with what its windows read."""


ROOMY = 0.8
"""Share of a scratchpad up to which buffers surely find room in one piece."""

TURN_OVERHEAD = 24
"""Cycles of the array that are lost where a layer of a chain takes its turn, tokens included."""

SMALLEST_TILE = 1 / 64
"""Share of the picture below which tiles are not in the space of a chain: each has instructions of its own."""

TIGHT_PENALTY = 0.1
"""Share of the cost that is added where they may not."""


@dataclass(frozen=True)
class Spans:
    """One axis of a layer in one tiling, tile by tile: ``made`` rows (or columns) of its result, ``read`` of its padded
    input, of which the first is ``start`` (negative in the padding)."""

    made: tuple[int, ...]
    read: tuple[int, ...]
    start: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Axis:
    """One axis of a layer in many tilings: the different ``spans``, and which of these each tiling has."""

    spans: Sequence[Spans]
    which: Array

    def each(self, figure: Callable[[Spans], int]) -> Array:
        """A figure of each tiling's spans."""
        figures: Array = np.array([figure(each) for each in self.spans], np.int64)[self.which]
        return figures

    @cached_property
    def tiles(self) -> Array:
        return self.each(lambda spans: len(spans.made))

    @cached_property
    def made(self) -> Array:
        """Of the largest tile."""
        return self.each(lambda spans: max(spans.made))

    @cached_property
    def read(self) -> Array:
        """Of the largest tile."""
        return self.each(lambda spans: max(spans.read))

    @cached_property
    def all_made(self) -> Array:
        return self.each(lambda spans: sum(spans.made))

    @cached_property
    def all_read(self) -> Array:
        return self.each(lambda spans: sum(spans.read))


@dataclass(frozen=True, eq=False)
class Layer:
    """A layer in many tilings: rows and columns of its tiles, whether its input is there for the innermost loop only,
    and whether that is rolled: there once, a part of it from the tile before. ``parts``: that a core's share has one
    of, of the groups of its result."""

    section: Section
    rows: Axis
    columns: Axis
    inner: Array | bool
    rolled: Array
    parts: int

    @cached_property
    def groups(self) -> int:
        return -(-self.section.output[1] // self.parts)

    @cached_property
    def taps(self) -> int:
        return self.section.taps

    @cached_property
    def made(self) -> Array:
        """Entries of the largest tile of the result, for one group."""
        return self.rows.made * self.columns.made

    @cached_property
    def read(self) -> Array:
        """Entries of the largest tile of the input, for one group."""
        columns = self.columns.read
        return self.rows.read * (row_pitch(columns) if self.section.tapped else columns)

    @cached_property
    def products(self) -> Array:
        """Cycles of the array for the result."""
        window = self.section.window
        if not self.section.tapped or window is None:
            return self.all_made * self.kept_matrices
        row = self.columns.each(lambda spans: sum(row_cycles(window, columns) for columns in spans.made))
        return self.section.output[0] * self.rows.all_made * row * self.kept_matrices

    @cached_property
    def all_made(self) -> Array:
        return self.rows.all_made * self.columns.all_made * self.section.output[0]

    @cached_property
    def all_read(self) -> Array:
        return self.rows.all_read * self.columns.all_read * self.section.output[0]

    @property
    def read_groups(self) -> int:
        """Groups of the input."""
        return self.section.input_groups or self.groups

    @cached_property
    def matrices(self) -> int:
        """Entries of weights of a product in the array."""
        return self.groups * (self.section.input_groups or 1) * self.taps if self.section.matrix_weights else 0

    @property
    def kept_matrices(self) -> float:
        """Those of them that are loaded and multiplied."""
        return self.matrices * self.section.kept_share

    @cached_property
    def parameters(self) -> int:
        """Entries of ``acc`` of parameters and widened weights of one group, but for those that all groups share."""
        return self.section.parameters + (self.taps if self.section.stages.weights else 0)


def layers_of(problem: Problem, tiles: ChainTiles) -> list[Layer]:
    """The layers of a chain, the first one first."""
    kernel = problem.kernel
    windows, shapes = _windows_and_shapes(kernel)
    rolled = rolled_reader(problem, tiles)

    def axes(axis: int, sizes: Array, rolled: Array) -> list[Axis]:
        """Of each layer."""
        pairs = list(zip(sizes.tolist(), rolled.tolist(), strict=True))
        places = {pair: place for place, pair in enumerate(dict.fromkeys(pairs))}
        spans = [_spans(windows, shapes, axis, *pair) for pair in places]
        which = np.array([places[pair] for pair in pairs], np.int64)
        return [Axis(own, which) for own in zip(*spans, strict=True)] if spans else [Axis((), which)] * len(windows)

    rows, columns = axes(0, tiles.rows, rolled), axes(1, tiles.columns, 0 * rolled)
    inner = innermost(problem, tiles)
    parts = [kernel.share.groups if cut else 1 for cut in cut_sections(kernel)]
    return [
        Layer(section, rows[number], columns[number], inner[number], (rolled == number) & (rolled > 0), parts[number])
        for number, section in enumerate(kernel.sections)
    ]


def _windows_and_shapes(kernel: Kernel) -> tuple[tuple[Window, ...], tuple[tuple[int, ...], ...]]:
    windows = tuple(section.window for section in kernel.sections if section.window is not None)
    if len(windows) < len(kernel.sections):
        raise ValueError("every layer of a chain has a window")
    return windows, tuple(section.output for section in kernel.sections)


@lru_cache(maxsize=1024)
def _spans(
    windows: tuple[Window, ...], outputs: tuple[tuple[int, ...], ...], axis: int, size: int, rolled: int
) -> list[Spans]:
    """Of the layers' rows (``axis`` 0) or columns, for tiles of ``size`` of the last. ``rolled``: of what this layer
    reads, only what the tile before did not have is made."""
    extent = outputs[-1][2 + axis]
    parts = [(start, min(start + size, extent)) for start in range(0, extent, size)]
    spans: list[Spans] = []
    for number in reversed(range(len(windows))):
        window = windows[number]
        stride, pad, step = window.strides[axis], window.pads[axis], (window.row_step if axis == 0 else 1)
        reach = (window.kernel[axis] - 1) * window.dilations[axis] + 1
        met = [(start * stride - pad, (stop - 1) * stride - pad + reach) for start, stop in parts]
        read = tuple((stop - start - 1) // step + 1 for start, stop in met)
        made = tuple(stop - start for start, stop in parts)
        spans.insert(0, Spans(made, read, tuple(start for start, _ in met)))
        if number:
            extent = outputs[number - 1][2 + axis]
            inside = [(min(max(start, 0), extent - 1), min(stop, extent)) for start, stop in met]
            if number == rolled:
                before = (0, *(stop for _, stop in inside))
                inside = [(max(start, met), stop) for (start, stop), met in zip(inside, before, strict=False)]
            parts = [(start, max(stop, start + 1)) for start, stop in inside]
    return spans


def chain_tilings(problem: Problem) -> ChainTiles:
    """Tilings of a chain that may fit, the cheapest first."""
    found: list[ChainTiles] = []
    for columns in sizes_worth_trying(problem.output[3]):
        if len(fitting := _fitted(problem, _tiles_of_width(problem, columns))):
            found.append(fitting)
        if len(found) == SPANS_KEPT and problem.kernel.section.input_groups:
            break
    candidates = ChainTiles.joined(found)
    return candidates.take(np.argsort(chain_estimates(problem, candidates), kind="stable"))


def _tiles_of_width(problem: Problem, columns: int) -> ChainTiles:
    """Tiles of so many columns, and how they may roll."""
    _, groups, height, _ = problem.output
    inner = problem.kernel.section.input_groups
    chunks = dict.fromkeys([*(count for count in sizes_worth_trying(inner) if count in CHUNKS), inner])
    sizes = product(sizes_worth_trying(height), chunks, sizes_worth_trying(groups))
    return with_rolled(problem, [
        ChainTiling(group, rows, columns, reduction, "yxc", 1, 1, 1) for rows, reduction, group in sizes
        # What is read in chunks would be computed again for each tile of channels.
        if reduction == inner or group == groups
    ])  # fmt: skip


def with_rolled(problem: Problem, tiles: Iterable[ChainTiling]) -> ChainTiles:
    """Each tile, and where that is something else the same with its tiles one below the other and rows that stay."""
    plain = ChainTiles.of(tiles)
    both = plain.take(np.repeat(np.arange(len(plain)), 2))
    rolling = np.arange(len(both)) % 2 == 1
    return _that_roll(problem, replace(both, order=np.where(rolling, "xyc", both.order), rolling=rolling))


def _that_roll(problem: Problem, tilings: Iterable[ChainTiling]) -> ChainTiles:
    """The tilings without those whose rows would stay and cannot."""
    tiles = ChainTiles.of(tilings)
    return tiles.take(~tiles.rolling | (rolled_reader(problem, tiles) > 0))


def _fitted(problem: Problem, tiles: ChainTiles) -> ChainTiles:
    """The tiles with the largest epilogues that fit in any of the ways, and the first of these; without those of which
    none does."""
    in_mode = any(section.tapped for section in problem.kernel.sections)
    ways = np.array(WAYS_IN_MODE if in_mode else WAYS)

    def in_ways(chosen: Array, tiles: ChainTiles) -> ChainTiles:
        resident, skewed, ahead = chosen.T
        return replace(tiles, resident=resident, skewed=skewed, ahead=ahead)

    number = np.arange(len(tiles))
    tried = in_ways(np.tile(ways, (len(tiles), 1)), tiles.take(np.repeat(number, len(ways))))
    room = _room_for_epilogues(problem, tried).reshape(-1, len(ways))
    groups, rows = _largest_epilogues(problem, tiles, room.max(axis=1)).T
    way = np.argmax(room >= (groups * rows * tiles.columns)[:, None], axis=1)
    return in_ways(ways[way], replace(tiles, epilogue_groups=groups, epilogue_rows=rows)).take(groups > 0)


def _room_for_epilogues(problem: Problem, tiles: ChainTiles) -> Array:
    """Entries that a part of a tile may have; -1 where all else does not fit."""
    config, layers = problem.config, layers_of(problem, tiles)
    used = _added(_buffers(tiles, layers), len(tiles))
    left = {memory: config.depth(memory) - entries for memory, entries in used.items()}
    copies = {memory: times for memory, times in _copies_of_epilogue(layers[-1].section) if times > 0}
    room = np.min([left[memory] // times for memory, times in copies.items()], axis=0)
    fitting: Array = np.where(np.min(list(left.values()), axis=0) >= 0, room, -1)
    return fitting


def _largest_epilogues(problem: Problem, tiles: ChainTiles, room: Array) -> Array:
    """Groups and rows of the largest part of each tile that has at most so many entries; 0 where none has."""
    whole = ~divides_epilogue(problem, tiles)
    sizes = (each.tolist() for each in (tiles.groups, tiles.rows, tiles.columns, whole, room))
    found = [
        next(((group, row) for group, row in epilogues(problem, groups, rows, columns)
              if (whole or group == 1) and group * row * columns <= room), (0, 0))
        for groups, rows, columns, whole, room in zip(*sizes, strict=True)
    ]  # fmt: skip
    return np.array(found, np.int64).reshape(-1, 2)


WAYS = ((True, True, True), (True, True, False), (False, True, False))
WAYS_IN_MODE = (*WAYS[:2], (False, True, True), WAYS[2])
"""Whether tilings are resident, skewed and ahead; the first that fits is taken. In the depthwise mode products are so
short that inputs come ahead of weights that stream, too."""

CHUNKS = (1, 2)
"""Input channel groups of the last layer that are computed at a time, if not all."""


def chain_space(problem: Problem) -> list[tuple[ChainTiling, float]]:
    """Tilings of a chain that may fit, with their estimates, the cheapest first: wider than what the default is chosen
    from. Of each tile every way that fits, and the two largest epilogues."""
    tiles = _that_roll(problem, chain.from_iterable(_ways_of(problem, tile) for tile in chain_tiles(problem)))
    costs = chain_estimates(problem, tiles)
    order = np.argsort(costs, kind="stable")
    order = order[costs[order] < np.inf]
    return list(zip(tiles.take(order), costs[order].tolist(), strict=True))


def chain_tiles(problem: Problem) -> Iterator[ChainTiling]:
    """The tiles of :func:`chain_space`."""
    _, groups, height, width = problem.output
    inner = problem.kernel.section.input_groups
    sizes = product(sizes_worth_trying(width), sizes_worth_trying(height), sizes_worth_trying(inner) or [0],
                    sizes_worth_trying(groups))  # fmt: skip
    for columns, rows, reduction, group in sizes:
        if SMALLEST_TILE * height * width <= rows * columns and (reduction == inner or group == groups):
            yield ChainTiling(group, rows, columns, reduction, "yxc", 1, 1, 1)


def ways_of(problem: Problem, tile: ChainTiling) -> ChainTiles:
    """A tile in all ways, whether they fit or not."""
    return _that_roll(problem, _ways_of(problem, tile))


def _ways_of(problem: Problem, tile: ChainTiling) -> Iterator[ChainTiling]:
    """Those of :func:`ways_of`, and some whose rows cannot stay."""
    _, _, height, width = problem.output
    for part, part_row in islice(epilogues(problem, tile.groups, tile.rows, tile.columns), 2):
        orders = ("yxc", "xyc") if tile.rows < height and tile.columns < width else ("yxc",)
        for order, (resident, skewed, ahead) in product(orders, product((True, False), repeat=3)):
            plain = replace(tile, order=order, epilogue_groups=part, epilogue_rows=part_row, resident=resident,
                            skewed=skewed, ahead=ahead)  # fmt: skip
            yield plain
            if order == orders[0]:
                yield replace(plain, order="xyc", rolling=True)


def chain_estimates(problem: Problem, tilings: Iterable[ChainTiling]) -> Array:
    """Cycles of each tiling, roughly; infinite for those that do not fit the scratchpads."""
    config, tiling = problem.config, ChainTiles.of(tilings)
    layers = layers_of(problem, tiling)
    first = layers[0]
    used = _used(tiling, layers)
    fill = np.max([entries / config.depth(memory) for memory, entries in used.items()], axis=0)
    tiles = first.rows.tiles * first.columns.tiles * problem.output[0]
    instructions = tiles * sum(_turns(layer, tiling, problem) for layer in layers)
    matrix, vector, traffic = _work_of(problem, tiling, layers, tiles)
    matrix = matrix + TURN_OVERHEAD * instructions
    loading = first.read * first.read_groups * Scratchpad.INP.dram_bytes(config) / problem.bytes_per_cycle
    behind = ~tiling.ahead & (used[Memory.INP] + _held(first, tiling) > config.inp_depth)
    waiting = np.where(behind, (tiles - 1) * loading, 0.0)
    weights: Array | float = first.kept_matrices
    if not any(layer.section.tapped for layer in layers):  # the vector engine does not wait for what is loaded
        matrix, waiting = matrix + waiting, 0 * waiting
    else:  # they are loaded where their result is read
        weights = np.where(tiling.resident, weights, weights / _turns(layers[1], tiling, problem))
    if not all(layer.section.matrix_weights for layer in layers):
        again = first.made * np.minimum(_inner_groups(tiling), first.groups)
        # Products wait until results left their place.
        waits = used[Memory.ACC] + again > ROOMY * config.acc_depth
        beside = matrix + np.where(waits, first.all_made * first.groups, 0)
        # Where layers are not skewed the engines wait for each other.
        matrix, vector = np.where(tiling.skewed, beside, matrix + vector), np.where(tiling.skewed, vector, 0.0)
    cycles = np.maximum(np.maximum(matrix, vector), traffic / problem.bytes_per_cycle)
    waiting = waiting + (loading + weights * matrix_bytes(first.section, config) / problem.bytes_per_cycle)
    tight = 1 + TIGHT_PENALTY * (fill > ROOMY)
    return np.where(fill > 1, np.inf, (cycles + waiting + (matrix + vector) / (2 * instructions)) * tight)


def _work_of(
    problem: Problem, tiling: ChainTiles, layers: Sequence[Layer], tiles: Array
) -> tuple[Array, Array, Array]:  # fmt: skip
    """Cycles of the array and of the vector engine, and bytes of DRAM."""
    config = problem.config
    matrix, vector, traffic = (np.zeros(len(tiling)) for _ in range(3))
    times = np.where(tiling.resident, 1, tiles)
    for number, layer in enumerate(layers):
        stages = layer.section.stages
        entries = layer.all_made * layer.groups
        if layer.section.matrix_weights:
            matrix += layer.products
        else:
            vector += entries * layer.taps
        last = number == len(layers) - 1
        vector += entries * (len(stages.vector) - (not last))
        if not last:
            vector += layers[number + 1].all_read * layers[number + 1].read_groups
        parameters = layer.groups * layer.parameters * Scratchpad.ACC.dram_bytes(config)
        constants = layer.kept_matrices * matrix_bytes(layer.section, config) + parameters
        traffic += constants * times + entries * len(stages.widened) * config.out_bytes
    traffic += layers[0].all_read * layers[0].read_groups * Scratchpad.INP.dram_bytes(config)
    traffic += layers[-1].all_made * layers[-1].groups * config.out_bytes
    return matrix, vector, traffic


def _turns(layer: Layer, tiling: ChainTiles, problem: Problem) -> Array:
    """Instructions of a layer's anchor in one tile."""
    last = problem.kernel.section
    groups = layer.groups if layer.section is last else last.output[1]
    turns = -(-last.input_groups // tiling.reduction) if last.input_groups else -(-groups // tiling.groups)
    return turns if layer.section is last else np.where(layer.inner, turns, 1)


def _used(tiling: ChainTiles, layers: list[Layer]) -> dict[Memory, Array]:
    return _added(chain(_buffers(tiling, layers), _epilogue_buffers(tiling, layers[-1])), len(tiling))


def _added(buffers: Iterable[tuple[Memory, Array | int]], count: int) -> dict[Memory, Array]:
    used = {memory: np.zeros(count, np.int64) for memory in SCRATCHPADS}
    for memory, entries in buffers:
        used[memory] += entries
    return used


def _inner_groups(tiling: ChainTiles) -> Array:
    """Groups of what is read in the innermost loop."""
    return np.where(tiling.reduction > 0, tiling.reduction, tiling.groups)


def _held(layer: Layer, tiling: ChainTiles) -> Array:
    """Entries of a layer's input that are there at once."""
    groups = np.where(layer.inner, np.minimum(_inner_groups(tiling), layer.read_groups), layer.read_groups)
    held: Array = layer.read * groups
    return held


def _buffers(tiling: ChainTiles, layers: list[Layer]) -> Iterator[tuple[Memory, Array | int]]:
    """What is in the scratchpads at once, beside what the last layer's epilogue has."""
    last = layers[-1]
    inner_groups = _inner_groups(tiling)
    for number, layer in enumerate(layers):
        stages = layer.section.stages
        twice = tiling.skewed & ~layer.rolled if number else tiling.ahead
        yield (Memory.INP if layer.section.matrix_weights else Memory.ACC), _held(layer, tiling) * (1 + twice)
        if layer is last:
            made = tiling.groups
        else:
            inner = layers[number + 1].inner
            made = np.where(inner, np.minimum(inner_groups, layer.groups), layer.groups)
        yield Memory.ACC, made * layer.made
        if layer is not last:
            yield Memory.ACC, made * layer.made * (len(stages.vector) - 1 - len(stages.in_place) + len(stages.widened))
        constants = layer.groups if layer is last else np.where(tiling.resident, layer.groups, 2 * made)
        yield Memory.ACC, constants * layer.parameters + layer.section.shared_parameters
        if layer.section.matrix_weights:
            streamed = layer.matrices * made // layer.groups
            if layer is last and layer.section.input_groups:
                chunk = layer.matrices * tiling.reduction // layer.section.input_groups
                streamed = np.where(layer.inner, chunk, streamed)
            yield Memory.WGT, np.where(tiling.resident, layer.matrices, 2 * streamed)


def _epilogue_buffers(tiling: ChainTiles, last: Layer) -> Iterator[tuple[Memory, Array]]:
    """What the vector stages of the last layer have at once."""
    part = tiling.epilogue_groups * tiling.epilogue_rows * last.columns.made
    return ((memory, part * times) for memory, times in _copies_of_epilogue(last.section))


def _copies_of_epilogue(last: Section) -> tuple[tuple[Memory, int], ...]:
    """How often the vector stages of the last layer have a part of a tile at once."""
    stages = last.stages
    return (Memory.ACC, len(stages.vector) - 1 - len(stages.in_place) + len(stages.widened)), (Memory.OUT, 1)
