"""The functions that call kernels in order: one a stretch of steps between operators that NumPy runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import llvmlite.ir as ll

from .llvm_types import I8, I64, POINTER, Value, declared, i64
from .threads import PART_BYTES


@dataclass(frozen=True)
class Slot:
    """Memory of one tensor: in the arena or the constants (``where`` is the number of the allocation, or bytes), or an
    input or output of the model (its number)."""

    kind: str
    where: int


@dataclass(frozen=True)
class Launch:
    """One kernel with the memory of its parameters, and the byte in each at which it starts; its parts are counted."""

    symbol: str
    arguments: tuple[tuple[Slot, int], ...]
    workspace: Slot | None
    parts: int


BASES = ("input", "output", "constant", "arena", "counters")
"""What the argument of a step points to: tables of pointers to inputs and to outputs; constants; arena; counters."""


def emit_step(
    module: ll.Module, name: str, launches: Sequence[Launch], offsets: Mapping[Slot, int]
) -> int:
    """Add the function ``name(argument, thread)``; gives the bytes of counters that it needs.

    ``offsets``: bytes of the slots in arena and constants.
    """
    function = ll.Function(module, ll.FunctionType(ll.VoidType(), [POINTER, I64]), name)
    builder = ll.IRBuilder(function.append_basic_block("entry"))
    table, thread = function.args
    bases: dict[str, Value] = {}
    for number, base in enumerate(BASES):
        place = builder.gep(table, [i64(number)], inbounds=True, source_etype=POINTER)
        bases[base] = builder.load(place, typ=POINTER)

    def address(slot: Slot, byte: int) -> Value:
        if slot.kind in ("input", "output"):
            place = builder.gep(bases[slot.kind], [i64(slot.where)], inbounds=True, source_etype=POINTER)
            pointer, byte = builder.load(place, typ=POINTER), byte
        else:
            pointer, byte = bases[slot.kind], byte + offsets[slot]
        return builder.gep(pointer, [i64(byte)], inbounds=True, source_etype=I8) if byte else pointer

    parts = 0
    for launch in launches:
        kinds = [POINTER] * len(launch.arguments) + [POINTER, I64, POINTER]
        kernel = declared(module, launch.symbol, ll.FunctionType(ll.VoidType(), kinds))
        workspace = ll.Constant(POINTER, None) if launch.workspace is None else address(launch.workspace, 0)
        arguments = [address(slot, byte) for slot, byte in launch.arguments]
        counters = builder.gep(bases["counters"], [i64(parts * PART_BYTES)], inbounds=True, source_etype=I8)
        builder.call(kernel, [*arguments, workspace, thread, counters])
        parts += launch.parts
    builder.ret_void()
    return parts * PART_BYTES
