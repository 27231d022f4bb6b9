"""The knobs of a processor's kernels: which points there are, and kinds of kernels that take a given one.

A kind of kernel asks its schedule for one small decision, a tile or the blocks of a product. What it asks is found by
letting it build the kernel; a point of the space is an answer, and the default schedule's is one of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from math import log2
from typing import Any

from ...graph.ir import Expr
from ...tune.errors import TuningError
from ..loops.byte_product import ByteProductKernels
from ..loops.convolution import ConvolutionKernels
from ..loops.fusion import FusedGroup
from ..loops.kernel_code import KERNEL
from ..loops.kernels import Tile
from ..loops.layouts import Layout
from ..loops.pair_product import PairProductKernels
from ..loops.placement import KernelKind
from ..loops.product import Blocking, ProductKernels, Step
from .convolution import CpuConvolutions
from .processor import Processor
from .products import CpuProducts, blocking_of, rated_product_tiles
from .tiles import pieces, rated_grouped_tiles

Answer = Tile | Blocking
Point = Mapping[str, Any]
"""An answer as values by name."""

LARGEST = 1 << 20
"""Any number in a point is at most this."""


@dataclass(frozen=True)
class Rated:
    """An answer, and the cycles that the compiler expects of it, in units that only compare within a kernel."""

    answer: Answer
    cycles: float


@dataclass
class _Asked:
    """What a kernel asked, in the words of the space: the answers that there are, the default's first."""

    answers: list[Rated] = field(default_factory=list)


@dataclass(frozen=True)
class _AskedConvolutions(CpuConvolutions):
    asked: _Asked = field(default_factory=_Asked)

    def tile(self, width: int, channels: int, block: int, step: Step) -> Tile:
        default = super().tile(width, channels, block, step)
        self.asked.answers = _default_first(default, self.rated(width, channels, block, step))
        return default

    def grouped_tile(self, width: int, block: int) -> Tile:
        default = super().grouped_tile(width, block)
        self.asked.answers = _default_first(default, rated_grouped_tiles(width, block, self.target))
        return default


@dataclass(frozen=True)
class _AskedProducts(CpuProducts):
    asked: _Asked = field(default_factory=_Asked)

    def blocking(self, shape: tuple[int, ...], depth: int, plain: tuple[bool, bool], constant: bool) -> Blocking:
        default = super().blocking(shape, depth, plain, constant)
        *_, rows, columns = shape
        rated = [
            Rated(each, cycles)
            for cycles, tile in rated_product_tiles(rows, columns, depth, constant, self.target)
            for each in _blockings(
                blocking_of(tile, shape, depth, plain, constant, self.target), rows, columns, plain[1]
            )
        ]
        own = next((each for each in rated if each.answer == default), Rated(default, 0.0))
        self.asked.answers = [own, *(each for each in rated if each.answer != default)]
        return default


def _default_first(default: Tile, rated: list[tuple[float, Tile]]) -> list[Rated]:
    cycles = next((cycles for cycles, tile in rated if tile == default), 0.0)
    return [Rated(default, cycles), *(Rated(tile, cycles) for cycles, tile in rated if tile != default)]


def _blockings(usual: Blocking, rows: int, columns: int, plain: bool) -> list[Blocking]:
    """The blocks that go with a tile, others, and each with the second operand read where it lies, if it can be."""
    tile = usual.tile
    heights = {usual.rows, rows, min(rows, 4 * tile.rows)}
    widths = {usual.columns, columns, tile.lanes, min(columns, 4 * tile.lanes)}
    packed = {usual.packed, False} if plain else {usual.packed}
    return [
        replace(usual, rows=height, columns=width, packed=copied)
        for height in sorted(heights) for width in sorted(widths) for copied in sorted(packed)
        if height >= tile.rows and width >= tile.lanes and _ends_well(rows, height, tile.rows)
        and _ends_well(columns, width, tile.lanes)
    ]  # fmt: skip


def _ends_well(extent: int, block: int, tile: int) -> bool:
    """Whether the last block is no smaller than a tile."""
    return extent % block == 0 or extent % block >= tile


@dataclass(frozen=True)
class _GivenConvolutions(CpuConvolutions):
    given: Tile

    def tile(self, width: int, channels: int, block: int, step: Step) -> Tile:
        return self.given

    def grouped_tile(self, width: int, block: int) -> Tile:
        return self.given


@dataclass(frozen=True)
class _GivenProducts(CpuProducts):
    given: Blocking

    def blocking(self, shape: tuple[int, ...], depth: int, plain: tuple[bool, bool], constant: bool) -> Blocking:
        return self.given


def answers_of(
    kind: KernelKind, group: FusedGroup, layouts: Mapping[Expr, Layout], layout: Layout, target: Processor
) -> list[Rated]:
    """All answers for a kernel, the default schedule's first; none for kinds that ask nothing."""
    asked = _Asked()
    match kind:
        case ConvolutionKernels():
            asking: KernelKind = replace(kind, schedule=_AskedConvolutions(target, asked))
        case ProductKernels() | ByteProductKernels() | PairProductKernels():
            asking = replace(kind, schedule=_AskedProducts(target, asked))
        case _:
            return []
    asking.build(group, layouts, layout, KERNEL)
    return asked.answers


def kind_with(kind: KernelKind, answer: Answer, target: Processor) -> KernelKind:
    """The kind of kernel that takes this answer. TuningError for one of another kind."""
    match kind, answer:
        case ConvolutionKernels(), Tile():
            return replace(kind, schedule=_GivenConvolutions(target, answer))
        case ((ProductKernels() | ByteProductKernels() | PairProductKernels()), Blocking()):
            return replace(kind, schedule=_GivenProducts(target, answer))
    raise TuningError(f"a kernel of kind {kind.name!r} takes no {answer}", hint="make the tuning database anew")


def answer_point(answer: Answer) -> Point:
    if isinstance(answer, Tile):
        return asdict(answer)
    own = {name: value for name, value in asdict(answer).items() if name not in ("tile", "run")}
    return {"tile_rows": answer.tile.rows, "lanes": answer.tile.lanes, **own}


def point_answer(point: Point) -> Answer:
    """The answer of a point; TuningError for one that is none, as a stranger's file may hold."""
    if point.keys() == {"rows", "lanes"} and all(map(_is_size, point.values())):
        return Tile(**point)
    names = ("tile_rows", "lanes", "rows", "columns", "copied", "packed")
    sizes, flags = names[:4], names[4:]
    if (
        point.keys() == set(names)
        and all(_is_size(point[name]) for name in sizes)
        and (all(type(point[name]) is bool for name in flags))
    ):
        tile = Tile(point["tile_rows"], point["lanes"])
        return Blocking(tile, point["rows"], point["columns"], point["copied"], point["packed"])
    raise TuningError(f"a tuning database holds {dict(point)!r}, which is no schedule", hint="make it anew")


def _is_size(value: object) -> bool:
    return type(value) is int and 1 <= value <= LARGEST


def features(rated: Rated, target: Processor) -> dict[str, float]:
    """What a ranking sees of an answer."""
    answer = rated.answer
    tile = answer if isinstance(answer, Tile) else answer.tile
    parts = len(pieces(tile.lanes, target.float_lanes))
    blocks = (answer.rows, answer.columns, answer.packed) if isinstance(answer, Blocking) else (1, 1, False)
    return {
        "estimate": log2(max(rated.cycles, 1e-9)), "rows": float(tile.rows), "lanes": log2(tile.lanes),
        "registers": float(tile.rows * parts), "whole": float(tile.lanes % target.float_lanes == 0),
        "block_rows": log2(blocks[0]), "block_columns": log2(blocks[1]), "packed": float(blocks[2]),
        "product": float(isinstance(answer, Blocking)),
    }  # fmt: skip
