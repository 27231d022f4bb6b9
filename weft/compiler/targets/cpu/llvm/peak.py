"""Code that only computes: what a processor's form of a multiply-add does at most, on float32 and on bytes.

A function of a number of rounds. In each round every one of some independent sums takes one more product. All
products of a round have a factor in common, which is read anew in each: else LLVM would multiply once. So what a form
prepares of that factor counts once a round, and of the other factors never.
"""

from __future__ import annotations

from collections.abc import Callable

import llvmlite.ir as ll

from ...llvm.llvm_types import FLOAT, I8, I32, I64, POINTER, Value, constant, declared, splat
from ...loops.layouts import QUAD
from ..processor import Processor
from .byte_products import Step, byte_form
from .object_code import cached_object

SYMBOL = "weft_peak"
"""The function's: ``(rounds: int64, factors, total)``. ``factors``: a register for each sum, the first 32 bits of which
are also the common factor; ``total``: room for a register."""


def sums_of(target: Processor) -> int:
    """Sums that are under way: more than the multiply-adds that a processor starts before the first one ends, and all
    of them in registers."""
    return min(20, target.registers - 4)


def float_peak(target: Processor) -> tuple[bytes, int]:
    """Object code with multiply-adds on float32, and operations of a round."""
    return cached_object(float_text(target), target.for_floats), 2 * target.float_lanes * sums_of(target)


def byte_peak(target: Processor) -> tuple[bytes, int]:
    """Object code with products of bytes in the fastest form that kernels have (`byte_products`), and operations of a
    round. Sums may saturate where the common factor bears no pairs (`byte_pairs`)."""
    return cached_object(byte_text(target), target), 2 * QUAD * target.float_lanes * sums_of(target)


def float_text(target: Processor) -> str:
    """LLVM IR of the function on float32."""
    kind = ll.VectorType(FLOAT, target.float_lanes)

    def step(builder: ll.IRBuilder, acc: Value, value: Value, weight: Value) -> Value:
        function = declared(builder.module, f"llvm.fmuladd.v{kind.count}f32", ll.FunctionType(kind, [kind] * 3))
        return builder.call(function, [value, builder.bitcast(weight, kind), acc])

    return _text(target, kind, step, ll.IRBuilder.fadd)


def byte_text(target: Processor) -> str:
    """LLVM IR of the function on bytes."""
    kind = ll.VectorType(I32, target.float_lanes)
    form = byte_form(target, kind.count, paired=True)

    def step(builder: ll.IRBuilder, acc: Value, value: Value, weight: Value) -> Value:
        return form.step(builder, acc, value, builder.bitcast(weight, ll.VectorType(I8, QUAD * kind.count)))

    return _text(target, kind, step, ll.IRBuilder.add)


def _text(target: Processor, kind: ll.VectorType, step: Step, joined: Callable[..., Value]) -> str:
    module = ll.Module("peak")
    function = ll.Function(module, ll.FunctionType(ll.VoidType(), [I64, POINTER, POINTER]), SYMBOL)
    rounds, factors, result = function.args
    entry, turn, end = (function.append_basic_block(name) for name in ("entry", "round", "end"))
    builder = ll.IRBuilder(entry)
    places = (builder.gep(factors, [ll.Constant(I64, n)], source_etype=kind) for n in range(sums_of(target)))
    values = [builder.load(place, typ=kind, align=4) for place in places]
    builder.branch(turn)
    builder.position_at_end(turn)
    done = builder.phi(I64)
    sums = [builder.phi(kind) for _ in values]
    common = splat(builder, builder.load_atomic(factors, "monotonic", 4, typ=I32), kind.count)
    added = [step(builder, acc, value, common) for acc, value in zip(sums, values, strict=True)]
    more = builder.add(done, ll.Constant(I64, 1))
    starts = [(acc, constant(kind.element, 0, kind.count), after) for acc, after in zip(sums, added, strict=True)]
    for phi, first, after in [(done, ll.Constant(I64, 0), more), *starts]:
        phi.add_incoming(first, entry)
        phi.add_incoming(after, turn)
    builder.cbranch(builder.icmp_signed("<", more, rounds), turn, end)
    builder.position_at_end(end)
    total = added[0]
    for each in added[1:]:
        total = joined(builder, total, each)
    builder.store(total, result, align=4)
    builder.ret_void()
    return str(module)
