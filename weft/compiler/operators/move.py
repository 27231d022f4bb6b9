"""Operators that move data only, for every element type: each element of the result is one of the operand, or constant.

All sizes are attributes: what moves where is known at compile time. A lowering computes an index of the operand from
that of the result.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from ..graph.chooser import Chooser
from ..graph.dtypes import STRING
from ..graph.gradient import summed_to, zeros
from ..graph.ir import Array, Attrs, Call, Expr, TensorType
from ..graph.registry import REQUIRED, Accuracy, EightBits, Family, Fusion, Operator, call, register
from ..integers import describer, moves, windows
from ..tensor import ir as tir
from ..tensor.view import Builder, Index, View, broadcast
from . import derivatives, numerics
from .build import contract
from .samples import sample_of, variable
from .small_types import literal
from .type_rules import integer, ints, require, tuple_of_ints

_MOVE: dict[str, Any] = {"fusion": Fusion.LAYOUT, "accuracy": Accuracy.EXACT}


def _reshape_type(operands: Sequence[TensorType], attrs: Attrs) -> TensorType:
    x = operands[0]
    result = TensorType(tuple_of_ints(attrs, "shape"), x.dtype)
    require(result.size == x.size, f"{x} has {x.size} elements, but the new shape {result.shape} has {result.size}")
    return result


def flat_position(index: Index, shape: tuple[int, ...]) -> tir.Expr:
    """Row-major position of an element."""
    total: tir.Expr = tir.Const(0)
    for place, stride in zip(index, tir.row_major_strides(shape), strict=True):
        total = total + place * stride
    return total


def unflatten(position: tir.Expr, shape: tuple[int, ...]) -> Index:
    """Index of the element at a row-major position."""
    strides = tir.row_major_strides(shape)
    return tuple(
        tir.Const(0) if size == 1 else (position // stride) % size if axis else position // stride
        for axis, (size, stride) in enumerate(zip(shape, strides, strict=True))
    )


def reshaped(view: View, shape: tuple[int, ...]) -> View:
    """The same elements in row-major order. Axes that both shapes share at the front or the end keep their index."""
    front = 0
    while front < min(len(shape), len(view.shape)) and shape[front] == view.shape[front]:
        front += 1
    back = 0
    while back < min(len(shape), len(view.shape)) - front and shape[-1 - back] == view.shape[-1 - back]:
        back += 1
    old, new = view.shape[front : len(view.shape) - back], shape[front : len(shape) - back]

    def read(index: Index) -> tir.Expr:
        middle = index[front : len(shape) - back]
        position = flat_position(middle, new)
        return view[(*index[:front], *unflatten(position, old), *index[len(shape) - back :])]

    return View(shape, view.dtype, read)


def _reshape(builder: Builder, call: Call, operands: tuple[View, ...]) -> View:
    return reshaped(operands[0], call.shape)


def _draw_reshape(choose: Chooser) -> Expr:
    x = choose.operand(lambda node: True)
    sizes = list(x.shape)
    if len(sizes) > 1 and choose.chance(0.6):
        axis = choose.whole(0, len(sizes) - 2)
        sizes[axis : axis + 2] = [sizes[axis] * sizes[axis + 1]]
    else:
        sizes.insert(choose.whole(0, len(sizes)), 1)
    return call("reshape", x, shape=tuple(sizes[:5]) if len(sizes) <= 5 else x.shape)


register(Operator(
    "reshape", "x", family=Family.MOVE, types=_reshape_type, numpy=lambda x, shape: x.reshape(shape), **_MOVE,
    gradient=lambda upstream, node: (derivatives.reshaped(upstream, node.args[0].shape),), lower=_reshape,
    defaults={"shape": REQUIRED}, passive=True, sample=sample_of("reshape", (3, 4), shape=(2, 6)), draw=_draw_reshape,
    doc="The same elements in row-major order under another shape.",
))  # fmt: skip


def _barrier_type(operands: Sequence[TensorType], attrs: Attrs) -> TensorType:
    require(bool(operands), "there is no tensor to hand on")
    return operands[0]


register(Operator(
    "barrier", "x*", family=Family.MOVE, types=_barrier_type, numpy=lambda x, *after: x, **_MOVE,
    gradient=lambda upstream, node: (upstream, *(None for _ in node.args[1:])),
    lower=lambda builder, node, operands: operands[0], passive=True,
    sample=lambda dtype: call("barrier", variable(dtype, 3, 4), variable(dtype, 2, name="after")), folds=False,
    doc="The first operand, once the others are computed: what is made of it is not merged with what is made of the "
        "operand itself, so that it is computed again, and then.",
))  # fmt: skip


def _transpose_type(operands: Sequence[TensorType], attrs: Attrs) -> TensorType:
    x = operands[0]
    perm = ints(attrs, "perm", x.rank)
    require(sorted(perm) == list(range(x.rank)), f"perm {perm} is not a permutation of the axes of {x}")
    return TensorType(tuple(x.shape[axis] for axis in perm), x.dtype)


def _transpose(builder: Builder, call: Call, operands: tuple[View, ...]) -> View:
    x, perm = operands[0], call.attr("perm")
    return View(call.shape, x.dtype, lambda index: x[tuple(index[perm.index(axis)] for axis in range(len(perm)))])


def _draw_transpose(choose: Chooser) -> Expr:
    x = choose.operand(lambda node: len(node.shape) > 1)
    axes, perm = list(range(len(x.shape))), []
    while axes:
        perm.append(axes.pop(choose.whole(0, len(axes) - 1)))
    return call("transpose", x, perm=tuple(perm))


def _transpose_gradient(upstream: Expr, node: Call) -> tuple[Expr | None, ...]:
    perm = node.attr("perm")
    return (derivatives.transposed(upstream, [perm.index(axis) for axis in range(len(perm))]),)


register(Operator(
    "transpose", "x", family=Family.MOVE, types=_transpose_type,
    numpy=lambda x, perm: np.ascontiguousarray(x.transpose(perm)), **_MOVE,
    gradient=_transpose_gradient, lower=_transpose, defaults={"perm": REQUIRED}, passive=True,
    sample=sample_of("transpose", (2, 3, 4), perm=(2, 0, 1)), draw=_draw_transpose,
    doc="Axes in another order: axis i of the result is axis perm[i] of x.",
))  # fmt: skip


def _depth_to_space_type(operands: Sequence[TensorType], attrs: Attrs) -> TensorType:
    x = operands[0]
    down, right = factors = ints(attrs, "factors", 2)
    require(x.rank == 4 and min(factors) >= 1, f"factors {factors} of {x}, which must be (N, C, H, W) and at least 1")
    require(x.shape[1] % (down * right) == 0, f"{x} has no multiple of {down * right} channels")
    left_out = ints(attrs, "left_out", 4)
    height, width = (x.shape[2 + i] * factors[i] - left_out[i] - left_out[2 + i] for i in (0, 1))
    require(min(*left_out, height, width) >= 0, f"{left_out} (top, left, bottom, right) cannot be left out of {x}")
    return TensorType((x.shape[0], x.shape[1] // (down * right), height, width), x.dtype)


def depth_to_space(x: Array, factors: Sequence[int], left_out: Sequence[int]) -> Array:
    """The meaning of ``depth_to_space``."""
    top, left, bottom, last = left_out
    batch, channels, height, width = x.shape
    down, right = factors
    split = x.reshape(batch, down, right, channels // (down * right), height, width).transpose(0, 3, 4, 1, 5, 2)
    whole = np.ascontiguousarray(split).reshape(batch, -1, height * down, width * right)
    return np.ascontiguousarray(whole[:, :, top : height * down - bottom, left : width * right - last])


def _depth_to_space(builder: Builder, call: Call, operands: tuple[View, ...]) -> View:
    x, (down, right), (top, left, _, _) = operands[0], call.attr("factors"), call.attr("left_out")

    def read(index: Index) -> tir.Expr:
        image, channel, row, column = index[0], index[1], index[2] + top, index[3] + left
        phase = row % down * right + column % right
        return x[(image, phase * call.shape[1] + channel, row // down, column // right)]

    return View(call.shape, x.dtype, read)


def _depth_to_space_gradient(upstream: Expr, node: Call) -> tuple[Expr | None, ...]:
    (batch, channels, *_), (_, _, height, width) = node.shape, node.args[0].shape
    (down, right), (top, left, bottom, last) = node.attr("factors"), node.attr("left_out")
    upstream = derivatives.padded(upstream, (0, 0, top, left), (0, 0, bottom, last))
    split = contract.reshape(upstream, shape=(batch, channels, height, down, width, right))
    return (contract.reshape(derivatives.transposed(split, (0, 3, 5, 1, 2, 4)), shape=node.args[0].shape),)


register(Operator(
    "depth_to_space", "x", family=Family.INDEX, types=_depth_to_space_type, numpy=depth_to_space, **_MOVE,
    gradient=_depth_to_space_gradient, lower=_depth_to_space, passive=True,
    defaults={"factors": REQUIRED, "left_out": (0, 0, 0, 0)},
    sample=sample_of("depth_to_space", (2, 12, 2, 3), factors=(2, 3), left_out=(1, 0, 0, 2)),
    doc="Channels side by side: those of number (p * right + q) * C + c, of C, are row p and column q of each down x "
        "right pixels of channel c; factors: down, right. left_out: rows and columns (top, left, bottom, right).",
))  # fmt: skip


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


CHAINED = 16
"""Operands of a concatenation among which a chain of choices picks: each is nested in the one before. Of more the
choice is halved first, or texts and walks of kernels of hundreds would be nested too deeply."""


def _concat(builder: Builder, call: Call, operands: tuple[View, ...]) -> View:
    axis = call.attr("axis")
    starts = list(accumulate((part.shape[axis] for part in operands), initial=0))

    def picked(index: Index, first: int, end: int) -> tir.Expr:
        """The element, which is in one of the operands from ``first`` up to ``end``."""
        if end - first == 1:
            place = index[axis] - starts[first]
            return operands[first][(*index[:axis], place, *index[axis + 1 :])]
        middle = first + 1 if end - first <= CHAINED else (first + end) // 2
        return tir.select(index[axis] < starts[middle], picked(index, first, middle), picked(index, middle, end))

    return View(call.shape, operands[0].dtype, lambda index: picked(index, 0, len(operands)))


def _draw_concat(choose: Chooser) -> Expr:
    x = choose.operand(lambda node: len(node.shape) > 0)
    y = choose.operand(lambda node: node.tensor_type == x.tensor_type, (x.dtype,))
    return call("concat", x, y, axis=choose.whole(0, len(x.shape) - 1))


def _concat_gradient(upstream: Expr, node: Call) -> tuple[Expr | None, ...]:
    axis, start, parts = node.attr("axis"), 0, []
    for arg in node.args:
        parts.append(derivatives.part(upstream, [start if i == axis else 0 for i in range(len(arg.shape))], arg.shape))
        start += arg.shape[axis]
    return tuple(parts)


register(Operator(
    "concat", "x*", family=Family.MOVE, types=_concat_type, numpy=lambda *xs, axis: np.concatenate(xs, axis), **_MOVE,
    gradient=_concat_gradient, lower=_concat, defaults={"axis": 1}, integer=moves.joined, eight_bits=EightBits.JOINS,
    sample=sample_of("concat", (2, 3), (2, 4), axis=1), draw=_draw_concat,
    doc="Tensors one after another along axis.",
))  # fmt: skip


def _pad_type(operands: Sequence[TensorType], attrs: Attrs) -> TensorType:
    x, pads = operands[0], tuple_of_ints(attrs, "pads")
    count = len(pads) // 2
    require(
        len(pads) % 2 == 0 and count <= x.rank,
        f"pads must be two numbers for each of the last axes of {x}, but are {pads}",
    )
    require(min(pads, default=0) >= 0, "pads must not be negative")
    value = attrs["value"]
    require(isinstance(value, str) == (x.dtype == STRING), f"the value {value!r} is no element of {x}")
    padded = [size + pads[i] + pads[count + i] for i, size in enumerate(x.shape[x.rank - count :])]
    return TensorType((*x.shape[: x.rank - count], *padded), x.dtype)


def _pad(builder: Builder, call: Call, operands: tuple[View, ...]) -> View:
    x, pads = operands[0], call.attr("pads")
    count = len(pads) // 2
    first = len(x.shape) - count
    fill = literal(call.attr("value"), call.dtype)

    def read(index: Index) -> tir.Expr:
        places = list(index)
        inside: tir.Expr | None = None
        for axis in range(count):
            before, after = pads[axis], pads[count + axis]
            place = places[first + axis] = index[first + axis] - before
            for wanted, condition in ((before, tir.Const(0) <= place), (after, place < x.shape[first + axis])):
                if wanted:
                    inside = condition if inside is None else inside & condition
        value = x[tuple(places)]
        return value if inside is None else tir.select(inside, value, fill)

    return View(call.shape, x.dtype, read)


def _draw_pad(choose: Chooser) -> Expr:
    x = choose.operand(lambda node: len(node.shape) > 0)
    pads = tuple(choose.whole(0, 2) for _ in range(2 * len(x.shape)))
    return call("pad", x, pads=pads, value=float(choose.whole(0, 1)))


def _sample_pad(dtype: str) -> Call:
    return call("pad", variable(dtype, 2, 3, 2), pads=(1, 0, 2, 1), value="a" if dtype == STRING else 1.0)


def _pad_gradient(upstream: Expr, node: Call) -> tuple[Expr | None, ...]:
    x, pads = node.args[0], node.attr("pads")
    before = (*(0 for _ in range(len(x.shape) - len(pads) // 2)), *pads[: len(pads) // 2])
    return (derivatives.part(upstream, before, x.shape),)


register(Operator(
    "pad", "x", family=Family.MOVE, types=_pad_type, numpy=numerics.pad_spatial, **_MOVE, lower=_pad, passive=True,
    gradient=_pad_gradient, defaults={"pads": REQUIRED, "value": 0.0},
    sample=_sample_pad, draw=_draw_pad, integer=windows.padded,
    doc="Surround the last axes by value; pads: before each axis, then after (images: top, left, bottom, right).",
))  # fmt: skip


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


def _lower_slice(builder: Builder, call: Call, operands: tuple[View, ...]) -> View:
    x, starts, steps = operands[0], call.attr("starts"), call.attr("steps")

    def read(index: Index) -> tir.Expr:
        return x[tuple(place * step + start for place, start, step in zip(index, starts, steps, strict=True))]

    return View(call.shape, x.dtype, read)


def _draw_slice(choose: Chooser) -> Expr:
    x = choose.operand(lambda node: len(node.shape) > 0 and 0 not in node.shape)
    starts = tuple(choose.whole(0, size - 1) for size in x.shape)
    steps = tuple(choose.whole(1, 3) for _ in x.shape)
    sizes = tuple(
        choose.whole(0, 1 + (size - 1 - start) // step)
        for size, start, step in zip(x.shape, starts, steps, strict=True)
    )
    return call("slice", x, starts=starts, sizes=sizes, steps=steps)


def _slice_gradient(upstream: Expr, node: Call) -> tuple[Expr | None, ...]:
    """Zeros between what was picked, and around it."""
    x, starts, steps = node.args[0], node.attr("starts"), node.attr("steps")
    if 0 in upstream.shape:
        return (zeros(x.tensor_type),)
    value = derivatives.flipped(upstream, [axis for axis, step in enumerate(steps) if step < 0])
    factors = tuple(abs(step) if size > 1 else 1 for step, size in zip(steps, upstream.shape, strict=True))
    value = contract.dilate(value, factors=factors) if any(factor > 1 for factor in factors) else value
    before = [
        start + min(step, 0) * (size - 1) for start, size, step in zip(starts, upstream.shape, steps, strict=True)
    ]
    after = [size - first - have for size, first, have in zip(x.shape, before, value.shape, strict=True)]
    return (derivatives.padded(value, before, after),)


register(Operator(
    "slice", "x", family=Family.INDEX, types=_slice_type, numpy=_slice, **_MOVE, lower=_lower_slice, passive=True,
    gradient=_slice_gradient,
    defaults={"starts": REQUIRED, "sizes": REQUIRED, "steps": REQUIRED},
    sample=sample_of("slice", (5, 4), starts=(4, 1), sizes=(3, 2), steps=(-2, 1)), draw=_draw_slice,
    doc="Element i of an axis is element start + i * step of x; steps may be negative.",
))  # fmt: skip


def _expand_type(operands: Sequence[TensorType], attrs: Attrs) -> TensorType:
    x, shape = operands[0], tuple_of_ints(attrs, "shape")
    new = shape[len(shape) - x.rank :] if len(shape) >= x.rank else ()
    fits = len(shape) >= x.rank and all(old in (1, size) for old, size in zip(x.shape, new, strict=True))
    require(fits, f"{x} does not expand to the shape {shape}")
    return TensorType(shape, x.dtype)


def _expand(builder: Builder, call: Call, operands: tuple[View, ...]) -> View:
    return broadcast(operands[0], call.shape)


def _draw_expand(choose: Chooser) -> Expr:
    x = choose.operand(lambda node: 1 in node.shape)
    return call("expand", x, shape=tuple(choose.whole(1, 4) if size == 1 else size for size in x.shape))


register(Operator(
    "expand", "x", family=Family.INDEX, types=_expand_type, numpy=lambda x, shape: np.broadcast_to(x, shape),
    **_MOVE, gradient=lambda upstream, node: (summed_to(upstream, node.args[0].shape),), lower=_expand,
    defaults={"shape": REQUIRED}, sample=sample_of("expand", (3, 1), shape=(2, 3, 4)), draw=_draw_expand,
    doc="Repeat along axes of size 1 and new axes in front.",
))  # fmt: skip


def _dilate_type(operands: Sequence[TensorType], attrs: Attrs) -> TensorType:
    x, factors = operands[0], tuple_of_ints(attrs, "factors")
    require(x.dtype != STRING, "there is no zero among strings")
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


def _lower_dilate(builder: Builder, call: Call, operands: tuple[View, ...]) -> View:
    x, factors = operands[0], call.attr("factors")
    first = len(x.shape) - len(factors)
    zero = tir.Const(0, x.dtype)

    def read(index: Index) -> tir.Expr:
        places = list(index)
        present: tir.Expr | None = None
        for axis, factor in enumerate(factors, first):
            if factor > 1:
                places[axis] = index[axis] // factor
                condition = (index[axis] % factor).eq(0)
                present = condition if present is None else present & condition
        value = x[tuple(places)]
        return value if present is None else tir.select(present, value, zero)

    return View(call.shape, x.dtype, read)


def _dilate_gradient(upstream: Expr, node: Call) -> tuple[Expr | None, ...]:
    x, factors = node.args[0], node.attr("factors")
    steps = (1,) * (len(x.shape) - len(factors)) + tuple(factors)
    return (contract.slice(upstream, starts=(0,) * len(x.shape), sizes=x.shape, steps=steps),)


register(Operator(
    "dilate", "x", family=Family.INDEX, types=_dilate_type, numpy=_dilate, **_MOVE, lower=_lower_dilate,
    gradient=_dilate_gradient, integer=describer.zeros_between,
    defaults={"factors": REQUIRED}, sample=sample_of("dilate", (2, 3, 2), factors=(2, 3)),
    doc="Put factor - 1 zeros between neighbours, along each of the last axes.",
))  # fmt: skip
