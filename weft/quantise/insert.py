"""The model with 8-bit tensors: a quantise and a dequantise at each place of a plan."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from ..compiler.graph import Array, Call, Constant, Expr, Function, Module, call, topological_order
from ..compiler.graph.visit import with_children
from ..whole import require_mapping
from .errors import QuantiseError
from .four_bits import FourBits, chosen, constants_of
from .offsets import with_whole_offsets
from .plan import Plan, Weight, require_plan
from .ranges import Range

LARGEST = 127
"""Of a weight: its 8 bits are symmetric."""


def quantised(plan: Plan, ranges: Mapping[str, Range], four_bits: Mapping[str, FourBits] | None = None) -> Module:
    """The model of a plan in 8 bits: what ``weft.compile`` takes for the accelerator and for a CPU.

    Activations: int8 with one scale and zero point, from ``ranges``. Weights: int8 without a zero point, one scale an
    output channel; those in ``four_bits`` (:func:`weft.quantise.four_bits`) are the numbers found there, which cores
    with groups of that length store in 4 bits. Offsets right behind a product are whole in its unit
    (`with_whole_offsets`); others stay floats. Raises `QuantiseError` for a place without a range, and for a name in
    ``four_bits`` of which the plan has no weight.
    """
    require_plan(plan)
    known = four_bits or {}
    if unknown := set(known) - {weight.name for weight in plan.weights.values() if chosen(weight, known)}:
        raise QuantiseError(f"the plan has no such weight {min(unknown)!r}", hint="find the 4 bits of the same plan")

    def weights(weight: Weight) -> Expr:
        found = chosen(weight, known)
        return constants_of(weight, found) if found is not None else eight_bits(weight)

    return with_whole_offsets(inserted(plan, lambda name: steps_of(range_of(ranges, name)), weights))


def inserted(
    plan: Plan, steps: Callable[[str], tuple[Expr, Expr]], weights: Callable[[Weight], Expr],
    offsets: Mapping[str, Expr] | None = None,
) -> Module:  # fmt: skip
    """The model with ``dequantise(quantise(x, *steps(name)), *steps(name))`` in place of each value ``x``, and
    ``weights(weight)`` in place of each weight."""
    named = {value: name for name, value in plan.values.items()}
    replaced = {id(plan.offsets[name]): value for name, value in (offsets or {}).items()}
    memo: dict[int, Expr] = {}
    done: dict[Expr, Expr] = {}
    for node in topological_order(plan.module.main.body):
        if id(node) in replaced:
            memo[id(node)] = replaced[id(node)]
            continue
        if node not in done:
            children = [memo[id(child)] for child in node.children]
            if isinstance(node, Call):
                for place in range(len(children)):
                    if (node, place) in plan.weights:
                        children[place] = weights(plan.weights[node, place])
            made = with_children(node, tuple(children))
            if node in named:
                made = fake_quantised(made, *steps(named[node]))
            if isinstance(node, Constant):
                memo[id(node)] = made
                continue
            done[node] = made
        memo[id(node)] = done[node]
    main = plan.module.main
    return Module(Function(main.params, memo[id(main.body)], main.attrs, main.span), plan.module.stage)


def fake_quantised(x: Expr, scale: Expr, zero_point: Expr, axis: int = 1) -> Expr:
    """``x`` rounded to what 8 bits hold, in floats."""
    eight = call("quantise", x, scale, zero_point, axis=axis, span=x.span)
    return call("dequantise", eight, scale, zero_point, axis=axis, span=x.span)


def eight_bits(weight: Weight) -> Expr:
    """A weight as int8 constants behind a dequantise."""
    scale = weight_scale(weight.value.value, weight.axis)
    zero_point = np.zeros(scale.shape, np.int8)
    spread = _spread(scale, weight)
    integers = np.clip(np.rint(weight.value.value / spread), -LARGEST, LARGEST).astype(np.int8)
    constants = (Constant(integers, weight.name), Constant(scale), Constant(zero_point))
    return call("dequantise", *constants, axis=weight.axis or 0, span=weight.value.span)


def weight_scale(value: Array, axis: int | None) -> Array:
    """The scale of a weight, one for each index of an axis; 1 where all is 0."""
    others = tuple(other for other in range(value.ndim) if other != axis)
    largest = np.abs(value).max(axis=others if axis is not None else None, initial=0)
    return np.asarray(np.where(largest > 0, largest / LARGEST, 1), np.float32)


def _spread(scale: Array, weight: Weight) -> Array:
    """A scale as it broadcasts with its weight."""
    if weight.axis is None:
        return scale
    return scale.reshape([-1 if axis == weight.axis else 1 for axis in range(weight.value.value.ndim)])


def steps_of(span: Range) -> tuple[Expr, Expr]:
    """Scale and zero point of a range, as constants."""
    return Constant(np.array(span.scale, np.float32)), Constant(np.array(span.zero_point, np.int8))


def range_of(ranges: Mapping[str, Range], name: str) -> Range:
    """That of a place; `QuantiseError` if it has none."""
    require_mapping(ranges, "ranges", QuantiseError)
    if name not in ranges:
        raise QuantiseError(f"{name!r} has no range", hint="calibrate the plan that is inserted")
    if not isinstance(ranges[name], Range):
        raise QuantiseError(f"the range of {name!r} is {ranges[name]!r:.80}, but must be a Range")
    return ranges[name]
