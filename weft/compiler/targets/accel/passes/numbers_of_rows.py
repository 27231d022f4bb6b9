"""One number for each row of a matrix, which scales or shifts the whole row, as the root of a norm does.

Channels are the core's lanes, so what all channels of a row share has to stand in every lane. The host writes such a
number into all lanes of a block where it hands it over; what the core makes of it, it makes in all lanes alike.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

import numpy as np

from ....graph import Call, Constant, Expr, Function, Fusion, Span, Var, call, operator_of
from ....graph.host import host_call
from ..operators.packed_layout import Blocks, spatial

REASON = "gives every lane the number that all channels share"


def is_number_of_rows(step: Call, operand: Expr) -> bool:
    """Whether an operand of elementwise arithmetic has one number for all that stands behind the channels."""
    if len(step.args) != 2 or operand is not step.args[1] or operand.shape == step.shape:
        return False
    return operand.shape == (*step.shape[:2], *(1 for _ in step.shape[2:]))


def rows_fit(step: Call, shape: Sequence[int]) -> bool:
    """Whether ``step``, one operand of which has one number for each row, may have ``shape``: its rows as images."""
    rows, inner = prod(step.shape[:2]), prod(step.shape[2:])
    return spatial(shape) == (rows, inner, 1, 1)


def can_be_in_all_lanes(value: Expr) -> bool:
    """Whether ``value`` comes from the host, through nothing but elementwise arithmetic and reshapes."""
    match value:
        case Var() | Constant() | Call(op=Function()):
            return value.dtype == "int8"
        case Call(op="reshape", args=(x,)):
            return can_be_in_all_lanes(x)
        case Call():
            entry = operator_of(value)
            if entry is None or entry.fusion is not Fusion.ELEMENTWISE:
                return False
            numbers, computed = _operands(value)
            uniform = all(isinstance(each, Constant) and len(np.unique(each.value)) == 1 for each in numbers)
            return uniform and all(each.shape == value.shape and can_be_in_all_lanes(each) for each in computed)
    return False


def in_all_lanes(value: Expr, shape: Sequence[int], blocks: Blocks, memo: Mapping[Expr, Expr]) -> Expr:
    """``value``, a number for each row, in all lanes of a block of channels, for arithmetic of ``shape``.

    It is in all channels where a block is no entry of the accumulator, or does not divide them. ``memo``:
    what stands for values from the host.
    """
    rows, channels = shape[:2]
    repeats = blocks.dram_block == blocks.block_out and channels % blocks.dram_block == 0
    lanes = blocks.dram_block if repeats else channels
    return _spread(value, (rows, lanes, *shape[2:]), memo)


def _spread(value: Expr, shape: tuple[int, ...], memo: Mapping[Expr, Expr]) -> Expr:
    if isinstance(value, Call) and value.op == "reshape":
        return _spread(value.args[0], shape, memo)
    if isinstance(value, Call) and isinstance(value.op, str):
        numbers, _ = _operands(value)
        args = (
            Constant(np.full(shape[1], arg.value.flat[0], arg.value.dtype))
            if arg in numbers and isinstance(arg, Constant) else _spread(arg, shape, memo)
            for arg in value.args
        )  # fmt: skip
        return call(value.op, *args, span=value.span, **value.attrs)
    span, column = Span(value.span.nodes), (shape[0], 1, *shape[2:])
    if isinstance(value, Constant):
        return Constant(np.broadcast_to(value.value.reshape(column), shape).copy(), value.name, value.span)
    source = memo[value]
    narrow = source if source.shape == column else call("reshape", source, shape=column, span=span)
    return host_call("expand", (narrow,), {"shape": shape}, REASON, span)


def _operands(step: Call) -> tuple[tuple[Expr, ...], tuple[Expr, ...]]:
    """The operands of elementwise arithmetic that are one number a channel, and those that are computed."""
    numbers = step.args[1:] if step.op == "requantise" else ()
    return numbers, step.args[: len(step.args) - len(numbers)]
