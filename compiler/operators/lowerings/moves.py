"""Operators that move elements: each is an index of the operand computed from the index of the result."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ...graph.ir import Call, Constant
from ...tensor import ir as tir
from .view import Builder, Index, NotLoweredError, Rule, View, broadcast, register_rules


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


def _transpose(builder: Builder, call: Call, operands: tuple[View, ...]) -> View:
    x, perm = operands[0], call.attr("perm")
    return View(call.shape, x.dtype, lambda index: x[tuple(index[perm.index(axis)] for axis in range(len(perm)))])


def _slice(builder: Builder, call: Call, operands: tuple[View, ...]) -> View:
    x, starts, steps = operands[0], call.attr("starts"), call.attr("steps")

    def read(index: Index) -> tir.Expr:
        return x[tuple(place * step + start for place, start, step in zip(index, starts, steps, strict=True))]

    return View(call.shape, x.dtype, read)


def _expand(builder: Builder, call: Call, operands: tuple[View, ...]) -> View:
    return broadcast(operands[0], call.shape)


def _pad(builder: Builder, call: Call, operands: tuple[View, ...]) -> View:
    x, pads = operands[0], call.attr("pads")
    count = len(pads) // 2
    first = len(x.shape) - count
    fill = tir.Const(call.attr("value"), x.dtype)

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


def _dilate(builder: Builder, call: Call, operands: tuple[View, ...]) -> View:
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


def _concat(builder: Builder, call: Call, operands: tuple[View, ...]) -> View:
    axis = call.attr("axis")

    def read(index: Index) -> tir.Expr:
        end = call.shape[axis]
        result: tir.Expr | None = None
        for part in reversed(operands):
            end -= part.shape[axis]
            value = part[(*index[:axis], index[axis] - end, *index[axis + 1 :])]
            result = value if result is None else tir.select(index[axis] < end + part.shape[axis], value, result)
        return result if result is not None else operands[0][index]

    return View(call.shape, operands[0].dtype, read)


def picked_sizes(call: Call) -> tuple[int, ...]:
    """Sizes of the axes in which the indices of a gather (its second operand) count: one, or one for each number of
    their last axis. Empty for other operators."""
    shape = call.args[0].shape if call.args else ()
    match call.op:
        case "gather" | "gather_elements":
            return (shape[call.attr("axis")],)
        case "gather_nd":
            first = call.attr("batch_dims")
            return shape[first : first + call.args[1].shape[-1]]
    return ()


def _place(call: Call, indices: View) -> Callable[[Index, int], tir.Expr]:
    """Reads an index, of an axis of the given size, as a place that counts from the front. Machine code trusts it to be
    inside: of constants that is known here, others are checked before the kernel runs."""
    source = call.args[1]
    negative = True
    if isinstance(source, Constant):
        sizes = np.array(picked_sizes(call))
        if not ((source.value >= -sizes) & (source.value < sizes)).all():
            raise NotLoweredError("an index that is outside")
        negative = bool((source.value < 0).any())

    def read(index: Index, size: int) -> tir.Expr:
        picked = indices[index].astype("int64")
        return picked + (picked < 0).astype("int64") * size if negative else picked

    return read


def _gather(builder: Builder, call: Call, operands: tuple[View, ...]) -> View:
    (x, indices), axis = operands, call.attr("axis")
    place, end = _place(call, indices), axis + len(indices.shape)

    def read(index: Index) -> tir.Expr:
        return x[(*index[:axis], place(index[axis:end], x.shape[axis]), *index[end:])]

    return View(call.shape, x.dtype, read)


def _gather_elements(builder: Builder, call: Call, operands: tuple[View, ...]) -> View:
    (x, indices), axis = operands, call.attr("axis")
    place = _place(call, indices)

    def read(index: Index) -> tir.Expr:
        return x[(*index[:axis], place(index, x.shape[axis]), *index[axis + 1 :])]

    return View(call.shape, x.dtype, read)


def _gather_nd(builder: Builder, call: Call, operands: tuple[View, ...]) -> View:
    (x, indices), batch = operands, call.attr("batch_dims")
    place, sizes = _place(call, indices), picked_sizes(call)
    end = len(indices.shape) - 1

    def read(index: Index) -> tir.Expr:
        picked = [place((*index[:end], tir.Const(number)), size) for number, size in enumerate(sizes)]
        return x[(*index[:batch], *picked, *index[end:])]

    return View(call.shape, x.dtype, read)


RULES: dict[str, Rule] = {
    "reshape": _reshape,
    "transpose": _transpose,
    "slice": _slice,
    "expand": _expand,
    "pad": _pad,
    "dilate": _dilate,
    "concat": _concat,
    "gather": _gather,
    "gather_elements": _gather_elements,
    "gather_nd": _gather_nd,
}

register_rules(RULES)
