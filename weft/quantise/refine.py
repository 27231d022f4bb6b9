"""Roundings and offsets that make up for what 8 bits lose, layer by layer, on examples.

The model is walked once, in floats and in 8 bits side by side. At each product the rounding of its weights is chosen,
given what the layers before it really give in 8 bits; at each offset the mean of what is then still wrong is taken off.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping

import numpy as np

from ..compiler.graph import (
    LINEAR,
    Anchor,
    Array,
    Call,
    Constant,
    Expr,
    Function,
    Module,
    Role,
    Tuple,
    Var,
    operator,
    role_of,
)
from ..compiler.graph.registry import apply as apply_call
from ..compiler.graph.visit import topological_order, with_children
from ..compiler.operators import numerics
from ..shown import with_article
from .adaround import moments, rounded_weights
from .equalise import SUMS
from .errors import QuantiseError
from .insert import LARGEST, range_of, weight_scale
from .plan import Plan, Weight, plan, require_examples, require_plan
from .ranges import Range

Values = list[Array]
"""Of one node: its value for each batch of examples."""


def refined(
    plan_: Plan, ranges: Mapping[str, Range], examples: Iterable[Mapping[str, Array]], *, bias: bool = True,
    rounding: bool = True, progress: Callable[[str], None] = lambda _: None,
) -> Plan:  # fmt: skip
    """A plan with other constants, whose 8 bits are closer to the float model on the examples.

    bias
        Bias correction: from each offset of a product the mean error of its channel is taken off.
    rounding
        AdaRound (Nagel et al., 2020, arXiv:2004.10568): each weight is rounded up or down, whichever together lose
        least of the product's result. Weights of the new plan are multiples of their scale.

    A product without an offset keeps its mean error, which the next offset takes off; weights of stacks of matrices and
    weights on the left of a product are rounded to the nearest. Raises `QuantiseError` without examples and for places
    without a range, and what the operators raise for examples that do not fit.
    """
    require_plan(plan_)
    require_examples(examples)
    batches = list(examples)
    if not batches:
        raise QuantiseError("there are no examples to refine with")
    return plan(_Walk(plan_, ranges, batches, bias, rounding, progress).run())


class _Walk:
    """``exact`` and ``eight``: values of nodes that are still read, in floats and in 8 bits. ``changed``: constants
    that take another's place, by the call and the number of the operand."""

    def __init__(
        self, plan_: Plan, ranges: Mapping[str, Range], batches: list[Mapping[str, Array]], bias: bool, rounding: bool,
        progress: Callable[[str], None],
    ) -> None:  # fmt: skip
        self.plan, self.batches, self.bias, self.rounding = plan_, batches, bias, rounding
        self.progress = progress
        self.places = {value: range_of(ranges, name) for name, value in plan_.values.items()}
        self.offsets = {id(constant) for constant in plan_.offsets.values()}
        self.exact: dict[Expr, Values] = {}
        self.eight: dict[Expr, Values] = {}
        self.changed: dict[tuple[Call, int], Constant] = {}
        self.readers: dict[Expr, list[Expr]] = {}

    def run(self) -> Module:
        body = self.plan.module.main.body
        order = list(dict.fromkeys(topological_order(body)))
        for node in order:
            for child in node.children:
                self.readers.setdefault(child, []).append(node)
        left = {node: len(readers) for node, readers in self.readers.items()}
        products = sum(1 for node in order if isinstance(node, Call) and self._weight(node))
        done = 0
        for node in order:
            if isinstance(node, Call) and self._weight(node):
                done += 1
                self.progress(f"refining: product {done} of {products}")
            self._visit(node)
            for child in node.children:
                left[child] -= 1
                if not left[child]:
                    self.exact.pop(child, None)
                    self.eight.pop(child, None)
        return self._rebuilt()

    def _weight(self, node: Call) -> tuple[int, Weight] | None:
        found = ((number, self.plan.weights.get((node, number))) for number in range(len(node.args)))
        return next(((number, weight) for number, weight in found if weight is not None), None)

    def _visit(self, node: Expr) -> None:
        match node:
            case Var():
                self.exact[node] = self.eight[node] = [_given(batch, node) for batch in self.batches]
            case Constant():
                self.exact[node] = self.eight[node] = [node.value] * len(self.batches)
            case Call():
                self.exact[node] = self._applied(node, self.exact)
                self.eight[node] = self._in_eight_bits(node)
            case Tuple():
                return
            case _:
                raise QuantiseError(f"{with_article(type(node).__name__)} cannot be refined", at=node.span)
        if node in self.places:
            self.eight[node] = [_rounded(value, self.places[node]) for value in self.eight[node]]

    def _applied(self, node: Call, values: Mapping[Expr, Values]) -> Values:
        return [apply_call(node, [values[arg][number] for arg in node.args]) for number in range(len(self.batches))]

    def _in_eight_bits(self, node: Call) -> Values:
        if found := self._weight(node):
            place, weight = found
            scale = weight_scale(weight.value.value, weight.axis).astype(np.float64)
            if weight.axis is not None:
                scale = scale.reshape([-1 if axis == weight.axis else 1 for axis in range(weight.value.value.ndim)])
            steps = self._steps(node, place, weight, scale)
            self.changed[node, place] = Constant((steps * scale).astype(np.float32), weight.value.name)
            operands = {**self.eight, node.args[place]: [self.changed[node, place].value] * len(self.batches)}
            if not self.rounding:
                del self.changed[node, place]
            return self._applied(node, operands)
        values = self._applied(node, self.eight)
        offset = next((number for number, arg in enumerate(node.args) if id(arg) in self.offsets), None)
        if not self.bias or offset is None or role_of(node) not in SUMS:
            return values
        constant = node.args[offset]
        assert isinstance(constant, Constant)
        shape = (1,) * (len(node.shape) - len(constant.shape)) + constant.shape
        axes = tuple(axis for axis, size in enumerate(shape) if size == 1)
        pairs = zip(self.exact[node], values, strict=True)
        error = np.mean([(exact.astype(np.float64) - value).mean(axis=axes, keepdims=True) for exact, value in pairs],
                        axis=0)  # fmt: skip
        sign = -1 if role_of(node) is Role.SUBTRACT and offset == 1 else 1
        corrected = constant.value + sign * error.reshape(constant.shape)
        self.changed[node, offset] = Constant(corrected.astype(np.float32), constant.name, constant.span)
        return [(value + error).astype(np.float32) for value in values]

    def _steps(self, node: Call, place: int, weight: Weight, scale: Array) -> Array:
        """The weight in whole steps of its scale."""
        real = weight.value.value / scale
        matrix = _Matrix.of(node, place) if self.rounding else None
        if matrix is None:
            return np.asarray(np.clip(np.rint(real), -LARGEST, LARGEST))
        read = node.args[1 - place]
        pairs = ((matrix.columns(value), matrix.results(exact)) for value, exact
                 in zip(self.eight[read], self.exact[node], strict=True))  # fmt: skip
        found = moments(pairs, matrix.rows(weight.value.value), centred=self.bias and self._has_offset(node))
        rows, scales = matrix.rows(real), matrix.rows(np.broadcast_to(scale, real.shape))
        return matrix.weights(rounded_weights(rows, scales, found))

    def _has_offset(self, node: Expr) -> bool:
        """Whether an offset takes off the mean error of a product's result."""
        while len(readers := self.readers.get(node, [])) == 1 and isinstance(reader := readers[0], Call):
            if role_of(reader) in SUMS:
                return any(id(arg) in self.offsets for arg in reader.args)
            if role_of(reader) not in LINEAR and reader.op not in ("reshape", "transpose"):
                return False
            node = reader
        return False

    def _rebuilt(self) -> Module:
        main = self.plan.module.main
        memo: dict[int, Expr] = {}
        for node in topological_order(main.body):
            children = [memo[id(child)] for child in node.children]
            if isinstance(node, Call):
                children = [self.changed.get((node, place), child) for place, child in enumerate(children)]
            memo[id(node)] = with_children(node, tuple(children))
        return Module(Function(main.params, memo[id(main.body)], main.attrs, main.span), self.plan.module.stage)


def _given(batch: Mapping[str, Array], node: Var) -> Array:
    if node.name not in batch:
        raise QuantiseError(f"the examples lack input {node.name!r}")
    value = np.asarray(batch[node.name])
    if value.shape != node.shape:
        raise QuantiseError(f"input {node.name!r} must be {node.type}, not {list(value.shape)}")
    return value


def _rounded(value: Array, span: Range) -> Array:
    """What 8 bits hold of a value."""
    scale, zero_point = np.float32(span.scale), np.float32(span.zero_point)
    steps = np.clip(np.rint(value / scale) + zero_point, -128, 127) - zero_point
    return np.asarray(steps * scale, np.float32)


class _Matrix:
    """A product as matrices, one for each group: rows (groups, outputs, k) of weights times columns (groups, k, n)."""

    def __init__(self, node: Call) -> None:
        self.node = node
        self.shape = node.args[1].shape
        self.groups: int = node.attr("groups") if "groups" in node.attrs else 1

    @staticmethod
    def of(node: Call, place: int) -> _Matrix | None:
        """None for a product that is not one with a matrix of weights on the right."""
        if place != 1 or not isinstance(node.op, str):
            return None
        if operator(node.op).anchor is Anchor.CONVOLUTION:
            return _Convolution(node)
        return _Matrix(node) if len(node.args[1].shape) == 2 else None

    @property
    def turned(self) -> bool:
        """Whether the outputs are the last axis of the weights."""
        return role_of(self.node) is Role.MATRIX_PRODUCT

    def rows(self, weights: Array) -> Array:
        flat = weights.T if self.turned else weights.reshape(len(weights), -1)
        return flat.reshape(self.groups, -1, flat.shape[1])

    def weights(self, rows: Array) -> Array:
        flat = rows.reshape(-1, rows.shape[2])
        return flat.T if self.turned else flat.reshape(self.shape)

    def columns(self, x: Array) -> Array:
        return x.reshape(1, -1, x.shape[-1]).transpose(0, 2, 1)

    def results(self, y: Array) -> Array:
        return y.reshape(1, -1, y.shape[-1]).transpose(0, 2, 1)


class _Convolution(_Matrix):
    def columns(self, x: Array) -> Array:
        attr, kernel = self.node.attr, self.shape[2:]
        padded = numerics.pad_spatial(x, attr("pads"), 0.0)
        met = [window for _, window in numerics.windows(padded, kernel, attr("strides"), attr("dilations"))]
        stacked = np.stack(met, axis=2)  # (N, C, taps, ...)
        batch, channels, taps = stacked.shape[:3]
        split = stacked.reshape(batch, self.groups, channels // self.groups * taps, -1)
        return split.transpose(1, 2, 0, 3).reshape(self.groups, channels // self.groups * taps, -1)

    def results(self, y: Array) -> Array:
        split = y.reshape(y.shape[0], self.groups, y.shape[1] // self.groups, math.prod(y.shape[2:]))
        return split.transpose(1, 2, 0, 3).reshape(self.groups, y.shape[1] // self.groups, -1)
