"""Functions of floats that the C library computes."""

from __future__ import annotations

from collections.abc import Sequence

import llvmlite.ir as ll

from ...llvm.llvm_types import DOUBLE, FLOAT, I32, Value, declared, lanes_of, with_lanes


def call_libm(builder: ll.IRBuilder, name: str, arguments: Sequence[Value]) -> Value:
    """A call of the C library, once a lane."""
    double = with_lanes(DOUBLE, lanes_of(arguments[0])) == arguments[0].type
    kind, symbol = (DOUBLE, name) if double else (FLOAT, f"{name}f")
    function = declared(builder.module, symbol, ll.FunctionType(kind, [kind] * len(arguments)))
    lanes = lanes_of(arguments[0])
    if not lanes:
        return builder.call(function, list(arguments))
    result = ll.Constant(arguments[0].type, ll.Undefined)
    for lane in range(lanes):
        place = ll.Constant(I32, lane)
        single = builder.call(function, [builder.extract_element(argument, place) for argument in arguments])
        result = builder.insert_element(result, single, place)
    return result
