"""Numbers as text and back, after ONNX's Cast: plain or scientific notation, ``INF`` and ``NaN`` in any case."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np

from ..graph.dtypes import STRING, is_float, limits, numpy_dtype
from ..graph.ir import Array, GraphError

_WHOLE = re.compile(r"[+-]?[0-9]+")
_REAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_SPECIAL = re.compile(r"([+-]?)(inf|infinity|nan)", re.IGNORECASE)
LONGEST_NUMBER = 4096
"""Characters of a number: long ones take time in the square of their length."""


def text_of_numbers(x: Array) -> Array:
    """Floats with the fewest digits that read back as the same float of their type, without an exponent (``0.00001``,
    ``3.0``), or ``INF``, ``-INF``, ``NaN``; integers and truth values (1 and 0) as integers."""
    if is_float(x.dtype.name):
        wide = x if x.dtype.kind == "f" else x.astype(np.float32)
        texts = [_real(each) for each in wide.reshape(-1)]
    else:
        texts = [str(int(each)) for each in x.reshape(-1).tolist()]
    return np.array(texts, numpy_dtype(STRING)).reshape(x.shape)


def _real(value: np.floating[Any]) -> str:
    if np.isnan(value):
        return "NaN"
    if np.isinf(value):
        return "INF" if value > 0 else "-INF"
    return np.format_float_positional(value, unique=True, trim="0")


def numbers_of_text(x: Array, to: str) -> Array:
    """The number that each text is, as float64 for a cast to floats and bool, else as integers (int64 or uint64), which
    are exact where there is no point or exponent, and truncated where there is one. Blanks around it do not count.

    Raises `GraphError` for a text that is no number, and for one that an integer of type ``to`` cannot hold.
    """
    texts = [text.strip() for text in x.reshape(-1).tolist()]
    for text in texts:
        if len(text) > LONGEST_NUMBER or not (_REAL.fullmatch(text) or _SPECIAL.fullmatch(text)):
            raise GraphError(f"{text[:40]!r} is no number", hint="cast strings of numbers only")
    if is_float(to) or to == "bool":
        return np.array([float(text) for text in texts], np.float64).reshape(x.shape)
    low, high = limits(to)
    whole: list[int] = []
    for text in texts:
        value = int(text) if _WHOLE.fullmatch(text) else float(text)
        if not math.isfinite(value) or not low <= int(value) <= high:
            raise GraphError(f"{text[:40]!r} does not fit {to}, which holds {low}..{high}")
        whole.append(int(value))
    return np.array(whole, np.uint64 if low == 0 else np.int64).reshape(x.shape)
