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
from .emit import Emitter
from .functions import multiply_add
from .values import FLOAT, I8, I32, Value, add, declared, splat

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

