"""Element types and constants between ONNX and the graph IR."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

import numpy as np
import onnx
from onnx import numpy_helper

from ...graph import Array, TensorType
from ...graph.dtypes import DTYPES, STRING, numpy_dtype
from ...graph.dtypes import dtype_name as type_name
from ...graph.strings import StringsError, canonical
from ..errors import ModelError


def dtype_name(element_type: int) -> str:
    """The name of an ONNX element type; a text that is no name for one that the graph IR does not have."""
    try:
        name = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(element_type)).name
    except (KeyError, ValueError, TypeError):
        return f"of unknown type {element_type}"
    return STRING if name == "object" else str(name)


def element_type(dtype: str) -> int:
    """ONNX's number of an element type of the graph IR."""
    if dtype == STRING:
        return int(onnx.TensorProto.STRING)
    return int(onnx.helper.np_dtype_to_tensor_dtype(numpy_dtype(dtype)))


def known_size(dimension: onnx.TensorShapeProto.Dimension) -> int | None:
    """The size of a dimension, 0 too; None for an open one, for which some converters write -1."""
    return dimension.dim_value if dimension.HasField("dim_value") and dimension.dim_value >= 0 else None


def symbol_of(dimension: onnx.TensorShapeProto.Dimension) -> str:
    """The name of an open dimension; empty for one without. Converters write marks such as ``?`` and ``-1``, or
    Python's ``None``, for each dimension that they know nothing of: these do not say that two of them are equal."""
    name = dimension.dim_param
    return name if any(letter.isalpha() for letter in name) and name != "None" else ""


def array_of(tensor: onnx.TensorProto, what: str) -> Array:
    """The values of a tensor of the model. No file is read for it: those that a model in a file refers to were read
    with it."""
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        raise ModelError(f"{what} is in another file, which is not known where the model is given as bytes",
                         hint="give the path of the model, with its data beside it")  # fmt: skip
    try:
        array = canonical(numpy_helper.to_array(tensor))
    except (ValueError, TypeError, OSError, onnx.checker.ValidationError, StringsError) as error:
        raise ModelError(f"{what} cannot be read: {error}") from None
    if type_name(array.dtype) not in DTYPES:
        raise ModelError(f"{what} has the element type {type_name(array.dtype)}, which is not supported")
    return array


def dense_array(sparse: onnx.SparseTensorProto, what: str) -> Array:
    """The values of a sparse tensor of the model, with its zeros."""
    values, indices = array_of(sparse.values, what), array_of(sparse.indices, what)
    check_constant_size(sparse.dims, values.dtype.itemsize, what)
    try:
        result = np.zeros(tuple(sparse.dims), values.dtype)
        if indices.ndim == 1:
            result.reshape(-1)[indices] = values
        else:
            result[tuple(indices.T)] = values
    except (IndexError, ValueError) as error:
        raise ModelError(f"{what} cannot be read: {error}") from None
    return result


LARGEST_CONSTANT = 1 << 30
"""Bytes of a constant that is computed while a model is read, with all that is computed on the way to it."""


def check_constant_size(shape: Iterable[int], itemsize: int, what: str) -> None:
    """ModelError for a constant that is too large to be computed while the model is read."""
    nbytes = prod(shape) * itemsize
    if nbytes > LARGEST_CONSTANT:
        raise ModelError(f"{what} would take {nbytes:,} bytes, but what is computed while a model is read may take "
                         f"{LARGEST_CONSTANT:,}", hint="use smaller sizes")  # fmt: skip


def type_proto(kind: TensorType) -> onnx.TypeProto:
    return onnx.helper.make_tensor_type_proto(element_type(kind.dtype), kind.shape)
