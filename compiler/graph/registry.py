"""The operator registry: one entry an operator, with all that the stack knows of it.

A rule that is missing is written down as ``unsupported("why")``, so that a gap is a decision and not an oversight.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .ir import UNKNOWN, Array, Attrs, Expr, Function, GraphError, Span, TensorType, Type
from .ir import Call as _Call

TypeRule = Callable[[Sequence[TensorType], Attrs], Type]
NumpyRule = Callable[..., Any]


class Fusion(enum.Enum):
    """How an operator may take part in a fused function."""

    ANCHOR = "anchor"  # starts a function: convolution, matrix product, pooling
    ELEMENTWISE = "elementwise"  # same index in and out, up to broadcasting: joins the function of its producer
    LAYOUT = "layout"  # moves data only: each element of the result is one of an operand, or a constant
    REDUCTION = "reduction"  # combines elements along axes: starts a function, takes elementwise producers in
    OPAQUE = "opaque"  # a function of its own: sorts, scans, scatters, samples at computed places
    HOST = "host"  # runs on the host through its NumPy meaning


@dataclass(frozen=True)
class Unsupported:
    """A rule that an operator does not have, and why."""

    reason: str


def unsupported(reason: str) -> Unsupported:
    return Unsupported(reason)


INTEGER_HAS_NO_GRADIENT = unsupported("integer arithmetic is not differentiable; train the float model")
NOT_LOWERED = unsupported("runs on the host through its NumPy meaning")


@dataclass(frozen=True)
class Operator:
    """All the rules of one operator.

    ``arguments``: names of the operands (a trailing ``*`` takes any number). ``defaults``: every attribute with its
    default; ``REQUIRED`` stands for none. ``types``: types of the operands, attributes -> type of the result, or
    `GraphError`. ``numpy``: arrays..., attributes as keywords -> array; the operator's exact meaning.
    """

    name: str
    arguments: tuple[str, ...]
    defaults: Mapping[str, Any]
    types: TypeRule
    numpy: NumpyRule
    gradient: Callable[..., Any] | Unsupported
    fusion: Fusion
    lower: Callable[..., Any] | Unsupported
    doc: str
    folds: bool = True  # whether constant folding may evaluate it


class _Required:
    def __repr__(self) -> str:
        return "REQUIRED"


REQUIRED: Any = _Required()
_operators: dict[str, Operator] = {}


def register(
    name: str,
    arguments: str,
    *,
    types: TypeRule,
    numpy: NumpyRule,
    gradient: Callable[..., Any] | Unsupported,
    fusion: Fusion,
    lower: Callable[..., Any] | Unsupported,
    doc: str,
    folds: bool = True,
    **defaults: Any,
) -> Operator:
    """Add an operator; ``arguments`` are the operands' names, separated by blanks."""
    if name in _operators:
        raise GraphError(f"operator {name!r} is registered twice")
    operator = Operator(name, tuple(arguments.split()), defaults, types, numpy, gradient, fusion, lower, doc, folds)
    _operators[name] = operator
    return operator


def set_lowering(name: str, lower: Callable[..., Any]) -> None:
    """Fill the lowering slot of an operator (the tensor IR does so, which the graph IR does not know)."""
    _operators[name] = replace(operator(name), lower=lower)


def operator(name: str, at: Span = UNKNOWN) -> Operator:
    """The entry of ``name``."""
    if name not in _operators:
        raise GraphError(f"there is no operator {name!r}", at=at, hint=f"known: {', '.join(sorted(_operators))}")
    return _operators[name]


def operators() -> tuple[Operator, ...]:
    """Every operator, by name."""
    return tuple(_operators[name] for name in sorted(_operators))


def call(op: str | Function, *args: Expr, span: Span = UNKNOWN, **attrs: Any) -> _Call:
    """``op`` applied to ``args``: fills in default attributes, checks operands, works out the type.

    Raises `GraphError` that names ``span`` when the operands do not fit.
    """
    if isinstance(op, Function):
        return _Call(op, args, Attrs(attrs), _call_type(op, args, span), span)
    entry = operator(op, span)
    variadic = bool(entry.arguments) and entry.arguments[-1].endswith("*")
    least = len(entry.arguments) - 1 if variadic else len(entry.arguments)
    if len(args) < least or (len(args) > least and not variadic):
        takes = f"at least {least}" if variadic else str(least)
        raise GraphError(f"{op} takes {takes} operands ({', '.join(entry.arguments)}), not {len(args)}", at=span)
    unknown = [name for name in attrs if name not in entry.defaults]
    if unknown:
        known = ", ".join(entry.defaults) or "none"
        raise GraphError(f"{op} has no attribute {unknown[0]!r}; it has: {known}", at=span)
    merged = {**entry.defaults, **attrs}
    missing = [name for name, value in merged.items() if value is REQUIRED]
    if missing:
        raise GraphError(f"{op} needs the attribute {missing[0]!r}", at=span)
    frozen = Attrs(merged)
    try:
        result = entry.types([arg.tensor_type for arg in args], frozen)
    except GraphError as error:
        raise GraphError(f"{op}: {error.message}", at=span, hint=error.hint) from None
    return _Call(op, args, frozen, result, span)


def _call_type(function: Function, args: tuple[Expr, ...], span: Span) -> Type:
    given, wanted = [arg.type for arg in args], [param.type for param in function.params]
    if given != wanted:
        raise GraphError(
            f"function {function.name!r} takes ({', '.join(map(str, wanted))}), "
            f"but is called with ({', '.join(map(str, given))})",
            at=span,
        )
    return function.type


def apply(node: _Call, values: Sequence[Array]) -> Array:
    """The NumPy meaning of a call of an operator.

    Operands are laid out in C order, since NumPy adds in another order where a value lies differently in memory.
    """
    if isinstance(node.op, Function):
        raise GraphError("apply() takes operators, not functions; use evaluate()", at=node.span)
    with np.errstate(all="ignore"):  # what is not a number, or not finite, is part of every meaning
        return np.asarray(operator(node.op).numpy(*(np.asarray(value, order="C") for value in values), **node.attrs))
