"""An example of a call of every operator, for any element type that it takes: the manual, the tests and fuzzing use it.

Operators on packed tensors have none: their operands depend on the shape of an array.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..graph.dtypes import DTYPES
from ..graph.ir import Call, Constant, Expr, GraphError, TensorType, Var
from ..graph.registry import Operator, call, operators

Example = Callable[[str], Call]


def _operand(dtype: str, *shape: int, name: str = "x") -> Var:
    return Var(name, TensorType(shape, dtype))


def _of(op: str, *shapes: tuple[int, ...], **attrs: Any) -> Example:
    """A call with operands of one type and these shapes."""

    def build(dtype: str) -> Call:
        return call(op, *(_operand(dtype, *shape, name=f"x{i}") for i, shape in enumerate(shapes)), **attrs)

    return build


def _indices(values: object) -> Constant:
    return Constant(np.array(values, np.int64))


def _requantise(dtype: str) -> Call:
    params = [Constant(np.array(values, np.int32)) for values in ([5, -3], [1 << 23, 12_345_678], [24, 30])]
    return call("requantise", _operand(dtype, 1, 2, 3, 3), *params)


def _quantise(dtype: str) -> Call:
    scale = Constant(np.array([0.5, 0.02], np.float32))
    return call("quantise", _operand("float32", 1, 2, 3), scale, _operand(dtype, 2, name="zero_point"))


def _dequantise(dtype: str) -> Call:
    scale = Constant(np.array(0.25, np.float32))
    return call("dequantise", _operand(dtype, 2, 3), scale, _operand(dtype, name="zero_point"))


def _power(dtype: str) -> Call:
    return call("nn.power", _operand(dtype, 2, 3), _operand(dtype, 3, name="exponent"))


def _where(dtype: str) -> Call:
    return call("nn.where", _operand("bool", 2, 3, name="c"), _operand(dtype, 2, 3), _operand(dtype, 3, name="y"))


def _grid_sample(dtype: str) -> Call:
    return call("nn.grid_sample", _operand(dtype, 1, 2, 4, 5), _operand(dtype, 1, 3, 2, 2, name="grid"))


def _roi_align(dtype: str) -> Call:
    rois = _operand(dtype, 2, 4, name="rois")
    return call("nn.roi_align", _operand(dtype, 1, 2, 6, 6), rois, _indices([0, 0]), size=(2, 2), sampling_ratio=2)


def _moves(op: str, *constants: Expr, updates: tuple[int, ...] | None = None, **attrs: Any) -> Example:
    """A call on (3, 4) with constant indices, and updates of the operand's type."""

    def build(dtype: str) -> Call:
        last = () if updates is None else (_operand(dtype, *updates, name="updates"),)
        return call(op, _operand(dtype, 3, 4), *constants, *last, **attrs)

    return build


_IMAGE, _WEIGHTS = (1, 4, 5, 6), (6, 2, 3, 2)
_WINDOW: dict[str, Any] = {"kernel": (3, 2), "strides": (2, 1), "pads": (1, 0, 1, 1)}

_EXAMPLES: dict[str, Example] = {
    "concat": _of("concat", (2, 3), (2, 4), axis=1),
    "conv2d": _of("conv2d", _IMAGE, _WEIGHTS, groups=2, pads=(1, 0, 1, 1), pad_value=3),
    "dequantise": _dequantise,
    "dilate": _of("dilate", (2, 3, 2), factors=(2, 3)),
    "expand": _of("expand", (3, 1), shape=(2, 3, 4)),
    "gather": _moves("gather", _indices([[0, -1], [2, 2]]), axis=0),
    "gather_elements": _moves("gather_elements", _indices([[0, -1], [2, 1]]), axis=1),
    "gather_nd": _moves("gather_nd", _indices([[0, 1], [2, -1]])),
    "max_pool": _of("max_pool", _IMAGE, **_WINDOW),
    "multiply": _of("multiply", (1, 2, 3), (1, 2, 3)),
    "multiply_accumulate": _of("multiply_accumulate", (1, 2, 3), (1, 2, 3), weight=-7),
    "multiply_immediate": _of("multiply_immediate", (1, 2, 3), weight=100),
    "nn.arg_max": _of("nn.arg_max", (3, 4), axis=1),
    "nn.arg_min": _of("nn.arg_min", (3, 4), axis=0, keepdims=True, last=True),
    "nn.average_pool": _of("nn.average_pool", _IMAGE, **_WINDOW),
    "nn.batch_norm": _of("nn.batch_norm", (1, 3, 2, 2), (3,), (3,), (3,), (3,)),
    "nn.bitcast": lambda dtype: call("nn.bitcast", _operand(dtype, 2, 3), to=_same_width(dtype)),
    "nn.cast": _of("nn.cast", (2, 3), to="float32"),
    "nn.clip": _of("nn.clip", (2, 3), low=-0.5, high=0.75),
    "nn.conv2d": _of("nn.conv2d", _IMAGE, _WEIGHTS, groups=2, strides=(2, 1), pads=(1, 0, 1, 1), dilations=(1, 2)),
    "nn.conv3d": _of("nn.conv3d", (1, 2, 3, 4, 4), (3, 2, 2, 2, 2), strides=(1, 2, 1)),
    "nn.cumulative_product": _of("nn.cumulative_product", (3, 4), axis=1, exclusive=True),
    "nn.cumulative_sum": _of("nn.cumulative_sum", (3, 4), axis=0, reverse=True),
    "nn.deform_conv2d": _of("nn.deform_conv2d", _IMAGE, (6, 2, 3, 2), (1, 24, 5, 6), (1, 12, 5, 6), groups=2,
                            pads=(1, 0, 1, 1), offset_groups=2),
    "nn.dense": _of("nn.dense", (3, 4), (5, 4)),
    "nn.determinant": _of("nn.determinant", (2, 3, 3)),
    "nn.einsum": _of("nn.einsum", (2, 3), (3, 4), equation="ij,jk->ki"),
    "nn.grid_sample": _grid_sample,
    "nn.matmul": _of("nn.matmul", (2, 1, 3, 4), (3, 4, 2)),
    "nn.max_pool": _of("nn.max_pool", _IMAGE, **_WINDOW),
    "nn.max_pool_indices": _of("nn.max_pool_indices", _IMAGE, **_WINDOW),
    "nn.power": _power,
    "nn.roi_align": _roi_align,
    "nn.softmax": _of("nn.softmax", (3, 4), axis=1),
    "nn.where": _where,
    "pad": _of("pad", (2, 3, 2), pads=(1, 0, 2, 1), value=1.0),
    "quantise": _quantise,
    "requantise": _requantise,
    "reshape": _of("reshape", (3, 4), shape=(2, 6)),
    "scatter_elements": _moves("scatter_elements", _indices([[0, 3], [2, 1]]), updates=(2, 2), axis=1),
    "scatter_nd": _moves("scatter_nd", _indices([[2], [0]]), updates=(2, 4)),
    "slice": _of("slice", (5, 4), starts=(4, 1), sizes=(3, 2), steps=(-2, 1)),
    "subtract_immediate": _of("subtract_immediate", (1, 2, 3), value=5),
    "sum_pool": _of("sum_pool", _IMAGE, **_WINDOW, pad_value=-2),
    "to_signed": _of("to_signed", (2, 3)),
    "to_unsigned": _of("to_unsigned", (2, 3)),
    "top_k": _of("top_k", (3, 4), k=2, axis=1),
    "transpose": _of("transpose", (2, 3, 4), perm=(2, 0, 1)),
    "unfold": _of("unfold", (1, 3, 5, 6), **_WINDOW, pad_value=1),
}


def _same_width(dtype: str) -> str:
    """Another type of the width of ``dtype``."""
    widths = {"int16": "float16", "int32": "float32", "int64": "float64", "int8": "uint8"}
    pairs = {**widths, **{other: name for name, other in widths.items()}}
    return pairs.get(dtype, dtype)


def _elementwise(entry: Operator) -> Example:
    """Operands that broadcast: (2, 3), (3,), ..."""
    shapes = [(2, 3), (3,)][: len(entry.arguments)]
    return _of(entry.name, *shapes)


def _example_of(entry: Operator) -> Example | None:
    if entry.name in _EXAMPLES:
        return _EXAMPLES[entry.name]
    if entry.name.startswith("nn.reduce_"):
        return _of(entry.name, (2, 3, 4), axes=(0, 2))
    return _elementwise(entry) if entry.name.startswith("nn.") else None


def examples(entry: Operator) -> dict[str, Call]:
    """A call of an operator for each element type that its example takes, by the type of what it is about."""
    build = _example_of(entry)
    found: dict[str, Call] = {}
    if build is None:
        return found
    for dtype in DTYPES:
        try:
            found[dtype] = build(dtype)
        except GraphError:  # not a type of this operator
            continue
    return found


def all_examples() -> dict[str, dict[str, Call]]:
    """The examples of every operator that has some, by operator and element type."""
    return {entry.name: found for entry in operators() if (found := examples(entry))}
