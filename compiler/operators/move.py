"""Operators that move data only, for every element type: each element of the result is one of the operand, or constant.

All sizes are attributes: what moves where is known at compile time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..graph.ir import Array, Attrs, TensorType
from ..graph.registry import NOT_LOWERED, REQUIRED, Fusion, register
from . import numerics
from .elementwise import NO_GRADIENT_YET
from .integer import integer, ints, require


def tuple_of_ints(attrs: Attrs, name: str) -> tuple[int, ...]:
    """Attribute ``name`` as any number of integers."""
    value = attrs[name]
    require(isinstance(value, tuple), f"{name} must be integers, not {value!r}")
    return ints(attrs, name, len(value) if isinstance(value, tuple) else 0)


def _reshape_type(operands: Sequence[TensorType], attrs: Attrs) -> TensorType:
    x = operands[0]
    result = TensorType(tuple_of_ints(attrs, "shape"), x.dtype)
    require(result.size == x.size, f"{x} has {x.size} elements, but the new shape {result.shape} has {result.size}")
    return result


def _transpose_type(operands: Sequence[TensorType], attrs: Attrs) -> TensorType:
    x = operands[0]
    perm = ints(attrs, "perm", x.rank)
    require(sorted(perm) == list(range(x.rank)), f"perm {perm} is not a permutation of the axes of {x}")
    return TensorType(tuple(x.shape[axis] for axis in perm), x.dtype)


def _concat_type(operands: Sequence[TensorType], attrs: Attrs) -> TensorType:
    require(bool(operands), "there is nothing to put together")
    first = operands[0]
    axis = integer(attrs, "axis", 0, max(first.rank - 1, 0))

    def others(operand: TensorType) -> tuple[object, ...]:
        return (operand.dtype, *operand.shape[:axis], *operand.shape[axis + 1 :])

    for operand in operands:
        require(
            operand.rank == first.rank and others(operand) == others(first),
            f"{first} and {operand} do not fit together along axis {axis}",
        )
    total = sum(operand.shape[axis] for operand in operands)
    return TensorType((*first.shape[:axis], total, *first.shape[axis + 1 :]), first.dtype)


def _pad_type(operands: Sequence[TensorType], attrs: Attrs) -> TensorType:
    x, pads = operands[0], tuple_of_ints(attrs, "pads")
    count = len(pads) // 2
    require(
        len(pads) % 2 == 0 and count <= x.rank,
        f"pads must be two numbers for each of the last axes of {x}, but are {pads}",
    )
    require(min(pads, default=0) >= 0, "pads must not be negative")
    padded = [size + pads[i] + pads[count + i] for i, size in enumerate(x.shape[x.rank - count :])]
    return TensorType((*x.shape[: x.rank - count], *padded), x.dtype)


def _slice_type(operands: Sequence[TensorType], attrs: Attrs) -> TensorType:
    x = operands[0]
    starts, sizes, steps = (ints(attrs, name, x.rank) for name in ("starts", "sizes", "steps"))
    for axis, (start, size, step) in enumerate(zip(starts, sizes, steps, strict=True)):
        last = start + (size - 1) * step
        inside = size == 0 or (0 <= start < x.shape[axis] and 0 <= last < x.shape[axis])
        require(
            size >= 0 and step != 0 and inside,
            f"{size} elements from {start} in steps of {step} are not in axis {axis} of {x}",
        )
    return TensorType(sizes, x.dtype)


def _slice(x: Array, starts: Sequence[int], sizes: Sequence[int], steps: Sequence[int]) -> Array:
    picked = []
    for start, size, step in zip(starts, sizes, steps, strict=True):
        end = start + size * step
        picked.append(slice(start, end if end >= 0 else None, step) if size else slice(0, 0))
    return x[tuple(picked)]


def _expand_type(operands: Sequence[TensorType], attrs: Attrs) -> TensorType:
    x, shape = operands[0], tuple_of_ints(attrs, "shape")
    new = shape[len(shape) - x.rank :] if len(shape) >= x.rank else ()
    fits = len(shape) >= x.rank and all(old in (1, size) for old, size in zip(x.shape, new, strict=True))
    require(fits, f"{x} does not expand to the shape {shape}")
    return TensorType(shape, x.dtype)


def _dilate_type(operands: Sequence[TensorType], attrs: Attrs) -> TensorType:
    x, factors = operands[0], tuple_of_ints(attrs, "factors")
    require(len(factors) <= x.rank, f"there are {len(factors)} factors for the axes of {x}")
    require(min(factors, default=1) >= 1, f"factors must be at least 1, not {factors}")
    kept = x.rank - len(factors)
    spread = [max((size - 1) * factor + 1, 0) for size, factor in zip(x.shape[kept:], factors, strict=True)]
    return TensorType((*x.shape[:kept], *spread), x.dtype)


def _dilate(x: Array, factors: Sequence[int]) -> Array:
    kept = x.ndim - len(factors)
    spread = [max((size - 1) * factor + 1, 0) for size, factor in zip(x.shape[kept:], factors, strict=True)]
    result = np.zeros((*x.shape[:kept], *spread), x.dtype)
    places: Any = (..., *(slice(None, None, factor) for factor in factors))
    result[places] = x
    return result


_MOVE: dict[str, Any] = {"gradient": NO_GRADIENT_YET, "lower": NOT_LOWERED, "fusion": Fusion.LAYOUT}
register("reshape", "x", types=_reshape_type, numpy=lambda x, shape: x.reshape(shape), shape=REQUIRED, **_MOVE,
         doc="The same elements in row-major order under another shape.")  # fmt: skip
register("transpose", "x", types=_transpose_type, numpy=lambda x, perm: np.ascontiguousarray(x.transpose(perm)),
         perm=REQUIRED, **_MOVE, doc="Axes in another order: axis i of the result is axis perm[i] of x.")  # fmt: skip
register("concat", "x*", types=_concat_type, numpy=lambda *xs, axis: np.concatenate(xs, axis), axis=1, **_MOVE,
         doc="Tensors one after another along axis.")  # fmt: skip
register("pad", "x", types=_pad_type, numpy=numerics.pad_spatial, pads=REQUIRED, value=0.0, **_MOVE,
         doc="Surround the last axes by value; pads: before each axis, then after (images: top, left, bottom, right).")
register("slice", "x", types=_slice_type, numpy=_slice, starts=REQUIRED, sizes=REQUIRED, steps=REQUIRED, **_MOVE,
         doc="Element i of an axis is element start + i * step of x; steps may be negative.")  # fmt: skip
register("expand", "x", types=_expand_type, numpy=lambda x, shape: np.broadcast_to(x, shape), shape=REQUIRED, **_MOVE,
         doc="Repeat along axes of size 1 and new axes in front.")  # fmt: skip
register("dilate", "x", types=_dilate_type, numpy=_dilate, factors=REQUIRED, **_MOVE,
         doc="Put factor - 1 zeros between neighbours, along each of the last axes.")  # fmt: skip
