"""The same numbers, or the same bits, in another element type."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..graph.chooser import Chooser
from ..graph.dtypes import ARITHMETIC, FLOATS, INTEGERS, STORAGE, STRING, dtype_name, is_float, numpy_dtype
from ..graph.dtypes import limits as limits_of
from ..graph.ir import Array, Attrs, Call, Expr, TensorType
from ..graph.registry import REQUIRED, Accuracy, Family, Fusion, Operator, Role, call, register, unsupported
from ..tensor import ir as tir
from ..tensor.view import Builder, Index, View, element_type
from .build import nn
from .samples import sample_of, variable
from .small_types import code_of, number_of
from .text_numbers import numbers_of_text, text_of_numbers
from .type_rules import require, target_dtype

_ROUNDINGS = ("nearest", "up", "down")


def _cast_type(operands: Sequence[TensorType], attrs: Attrs) -> TensorType:
    require(attrs["rounding"] in _ROUNDINGS, f"rounding must be one of {_ROUNDINGS}, not {attrs['rounding']!r}")
    return TensorType(operands[0].shape, target_dtype(attrs, "to"))


def _to_power_of_two(x: Array, saturate: bool, rounding: str) -> Array:
    """Positive numbers as float8_e8m0fnu, 2**-127 .. 2**127; ``up`` and ``down`` are away from and towards zero.

    What is rounded to a power beyond these is the nearest of them, or NaN where it must not be saturated.
    """
    target = numpy_dtype("float8_e8m0fnu")
    mantissa, exponent = np.frexp(np.abs(x.astype(np.float64)))  # x = mantissa * 2**exponent, 0.5 <= mantissa < 1
    raised = {"up": mantissa > 0.5, "down": np.zeros(x.shape, bool), "nearest": mantissa >= 0.75}[rounding]
    power = exponent.astype(np.int64) - 1 + raised
    power = np.where(x == 0, -128, np.where(np.isinf(x), 128, power))
    invalid = np.isnan(x) | (False if saturate else np.abs(power) > 127)
    return np.where(invalid, 255, np.clip(power + 127, 0, 254)).astype(np.uint8).view(target)


def _truncated(x: Array, to: str) -> Array:
    """Floats as integers, rounded towards 0 and limited to what the type holds."""
    wide, (low, high), kind = x.astype(np.float64), limits_of(to), numpy_dtype(to).type
    # A double holds every limit, or the power of two next to it, exactly.
    inside = (wide > float(low) - 1) & (wide < float(high) + 1)
    # Not as Python's numbers, which NumPy takes for int64: it wraps what that cannot hold, or refuses it.
    beyond = np.where(np.isnan(wide), kind(0), np.where(wide > 0, kind(high), kind(low)))
    return np.where(inside, np.where(inside, wide, 0).astype(to), beyond)


def cast(x: Array, to: str, saturate: bool = True, rounding: str = "nearest") -> Array:
    """``x`` in another element type: to integers by truncation, to bool by x != 0, to floats by rounding to even.

    A float that an integer of 8 to 64 bits cannot hold becomes the nearest integer that fits, and NaN becomes 0; NumPy
    leaves that to the machine. Integers wrap.
    ``saturate``: what is too large for an 8-bit float becomes its largest value, and not NaN or infinity.
    ``rounding`` is about float8_e8m0fnu alone.
    Strings are numbers in plain or scientific notation, see `text_numbers`; `GraphError` for one that is none.
    """
    source, target = dtype_name(x.dtype), numpy_dtype(to)
    if source == to:
        return x
    if to == STRING:
        return text_of_numbers(x)
    if source == STRING:
        return cast(numbers_of_text(x, to), to, saturate, rounding)
    if to == "bool":
        return np.asarray(x.astype(np.float32) != 0 if source in STORAGE else x != 0)
    if source in STORAGE and to in STORAGE:
        x = x.astype(np.float32)
    if to == "float8_e8m0fnu":
        return _to_power_of_two(x, saturate, rounding)
    if to.startswith("float8") and saturate:
        low, high = limits_of(to)
        wide = x.astype(np.float32) if x.dtype.itemsize < 4 else x
        return np.asarray(np.clip(wide, low, high).astype(target))
    if to in INTEGERS and is_float(source):
        return _truncated(x, to)
    if to in ("uint4", "int4", "uint2", "int2") and not is_float(source):
        return x.astype(np.int64).astype(target)
    return x.astype(target)


def _lower_cast(builder: Builder, call: Call, operands: tuple[View, ...]) -> View:
    """Small types are bytes: they are told from uint8 by the graph's type."""
    x, target = operands[0], element_type(call.dtype)
    source, to = call.args[0].dtype, call.dtype

    def read(index: Index) -> tir.Expr:
        value = x[index]
        if source == to:
            return value
        value = number_of(value, source) if source in STORAGE else value
        if source in STORAGE and to in STORAGE:
            value = value.astype("float32")
        if to in STORAGE:
            return code_of(value, to, call.attr("saturate"), call.attr("rounding"))
        return value.astype(target)

    return View(call.shape, target, read)


def _draw_cast(choose: Chooser) -> Expr:
    x, to = choose.operand(lambda node: True), choose.pick(ARITHMETIC)
    return call("nn.cast", choose.exact(x) if is_float(x.dtype) and not is_float(to) else x, to=to)


_BYTES = ("int8", "uint8", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu")


def _bitcast_type(operands: Sequence[TensorType], attrs: Attrs) -> TensorType:
    x, to = operands[0], target_dtype(attrs, "to")
    require(STRING not in (x.dtype, to), "strings have no bits of a fixed number")
    same = numpy_dtype(x.dtype).itemsize == numpy_dtype(to).itemsize and (x.dtype in STORAGE) == (to in STORAGE)
    require(same or (x.dtype in _BYTES and to in _BYTES), f"{x.dtype} and {to} differ in width")
    return TensorType(x.shape, to)


def _lower_bitcast(builder: Builder, call: Call, operands: tuple[View, ...]) -> View:
    x, source, target = operands[0], element_type(call.args[0].dtype), element_type(call.dtype)

    def read(index: Index) -> tir.Expr:
        value = x[index].astype(source)  # floats of 16 bits come as float32
        return value.astype(target) if "bool" in (source, target) else value.bits(target)

    return View(call.shape, target, read)


def _sample_bitcast(dtype: str) -> Call:
    widths = {"int16": "float16", "int32": "float32", "int64": "float64", "int8": "uint8"}
    pairs = {**widths, **{other: name for name, other in widths.items()}}
    return call("nn.bitcast", variable(dtype, 2, 3), to=pairs.get(dtype, dtype))


def _cast_gradient(upstream: Expr, node: Call) -> tuple[Expr | None, ...]:
    """Rounding to another float counts as none; an integer or truth value is constant between its jumps."""
    source = node.args[0].dtype
    return (nn.cast(upstream, to=source) if source in FLOATS else None,)


register(Operator(
    "nn.cast", "x", family=Family.SOURCE, types=_cast_type, numpy=cast,
    defaults={"to": REQUIRED, "saturate": True, "rounding": "nearest"},
    gradient=_cast_gradient, lower=_lower_cast, fusion=Fusion.ELEMENTWISE, role=Role.CAST, accuracy=Accuracy.EXACT,
    sample=sample_of("nn.cast", (2, 3), to="float32"), draw=_draw_cast,
    doc="x in another element type: to integers by truncation (NaN to 0) and, as to 8-bit floats, with saturation; "
    "integers wrap; to bool by x != 0. Strings are numbers in plain or scientific notation.",
))  # fmt: skip
register(Operator(
    "nn.bitcast", "x", family=Family.SOURCE, types=_bitcast_type, numpy=lambda x, to: x.view(numpy_dtype(to)),
    defaults={"to": REQUIRED}, gradient=unsupported("what bits mean as another type is no smooth function"),
    lower=_lower_bitcast, fusion=Fusion.ELEMENTWISE,
    accuracy=Accuracy.JUMPS, sample=_sample_bitcast, doc="The same bits read as another type of the same width.",
))  # fmt: skip
