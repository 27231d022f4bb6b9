"""PyTorch's tensors and element types as NumPy's."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from ...graph import Array
from ...graph.dtypes import numpy_dtype
from ..errors import ModelError

DTYPES: dict[torch.dtype, str] = {
    torch.bool: "bool", torch.uint8: "uint8", torch.int8: "int8", torch.int16: "int16", torch.int32: "int32",
    torch.int64: "int64", torch.float16: "float16", torch.bfloat16: "bfloat16", torch.float32: "float32",
    torch.float64: "float64", torch.uint16: "uint16", torch.uint32: "uint32", torch.uint64: "uint64",
    torch.float8_e4m3fn: "float8_e4m3fn", torch.float8_e4m3fnuz: "float8_e4m3fnuz",
    torch.float8_e5m2: "float8_e5m2", torch.float8_e5m2fnuz: "float8_e5m2fnuz",
    torch.float8_e8m0fnu: "float8_e8m0fnu",
}  # fmt: skip
"""The names that the graph IR has for PyTorch's element types. Complex numbers have none."""

PARTS: dict[torch.dtype, str] = {torch.complex64: "float32", torch.complex128: "float64"}
"""The names of the types that either part of complex numbers has."""

_WITHOUT_NUMPYS = {numpy_dtype(name): key for key, name in DTYPES.items() if name.startswith(("bfloat", "float8"))}
"""PyTorch's types by NumPy's, of those that NumPy has from elsewhere."""

_CARRIERS: dict[int, torch.dtype] = {1: torch.uint8, 2: torch.int16}
"""Types by whose bits those reach NumPy that it has no type for."""


def dtype_name(dtype: torch.dtype, what: str) -> str:
    if dtype not in DTYPES:
        raise ModelError(f"{what} is {dtype}, for which there is no element type")
    return DTYPES[dtype]


def array_of(tensor: torch.Tensor, what: str) -> Array:
    """The values of a tensor, without a copy where it lies in order in the machine's memory; also of complex ones.
    Raises `ModelError`."""
    if tensor.is_meta:
        raise ModelError(f"{what} has no values: it is on the device 'meta'", hint="load the weights before exporting")
    if tensor.layout is not torch.strided:
        raise ModelError(f"{what} is a sparse tensor ({tensor.layout})", hint="call to_dense() before exporting")
    name = "" if tensor.dtype in PARTS else dtype_name(tensor.dtype, what)
    plain = tensor.detach().cpu().contiguous()
    plain = plain.resolve_conj().resolve_neg()
    try:
        return plain.numpy()  # type: ignore[no-any-return]
    except TypeError:
        carrier = plain.view(_CARRIERS[plain.element_size()]).numpy()
        return carrier.view(numpy_dtype(name))  # type: ignore[no-any-return]


def tensor_of(array: Array) -> torch.Tensor:
    """A tensor on the memory of an array."""
    dtype = _WITHOUT_NUMPYS.get(array.dtype)
    if dtype is None:
        return torch.from_numpy(array)
    carrier: Any = np.dtype(np.uint8 if array.dtype.itemsize == 1 else np.int16)
    return torch.from_numpy(array.view(carrier)).view(dtype)
