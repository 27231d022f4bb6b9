"""Samples: a call of every operator, for any element type that it takes. The manual, tests and fuzzing use them.

Entries build them with the functions below.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..graph.dtypes import DTYPES
from ..graph.ir import Call, Constant, Expr, GraphError, TensorType, Var
from ..graph.registry import Operator, Sample, Unsupported, call, operators

IMAGE, WEIGHTS = (1, 4, 5, 6), (6, 2, 3, 2)
WINDOW: dict[str, Any] = {"kernel": (3, 2), "strides": (2, 1), "pads": (1, 0, 1, 1)}


def variable(dtype: str, *shape: int, name: str = "x") -> Var:
    return Var(name, TensorType(shape, dtype))


def indices(values: object) -> Constant:
    return Constant(np.array(values, np.int64))


def sample_of(op: str, *shapes: tuple[int, ...], **attrs: Any) -> Sample:
    """A call with operands of one type and these shapes."""

    def build(dtype: str) -> Call:
        return call(op, *(variable(dtype, *shape, name=f"x{i}") for i, shape in enumerate(shapes)), **attrs)

    return build


def sample_at(op: str, *constants: Expr, updates: tuple[int, ...] | None = None, **attrs: Any) -> Sample:
    """A call on (3, 4) with constant indices, and updates of the operand's type."""

    def build(dtype: str) -> Call:
        last = () if updates is None else (variable(dtype, *updates, name="updates"),)
        return call(op, variable(dtype, 3, 4), *constants, *last, **attrs)

    return build


def samples_of(entry: Operator) -> dict[str, Call]:
    """A call of an operator for each element type that its sample takes, by the type of what it is about."""
    calls: dict[str, Call] = {}
    if isinstance(entry.sample, Unsupported):
        return calls
    for dtype in DTYPES:
        try:
            calls[dtype] = entry.sample(dtype)
        except GraphError:  # not a type of this operator
            continue
    return calls


def all_samples() -> dict[str, dict[str, Call]]:
    """The samples of every operator that has some, by operator and element type."""
    return {entry.name: calls for entry in operators() if (calls := samples_of(entry))}
