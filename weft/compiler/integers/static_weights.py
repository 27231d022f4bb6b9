"""Quantised weights, with all that moves them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..graph import Array, Call, Constant, EightBits, Expr, Family, Role, role_of, topological_order
from ..graph.dtypes import NARROW_INTEGERS
from ..graph.evaluate import static_value
from ..graph.registry import operator, operator_of
from .form import Float64, Refusal

_MOVES = (Family.MOVE, Family.INDEX)

LARGEST_SIGNED = 127
LARGEST_OF_TWO = LARGEST_SIGNED * 256 + LARGEST_SIGNED
"""The largest number of two digits of 8 bits, each signed."""


@dataclass(frozen=True, eq=False)
class Weights:
    """Whole numbers without zero point (O, ...), int16 where those of 8 bits are the usual case, else int64; the scale
    of each output channel (O,); the constant's name."""

    centred: Array
    scale: Float64
    name: str


def static_weights(node: Expr, name: str) -> Weights | Refusal:
    """The weights that an expression of constants stands for, or why it does not stand for any. ``name``: of what uses
    them."""
    if not node.static:
        return Refusal(f"the weights of {name} are computed while the model runs")
    match node:
        case Call(args=(Constant() as q, Constant() as scale, Constant())) if role_of(node) is Role.DEQUANTISE and (
            not scale.value.ndim or (node.attr("axis") == 0 and not node.attr("block"))
        ):  # the usual case: no array of scales is needed
            scales = np.broadcast_to(scale.value.astype(np.float64), (q.value.shape[0],))
            return Weights(_centred(node), scales, q.name)
    found = _integers_and_scales(node)
    if found is None:
        return Refusal(f"the weights of {name} are not quantised constants")
    centred, scales = found
    inner = tuple(range(1, centred.ndim))
    high = np.max(scales, axis=inner, where=centred != 0, initial=-np.inf)
    low = np.min(scales, axis=inner, where=centred != 0, initial=np.inf)
    unknown = high < low  # a channel of zeros, or without weights
    high = np.where(unknown, 1.0, high)
    if np.any((high > low) & ~unknown):
        whole = _in_one_unit(centred, scales)
        if whole is None:
            return Refusal(f"the weights of {name} have more than one scale in an output channel")
        centred, high = whole
    return Weights(centred, high, _name(node))


def two_digits(node: Expr) -> tuple[Weights, Weights] | None:
    """Weights of any scales as the sum of two numbers of 8 bits, the second ones 256 times finer, each within half of
    the finer unit: a 65,000th of the largest weight of its output channel. None for what is no quantised constant."""
    found = _integers_and_scales(node) if node.static else None
    if found is None:
        return None
    values = found[0] * found[1]
    largest = np.max(np.abs(values), axis=tuple(range(1, values.ndim)), initial=0)
    unit = np.where(largest > 0, largest / LARGEST_OF_TWO, 1.0)
    whole = np.rint(values / _beside(unit, values)).astype(np.int32)
    low = (whole + 128) % 256 - 128
    return Weights((whole - low) >> 8, unit * 256, _name(node)), Weights(low, unit, _name(node))


_MOST_PARTS = 15
_SAME = 2.0**-22
"""Relative: how far two quotients of float32 may be apart that stand for the same one."""


def _in_one_unit(centred: Array, scales: Float64) -> tuple[Array, Float64] | None:
    """The same weights under one scale an output channel, where 8 bits hold whole multiples of one."""
    found, units = np.empty(centred.shape, np.int64), np.ones(len(centred))
    for place, (row, by) in enumerate(zip(centred, scales, strict=True)):
        used = np.unique(by[row != 0])
        if not len(used):
            found[place] = 0
            continue
        least = used[np.argmin(np.abs(used))]
        for parts in range(1, _MOST_PARTS + 1):
            factors = used * parts / least
            if np.all(np.abs(factors - np.rint(factors)) <= _SAME * np.abs(factors)):
                break
        else:
            return None
        units[place] = least / parts
        found[place] = row * np.rint(by / units[place]).astype(np.int64)
        if np.abs(found[place]).max() > LARGEST_SIGNED:
            return None
    return found, units


def _beside(values: Float64, weights: Array) -> Float64:
    """One number an output channel, as it broadcasts with weights."""
    return values.reshape(-1, *(1 for _ in weights.shape[1:]))


def _name(node: Expr) -> str:
    names = [item.name for item in topological_order(node) if isinstance(item, Constant) and item.name]
    return names[0] if names else ""


def _centred(node: Call) -> Array:
    """The integers of a dequantise of constants minus their zero points, in no more bytes than they need."""
    q, scale, zero = (static_value(arg) for arg in node.args)
    zeros = np.asarray(_spread(zero, node) if scale.ndim else zero)
    wide = np.int16 if q.dtype.itemsize == zeros.dtype.itemsize == 1 else np.int64
    return np.asarray(q.astype(wide) - zeros.astype(wide))


def _spread(values: Array, node: Call) -> Array:
    """One value a channel, or a block of one, of a dequantise, for each element of its operand."""
    shape, axis, block = node.shape, node.attr("axis"), node.attr("block")
    if block:
        return np.repeat(values, block, axis=axis)[tuple(slice(size) for size in shape)]
    aligned = values.reshape([-1 if i == axis else 1 for i in range(len(shape))])
    return np.broadcast_to(aligned, shape)


def _integers_and_scales(node: Expr) -> tuple[Array, Float64] | None:
    """Integers without zero point, and the scale of each; None for anything but moves of a dequantise, and products
    with constants. What padding adds is 0."""
    entry = operator_of(node)
    if not isinstance(node, Call) or entry is None:
        return None
    if entry.role is Role.DEQUANTISE:
        if node.args[0].dtype not in NARROW_INTEGERS:
            return None
        scale = static_value(node.args[1]).astype(np.float64)
        spread = _spread(scale, node) if scale.ndim else np.broadcast_to(scale, node.shape)
        return _centred(node).astype(np.int64), spread
    if entry.role in (Role.MULTIPLY, Role.DIVIDE):
        return _times_constant(node, entry.role)
    if entry.family not in _MOVES:
        return None
    moved = node.args if entry.eight_bits is EightBits.JOINS else node.args[:1]
    parts = [_integers_and_scales(arg) for arg in moved]
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        return None
    others = [static_value(arg) for arg in node.args[len(moved) :]]
    attrs: dict[str, Any] = dict(node.attrs)
    if node.op == "pad" and attrs["value"] != 0:
        return None
    compute = operator(str(node.op)).numpy
    integers = compute(*(part[0] for part in known), *others, **attrs)
    if node.op == "pad":
        attrs["value"] = np.nan
    return np.asarray(integers), np.asarray(compute(*(part[1] for part in known), *others, **attrs))


def _times_constant(node: Call, role: Role) -> tuple[Array, Float64] | None:
    """Weights times a constant, or over one: their scales are. Of two that are both quantised, the integers of the one
    that is not broadcast; the factor is what the other stands for. A weight whose scale becomes 0 is 0."""
    if node.dtype != "float32":
        return None
    for place in (0, 1) if role is Role.MULTIPLY else (0,):
        weights, factor = node.args[place], node.args[1 - place]
        found = _integers_and_scales(weights) if weights.shape == node.shape else None
        if found is None:
            continue
        with np.errstate(divide="ignore", invalid="ignore"):
            scales = operator(str(node.op)).numpy(found[1], static_value(factor).astype(np.float64), **node.attrs)
        if not np.isfinite(scales).all():
            return None
        return np.where(scales == 0, 0, found[0]), np.asarray(scales)
    return None
