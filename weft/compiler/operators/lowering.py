"""A call of an operator as tensor expressions, through the rule of its entry."""

from __future__ import annotations

from collections.abc import Sequence

from ..graph.ir import Call
from ..graph.registry import Fusion, Unsupported, operator_of
from ..tensor.view import HALVES, Builder, NotLoweredError, View, element_type, widened


def lower_call(builder: Builder, call: Call, operands: Sequence[View]) -> View:
    """The result of an operator; NotLoweredError says why it has no rule."""
    entry = operator_of(call)
    if entry is None:
        raise NotLoweredError("it is a function")
    if isinstance(entry.lower, Unsupported):
        raise NotLoweredError(f"{entry.name}: {entry.lower.reason}")
    if 0 in call.shape or any(0 in view.shape for view in operands):
        raise NotLoweredError(f"{entry.name}: a tensor without elements")
    if entry.fusion is Fusion.LAYOUT or not any(view.dtype in HALVES for view in operands):
        return entry.lower(builder, call, tuple(operands))
    wide = entry.lower(builder, call, tuple(widened(view) for view in operands))
    dtype = element_type(call.dtype)
    return View(wide.shape, dtype, lambda index: wide[index].astype(dtype))
