"""Bytes of tables of 256, for all lanes at once, by instructions that pick bytes out of registers."""

from __future__ import annotations

from collections.abc import Callable

import llvmlite.ir as ll

from ...llvm.expressions import TABLE_BYTES
from ...llvm.llvm_types import I8, I64, Value, constant, declared, lanes_of
from ..processor import Processor
from .byte_products import picked, shuffled

FEWEST = 16
"""Of fewer lanes each reads its own byte of the table, unless one permutation does."""

PERMUTATION, PERMUTED = "llvm.x86.avx512.vpermi2var.qi.512", 64
"""What picks bytes out of two registers by seven bits of an index, and bytes of a register."""

ROW = 16
SHUFFLES = {16: "llvm.x86.ssse3.pshuf.b.128", 32: "llvm.x86.avx2.pshuf.b", 64: "llvm.x86.avx512.pshuf.b.512"}
"""By bytes of a register: what picks bytes out of each `ROW` of it, by four bits of an index that is not negative."""

TABLES = "llvm.aarch64.neon.tb{}4.v16i8"
"""What picks bytes out of four registers of `ROW` bytes. An index that is too large gives 0 (``l``), or leaves what was
there (``x``). In 32-bit ARM the same takes more instructions than loads: its registers do not hold the table."""

Form = Callable[[ll.IRBuilder, Value, Value], Value]
"""The table's address and a register of indices, to a register of its bytes."""


def table_form(target: Processor, lanes: int) -> tuple[Form, int] | None:
    """What makes bytes of so many lanes, and of how many at once. None: nothing is faster than a load for each.

    With registers of 16 bytes, shuffles take as long as loads do (SSE).
    """
    if target.permutes_bytes:
        return _by_permutation, PERMUTED
    if lanes < FEWEST:
        return None
    features = set(target.features.split(","))
    if "+avx2" in features:
        return _by_shuffles, max(size for size in SHUFFLES if size <= min(lanes, target.vector_bytes))
    if target.triple.startswith("aarch64") and "+neon" in features:
        return _by_tables, ROW
    return None


def looked_up(target: Processor, builder: ll.IRBuilder, table: Value, place: Value) -> Value | None:
    """Bytes of the table at ``place``, lanes of integers from 0 to 255; None where there is no form."""
    lanes = lanes_of(place)
    chosen = table_form(target, lanes)
    if chosen is None:
        return None
    form, width = chosen
    index = builder.trunc(place, ll.VectorType(I8, lanes))
    spread = [lane % lanes for lane in range(max(lanes, width))]
    parts = [form(builder, table, picked(builder, index, spread[at : at + width])) for at in range(0, lanes, width)]
    while len(parts) > 1:  # there are a power of two, as in every register of lanes
        parts = [_joined(builder, parts[at], parts[at + 1]) for at in range(0, len(parts), 2)]
    return picked(builder, parts[0], list(range(lanes)))


def _by_permutation(builder: ll.IRBuilder, table: Value, index: Value) -> Value:
    """Two permutations of two registers each; the highest bit chooses."""
    parts = _rows(builder, table, PERMUTED)
    permute = declared(builder.module, PERMUTATION, ll.FunctionType(index.type, [index.type] * 3))
    lower, upper = (builder.call(permute, [parts[first], index, parts[first + 1]]) for first in (0, 2))
    return builder.select(_highest(builder, index), upper, lower)


def _by_shuffles(builder: ll.IRBuilder, table: Value, index: Value) -> Value:
    """The low half of an index picks a byte of every row; its other bits, the lowest first, choose among two each."""
    width = lanes_of(index)
    shuffle = declared(builder.module, SHUFFLES[width], ll.FunctionType(index.type, [index.type] * 2))
    low = builder.and_(index, constant(I8, ROW - 1, width))
    spread = [lane % ROW for lane in range(width)]
    found = [builder.call(shuffle, [picked(builder, row, spread), low]) for row in _rows(builder, table, ROW)]
    for bit in range(4, 8):
        chosen = _highest(builder, builder.shl(index, constant(I8, 7 - bit, width)))
        found = [builder.select(chosen, found[at + 1], found[at]) for at in range(0, len(found), 2)]
    return found[0]


def _by_tables(builder: ll.IRBuilder, table: Value, index: Value) -> Value:
    """Four rows at a time; an index of others is too large, as it wraps."""
    rows = _rows(builder, table, ROW)
    pick, leave = (declared(builder.module, TABLES.format(kind), ll.FunctionType(index.type, [index.type] * count))
                   for kind, count in (("l", 5), ("x", 6)))  # fmt: skip
    found = builder.call(pick, [*rows[:4], index])
    for first in range(4, len(rows), 4):
        index = builder.sub(index, constant(I8, 4 * ROW, ROW))
        found = builder.call(leave, [found, *rows[first : first + 4], index])
    return found


def _rows(builder: ll.IRBuilder, table: Value, width: int) -> list[Value]:
    """The table, in registers."""
    kind = ll.VectorType(I8, width)
    places = (constant(I64, first) for first in range(0, TABLE_BYTES, width))
    return [builder.load(builder.gep(table, [at], True, source_etype=I8), align=1, typ=kind) for at in places]


def _highest(builder: ll.IRBuilder, value: Value) -> Value:
    """Whether the highest bit of each byte is set."""
    return builder.icmp_signed("<", value, constant(I8, 0, lanes_of(value)))


def _joined(builder: ll.IRBuilder, first: Value, second: Value) -> Value:
    return shuffled(builder, first, second, list(range(2 * lanes_of(first))))
