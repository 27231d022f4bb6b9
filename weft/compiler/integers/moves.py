"""What else has the values of 8-bit tensors: dequantised ones, concatenations, rows of tables."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from ..graph import Array, Call, Constant, Expr, call
from ..graph.dtypes import LARGEST_BYTE
from ..graph.host import host_call
from .describer import NO_INTEGER_FORM, Describer, moved_or_refused
from .form import Concatenated, IntegerForm, Integers, Real, Refusal, concatenated
from .static_weights import static_weights


def dequantised(describer: Describer, node: Call, name: str) -> IntegerForm:
    """What was 8 bits with one scale."""
    q, scale, zero_point = node.args
    if id(q) not in describer.integers:
        return Refusal(f"{name} is of {q.dtype}, not of 8 bits")
    if not isinstance(scale, Constant) or not isinstance(zero_point, Constant) or scale.value.ndim:
        return Refusal(f"{name} has no single scale that is known at compile time")
    zero = int(zero_point.value) - (128 if q.dtype == "uint8" else 0)
    if not -128 <= zero <= 127:
        return Refusal(f"{name} has a zero point outside of 8 bits")
    exclusive = describer.uses.get(q, 0) == 1 and describer.uses.get(node, 0) == 1
    return Integers(describer.integers[id(q)], float(scale.value), zero, exclusive)


def joined(describer: Describer, node: Call, name: str) -> IntegerForm:
    """8-bit values one after another, with one scale or each with its own."""
    parts: list[Real] = []
    for arg in node.args:
        part = describer.described[id(arg)]
        if isinstance(part, Refusal) and arg.static:
            part = constant_integers(arg) or part
        if isinstance(part, Refusal):
            return part
        parts.append(part)
    integers = [part for part in parts if isinstance(part, Integers)]
    if len(integers) == len(parts) and len({(part.scale, part.zero_point) for part in integers}) == 1:
        q = concatenated([part.q for part in integers], node.attr("axis"), node.shape, node.span)
        return replace(integers[0], q=q, exclusive=False)
    return Concatenated(tuple(parts), node.attr("axis"), node.shape)


def looked_up(describer: Describer, node: Call, name: str) -> IntegerForm:
    """Rows of a quantised table at computed indices."""
    if not node.args[0].static:
        return moved_or_refused(describer, node, name)
    table = constant_integers(node.args[0])
    if table is None or any(index.static for index in node.args[1:]):
        return Refusal(f"{name} {NO_INTEGER_FORM}")
    reason = f"{name} picks at computed places, which the accelerator does not do"
    return replace(table, q=host_call(str(node.op), (table.q, *node.args[1:]), node.attrs, reason, node.span))


def constant_integers(node: Expr) -> Integers | None:
    """A constant that the model holds in 8 bits with one scale, moved or not."""
    weights = _tensor(node)
    if weights is None:
        return None
    values, scale = weights
    low, high = int(values.min(initial=0)), int(values.max(initial=0))
    if high - low > LARGEST_BYTE:
        return None
    zero = max(-128, min(-128 - low, 127 - high)) if low < -128 or high > 127 else 0
    if not -128 <= zero <= 127 or not -128 <= low + zero <= high + zero <= 127:
        return None
    return Integers(Constant((values + zero).astype(np.int8), span=node.span), scale, zero, span=node.span)


def _tensor(node: Expr) -> tuple[Array, float] | None:
    """Integers without zero point and their one scale."""
    row = call("reshape", node, shape=(1, math.prod(node.shape)))
    found = static_weights(row, "a constant")
    if isinstance(found, Refusal):
        return None
    return found.centred.reshape(node.shape), float(found.scale[0])
