"""Filling the halo of a tensor: the padding of the convolutions that read it."""

from __future__ import annotations

from collections.abc import Sequence

from ...tensor import ir as tir
from .layouts import Layout, fill_value


def border_function(shape: Sequence[int], dtype: tir.DType, layout: Layout, name: str) -> tir.PrimFunc:
    """Stores the fill in all that is around the image or volume (N, C, ...) of ``shape``, which lies in ``layout``."""
    n, blocks, *sizes, block = layout.shape(tuple(shape))
    before, after = layout.around(len(sizes))
    memory = layout.dtype(dtype)
    buffer = tir.Buffer("out", (n * blocks, *sizes[:-1], sizes[-1] * block), memory)
    value = tir.Const(fill_value(layout, dtype), memory)
    image = tir.Var("image")
    inside = [(first, size - first - last) for first, size, last in zip(before, sizes, after, strict=True)]
    names = ("z", "y", "x")[-len(sizes) :]

    def stripe(wish: str, part: Sequence[tuple[int, int]]) -> tir.Stmt:
        """``part``: first place and count along each axis."""
        *outer, (column, columns) = part
        *rows, x = (tir.Var(f"{wish}_{letter}") for letter in names)
        at = [row + first for row, (first, _) in zip(rows, outer, strict=True)]
        body: tir.Stmt = buffer.store((image, *at, x + column * block), value)
        body = tir.For(x, tir.Const(columns * block), "vectorize", body)
        for row, (_, count) in reversed(list(zip(rows, outer, strict=True))):
            body = tir.For(row, tir.Const(count), "serial", body)
        return body

    stripes: list[tir.Stmt] = []
    for axis, (size, letter) in enumerate(zip(sizes, names, strict=True)):
        whole = [(0, each) for each in sizes[axis + 1 :]]
        for wish, first, count in (("before", 0, before[axis]), ("behind", size - after[axis], after[axis])):
            if count:
                stripes.append(stripe(f"{wish}_{letter}", [*inside[:axis], (first, count), *whole]))
    body = tir.sequence(*stripes)
    return tir.PrimFunc(name, (buffer,), tir.For(image, tir.Const(n * blocks), "parallel", body))
