"""Micro-kernel steps of the CPU as tensor intrinsics: one outer product of float32, one dot product of bytes by fours.

Accumulators live in scope ``register``: a buffer on the stack of which every index is constant, which LLVM keeps in
vector registers through all loops of a reduction. One step is ``rows x lanes`` accumulators wide; the reduction's loops
stand around it.
"""

from __future__ import annotations

from functools import cache

import llvmlite.ir as ll

from ...tensor.intrinsic import tensor_intrinsic, tile
from ...tensor.ir import IntrinsicCall, TensorIntrinsic
from .llvm.emit import Emitter
from .llvm.llvm_types import FLOAT, I8, I32, Value, add, declared, splat
from .llvm.math_functions import multiply_add

REGISTER = "register"
"""Scope of accumulators."""

VNNI_LANES = (4, 8, 16)
"""Lanes for which AVX-512 VNNI has an instruction."""

QUAD = 4
"""Bytes that one lane of a dot product multiplies and adds up."""


@cache
def outer_product(rows: int, lanes: int, row_stride: int, width: int) -> TensorIntrinsic:
    """``acc[r, l] += a[r] * b[l]``, float32.

    ``row_stride``: elements from a row's value to the next; ``width``: lanes of a register.
    """

    def emits(emitter: Emitter, call: IntrinsicCall) -> None:
        builder = emitter.builder
        weights = [_load(emitter, call, "b", first, count, FLOAT) for first, count in pieces(lanes, width)]
        for row in range(rows):
            value = _load(emitter, call, "a", row * row_stride, 0, FLOAT)
            for (first, count), weight in zip(pieces(lanes, width), weights, strict=True):
                pointer = _pointer(emitter, call, "acc", row * lanes + first, FLOAT)
                kind = ll.VectorType(FLOAT, count)
                before = builder.load(pointer, align=4, typ=kind)
                after = multiply_add(builder, splat(builder, value, count), weight, before)
                builder.store(after, pointer, align=4)

    return tensor_intrinsic(
        f"outer_product_{rows}x{lanes}_{row_stride}",
        operands=[
            tile("acc", (rows, lanes), "float32", REGISTER, "inout", align=1),
            tile("a", (rows,), "float32", "global", "in", strides=(row_stride,), align=1),
            tile("b", (lanes,), "float32", "global", "in", align=1),
        ],
        loops={"row": rows, "lane": lanes},
        meaning=lambda acc, a, b, row, lane: acc.store((row, lane), acc[row, lane] + a[row] * b[lane]),
        emits=emits,
    )


@cache
def dot_product(rows: int, lanes: int, row_stride: int, width: int, machine: bool) -> TensorIntrinsic:
    """``acc[r, l] += sum of a[r, q] * b[l, q]`` over four bytes q: uint8 times int8, into int32.

    ``machine``: whether the processor does this in one instruction; else it is put together from multiplications.
    """

    def emits(emitter: Emitter, call: IntrinsicCall) -> None:
        builder = emitter.builder
        weights = [_load(emitter, call, "b", first * QUAD, count * QUAD, I8) for first, count in pieces(lanes, width)]
        for row in range(rows):
            pointer = _pointer(emitter, call, "a", row * row_stride, I8)
            value = builder.load(pointer, align=1, typ=I32)
            for (first, count), weight in zip(pieces(lanes, width), weights, strict=True):
                target = _pointer(emitter, call, "acc", row * lanes + first, I32)
                before = builder.load(target, align=4, typ=ll.VectorType(I32, count))
                step = _vnni if machine and count in VNNI_LANES else _by_products
                builder.store(step(builder, before, splat(builder, value, count), weight), target, align=4)

    return tensor_intrinsic(
        f"dot_product_{rows}x{lanes}_{row_stride}",
        operands=[
            tile("acc", (rows, lanes), "int32", REGISTER, "inout", align=1),
            tile("a", (rows, QUAD), "uint8", "global", "in", strides=(row_stride, 1), align=1),
            tile("b", (lanes, QUAD), "int8", "global", "in", align=1),
        ],
        loops={"row": rows, "lane": lanes, "q": QUAD},
        meaning=lambda acc, a, b, row, lane, q: acc.store(
            (row, lane), acc[row, lane] + a[row, q].astype("int32") * b[lane, q].astype("int32")
        ),
        emits=emits,
    )


@cache
def grouped_product(rows: int, block: int, group: int, row_stride: int, width: int) -> TensorIntrinsic:
    """``acc[r, g, l] += sum of a[r, g, k] * b[k, g, l]`` over the ``group`` values k of a group, float32: a block of
    channels is ``g x l``, several groups that each make as many channels as they take."""
    count = block // group

    def emits(emitter: Emitter, call: IntrinsicCall) -> None:
        builder = emitter.builder
        for first, lanes in pieces(block, width):
            start = first // group * group  # of the group with which the piece begins
            taken = max(lanes, group)
            values = [_load(emitter, call, "a", row * row_stride + start, taken, FLOAT) for row in range(rows)]
            for k in range(group):
                weight = _load(emitter, call, "b", k * block + first, lanes, FLOAT)
                places = [(first + lane - start) // group * group + k for lane in range(lanes)]
                for row, value in enumerate(values):
                    pointer = _pointer(emitter, call, "acc", row * block + first, FLOAT)
                    before = builder.load(pointer, align=4, typ=ll.VectorType(FLOAT, lanes))
                    after = multiply_add(builder, _picked(builder, value, places), weight, before)
                    builder.store(after, pointer, align=4)

    return tensor_intrinsic(
        f"grouped_product_{rows}x{block}_{group}_{row_stride}",
        operands=[
            tile("acc", (rows, count, group), "float32", REGISTER, "inout", align=1),
            tile("a", (rows, count, group), "float32", "global", "in", strides=(row_stride, group, 1), align=1),
            tile("b", (group, count, group), "float32", "global", "in", align=1),
        ],
        loops={"row": rows, "k": group, "g": count, "lane": group},
        meaning=lambda acc, a, b, row, k, g, lane: acc.store(
            (row, g, lane), acc[row, g, lane] + a[row, g, k] * b[k, g, lane]
        ),
        emits=emits,
    )


@cache
def grouped_dot(rows: int, block: int, group: int, row_stride: int, width: int, machine: bool) -> TensorIntrinsic:
    """As ``grouped_product``, of bytes by fours as in ``dot_product``: a group is a multiple of four channels."""
    count, quads = block // group, group // QUAD

    def emits(emitter: Emitter, call: IntrinsicCall) -> None:
        builder = emitter.builder
        for first, lanes in pieces(block, width):
            step = _vnni if machine and lanes in VNNI_LANES else _by_products
            start = first // group * group  # of the group with which the piece begins
            taken = max(lanes, group) // QUAD
            values = []
            for row in range(rows):
                pointer = _pointer(emitter, call, "a", row * row_stride + start, I8)
                values.append(builder.load(pointer, align=1, typ=ll.VectorType(I32, taken)))
            for k in range(quads):
                weight = _load(emitter, call, "b", (k * block + first) * QUAD, lanes * QUAD, I8)
                places = [(first + lane - start) // group * quads + k for lane in range(lanes)]
                for row, value in enumerate(values):
                    target = _pointer(emitter, call, "acc", row * block + first, I32)
                    before = builder.load(target, align=4, typ=ll.VectorType(I32, lanes))
                    builder.store(step(builder, before, _picked(builder, value, places), weight), target, align=4)

    return tensor_intrinsic(
        f"grouped_dot_{rows}x{block}_{group}_{row_stride}",
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
        emits=emits,
    )  # fmt: skip


@cache
def interleaved(size: int, stride: int) -> TensorIntrinsic:
    """``out[i, j] = a[j, i]``, float32, of two rows ``stride`` elements apart: one element of each in turn."""

    def emits(emitter: Emitter, call: IntrinsicCall) -> None:
        rows = [_load(emitter, call, "a", row * stride, size, FLOAT) for row in range(2)]
        places = [place for lane in range(size) for place in (lane, size + lane)]
        value = _shuffled(emitter.builder, rows[0], rows[1], places)
        emitter.builder.store(value, _pointer(emitter, call, "out", 0, FLOAT), align=4)

    return tensor_intrinsic(
        f"interleaved_{size}_{stride}",
        operands=[
            tile("out", (size, 2), "float32", "global", "out", align=1),
            tile("a", (2, size), "float32", "global", "in", strides=(stride, 1), align=1),
        ],
        loops={"i": size, "j": 2},
        meaning=lambda out, a, i, j: out.store((i, j), a[j, i]),
        emits=emits,
    )


@cache
def transposed_tile(size: int, out_stride: int, stride: int) -> TensorIntrinsic:
    """``out[i, j] = a[j, i]``, float32, ``size`` a power of two; strides (elements) of the rows of both."""

    def emits(emitter: Emitter, call: IntrinsicCall) -> None:
        builder = emitter.builder
        rows = [_load(emitter, call, "a", row * stride, size, FLOAT) for row in range(size)]
        step = size // 2
        while step:  # the upper right and the lower left quarter of each square of 2 * step change places
            for row in range(size):
                if not row & step:
                    pair = rows[row], rows[row + step]
                    first = [lane if not lane & step else size + lane - step for lane in range(size)]
                    second = [lane + step if not lane & step else size + lane for lane in range(size)]
                    rows[row], rows[row + step] = (_shuffled(builder, *pair, places) for places in (first, second))
            step //= 2
        for row, value in enumerate(rows):
            builder.store(value, _pointer(emitter, call, "out", row * out_stride, FLOAT), align=4)

    return tensor_intrinsic(
        f"transposed_tile_{size}_{out_stride}_{stride}",
        operands=[
            tile("out", (size, size), "float32", "global", "out", strides=(out_stride, 1), align=1),
            tile("a", (size, size), "float32", "global", "in", strides=(stride, 1), align=1),
        ],
        loops={"i": size, "j": size},
        meaning=lambda out, a, i, j: out.store((i, j), a[j, i]),
        emits=emits,
    )


def pieces(lanes: int, width: int) -> list[tuple[int, int]]:
    """(first lane, count) of the registers that hold ``lanes``: whole ones, then smaller powers of two."""
    found: list[tuple[int, int]] = []
    done = 0
    while done < lanes:
        count = min(width, 1 << ((lanes - done).bit_length() - 1))
        found.append((done, count))
        done += count
    return found


def _pointer(emitter: Emitter, call: IntrinsicCall, operand: str, offset: int, kind: ll.Type) -> Value:
    region = call.operand(operand)
    start, known, _ = emitter.expressions.position(region.buffer, region.indices)
    return emitter.expressions.address(region.buffer, start, add(emitter.builder, known, offset))


def _load(emitter: Emitter, call: IntrinsicCall, operand: str, offset: int, lanes: int, kind: ll.Type) -> Value:
    """``lanes`` elements in a row (0: one scalar)."""
    wanted = ll.VectorType(kind, lanes) if lanes else kind
    pointer = _pointer(emitter, call, operand, offset, kind)
    return emitter.builder.load(pointer, align=1 if kind is I8 else 4, typ=wanted)


def _picked(builder: ll.IRBuilder, value: Value, places: list[int]) -> Value:
    """The elements of a vector at these places."""
    return _shuffled(builder, value, ll.Constant(value.type, ll.Undefined), places)


def _shuffled(builder: ll.IRBuilder, first: Value, second: Value, places: list[int]) -> Value:
    """Elements of two vectors, which are counted through."""
    mask = ll.Constant(ll.VectorType(I32, len(places)), [ll.Constant(I32, place) for place in places])
    return builder.shuffle_vector(first, second, mask)


def _vnni(builder: ll.IRBuilder, acc: Value, value: Value, weight: Value) -> Value:
    lanes = acc.type.count
    bits = lanes * 32
    byte = ll.VectorType(I8, lanes * QUAD)
    name = f"llvm.x86.avx512.vpdpbusd.{bits}"
    kind = ll.FunctionType(acc.type, [acc.type, byte, byte])
    return builder.call(declared(builder.module, name, kind), [acc, builder.bitcast(value, byte), weight])


def _by_products(builder: ll.IRBuilder, acc: Value, value: Value, weight: Value) -> Value:
    """The same in plain vector arithmetic, exact."""
    lanes = acc.type.count
    byte = ll.VectorType(I8, lanes * QUAD)
    wide = ll.VectorType(I32, lanes * QUAD)
    products = builder.mul(builder.zext(builder.bitcast(value, byte), wide), builder.sext(weight, wide))
    for part in range(QUAD):
        mask = ll.Constant(ll.VectorType(I32, lanes), [ll.Constant(I32, lane * QUAD + part) for lane in range(lanes)])
        acc = builder.add(acc, builder.shuffle_vector(products, ll.Constant(wide, ll.Undefined), mask))
    return acc

