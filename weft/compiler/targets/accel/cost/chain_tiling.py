"""Choosing tiles for chains: what layers in one function need of the scratchpads, what they cost, best first.

As in `tiling`, the cost is an estimate that ranks; whether a chain is better than its layers apart is decided on
programs (`passes/chain`). Each layer computes what the windows of the next one meet, for each tile anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import chain, islice, product

from .....hw.isa import Scratchpad
from .....hw.memories import SCRATCHPADS, Memory
from ..operators.builder import Window
from ..operators.depthwise_mode import row_cycles, row_pitch
from ..operators.lower import Kernel, Section
from ..schedule.chain_schedule import cut_sections, innermost, rolled_reader
from ..schedule.tiling import ChainTiling, Problem, divides_epilogue, epilogues, matrix_bytes, sizes_worth_trying

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
    """One axis of a layer, tile by tile: ``made`` rows (or columns) of its result, ``read`` of its padded input, of
    which the first is ``start`` (negative in the padding)."""

    made: tuple[int, ...]
    read: tuple[int, ...]
    start: tuple[int, ...] = ()


@dataclass(frozen=True)
class Layer:
    """A layer in one tiling: rows and columns of all tiles, groups of its result, whether its input is there for the
    innermost loop only, and whether that is rolled: there once, a part of it from the tile before. ``parts``: that a
    core's share has one of, of the groups."""

    section: Section
    rows: Spans
    columns: Spans
    inner: bool
    rolled: bool = False
    parts: int = 1

    @cached_property
    def groups(self) -> int:
        return -(-self.section.output[1] // self.parts)

    @cached_property
    def taps(self) -> int:
        return self.section.taps

    @cached_property
    def made(self) -> int:
        """Entries of the largest tile of the result, for one group."""
        return max(self.rows.made) * max(self.columns.made)

    @cached_property
    def read(self) -> int:
        """Entries of the largest tile of the input, for one group."""
        columns = max(self.columns.read)
        return max(self.rows.read) * (row_pitch(columns) if self.section.tapped else columns)

    @cached_property
    def products(self) -> float:
        """Cycles of the array for the result."""
        if not self.section.tapped or self.section.window is None:
            return self.all_made * self.kept_matrices
        row = sum(row_cycles(self.section.window, columns) for columns in self.columns.made)
        return self.section.output[0] * sum(self.rows.made) * row * self.kept_matrices

    @cached_property
    def all_made(self) -> int:
        return sum(self.rows.made) * sum(self.columns.made) * self.section.output[0]

    @cached_property
    def all_read(self) -> int:
        return sum(self.rows.read) * sum(self.columns.read) * self.section.output[0]

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


def layers_of(problem: Problem, tiling: ChainTiling) -> list[Layer]:
    """The layers of a chain, the first one first."""
    kernel = problem.kernel
    windows, shapes = _windows_and_shapes(kernel)
    rolled = rolled_reader(problem, tiling)
    rows = _spans(windows, shapes, 0, tiling.rows, rolled)
    columns = _spans(windows, shapes, 1, tiling.columns)
    inner = innermost(problem, tiling)
    parts = [kernel.share.groups if cut else 1 for cut in cut_sections(kernel)]
    return [
        Layer(*each, rolled=number == rolled > 0, parts=parts[number])
        for number, each in enumerate(zip(kernel.sections, rows, columns, inner, strict=True))
    ]


def _windows_and_shapes(kernel: Kernel) -> tuple[tuple[Window, ...], tuple[tuple[int, ...], ...]]:
    windows = tuple(section.window for section in kernel.sections if section.window is not None)
    if len(windows) < len(kernel.sections):
        raise ValueError("every layer of a chain has a window")
    return windows, tuple(section.output for section in kernel.sections)


@lru_cache(maxsize=1024)
def _spans(
    windows: tuple[Window, ...], outputs: tuple[tuple[int, ...], ...], axis: int, size: int, rolled: int = 0
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
            if number and number == rolled:
                before = (0, *(stop for _, stop in inside))
                inside = [(max(start, met), stop) for (start, stop), met in zip(inside, before, strict=False)]
            parts = [(start, max(stop, start + 1)) for start, stop in inside]
    return spans


def chain_tilings(problem: Problem) -> list[ChainTiling]:
    """Tilings of a chain that may fit, the cheapest first."""
    kernel = problem.kernel
    _, groups, height, width = problem.output
    chunks = [count for count in sizes_worth_trying(kernel.section.input_groups) if count in CHUNKS] or [0]
    if kernel.section.input_groups:
        chunks.append(kernel.section.input_groups)
    candidates: list[tuple[float, int, ChainTiling]] = []
    ways = WAYS_IN_MODE if any(section.tapped for section in kernel.sections) else WAYS
    widths = 0
    for columns in sizes_worth_trying(width):
        before = len(candidates)
        for rows, reduction, group in product(
            sizes_worth_trying(height), dict.fromkeys(chunks), sizes_worth_trying(groups)
        ):
            if reduction < kernel.section.input_groups and group < groups:
                continue  # what is read in chunks would be computed again for each tile of channels
            for tile in with_rolled(problem, ChainTiling(group, rows, columns, reduction, "yxc", 1, 1, 1)):
                tiling = _first_that_fits(problem, tile, ways)
                cost = chain_estimate(problem, tiling) if tiling is not None else None
                if tiling is not None and cost is not None:
                    candidates.append((cost, len(candidates), tiling))
        widths += len(candidates) > before
        if widths == SPANS_KEPT and kernel.section.input_groups:
            break
    return [tiling for _, _, tiling in sorted(candidates, key=lambda entry: entry[:2])]


def with_rolled(problem: Problem, tile: ChainTiling) -> Iterator[ChainTiling]:
    """A tile, and where that is something else the same with its tiles one below the other and rows that stay."""
    yield tile
    rolling = replace(tile, order="xyc", rolling=True)
    if rolled_reader(problem, rolling):
        yield rolling


def _first_that_fits(
    problem: Problem, tile: ChainTiling, ways: Sequence[tuple[bool, bool, bool]]
) -> ChainTiling | None:  # fmt: skip
    """The tile with the largest epilogue that fits in any of the ways, and the first of these; None if none does. All
    but the epilogue's buffers are the same for every epilogue, so they are counted once."""
    config = problem.config
    layers = layers_of(problem, tile)
    free: list[tuple[ChainTiling, dict[Memory, int]]] = []
    for resident, skewed, ahead in ways:
        tiling = replace(tile, resident=resident, skewed=skewed, ahead=ahead)
        used = _added(_buffers(problem, tiling, layers))
        left = {memory: config.depth(memory) - entries for memory, entries in used.items()}
        if min(left.values()) >= 0:
            free.append((tiling, left))
    if not free:
        return None
    whole = not divides_epilogue(problem, tile)
    for groups, rows in epilogues(problem, tile.groups, tile.rows, tile.columns):
        if groups > 1 and not whole:
            continue
        for tiling, left in free:
            fitted = replace(tiling, epilogue_groups=groups, epilogue_rows=rows)
            if all(entries <= left[memory] for memory, entries in _epilogue_buffers(fitted, layers[-1])):
                return fitted
    return None


WAYS = ((True, True, True), (True, True, False), (False, True, False))
WAYS_IN_MODE = (*WAYS[:2], (False, True, True), WAYS[2])
"""Whether tilings are resident, skewed and ahead; the first that fits is taken. In the depthwise mode products are so
short that inputs come ahead of weights that stream, too."""

CHUNKS = (1, 2)
"""Input channel groups of the last layer that are computed at a time, if not all."""


def chain_space(problem: Problem) -> list[tuple[ChainTiling, float]]:
    """Tilings of a chain that may fit, with their estimates, the cheapest first: wider than what the default is chosen
    from. Of each tile every way that fits, and the two largest epilogues."""
    found = [(tiling, chain_estimate(problem, tiling)) for tile in chain_tiles(problem)
             for tiling in ways_of(problem, tile)]  # fmt: skip
    return sorted(((tiling, cost) for tiling, cost in found if cost is not None), key=lambda each: each[1])


def chain_tiles(problem: Problem) -> Iterator[ChainTiling]:
    """The tiles of :func:`chain_space`."""
    _, groups, height, width = problem.output
    inner = problem.kernel.section.input_groups
    sizes = product(sizes_worth_trying(width), sizes_worth_trying(height), sizes_worth_trying(inner) or [0],
                    sizes_worth_trying(groups))  # fmt: skip
    for columns, rows, reduction, group in sizes:
        if SMALLEST_TILE * height * width <= rows * columns and (reduction == inner or group == groups):
            yield ChainTiling(group, rows, columns, reduction, "yxc", 1, 1, 1)


def ways_of(problem: Problem, tile: ChainTiling) -> Iterator[ChainTiling]:
    """A tile in all ways, whether they fit or not."""
    _, _, height, width = problem.output
    for part, part_row in islice(epilogues(problem, tile.groups, tile.rows, tile.columns), 2):
        orders = ("yxc", "xyc") if tile.rows < height and tile.columns < width else ("yxc",)
        for order, (resident, skewed, ahead) in product(orders, product((True, False), repeat=3)):
            plain = replace(tile, order=order, epilogue_groups=part, epilogue_rows=part_row, resident=resident,
                            skewed=skewed, ahead=ahead)  # fmt: skip
            yield from with_rolled(problem, plain) if order == orders[0] else (plain,)


def chain_estimate(problem: Problem, tiling: ChainTiling) -> float | None:
    """Cycles, roughly; None if the tiling does not fit the scratchpads."""
    config = problem.config
    layers = layers_of(problem, tiling)
    first = layers[0]
    used = _used(problem, tiling, layers)
    fill = max(entries / config.depth(memory) for memory, entries in used.items())
    if fill > 1:
        return None
    tiles = len(first.rows.made) * len(first.columns.made) * problem.output[0]
    instructions = tiles * sum(_turns(layer, tiling, problem) for layer in layers)
    matrix, vector, traffic = _work_of(problem, tiling, layers, tiles)
    matrix += TURN_OVERHEAD * instructions
    loading = first.read * first.read_groups * Scratchpad.INP.dram_bytes(config) / problem.bytes_per_cycle
    waiting, weights = 0.0, first.kept_matrices
    if not tiling.ahead and used[Memory.INP] + _held(first, tiling) > config.inp_depth:
        waiting = (tiles - 1) * loading
    if not any(layer.section.tapped for layer in layers):  # the vector engine does not wait for what is loaded
        matrix, waiting = matrix + waiting, 0.0
    elif not tiling.resident:
        weights /= _turns(layers[1], tiling, problem)  # they are loaded where their result is read
    if not all(layer.section.matrix_weights for layer in layers):
        again = first.made * min(_inner_groups(tiling), first.groups)
        if not tiling.skewed:  # the engines wait for each other
            matrix, vector = matrix + vector, 0.0
        elif used[Memory.ACC] + again > ROOMY * config.acc_depth:  # products wait until results left their place
            matrix += first.all_made * first.groups
    cycles = max(matrix, vector, traffic / problem.bytes_per_cycle)
    waiting += loading + weights * matrix_bytes(first.section, config) / problem.bytes_per_cycle
    return (cycles + waiting + (matrix + vector) / (2 * instructions)) * (1 + TIGHT_PENALTY * (fill > ROOMY))


def _work_of(
    problem: Problem, tiling: ChainTiling, layers: Sequence[Layer], tiles: int
) -> tuple[float, float, float]:  # fmt: skip
    """Cycles of the array and of the vector engine, and bytes of DRAM."""
    config = problem.config
    matrix, vector, traffic = 0.0, 0.0, 0.0
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
        times = 1 if tiling.resident else tiles
        parameters = layer.groups * layer.parameters * Scratchpad.ACC.dram_bytes(config)
        constants = layer.kept_matrices * matrix_bytes(layer.section, config) + parameters
        traffic += constants * times + entries * len(stages.widened) * config.out_bytes
    traffic += layers[0].all_read * layers[0].read_groups * Scratchpad.INP.dram_bytes(config)
    traffic += layers[-1].all_made * layers[-1].groups * config.out_bytes
    return matrix, vector, traffic


def _turns(layer: Layer, tiling: ChainTiling, problem: Problem) -> int:
    """Instructions of a layer's anchor in one tile."""
    last = problem.kernel.section
    if layer.section is last:
        return -(-last.input_groups // tiling.reduction) if last.input_groups else -(-layer.groups // tiling.groups)
    return _turns(Layer(last, layer.rows, layer.columns, layer.inner), tiling, problem) if layer.inner else 1


def _used(problem: Problem, tiling: ChainTiling, layers: list[Layer]) -> dict[Memory, int]:
    return _added(chain(_buffers(problem, tiling, layers), _epilogue_buffers(tiling, layers[-1])))


def _added(buffers: Iterable[tuple[Memory, int]]) -> dict[Memory, int]:
    used = dict.fromkeys(SCRATCHPADS, 0)
    for memory, entries in buffers:
        used[memory] += entries
    return used


def _inner_groups(tiling: ChainTiling) -> int:
    """Groups of what is read in the innermost loop."""
    return tiling.reduction or tiling.groups


def _held(layer: Layer, tiling: ChainTiling) -> int:
    """Entries of a layer's input that are there at once."""
    return layer.read * (min(_inner_groups(tiling), layer.read_groups) if layer.inner else layer.read_groups)


def _buffers(problem: Problem, tiling: ChainTiling, layers: list[Layer]) -> Iterator[tuple[Memory, int]]:
    """What is in the scratchpads at once, beside what the last layer's epilogue has."""
    last = layers[-1]
    inner_groups = _inner_groups(tiling)
    for number, layer in enumerate(layers):
        stages = layer.section.stages
        copies = 2 if (tiling.skewed and not layer.rolled if number else tiling.ahead) else 1
        yield (Memory.INP if layer.section.matrix_weights else Memory.ACC), _held(layer, tiling) * copies
        if layer is last:
            made = tiling.groups
        else:
            made = min(inner_groups, layer.groups) if layers[number + 1].inner else layer.groups
        yield Memory.ACC, made * layer.made
        if layer is not last:
            yield Memory.ACC, made * layer.made * (len(stages.vector) - 1 - len(stages.in_place) + len(stages.widened))
        constants = layer.groups if tiling.resident or layer is last else 2 * made
        yield Memory.ACC, constants * layer.parameters + layer.section.shared_parameters
        if layer.section.matrix_weights:
            weights = layer.matrices if tiling.resident else layer.matrices * made // layer.groups
            if not tiling.resident and layer is last and layer.inner and layer.section.input_groups:
                weights = layer.matrices * tiling.reduction // layer.section.input_groups
            yield Memory.WGT, weights * (1 if tiling.resident else 2)


def _epilogue_buffers(tiling: ChainTiling, last: Layer) -> Iterator[tuple[Memory, int]]:
    """What the vector stages of the last layer have at once."""
    stages = last.section.stages
    part = tiling.epilogue_groups * tiling.epilogue_rows * max(last.columns.made)
    yield Memory.ACC, part * (len(stages.vector) - 1 - len(stages.in_place) + len(stages.widened))
    yield Memory.OUT, part
