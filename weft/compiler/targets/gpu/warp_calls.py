"""Calls of intrinsics that a warp does together (`intrinsics.py`), as LLVM IR for NVIDIA's processors.

What a lane holds of a tile lies in its part of the buffer (`phases.py`) without the digits of the lane: the next eight
rows are the next row of the part, and the next four words of a row its next word.
"""

from __future__ import annotations

from collections.abc import Sequence

import llvmlite.ir as ll

from ...tensor.evaluate import ITEM_BYTES
from ...tensor.ir import BinOp, DType, IntrinsicCall, Region
from ..errors import CompileError
from ..llvm.expressions import Expressions
from ..llvm.llvm_types import FLOAT, HALF, I32, I64, MEMORY_TYPES, Value, declared
from .intrinsics import COLUMNS, MATRIX_BYTES, MATRIX_ROWS, WORD, WarpStep

_OPERANDS: dict[DType, tuple[str, ll.Type]] = {
    "int8": ("s8", I32), "float16": ("f32.f32", ll.VectorType(HALF, 2)), "bfloat16": ("bf16", I32),
    "float32": ("tf32", FLOAT),
}  # fmt: skip
"""What LLVM calls a product of operands of a type, and how it takes a register of them."""


def emit_warp_call(expressions: Expressions, call: IntrinsicCall, lane: Value) -> None:
    """The instruction for a call; ``lane``: the number of the thread in its warp (32 bits)."""
    step = call.intrinsic.emits
    if not isinstance(step, WarpStep) or (call.init is not None and (call.init or not step.fills)):
        raise CompileError(f"{call.intrinsic.name!r} has no code in PTX", at=f"block {call.block!r}")
    if step.kind == "mma":
        _multiply(expressions, call, step)
    elif step.kind == "reduce":
        _reduce(expressions, call, step)
    else:
        _load(expressions, call, step, lane)


def _multiply(expressions: Expressions, call: IntrinsicCall, step: WarpStep) -> None:
    builder, halves = expressions.builder, step.rows // MATRIX_ROWS
    words = step.depth * ITEM_BYTES[step.dtype] // MATRIX_BYTES
    each = WORD // ITEM_BYTES[step.dtype]
    acc, left, right = (call.operand(name) for name in ("acc", "a", "b"))
    pairs = COLUMNS // 4
    sums = _registers(expressions, acc, [(half, place) for half in range(halves) for place in range(pairs)])
    a = _registers(expressions, left, [(half, word * each) for word in range(words) for half in range(halves)])
    b = _registers(expressions, right, [(0, word * each) for word in range(words)])
    kind = MEMORY_TYPES[acc.buffer.dtype]
    suffix, operand = _OPERANDS[step.dtype]
    values = [builder.load(pointer, typ=operand, align=WORD) for pointer in (*a, *b)]
    if step.dtype == "float32":  # tensor cores would drop the digits beyond, not round them
        nearest = declared(builder.module, "llvm.nvvm.f2tf32.rna", ll.FunctionType(I32, [FLOAT]))
        values = [builder.call(nearest, [value]) for value in values]
    values += [builder.load(pointer, typ=kind, align=WORD) for pointer in sums]
    name = f"llvm.nvvm.mma.m{step.rows}n{COLUMNS}k{step.depth}.row.col.{suffix}"
    made = _call(expressions, name, [kind] * len(sums), values)
    for pointer, value in zip(sums, made, strict=True):
        builder.store(value, pointer, align=WORD)


def _load(expressions: Expressions, call: IntrinsicCall, step: WarpStep, lane: Value) -> None:
    """Lane ``8 m + r`` has the address of row ``r`` of matrix ``m``: eight rows after the other, then 16 bytes on; by
    rows the other way round. Of what lies turned, rows of 16 bytes are along the tile's rows. The registers of a matrix
    follow each other, as a product needs them: else the assembler would move them."""
    builder, halves = expressions.builder, step.rows // MATRIX_ROWS
    size = ITEM_BYTES[step.dtype]
    words = step.depth * size // MATRIX_BYTES
    source, target = call.operand("src"), call.operand("dst")
    matrix = builder.udiv(lane, ll.Constant(I32, MATRIX_ROWS))
    inner, outer = (words, halves) if step.by_rows else (halves, words)
    low = builder.and_(matrix, ll.Constant(I32, inner - 1))
    high = builder.and_(builder.udiv(matrix, ll.Constant(I32, inner)), ll.Constant(I32, outer - 1))
    word, half = (low, high) if step.by_rows else (high, low)
    down, across = (word, half) if step.turned else (half, word)  # matrices of eight rows, and of 16 bytes
    row = builder.add(builder.and_(lane, ll.Constant(I32, MATRIX_ROWS - 1)),
                      builder.mul(down, ll.Constant(I32, MATRIX_ROWS)))  # fmt: skip
    place = builder.add(builder.mul(row, ll.Constant(I32, source.strides[0])),
                        builder.mul(across, ll.Constant(I32, MATRIX_BYTES // size)))  # fmt: skip
    start, known, _ = expressions.position(source.buffer, source.indices)
    address = builder.gep(expressions.address(source.buffer, start, known), [builder.zext(place, I64)], inbounds=True,
                          source_etype=MEMORY_TYPES[source.buffer.dtype])  # fmt: skip
    kind = f"x{halves * words}{'.trans' if step.turned else ''}"
    name = f"llvm.nvvm.ldmatrix.sync.aligned.m8n8.{kind}.b16.p3"
    made = _call(expressions, name, [I32] * (halves * words), [address])
    each = WORD // size
    places = [(half, word * each) for word in range(words) for half in range(halves)]
    if step.by_rows:
        places.sort()
    for pointer, value in zip(_registers(expressions, target, places), made, strict=True):
        builder.store(value, pointer, align=WORD)


def _reduce(expressions: Expressions, call: IntrinsicCall, step: WarpStep) -> None:
    """Lanes exchange elements with those whose numbers differ in one digit, until all know of all."""
    builder, dtype = expressions.builder, step.dtype
    store = call.intrinsic.store
    assert isinstance(store.value, BinOp)
    kind, size = MEMORY_TYPES[dtype], ITEM_BYTES[dtype]
    source, target = (_element(expressions, call.operand(name)) for name in ("src", "dst"))
    value = builder.load(source, typ=kind, align=size)
    name = f"llvm.nvvm.shfl.sync.bfly.{'f32' if dtype == 'float32' else 'i32'}"
    exchange = declared(builder.module, name, ll.FunctionType(kind, [I32, kind, I32, I32]))
    distance = step.depth // 2
    while distance:
        numbers = [ll.Constant(I32, each) for each in (-1, distance, step.depth - 1)]
        other = builder.call(exchange, [numbers[0], value, *numbers[1:]])
        value = expressions.operator(store.value.op, value, other, dtype)
        distance //= 2
    if call.init_value is not None:
        before = expressions.value(call.init_value)
    else:
        before = builder.load(target, typ=kind, align=size)
    builder.store(expressions.operator(store.value.op, before, value, dtype), target, align=size)


def _element(expressions: Expressions, region: Region) -> Value:
    """Pointer to the only element of a tile that a lane holds."""
    start, known, _ = expressions.position(region.buffer, region.indices)
    return expressions.address(region.buffer, start, known)


def _registers(expressions: Expressions, region: Region, places: Sequence[tuple[int, int]]) -> list[Value]:
    """Pointers to registers of a lane's part of a tile, by row and column."""
    start, known, _ = expressions.position(region.buffer, region.indices)
    down, across = expressions.memory[region.buffer.name].strides[-2:]
    return [expressions.address(region.buffer, start, known + row * down + column * across) for row, column in places]


def _call(expressions: Expressions, name: str, results: list[ll.Type], arguments: list[Value]) -> list[Value]:
    kind = ll.FunctionType(ll.LiteralStructType(results), [each.type for each in arguments])
    made = expressions.builder.call(declared(expressions.builder.module, name, kind), arguments)
    return [expressions.builder.extract_value(made, number) for number in range(len(results))]
