"""Tensors in the memory of NVIDIA's GPUs, taken from other libraries and given to them without a copy through the host.

By DLPack: a capsule of Python's holds the address of a structure, of which this file has the parts that it needs
(https://dmlc.github.io/dlpack/latest/c_api.html). Who takes a tensor says that it is done with it by ``deleter``.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable
from ctypes import POINTER, Structure, c_char_p, c_int32, c_int64, c_uint8, c_uint16, c_uint64, c_void_p, py_object
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ...compiler.graph.dtypes import numpy_dtype
from ..errors import InputError

Array = npt.NDArray[Any]

CUDA, CUDA_MANAGED = 2, 13
"""DLPack's kinds of memory that a kernel of NVIDIA's reads."""

NAME, USED_NAME = b"dltensor", b"used_dltensor"
"""Of a capsule, before and after somebody took what is in it."""

CODES = {
    "float16": (2, 16), "float32": (2, 32), "float64": (2, 64), "bfloat16": (4, 16), "bool": (6, 8),
    **{f"{sign}int{bits}": (code, bits) for sign, code in (("", 0), ("u", 1)) for bits in (8, 16, 32, 64)},
}  # fmt: skip
"""DLPack's numbers of a type: its kind, and its bits."""

_TYPES = {numbers: name for name, numbers in CODES.items()}


class _Device(Structure):
    _fields_ = (("kind", c_int32), ("number", c_int32))


class _Type(Structure):
    _fields_ = (("code", c_uint8), ("bits", c_uint8), ("lanes", c_uint16))


class _Tensor(Structure):
    _fields_ = (
        ("data", c_void_p), ("device", _Device), ("ndim", c_int32), ("dtype", _Type), ("shape", POINTER(c_int64)),
        ("strides", POINTER(c_int64)), ("offset", c_uint64),
    )  # fmt: skip


class _Managed(Structure):
    _fields_ = (("tensor", _Tensor), ("context", c_void_p), ("deleter", c_void_p))


_Deleter = ctypes.CFUNCTYPE(None, c_void_p)
_CapsuleDeleter = ctypes.PYFUNCTYPE(None, c_void_p)


def _of_python(name: str, result: Any, *arguments: Any) -> Callable[..., Any]:
    """A function of Python's own."""
    return ctypes.PYFUNCTYPE(result, *arguments)((name, ctypes.pythonapi))


_new_capsule = _of_python("PyCapsule_New", py_object, c_void_p, c_char_p, _CapsuleDeleter)
_pointer_in = _of_python("PyCapsule_GetPointer", c_void_p, py_object, c_char_p)
_rename = _of_python("PyCapsule_SetName", ctypes.c_int, py_object, c_char_p)
# Of a capsule that is on its way out, which must not be taken hold of.
_dying_is_unused = _of_python("PyCapsule_IsValid", ctypes.c_int, c_void_p, c_char_p)
_dying_pointer_in = _of_python("PyCapsule_GetPointer", c_void_p, c_void_p, c_char_p)


@dataclass(frozen=True, eq=False)
class TensorThere:
    """A tensor in the memory of GPU ``number``, dense, from ``address`` on, which ``owner`` keeps."""

    number: int
    address: int
    shape: tuple[int, ...]
    dtype: str
    owner: Any

    @property
    def nbytes(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64)) * numpy_dtype(self.dtype).itemsize


def is_there(value: Any) -> bool:
    """Whether an object of any library is a tensor in the memory of a GPU of NVIDIA's."""
    return hasattr(value, "__dlpack_device__") and value.__dlpack_device__()[0] in (CUDA, CUDA_MANAGED)


def taken(name: str, value: Any, number: int, stream: int) -> TensorThere:
    """A tensor of another library on GPU ``number``, ready for work in ``stream``. InputError names the input where it
    is on another GPU, is not dense, or is of a type that models do not have."""
    where = int(value.__dlpack_device__()[1])
    if where != number:
        raise InputError(f"input {name!r} is on GPU {where}, but the model is on GPU {number}",
                         hint=f"load the model with device='{where}', or move the tensor")  # fmt: skip
    try:
        capsule = value.__dlpack__(stream=stream)
    except (AttributeError, BufferError, RuntimeError, TypeError, ValueError) as error:
        raise InputError(f"input {name!r} cannot be given by DLPack: {error}", hint="detach it") from error
    address = _pointer_in(capsule, NAME)
    managed = _Managed.from_address(address)
    _rename(capsule, USED_NAME)
    lent = _Lent()
    weakref.finalize(lent, _give_back, address)
    tensor = managed.tensor
    shape = tuple(tensor.shape[: tensor.ndim]) if tensor.ndim else ()
    dtype = _TYPES.get((tensor.dtype.code, tensor.dtype.bits)) if tensor.dtype.lanes == 1 else None
    if dtype is None:
        raise InputError(f"input {name!r} is of DLPack's type {tensor.dtype.code} with {tensor.dtype.bits} bits, which "
                         "no model has")  # fmt: skip
    if tensor.strides and tensor.ndim and not _is_dense(shape, tensor.strides[: tensor.ndim]):
        raise InputError(f"input {name!r} is not contiguous", hint="make it so: .contiguous() in PyTorch")
    return TensorThere(number, (tensor.data or 0) + tensor.offset, shape, dtype, lent)


class _Lent:
    """As long as it lives, its tensor is in use."""


def _give_back(address: int) -> None:
    deleter = _Managed.from_address(address).deleter
    if deleter:
        _Deleter(deleter)(address)


def _is_dense(shape: tuple[int, ...], strides: list[int]) -> bool:
    expected = 1
    for size, stride in zip(reversed(shape), reversed(strides), strict=True):
        if size > 1 and stride != expected:
            return False
        expected *= max(1, size)
    return True


@dataclass(frozen=True)
class _Given:
    """What another library has taken, or may still take."""

    managed: _Managed
    sizes: Any  # of ctypes, which the structure points to
    owner: Any


_given: dict[int, _Given] = {}
"""By the addresses of their structures."""


def _forget(address: int) -> None:
    _given.pop(address, None)


def _drop(capsule: int) -> None:
    if _dying_is_unused(capsule, NAME):
        _forget(_dying_pointer_in(capsule, NAME))


_forget_given, _drop_capsule = _Deleter(_forget), _CapsuleDeleter(_drop)


def capsule_of(tensor: TensorThere) -> Any:
    """What other libraries take: they have the tensor's memory as long as they want."""
    sizes = (c_int64 * max(1, len(tensor.shape)))(*tensor.shape)
    code, bits = CODES[tensor.dtype]
    managed = _Managed(
        _Tensor(tensor.address, _Device(CUDA, tensor.number), len(tensor.shape), _Type(code, bits, 1),
                ctypes.cast(sizes, POINTER(c_int64)), None, 0),
        None, ctypes.cast(_forget_given, c_void_p),
    )  # fmt: skip
    address = ctypes.addressof(managed)
    _given[address] = _Given(managed, sizes, tensor.owner)
    return _new_capsule(address, NAME, _drop_capsule)
