"""What the rules of front ends build graphs with: one operator of a user's model, its place, and short forms."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
import onnx

from ..graph import Array, Call, Constant, Expr, Function, Span, evaluate_function
from .errors import ModelError
from .onnx.node import CONVERTERS, Node, Value
from .onnx.reading import Reading

OPSET = 23
"""Of the ONNX operators by whose converters some rules are written."""

F = TypeVar("F", bound=Callable[..., Any])


def adds_to(rules: dict[str, F]) -> Callable[..., Callable[[F], F]]:
    """The decorator ``@rule("NAME", ...)`` of a front end: the function becomes the rule of these operators."""

    def rule(*names: str) -> Callable[[F], F]:
        def add(function: F) -> F:
            rules.update(dict.fromkeys(names, function))
            return function

        return add

    return rule


class _Known:
    """What an ONNX converter may ask for outside of its node: the values of constants."""

    reading = Reading(quantised=False)

    def static_value(self, value: Expr) -> Array | None:
        if isinstance(value, Constant):
            return value.value
        if not value.static:
            return None
        result = evaluate_function(Function((), value), ())
        return None if isinstance(result, tuple) else result

    def subgraph(self, graph: onnx.GraphProto, values: Mapping[str, Value], prefix: str) -> list[Value]:
        raise ModelError("a subgraph of ONNX cannot stand here")


@dataclass(frozen=True)
class OperatorSite:
    """An operator that a rule reads: its name and its place in the user's model."""

    op: str
    span: Span
    node: Node = field(init=False, repr=False)

    def __post_init__(self) -> None:
        node = Node(self.span.node, self.op, (), {}, OPSET, self.span, _Known())
        object.__setattr__(self, "node", node)

    def error(self, message: str, hint: str = "") -> ModelError:
        return ModelError(f"{self.op}: {message}", at=self.span, hint=hint)

    # Building

    def __call__(self, op: str, *args: Expr | float) -> Expr:
        """``nn.op`` of values of one type; numbers become constants of it."""
        like = next(arg for arg in args if isinstance(arg, Expr))
        return self.node.call(f"nn.{op}", *(a if isinstance(a, Expr) else self.like(a, like) for a in args))

    def call(self, op: str, *args: Expr, **attrs: Any) -> Call:
        return self.node.call(op, *args, **attrs)

    def like(self, value: Any, x: Expr | str) -> Constant:
        """A constant of the element type of ``x``."""
        return self.node.like(value, x)

    def where(self, condition: Expr, x: Expr | float, y: Expr | float) -> Expr:
        """``x`` where the condition holds, else ``y``; one of them at least is a value."""
        other = x if isinstance(x, Expr) else y
        if not isinstance(other, Expr):
            raise self.error("a choice between two numbers has no type")
        x, y = (value if isinstance(value, Expr) else self.like(value, other) for value in (x, y))
        return self.call("nn.where", condition, x, y)

    def cast(self, x: Expr, dtype: str) -> Expr:
        return self.node.cast(x, dtype)

    def reshape(self, x: Expr, shape: Sequence[int]) -> Expr:
        """One size may be -1."""
        sizes = list(shape)
        if -1 in sizes:
            rest = -math.prod(sizes)
            sizes[sizes.index(-1)] = math.prod(x.shape) // rest if rest else 0
        return self.node.reshape(x, sizes)

    def transpose(self, x: Expr, perm: Sequence[int]) -> Expr:
        return self.node.transpose(x, perm)

    def expand(self, x: Expr, shape: Sequence[int]) -> Expr:
        return x if x.shape == tuple(shape) else self.call("expand", x, shape=tuple(shape))

    def slice(self, x: Expr, axis: int, start: int, size: int, step: int = 1) -> Expr:
        return self.node.slice(x, axis, start, size, step)

    def concat(self, parts: Sequence[Expr], axis: int) -> Expr:
        return parts[0] if len(parts) == 1 else self.call("concat", *parts, axis=axis)

    def flat(self, x: Expr) -> Expr:
        return self.reshape(x, (math.prod(x.shape),))

    def picked(self, x: Expr, places: Array) -> Expr:
        """The elements of ``x``, flattened, at constant places; the result has the shape of ``places``."""
        return self.call("gather", self.flat(x), Constant(np.ascontiguousarray(places, np.int64)), axis=0)

    def axis(self, axis: int, rank: int) -> int:
        """Counted from the front."""
        return self.node.checked_axis(axis, rank)

    def axes(self, axes: int | Sequence[int] | None, rank: int) -> tuple[int, ...]:
        """Counted from the front, in order; all of them for none."""
        if axes is None or (not isinstance(axes, int) and len(axes) == 0):
            return tuple(range(rank))
        given = (axes,) if isinstance(axes, int) else axes
        return tuple(sorted({self.axis(each, rank) for each in given if rank or each in (0, -1)})) if rank else ()

    def known(self, x: Expr, what: str) -> Array:
        """The value of what must be known at compile time."""
        return self.node.known(x, what)

    def onnx(self, op: str, *inputs: Expr | None, outputs: int = 1, **attrs: Any) -> Any:
        """What the ONNX operator ``op`` gives: lists for attributes of integers, arrays for constant operands."""
        given = {name: list(value) if isinstance(value, tuple) else value for name, value in attrs.items()}
        node = replace(self.node, op=op, inputs=inputs, attrs=given, outputs=tuple("abc"[:outputs]))
        return CONVERTERS[op](node)

    def integers(self, values: Iterable[int]) -> Constant:
        """A constant operand for `onnx`."""
        return Constant(np.array(list(values), np.int64))

    def in_float32(self, x: Expr, compute: Callable[[Expr], Expr]) -> Expr:
        """``compute(x)``; 16-bit floats are widened before and narrowed after it."""
        return self.node.in_float32(x, compute)
