"""Tilings of a kernel: sizes of tiles, the loops over them, and what of the kernel they go by.

What they need of the scratchpads and what they cost is in ``tile_costs.py``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

from .....hw.config import CoreConfig
from .....hw.dram_rate import USUAL_RATE, DramRate
from .....hw.isa import Scratchpad
from .....hw.memories import SCRATCHPADS
from ....graph.records import Record
from ..operators.filled_parameters import fills_pay
from ..operators.lower import Kernel, Section
from ..stream.scratchpads import has_zones_in_turn

AXES = ("no", "cd", "y", "x")
"""Tiled axes of the output: batch groups, channel groups, rows, columns (see also ``Problem.axes``)."""

LOOP_ORDERS = {
    "cyx": ("no", "cd", "y", "x"), "yxc": ("no", "y", "x", "cd"), "cxy": ("no", "cd", "x", "y"),
    "xyc": ("no", "x", "y", "cd"), "ycx": ("no", "y", "cd", "x"), "xcy": ("no", "x", "cd", "y"),
}  # fmt: skip
"""Of the loops over tiles, outermost first, by ``Tiling.order``."""

DEFAULT_ORDERS = ("cyx", "yxc")
"""Those that a default schedule is chosen from: weights stay, or the input does."""


EPILOGUE_OVERHEAD = 6
"""Cycles assumed lost with each part of a tile that goes through the vector stages."""


SHORTEST_CUT = 16
"""Places of a window along an axis from which on a tile may take some of them at a time; shorter ones fit whole."""


LARGEST_SIZE = 1 << 20
"""Of a tile, in any direction: no core has scratchpads for more."""


@dataclass(frozen=True)
class Tiling(Record):
    """Sizes of a tile and the order of the loops over tiles.

    ``groups``, ``rows``, ``columns``: channel groups, rows and columns of the output. ``reduction``: input channel
    groups at a time (0 where there are none to choose from), or places of a long window that the vector engine reduces
    (0: all). ``order``: of the loops over tiles, one of
    ``LOOP_ORDERS``: with channels ("c") outermost weights stay while the tiles of the picture pass, with channels
    innermost the input stays. ``epilogue_groups``, ``epilogue_rows``: the part of a tile that goes through the vector
    stages at a time. ``threads``: virtual threads. ``portion``: input channel groups whose loads and products are
    instructions of their own (see ``first_layer.py``); 0: all of a tile's.
    """

    groups: int
    rows: int
    columns: int
    reduction: int
    order: str
    epilogue_groups: int
    epilogue_rows: int
    threads: int
    portion: int = 0

    @property
    def fault(self) -> str:
        """What no tiling can have, as one from a stranger's file may; empty if nothing."""
        for name in ("groups", "rows", "columns", "epilogue_groups", "epilogue_rows", "threads"):
            if not 1 <= getattr(self, name) <= LARGEST_SIZE:
                return f"{name} {getattr(self, name)}"
        for name in ("reduction", "portion"):
            if not 0 <= getattr(self, name) <= LARGEST_SIZE:
                return f"{name} {getattr(self, name)}"
        return "" if self.order in self.orders else f"order {self.order!r}"

    @property
    def orders(self) -> tuple[str, ...]:
        """Those that its loops may have."""
        return tuple(LOOP_ORDERS)


@dataclass(frozen=True)
class ChainTiling(Tiling):
    """Of a chain: its last layer's tiles, and how all layers go through them. ``order``: channels are innermost.

    ``resident``: weights and parameters are loaded once, not with each tile. ``skewed``: each layer is an iteration
    later than the one before it. ``ahead``: inputs are loaded an iteration before they are used. ``rolling``: what a
    tile's windows share with those of the tile above stays in the accumulator, where a layer allows that.
    """

    resident: bool = True
    skewed: bool = True
    ahead: bool = False
    rolling: bool = False

    @property
    def orders(self) -> tuple[str, ...]:
        return tuple(order for order in LOOP_ORDERS if order.endswith("c"))


def matrix_bytes(section: Section, config: CoreConfig) -> float:
    """Bytes in DRAM of one matrix of a section's weights, as they are loaded."""
    if section.records:
        return config.weight_record_bytes / section.records
    return Scratchpad.WGT.dram_bytes(config)


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
    def images_are_rows(self) -> bool:
        """Whether images of one pixel, such as the rows of a matrix, are tiled like the rows of one picture: so weights
        are loaded for many of them and not for each."""
        kernel, section = self.kernel, self.kernel.section
        outer, _, height, width = kernel.output.shape[:4]
        if outer == 1 or (height, width) != (1, 1) or kernel.producers or section.own_matrices or section.repeated:
            return False
        return section.window is None or (self.is_matrix and section.window.is_pixel)

    @cached_property
    def axes(self) -> tuple[str, ...]:
        """Of the output, in its order, which of ``AXES`` each is tiled as."""
        return ("y", "cd", "no", "x") if self.images_are_rows else AXES

    @cached_property
    def output(self) -> tuple[int, int, int, int]:
        """Extents of ``AXES``; of a share, those of a part."""
        extents = self.whole_output
        for axis, count, _ in self.kernel.share.extents:
            extents[axis] = -(-extents[axis] // count)
        return extents["no"], extents["cd"], extents["y"], extents["x"]

    @property
    def whole_output(self) -> dict[str, int]:
        """Extents of the whole result by axis."""
        return dict(zip(self.axes, self.kernel.output.shape, strict=False))

    @cached_property
    def cuts(self) -> tuple[tuple[str, int, int], ...]:
        """Axes along which a share cuts the result, outermost first: the parts that there are, and the number of its
        own."""
        sizes, whole = dict(zip(AXES, self.output, strict=True)), self.whole_output
        counts = [(axis, -(-whole[axis] // sizes[axis]), number) for axis, _, number in self.kernel.share.extents]
        return tuple((axis, count, number) for axis, count, number in counts if count > 1 or number)

    @property
    def is_empty(self) -> bool:
        """Whether there is no part with the share's number."""
        return any(number >= count for _, count, number in self.cuts)

    @cached_property
    def parts(self) -> int:
        """Accumulator groups in one channel group."""
        return self.kernel.blocks.output_parts

    @property
    def portionable(self) -> int:
        """Input channel groups whose loads may be cut into portions; images that are rows lie apart in each group."""
        return 0 if self.images_are_rows or self.kernel.section.records else self.reduction

    @cached_property
    def reductions(self) -> tuple[int, ...]:
        """Input channel groups that a tile may take at a time: whole units. Of a long window on the vector engine, the
        places along its longer axis; 0 for all."""
        if not self.is_matrix:
            cut = (-(-self.window_places // (1 << count)) for count in range(1, self.window_places.bit_length()))
            return 0, *dict.fromkeys(cut)
        unit = self.reduction_unit
        return tuple(unit * size for size in sizes_worth_trying(self.reduction // unit)) or (0,)

    @cached_property
    def window_axis(self) -> int:
        """The axis along which a window on the vector engine may be cut: 0 for rows, 1 for columns."""
        kernel = self.kernel.window.kernel if self.kernel.window is not None else (1, 1)
        return int(kernel[1] > kernel[0])

    @cached_property
    def window_places(self) -> int:
        """Places of such a window along that axis; 0 where it is too short to be cut, and for matrix products."""
        window = self.kernel.window
        if window is None or self.is_matrix or self.kernel.producers:
            return 0
        places = window.kernel[self.window_axis]
        return places if places >= SHORTEST_CUT else 0

    @cached_property
    def reduction_unit(self) -> int:
        """Input channel groups that stay together: those whose entries of a pixel are neighbours in DRAM, and of 4-bit
        weights those of a group."""
        records = self.kernel.section.records
        if records:
            return records * self.config.block_in // self.kernel.blocks.dram_block
        return self.kernel.blocks.input_parts

    def whole_units(self, groups: int) -> int:
        """The least whole number of units that are at least so many input channel groups."""
        return -(-groups // self.reduction_unit) * self.reduction_unit

    @property
    def matrix_bytes(self) -> float:
        """Bytes in DRAM of one matrix of weights that is loaded."""
        return matrix_bytes(self.kernel.section, self.config)

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

    @property
    def kept_share(self) -> float:
        """The share of the matrices that are loaded and multiplied."""
        return self.kernel.section.kept_share

    @property
    def further_runs(self) -> int:
        """Instructions of the array that leaving out the others adds for each tile of the picture."""
        kept = self.kernel.section.kept
        return kept.runs - 1 if kept is not None else 0

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
        """Accumulator entries of parameters (and depthwise weights) for one accumulator group, but for those that all
        groups share."""
        return self.kernel.section.parameters + (self.taps if self.kernel.stages.weights else 0)

    @property
    def parameter_bytes(self) -> float:
        """Bytes in DRAM of one entry of ``parameters``, on average: depthwise weights are widened on the way."""
        of_requantises = self.kernel.section.parameters
        weights = self.parameters - of_requantises
        if fills_pay(self.config, self.rate):
            of_requantises -= self.kernel.section.filled_parameters
        stored = of_requantises * self.config.acc_bytes + weights * self.config.out_bytes
        return stored / self.parameters


@dataclass(frozen=True)
class _Loop:
    """A loop over tiles: its axis, how many, and how many run as virtual threads."""

    axis: str
    extent: int


def tile_loops(problem: Problem, tiling: Tiling) -> list[_Loop]:
    """Loops over tiles, outermost first, those that run once included."""
    sizes = {"no": 1, "cd": tiling.groups, "y": tiling.rows, "x": tiling.columns}
    order = LOOP_ORDERS[tiling.order]
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


def smallest_tiling(problem: Problem) -> Tiling:
    """The tiling that needs the least of every scratchpad."""
    return Tiling(1, 1, 1, problem.reductions[-1], "cyx", 1, 1, 1)


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


def divides_epilogue(problem: Problem, tiling: Any) -> Any:
    """Whether tiles whose results fit go through the vector stages a channel group at a time all the same.

    One group is then stored while the vector engine works on the next, and the layer behind gets the last results of
    this one earlier. That is worth it where a layer has few tiles: each part takes instructions. Of many tilings at
    once it is an array, as their sizes are.
    """
    if problem.images_are_rows:
        return False  # groups of a row would be stored apart, each with a burst of its own
    outer, groups, height, width = problem.output
    tiles = outer * -(-groups // tiling.groups) * -(-height // tiling.rows) * -(-width // tiling.columns)
    stored = problem.config.out_bytes / problem.bytes_per_cycle
    earlier = problem.parts * tiling.rows * tiling.columns * min(problem.vector_stages, stored)
    return earlier > EPILOGUE_OVERHEAD * tiles


@lru_cache(maxsize=4096)
def sizes_worth_trying(extent: int) -> tuple[int, ...]:
    """Tile sizes worth trying, the largest first: the smallest for each number of tiles."""
    return tuple(sorted({-(-extent // count) for count in range(1, extent + 1)}, reverse=True))
