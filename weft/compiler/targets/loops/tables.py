"""Tables of a function of one 8-bit value as elementwise operators, which join the kernels around them."""

from __future__ import annotations

import numpy as np

from ...graph.ir import Call, Constant, Expr
from ...graph.registry import call
from ...operators.integer import LOOK_UP_ENTRIES


def as_look_up(node: Call) -> Expr | None:
    """gather(table, cast(x) + 128)  ->  look_up(x, table), for an int8 x and one table for all of it"""
    match node:
        case Call(op="gather", args=(Constant() as table, Call(op="nn.add", args=(Call(op="nn.cast") as wide, first)))):
            x = wide.args[0]
            begins = isinstance(first, Constant) and bool((first.value == LOOK_UP_ENTRIES // 2).all())
            fits = x.dtype == "int8" and x.shape == node.shape and table.value.dtype == np.int8
            if begins and fits and table.shape == (LOOK_UP_ENTRIES,):
                return call("look_up", x, table, span=node.span)
    return None
