"""Concatenations of channels that cost nothing: whoever makes an operand writes it into the result.

In blocks the channels of one image lie one behind the other, so an operand of whole blocks is one stretch of the
result, halo and all. Operands may be results of such concatenations themselves. What is made in another layout, or is
part of another result already, is copied into its place.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from itertools import accumulate
from math import prod

from ...graph.dtypes import numpy_dtype
from ...graph.ir import Call, Constant, Expr
from ...tensor.view import element_type
from .fusion import FusedGroup
from .layouts import BLOCKED_RANKS, NO_HALO, PREFERRED_BLOCKS, Layout


def joined_block(group: FusedGroup, layout: Callable[[Expr], Layout], outputs: Collection[Expr]) -> int:
    """Channels in a block of the result, where a group is a concatenation that may be made so; else 0. ``layout``: of
    the values before it. At least half of the result has to be in such blocks already."""
    root = group.root
    if len(group.members) > 1 or group.reason or root.op != "concat" or root in outputs:
        return 0
    if len(root.shape) not in BLOCKED_RANKS or root.dtype not in ("float32", "int8"):
        return 0
    if root.attr("axis") != 1 or root.shape[0] != 1:
        return 0
    channels: dict[int, int] = {}
    for arg in root.args:
        if isinstance(arg, Constant):
            return 0
        block = 0 if layout(arg).signed else layout(arg).block
        channels[block] = channels.get(block, 0) + arg.shape[1]
    block = max(channels, key=lambda each: (channels[each] if each else 0, each))
    whole = block in PREFERRED_BLOCKS and all(arg.shape[1] % block == 0 for arg in root.args)
    return block if whole and 2 * channels[block] >= root.shape[1] else 0


def written_in_place(
    joins: dict[Expr, None], native: dict[Expr, Layout], made: Callable[[Expr], bool]
) -> dict[Expr, tuple[Expr, int]]:
    """For each operand that is written into the result of a concatenation of ``joins``: that result, and the byte at
    which it begins. Gives both the wider halo, in ``native``. ``made``: whether a kernel, or such a concatenation,
    makes a value."""
    owner: dict[Expr, Expr] = {}
    for result in reversed(joins):
        for arg in _operands(result):
            fits = _agree(native[result], native.get(arg, Layout()))
            if made(arg) and arg not in owner and _operands(result).count(arg) == 1 and fits:
                native[result] = native[result].merged(native[arg])
                owner[arg] = result
    changed = True
    while changed:  # halos only grow
        changed = False
        for arg, result in owner.items():
            if native[arg] != native[result]:
                native[arg] = native[result] = native[result].merged(native[arg])
                changed = True
    return {arg: (result, dict(parts_of(result, native[result]))[arg]) for arg, result in owner.items()}


def parts_of(result: Expr, layout: Layout) -> list[tuple[Expr, int]]:
    """The operands of a concatenation, each with its first byte in the result."""
    operands = _operands(result)
    item = numpy_dtype(layout.dtype(element_type(result.dtype))).itemsize
    sizes = [prod(layout.shape(arg.shape)) * item for arg in operands]
    return list(zip(operands, accumulate(sizes, initial=0), strict=False))


def _operands(result: Expr) -> tuple[Expr, ...]:
    return result.args if isinstance(result, Call) else ()


def _agree(a: Layout, b: Layout) -> bool:
    """Whether one layout can be both."""
    return a.is_like(b) and (NO_HALO in (a.halo, b.halo) or a.fill == b.fill)
