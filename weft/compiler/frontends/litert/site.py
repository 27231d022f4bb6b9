"""One operator of a LiteRT file as its rule sees it, and the table of rules.

A file's tensors have their channels last, (N, H, W, C); the graph's windows have them behind N. So a value is held in
any order of its axes, and changes it only where an operator asks: between operators that do not, nothing is moved.

A rule takes the site and gives the results, each a `Held`, or an expression with the file's own axes. Where a tensor is
quantised, a rule computes with real numbers (`Site.real`), and what it gives is quantised as the file says; moves keep
the integers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ....roundings import HALF_UP
from ...graph import Array, Constant, Expr
from ...graph.dtypes import FLOATS, numpy_dtype
from ..errors import ModelError, NeedsValueError
from ..onnx.node import Node
from ..site import OperatorSite, adds_to
from .file import OperatorInfo, Quantisation, TensorInfo
from .kernels import DEFAULT, REFERENCE
from .schema import ACTIVATIONS

QUANTISED = ("int8", "uint8", "int16")
"""Types whose values stand for real numbers where a tensor has a scale."""


MOST_MADE = 1 << 26
"""Elements of a tensor that is made while a file is read, from sizes that the file states."""


@dataclass(frozen=True)
class Held:
    """A tensor's value. Axis i of ``expr`` is axis ``order[i]`` of the file's tensor. ``imaginary`` parts: of complex
    numbers, of which ``expr`` has the real parts."""

    expr: Expr
    order: tuple[int, ...]
    imaginary: Expr | None = None

    @staticmethod
    def plain(expr: Expr, imaginary: Expr | None = None) -> Held:
        return Held(expr, tuple(range(len(expr.shape))), imaginary)

    @property
    def shape(self) -> tuple[int, ...]:
        """With the file's axes."""
        return tuple(self.expr.shape[self.order.index(axis)] for axis in range(len(self.order)))

    def place(self, axis: int) -> int:
        """Where an axis of the file's tensor lies."""
        return self.order.index(axis)

    def to(self, node: Node, order: Sequence[int]) -> Expr:
        """The value with its axes in another order."""
        perm = tuple(self.order.index(axis) for axis in order)
        if perm == tuple(range(len(perm))):
            return self.expr
        if isinstance(self.expr, Constant):
            moved = np.ascontiguousarray(self.expr.value.transpose(perm))
            return Constant(moved, self.expr.name, self.expr.span)
        return node.transpose(self.expr, perm)


def channels_first(rank: int) -> tuple[int, ...]:
    """The order (N, C, spatial axes) of a tensor that has its channels last."""
    return (0, rank - 1, *range(1, rank - 1))


@dataclass
class Memory:
    """What all graphs of a file share. ``values``: what named variables hold where the reading has come to. ``names``:
    those that have handles; a handle's number is its place among them. ``kernels``: those whose integers are meant."""

    values: dict[str, Held] = field(default_factory=dict)
    names: list[str] = field(default_factory=list)
    kernels: str = DEFAULT


Result = Held | Expr
Rule = Callable[["Site"], Result | tuple[Result, ...]]

RULES: dict[str, Rule] = {}
"""By the operator's name in the schema."""

REFUSED: dict[str, str] = {}
"""Operators that no graph of fixed sizes has a form for, with the reason."""

rule = adds_to(RULES)


@dataclass(frozen=True)
class Site(OperatorSite):
    """``values`` and ``tensors`` of the operands, None for one that is left out; ``results`` of what it gives;
    ``body`` runs another graph of the file for values. ``memory`` is that of all graphs."""

    info: OperatorInfo
    values: tuple[Held | None, ...]
    tensors: tuple[TensorInfo | None, ...]
    results: tuple[TensorInfo, ...]
    body: Callable[[Site, int, Sequence[Held]], list[Held]]
    memory: Memory
    intermediates: tuple[TensorInfo | None, ...] = ()

    @property
    def reference(self) -> bool:
        """Whether the reference kernels' integers are meant."""
        return self.memory.kernels == REFERENCE

    # Operands

    def option(self, name: str) -> Any:
        return self.info.options[name]

    def has(self, index: int) -> bool:
        return index < len(self.values) and self.values[index] is not None

    def held(self, index: int) -> Held:
        """Operand ``index`` as the file has it: integers where it is quantised."""
        found = self.values[index] if index < len(self.values) else None
        if found is None:
            raise self.error(f"operand {index} is missing")
        return found

    def tensor(self, index: int) -> TensorInfo:
        self.held(index)
        tensor = self.tensors[index]
        assert tensor is not None
        return tensor

    def raw(self, index: int) -> Expr:
        """`held`, with the file's axes."""
        return self.ordered(self.held(index))

    def ordered(self, held: Held, order: Sequence[int] | None = None) -> Expr:
        """A value with its axes in an order, by default the file's."""
        return held.to(self.node, range(len(held.order)) if order is None else order)

    def quantisation(self, index: int) -> Quantisation | None:
        """Of operand ``index``, if its integers stand for real numbers."""
        tensor = self.tensor(index)
        return tensor.quantisation if tensor.element in QUANTISED else None

    def intermediate(self, index: int) -> Quantisation:
        """Of a part of the operator's own arithmetic."""
        tensor = self.intermediates[index] if index < len(self.intermediates) else None
        if tensor is None or tensor.quantisation is None:
            raise self.error(f"intermediate tensor {index} has no scale", hint="convert the model again")
        self.parameters(tensor.quantisation, tensor.element)
        return tensor.quantisation

    def scale(self, index: int) -> float:
        """The one scale of operand ``index``."""
        quantisation = self.quantisation(index)
        if quantisation is None or quantisation.scales.size != 1:
            raise self.error(f"operand {index} must have one scale")
        self.parameters(quantisation, self.tensor(index).element)
        return float(quantisation.scales[0])

    def zero(self, index: int) -> int:
        """The zero point of operand ``index``; 0 where it has none."""
        quantisation = self.quantisation(index)
        return 0 if quantisation is None else int(quantisation.zeros[0])

    def real(self, index: int) -> Held:
        """Operand ``index`` as real numbers."""
        return self.real_of(self.held(index), self.quantisation(index))

    def real_of(self, held: Held, quantisation: Quantisation | None) -> Held:
        if quantisation is None or held.expr.dtype in FLOATS:
            return held
        scales, zeros = self.parameters(quantisation, held.expr.dtype)
        axis = held.place(quantisation.axis) if scales.shape else 1
        return Held(self.call("dequantise", held.expr, scales, zeros, axis=axis), held.order)

    def parameters(self, quantisation: Quantisation, dtype: str) -> tuple[Constant, Constant]:
        """Scales and zero points as constants, without axes where there is one."""
        scales, zeros = quantisation.scales, quantisation.zeros
        if not np.all(np.isfinite(scales)) or np.any(scales <= 0):
            raise self.error("every scale must be a finite number above 0")
        low, high = np.iinfo(numpy_dtype(dtype)).min, np.iinfo(numpy_dtype(dtype)).max
        if np.any(zeros < low) or np.any(zeros > high):
            raise self.error(f"a zero point is not a number of type {dtype}")
        shape = () if scales.size == 1 else scales.shape
        return (Constant(scales.reshape(shape).astype(np.float32)),
                Constant(zeros.reshape(shape).astype(numpy_dtype(dtype))))  # fmt: skip

    def quantised(
        self, x: Expr, quantisation: Quantisation, dtype: str, order: Sequence[int] = (), rounding: str = HALF_UP
    ) -> Expr:
        scales, zeros = self.parameters(quantisation, dtype)
        axis = list(order).index(quantisation.axis) if scales.shape else 1
        return self.call("quantise", x, scales, zeros, axis=axis, rounding=rounding)

    def images(self, index: int) -> Expr:
        """Operand ``index`` as real numbers, channels first."""
        held = self.real(index)
        if len(held.order) < 3:
            raise self.error(f"operand {index} must be (N, spatial axes, C), not {list(held.shape)}")
        return self.ordered(held, channels_first(len(held.order)))

    def weights(self, index: int, order: Sequence[int]) -> Expr:
        """Operand ``index`` as real numbers, its axes in an order."""
        held = self.held(index)
        if len(held.order) != len(order):
            raise self.error(f"operand {index} must have {len(order)} axes, not {len(held.order)}")
        moved = Held(self.ordered(held, order), tuple(order))
        return self.real_of(moved, self.quantisation(index)).expr

    def known(self, x: Expr, what: str) -> Array:
        """The value of what must be known at compile time. Raises `NeedsValueError`."""
        found = self.node.scope.static_value(x)
        if found is None:
            raise NeedsValueError(self.op, what, at=self.span, value=x, reader="from_litert")
        return found

    def constant(self, index: int, what: str) -> Array:
        """The value of operand ``index``, which must be known at compile time."""
        return self.known(self.raw(index), what)

    def numbers(self, index: int, what: str) -> list[int]:
        """The integers of operand ``index``, which must be known at compile time."""
        return [int(each) for each in self.constant(index, what).reshape(-1)]

    def together(self, *indices: int, real: bool = True) -> tuple[list[Expr], tuple[int, ...]]:
        """Operands of an elementwise operator in one order of their axes, with size 1 for axes that they lack."""
        values = [self.real(index) if real else self.held(index) for index in indices]
        rank = max(len(value.order) for value in values)
        whole = [value for value in values if len(value.order) == rank]
        leads = [value for value in whole if not value.expr.static] or whole
        order = max(leads, key=lambda value: (math.prod(value.expr.shape), value.order != tuple(range(rank)))).order
        return [self._in_order(value, order) for value in values], order

    def _in_order(self, value: Held, order: tuple[int, ...]) -> Expr:
        lacking = len(order) - len(value.order)
        if not lacking:
            return self.ordered(value, order)
        if not value.order:
            return value.expr
        shape = (*(1 for _ in range(lacking)), *value.shape)
        if isinstance(value.expr, Constant):
            plain = np.asarray(value.expr.value).transpose([value.place(axis) for axis in range(len(value.order))])
            return Held.plain(Constant(plain.reshape(shape), value.expr.name, value.expr.span)).to(self.node, order)
        plain_value = self.ordered(value)
        return self.reshape(plain_value, [shape[axis] for axis in order]) if sum(n != 1 for n in shape) < 2 else (
            self.ordered(Held.plain(self.reshape(plain_value, shape)), order))  # fmt: skip

    # Results

    def activated(self, x: Expr, name: str = "activation", unit: float = 1.0) -> Expr:
        """With the activation that the operator brings along. ``unit``: the real number that 1 of x stands for."""
        number = self.option(name)
        kind = ACTIVATIONS[number] if 0 <= number < len(ACTIVATIONS) else str(number)
        match kind:
            case "NONE":
                return x
            case "RELU":
                return self.call("nn.clip", x, low=0.0)
            case "RELU_N1_TO_1":
                return self.call("nn.clip", x, low=-1 / unit, high=1 / unit)
            case "RELU6":
                return self.call("nn.clip", x, low=0.0, high=6 / unit)
            case "TANH" if unit == 1:
                return self("tanh", x)
        raise self.error(f"the activation {kind} is not known")

    def made(self, sizes: Sequence[int]) -> tuple[int, ...]:
        """The shape of a tensor that is made of sizes in the file, which may not be vast."""
        if any(size < 0 for size in sizes) or math.prod(sizes) > MOST_MADE:
            raise self.error(f"it needs a tensor of shape {list(sizes)}", hint="is the file damaged?")
        return tuple(sizes)

    def error_of_rank(self, index: int, wanted: str) -> ModelError:
        return self.error(f"operand {index} must be {wanted}, not {list(self.held(index).shape)}")
