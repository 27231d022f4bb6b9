"""All tilings of a kernel that may be worth measuring, with what the estimate thinks of each.

Wider than what the default schedule chooses from: every width, smaller epilogues, one, two or four virtual threads, and
loads in portions of several sizes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from ....tensor.compute import Tensor
from ..operators.builder import Window
from ..operators.depthwise_mode import row_cycles
from ..operators.empty_matrices import Mask
from ..operators.filled_parameters import TOGETHER, fills_pay
from ..operators.lower import Kernel, Section
from ..schedule.tiling import LOOP_ORDERS, Problem, Tiling, sizes_worth_trying
from .tile_costs import chunks_of, estimates, fill, uneven_axes, work_of
from .tiles import Tiles

THREADS = (1, 2, 4)

PORTIONS = (2, 4, 8)
"""Parts that the input channels of a tile may be cut into. More would fill the queues."""

SMALLEST_TILE = 1 / 32
"""Share of ``acc`` below which a tile is not looked at where there are larger ones: instructions would be too short."""


@dataclass(frozen=True)
class Candidate:
    """A tiling that fits the scratchpads, and the cycles that the estimate expects."""

    tiling: Tiling
    estimate: float


def space(problem: Problem) -> list[Candidate]:
    """Tilings that fit in sum, the cheapest by the estimate first; ``problem.threads`` takes no part."""
    found: list[Candidate] = []
    for threads in THREADS:
        threaded = replace(problem, threads=threads)
        tiles = Tiles.of(_tilings(threaded))
        costs = estimates(threaded, tiles)
        found += [Candidate(tiles[place], float(costs[place])) for place in np.flatnonzero(costs < np.inf).tolist()]
    return sorted(found, key=lambda each: each.estimate)  # stable: equal ones stay in the order of the knobs


def _tilings(problem: Problem) -> Iterator[Tiling]:
    for base in bases(problem):
        yield from tilings_of(problem, base)


Base = tuple[int, int, int, int]
"""Of a tile: channel groups, rows and columns of the output, and the part of the reduction at a time."""


def bases(problem: Problem) -> Iterator[Base]:
    """Tiles that may be worth measuring; those for more threads are among those for one."""
    _, groups, height, width = problem.output
    axes = [sizes_worth_trying(size) for size in (groups, height, width)]
    least = SMALLEST_TILE * problem.config.acc_depth
    whole = groups * height * width * problem.parts
    for group, row, column, reduction in product(*axes, problem.reductions):
        if min(least, whole) <= group * row * column * problem.parts <= problem.config.acc_depth // problem.threads:
            yield group, row, column, reduction


def tilings_of(problem: Problem, base: Base) -> Iterator[Tiling]:
    """All tilings with these tiles, for the problem's threads."""
    _, groups, height, width = problem.output
    group, row, column, reduction = base
    cut = {problem.whole_units(-(-problem.portionable // count)) for count in PORTIONS}
    portions = sorted(cut - {0, problem.reduction})
    for part, part_row in _epilogues(problem, group, row, column):
        for order in orders_of(groups > group, height > row, width > column):
            tiling = Tiling(group, row, column, reduction, order, part, part_row, problem.threads)
            yield tiling
            if reduction == problem.reduction:
                for portion in portions:
                    yield replace(tiling, portion=portion)


def orders_of(groups: bool, rows: bool, columns: bool) -> list[str]:
    """The orders of loops over tiles that differ, where there are several tiles along these axes; the first two are the
    defaults."""
    several = [axis for axis, there in (("cd", groups), ("y", rows), ("x", columns)) if there]
    found: dict[tuple[str, ...], str] = {}
    for name, order in LOOP_ORDERS.items():
        found.setdefault(tuple(axis for axis in order if axis in several), name)
    return list(found.values())


def _epilogues(problem: Problem, groups: int, rows: int, columns: int) -> list[tuple[int, int]]:
    """Parts of a tile for the vector stages: the largest that leaves ``out`` for two a thread, and half of it."""
    if problem.kernel.window is None:
        return [(groups, rows)]
    room = problem.config.out_depth // (2 * problem.threads)
    sizes = list(dict.fromkeys([(groups, rows), *((1, row) for row in sizes_worth_trying(rows))]))
    fitting = [(group, row) for group, row in sizes if group * problem.parts * row * columns <= room]
    return fitting[:2] or [sizes[-1]]


def features(problem: Problem, candidate: Candidate) -> Mapping[str, float]:
    """What a learned ranking sees of a candidate: logarithms of sizes, work by resource, how full the scratchpads are.

    No feature is a size in elements alone, so that rankings carry over to other shapes and cores.
    """
    tiling = candidate.tiling
    problem = replace(problem, threads=tiling.threads)
    work = work_of(problem, tiling)
    if work is None:
        raise ValueError(f"{tiling} does not fit the scratchpads")
    outer, groups, height, width = problem.output
    least = max(work.matrix, work.vector, 1.0)
    tiles = math.ceil(groups / tiling.groups) * math.ceil(height / tiling.rows) * math.ceil(width / tiling.columns)
    return {
        "estimate": math.log2(candidate.estimate / least),
        "matrix": math.log2(work.matrix / least + 2**-10),
        "vector": math.log2(work.vector / least + 2**-10),
        "traffic": math.log2(work.traffic / least + 2**-10),
        "exposed": math.log2(work.exposed / least + 2**-10),
        "uneven": int(uneven_axes(problem, Tiles.of([tiling]))[0]),
        "tiles": math.log2(outer * tiles),
        "tile": math.log2(tiling.groups * problem.parts * tiling.rows * tiling.columns),
        "chunks": math.log2(int(chunks_of(problem, Tiles.of([tiling]))[0])) if tiling.reduction else 0.0,
        "taps": math.log2(problem.taps),
        "epilogue": math.log2(tiling.epilogue_groups * tiling.epilogue_rows * tiling.columns),
        "channels_outer": float(tiling.order[0] == "c"),
        "channels_inner": float(tiling.order[-1] == "c"),
        "threads": math.log2(tiling.threads),
        "portion": float(tiling.portion > 0),
        "fill": fill(problem, tiling),
        "bytes_per_cycle": math.log2(problem.bytes_per_cycle),
        "macs_per_cycle": math.log2(problem.config.macs_per_cycle),
    }


Wanted = tuple[Mask, Mask]
"""Rows and columns of a result that something reads."""


@dataclass(frozen=True)
class Needs:
    """What no tiling of a kernel can do without: cycles of the array's products and of the vector engine's stages,
    bytes read of each of its inputs, by name, and bytes written. Everything counts once. A chain computes each entry
    that the layers behind it read at least once."""

    array: float
    vector: float
    read: Mapping[str, int]
    written: int


def needs(problem: Problem, wanted: Wanted | None = None) -> Needs:
    """Of a kernel, whatever its tiling is. ``wanted``: what of its result is computed, by default all."""
    kernel, array, vector, share = problem.kernel, 0.0, 0.0, 1.0
    wanted = wanted or all_of(kernel)
    for number, section in reversed(list(enumerate(kernel.sections))):
        products, stages = _section_cycles(problem, section, wanted)
        array, vector, share = array + products, vector + stages, min(share, _share(wanted))
        if number:
            wanted = _wanted_of(section, wanted, kernel.sections[number - 1].output)
    read = {tensor.name: _bytes_read(problem, tensor, wanted) for tensor in kernel.inputs}
    constants = {tensor.name for tensor, _ in kernel.constants}
    # Whichever layer adds an activation, reads no less of it than the least of what one computes.
    read = {name: nbytes if name in constants else int(share * nbytes) for name, nbytes in read.items()}
    return Needs(array, vector, read, math.prod(kernel.output.shape))


def _share(wanted: Wanted) -> float:
    return math.prod(float(places.mean()) for places in wanted)


def all_of(kernel: Kernel) -> Wanted:
    """Every row and column of a kernel's result."""
    height, width = kernel.section.output[2:4]
    return np.ones(height, np.bool_), np.ones(width, np.bool_)


def wanted_of(reader: Kernel, wanted: Wanted, shape: Sequence[int]) -> Wanted:
    """What a layer reads of the packed result of this shape that its windows move over."""
    return _wanted_of(reader.sections[0], wanted, shape)


def _wanted_of(reader: Section, wanted: Wanted, shape: Sequence[int]) -> Wanted:
    if reader.window is None:
        return wanted
    rows, columns = (
        np.ones(1, np.bool_) if axis in reader.anchor_repeated else places
        for axis, places in zip(("y", "x"), wanted, strict=True)
    )
    return _places_met(reader.window, 0, rows, shape[2]), _places_met(reader.window, 1, columns, shape[3])


def lower_bound(problem: Problem) -> float:
    """Cycles that no tiling can do without: those of whichever of array, vector engine and bus :func:`needs` most."""
    least = needs(problem)
    return max(least.array, least.vector, bus_cycles(problem, least))


def shared_bound(problem: Problem) -> float:
    """Of a depthwise layer (``problem``: on the vector engine) whose taps the array may take over in any share."""
    least = needs(problem)
    return max(least.vector / 2, bus_cycles(problem, least))


def _section_cycles(problem: Problem, section: Section, wanted: Wanted) -> tuple[float, int]:
    """Cycles of the array and of the vector engine for every wanted entry of a layer's result, once."""
    outer, groups = section.output[:2]
    height, width = (int(places.sum()) for places in wanted)
    sizes = {"cd": groups * problem.parts, "y": height, "x": width}
    pixels = outer * math.prod(sizes.values())
    own = {axis: 1 if axis in section.anchor_repeated else size for axis, size in sizes.items()}
    anchored = outer * math.prod(own.values())
    small = dict(section.repeated)
    # Of a layer whose result stays on the core, the last stage is the copy that the next one reads.
    stages = sum(stage not in small for stage in section.stages.vector) - (section is not problem.kernel.section)
    if section.tapped and section.window is not None:
        rows = outer * own["cd"] * own["y"]
        return rows * row_cycles(section.window, own["x"]) * section.taps, pixels * stages
    if section.matrix_weights:
        return anchored * (section.input_groups or 1) * section.taps * section.kept_share, pixels * stages
    return 0, pixels * stages + (anchored * section.taps if section.window is not None else 0)


def bus_cycles(problem: Problem, least: Needs) -> float:
    """For every byte that is needed, once. Reads and writes share the memory, and each has a bus of its own."""
    read, bus = sum(least.read.values()), problem.config.bus_bytes
    return max((read + least.written) / problem.rate.bytes_per_cycle, read / bus, least.written / bus)


def _bytes_read(problem: Problem, tensor: Tensor, wanted: Wanted) -> int:
    """Of an input of the kernel, as it lies in DRAM: filled parameters are partly left out, weights of 4 bits are
    records."""
    kernel, config = problem.kernel, problem.config
    nbytes = _bytes_met(kernel, tensor, wanted)
    if records := kernel.records_of(tensor.name):
        return nbytes // (records * config.wgt_bytes) * config.weight_record_bytes
    if kernel.filled_of(tensor.name) is not None and fills_pay(config, problem.rate):
        return nbytes * (TOGETHER - 1) // TOGETHER
    return nbytes


def _bytes_met(kernel: Kernel, tensor: Tensor, wanted: Wanted) -> int:
    """Of an input of the kernel, those that are read at least once: windows may leave out rows and columns. ``wanted``:
    of the first layer's result."""
    nbytes = math.prod(tensor.shape) * (4 if tensor.dtype == "int32" else 1)
    kept = kernel.kept_of(tensor.name)
    if kept is not None:
        return nbytes // kept.size * int(kept.sum())
    first = kernel.sections[0]
    if first.window is None or tensor.name != read_by(kernel.output, first.stages.data):
        return nbytes
    rows, columns = _wanted_of(first, wanted, tensor.shape)
    return nbytes // (rows.size * columns.size) * int(rows.sum() * columns.sum())


def read_by(tensor: Tensor, stage: str) -> str:
    """The name of the tensor that a ``stage`` before ``tensor`` copies; empty if there is no such stage."""
    if tensor.name == stage:
        return next((each.name for each in tensor.inputs), "")
    return next(filter(None, (read_by(each, stage) for each in tensor.inputs)), "")


def _places_met(window: Window, axis: int, wanted: Mask, size: int) -> Mask:
    """Which of ``size`` rows (``axis`` 0) or columns the windows of the ``wanted`` outputs reach over."""
    reach = (window.kernel[axis] - 1) * window.dilations[axis] + 1
    met = np.zeros(size, np.bool_)
    for start in (np.flatnonzero(wanted) * window.strides[axis] - window.pads[axis]).tolist():
        met[max(start, 0) : max(start + reach, 0)] = True
    return met
