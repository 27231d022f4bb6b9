"""Values that take more bytes than what they are made of, at the cost of a conversion: kernels that read such a value
more than once still read less, and write nothing, where they compute it themselves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeGuard

from ...graph.dtypes import numpy_dtype
from ...graph.ir import Call, Constant, Expr
from ...graph.registry import Fusion, operator
from .small_moves import COST_TO_REPEAT, is_behind_a_start


def widened_by(value: Expr, uses: Mapping[Expr, int]) -> TypeGuard[Call]:
    """Whether a reader of the elements of ``value`` may widen them: one narrower tensor of the same shape lies behind
    it, which is not computed by a kernel that could write ``value`` instead."""
    if not isinstance(value, Call) or not isinstance(value.op, str):
        return False
    entry = operator(value.op)
    tensors = [arg for arg in value.args if not isinstance(arg, Constant)]
    if entry.fusion is not Fusion.ELEMENTWISE or entry.cost > COST_TO_REPEAT or len(tensors) != 1:
        return False
    (narrow,) = tensors
    alike = narrow.shape == value.shape
    smaller = numpy_dtype(narrow.dtype).itemsize < numpy_dtype(value.dtype).itemsize
    made = isinstance(narrow, Call) and uses[narrow] == 1 and is_behind_a_start(narrow)
    return alike and smaller and not made
