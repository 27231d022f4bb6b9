"""Filling the halo of a tensor: the padding of the convolutions that read it."""

from __future__ import annotations

from collections.abc import Sequence

from ...tensor import ir as tir
from .layouts import Layout, fill_value


def border_function(shape: Sequence[int], dtype: tir.DType, layout: Layout, name: str) -> tir.PrimFunc:
    """Stores the fill in all rows and columns around the image (N, C, H, W) of ``shape``, which lies in ``layout``."""
    n, blocks, height, width, block = layout.shape(tuple(shape))
    top, left, bottom, right = layout.halo
    memory = layout.dtype(dtype)
    buffer = tir.Buffer("out", (n * blocks, height, width * block), memory)
    value = tir.Const(fill_value(layout, dtype), memory)
    image = tir.Var("image")

    def stripe(wish: str, first: int, rows: int, column: int, columns: int) -> tir.Stmt:
        y, x = tir.Var(f"{wish}_y"), tir.Var(f"{wish}_x")
        store = buffer.store((image, y + first, x + column * block), value)
        row = tir.For(x, tir.Const(columns * block), "vectorize", store)
        return tir.For(y, tir.Const(rows), "serial", row)

    stripes = [
        ("top", 0, top, 0, width),
        ("bottom", height - bottom, bottom, 0, width),
        ("left", top, height - top - bottom, 0, left),
        ("right", top, height - top - bottom, width - right, right),
    ]
    body = tir.sequence(*(stripe(*each) for each in stripes if each[2] and each[4]))
    return tir.PrimFunc(name, (buffer,), tir.For(image, tir.Const(n * blocks), "parallel", body))
