"""Weights of 4 bits in groups along the depth: int8 numbers of a form that cores with ``weight_group`` store in 4 bits.

``w = c * (q - z) * s`` with one float ``c`` an output channel and, for each group of neighbours along the depth of each
channel, a scale ``s`` and a zero point ``z``; ``q``, ``z`` and ``s`` are whole numbers in 0..15, and ``(q - z) * s`` is
an int8.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from ..compiler.graph import Array, Call, Constant, Expr, Fusion, Role, call, operator, role_of
from .errors import QuantiseError
from .plan import Plan, Weight, require_plan

LARGEST_CODE = 15
LARGEST_INT8 = 127

GROUPS = (32, 64, 128)
"""Values along the depth that cores can have in a group (``CoreConfig.weight_group``)."""

SHARES = (1.0, 0.9, 0.8, 0.7)
"""Of a channel's largest weight over 127, what is tried as its float."""

STEPS, SHIFTS = (-2, -1, 0, 1), (-1, 0, 1)
"""Scales and zero points that are tried around those that just cover a group."""

CHUNK = 1 << 20
"""Weights that are searched at once."""


@dataclass(frozen=True, eq=False)
class FourBits:
    """A weight in 4 bits: ``integers``, int8 of the weight's shape, times ``scale``, one an output channel, along
    ``axis``. ``decibels``: the weight's power over that of the error."""

    integers: Array
    scale: Array
    axis: int
    decibels: float


def four_bits(
    plan: Plan, group: int, *, layers: Collection[str] | None = None, least_decibels: float = 0.0
) -> dict[str, FourBits]:
    """The weights of a plan that can have 4 bits, by name: for :func:`weft.quantise.quantised`.

    group
        Values along the depth that share a scale and a zero point: the core's ``weight_group``.
    layers
        Names of weights that are to have 4 bits; by default all that can: of products, and of convolutions of one
        pixel without groups, whose depth is a multiple of ``group``. `QuantiseError` for a name that cannot.
    least_decibels
        Weights whose error is larger than so stay in 8 bits.
    """
    require_plan(plan)
    if group not in GROUPS:
        raise QuantiseError(f"groups of {group} exist on no core", hint=f"one of: {', '.join(map(str, GROUPS))}")
    able = {weight.name: weight for (node, _), weight in plan.weights.items() if _why_not(node, weight, group) == ""}
    if layers is not None:
        for name in layers:
            if name not in able:
                raise QuantiseError(_refusal(plan, name, group), hint=f"those that can: {', '.join(able) or 'none'}")
        able = {name: able[name] for name in layers}
    shared = {weight.name: _shared(node, group) for (node, _), weight in plan.weights.items()}
    found = {name: _of_weight(weight, shared[name]) for name, weight in able.items()}
    return {name: each for name, each in found.items() if each.decibels >= least_decibels}


def _shared(node: Call, group: int) -> int:
    """How many neighbours along the depth of a product get one scale and one zero point: those of a group, or of all
    heads that share a key, where attention with several makes the depth. A core's product gives these heads in turns
    of a few channels; weights that are the same kind of group in that order, too, may read them as they lie."""
    value: Expr = node.args[0]
    while isinstance(value, Call) and len(value.args) == 1 and operator(str(value.op)).fusion is Fusion.LAYOUT:
        value = value.args[0]
    if not isinstance(value, Call) or role_of(value) is not Role.MATRIX_PRODUCT:
        return group
    depth, (rows, columns) = node.args[0].shape[-1], value.shape[-2:]
    computed = not any(isinstance(arg, Constant) for arg in value.args)
    heads = rows * columns
    return heads if computed and rows > 1 and heads % group == 0 and depth % heads == 0 else group


def in_eight_bits(plan: Plan, group: int) -> dict[str, str]:
    """The weights of a plan that :func:`four_bits` leaves in 8 bits, whatever their error, each with the reason."""
    require_plan(plan)
    if group not in GROUPS:
        raise QuantiseError(f"groups of {group} exist on no core", hint=f"one of: {', '.join(map(str, GROUPS))}")
    reasons = {weight.name: _why_not(node, weight, group) for (node, _), weight in plan.weights.items()}
    return {name: reason for name, reason in reasons.items() if reason}


def best_group(plan: Plan) -> int:
    """The longest group that fits as many of a plan's weights as any: longer groups have fewer scales to load."""
    require_plan(plan)

    def fitting(group: int) -> int:
        left = in_eight_bits(plan, group)
        return sum(weight.value.value.size for weight in plan.weights.values() if weight.name not in left)

    return max(GROUPS, key=lambda group: (fitting(group), group))


def _refusal(plan: Plan, name: str, group: int) -> str:
    for (node, _), weight in plan.weights.items():
        if weight.name == name:
            return f"weight {name!r} cannot have 4 bits: {_why_not(node, weight, group)}"
    return f"the plan has no weight {name!r}"


def _why_not(node: Call, weight: Weight, group: int) -> str:
    shape = weight.value.shape
    if weight.axis is None:
        return "it has no output channels"
    if any(size > 1 for size in shape[2:]):
        return f"only convolutions of one pixel and products have groups, but it has shape {shape}"
    if int(str(node.attrs.get("groups", 1))) > 1:
        return "its convolution has groups of channels"
    depth = weight.value.value.size // max(1, shape[weight.axis])
    if depth % group:
        smaller = [other for other in GROUPS if depth % other == 0]
        other = f"; groups of {max(smaller)} would do" if smaller else ""
        return f"its depth of {depth} is no multiple of {group}{other}"
    return ""


def _of_weight(weight: Weight, group: int) -> FourBits:
    axis = weight.axis or 0
    turned = np.moveaxis(weight.value.value, axis, 0)
    integers, scale, decibels = fitted(turned.reshape(len(turned), -1), group)
    back = np.moveaxis(integers.reshape(turned.shape), 0, axis)
    return FourBits(np.ascontiguousarray(back), scale, axis, decibels)


def fitted(real: Array, group: int) -> tuple[Array, Array, float]:
    """Floats ``(outputs, depth)`` in 4 bits: integers int8 of the same shape, scales float32 ``(outputs,)``, and the
    power of the floats over that of the error in decibels. The scales are searched for the least squared error; codes
    are the nearest."""
    outputs, depth = real.shape
    at_once = max(1, CHUNK // max(1, depth))
    parts = [_fitted(real[start : start + at_once], group) for start in range(0, outputs, at_once)]
    integers = np.concatenate([each for each, _ in parts] or [np.zeros(real.shape, np.int8)])
    scale = np.concatenate([each for _, each in parts] or [np.zeros(0, np.float32)])
    error = float(np.square(real - integers * scale[:, None].astype(np.float64)).sum())
    power = float(np.square(real.astype(np.float64)).sum())
    return integers, scale, float(10 * np.log10(power / error)) if error else float("inf")


def _fitted(real: Array, group: int) -> tuple[Array, Array]:
    x: Any = real.astype(np.float32).reshape(len(real), -1, group)
    low, high = np.minimum(x.min(2), 0), np.maximum(x.max(2), 0)
    largest = np.abs(x).max((1, 2), initial=0)
    largest = np.where(largest > 0, largest, LARGEST_INT8)
    least = np.full(len(x), np.inf)
    scale, integers = np.ones(len(x), np.float32), np.zeros(x.shape, np.int8)
    for share in SHARES:
        channel = (share * largest / LARGEST_INT8).astype(np.float32)
        error, found = _best_of_groups(x / channel[:, None, None], low / channel[:, None], high / channel[:, None])
        total = (error * np.square(channel)[:, None]).sum(1)
        better = total < least
        least[better], scale[better], integers[better] = total[better], channel[better], found[better]
    return integers.reshape(real.shape), scale


def _best_of_groups(x: Any, low: Any, high: Any) -> tuple[Any, Any]:
    """Of values in units of their channel, the least squared error of each group and its numbers."""
    around = np.rint((high - low) / LARGEST_CODE)
    least, found = np.full(low.shape, np.inf, np.float32), np.zeros(x.shape, np.int8)
    for step, shift in product(STEPS, SHIFTS):
        s = np.clip(around + step, 1, LARGEST_CODE)
        z = np.clip(np.rint(-low / s) + shift, 0, LARGEST_CODE)
        reach = LARGEST_INT8 // s  # of a code from the zero point, so that the number is an int8
        bottom, top = np.maximum(-z, -reach), np.minimum(LARGEST_CODE - z, reach)
        numbers = np.clip(np.rint(x / s[..., None]), bottom[..., None], top[..., None]) * s[..., None]
        error = np.square(x - numbers).sum(2)
        better = error < least
        least[better], found[better] = error[better], numbers[better].astype(np.int8)
    return least, found


def constants_of(weight: Weight, found: FourBits) -> Expr:
    """A weight as its numbers behind a dequantise."""
    zero_point = np.zeros(found.scale.shape, np.int8)
    constants = Constant(found.integers, weight.name), Constant(found.scale), Constant(zero_point)
    return call("dequantise", *constants, axis=found.axis, span=weight.value.span)


def chosen(weight: Weight, known: Mapping[str, FourBits]) -> FourBits | None:
    """What is known of a weight; None where nothing is, or of another weight of its name."""
    found = known.get(weight.name)
    same = found is not None and found.axis == weight.axis and found.integers.shape == weight.value.shape
    return found if same else None
