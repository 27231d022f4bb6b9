"""Names that stay unique inside a function: loop variables, buffers and blocks share one space."""

from __future__ import annotations

from .ir import Allocate, Block, For, IntrinsicCall, PrimFunc
from .visitor import statements


def fresh_name(wish: str, taken: set[str], prefix: str = "") -> str:
    """``wish`` if it is free, else ``prefix_wish`` or ``wish_2``, ``wish_3``, ...; the choice is added to ``taken``."""
    name = wish
    if name in taken and prefix:
        name = f"{prefix}_{wish}"
    stem, count = name, 2
    while name in taken:
        name, count = f"{stem}_{count}", count + 1
    taken.add(name)
    return name


def taken_names(func: PrimFunc) -> set[str]:
    """All names used in the function."""
    taken = {buffer.name for buffer in func.params}
    for node in statements(func.body):
        match node:
            case For(var=var):
                taken.add(var.name)
            case Allocate(buffer, _):
                taken.add(buffer.name)
            case Block(name=name):
                taken.add(name)
            case IntrinsicCall(block=name):
                taken.add(name)
    return taken
