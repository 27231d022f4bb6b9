"""What the lanes of a warp do together, as tensor intrinsics: products of tensor cores, loads of their operands, and
reductions to one element.

The loop IR sees tiles; how the lanes of a warp hold a tile is declared beside it (`WarpStep.lanes`), and `phases.py`
splits register buffers by that, as it splits them by loops over threads. In words of four bytes all operands lie the
same way (the PTX manual, "Warp level matrix instructions"): lane ``4 g + t`` holds word ``t`` of row ``g``, then every
fourth word and every eighth row after it. Sums lie by pairs instead.

An intrinsic's name holds all its numbers, so that it can be made again from a kernel's text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, TypeAlias

from ...tensor.errors import IRError
from ...tensor.evaluate import ITEM_BYTES
from ...tensor.intrinsic import tensor_intrinsic, tile
from ...tensor.ir import BinOp, DType, TensorIntrinsic
from ..loops.nests import REGISTER
from .digits import SHARED
from .mma_shapes import AMPERE_SHAPES, TURING_SHAPES, MmaShape

WORD = 4
"""Bytes of a register."""

MATRIX_ROWS, MATRIX_BYTES = 8, 16
"""Of a matrix that `ldmatrix` loads: a word for each lane."""

TURNED_BYTES = 2
"""Of an element of a matrix that `ldmatrix` can transpose."""

COLUMNS = 8
"""Of the sums of one product."""


@dataclass(frozen=True)
class LaneDigit:
    """``lane // weight % radix`` counts steps of ``step`` elements along ``axis`` of a tile; what lies between, and
    above ``step * radix``, is held by one lane."""

    axis: int
    step: int
    radix: int
    weight: int


@dataclass(frozen=True)
class WarpStep:
    """What an intrinsic is for the emitter. ``lanes``: of the operands in registers, by name; none where all lanes hold
    the same. ``by_rows``: whether neighbours in a row are loaded into neighbouring registers, not those below each
    other: a product takes its second operand so, and its first one the other way. ``turned``: whether what lies in
    memory is the transposed tile."""

    kind: Literal["mma", "ldmatrix", "reduce"]
    dtype: DType
    rows: int
    depth: int
    lanes: Mapping[str, tuple[LaneDigit, ...]]
    by_rows: bool = False
    turned: bool = False

    @property
    def fills(self) -> bool:
        """Whether a call can begin with a value for the result."""
        return self.kind == "reduce"


MMA_SHAPES = TURING_SHAPES + AMPERE_SHAPES
"""All that there is an intrinsic for; `GpuDescription.mma` says which a device has."""


def operand_lanes(dtype: DType) -> tuple[LaneDigit, ...]:
    """How a warp holds an operand of products, (rows, depth) of ``dtype``."""
    return (LaneDigit(0, 1, 8, 4), LaneDigit(1, WORD // ITEM_BYTES[dtype], 4, 1))


SUMS_LANES = (LaneDigit(0, 1, 8, 4), LaneDigit(1, 2, 4, 1))
"""How a warp holds sums, (rows, 8)."""


@lru_cache(maxsize=1024)
def mma(shape: MmaShape, stride: int) -> TensorIntrinsic:
    """``acc[i, j] += sum of a[i, k] * b[j, k]``. ``stride``: elements from a row of sums to the next. Floats are
    rounded by the device's own ways: exact products of 16 bits, or of TF32 (`MmaShape.is_rounded`), are added in single
    precision in any order."""
    rows, depth, dtype, sums = shape.rows, shape.depth, shape.dtype, shape.sums
    row = 2 * MATRIX_BYTES // ITEM_BYTES[dtype]
    operand = operand_lanes(dtype)
    return tensor_intrinsic(
        f"mma_{shape.name}_{stride}",
        operands=[
            tile("acc", (rows, COLUMNS), sums, REGISTER, "inout", strides=(stride, 1), align=1),
            tile("a", (rows, depth), dtype, REGISTER, "in", strides=(row, 1), align=1),
            tile("b", (COLUMNS, depth), dtype, REGISTER, "in", strides=(row, 1), align=1),
        ],
        loops={"i": rows, "j": COLUMNS, "k": depth},
        meaning=lambda acc, a, b, i, j, k: acc.store(
            (i, j), acc[i, j] + a[i, k].astype(sums) * b[j, k].astype(sums)
        ),
        emits=WarpStep("mma", dtype, rows, depth, {"acc": SUMS_LANES, "a": operand, "b": operand}),
    )  # fmt: skip


@lru_cache(maxsize=1024)
def ldmatrix(dtype: DType, rows: int, stride: int, *, by_rows: bool = False, turned: bool = False) -> TensorIntrinsic:
    """``dst[i, k] = src[i, k]``: rows of 32 bytes out of shared memory, where they are ``stride`` elements apart.
    ``by_rows``: for a product's second operand (`WarpStep`). ``turned``: ``dst[i, k] = src[k, i]``, of two bytes an
    element."""
    matrix = MATRIX_BYTES // ITEM_BYTES[dtype]
    depth = 2 * matrix
    kind = ("by_rows_" if by_rows else "") + ("turned_" if turned else "")
    return tensor_intrinsic(
        f"ldmatrix_{kind}{dtype}_{rows}_{stride}",
        operands=[
            tile("dst", (rows, depth), dtype, REGISTER, "out", align=1),
            tile("src", (depth, rows) if turned else (rows, depth), dtype, SHARED, "in", strides=(stride, 1),
                 align=matrix),
        ],
        loops={"i": rows, "k": depth},
        meaning=lambda dst, src, i, k: dst.store((i, k), src[k, i] if turned else src[i, k]),
        emits=WarpStep("ldmatrix", dtype, rows, depth, {"dst": operand_lanes(dtype)}, by_rows, turned),
    )  # fmt: skip


LANES = 32
"""Of a warp of all devices that have intrinsics."""

REDUCED: tuple[DType, ...] = ("float32", "int32", "uint32")
"""Types of which lanes exchange an element by one instruction."""

Reduction: TypeAlias = Literal["add", "max", "min"]
REDUCTIONS: tuple[Reduction, ...] = ("add", "max", "min")


@lru_cache(maxsize=1024)
def warp_reduce(op: Reduction, dtype: DType) -> TensorIntrinsic:
    """``dst = dst op src[0] op src[1] ...``, an element of each lane, in any order. All lanes have the result."""
    return tensor_intrinsic(
        f"warp_{op}_{dtype}",
        operands=[
            tile("dst", (1,), dtype, REGISTER, "inout", align=1),
            tile("src", (LANES,), dtype, REGISTER, "in", align=1),
        ],
        loops={"lane": LANES},
        meaning=lambda dst, src, lane: dst.store((0,), BinOp(op, dst[0], src[lane])),
        emits=WarpStep("reduce", dtype, 1, LANES, {"dst": (), "src": (LaneDigit(0, 1, LANES, 1),)}),
    )  # fmt: skip


@lru_cache(maxsize=1024)
def intrinsic_named(name: str) -> TensorIntrinsic:
    """The intrinsic of this name; IRError if there is none."""
    number = "([1-9][0-9]{0,6})"
    if match := re.fullmatch(f"mma_([a-z0-9]+)_{number}_{number}_{number}", name, re.ASCII):
        stride = int(match[4])
        for shape in MMA_SHAPES:
            if shape.name == f"{match[1]}_{match[2]}_{match[3]}" and stride >= COLUMNS:
                return mma(shape, stride)
    if match := re.fullmatch(f"ldmatrix_(by_rows_)?(turned_)?([a-z0-9]+)_{number}_{number}", name, re.ASCII):
        rows, stride = int(match[4]), int(match[5])
        dtype = next((shape.dtype for shape in MMA_SHAPES if shape.dtype == match[3]), None)
        size = ITEM_BYTES[dtype] if dtype else 0
        least = rows * size if match[2] else 2 * MATRIX_BYTES
        fits = rows in (8, 16) and stride * size >= least and stride * size % MATRIX_BYTES == 0
        if dtype and fits and (size == TURNED_BYTES or not match[2]):
            return ldmatrix(dtype, rows, stride, by_rows=bool(match[1]), turned=bool(match[2]))
    for op in REDUCTIONS:
        for dtype in REDUCED:
            if name == f"warp_{op}_{dtype}":
                return warp_reduce(op, dtype)
    raise IRError(
        f"a GPU has no intrinsic {name!r}",
        hint="it has mma_TYPE_ROWS_DEPTH_STRIDE and ldmatrix_[by_rows_]TYPE_ROWS_STRIDE, with the shapes of tensor "
        "cores, and warp_OPERATOR_TYPE",
    )
