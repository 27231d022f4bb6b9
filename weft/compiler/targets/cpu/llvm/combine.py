"""Reductions whose steps may be taken in any order, by lanes: registers of partial results, combined at the end."""

from __future__ import annotations

from dataclasses import replace

import llvmlite.ir as ll

from ....tensor.evaluate import ITEM_BYTES
from ....tensor.ir import Block, Const, Expr, For
from ....tensor.visitor import accumulation, loads
from ...llvm.expressions import Lanes, vectorisable
from ...llvm.llvm_types import I32, Int, Value, add, lanes_of, multiply, splat
from ...loops.nests import ANY_ORDER
from .loop_emitter import LoopEmitter

REGISTERS = 4
"""Partial results that are computed side by side: one would wait for the one before it."""


def combine_by_lanes(emitter: LoopEmitter, loop: For) -> bool:
    """Emit a loop around one step of a reduction; False (and nothing) where its iterations cannot be lanes."""
    block = loop.body
    if ANY_ORDER not in loop.annotations or not isinstance(block, Block) or not isinstance(loop.extent, Const):
        return False
    update = accumulation(block.body)
    if update is None or not vectorisable(update[1], loop.var) or update[1].dtype in ("float16", "bfloat16"):
        return False
    _Combination(emitter, loop, block, *update).emit(int(loop.extent.value))
    return True


class _Combination:
    """One loop while it is emitted."""

    def __init__(self, emitter: LoopEmitter, loop: For, block: Block, op: str, value: Expr) -> None:
        self.emitter, self.loop, self.store, self.op, self.value = emitter, loop, block.body, op, value
        sizes = [ITEM_BYTES[node.buffer.dtype] for node in loads(value)]
        self.width = max(1, emitter.target.vector_bytes // max([ITEM_BYTES[self.store.buffer.dtype], *sizes]))

    def emit(self, extent: int) -> None:
        expressions = self.emitter.expressions
        total = expressions.load(self.store.buffer, self.store.indices)
        whole = extent // self.width
        if whole:
            total = self.both(total, self.across(self.registers(whole)))
        done = whole * self.width
        while done < extent:
            count = 1 << ((extent - done).bit_length() - 1)
            total = self.both(total, self.across(self.chunk(done, count)))
            done += count
        expressions.store(self.store.buffer, self.store.indices, total)

    def chunk(self, base: Int, count: int) -> Value:
        """The values of ``count`` iterations."""
        expressions = self.emitter.expressions
        if count == 1:
            expressions.env[self.loop.var] = base
            return expressions.value(self.value)
        expressions.lanes = Lanes(self.loop.var, base, count)
        value = splat(self.emitter.builder, expressions.value(self.value), count)
        expressions.lanes = None
        return value

    def registers(self, whole: int) -> Value:
        """All whole registers, combined lane by lane."""
        side = min(REGISTERS, whole)
        builder = self.emitter.builder
        values = [self.chunk(number * self.width, self.width) for number in range(side)]
        rounds = whole // side
        if rounds > 1:
            places = [self.emitter.slot(value.type) for value in values]
            for place, value in zip(places, values, strict=True):
                builder.store(value, place)
            counter = replace(self.loop.var, name=f"{self.loop.var.name}.chunk")

            def body() -> None:
                base = multiply(builder, self.emitter.expressions.env[counter], side * self.width)
                for number, place in enumerate(places):
                    value = self.chunk(add(builder, base, number * self.width), self.width)
                    builder.store(self.both(builder.load(place, typ=value.type), value), place)

            self.emitter.loop(counter, 1, rounds, body)
            values = [builder.load(place, typ=value.type) for place, value in zip(places, values, strict=True)]
        for number in range(rounds * side, whole):
            values[number - rounds * side] = self.both(
                values[number - rounds * side], self.chunk(number * self.width, self.width)
            )
        while len(values) > 1:
            values = [self.both(*values[number : number + 2]) if number + 1 < len(values) else values[number]
                      for number in range(0, len(values), 2)]  # fmt: skip
        return values[0]

    def across(self, value: Value) -> Value:
        """The lanes of a vector combined."""
        builder = self.emitter.builder
        while lanes_of(value):
            half = lanes_of(value) // 2
            undefined = ll.Constant(value.type, ll.Undefined)
            parts = [
                builder.shuffle_vector(value, undefined, ll.Constant(ll.VectorType(I32, half), [
                    ll.Constant(I32, first + lane) for lane in range(half)
                ]))
                for first in (0, half)
            ]  # fmt: skip
            if half == 1:
                parts = [builder.extract_element(part, ll.Constant(I32, 0)) for part in parts]
            value = self.both(*parts)
        return value

    def both(self, a: Value, b: Value) -> Value:
        return self.emitter.expressions.operator(self.op, a, b, self.store.buffer.dtype)
