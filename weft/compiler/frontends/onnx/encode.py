"""Operators of ai.onnx.ml that replace labels by others: a place in one table is a place in another."""

from __future__ import annotations

import numpy as np

from ...graph import Array, Constant, Expr
from ...graph.dtypes import STRING, numpy_dtype
from .node import Converted, Node, converter
from .strings import strings_of, text_of


def _replaced(node: Node, x: Expr, keys: Array, values: Array, default: Array) -> Expr:
    """The value at the place where an element of ``x`` stands among the keys; ``default`` for one that is not there."""
    if len(keys) != len(values):
        raise node.error(f"there are {len(keys)} keys for {len(values)} values", hint="each key needs one value")
    table = np.concatenate([values, default.reshape(1).astype(values.dtype)])
    return node.call("gather", Constant(table), node.call("nn.find", x, Constant(keys)), axis=0)


def _table(node: Node, kind: str) -> Array:
    """The keys or values of a LabelEncoder, in the one form in which they are given."""
    given = [name for name in (f"{kind}_{form}" for form in ("floats", "int64s", "strings", "tensor"))
             if name in node.attrs]  # fmt: skip
    if len(given) != 1:
        raise node.error(f"needs one attribute with {kind}, but has {', '.join(given) or 'none'}")
    (name,) = given
    if name.endswith("strings"):
        return strings_of(node, name)
    if name.endswith("tensor"):
        return np.asarray(node.attrs[name]).reshape(-1)
    return np.asarray(node.attrs[name], np.float32 if name.endswith("floats") else np.int64)


def _default(node: Node, values: Array, is_tensor: bool) -> Array:
    if is_tensor and "default_tensor" in node.attrs:
        given = np.asarray(node.attrs["default_tensor"]).reshape(-1)
        if given.dtype != values.dtype or given.size != 1:
            raise node.error("attribute 'default_tensor' must be one element of the type of the values")
        return given
    if values.dtype == numpy_dtype(STRING):
        return np.array([text_of(node, node.attrs.get("default_string", "_Unused"))], values.dtype)
    if values.dtype.kind == "f":
        return np.array([node.number("default_float", -0.0)], values.dtype)
    return np.array([node.integer("default_int64", -1)], values.dtype)


@converter("ai.onnx.ml.LabelEncoder")
def _label_encoder(node: Node) -> Converted:
    x = node.input(0)
    if "classes_strings" in node.attrs:  # before opset 2: strings to their places, or the other way
        classes = strings_of(node, "classes_strings")
        places = np.arange(len(classes), dtype=np.int64)
        if x.dtype == STRING:
            return _replaced(node, x, classes, places, np.array(node.integer("default_int64", -1)))
        default = np.array([text_of(node, node.attrs.get("default_string", "_Unused"))], classes.dtype)
        return _replaced(node, x, places, classes, default)
    keys, values = _table(node, "keys"), _table(node, "values")
    return _replaced(node, x, keys, values, _default(node, values, "values_tensor" in node.attrs))


@converter("ai.onnx.ml.CategoryMapper")
def _category_mapper(node: Node) -> Converted:
    """Strings to integers, or integers to strings, whichever the operand is."""
    x = node.input(0)
    strings = strings_of(node, "cats_strings")
    numbers = np.asarray(node.attrs.get("cats_int64s") or (), np.int64)
    if x.dtype == STRING:
        return _replaced(node, x, strings, numbers, np.array(node.integer("default_int64", -1)))
    default = np.array([text_of(node, node.attrs.get("default_string", "_Unused"))], strings.dtype)
    return _replaced(node, x, numbers, strings, default)
