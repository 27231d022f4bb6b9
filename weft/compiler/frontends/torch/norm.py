"""Normalisations."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ...graph import Constant, Expr
from ...graph.dtypes import HALVES, numpy_dtype
from ..forms import moments
from .site import Site, rule


def _or(site: Site, given: Expr | None, fill: float, like: Expr) -> Expr:
    """What is given for each channel, or a constant."""
    return Constant(np.full(like.shape, fill, numpy_dtype(like.dtype))) if given is None else given


@rule("_native_batch_norm_legit_no_training.default")
def _batch_norm(
    site: Site,
    x: Expr,
    gamma: Expr | None,
    beta: Expr | None,
    mean: Expr,
    var: Expr,
    momentum: float,
    epsilon: float,
) -> tuple[Expr | None, ...]:
    gamma, beta = _or(site, gamma, 1, mean), _or(site, beta, 0, mean)
    operands = [site.cast(each, x.dtype) for each in (gamma, beta, mean, var)]
    return site.call("nn.batch_norm", x, *operands, epsilon=epsilon), None, None


@rule("_native_batch_norm_legit.no_stats", "_native_batch_norm_legit.default",
      "_native_batch_norm_legit_functional.default", "native_batch_norm.default")  # fmt: skip
def _batch_norm_of_batch(
    site: Site, x: Expr, gamma: Expr | None, beta: Expr | None, *rest: Expr | float | bool | None
) -> tuple[Expr | None, ...]:
    """``rest``: (running mean, running variance,) training, momentum, epsilon. In training the batch's own moments
    are used, and results are: normalised, mean, 1 / deviation (, the new running moments)."""
    running: tuple[Expr | None, Expr | None] = (None, None)
    if not site.op.endswith("no_stats"):
        running = rest[0], rest[1]  # type: ignore[assignment]
        rest = rest[2:]
    training, momentum, epsilon = bool(rest[0]), float(rest[1]), float(rest[2])  # type: ignore[arg-type]
    if not training and running[0] is not None and running[1] is not None:
        return _batch_norm(site, x, gamma, beta, running[0], running[1], momentum, epsilon)
    axes = tuple(i for i in range(len(x.shape)) if i != 1)
    wide = site.cast(x, "float32") if x.dtype in HALVES else x
    mean, variance = moments(site.node, wide, axes, keepdims=False)
    gamma, beta = (site.cast(_or(site, each, fill, mean), wide.dtype) for each, fill in ((gamma, 1), (beta, 0)))
    result = site.cast(site.call("nn.batch_norm", wide, gamma, beta, mean, variance, epsilon=epsilon), x.dtype)
    inverse = site("divide", site.like(1, wide), site("sqrt", site("add", variance, epsilon)))
    kept = _as_typed(site, mean, 1), _as_typed(site, inverse, 2)
    if "_functional" not in site.op:
        return result, *kept
    if running[0] is None or running[1] is None:
        raise site.error("it has no running moments")
    count = math.prod(x.shape[axis] for axis in axes)
    unbiased = site("multiply", variance, count / max(count - 1, 1))
    moved = (_as_typed(site, _moved(site, old, new, momentum), number)
             for number, old, new in zip((3, 4), running, (mean, unbiased), strict=True))  # fmt: skip
    return (result, *kept, *moved)


def _moved(site: Site, old: Expr | None, new: Expr, momentum: float) -> Expr:
    if old is None:
        raise site.error("it has no running moments")
    return site("add", site("multiply", old, 1 - momentum), site("multiply", site.cast(new, old.dtype), momentum))


@rule("native_layer_norm.default")
def _layer_norm(
    site: Site, x: Expr, shape: Sequence[int], gamma: Expr | None, beta: Expr | None, eps: float
) -> tuple[Expr | None, ...]:
    first = len(x.shape) - len(shape)
    scale = gamma if gamma is not None else Constant(np.ones(tuple(shape), numpy_dtype(x.dtype)))
    result, mean, inverse = site.onnx("LayerNormalization", x, scale, beta, axis=first, epsilon=eps)
    return result, *(_as_typed(site, each, number) for number, each in ((1, mean), (2, inverse)))


def _as_typed(site: Site, moment: Expr, number: int) -> Expr:
    """A moment in the type that PyTorch has for it: on processors that of the operand, also of halves."""
    kind = site.types[number] if number < len(site.types) else None
    return moment if kind is None else site.cast(moment, kind.dtype)


@rule("layer_norm.default")
def _layer_norm_alone(
    site: Site, x: Expr, shape: Sequence[int], gamma: Expr | None = None, beta: Expr | None = None, eps: float = 1e-5,
    cudnn_enable: bool = True,
) -> Expr:  # fmt: skip
    result = _layer_norm(site, x, shape, gamma, beta, eps)[0]
    assert result is not None  # the first one is always computed
    return result


@rule("native_group_norm.default")
def _group_norm(
    site: Site, x: Expr, gamma: Expr | None, beta: Expr | None, batch: int, channels: int, pixels: int, groups: int,
    eps: float,
) -> tuple[Expr | None, ...]:  # fmt: skip
    split = site.reshape(x, (batch, groups, -1))
    wide = site.cast(split, "float32") if x.dtype in HALVES else split
    mean, variance = moments(site.node, wide, (2,), keepdims=True)
    inverse = site("divide", site.like(1, wide), site("sqrt", site("add", variance, eps)))
    unit = site.reshape(site.cast(site("multiply", site("subtract", wide, mean), inverse), x.dtype), x.shape)
    shape = (1, channels, *(1 for _ in x.shape[2:]))
    for op, given in (("multiply", gamma), ("add", beta)):
        unit = site(op, unit, site.reshape(given, shape)) if given is not None else unit
    moments_of_groups = (site.reshape(each, (batch, groups)) for each in (mean, inverse))
    return unit, *(_as_typed(site, each, 1 + number) for number, each in enumerate(moments_of_groups))


@rule("rms_norm.default", "_fused_rms_norm.default")
def _rms_norm(
    site: Site, x: Expr, shape: Sequence[int], gamma: Expr | None = None, eps: float | None = None
) -> tuple[Expr, Expr] | Expr:
    axes = tuple(range(len(x.shape) - len(shape), len(x.shape)))
    wide = site.cast(x, "float32") if x.dtype in HALVES else x
    small = float(np.finfo(numpy_dtype(wide.dtype)).eps) if eps is None else eps
    square = site.call("nn.reduce_mean", site("multiply", wide, wide), axes=axes, keepdims=True)
    inverse = site("divide", site.like(1, wide), site("sqrt", site("add", square, small)))
    result = site("multiply", wide, inverse)
    result = site.cast(result if gamma is None else site("multiply", result, site.cast(gamma, wide.dtype)), x.dtype)
    return (result, _as_typed(site, inverse, 1)) if site.op.startswith("aten._fused") else result
