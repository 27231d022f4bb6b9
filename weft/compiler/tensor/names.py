"""Names that stay unique inside a function: loop variables, buffers and blocks share one space."""

from __future__ import annotations

from .ir import Allocate, Block, For, IntrinsicCall, PrimFunc
from .visitor import statements


def fresh_name(wish: str, names: set[str], prefix: str = "") -> str:
    """``wish`` if it is free, else ``prefix_wish`` or ``wish_2``, ``wish_3``, ...; the choice is added to ``names``."""
    name = wish
    if name in names and prefix:
        name = f"{prefix}_{wish}"
    stem, count = name, 2
    while name in names:
        name, count = f"{stem}_{count}", count + 1
    names.add(name)
    return name


def taken_names(func: PrimFunc) -> set[str]:
    """All names used in the function."""
    names = {buffer.name for buffer in func.params}
    for node in statements(func.body):
        match node:
            case For(var=var):
                names.add(var.name)
            case Allocate(buffer, _):
                names.add(buffer.name)
            case Block(name=name):
                names.add(name)
            case IntrinsicCall(block=name):
                names.add(name)
    return names
