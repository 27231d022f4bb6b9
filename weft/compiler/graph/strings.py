"""Arrays of strings: in what forms they come from outside, and how their values become bytes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import WeftError
from .dtypes import STRING, dtype_name, numpy_dtype

Array = NDArray[Any]

MOST_CHARACTERS = 1 << 30
"""Of the strings that an operator makes."""

_LENGTH = np.dtype("<u4")
_OF_BYTES, _OF_TEXT, _OF_OBJECTS = "S", "U", "O"
_OF_NUMBERS = "biufc"


class StringsError(WeftError):
    """What should be strings are none."""


def canonical(value: Any) -> Array:
    """``value`` as an array; strings in any of NumPy's forms as an array of `numpy_dtype("string")`.

    Those forms are the fixed widths U and S (UTF-8), and objects that are all `str` or UTF-8 `bytes`. Other arrays stay
    as they are. Raises `StringsError` where bytes are no UTF-8, or text has no UTF-8 form (half a surrogate pair).
    """
    if isinstance(value, str):
        return _strings([value], ())
    array = np.asarray(value)
    if array.dtype.kind in _OF_NUMBERS:  # nearly all: a small model is run in less time than looking closer takes
        return array
    match array.dtype.kind:
        case kind if kind == _OF_TEXT:
            return _strings(array.reshape(-1).tolist(), array.shape)
        case kind if kind == _OF_BYTES or (kind == _OF_OBJECTS and _is_text(array)):
            try:
                texts = [each.decode() if isinstance(each, bytes) else each for each in array.reshape(-1).tolist()]
            except UnicodeDecodeError as error:
                raise StringsError(f"the bytes of a string are not UTF-8: {error}") from None
            return _strings(texts, array.shape)
    if dtype_name(array.dtype) == STRING and array.dtype != numpy_dtype(STRING):
        return _strings(array.reshape(-1).tolist(), array.shape)
    return array


def _is_text(array: Array) -> bool:
    return all(isinstance(each, str | bytes) for each in array.reshape(-1).tolist())


def _strings(texts: list[Any], shape: tuple[int, ...]) -> Array:
    for each in texts:
        if not isinstance(each, str):
            raise StringsError(f"{each!r} is no string")
    try:
        return np.array(texts, numpy_dtype(STRING)).reshape(shape)
    except UnicodeEncodeError as error:
        raise StringsError(f"a string has no UTF-8 form: {error}") from None


def check_length(operands: Sequence[Array], size: int) -> None:
    """`StringsError` where ``size`` strings that are made of one of each operand might be more than `MOST_CHARACTERS`:
    each link of a chain of operators can double what the one before it made."""
    strings = [each for each in operands if dtype_name(each.dtype) == STRING and each.size]
    longest = sum(int(np.strings.str_len(each).max()) for each in strings)
    if longest * size > MOST_CHARACTERS:
        raise StringsError(f"{size:,} strings of up to {longest:,} characters may be more than {MOST_CHARACTERS:,}")


def same_strings(a: Array, b: Array) -> Array:
    """Whether strings are equal, element by element, with broadcasting. (NumPy compares its strings up to a zero.)"""
    return np.asarray(np.equal(a.astype(object), b.astype(object))).astype(bool)


def fixed_width(array: Array) -> Array:
    """Strings in NumPy's form U, which .npy files hold; it has no zeros at the end of a string. Others as they are."""
    if dtype_name(array.dtype) != STRING:
        return array
    return np.array(array.reshape(-1).tolist(), np.str_).reshape(array.shape)


def content(array: Array) -> bytes:
    """The elements of an array, in row-major order, as bytes: those in memory, of strings the number of bytes of each
    as ``<u4``, then all their UTF-8."""
    if dtype_name(array.dtype) != STRING:
        return np.ascontiguousarray(array).tobytes()
    texts = [text.encode() for text in array.reshape(-1).tolist()]
    return np.array([len(text) for text in texts], _LENGTH).tobytes() + b"".join(texts)


def from_content(data: bytes, dtype: str, shape: tuple[int, ...]) -> Array:
    """The array of which `content` made ``data``; a shape of (-1,) takes all numbers that there are.

    Raises `ValueError` where the bytes are not such an array.
    """
    if dtype != STRING:
        array: Array = np.frombuffer(data, numpy_dtype(dtype)).reshape(shape)
        return array
    count = prod(shape)
    start = count * _LENGTH.itemsize
    if count < 0 or start > len(data):
        raise ValueError(f"{len(data)} bytes are not {count} strings")
    ends = start + np.cumsum(np.frombuffer(data[:start], _LENGTH), dtype=np.int64)
    if (int(ends[-1]) if count else start) != len(data):
        raise ValueError("the lengths of the strings do not make up their bytes")
    places = [start, *ends.tolist()]
    texts = [data[place:end].decode() for place, end in pairwise(places)]
    return _strings(texts, shape)
