"""What elementwise operators share: an entry is a type rule, a meaning and a formula. Names start with ``nn.``.

float16 and bfloat16 are computed in float32 and rounded once. Integers wrap.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..graph.ir import Call
from ..graph.registry import Family, Fusion, Lowering, Operator, TypeRule, Unsupported
from ..tensor import ir as tir
from ..tensor.view import Builder, NotLoweredError, View, broadcast, element_type
from .meanings import Meaning, rounded_once
from .samples import sample_of

Formula = Callable[..., tir.Expr]
"""From one element of each operand to that of the result."""

FLOAT_ONLY = tir.FLOATS
INTEGER_ONLY = tuple(dtype for dtype in tir.INTEGER_RANGES if dtype != "bool")
SIGNED = (*tir.FLOATS, *(dtype for dtype in INTEGER_ONLY if tir.INTEGER_RANGES[dtype][0] < 0))


def formula(of_elements: Formula, dtypes: tuple[tir.DType, ...] = ()) -> Lowering:
    """The rule that applies a formula to the operands' elements; ``dtypes`` limits their types."""

    def rule(builder: Builder, call: Call, operands: tuple[View, ...]) -> View:
        for operand in operands:
            if dtypes and operand.dtype not in dtypes:
                raise NotLoweredError(f"{call.op} of {operand.dtype}")
        parts = [broadcast(operand, call.shape) for operand in operands]
        return View(call.shape, element_type(call.dtype), lambda index: of_elements(*(part[index] for part in parts)))

    return rule


def elementwise(
    name: str, operands: str, doc: str, *, types: TypeRule, numpy: Meaning, lower: Lowering | Unsupported, **facts: Any
) -> Operator:
    """An entry; its sample has operands of one type that broadcast. ``facts``: more fields of `Operator`, its gradient
    among them."""
    shapes = [(2, 3), (3,)][: len(operands.split())]
    usual: dict[str, Any] = {"sample": sample_of(name, *shapes)}
    return Operator(
        name, operands, family=Family.SOURCE, types=types, numpy=rounded_once(numpy), lower=lower,
        fusion=Fusion.ELEMENTWISE, doc=doc, **(usual | facts),
    )  # fmt: skip


def zero(x: tir.Expr) -> tir.Const:
    return tir.Const(0, x.dtype)


def function(name: str) -> Formula:
    """A function of the loop IR."""
    return lambda *operands: tir.Call(name, operands)
