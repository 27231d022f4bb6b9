"""Moves that put pixels where channels were, as products with ones and zeros: the values of an attention.

Moves of entries never change the lane of a number. A product of computed tensors does: its second operand has outputs
as pixels and gives them as channels, and a first operand of ones and zeros picks each channel for a pixel of its own.
So every block of pixels is an image whose channels are these pixels, and what stands before and behind the product are
moves of entries.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ....graph import Attrs, Constant, Expr, Function, TensorType, Var, call
from ..operators.packed_layout import Blocks
from .place_concat import exact

Pack = Callable[[Expr], Expr | None]
"""The packed form of a value as moves of what the core has made; None where the core does not move it."""

Make = Callable[[Function, Expr, Expr], Expr | None]
"""A call of a function for a value, given the packed form of that; None where it does not fit the core."""


def turned(node: Expr, blocks: Blocks, pack: Pack, make: Make) -> Expr | None:
    """An image (N, C, H, W) as moves of a product that has turned channels and pixels around; None where the core
    cannot make it so."""
    block = blocks.block_in
    if blocks.batch != 1 or block != blocks.block_out or len(node.shape) != 4:
        return None
    images, channels, *sides = node.shape
    pixels = sides[0] * sides[1]
    if channels % block or pixels % block:
        return None
    parts = _moved(node, (images, channels, pixels // block, block), (0, 2, 3, 1),
                   (images * pixels // block, block, channels, 1))  # fmt: skip
    operand = pack(parts)
    if operand is None:
        return None
    ones = np.tile(np.eye(block, dtype=np.int8).reshape(1, block, block, 1), (parts.shape[0], 1, 1, 1))
    name = f"{node.span.node or 'move'}.turned"
    x = Var("x0", TensorType(parts.shape, "int8"))
    product = call("product", Constant(ones, name), x, depth=block, outputs=channels, span=node.span)
    # moving numbers is no work of the model, whatever products it takes
    attrs = Attrs({"name": name, "primitive": True, "anchor": "product", "macs": 0})
    made = make(Function((x,), exact(product, 1.0), attrs), parts, operand)
    if made is None:
        return None
    return _moved(made, (images, pixels // block, channels, block), (0, 2, 1, 3), node.shape)


def _moved(x: Expr, parts: tuple[int, ...], perm: tuple[int, ...], shape: tuple[int, ...]) -> Expr:
    """``x`` in parts, in another order."""
    parted = call("reshape", x, shape=parts, span=x.span)
    return call("reshape", call("transpose", parted, perm=perm, span=x.span), shape=shape, span=x.span)
