"""One ONNX node as its converter sees it: operands as graph values, attributes with checked types."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..graph import Array, Call, Constant, Expr, Span, TensorType, call
from .errors import ModelError


@dataclass(frozen=True)
class Node:
    """A node of the user's model. ``inputs`` holds ``None`` for an optional operand that is left out."""

    name: str
    op: str
    inputs: tuple[Expr | None, ...]
    attrs: dict[str, Any]
    opset: int
    span: Span

    def error(self, message: str, hint: str = "") -> ModelError:
        return ModelError(f"{self.op}: {message}", at=self.span, hint=hint)

    def has(self, index: int) -> bool:
        return index < len(self.inputs) and self.inputs[index] is not None

    def input(self, index: int) -> Expr:
        """Operand ``index``, which must be there."""
        value = self.inputs[index] if index < len(self.inputs) else None
        if value is None:
            raise self.error(f"operand {index} is missing")
        return value

    def constant(self, index: int, what: str) -> Array:
        """Operand ``index``, which must be known at compile time."""
        value = self.input(index)
        if not isinstance(value, Constant):
            raise self.error(f"{what} must be a constant, but is computed while the model runs")
        return value.value

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

    def pair(self, name: str) -> tuple[int, int]:
        """A spatial attribute (height, width) that is 1 where it is left out."""
        value = self.integers(name, (1, 1))
        if value is None or len(value) != 2:
            raise self.error(f"only 2-D windows are supported, but {name!r} is {value}")
        return value[0], value[1]

    def axes(self, index: int) -> tuple[int, ...] | None:
        """Axes given as an attribute (older opsets) or as operand ``index``."""
        if self.has(index):
            return tuple(int(axis) for axis in self.constant(index, "the axes").reshape(-1))
        return self.integers("axes")

    def call(self, op: str, *args: Expr, **attrs: Any) -> Call:
        return call(op, *args, span=self.span, **attrs)

    def require_image(self, value: Expr) -> TensorType:
        """The type of an operand that must be (N, C, H, W)."""
        kind = value.tensor_type
        if kind.rank != 4:
            raise self.error(f"only (N, C, H, W) tensors are supported here, not {kind}")
        return kind


def quantisation(node: Node, scale: int, zero_point: int, dtype: str) -> tuple[Constant, Constant]:
    """Scale and zero point from operands ``scale`` and ``zero_point``, as constants of equal shape ((), or (C,)).

    ``dtype`` is the type of the zero point when it is left out.
    """
    scales = node.constant(scale, "the scale")
    if node.has(zero_point):
        zeros = node.constant(zero_point, "the zero point")
    else:
        zeros = np.zeros(scales.shape, dtype)
    if scales.dtype != np.float32:
        raise node.error(f"the scale must be float32, not {scales.dtype.name}")
    if not np.all(np.isfinite(scales)) or np.any(scales <= 0):
        raise node.error("every scale must be a finite number above 0")
    if scales.size == 1:
        scales = scales.reshape(())
    zeros = np.broadcast_to(zeros.reshape(()) if zeros.size == 1 else zeros, scales.shape)
    return Constant(scales, span=node.span), Constant(zeros, span=node.span)


def dequantised(node: Node, value: int, scale: int, zero_point: int, axis: int = 1) -> Call:
    """Operand ``value`` as the real numbers that it stands for."""
    x = node.input(value)
    if x.dtype not in ("int8", "uint8", "int32"):
        raise node.error(f"only 8-bit tensors (and int32 biases) are supported, not {x.tensor_type}")
    scales, zeros = quantisation(node, scale, zero_point, x.dtype)
    axis = axis % max(len(x.shape), 1)
    return node.call("dequantise", x, scales, zeros, axis=axis if scales.value.ndim else 1)


def quantised(node: Node, x: Expr, scale: int, zero_point: int, axis: int = 1) -> Call:
    """``x`` in 8 bits."""
    scales, zeros = quantisation(node, scale, zero_point, "uint8")
    if zeros.dtype not in ("int8", "uint8"):
        raise node.error(f"only 8-bit activations are supported, not {zeros.dtype}")
    return node.call("quantise", x, scales, zeros, axis=axis % max(len(x.shape), 1) if scales.value.ndim else 1)


def raw_integers(node: Node, value: int, zero_point: int, axis: int = 1) -> Call:
    """Operand ``value`` minus its zero point, as real numbers with scale 1 (the ``...Integer`` operators)."""
    x = node.input(value)
    zeros = node.constant(zero_point, "the zero point") if node.has(zero_point) else np.zeros((), x.dtype)
    zeros = zeros.reshape(()) if zeros.size == 1 else zeros
    ones = Constant(np.ones(zeros.shape, np.float32))
    return node.call("dequantise", x, ones, Constant(zeros), axis=axis if zeros.ndim else 1)
