"""Micro-kernel steps of the CPU as tensor intrinsics: one outer product of float32, one dot product of bytes by fours
or of bfloat16 by twos.

Accumulators live in scope ``register``: a buffer on the stack of which every index is constant, which the emitter keeps
in vector registers through all loops of a reduction. One step is ``rows x lanes`` accumulators wide; the reduction's
loops stand around it. An intrinsic's name holds all its numbers, so that it can be made again from a kernel's text.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from math import prod

from ...tensor.errors import IRError
from ...tensor.intrinsic import tensor_intrinsic, tile
from ...tensor.ir import DType, TensorIntrinsic
from ..loops.layouts import PAIR, QUAD
from ..loops.nests import REGISTER

LARGEST_TILE = 1 << 13
"""Elements of an operand, at most."""


@dataclass(frozen=True)
class MicroKernel:
    """What an intrinsic is for the emitter: the function of this name, called with these numbers. ``bears_pairs``: its
    operand that must be a constant of which `loops.byte_pairs.bears_pairs`; empty if there is none."""

    kind: str
    numbers: tuple[int, ...]
    bears_pairs: str = ""


@lru_cache(maxsize=1024)
def outer_product(rows: int, lanes: int, row_stride: int) -> TensorIntrinsic:
    """``acc[r, l] += a[r] * b[l]``, float32. ``row_stride``: elements from a row's value to the next."""
    return tensor_intrinsic(
        _name("outer_product", rows, lanes, row_stride),
        operands=[
            tile("acc", (rows, lanes), "float32", REGISTER, "inout", align=1),
            tile("a", (rows,), "float32", "global", "in", strides=(row_stride,), align=1),
            tile("b", (lanes,), "float32", "global", "in", align=1),
        ],
        loops={"row": rows, "lane": lanes},
        meaning=lambda acc, a, b, row, lane: acc.store((row, lane), acc[row, lane] + a[row] * b[lane]),
        emits=MicroKernel("outer_product", (rows, lanes, row_stride)),
    )


@lru_cache(maxsize=1024)
def dot_product(rows: int, lanes: int, row_stride: int) -> TensorIntrinsic:
    """``acc[r, l] += sum of a[r, q] * b[l, q]`` over four bytes q: uint8 times int8, into int32."""
    return _dot_product(MicroKernel("dot_product", (rows, lanes, row_stride)), lanes)


@lru_cache(maxsize=1024)
def paired_dot_product(rows: int, lanes: int, row_stride: int, acc_stride: int) -> TensorIntrinsic:
    """The same, where pairs of neighbours of ``b`` are such that sums of their products have 16 bits. ``acc_stride``:
    elements from a row of ``acc`` to the next, which may be longer than ``lanes``."""
    numbers = (rows, lanes, row_stride, acc_stride)
    return _dot_product(MicroKernel("paired_dot_product", numbers, bears_pairs="b"), acc_stride)


def _dot_product(kernel: MicroKernel, acc_stride: int) -> TensorIntrinsic:
    rows, lanes, row_stride = kernel.numbers[:3]
    return tensor_intrinsic(
        _name(kernel.kind, *kernel.numbers),
        operands=[
            tile("acc", (rows, lanes), "int32", REGISTER, "inout", strides=(acc_stride, 1), align=1),
            tile("a", (rows, QUAD), "uint8", "global", "in", strides=(row_stride, 1), align=1),
            tile("b", (lanes, QUAD), "int8", "global", "in", align=1),
        ],
        loops={"row": rows, "lane": lanes, "q": QUAD},
        meaning=lambda acc, a, b, row, lane, q: acc.store(
            (row, lane), acc[row, lane] + a[row, q].astype("int32") * b[lane, q].astype("int32")
        ),
        emits=kernel,
    )


@lru_cache(maxsize=1024)
def word_product(rows: int, lanes: int, row_stride: int) -> TensorIntrinsic:
    """``acc[r, l] += sum of a[r, q] * b[l, q]`` over two values q of int16, into int32."""
    return tensor_intrinsic(
        _name("word_product", rows, lanes, row_stride),
        operands=[
            tile("acc", (rows, lanes), "int32", REGISTER, "inout", align=1),
            tile("a", (rows, PAIR), "int16", "global", "in", strides=(row_stride, 1), align=1),
            tile("b", (lanes, PAIR), "int16", "global", "in", align=1),
        ],
        loops={"row": rows, "lane": lanes, "q": PAIR},
        meaning=lambda acc, a, b, row, lane, q: acc.store(
            (row, lane), acc[row, lane] + a[row, q].astype("int32") * b[lane, q].astype("int32")
        ),
        emits=MicroKernel("word_product", (rows, lanes, row_stride)),
    )


@lru_cache(maxsize=1024)
def element_product(rows: int, lanes: int, row_stride: int) -> TensorIntrinsic:
    """``acc[r, l] += sum of a[r, q] * b[q, l]`` over four values q of int16, into int32."""
    return tensor_intrinsic(
        _name("element_product", rows, lanes, row_stride),
        operands=[
            tile("acc", (rows, lanes), "int32", REGISTER, "inout", align=1),
            tile("a", (rows, QUAD), "int16", "global", "in", strides=(row_stride, 1), align=1),
            tile("b", (QUAD, lanes), "int16", "global", "in", align=1),
        ],
        loops={"row": rows, "lane": lanes, "q": QUAD},
        meaning=lambda acc, a, b, row, lane, q: acc.store(
            (row, lane), acc[row, lane] + a[row, q].astype("int32") * b[q, lane].astype("int32")
        ),
        emits=MicroKernel("element_product", (rows, lanes, row_stride)),
    )


@lru_cache(maxsize=1024)
def window_product(
    rows: int,
    lanes: int,
    taps: int,
    depth: int,
    row_stride: int,
    tap_stride: int,
    depth_stride: int,
    weight_stride: int,
) -> TensorIntrinsic:
    """``acc[r, l] += sum of a[r, t, q, l] * b[t, l, q]`` over ``taps`` t and a ``depth`` of one or two values q: uint8
    times int16, into int32. Strides in elements; ``weight_stride``: of a tap."""
    numbers = (rows, lanes, taps, depth, row_stride, tap_stride, depth_stride, weight_stride)
    return tensor_intrinsic(
        _name("window_product", *numbers),
        operands=[
            tile("acc", (rows, lanes), "int32", REGISTER, "inout", align=1),
            tile("a", (rows, taps, depth, lanes), "uint8", "global", "in",
                 strides=(row_stride, tap_stride, depth_stride, 1), align=1),
            tile("b", (taps, lanes, depth), "int16", "global", "in", strides=(weight_stride, depth, 1), align=1),
        ],
        loops={"row": rows, "lane": lanes, "tap": taps, "q": depth},
        meaning=lambda acc, a, b, row, lane, tap, q: acc.store(
            (row, lane), acc[row, lane] + a[row, tap, q, lane].astype("int32") * b[tap, lane, q].astype("int32")
        ),
        emits=MicroKernel("window_product", numbers),
    )  # fmt: skip


@lru_cache(maxsize=1024)
def pair_product(rows: int, lanes: int, row_stride: int) -> TensorIntrinsic:
    """``acc[r, l] += sum of a[r, q] * b[l, q]`` over two values q of bfloat16, into float32, in any order, by
    fused multiply-adds. A processor's instruction may take numbers below 2**-126 as 0."""
    return tensor_intrinsic(
        _name("pair_product", rows, lanes, row_stride),
        operands=[
            tile("acc", (rows, lanes), "float32", REGISTER, "inout", align=1),
            tile("a", (rows, PAIR), "bfloat16", "global", "in", strides=(row_stride, 1), align=1),
            tile("b", (lanes, PAIR), "bfloat16", "global", "in", align=1),
        ],
        loops={"row": rows, "lane": lanes, "q": PAIR},
        meaning=lambda acc, a, b, row, lane, q: acc.store(
            (row, lane), acc[row, lane] + a[row, q].astype("float32") * b[lane, q].astype("float32")
        ),
        emits=MicroKernel("pair_product", (rows, lanes, row_stride)),
    )


@lru_cache(maxsize=1024)
def grouped_product(rows: int, block: int, group: int, row_stride: int) -> TensorIntrinsic:
    """``acc[r, g, l] += sum of a[r, g, k] * b[k, g, l]`` over the ``group`` values k of a group, float32: a block of
    channels is ``g x l``, several groups that each make as many channels as they take."""
    count = block // group
    return tensor_intrinsic(
        _name("grouped_product", rows, block, group, row_stride),
        operands=[
            tile("acc", (rows, count, group), "float32", REGISTER, "inout", align=1),
            tile("a", (rows, count, group), "float32", "global", "in", strides=(row_stride, group, 1), align=1),
            tile("b", (group, count, group), "float32", "global", "in", align=1),
        ],
        loops={"row": rows, "k": group, "g": count, "lane": group},
        meaning=lambda acc, a, b, row, k, g, lane: acc.store(
            (row, g, lane), acc[row, g, lane] + a[row, g, k] * b[k, g, lane]
        ),
        emits=MicroKernel("grouped_product", (rows, block, group, row_stride)),
    )


@lru_cache(maxsize=1024)
def grouped_dot(rows: int, block: int, group: int, row_stride: int) -> TensorIntrinsic:
    """As ``grouped_product``, of bytes by fours as in ``dot_product``: a group is a multiple of four channels."""
    count, quads = block // group, group // QUAD
    return tensor_intrinsic(
        _name("grouped_dot", rows, block, group, row_stride),
        operands=[
            tile("acc", (rows, count, group), "int32", REGISTER, "inout", align=1),
            tile("a", (rows, count, quads, QUAD), "uint8", "global", "in", strides=(row_stride, group, QUAD, 1),
                 align=1),
            tile("b", (quads, count, group, QUAD), "int8", "global", "in", align=1),
        ],
        loops={"row": rows, "k": quads, "g": count, "lane": group, "q": QUAD},
        meaning=lambda acc, a, b, row, k, g, lane, q: acc.store(
            (row, g, lane),
            acc[row, g, lane] + a[row, g, k, q].astype("int32") * b[k, g, lane, q].astype("int32"),
        ),
        emits=MicroKernel("grouped_dot", (rows, block, group, row_stride)),
    )  # fmt: skip


@lru_cache(maxsize=1024)
def lane_product(rows: int, lanes: int, row_stride: int) -> TensorIntrinsic:
    """``acc[r, l] += sum of a[r, l, q] * b[l, q]`` over four bytes q: uint8 times int8, into int32. Each lane has data
    of its own."""
    return tensor_intrinsic(
        _name("lane_product", rows, lanes, row_stride),
        operands=[
            tile("acc", (rows, lanes), "int32", REGISTER, "inout", align=1),
            tile("a", (rows, lanes, QUAD), "uint8", "global", "in", strides=(row_stride, QUAD, 1), align=1),
            tile("b", (lanes, QUAD), "int8", "global", "in", align=1),
        ],
        loops={"row": rows, "lane": lanes, "q": QUAD},
        meaning=lambda acc, a, b, row, lane, q: acc.store(
            (row, lane), acc[row, lane] + a[row, lane, q].astype("int32") * b[lane, q].astype("int32")
        ),
        emits=MicroKernel("lane_product", (rows, lanes, row_stride)),
    )


@lru_cache(maxsize=1024)
def interleaved(size: int, stride: int) -> TensorIntrinsic:
    """``out[i, j] = a[j, i]``, float32, of two rows ``stride`` elements apart: one element of each in turn."""
    return _interleaved("interleaved", "float32", 2, size, stride)


@lru_cache(maxsize=1024)
def interleaved_bytes(size: int, stride: int) -> TensorIntrinsic:
    """As ``interleaved``, of four rows of int8."""
    return _interleaved("interleaved_bytes", "int8", QUAD, size, stride)


@lru_cache(maxsize=1024)
def interleaved_halves(size: int, stride: int) -> TensorIntrinsic:
    """As ``interleaved``, of two rows of bfloat16."""
    return _interleaved("interleaved_halves", "bfloat16", PAIR, size, stride)


def _interleaved(kind: str, dtype: DType, rows: int, size: int, stride: int) -> TensorIntrinsic:
    return tensor_intrinsic(
        _name(kind, size, stride),
        operands=[
            tile("out", (size, rows), dtype, "global", "out", align=1),
            tile("a", (rows, size), dtype, "global", "in", strides=(stride, 1), align=1),
        ],
        loops={"i": size, "j": rows},
        meaning=lambda out, a, i, j: out.store((i, j), a[j, i]),
        emits=MicroKernel(kind, (size, stride)),
    )


@lru_cache(maxsize=1024)
def transposed_tile(size: int, out_stride: int, stride: int) -> TensorIntrinsic:
    """``out[i, j] = a[j, i]``, float32, ``size`` a power of two; strides (elements) of the rows of both."""
    return _transposed("transposed_tile", "float32", size, out_stride, stride)


@lru_cache(maxsize=1024)
def transposed_bytes(size: int, out_stride: int, stride: int) -> TensorIntrinsic:
    """As ``transposed_tile``, of int8."""
    return _transposed("transposed_bytes", "int8", size, out_stride, stride)


@lru_cache(maxsize=1024)
def transposed_halves(size: int, out_stride: int, stride: int) -> TensorIntrinsic:
    """As ``transposed_tile``, of bfloat16."""
    return _transposed("transposed_halves", "bfloat16", size, out_stride, stride)


@lru_cache(maxsize=1024)
def transposed_pairs(size: int, out_stride: int, stride: int) -> TensorIntrinsic:
    """As ``transposed_tile``, of pairs of bfloat16: ``out[i, j, q] = a[j, i, q]``."""
    return tensor_intrinsic(
        _name("transposed_pairs", size, out_stride, stride),
        operands=[
            tile("out", (size, size, PAIR), "bfloat16", "global", "out", strides=(out_stride, PAIR, 1), align=1),
            tile("a", (size, size, PAIR), "bfloat16", "global", "in", strides=(stride, PAIR, 1), align=1),
        ],
        loops={"i": size, "j": size, "q": PAIR},
        meaning=lambda out, a, i, j, q: out.store((i, j, q), a[j, i, q]),
        emits=MicroKernel("transposed_pairs", (size, out_stride, stride)),
    )


def _transposed(kind: str, dtype: DType, size: int, out_stride: int, stride: int) -> TensorIntrinsic:
    return tensor_intrinsic(
        _name(kind, size, out_stride, stride),
        operands=[
            tile("out", (size, size), dtype, "global", "out", strides=(out_stride, 1), align=1),
            tile("a", (size, size), dtype, "global", "in", strides=(stride, 1), align=1),
        ],
        loops={"i": size, "j": size},
        meaning=lambda out, a, i, j: out.store((i, j), a[j, i]),
        emits=MicroKernel(kind, (size, out_stride, stride)),
    )


KINDS: dict[str, tuple[Callable[..., TensorIntrinsic], int]] = {
    "outer_product": (outer_product, 3),
    "dot_product": (dot_product, 3),
    "paired_dot_product": (paired_dot_product, 4),
    "word_product": (word_product, 3),
    "element_product": (element_product, 3),
    "window_product": (window_product, 8),
    "pair_product": (pair_product, 3),
    "grouped_product": (grouped_product, 4),
    "grouped_dot": (grouped_dot, 4),
    "lane_product": (lane_product, 3),
    "interleaved": (interleaved, 2),
    "interleaved_bytes": (interleaved_bytes, 2),
    "interleaved_halves": (interleaved_halves, 2),
    "transposed_tile": (transposed_tile, 3),
    "transposed_bytes": (transposed_bytes, 3),
    "transposed_halves": (transposed_halves, 3),
    "transposed_pairs": (transposed_pairs, 3),
}
"""Functions that make intrinsics, and how many numbers each takes."""


@lru_cache(maxsize=1024)
def intrinsic_named(name: str) -> TensorIntrinsic:
    """The intrinsic of this name. IRError if there is none, or if its numbers are none that code can be made for."""
    match = re.fullmatch(r"([a-z_]+?)_([1-9][0-9]{0,8}(?:_[1-9][0-9]{0,8})*)", name, re.ASCII)
    if match is None or match[1] not in KINDS:
        raise IRError(f"the CPU has no intrinsic {name!r}", hint=f"it has {', '.join(KINDS)}, and their numbers")
    kind, numbers = match[1], tuple(map(int, match[2].split("_")))
    make, count = KINDS[kind]
    if len(numbers) != count or not _is_possible(kind, numbers):
        raise IRError(f"no code can be made for intrinsic {name!r}")
    return make(*numbers)


def _is_possible(kind: str, numbers: tuple[int, ...]) -> bool:
    if kind.startswith("interleaved"):
        return numbers[0] <= LARGEST_TILE // QUAD
    if kind.startswith("transposed_"):
        return numbers[0] in (2, 4, 8, 16, 32)
    if kind in ("grouped_product", "grouped_dot"):
        _, block, group, _ = numbers
        whole = group if kind == "grouped_product" else group // QUAD * QUAD
        powers = block & (block - 1) == 0 and group & (group - 1) == 0
        return powers and whole == group < block <= LARGEST_TILE and prod(numbers[:2]) <= LARGEST_TILE
    if kind == "window_product":
        return prod(numbers[:3]) <= LARGEST_TILE and numbers[3] <= PAIR
    if kind == "paired_dot_product":
        rows, lanes, _, acc_stride = numbers
        return lanes <= acc_stride and rows * acc_stride <= LARGEST_TILE
    return prod(numbers[:2]) <= LARGEST_TILE


def _name(kind: str, *numbers: int) -> str:
    return "_".join((kind, *map(str, numbers)))
