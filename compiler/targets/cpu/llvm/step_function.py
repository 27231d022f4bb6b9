"""The functions that call kernels in order: one a stretch of steps between operators that NumPy runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import llvmlite.ir as ll

from ....model import LaunchStep, Place
from ...llvm.llvm_types import I8, I64, POINTER, Value, declared, i64
from .threads import PART_BYTES

BASES = ("input", "output", "constant", "arena", "counters")
"""What the argument of a step points to: tables of pointers to inputs and to outputs; constants; arena; counters."""


def emit_step(module: ll.Module, name: str, launches: Sequence[LaunchStep], parts: Mapping[str, int]) -> int:
    """Add the function ``name(argument, thread)``; gives the bytes of counters that it needs.

    ``parts``: counters of each kernel, by symbol.
    """
    function = ll.Function(module, ll.FunctionType(ll.VoidType(), [POINTER, I64]), name)
    builder = ll.IRBuilder(function.append_basic_block("entry"))
    table, thread = function.args
    bases: dict[str, Value] = {}
    for number, base in enumerate(BASES):
        pointer = builder.gep(table, [i64(number)], inbounds=True, source_etype=POINTER)
        bases[base] = builder.load(pointer, typ=POINTER)

    def after(pointer: Value, byte: int) -> Value:
        return builder.gep(pointer, [i64(byte)], inbounds=True, source_etype=I8) if byte else pointer

    def address(place: Place) -> Value:
        base = bases[place.kind]
        if place.kind in ("input", "output"):
            entry = builder.gep(base, [i64(place.number)], inbounds=True, source_etype=POINTER)
            base = builder.load(entry, typ=POINTER)
        return after(base, place.offset)

    used = 0
    for launch in launches:
        kinds = [POINTER] * len(launch.arguments) + [POINTER, I64, POINTER]
        kernel = declared(module, launch.symbol, ll.FunctionType(ll.VoidType(), kinds))
        null = ll.Constant(POINTER, None)
        workspace = null if launch.workspace is None else after(bases["arena"], launch.workspace)
        counters = builder.gep(bases["counters"], [i64(used * PART_BYTES)], inbounds=True, source_etype=I8)
        builder.call(kernel, [*map(address, launch.arguments), workspace, thread, counters])
        used += parts[launch.symbol]
    builder.ret_void()
    return used * PART_BYTES
