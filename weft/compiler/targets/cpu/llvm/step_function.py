"""The functions that call kernels in order: one a stretch of steps between operators that NumPy runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import llvmlite.ir as ll

from ....model import LaunchStep, Place
from ...llvm.llvm_types import I8, I64, POINTER, Value, declared, i64
from .rounds import Rounds
from .threads import PART_BYTES

BASES = ("input", "output", "constant", "arena", "counters", "turn")
"""What the argument of a step points to: tables of pointers to inputs and to outputs; constants; arena; counters; and
in the place of a pointer the number of the round of a loop, which a function for a single launch is called for."""


def emit_step(module: ll.Module, name: str, rounds: Rounds, parts: Mapping[str, int], *, single: bool = False) -> None:
    """Add the function ``name(argument, thread)``, which needs the counters of `counter_bytes`.

    ``parts``: counters of each kernel, by symbol. ``single``: the function runs one round, whose number is in its
    argument.
    """
    function = ll.Function(module, ll.FunctionType(ll.VoidType(), [POINTER, I64]), name)
    builder = ll.IRBuilder(function.append_basic_block("entry"))
    table, thread = function.args
    bases: dict[str, Value] = {}
    for number, base in enumerate(BASES if single else BASES[:-1]):
        pointer = builder.gep(table, [i64(number)], inbounds=True, source_etype=POINTER)
        bases[base] = builder.load(pointer, typ=I64 if base == "turn" else POINTER)

    def after(pointer: Value, byte: int | Value) -> Value:
        if isinstance(byte, int):
            return builder.gep(pointer, [i64(byte)], inbounds=True, source_etype=I8) if byte else pointer
        return builder.gep(pointer, [byte], inbounds=True, source_etype=I8)

    def address(place: Place, turn: Value | None) -> Value:
        base = bases[place.kind]
        if place.kind in ("input", "output"):
            entry = builder.gep(base, [i64(place.number)], inbounds=True, source_etype=POINTER)
            base = builder.load(entry, typ=POINTER)
        if not place.stride or turn is None:
            return after(base, place.offset)
        moved = builder.urem(turn, i64(place.period)) if place.period else turn
        return after(base, builder.add(builder.mul(moved, i64(place.stride)), i64(place.offset)))

    def launch_all(launches: Sequence[LaunchStep], turn: Value | None, used: int, each: int) -> int:
        """Counters of a round begin behind the first ``used``, ``each`` for a round."""
        for launch in launches:
            kinds = [POINTER] * len(launch.arguments) + [POINTER, I64, POINTER]
            kernel = declared(module, launch.symbol, ll.FunctionType(ll.VoidType(), kinds))
            null = ll.Constant(POINTER, None)
            workspace = null if launch.workspace is None else after(bases["arena"], launch.workspace)
            counters = after(bases["counters"], used * PART_BYTES)
            if turn is not None and each:
                counters = after(counters, builder.mul(turn, i64(each * PART_BYTES)))
            places = [address(place, turn) for place in launch.arguments]
            builder.call(kernel, [*places, workspace, thread, counters])
            used += parts[launch.symbol]
        return used

    used = 0
    for count, launches in rounds:
        if single:
            used = launch_all(launches, bases["turn"], used, 0)
            continue
        if count == 1:
            used = launch_all(launches, None, used, 0)
            continue
        each = sum(parts[launch.symbol] for launch in launches)
        before = builder.block
        body, after_all = function.append_basic_block("round"), function.append_basic_block("rounds_end")
        builder.branch(body)
        builder.position_at_end(body)
        turn = builder.phi(I64)
        turn.add_incoming(i64(0), before)
        launch_all(launches, turn, used, each)
        following = builder.add(turn, i64(1))
        turn.add_incoming(following, builder.block)
        builder.cbranch(builder.icmp_signed("<", following, i64(count)), body, after_all)
        builder.position_at_end(after_all)
        used += each * count
    builder.ret_void()
