"""Pictures that a dense layer reads whole: as one window of a convolution, where that costs less than moving them.

A dense layer behind a picture reads its elements as channels of one pixel. On the core they lie otherwise, so that the
host would move them. A convolution whose kernel is as large as the picture reads them where they are: with fewer lanes
at work where the picture has few channels, and one step of the host less.
"""

from __future__ import annotations

import math

from ....graph import Call, Constant, Expr, Function, Module, Var
from ....graph.host import HOST_STEP
from ....graph.visit import rewrite
from ....passes.manager import Pass
from ....passes.simplify import flattened_into_kernel
from ..operators.packed_layout import Blocks
from .prices import Rate, product_cycles


def flatten_into_kernel(blocks: Blocks, bytes_per_cycle: int = 8) -> Pass:
    """The pass for an array of this shape, with DRAM that moves ``bytes_per_cycle`` a cycle."""
    rate = Rate(blocks, bytes_per_cycle)
    return Pass("flatten-into-kernel", lambda module: _run(module, rate), needs=("legalise",), about=__doc__ or "")


def _run(module: Module, rate: Rate) -> Module:
    def rule(node: Call) -> Expr | None:
        picture = _picture(node)
        if picture is None:
            return None
        more = flattening(node, node.args[0], picture.shape, rate)
        if more is None or more > (0 if _is_made_by_host(picture) else HOST_STEP):
            return None
        return flattened_into_kernel(node)

    return module.with_main(rewrite(module.main.body, rule))


def flattening(reader: Call, flat: Expr, picture: tuple[int, ...], rate: Rate) -> float | None:
    """How many cycles more a dense layer takes that reads ``flat`` as a picture of this shape, as it lies; None where
    ``reader`` is no such layer."""
    if reader.op != "conv2d" or reader.args[0] is not flat or reader.attr("groups") != 1 or len(picture) != 4:
        return None
    w = reader.args[1]
    one_pixel = flat.shape == (picture[0], math.prod(picture[1:]), 1, 1)
    if not isinstance(w, Constant) or w.value.shape[2:] != (1, 1) or any(reader.attr("pads")) or not one_pixel:
        return None
    rows, channels, height, width = picture
    outputs = w.value.shape[0]
    as_it_lies = product_cycles(rows, channels, height * width, outputs, rate)
    return as_it_lies - product_cycles(rows, math.prod(picture[1:]), 1, outputs, rate)


def _picture(node: Call) -> Expr | None:
    """What lies in memory where a convolution reads a reshape of it, perhaps through a transpose."""
    match node:
        case Call(op="conv2d", args=(Call(op="reshape", args=(Call(op="transpose", args=(inner,)) as turned,)), _)):
            return inner if turned.attr("perm")[0] == 0 else turned
        case Call(op="conv2d", args=(Call(op="reshape", args=(x,)), _)):
            return x
    return None


def _is_made_by_host(value: Expr) -> bool:
    """Whether the host gives it the accelerator's layout anyway."""
    while True:
        match value:
            case Call(op="reshape" | "transpose", args=(inner,)):
                value = inner
            case _:
                break
    return isinstance(value, Var | Constant) or (isinstance(value, Call) and isinstance(value.op, Function))
