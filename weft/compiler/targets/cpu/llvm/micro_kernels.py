"""Machine code of the CPU's tensor intrinsics: a few instructions on whole registers.

Each function takes the numbers of the intrinsic's name (see ``cpu.intrinsics``); how many lanes a register has is the
emitter's processor's.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import prod

import llvmlite.ir as ll

from ....tensor.evaluate import ITEM_BYTES
from ....tensor.ir import IntrinsicCall
from ...llvm.llvm_types import BFLOAT, FLOAT, I8, I16, I32, I64, POINTER, Value, add, constant, declared, splat
from ...llvm.math_functions import multiply_add
from ...loops.layouts import PAIR, QUAD
from ...loops.nests import position_of
from ..intrinsics import MicroKernel
from ..processor import FLOAT_BYTES
from ..tiles import Held, held_registers, pieces
from .byte_products import byte_form, long_step, picked, shuffled, word_step
from .loop_emitter import LoopEmitter

PAIR_LANES = (4, 8, 16)
"""Lanes for which AVX512_BF16 has an instruction."""


AHEAD = 8192
"""Bytes between what a step multiplies and what it brings nearer: some hundred steps, or more cycles than memory needs,
and less than the first-level cache has room for."""

MULTIPLIES_A_LINE = 5
"""Multiplications of registers that a step has for each line that it brings nearer, at least: with fewer, units that
load have no time to spare."""


def emit_micro_kernel(emitter: LoopEmitter, call: IntrinsicCall, kernel: MicroKernel) -> None:
    """The instructions of one call."""
    if kernel.kind in STREAMING:
        _bring_nearer(emitter, call)
    _EMITTERS[kernel.kind](emitter, call, *kernel.numbers)


def _bring_nearer(emitter: LoopEmitter, call: IntrinsicCall) -> None:
    """Prefetch the second operand, where steps read it one behind the other and the first-level cache does not hold it.
    Processors see streams themselves, but not before each of them, and a stream ends where the next tile begins."""
    region, near = call.operand("b"), emitter.target.nearest
    if not emitter.target.prefetches or not call.reduce_vars:
        return
    nbytes = ITEM_BYTES[region.buffer.dtype]
    step = prod(region.shape) * nbytes
    follows = position_of(region.buffer, region.indices).terms.get(call.reduce_vars[-1]) == prod(region.shape)
    sums = prod(call.operand("acc").shape) * FLOAT_BYTES // emitter.target.vector_bytes
    lines = range(0, step, near.line)
    if not follows or region.buffer.size * nbytes <= near.nbytes or sums < MULTIPLIES_A_LINE * len(lines):
        return
    builder = emitter.builder
    kind = ll.FunctionType(ll.VoidType(), [POINTER, I32, I32, I32])
    function = declared(builder.module, "llvm.prefetch.p0", kind)
    start = _pointer(emitter, call, "b", 0, I8)
    reads, to_the_nearest, data = (ll.Constant(I32, each) for each in (0, 3, 1))
    for line in lines:
        place = builder.gep(start, [ll.Constant(I64, AHEAD + line)], source_etype=I8)  # may lie behind the buffer
        builder.call(function, [place, reads, to_the_nearest, data])


def _outer_product(emitter: LoopEmitter, call: IntrinsicCall, rows: int, lanes: int, row_stride: int) -> None:
    """In the order in which there are registers for all that a step needs again (`Held`)."""
    builder = emitter.builder
    registers = _registers(emitter, lanes)
    held = held_registers(rows, len(registers), emitter.target) or Held(len(registers))

    def value(row: int) -> Value:
        return _load(emitter, call, "a", row * row_stride, 0, FLOAT)

    def weight(place: int) -> Value:
        first, count = registers[place]
        return _load(emitter, call, "b", first, count, FLOAT)

    def multiply(row: int, place: int, value: Value, weight: Value) -> None:
        first, count = registers[place]
        pointer = _pointer(emitter, call, "acc", row * lanes + first, FLOAT)
        before = builder.load(pointer, align=4, typ=ll.VectorType(FLOAT, count))
        builder.store(multiply_add(builder, splat(builder, value, count), weight, before), pointer, align=4)

    if held.values:
        values = [value(row) for row in range(rows)]
        for place in range(len(registers)):
            loaded = weight(place)
            for row in range(rows):
                multiply(row, place, values[row], loaded)
        return
    weights = [weight(place) for place in range(held.weights)]
    origin = _pointer(emitter, call, "b", 0, FLOAT)
    for row in range(rows):
        factor = value(row)
        for place, loaded in enumerate(weights):
            multiply(row, place, factor, loaded)
        for place, (first, count) in enumerate(registers[held.weights :], held.weights):
            # LLVM must not see that it is the same in each row: it would take a register for it.
            origin = builder.asm(ll.FunctionType(POINTER, [POINTER]), "", "=r,0", [origin], side_effect=False)
            again = builder.gep(origin, [ll.Constant(I64, first)], source_etype=FLOAT)
            multiply(row, place, factor, builder.load(again, align=4, typ=ll.VectorType(FLOAT, count)))


def _dot_product(
    paired: bool, emitter: LoopEmitter, call: IntrinsicCall, rows: int, lanes: int, row_stride: int, acc_stride: int = 0
) -> None:
    builder = emitter.builder
    registers = _registers(emitter, lanes)
    forms = [byte_form(emitter.target, count, paired=paired) for _, count in registers]
    values = [builder.load(_pointer(emitter, call, "a", row * row_stride, I8), align=1, typ=I32) for row in range(rows)]
    weights = [_load(emitter, call, "b", first * QUAD, count * QUAD, I8) for first, count in registers]
    turns = [(row, place) for row in range(rows) for place in range(len(registers))]
    if any(form.prepares_weights for form in forms):  # which take registers of their own, for as short as possible
        turns.sort(key=lambda turn: turn[1])
    for row, place in turns:
        first, count = registers[place]
        target = _pointer(emitter, call, "acc", row * (acc_stride or lanes) + first, I32)
        before = builder.load(target, align=4, typ=ll.VectorType(I32, count))
        builder.store(forms[place].step(builder, before, values[row], weights[place]), target, align=4)


def _pair_product(emitter: LoopEmitter, call: IntrinsicCall, rows: int, lanes: int, row_stride: int) -> None:
    builder = emitter.builder
    weights = [_load(emitter, call, "b", first * PAIR, count, I32) for first, count in _registers(emitter, lanes)]
    for row in range(rows):
        value = _load(emitter, call, "a", row * row_stride, 0, I32)
        for (first, count), weight in zip(_registers(emitter, lanes), weights, strict=True):
            target = _pointer(emitter, call, "acc", row * lanes + first, FLOAT)
            before = builder.load(target, align=4, typ=ll.VectorType(FLOAT, count))
            step = _bf16 if emitter.target.pairs and count in PAIR_LANES else _by_widening
            builder.store(step(builder, before, splat(builder, value, count), weight), target, align=4)


def _word_product(emitter: LoopEmitter, call: IntrinsicCall, rows: int, lanes: int, row_stride: int) -> None:
    builder = emitter.builder
    registers = _registers(emitter, lanes)
    weights = [_load(emitter, call, "b", first * PAIR, count * PAIR, I16) for first, count in registers]
    for row in range(rows):
        pointer = _pointer(emitter, call, "a", row * row_stride, I16)
        value = builder.load(pointer, align=2, typ=I32)
        for (first, count), weight in zip(registers, weights, strict=True):
            target = _pointer(emitter, call, "acc", row * lanes + first, I32)
            before = builder.load(target, align=4, typ=ll.VectorType(I32, count))
            builder.store(word_step(emitter.target, builder, before, value, weight), target, align=4)


def _element_product(emitter: LoopEmitter, call: IntrinsicCall, rows: int, lanes: int, row_stride: int) -> None:
    builder = emitter.builder
    values = [_load(emitter, call, "a", row * row_stride, QUAD, I16) for row in range(rows)]
    for q in range(QUAD):
        for first, count in _registers(emitter, lanes):
            weight = _load(emitter, call, "b", q * lanes + first, count, I16)
            for row, value in enumerate(values):
                target = _pointer(emitter, call, "acc", row * lanes + first, I32)
                before = builder.load(target, align=4, typ=ll.VectorType(I32, count))
                data = picked(builder, value, [q] * count)
                builder.store(long_step(emitter.target, builder, before, data, weight), target, align=4)


def _window_product(
    emitter: LoopEmitter, call: IntrinsicCall, rows: int, lanes: int, taps: int, depth: int, row_stride: int,
    tap_stride: int, depth_stride: int, weight_stride: int,
) -> None:  # fmt: skip
    """By columns of data, each of which several pixels take with weights of their own."""
    builder = emitter.builder
    columns: dict[int, list[tuple[int, int]]] = {}
    for row in range(rows):
        for tap in range(taps):
            columns.setdefault(row * row_stride + tap * tap_stride, []).append((row, tap))
    for first, count in _registers(emitter, lanes):
        words, wide = ll.VectorType(I16, count * PAIR), ll.VectorType(I32, count)
        weights = [_load(emitter, call, "b", tap * weight_stride + first * depth, count * depth, I16)
                   for tap in range(taps)]  # fmt: skip
        if depth == 1:
            weights = [builder.bitcast(builder.sext(weight, wide), words) for weight in weights]
        pointers = [_pointer(emitter, call, "acc", row * lanes + first, I32) for row in range(rows)]
        sums = [builder.load(pointer, align=4, typ=wide) for pointer in pointers]
        for offset in sorted(columns):
            upper = _load(emitter, call, "a", offset + first, count, I8)
            if depth == 1:
                value = builder.bitcast(builder.zext(upper, wide), words)
            else:
                lower = _load(emitter, call, "a", offset + depth_stride + first, count, I8)
                places = [place + part for place in range(count) for part in (0, count)]
                value = builder.zext(shuffled(builder, upper, lower, places), words)
            for row, tap in columns[offset]:
                sums[row] = word_step(emitter.target, builder, sums[row], value, weights[tap])
        for pointer, total in zip(pointers, sums, strict=True):
            builder.store(total, pointer, align=4)


def _grouped_product(
    emitter: LoopEmitter, call: IntrinsicCall, rows: int, block: int, group: int, row_stride: int
) -> None:
    builder = emitter.builder
    for first, lanes in _registers(emitter, block):
        start = first // group * group  # of the group with which the piece begins
        taken = max(lanes, group)
        values = [_load(emitter, call, "a", row * row_stride + start, taken, FLOAT) for row in range(rows)]
        for k in range(group):
            weight = _load(emitter, call, "b", k * block + first, lanes, FLOAT)
            places = [(first + lane - start) // group * group + k for lane in range(lanes)]
            for row, value in enumerate(values):
                pointer = _pointer(emitter, call, "acc", row * block + first, FLOAT)
                before = builder.load(pointer, align=4, typ=ll.VectorType(FLOAT, lanes))
                after = multiply_add(builder, picked(builder, value, places), weight, before)
                builder.store(after, pointer, align=4)


def _grouped_dot(emitter: LoopEmitter, call: IntrinsicCall, rows: int, block: int, group: int, row_stride: int) -> None:
    quads = group // QUAD
    builder = emitter.builder
    for first, lanes in _registers(emitter, block):
        step = byte_form(emitter.target, lanes).step
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
                builder.store(step(builder, before, picked(builder, value, places), weight), target, align=4)


def _lane_product(emitter: LoopEmitter, call: IntrinsicCall, rows: int, lanes: int, row_stride: int) -> None:
    builder = emitter.builder
    for first, count in _registers(emitter, lanes):
        step = byte_form(emitter.target, count).step
        weight = _load(emitter, call, "b", first * QUAD, count * QUAD, I8)
        for row in range(rows):
            pointer = _pointer(emitter, call, "a", row * row_stride + first * QUAD, I8)
            value = builder.load(pointer, align=1, typ=ll.VectorType(I32, count))
            target = _pointer(emitter, call, "acc", row * lanes + first, I32)
            before = builder.load(target, align=4, typ=ll.VectorType(I32, count))
            builder.store(step(builder, before, value, weight), target, align=4)


def _interleaved(
    kind: ll.Type, count: int, align: int, emitter: LoopEmitter, call: IntrinsicCall, size: int, stride: int
) -> None:
    rows = [_load(emitter, call, "a", row * stride, size, kind) for row in range(count)]
    while len(rows) > 1:  # the first half of the rows between the second one
        half = len(rows) // 2
        total = rows[0].type.count
        places = [place + part for place in range(total) for part in (0, total)]
        rows = [shuffled(emitter.builder, rows[row], rows[row + half], places) for row in range(half)]
    emitter.builder.store(rows[0], _pointer(emitter, call, "out", 0, kind), align=align)


def _transposed(
    kind: ll.Type, align: int, emitter: LoopEmitter, call: IntrinsicCall, size: int, out_stride: int, stride: int
) -> None:
    builder = emitter.builder
    rows = [_load(emitter, call, "a", row * stride, size, kind) for row in range(size)]
    step = size // 2
    while step:  # the upper right and the lower left quarter of each square of 2 * step change places
        for row in range(size):
            if not row & step:
                pair = rows[row], rows[row + step]
                first = [lane if not lane & step else size + lane - step for lane in range(size)]
                second = [lane + step if not lane & step else size + lane for lane in range(size)]
                rows[row], rows[row + step] = (shuffled(builder, *pair, places) for places in (first, second))
        step //= 2
    for row, value in enumerate(rows):
        builder.store(value, _pointer(emitter, call, "out", row * out_stride, kind), align=align)


_EMITTERS: dict[str, Callable[..., None]] = {
    "outer_product": _outer_product,
    "dot_product": partial(_dot_product, False),
    "paired_dot_product": partial(_dot_product, True),
    "word_product": _word_product,
    "element_product": _element_product,
    "window_product": _window_product,
    "pair_product": _pair_product,
    "grouped_product": _grouped_product,
    "grouped_dot": _grouped_dot,
    "lane_product": _lane_product,
    "interleaved": partial(_interleaved, FLOAT, 2, 4),
    "interleaved_bytes": partial(_interleaved, I8, QUAD, 1),
    "interleaved_halves": partial(_interleaved, I16, PAIR, 2),
    "transposed_tile": partial(_transposed, FLOAT, 4),
    "transposed_bytes": partial(_transposed, I8, 1),
    "transposed_halves": partial(_transposed, I16, 2),
    "transposed_pairs": partial(_transposed, I32, 2),
}

STREAMING = {"outer_product", "dot_product", "paired_dot_product", "word_product", "element_product", "pair_product"}
"""Those that read a register or more of their second operand in each step."""


def _registers(emitter: LoopEmitter, lanes: int) -> list[tuple[int, int]]:
    """(first lane, count) of the registers that hold ``lanes``."""
    return pieces(lanes, emitter.target.float_lanes)


def _pointer(emitter: LoopEmitter, call: IntrinsicCall, operand: str, offset: int, kind: ll.Type) -> Value:
    region = call.operand(operand)
    start, known, _ = emitter.expressions.position(region.buffer, region.indices)
    return emitter.expressions.address(region.buffer, start, add(emitter.builder, known, offset))


def _load(emitter: LoopEmitter, call: IntrinsicCall, operand: str, offset: int, lanes: int, kind: ll.Type) -> Value:
    """``lanes`` values of ``kind`` in a row (0: one scalar), ``offset`` elements of the operand behind its start."""
    wanted = ll.VectorType(kind, lanes) if lanes else kind
    pointer = _pointer(emitter, call, operand, offset, kind)
    return emitter.builder.load(pointer, align=ITEM_BYTES[call.operand(operand).buffer.dtype], typ=wanted)


def _bf16(builder: ll.IRBuilder, acc: Value, value: Value, weight: Value) -> Value:
    lanes = acc.type.count
    pairs = ll.VectorType(BFLOAT, lanes * PAIR)
    kind = ll.FunctionType(acc.type, [acc.type, pairs, pairs])
    function = declared(builder.module, f"llvm.x86.avx512bf16.dpbf16ps.{lanes * 32}", kind)
    return builder.call(function, [acc, builder.bitcast(value, pairs), builder.bitcast(weight, pairs)])


def _by_widening(builder: ll.IRBuilder, acc: Value, value: Value, weight: Value) -> Value:
    """The same in multiply-adds of float32, in the same order; numbers below 2**-126 stay what they are."""
    lanes = acc.type.count

    def upper(pairs: Value) -> Value:
        return builder.bitcast(builder.and_(pairs, constant(I32, -65536, lanes)), acc.type)

    def lower(pairs: Value) -> Value:
        return builder.bitcast(builder.shl(pairs, constant(I32, 16, lanes)), acc.type)

    for part in (upper, lower):
        acc = multiply_add(builder, part(value), part(weight), acc)
    return acc
