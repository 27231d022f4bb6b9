"""Operators that combine elements along axes. Floats are accumulated in float64 and rounded once; integers wrap."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..graph.dtypes import FLOATS, HALVES, NUMBERS
from ..graph.ir import Array, Attrs, TensorType
from ..graph.registry import NOT_LOWERED, REQUIRED, Fusion, TypeRule, register
from .elementwise import NO_GRADIENT_YET, NOT_DIFFERENTIABLE
from .integer import integer, require, require_dtype
from .move import tuple_of_ints


def _flag(attrs: Attrs, name: str) -> bool:
    value = attrs[name]
    require(isinstance(value, bool), f"{name} must be true or false, not {value!r}")
    return bool(value)


def _reduced(x: TensorType, axes: Sequence[int], keepdims: bool, dtype: str) -> TensorType:
    if keepdims:
        return TensorType(tuple(1 if i in axes else size for i, size in enumerate(x.shape)), dtype)
    return TensorType(tuple(size for i, size in enumerate(x.shape) if i not in axes), dtype)


def _reduce_type(dtypes: tuple[str, ...]) -> TypeRule:
    def rule(operands: Sequence[TensorType], attrs: Attrs) -> TensorType:
        x, axes = operands[0], tuple_of_ints(attrs, "axes")
        require_dtype(x, "the input", *dtypes)
        fits = list(axes) == sorted(set(axes)) and all(0 <= axis < x.rank for axis in axes)
        require(fits, f"axes must be different axes of {x} in rising order, but are {axes}")
        return _reduced(x, axes, _flag(attrs, "keepdims"), x.dtype)

    return rule


def _accumulated(reduce: Callable[..., Any]) -> Callable[..., Array]:
    """A NumPy reduction in float64 for floats, in 64 bits for integers; an empty sum is 0, an empty product 1."""

    def run(x: Array, axes: tuple[int, ...], keepdims: bool) -> Array:
        wide = x.astype(np.float64) if x.dtype.name in FLOATS else x
        return np.asarray(reduce(wide, axis=axes, keepdims=keepdims)).astype(x.dtype)

    return run


def _mean(x: Array, axis: tuple[int, ...], keepdims: bool) -> Array:
    count = np.prod([x.shape[i] for i in axis], dtype=np.int64)
    total = np.sum(x, axis=axis, keepdims=keepdims)
    return np.asarray(total / count if x.dtype.kind == "f" else np.trunc(total / max(count, 1)))


def _extreme(reduce: Callable[..., Any], largest: bool) -> Callable[..., Array]:
    def run(x: Array, axes: tuple[int, ...], keepdims: bool) -> Array:
        wide = x.astype(np.float32) if x.dtype.name in HALVES else x
        if x.dtype.kind == "b":
            neutral: Any = not largest
        elif x.dtype.name in FLOATS:
            neutral = -np.inf if largest else np.inf
        else:
            neutral = np.iinfo(x.dtype).min if largest else np.iinfo(x.dtype).max
        return np.asarray(reduce(wide, axis=axes, keepdims=keepdims, initial=neutral)).astype(x.dtype)

    return run


def _arg_type(operands: Sequence[TensorType], attrs: Attrs) -> TensorType:
    x = operands[0]
    require_dtype(x, "the input", *NUMBERS)
    require(x.rank >= 1, "a scalar has no axis")
    axis = integer(attrs, "axis", 0, x.rank - 1)
    require(x.shape[axis] >= 1, f"axis {axis} of {x} is empty")
    _flag(attrs, "last")
    return _reduced(x, (axis,), _flag(attrs, "keepdims"), "int64")


def _arg(pick: Callable[..., Any]) -> Callable[..., Array]:
    def run(x: Array, axis: int, keepdims: bool, last: bool) -> Array:
        wide = x.astype(np.float32) if x.dtype.name in HALVES else x
        if last:
            return np.asarray(x.shape[axis] - 1 - pick(np.flip(wide, axis), axis=axis, keepdims=keepdims), np.int64)
        return np.asarray(pick(wide, axis=axis, keepdims=keepdims), np.int64)

    return run


def _cumulative_type(operands: Sequence[TensorType], attrs: Attrs) -> TensorType:
    x = operands[0]
    require_dtype(x, "the input", *NUMBERS)
    require(x.rank >= 1, "a scalar has no axis")
    integer(attrs, "axis", 0, x.rank - 1)
    _flag(attrs, "exclusive")
    _flag(attrs, "reverse")
    return x


def _cumulative(accumulate: Callable[..., Any], neutral: int) -> Callable[..., Array]:
    def run(x: Array, axis: int, exclusive: bool, reverse: bool) -> Array:
        values = np.flip(x, axis) if reverse else x
        if exclusive:
            first = np.full_like(np.take(values, range(min(1, values.shape[axis])), axis), neutral)
            values = np.concatenate([first, np.take(values, range(values.shape[axis] - 1), axis)], axis)
        wide = values.astype(np.float64) if x.dtype.name in FLOATS else values
        result = accumulate(wide, axis=axis).astype(x.dtype)
        return np.asarray(np.flip(result, axis) if reverse else result)

    return run


def _reduction(name: str, dtypes: tuple[str, ...], meaning: Callable[..., Array], doc: str) -> None:
    register(
        name, "x", types=_reduce_type(dtypes), numpy=meaning, axes=REQUIRED, keepdims=False,
        gradient=NO_GRADIENT_YET, lower=NOT_LOWERED, fusion=Fusion.REDUCTION, doc=doc,
    )  # fmt: skip


_reduction("nn.reduce_sum", NUMBERS, _accumulated(np.sum), "Sum along axes; of nothing it is 0.")
_reduction("nn.reduce_product", NUMBERS, _accumulated(np.prod), "Product along axes; of nothing it is 1.")
_reduction("nn.reduce_mean", NUMBERS, _accumulated(_mean), "Mean along axes; integers towards zero.")
_reduction("nn.reduce_max", ("bool", *NUMBERS), _extreme(np.max, True), "Largest along axes; of nothing -inf or least.")
_reduction("nn.reduce_min", ("bool", *NUMBERS), _extreme(np.min, False), "Least along axes; of nothing inf or largest.")

for _name, _pick, _what in (("nn.arg_max", np.argmax, "largest"), ("nn.arg_min", np.argmin, "least")):
    register(
        _name, "x", types=_arg_type, numpy=_arg(_pick), axis=REQUIRED, keepdims=False, last=False,
        gradient=NOT_DIFFERENTIABLE, lower=NOT_LOWERED, fusion=Fusion.REDUCTION,
        doc=f"Index of the {_what} element along axis; of equal ones the first, or the last.",
    )  # fmt: skip
for _name, _accumulate, _neutral, _what in (
    ("nn.cumulative_sum", np.cumsum, 0, "Sums"), ("nn.cumulative_product", np.cumprod, 1, "Products"),
):  # fmt: skip
    register(
        _name, "x", types=_cumulative_type, numpy=_cumulative(_accumulate, _neutral), axis=REQUIRED, exclusive=False,
        reverse=False, gradient=NO_GRADIENT_YET, lower=NOT_LOWERED, fusion=Fusion.OPAQUE,
        doc=f"{_what} of the elements up to each one along axis; exclusive: without itself; reverse: from the end.",
    )  # fmt: skip
