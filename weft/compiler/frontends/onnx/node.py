"""One ONNX node as its converter sees it: operands as graph values, attributes with checked types."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import onnx

from ...graph import Array, Call, Constant, Expr, Span, TensorType, call
from ...graph.dtypes import HALVES, numpy_dtype
from ..errors import ModelError, NeedsValueError
from .reading import Reading


class NodeScope(Protocol):
    """What surrounds a node, as its converter sees it (`scope.Scope`)."""

    reading: Reading

    def static_value(self, value: Expr) -> Array | None:
        """The value of an expression of constants; ``None`` when it depends on an input."""

    def subgraph(self, graph: onnx.GraphProto, values: Mapping[str, Value], prefix: str) -> list[Value]:
        """The results of a graph inside this scope, with ``values`` for its inputs."""


@dataclass(frozen=True)
class SequenceValue:
    """A sequence whose length is known; it exists at compile time only."""

    items: tuple[Expr, ...]


@dataclass(frozen=True)
class Nothing:
    """An optional value that is not there."""


Value = Expr | SequenceValue | Nothing
Converted = Value | tuple[Value | None, ...]
Converter = Callable[["Node"], Converted]

CONVERTERS: dict[str, Converter] = {}
"""Converter by operator. Operators of ONNX Runtime's own domain are here under their plain name, unless ONNX has
another one of that name; those of other domains as ``domain.name``."""


def converter(*names: str) -> Callable[[Converter], Converter]:
    """Decorator: the function converts the operators ``names``."""

    def add(function: Converter) -> Converter:
        for name in names:
            CONVERTERS[name] = function
        return function

    return add


@dataclass(frozen=True)
class Node:
    """A node of the user's model. ``inputs`` holds ``None`` for an optional operand that is left out."""

    name: str
    op: str
    inputs: tuple[Value | None, ...]
    attrs: dict[str, Any]
    opset: int
    span: Span
    scope: NodeScope
    outputs: tuple[str, ...] = field(default=("",))

    def error(self, message: str, hint: str = "") -> ModelError:
        return ModelError(f"{self.op}: {message}", at=self.span, hint=hint)

    def has(self, index: int) -> bool:
        return index < len(self.inputs) and self.inputs[index] is not None

    def wants(self, index: int) -> bool:
        """Whether the model names output ``index``."""
        return index < len(self.outputs) and bool(self.outputs[index])

    def value(self, index: int) -> Value:
        """Operand ``index``, which must be there, whatever it is."""
        value = self.inputs[index] if index < len(self.inputs) else None
        if value is None:
            raise self.error(f"operand {index} is missing")
        return value

    def input(self, index: int) -> Expr:
        """Operand ``index``, which must be there and a tensor."""
        value = self.value(index)
        if not isinstance(value, Expr):
            kind = "a sequence" if isinstance(value, SequenceValue) else "an optional value that is not there"
            raise self.error(f"operand {index} must be a tensor, but is {kind}")
        return value

    def sequence(self, index: int) -> SequenceValue:
        """Operand ``index``, which must be a sequence."""
        value = self.value(index)
        if not isinstance(value, SequenceValue):
            raise self.error(f"operand {index} must be a sequence")
        return value

    def optional(self, index: int) -> Expr | None:
        return self.input(index) if self.has(index) else None

    @property
    def tensors(self) -> tuple[Expr, ...]:
        """All operands, each a tensor."""
        return tuple(self.input(index) for index in range(len(self.inputs)))

    def constant(self, index: int, what: str) -> Array:
        """The value of operand ``index``, which must be known at compile time."""
        return self.known(self.input(index), what)

    def known(self, value: Expr, what: str) -> Array:
        """The value of an expression that must be known at compile time. Raises `NeedsValueError`."""
        found = self.scope.static_value(value)
        if found is None:
            raise NeedsValueError(self.op, what, at=self.span, value=value)
        return found

    def known_integers(self, index: int, what: str) -> tuple[int, ...]:
        """The integers of operand ``index``, which must be known at compile time."""
        return tuple(int(item) for item in self.constant(index, what).reshape(-1))

    def integer(self, name: str, default: int) -> int:
        value = self.attrs.get(name, default)
        if not isinstance(value, int):
            raise self.error(f"attribute {name!r} must be an integer, not {value!r}")
        return value

    def number(self, name: str, default: float) -> float:
        value = self.attrs.get(name, default)
        if not isinstance(value, (int, float)):
            raise self.error(f"attribute {name!r} must be a number, not {value!r}")
        return float(value)

    def string(self, name: str, default: str) -> str:
        value = self.attrs.get(name, default)
        return value.decode() if isinstance(value, bytes) else str(value)

    def integers(self, name: str, default: tuple[int, ...] | None = None) -> tuple[int, ...] | None:
        value = self.attrs.get(name)
        if value is None:
            return default
        if not isinstance(value, list) or not all(isinstance(item, int) for item in value):
            raise self.error(f"attribute {name!r} must be integers, not {value!r}")
        return tuple(value)

    def axis(self, rank: int, default: int, name: str = "axis") -> int:
        """Attribute ``name`` as an axis of a tensor of ``rank``, counted from the front."""
        return self.checked_axis(self.integer(name, default), rank)

    def checked_axis(self, axis: int, rank: int) -> int:
        if not -max(rank, 1) <= axis < max(rank, 1):
            raise self.error(f"there is no axis {axis} in a tensor of rank {rank}")
        return axis % max(rank, 1)

    def axes(self, index: int) -> tuple[int, ...] | None:
        """Axes given as an attribute (older opsets) or as operand ``index``."""
        if self.has(index):
            return self.known_integers(index, "the axes")
        return self.integers("axes")

    def call(self, op: str, *args: Expr, **attrs: Any) -> Call:
        return call(op, *args, span=self.span, **attrs)

    def like(self, value: Any, x: Expr | str) -> Constant:
        """A constant of the element type of ``x``."""
        return Constant(np.asarray(value).astype(numpy_dtype(x if isinstance(x, str) else x.dtype)), span=self.span)

    def cast(self, x: Expr, dtype: str) -> Expr:
        return x if x.dtype == dtype else self.call("nn.cast", x, to=dtype)

    def reshape(self, x: Expr, shape: Sequence[int]) -> Expr:
        return x if x.shape == tuple(shape) else self.call("reshape", x, shape=tuple(shape))

    def transpose(self, x: Expr, perm: Sequence[int]) -> Expr:
        return x if tuple(perm) == tuple(range(len(x.shape))) else self.call("transpose", x, perm=tuple(perm))

    def slice(self, x: Expr, axis: int, start: int, size: int, step: int = 1) -> Expr:
        """``size`` elements of one axis."""
        if (start, size, step) == (0, x.shape[axis], 1):
            return x
        starts, sizes, steps = [0] * len(x.shape), list(x.shape), [1] * len(x.shape)
        starts[axis], sizes[axis], steps[axis] = start, size, step
        return self.call("slice", x, starts=starts, sizes=sizes, steps=steps)

    def in_float32(self, x: Expr, compute: Callable[[Expr], Expr]) -> Expr:
        """``compute(x)``, where a 16-bit float is widened before and the result narrowed after it."""
        if x.dtype not in HALVES:
            return compute(x)
        return self.cast(compute(self.cast(x, "float32")), x.dtype)

    def require_image(self, value: Expr) -> TensorType:
        """The type of an operand that must be (N, C, H, W)."""
        kind = value.tensor_type
        if kind.rank != 4:
            raise self.error(f"only (N, C, H, W) tensors are supported here, not {kind}")
        return kind
