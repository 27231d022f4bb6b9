"""Values for neighbours in memory, which one instruction loads and one stores, as LLVM IR for NVIDIA's processors.

What lies together is loaded together; what is computed of it is computed lane by lane, as the processor does it anyway.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import llvmlite.ir as ll

from ...tensor.evaluate import ITEM_BYTES
from ...tensor.ir import BinOp, Buffer, Const, Expr, Load, Select, Var
from ...tensor.linear import Linear, linear_form
from ...tensor.visitor import children, free_vars, loads
from ..llvm.expressions import Expressions
from ..llvm.floats import from_memory
from ..llvm.llvm_types import I32, MEMORY_TYPES, REGISTER_TYPES, Value, add, i64
from ..loops.nests import REGISTER
from .vector_loops import goes_by_whole_steps

VECTOR_BYTES = (2, 4, 8, 16)
"""What one instruction loads or stores."""


def is_whole(expressions: Expressions, buffer: Buffer, indices: Sequence[Expr], var: Var, count: int) -> bool:
    """Whether a loop walks ``count`` neighbours that begin at an address which is a multiple of their bytes."""
    memory, size = expressions.memory[buffer.name], ITEM_BYTES[buffer.dtype]
    if count * size not in VECTOR_BYTES or max(memory.align, size) % (count * size):
        return False
    position = Linear()
    for index, stride in zip(indices, memory.strides, strict=True):
        position = position.add(linear_form(index), stride)
    return goes_by_whole_steps(position, var, count)


def values_together(expressions: Expressions, value: Expr, var: Var, count: int) -> Value:
    """``value`` for ``var`` from 0 to ``count - 1`` as a vector. A condition that all of them share is asked once; what
    lies together is loaded at once. Leaves ``var`` at 0."""
    builder, env = expressions.builder, expressions.env
    env[var] = 0
    kind = ll.VectorType(REGISTER_TYPES[value.dtype], count)
    if isinstance(value, Load) and _lies_together(expressions, value, var, count):
        start, known, _ = expressions.position(value.buffer, value.indices)
        wide = builder.load(expressions.address(value.buffer, start, known),
                            align=count * ITEM_BYTES[value.buffer.dtype],
                            typ=ll.VectorType(MEMORY_TYPES[value.buffer.dtype], count))  # fmt: skip
        return from_memory(builder, wide, value.buffer.dtype)
    if isinstance(value, Select) and _asks_once(value, var, count):
        ends = []
        with builder.if_else(expressions.value(value.cond)) as branches:
            for branch, side in zip(branches, (value.a, value.b), strict=True):
                with branch:
                    ends.append((values_together(expressions, side, var, count), builder.block))
        chosen = builder.phi(kind)
        for each, block in ends:
            chosen.add_incoming(each, block)
        env[var] = 0
        return chosen
    pieces = {each: values_together(expressions, each, var, count)
              for each in dict.fromkeys(_pieces(expressions, value, var, count))}  # fmt: skip
    wide = ll.Constant(kind, ll.Undefined)
    before = dict(expressions.held)
    for lane in range(count):
        number = ll.Constant(I32, lane)
        env[var] = lane
        expressions.held.update({each: builder.extract_element(found, number) for each, found in pieces.items()})
        wide = builder.insert_element(wide, _picked(expressions, value, None), number)
    expressions.held = before
    env[var] = 0
    return wide


def _lies_together(expressions: Expressions, load: Load, var: Var, count: int) -> bool:
    """Whether one instruction loads it for all values of the variable."""
    if load.buffer.dtype == "bool" or load.buffer.scope == REGISTER:
        return False
    return var in free_vars(load) and is_whole(expressions, load.buffer, load.indices, var, count)


def _asks_once(value: Select, var: Var, count: int) -> bool:
    """Whether a choice is the same for all values of the variable, and decides what is loaded."""
    if loads(value.cond) or not (loads(value.a) or loads(value.b)):
        return False
    return is_uniform(value.cond, var, count)


def _pieces(expressions: Expressions, value: Expr, var: Var, count: int) -> Iterator[Expr]:
    """The largest parts of a value that are better made for all lanes at once. Nothing that a condition of a lane's own
    keeps from being loaded."""
    for node in (value.cond,) if isinstance(value, Select) else children(value):
        if var not in free_vars(node):
            continue
        together = isinstance(node, Load) and _lies_together(expressions, node, var, count)
        if together or (isinstance(node, Select) and _asks_once(node, var, count)):
            yield node
        else:
            yield from _pieces(expressions, node, var, count)


def _picked(expressions: Expressions, value: Expr, inside: Value) -> Value:
    """A value without branches: what a condition keeps from being loaded is the buffer's first element instead.
    ``inside``: whether all conditions around it hold; None without any."""
    builder = expressions.builder
    match value:
        case Select(cond, a, Const() as b) if not loads(cond):
            holds = expressions.value(cond)
            each = _picked(expressions, a, holds if inside is None else builder.and_(inside, holds))
            return builder.select(holds, each, expressions.value(b))
        case Load(buffer, indices) if inside is not None and buffer.dtype != "bool":
            start, known, _ = expressions.position(buffer, indices)
            place = builder.select(inside, i64(add(builder, start, known)), i64(0))
            address = expressions.address(buffer, place, 0)
            single = builder.load(address, align=ITEM_BYTES[buffer.dtype], typ=MEMORY_TYPES[buffer.dtype])
            return from_memory(builder, single, buffer.dtype)
    if inside is None or not loads(value):
        return expressions.value(value)
    with builder.if_else(inside) as (then, otherwise):
        with then:
            found = expressions.value(value)
            ends = [(found, builder.block)]
        with otherwise:
            ends.append((ll.Constant(found.type, None), builder.block))
    chosen = builder.phi(found.type)
    for each, block in ends:
        chosen.add_incoming(each, block)
    return chosen


def is_uniform(expr: Expr, var: Var, count: int) -> bool:
    """Whether an expression without loads is the same for all of ``count`` values of a variable from 0."""
    if var not in free_vars(expr):
        return True
    if not isinstance(expr, BinOp):
        return False
    if expr.op == "lt" and expr.a.dtype == "int64":
        form = linear_form(expr.a).add(linear_form(expr.b), -1)  # below 0
        if goes_by_whole_steps(form, var, count):
            return True
    whole = isinstance(expr.b, Const) and expr.b.value > 0 and expr.b.value % count == 0
    if expr.op == "floordiv" and whole and goes_by_whole_steps(linear_form(expr.a), var, count):
        return True
    return is_uniform(expr.a, var, count) and is_uniform(expr.b, var, count)
