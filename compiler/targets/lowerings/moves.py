"""Operators that move elements: each is an index of the operand computed from the index of the result."""

from __future__ import annotations

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


def _gather(builder: Builder, call: Call, operands: tuple[View, ...]) -> View:
    (x, indices), axis = operands, call.attr("axis")
    source = call.args[1]
    size = x.shape[axis]
    if not isinstance(source, Constant) or not ((source.value >= -size) & (source.value < size)).all():
        raise NotLoweredError("indices that are not known to be inside")

    def read(index: Index) -> tir.Expr:
        picked = indices[index[axis : axis + len(indices.shape)]].astype("int64")
        place = tir.select(picked < 0, picked + size, picked) if (source.value < 0).any() else picked
        return x[(*index[:axis], place, *index[axis + len(indices.shape) :])]

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
}

register_rules(RULES)
