"""Rewrites transposed convolutions as plain ones, the only form that register tiles handle.

A transposed convolution comes from the front end as a convolution of data with zeros between its elements (``dilate``).
With factor s, every s-th pixel of the result meets the same part of the kernel: so each of the s phases is a
convolution of the data itself with that part. All phases are made at once, as channels, and are then put between each
other. Parts of which one is shorter than another are filled up with zeros (which an infinite datum makes nan).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from math import prod

import numpy as np

from ...graph.ir import Call, Constant, Expr
from ...graph.registry import Anchor, call, operator_of

WORTH_TURNING = 16
"""Rows of one pixel that are worth becoming one row, at least: the result may have to be moved."""


def as_plain_images(node: Call) -> Expr | None:
    """One step from a convolution with constant weights to one that register tiles are made for; poolings between such
    convolutions go along."""
    along_rows = _along_rows(node)
    if along_rows is not None:
        return along_rows
    match node:
        case Call(op="nn.conv2d" | "nn.conv3d", args=(Call(op="pad") as padded, Constant())) if node.dtype == "float32":
            return _with_padding_of_its_own(node, padded)
        case Call(op="nn.conv2d", args=(Call(op="dilate") as spread, Constant())) if node.dtype == "float32":
            return _phase_by_phase(node, spread)
    return None


def _with_padding_of_its_own(node: Call, padded: Call) -> Expr | None:
    """nn.conv(pad(x), w)  ->  nn.conv(x, w)"""
    pads, axes = padded.attr("pads"), len(node.shape) - 2
    count = len(pads) // 2
    around, before, after = pads[: count - axes] + pads[count:-axes], pads[count - axes : count], pads[-axes:]
    if any(around) or count < axes or padded.attr("value") != 0:
        return None
    total = tuple(have + more for have, more in zip(node.attr("pads"), before + after, strict=True))
    return call(str(node.op), padded.args[0], node.args[1], span=node.span, **{**node.attrs, "pads": total})


def _along_rows(node: Call) -> Expr | None:
    """conv(x, w) of images one pixel wide  ->  reshape(conv(reshape(x), w)) of images one row high, whose pixels make
    tiles"""
    entry = operator_of(node)
    if entry is None or entry.anchor not in (Anchor.CONVOLUTION, Anchor.POOL) or len(node.shape) < 4:
        return None
    (x, *weights), axes = node.args, len(node.shape) - 2
    window = weights[0].shape[2:] if weights else node.attr("kernel")
    narrow = x.shape[-1] == window[-1] == node.shape[-1] == 1 and node.shape[-2] >= WORTH_TURNING
    if not narrow or not all(isinstance(each, Constant) for each in weights):
        return None
    attrs = dict(node.attrs)
    for name in {"kernel", "strides", "pads", "dilations"} & attrs.keys():
        parts = [node.attr(name)[at : at + axes] for at in range(0, len(node.attr(name)), axes)]
        attrs[name] = tuple(number for part in parts for number in (*part[:-2], part[-1], part[-2]))
    turned = [_turned(arg) for arg in node.args]
    return _turned(call(str(node.op), *turned, span=node.span, **attrs))


def _turned(value: Expr) -> Expr:
    """A value with its last two axes, of which one has one element, in the other order."""
    shape = (*value.shape[:-2], value.shape[-1], value.shape[-2])
    if isinstance(value, Constant):
        return Constant(value.value.reshape(shape), value.name, value.span)
    return call("reshape", value, shape=shape, span=value.span)


@dataclass(frozen=True)
class _Phases:
    """One axis: element ``factor * i + phase - skip`` of the result is the sum of the data at ``i - before + tap``
    times the kernel at ``place``, for every (phase, tap, place) of ``parts``; there are ``taps``. ``after``: padding
    behind the data. ``count``: how often each phase occurs; what is then before or behind the result is left out."""

    factor: int
    skip: int
    parts: tuple[tuple[int, int, int], ...]
    taps: int
    before: int
    after: int
    count: int


def _phases(factor: int, kernel: int, pad: int, size: int, wanted: int) -> _Phases:
    """For ``size`` data spread by ``factor`` and with ``pad`` before them; ``wanted``: elements of the result.

    The phases of one ``i`` do not all begin with the same datum. How many data they meet together depends on where the
    counting of ``i`` begins: ``skip`` elements before the result, for the fewest products.
    """
    candidates = [_phases_after(skip, factor, kernel, pad, size, wanted) for skip in range(factor)]
    return min(candidates, key=lambda phases: phases.taps * phases.count)


def _phases_after(skip: int, factor: int, kernel: int, pad: int, size: int, wanted: int) -> _Phases:
    pad, wanted = pad + skip, wanted + skip
    before = pad // factor
    parts = []
    for phase, place in product(range(factor), range(kernel)):
        position = phase + place - pad  # in the spread data, where every factor-th element is one of the data
        if position % factor == 0:
            parts.append((phase, position // factor + before, place))
    taps = max(tap for _, tap, _ in parts) + 1
    count = -(-wanted // factor)
    return _Phases(factor, skip, tuple(parts), taps, before, max(0, count - 1 + taps - size - before), count)


def _phase_by_phase(node: Call, spread: Call) -> Expr | None:
    """nn.conv2d(dilate(x), w)  ->  the phases, made at once and put between each other"""
    x, weights = spread.args[0], node.args[1]
    factors = spread.attr("factors")
    if node.attr("strides") != (1, 1) or node.attr("dilations") != (1, 1) or len(factors) != 2 or 0 in node.shape:
        return None
    if not isinstance(weights, Constant):
        return None
    vertical, horizontal = (
        _phases(factors[axis], weights.shape[2 + axis], node.attr("pads")[axis], x.shape[2 + axis],
                node.shape[2 + axis])
        for axis in (0, 1)
    )  # fmt: skip
    batch, channels, height, width = node.shape
    parts = np.zeros((channels, *factors, weights.shape[1], vertical.taps, horizontal.taps), np.float32)
    for (p, ty, ky), (q, tx, kx) in product(vertical.parts, horizontal.parts):
        parts[:, p, q, :, ty, tx] = weights.value[:, :, ky, kx]
    groups = node.attr("groups")
    inside = channels // groups  # each phase has all channels of a group
    turned = parts.reshape(groups, inside, *parts.shape[1:]).transpose(0, 2, 3, 1, 4, 5, 6)
    packed = Constant(
        np.ascontiguousarray(turned).reshape(channels * prod(factors), *parts.shape[3:]), weights.name, weights.span
    )
    pads = (vertical.before, horizontal.before, vertical.after, horizontal.after)
    value: Expr = call("nn.conv2d", x, packed, pads=pads, groups=groups, span=node.span)
    counts = (vertical.count, horizontal.count)
    value = _part(value, (0, 0), counts, node)
    value = call("reshape", value, shape=(batch, groups, *factors, inside, *counts), span=node.span)
    value = call("transpose", value, perm=(0, 1, 4, 5, 2, 6, 3), span=node.span)
    whole = (vertical.count * factors[0], horizontal.count * factors[1])
    value = call("reshape", value, shape=(batch, channels, *whole), span=node.span)
    return _part(value, (vertical.skip, horizontal.skip), (height, width), node)


def _part(value: Expr, first: tuple[int, int], size: tuple[int, int], node: Call) -> Expr:
    """``size`` rows and columns of an image."""
    shape = (*value.shape[:2], *size)
    if value.shape == shape:
        return value
    return call("slice", value, starts=(0, 0, *first), sizes=shape, steps=(1,) * 4, span=node.span)
