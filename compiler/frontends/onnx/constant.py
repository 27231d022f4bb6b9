"""Constants, and operators whose result has a shape that depends on the values of their operands: those are computed
while the model is read, from operands that must be known."""

from __future__ import annotations

import numpy as np

from ...graph import Array, Constant
from ...graph.dtypes import STRING, numpy_dtype
from ...graph.dtypes import dtype_name as dtype_name_of
from ...graph.strings import canonical
from .node import Converted, Node, converter
from .strings import strings_of, text_of
from .types import check_constant_size, dtype_name


@converter("Constant")
def _constant(node: Node) -> Converted:
    kinds = {
        "value": None, "sparse_value": None, "value_float": np.float32, "value_floats": np.float32,
        "value_int": np.int64, "value_ints": np.int64,
    }  # fmt: skip
    for name, dtype in kinds.items():
        if name in node.attrs:
            value = node.attrs[name]
            return Constant(np.asarray(value, dtype) if dtype else value, node.span.tensor, node.span)
    if "value_string" in node.attrs:
        return Constant(canonical(text_of(node, node.attrs["value_string"])), node.span.tensor, node.span)
    if "value_strings" in node.attrs:
        return Constant(strings_of(node, "value_strings"), node.span.tensor, node.span)
    raise node.error("has no value that is a tensor")


@converter("ConstantOfShape")
def _constant_of_shape(node: Node) -> Converted:
    shape = node.known_integers(0, "the shape")
    value = node.attrs.get("value", np.zeros(1, np.float32))
    check_constant_size(shape, value.dtype.itemsize, "its result")
    return Constant(np.full(shape, value.reshape(-1)[0], value.dtype), node.span.tensor, node.span)


@converter("Range")
def _range(node: Node) -> Converted:
    dtype = node.input(0).dtype
    wide = np.int64 if dtype.startswith("int") else np.float64
    start, limit, delta = (node.constant(i, what).astype(wide).reshape(()).item()
                           for i, what in enumerate(("the start", "the limit", "the step")))  # fmt: skip
    count = max(int(np.ceil((limit - start) / delta)), 0)
    check_constant_size([count], 8, "its result")
    values = start + np.arange(count).astype(wide) * delta
    return Constant(values.astype(numpy_dtype(dtype)), node.span.tensor, node.span)


@converter("EyeLike")
def _eye_like(node: Node) -> Converted:
    x = node.input(0)
    dtype = dtype_name(node.integer("dtype", 0)) if "dtype" in node.attrs else x.dtype
    rows, columns = x.shape
    check_constant_size(x.shape, 8, "its result")
    return node.like(np.eye(rows, columns, node.integer("k", 0)), dtype)


@converter("NonZero")
def _non_zero(node: Node) -> Converted:
    x = node.constant(0, "the tensor whose elements are counted")
    return Constant(np.array(np.nonzero(x), np.int64).reshape(x.ndim, -1))


@converter("Unique")
def _unique(node: Node) -> Converted:
    x = node.constant(0, "the tensor whose elements are compared")
    axis = node.axis(x.ndim, 0) if "axis" in node.attrs else None
    if dtype_name_of(x.dtype) == STRING:  # NumPy compares strings up to a zero, and objects as a whole
        if axis is not None and x.ndim > 1:
            raise node.error("slices of strings are not compared", hint="leave out the axis")
        x, axis = x.astype(object), None
    values, first, inverse, counts = np.unique(x, True, True, True, axis=axis)
    inverse = inverse.reshape(-1)
    if not node.integer("sorted", 1):
        order = np.argsort(first)
        back = np.argsort(order)
        values = np.take(values, order, axis=0 if axis is None else axis)
        first, inverse, counts = first[order], back[inverse], counts[order]
    return tuple(Constant(value) for value in (values, *(v.astype(np.int64) for v in (first, inverse, counts))))


def _overlap(box: Array, others: Array, centred: bool) -> Array:
    """Intersection over union of one box with others."""

    def corners(boxes: Array) -> tuple[Array, Array]:
        if centred:  # x, y, width, height
            middle, half = boxes[..., :2], boxes[..., 2:] / 2
            return middle - half, middle + half
        first, second = boxes[..., :2], boxes[..., 2:]
        return np.minimum(first, second), np.maximum(first, second)

    (low, high), (other_low, other_high) = corners(box), corners(others)
    shared = np.prod(np.clip(np.minimum(high, other_high) - np.maximum(low, other_low), 0, None), axis=-1)
    union = np.prod(high - low, axis=-1) + np.prod(other_high - other_low, axis=-1) - shared
    return np.asarray(np.where(union > 0, shared / np.where(union > 0, union, 1), 0.0))


@converter("NonMaxSuppression")
def _non_max_suppression(node: Node) -> Converted:
    boxes, scores = node.constant(0, "the boxes"), node.constant(1, "the scores")
    names = ("the number of boxes", "the overlap", "the least score")
    limits = [
        node.constant(i, name).reshape(-1)[0].item() if node.has(i) else None for i, name in enumerate(names, start=2)
    ]
    centred = bool(node.integer("center_point_box", 0))
    most, overlap, least = limits[0] or 0, limits[1] or 0.0, limits[2]
    chosen: list[tuple[int, int, int]] = []
    for batch in range(scores.shape[0]):
        for label in range(scores.shape[1]):
            mine = scores[batch, label]
            waiting = [int(i) for i in np.argsort(-mine, kind="stable") if least is None or mine[i] > least]
            kept: list[int] = []
            while waiting and len(kept) < most:
                best = waiting.pop(0)
                kept.append(best)
                if waiting:
                    shared = _overlap(boxes[batch, best], boxes[batch, waiting], centred)
                    waiting = [i for i, value in zip(waiting, shared, strict=True) if value <= overlap]
            chosen += [(batch, label, index) for index in kept]
    return Constant(np.array(chosen, np.int64).reshape(-1, 3))
