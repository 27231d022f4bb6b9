"""One call of an ATen operator as its rule sees it, and the table of rules.

A rule takes the site and the operator's arguments: graph values for tensors, numbers, names of element types, lists of
such. It gives a graph value, or a tuple of them for an operator with several results; ``None`` stands for a result that
it does not compute. Rules know nothing of PyTorch, so they are read and checked without it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
import onnx

from ...graph import Array, Call, Constant, Expr, Function, Span, TensorType, evaluate_function
from ...graph.dtypes import FLOATS, HALVES, INTEGERS, numpy_dtype
from ..errors import ModelError
from ..onnx.node import CONVERTERS, Node, Value
from ..onnx.reading import Reading

Result = Expr | tuple[Expr | None, ...]
Rule = Callable[..., Result]

RULES: dict[str, Rule] = {}
"""By the full name of an operator's overload, such as ``aten.add.Tensor``."""

REFUSED: dict[str, str] = {}
"""Operators that no graph of fixed sizes has a form for, with the reason."""

OPSET = 23
"""Of the ONNX operators by whose converters some rules are written."""


F = TypeVar("F", bound=Rule)


def rule(*names: str) -> Callable[[F], F]:
    """Decorator: the function is the rule of the ATen overloads ``names``."""

    def add(function: F) -> F:
        for name in names:
            RULES[name if name.count(".") == 2 else f"aten.{name}"] = function
        return function

    return add


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
class Site:
    """``types``: what PyTorch says of the results; ``None`` for one that is no tensor."""

    op: str
    span: Span
    types: tuple[TensorType | None, ...]
    node: Node = field(init=False, repr=False)

    def __post_init__(self) -> None:
        node = Node(self.span.node, self.op, (), {}, OPSET, self.span, _Known())
        object.__setattr__(self, "node", node)

    @property
    def type(self) -> TensorType:
        """The type of the first result."""
        first = self.types[0] if self.types else None
        if first is None:
            raise self.error("its result is no tensor")
        return first

    @property
    def dtype(self) -> str:
        return self.type.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return self.type.shape

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

    # Types

    def in_float32(self, x: Expr, compute: Callable[[Expr], Expr]) -> Expr:
        """``compute(x)``; 16-bit floats are widened before and narrowed after it, as PyTorch does."""
        return self.node.in_float32(x, compute)

    def promoted(self, *operands: Expr | float) -> list[Expr]:
        """Operands in their common type, as PyTorch's rules of promotion have it: tensors decide before tensors
        without axes, those before numbers, unless the later ones are of a higher category."""
        to = common_type(operands)
        return [self.cast(x, to) if isinstance(x, Expr) else self.like(x, to) for x in operands]


def category(dtype: str) -> int:
    """0 of bool, 1 of integers, 2 of floats."""
    return 0 if dtype == "bool" else 1 if dtype in INTEGERS else 2


def common_type(operands: Sequence[Expr | float]) -> str:
    """See `Site.promoted`."""
    tensors = [x.dtype for x in operands if isinstance(x, Expr) and x.shape]
    scalars = [x.dtype for x in operands if isinstance(x, Expr) and not x.shape]
    numbers = ["bool" if isinstance(x, bool) else "int64" if isinstance(x, int) else "float32"
               for x in operands if not isinstance(x, Expr)]  # fmt: skip
    result = ""
    for group in (tensors, scalars, numbers):
        if not group:
            continue
        own = group[0]
        for dtype in group[1:]:
            own = wider(own, dtype)
        if not result or category(own) > category(result):
            result = own
    return result


def wider(a: str, b: str) -> str:
    """The type in which PyTorch computes with elements of both types."""
    if category(a) != category(b):
        return a if category(a) > category(b) else b
    if a == b:
        return a
    if category(a) == 2:
        if {a, b} == set(HALVES):
            return "float32"
        return max(a, b, key=FLOATS.index)
    return str(np.result_type(numpy_dtype(a), numpy_dtype(b)))
