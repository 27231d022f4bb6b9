"""Gradients as AOTAutograd writes them into a graph: each by the sweep over its forward operator's own rule."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ...graph import Constant, Expr, Var
from ...graph.gradient import sweep, zeros
from ...graph.visit import substitute
from .index import scattered
from .site import RULES, Site, rule

Mask = Sequence[bool]


def _swept(
    site: Site, forward: Callable[..., Expr], gradient: Expr, operands: Sequence[Expr | None], mask: Mask
) -> tuple[Expr | None, ...]:
    """The cotangents of those operands of ``forward`` that the mask asks for. While they are found, each operand is a
    variable of its own: one value may stand in two places, and has another gradient in each."""
    own = [None if x is None else Var(f"operand{i}", x.tensor_type) for i, x in enumerate(operands)]
    given = Var("upstream", gradient.tensor_type)
    asked = [x for x, wanted in zip(own, mask, strict=True) if wanted and x is not None]
    swept = sweep([(forward(*own), given)], asked)
    if swept.blocked:
        raise site.error(f"it has no gradient: {swept.blocked[0]}")
    stands_for: dict[Expr, Expr] = {given: gradient}
    stands_for.update((x, operand) for x, operand in zip(own, operands, strict=True) if x and operand)
    found = {id(x): substitute(made, stands_for) if made is not None else zeros(x.tensor_type)
             for x, made in zip(asked, swept.cotangents, strict=True)}  # fmt: skip
    return tuple(found[id(x)] if wanted and x is not None else None for x, wanted in zip(own, mask, strict=True))


def _forward(site: Site, op: str, like: Expr, *args: Any) -> Any:
    """What the forward operator gives, whose first result has the type of ``like``."""
    forward = replace(site, op=op, types=(like.tensor_type,))
    return RULES[op](forward, *args)


@rule("convolution_backward.default")
def _convolution(
    site: Site, gradient: Expr, x: Expr, w: Expr, bias_sizes: Sequence[int] | None, stride: Sequence[int],
    padding: Sequence[int], dilation: Sequence[int], transposed: bool, output_padding: Sequence[int], groups: int,
    mask: Mask,
) -> tuple[Expr | None, ...]:  # fmt: skip
    def forward(x: Expr, w: Expr) -> Any:
        return _forward(site, "aten.convolution.default", gradient, x, w, None, stride, padding, dilation, transposed,
                        output_padding, groups)  # fmt: skip

    of_x, of_w = _swept(site, forward, gradient, (x, w), mask[:2])
    axes = tuple(i for i in range(len(gradient.shape)) if i != 1)
    return of_x, of_w, site.call("nn.reduce_sum", gradient, axes=axes, keepdims=False) if mask[2] else None


@rule("native_layer_norm_backward.default")
def _layer_norm(
    site: Site, gradient: Expr, x: Expr, shape: Sequence[int], mean: Expr, inverse: Expr, gamma: Expr | None,
    beta: Expr | None, mask: Mask,
) -> tuple[Expr | None, ...]:  # fmt: skip
    """With the moments that the forward pass kept: of u = (x - mean) * inverse and h = gradient * gamma it is
    inverse * (h - mean(h) - u * mean(h * u))."""
    axes = tuple(range(len(x.shape) - len(shape), len(x.shape)))
    rows = tuple(range(len(x.shape) - len(shape)))
    unit = site("multiply", site("subtract", x, mean), inverse)
    scaled = site("multiply", gradient, gamma) if gamma is not None else gradient
    return (
        _of_normalised(site, scaled, unit, inverse, axes) if mask[0] else None,
        _summed(site, site("multiply", gradient, unit), rows, tuple(shape)) if mask[1] else None,
        _summed(site, gradient, rows, tuple(shape)) if mask[2] else None,
    )


def _of_normalised(site: Site, scaled: Expr, unit: Expr, inverse: Expr, axes: tuple[int, ...]) -> Expr:
    mean = site.call("nn.reduce_mean", scaled, axes=axes, keepdims=True)
    along = site.call("nn.reduce_mean", site("multiply", scaled, unit), axes=axes, keepdims=True)
    return site("multiply", site("subtract", site("subtract", scaled, mean), site("multiply", unit, along)), inverse)


def _summed(site: Site, x: Expr, axes: tuple[int, ...], shape: tuple[int, ...]) -> Expr:
    return site.reshape(site.call("nn.reduce_sum", x, axes=axes, keepdims=False) if axes else x, shape)


@rule("native_group_norm_backward.default")
def _group_norm(
    site: Site, gradient: Expr, x: Expr, mean: Expr, inverse: Expr, gamma: Expr | None, batch: int, channels: int,
    pixels: int, groups: int, mask: Mask,
) -> tuple[Expr | None, ...]:  # fmt: skip
    split = (batch, groups, channels // max(groups, 1), pixels)
    wide, upstream = site.reshape(x, split), site.reshape(gradient, split)
    mean, inverse = (site.reshape(each, (batch, groups, 1, 1)) for each in (mean, inverse))
    unit = site("multiply", site("subtract", wide, mean), inverse)
    scaled = upstream
    if gamma is not None:
        scaled = site("multiply", upstream, site.reshape(gamma, (1, groups, channels // max(groups, 1), 1)))
    of_x = site.reshape(_of_normalised(site, scaled, unit, inverse, (2, 3)), x.shape)
    return (
        of_x if mask[0] else None,
        _summed(site, site("multiply", upstream, unit), (0, 3), (channels,)) if mask[1] else None,
        _summed(site, upstream, (0, 3), (channels,)) if mask[2] else None,
    )


@rule("native_batch_norm_backward.default")
def _batch_norm(
    site: Site, gradient: Expr, x: Expr, gamma: Expr | None, running_mean: Expr | None, running_var: Expr | None,
    mean: Expr | None, inverse: Expr | None, train: bool, eps: float, mask: Mask,
) -> tuple[Expr | None, ...]:  # fmt: skip
    axes = tuple(i for i in range(len(x.shape)) if i != 1)
    shape = (1, -1, *(1 for _ in x.shape[2:]))
    if not train:
        if running_mean is None or running_var is None:
            raise site.error("it has no running moments")
        mean, inverse = running_mean, site("divide", site.like(1, x), site("sqrt", site("add", running_var, eps)))
    if mean is None or inverse is None:
        raise site.error("the forward pass kept no moments")
    centre, width = site.reshape(mean, shape), site.reshape(inverse, shape)
    unit = site("multiply", site("subtract", x, centre), width)
    scaled = gradient if gamma is None else site("multiply", gradient, site.reshape(gamma, shape))
    of_x = _of_normalised(site, scaled, unit, width, axes) if train else site("multiply", scaled, width)
    return (
        of_x if mask[0] else None,
        _summed(site, site("multiply", gradient, unit), axes, (x.shape[1],)) if mask[1] else None,
        _summed(site, gradient, axes, (x.shape[1],)) if mask[2] else None,
    )


@rule("max_pool2d_with_indices_backward.default")
def _max_pool(
    site: Site, gradient: Expr, x: Expr, kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int],
    dilation: Sequence[int], ceil_mode: bool, places: Expr,
) -> Expr:  # fmt: skip
    return _to_places(site, gradient, x, places)


@rule("adaptive_max_pool2d_backward.default")
def _to_places(site: Site, gradient: Expr, x: Expr, places: Expr) -> Expr:
    """Each gradient goes to the place of the largest element of its window."""
    lead = math.prod(x.shape[:-2])
    nothing = zeros(replace(x.tensor_type, shape=(lead, math.prod(x.shape[-2:]))))
    rows, index = site.reshape(gradient, (lead, -1)), site.reshape(places, (lead, -1))
    return site.reshape(scattered(site, nothing, 1, index, rows, "add"), x.shape)


@rule("avg_pool2d_backward.default", "avg_pool3d_backward.default")
def _avg_pool(site: Site, gradient: Expr, x: Expr, *args: Any) -> Expr:
    forward = site.op.replace("_backward", "")
    of_x = _swept(site, lambda x: _forward(site, forward, gradient, x, *args), gradient, (x,), (True,))[0]
    assert of_x is not None  # it was asked for
    return of_x


@rule("_adaptive_avg_pool2d_backward.default", "_adaptive_avg_pool3d_backward.default")
def _adaptive(site: Site, gradient: Expr, x: Expr) -> Expr:
    return _avg_pool(site, gradient, x, gradient.shape[2:])


@rule("embedding_dense_backward.default")
def _embedding(
    site: Site, gradient: Expr, indices: Expr, num_weights: int, padding_idx: int, scale_grad_by_freq: bool
) -> Expr:  # fmt: skip
    if scale_grad_by_freq:
        raise site.error("gradients by frequency are not supported")
    width, count = gradient.shape[-1], math.prod(indices.shape)
    rows, flat = site.reshape(gradient, (count, width)), site.reshape(indices, (count, 1))
    if padding_idx >= 0:
        padded = site("equal", flat, padding_idx)
        rows = site.where(padded, 0.0, rows)
    nothing = zeros(replace(gradient.tensor_type, shape=(num_weights, width)))
    return site.call("scatter_nd", nothing, site.cast(flat, "int64"), rows, reduction="add")


@rule("_scaled_dot_product_flash_attention_for_cpu_backward.default")
def _attention(
    site: Site, gradient: Expr, query: Expr, key: Expr, value: Expr, result: Expr, log_sums: Expr, dropout: float,
    is_causal: bool, *, attn_mask: Expr | None = None, scale: float | None = None,
) -> tuple[Expr | None, ...]:  # fmt: skip
    """The weights are computed again, from queries and keys."""
    if dropout:
        raise site.error(f"an attention with dropout ({dropout:g}) is random")
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None else scale

    def forward(query: Expr, key: Expr, value: Expr, attn_mask: Expr | None) -> Expr:
        turned = site.transpose(key, (*range(len(key.shape) - 2), len(key.shape) - 1, len(key.shape) - 2))
        scores = site("multiply", site.call("nn.matmul", query, turned), factor)
        if is_causal:
            seen = np.tril(np.ones(scores.shape[-2:], bool))
            scores = site.where(Constant(seen), scores, -math.inf)
        if attn_mask is not None:
            scores = site("add", scores, attn_mask)
        weights = site.call("nn.softmax", scores, axis=len(scores.shape) - 1)
        return site.call("nn.matmul", weights, value)

    return _swept(site, forward, gradient, (query, key, value, attn_mask), (True, True, True, False))[:3]
