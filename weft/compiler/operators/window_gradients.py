"""Gradients of windows that slide: convolutions and poolings. They are windows over a result with zeros between its
elements, so that gradients of any order are made of the same operators."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from ..graph.dtypes import numpy_dtype
from ..graph.gradient import zeros
from ..graph.ir import Call, Constant, Expr
from ..graph.registry import call
from . import numerics
from .build import contract, nn
from .derivatives import flipped, padded, part, reshaped, transposed, where


def _spread(
    value: Expr, x: Expr, kernel: Sequence[int], strides: Sequence[int], pads: Sequence[int], dilations: Sequence[int]
) -> tuple[Expr, tuple[int, ...]]:
    """What a window over the result of windows over ``x`` has to go over, with steps of 1, to meet all that an element
    of ``x`` took part in; and the padding that it needs."""
    value = contract.dilate(value, factors=tuple(strides)) if any(step > 1 for step in strides) else value
    before = [dilation * (size - 1) - pad for size, dilation, pad in zip(kernel, dilations, pads, strict=False)]
    after = [size - have + pad for size, have, pad in zip(x.shape[2:], value.shape[2:], pads, strict=False)]
    if min(before + after) < 0:
        return padded(value, (0, 0, *before), (0, 0, *after)), (0,) * (2 * len(kernel))
    return value, (*before, *after)


def convolution_gradient(upstream: Expr, node: Call) -> tuple[Expr | None, ...]:
    x, w = node.args
    if 0 in (*x.shape, *w.shape):
        return zeros(x.tensor_type), zeros(w.tensor_type)
    return _of_data(upstream, node, x, w), _of_weights(upstream, node, x, w)


def _of_data(upstream: Expr, node: Call, x: Expr, w: Expr) -> Expr:
    """The transposed convolution: the kernel is turned around, and its channels change places."""
    groups, (out, group_in, *kernel) = node.attr("groups"), w.shape
    value, pads = _spread(upstream, x, kernel, node.attr("strides"), node.attr("pads"), node.attr("dilations"))
    turned = reshaped(flipped(w, range(2, len(w.shape))), (groups, out // groups, group_in, *kernel))
    turned = transposed(turned, (0, 2, 1, *range(3, 3 + len(kernel))))
    weights = reshaped(turned, (groups * group_in, out // groups, *kernel))
    return _convolution(node, value, weights, pads=pads, strides=(1,) * len(kernel))


def _of_weights(upstream: Expr, node: Call, x: Expr, w: Expr) -> Expr:
    """A convolution whose channels are the batch, and whose kernel is the result: steps and dilations change places."""
    groups, (batch, _, *size), (_, group_in, *kernel) = node.attr("groups"), x.shape, w.shape
    spatial = range(3, 3 + len(kernel))
    images = transposed(reshaped(x, (batch, groups, group_in, *size)), (2, 1, 0, *spatial))
    images = reshaped(images, (group_in, groups * batch, *size))
    weights = transposed(upstream, (1, 0, *range(2, len(w.shape))))
    images, pads = _without_rest(node, images, upstream.shape[2:], kernel)
    found = _convolution(node, images, weights, pads=pads, strides=node.attr("dilations"),
                         dilations=node.attr("strides"))  # fmt: skip
    return transposed(found, (1, 0, *range(2, len(w.shape))))


def _without_rest(
    node: Call, images: Expr, places: Sequence[int], kernel: Sequence[int]
) -> tuple[Expr, tuple[int, ...]]:
    """Images and padding without what is behind the last window, which no element of the kernel met."""
    count, pads = len(kernel), list(node.attr("pads"))
    sizes = list(images.shape)
    for axis, (steps, dilation) in enumerate(zip(node.attr("strides"), node.attr("dilations"), strict=True)):
        used = (places[axis] - 1) * steps + (kernel[axis] - 1) * dilation + 1
        rest = pads[axis] + sizes[2 + axis] + pads[count + axis] - used
        unpadded = min(rest, pads[count + axis])
        pads[count + axis] -= unpadded
        sizes[2 + axis] -= rest - unpadded
    return part(images, (0,) * len(sizes), sizes), tuple(pads)


def _convolution(node: Call, x: Expr, w: Expr, **attrs: Any) -> Expr:
    return call(node.op, x, w, span=node.span, **node.attrs.replace(**attrs))


def max_pool_gradient(upstream: Expr, node: Call) -> tuple[Expr | None, ...]:
    """All of a window's gradient goes to its first maximum."""
    x = node.args[0]
    if 0 in x.shape:
        return (zeros(x.tensor_type),)
    return (nn.unpool(upstream, nn.max_pool_indices(x, **node.attrs), shape=x.shape, **node.attrs),)


def unpool_gradient(upstream: Expr, node: Call) -> tuple[Expr | None, ...]:
    indices = node.args[1]
    picked = contract.gather(reshaped(upstream, (upstream.tensor_type.size,)), indices)
    return where(nn.less_equal(Constant(np.array(0, np.int64)), indices), picked), None


def average_pool_gradient(upstream: Expr, node: Call) -> tuple[Expr | None, ...]:
    """Sums over windows, written as means of as many elements as a window has."""
    x, kernel = node.args[0], node.attr("kernel")
    if 0 in x.shape:
        return (zeros(x.tensor_type),)
    strides, pads, dilations = node.attr("strides"), node.attr("pads"), node.attr("dilations")
    if any(pads) and not node.attr("count_include_pad"):
        ones = numerics.pad_spatial(np.ones((1, 1, *x.shape[2:])), pads, 0.0)
        count = sum(window for _, window in numerics.windows(ones, kernel, strides, dilations))
        share = Constant((prod(kernel) / np.maximum(count, 1)).astype(numpy_dtype(x.dtype)))
        upstream = nn.multiply(upstream, share)
    value, around = _spread(upstream, x, kernel, strides, pads, dilations)
    return (nn.average_pool(value, kernel=kernel, pads=around, dilations=dilations, strides=(1,) * len(kernel),
                            count_include_pad=True),)  # fmt: skip
