"""Operators on strings. They have no kernels: NumPy runs them on the host, whatever the target."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..graph.dtypes import ARITHMETIC, STRING, dtype_name, is_float, numpy_dtype
from ..graph.ir import Array, Attrs, Call, GraphError, TensorType
from ..graph.registry import REQUIRED, Accuracy, Family, Fusion, Operator, call, register, unsupported
from . import regex
from .reasons import NOT_LOWERED, PIECEWISE_CONSTANT
from .samples import sample_of, variable
from .type_rules import broadcasting, require, require_dtype

_CASES = {"lower": str.lower, "upper": str.upper}
_STRINGS: dict[str, Any] = {
    "family": Family.SOURCE, "fusion": Fusion.HOST, "accuracy": Accuracy.EXACT, "lower": NOT_LOWERED,
    "gradient": unsupported("strings are no numbers"),
}  # fmt: skip


def _mapped(x: Array, texts: list[str]) -> Array:
    return np.array(texts, numpy_dtype(STRING)).reshape(x.shape)


register(Operator(
    "nn.string_concat", "a b", types=broadcasting((STRING,)), numpy=np.strings.add,
    sample=sample_of("nn.string_concat", (2, 3), (3,)), doc="The string of a followed by that of b, with broadcasting.",
    **_STRINGS,
))  # fmt: skip


def _case_type(operands: Sequence[TensorType], attrs: Attrs) -> TensorType:
    require_dtype(operands[0], "the input", STRING)
    require(attrs["to"] in _CASES, f"to must be one of {', '.join(_CASES)}, not {attrs['to']!r}")
    return operands[0]


register(Operator(
    "nn.string_case", "x", types=_case_type, numpy=lambda x, to: _mapped(x, [*map(_CASES[to], x.reshape(-1).tolist())]),
    defaults={"to": REQUIRED}, sample=sample_of("nn.string_case", (2, 3), to="upper"),
    doc="x in small letters or capitals (to: lower, upper), as Unicode says for no language in particular.", **_STRINGS,
))  # fmt: skip


def _match_type(operands: Sequence[TensorType], attrs: Attrs) -> TensorType:
    require_dtype(operands[0], "the input", STRING)
    pattern = attrs["pattern"]
    require(isinstance(pattern, str), f"pattern must be a text, not {pattern!r}")
    try:
        regex.compiled(str(pattern))
    except regex.RegexError as error:
        raise GraphError(error.message, hint=error.hint) from None
    return TensorType(operands[0].shape, "bool")


def _match(x: Array, pattern: str) -> Array:
    try:
        return np.array(regex.full_matches(pattern, x.reshape(-1).tolist()), bool).reshape(x.shape)
    except regex.RegexError as error:
        raise GraphError(error.message, hint=error.hint) from None


register(Operator(
    "nn.regex_full_match", "x", types=_match_type, numpy=_match, defaults={"pattern": REQUIRED},
    sample=sample_of("nn.regex_full_match", (2, 3), pattern="[a-c]+"),
    doc="Whether all of a string matches the regular expression, in RE2's syntax.", **_STRINGS,
))  # fmt: skip


def _find_type(operands: Sequence[TensorType], attrs: Attrs) -> TensorType:
    x, keys = operands
    require_dtype(x, "the input", *ARITHMETIC, STRING)
    require(keys.rank == 1 and keys.dtype == x.dtype, f"the keys must be {x.dtype} of one axis, not {keys}")
    return TensorType(x.shape, "int64")


def _find(x: Array, keys: Array) -> Array:
    if dtype_name(x.dtype) == STRING:
        places = {key: place for place, key in enumerate(keys.tolist())}
        found = [places.get(text, len(keys)) for text in x.reshape(-1).tolist()]
        return np.array(found, np.int64).reshape(x.shape)
    if is_float(x.dtype.name) and x.dtype.kind != "f":
        x, keys = x.astype(np.float32), keys.astype(np.float32)
    if not len(keys):
        return np.zeros(x.shape, np.int64)
    order = np.argsort(keys, kind="stable")
    last = np.searchsorted(keys[order], x, "right") - 1  # NaN is sorted behind all numbers, and found there
    nearest = order[np.maximum(last, 0)]
    same = (keys[nearest] == x) | ((keys[nearest] != keys[nearest]) & (x != x))
    return np.where((last >= 0) & same, nearest, len(keys)).astype(np.int64)


def _sample_find(dtype: str) -> Call:
    return call("nn.find", variable(dtype, 2, 3), variable(dtype, 4, name="keys"))


register(Operator(
    "nn.find", "x keys", types=_find_type, numpy=_find, sample=_sample_find,
    doc="The place of each element of x among the keys: of equal keys the last, and their number for an element that "
    "is none of them. NaN is equal to NaN, and -0 to 0.",
    **(_STRINGS | {"gradient": PIECEWISE_CONSTANT, "accuracy": Accuracy.JUMPS}),
))  # fmt: skip
