"""Calls that gradient rules are checked on: every operator that has one, in the forms that its attributes give it.

A case comes from an entry's sample, from its `Operator.draw`, or from `gradient_forms`; tests and
`benchmarks/training/gradients.py` go through all of them. So an operator with a rule cannot stay without a test.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from ..graph import evaluate
from ..graph.dtypes import FLOATS, is_float, numpy_dtype, step
from ..graph.ir import Array, Attrs, Call, Constant, Expr, Function, GraphError, Module, TensorType, Var
from ..graph.registry import Operator, Unsupported, call, operators
from ..graph.visit import topological_order, with_children
from .gradient_forms import FORMS
from .random_graphs import random_call
from .samples import samples_of, variable

RANGES = ((-2.0, 2.0), (0.2, 0.9), (1.2, 3.0))
"""Where inputs are drawn, in this order, until all that is computed is finite: all numbers, those between 0 and 1 (of
which arcsine, logarithm and the like are smooth functions), those above 1."""


@dataclass(frozen=True)
class Case:
    """A call to be differentiated by its inputs of floats; ``name`` tells what is special about it."""

    name: str
    node: Call

    @property
    def op(self) -> str:
        return str(self.node.op)

    @property
    def module(self) -> Module:
        params = dict.fromkeys(item for item in topological_order(self.node) if isinstance(item, Var))
        return Module(Function(tuple(params), self.node, Attrs({"name": "main", "outputs": ("y",)})))

    @property
    def wrt(self) -> list[str]:
        """The inputs of floats."""
        return [param.name for param in self.module.main.params if param.type.dtype in FLOATS]

    def values(self, seed: int = 0) -> dict[str, Array] | None:
        return values_of(self.module, seed)


def values_of(module: Module, seed: int, within: Module | None = None) -> dict[str, Array] | None:
    """Values for a module's inputs, from the first of `RANGES` with which all its outputs are finite, and those of
    ``within``, which takes some of the same inputs; None without."""
    generator = np.random.default_rng(seed)
    for low, high in RANGES:
        values: dict[str, Array] = {}
        for param in module.main.params:
            dtype = numpy_dtype(param.type.dtype)
            if param.type.dtype in FLOATS:
                values[param.name] = generator.uniform(low, high, param.type.shape).astype(dtype)
            elif param.type.dtype == "bool":
                values[param.name] = generator.random(param.type.shape) < 0.5
            else:
                values[param.name] = generator.integers(0, 4, param.type.shape).astype(dtype)
        others = [] if within is None else [(within, {each.name: values[each.name] for each in within.main.params})]
        if all(are_finite(evaluate(each, given)) for each, given in [(module, values), *others]):
            return values
    return None


def are_finite(results: Mapping[str, Array]) -> bool:
    return all(np.isfinite(value.astype(np.float64)).all() for value in results.values())


def differentiable() -> list[Operator]:
    """The operators that have a rule."""
    return [entry for entry in operators() if not isinstance(entry.gradient, Unsupported)]


def cases(dtype: str = "float64", drawn: int = 2) -> Iterator[Case]:
    """All cases with floats of one type; ``drawn``: random calls of each operator that draws itself."""
    for entry in differentiable():
        sample = samples_of(entry).get(dtype)
        if sample is not None:
            yield Case(f"{entry.name}", sample)
        yield from _drawn(entry, dtype, drawn)
    for name, make in FORMS:
        yield Case(name, make(lambda *shape, name="x": variable(dtype, *shape, name=name)))


def _drawn(entry: Operator, dtype: str, count: int) -> Iterator[Case]:
    """Random calls with sizes 0 and 1 among them, whose floats are all of one type."""
    found = 0
    for seed in range(40 * count):
        if found == count or entry.draw is None:
            return
        try:
            node, values = random_call(entry, seed)
            operands = [_retyped(arg, dtype, number, values) for number, arg in enumerate(node.args)]
            result = call(entry.name, *operands, span=node.span, **node.attrs)
        except GraphError:
            continue
        case = Case(f"{entry.name}, drawn {found + 1}", result)
        if result.dtype == dtype and any(isinstance(arg, Var) for arg in operands) and case.values(seed) is not None:
            found += 1
            yield case


def _retyped(arg: Expr, dtype: str, number: int, values: Mapping[str, Array]) -> Expr:
    if arg.dtype in FLOATS:
        return Var(f"x{number}", TensorType(arg.shape, dtype))
    return arg if isinstance(arg, Constant) else Constant(values[arg.name]) if isinstance(arg, Var) else arg


def widened(module: Module) -> Module:
    """The module with all floats in float64, where central differences are exact to nine digits.

    Raises `GraphError` where an operator does not take float64.
    """
    memo: dict[int, Expr] = {}
    for node in topological_order(module.main.body):
        match node:
            case Var() if node.type.dtype in FLOATS:
                memo[id(node)] = Var(node.name, TensorType(node.type.shape, "float64"), node.span)
            case Constant() if node.dtype in FLOATS:
                memo[id(node)] = Constant(node.value.astype(np.float64), node.name, node.span)
            case Call(op="nn.cast") if node.attr("to") in FLOATS:
                memo[id(node)] = call("nn.cast", memo[id(node.args[0])], to="float64", span=node.span)
            case _:
                memo[id(node)] = with_children(node, tuple(memo[id(child)] for child in node.children))
    params = tuple(
        Var(each.name, TensorType(each.type.shape, "float64"), each.span) if each.type.dtype in FLOATS else each
        for each in module.main.params
    )
    return Module(Function(params, memo[id(module.main.body)], module.main.attrs, module.main.span), module.stage)


def moved_off_kinks(values: Mapping[str, Array], seed: int) -> dict[str, Array]:
    """Values in which floats are float64 and a little (at most 0.02) away from those given.

    What was drawn in 16 bits, or stands in a test, is often a whole number: a limit of nn.clip, the place of a pixel.
    There the slopes of the two sides differ, and a central difference is neither. Behind a move, a kink closer than the
    width of a difference is as rare as that is small.
    """
    generator = np.random.default_rng(seed)
    return {
        name: value.astype(np.float64) + generator.uniform(-0.02, 0.02, value.shape)
        if value.dtype.name in FLOATS else value
        for name, value in values.items()
    }  # fmt: skip


def slope_error(
    module: Module, gradients: Module, seed: int = 0, values: dict[str, Array] | None = None, width: float = 0.2
) -> float:  # fmt: skip
    """How much the gradients of ``module`` that ``gradients`` computes (with an input ``seed_...`` for each output that
    is differentiated, and an output ``grad_...`` for each input) differ from central differences along a random
    direction, beyond what rounding of inputs and results takes from those: relative to the sum of the magnitudes of the
    gradient's elements, or to 1. Infinity where nothing can be compared.

    ``values``: of all inputs of ``gradients``; random ones by default. ``width``: half of the distance of a difference,
    in cube roots of the step of the coarsest type. The error of a wrong gradient is the same for all; where it changes,
    the slope does so within that distance, as next to a kink or a pole.
    """
    values = values_of(gradients, seed, module) if values is None else values
    if values is None:
        return math.inf
    found = evaluate(gradients, values)
    own = {param.name: values[param.name] for param in module.main.params}
    width *= _coarsest(module) ** (1 / 3)
    generator, worst = np.random.default_rng(seed + 1), 0.0
    for name, value in own.items():
        gradient = found.get(f"grad_{name}")
        if gradient is None:
            continue
        if gradient.shape != value.shape or gradient.dtype != value.dtype:
            return math.inf
        direction = generator.uniform(-1, 1, value.shape).astype(value.dtype)
        ends = [evaluate(module, {**own, name: value + sign * direction * value.dtype.type(width)}) for sign in (1, -1)]
        slope = sum(
            float(((ends[0][output].astype(np.float64) - ends[1][output]) * values[f"seed_{output}"]).sum())
            for output in module.main.output_names if f"seed_{output}" in values
        ) / (2 * width)  # fmt: skip
        wide = gradient.astype(np.float64)
        lost = sum(
            float(np.abs(ends[0][output].astype(np.float64) * values[f"seed_{output}"]).sum())
            for output in module.main.output_names if f"seed_{output}" in values
        ) * _coarsest(module) / width  # fmt: skip
        finite = np.where(np.isfinite(value), value, 0)
        lost += float(np.abs(wide * finite).sum()) * _coarsest(module) / width  # of what the inputs are moved by
        error = abs(slope - float((wide * direction).sum())) - lost
        error /= max(1.0, float(np.abs(wide).sum()))
        worst = max(worst, error if math.isfinite(error) else math.inf)
    return worst


def allowed_error(module: Module) -> float:
    """By how much right gradients may differ from central differences: those are exact to the square of their width."""
    return float(50 * _coarsest(module) ** (2 / 3))


def _coarsest(module: Module) -> float:
    """The step of the coarsest type of floats in a module."""
    kinds = [node.type for node in topological_order(module.main.body)]
    return max(step(kind.dtype) for kind in kinds if isinstance(kind, TensorType) and is_float(kind.dtype))
