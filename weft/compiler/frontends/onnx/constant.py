"""Constants, and operators whose result has a shape that depends on the values of their operands: those are computed
while the model is read, from operands that must be known."""

from __future__ import annotations

import math

import numpy as np

from ...graph import Constant
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


@converter("NonMaxSuppression")
def _non_max_suppression(node: Node) -> Converted:
    """As many rows as are kept where boxes and scores are known, else as many as there can be."""
    boxes, scores = node.input(0), node.input(1)
    names = ("the number of boxes", "the overlap", "the least score")
    limits = [
        node.constant(i, name).reshape(-1)[0].item() if node.has(i) else None for i, name in enumerate(names, start=2)
    ]
    attrs = {
        "most": max(limits[0] or 0, 0), "overlap": limits[1] or 0.0,
        "least": -math.inf if limits[2] is None else limits[2], "centred": bool(node.integer("center_point_box", 0)),
    }  # fmt: skip
    if not node.scope.reading.largest_results:
        boxes, scores = Constant(node.known(boxes, "the boxes")), Constant(node.known(scores, "the scores"))
    found = node.call("non_max_suppression", boxes, scores, **attrs)
    known = node.scope.static_value(found)
    return found if known is None else Constant(known[known[:, 2] >= 0])
