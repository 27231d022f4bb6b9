"""Windows that the integer contract, or a target of it, does not know, as 2-D ones: over dilated images (transposed
convolutions), and over volumes. Only moves of data and weights are added, so that every sum stays the same sum."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..graph import Call, Constant, Expr, Span, call
from .manager import rule_pass


@dataclass(frozen=True)
class _Axis:
    """An axis along which a window meets dilated data, as windows that meet the data itself, one a *phase*.

    Element ``factor * m + phase`` of the result is the sum over the taps of ``taps[phase]`` (positions in the kernel,
    ``kernel`` where there is none), the first at place ``m - before`` of the data.
    """

    taps: np.ndarray  # (factor, taps)
    before: int
    after: int
    count: int

    @classmethod
    def of(cls, size: int, result: int, factor: int, kernel: int, dilation: int, pad: int) -> _Axis:
        """``size`` of the data, ``result`` of the result; ``pad``: how far before the data the first window starts."""
        places = np.array([[r + k * dilation - pad for k in range(kernel)] for r in range(factor)])
        hits = places % factor == 0
        steps = places // factor
        first, last = (int(steps[hits].min()), int(steps[hits].max())) if hits.any() else (0, 0)
        taps = np.full((factor, last - first + 1), kernel)
        for phase, tap in zip(*np.nonzero(hits), strict=True):
            taps[phase, steps[phase, tap] - first] = tap
        count = -(-result // factor)
        return cls(taps, -first, count - 1 + last - (size - 1), count)


def split_phases(node: Call) -> Expr | None:
    """nn.conv(dilate(x), w), a transposed convolution  ->  the phases of its result as channels of nn.conv(x), moved"""
    match node.op:
        case "nn.conv2d" | "nn.conv3d" if node.args[1].static:
            pass
        case _:
            return None
    strides, dilations, groups = node.attr("strides"), node.attr("dilations"), node.attr("groups")
    found = undilated(node.args[0])
    if found is None or any(stride != 1 for stride in strides):
        return None
    x, factors, before = found
    rank = len(strides)
    w, inner = node.args[1], Span(node.span.merged(node.args[0].span).nodes)
    axes = [
        _Axis.of(x.shape[2 + i], node.shape[2 + i], factors[i], w.shape[2 + i], dilations[i],
                 before[i] + node.attr("pads")[i]) for i in range(rank)
    ]  # fmt: skip
    image, pads = _cropped(x, axes)
    if min(image.shape) < 1:
        return None
    weights = _phase_weights(w, axes, groups)
    conv = call(node.op, image, weights, pads=pads, groups=groups, span=inner)
    parts = (groups, *factors, node.shape[1] // groups)
    split = call("reshape", conv, shape=(x.shape[0], *parts, *(axis.count for axis in axes)), span=inner)
    # (N, groups, factors, channels, counts) -> (N, groups, channels, then count and factor of each axis)
    pairs = [place for i in range(rank) for place in (3 + rank + i, 2 + i)]
    turned = call("transpose", split, perm=(0, 1, 2 + rank, *pairs), span=inner)
    full = (*node.shape[:2], *(axis.count * factor for axis, factor in zip(axes, factors, strict=True)))
    if full == node.shape:
        return call("reshape", turned, shape=full, span=node.span)
    whole = call("reshape", turned, shape=full, span=inner)
    return call("slice", whole, starts=(0,) * len(full), sizes=node.shape, steps=(1,) * len(full), span=node.span)


def undilated(x: Expr) -> tuple[Expr, tuple[int, ...], list[int]] | None:
    """The operand of a dilate below paddings with zeros and a slice, as much of it as is left; its factors for all
    spatial axes; and how many elements there are before its first one along each."""
    spatial = len(x.shape) - 2
    before = [0] * spatial
    while isinstance(x, Call) and x.op == "pad" and x.attr("value") == 0 and len(x.attr("pads")) <= 2 * spatial:
        pads = x.attr("pads")
        count = len(pads) // 2
        before = [b + (pads[i - spatial + count] if i >= spatial - count else 0) for i, b in enumerate(before)]
        x = x.args[0]
    starts, sizes = [0] * spatial, list(x.shape[2:])
    if isinstance(x, Call) and x.op == "slice" and set(x.attr("steps")) == {1} and x.shape[:2] == x.args[0].shape[:2]:
        starts = list(x.attr("starts")[2:])
        x = x.args[0]
    if not isinstance(x, Call) or x.op != "dilate" or len(x.attr("factors")) > spatial:
        return None
    factors = (1,) * (spatial - len(x.attr("factors"))) + tuple(x.attr("factors"))
    if math.prod(factors) == 1:
        return None
    data = x.args[0]
    first = [-(-start // factor) for start, factor in zip(starts, factors, strict=True)]
    ends = [-(-(start + size) // factor) for start, size, factor in zip(starts, sizes, factors, strict=True)]
    kept = [end - start for start, end in zip(first, ends, strict=True)]
    if min(kept) < 1:
        return None
    if kept != list(data.shape[2:]):
        data = call(
            "slice", data, starts=(0, 0, *first), sizes=(*data.shape[:2], *kept), steps=(1,) * len(data.shape),
            span=data.span,
        )  # fmt: skip
    moved = [b + f * place - start for b, f, place, start in zip(before, factors, first, starts, strict=True)]
    return data, factors, moved


def _cropped(x: Expr, axes: Sequence[_Axis]) -> tuple[Expr, tuple[int, ...]]:
    """What of ``x`` the windows meet, and the padding around it."""
    starts = [0, 0, *(max(-axis.before, 0) for axis in axes)]
    ends = [0, 0, *(max(-axis.after, 0) for axis in axes)]
    sizes = [max(size - start - end, 0) for size, start, end in zip(x.shape, starts, ends, strict=True)]
    if sizes != list(x.shape):
        x = call("slice", x, starts=tuple(starts), sizes=tuple(sizes), steps=(1,) * len(sizes), span=x.span)
    return x, (*(max(axis.before, 0) for axis in axes), *(max(axis.after, 0) for axis in axes))


def _phase_weights(w: Expr, axes: Sequence[_Axis], groups: int) -> Expr:
    """Weights (groups * phases * O/groups, C/groups, taps): of each phase those of its taps, 0 where there is none."""
    rank = len(axes)
    weights: Expr = call("pad", w, pads=(0,) * rank + (1,) * rank, value=0.0, span=w.span)
    for i, axis in enumerate(axes):
        weights = call("gather", weights, Constant(axis.taps.reshape(-1).astype(np.int64)), axis=2 + i, span=w.span)
    pairs = [size for axis in axes for size in axis.taps.shape]
    split = call("reshape", weights, shape=(groups, w.shape[0] // groups, w.shape[1], *pairs), span=w.span)
    phases, taps = range(3, 3 + 2 * rank, 2), range(4, 4 + 2 * rank, 2)
    turned = call("transpose", split, perm=(0, *phases, 1, 2, *taps), span=w.span)
    count = math.prod(axis.taps.shape[0] for axis in axes)
    shape = (w.shape[0] * count, w.shape[1], *(axis.taps.shape[1] for axis in axes))
    return call("reshape", turned, shape=shape, span=w.span)


def conv3d_as_images(node: Call) -> Expr | None:
    """nn.conv3d(x, w) of quantised data  ->  nn.conv2d of its slices, those that a window meets as channels"""
    if node.op != "nn.conv3d" or not node.args[1].static or not _is_quantised(node.args[0]):
        return None
    x, w = node.args
    inner = Span(node.span.nodes)
    batch, channels, depth = x.shape[:3]
    depth_stride, *strides = node.attr("strides")
    depth_dilation, *dilations = node.attr("dilations")
    front, top, left, back, bottom, right = node.attr("pads")
    taps, out_depth = w.shape[2], node.shape[2]
    padded: Expr = x if front == back == 0 else call("pad", x, pads=(front, 0, 0, back, 0, 0), value=0.0, span=x.span)
    met = np.arange(out_depth)[:, None] * depth_stride + np.arange(taps)[None] * depth_dilation
    if (out_depth, taps) == (depth, 1) and depth_stride == 1 and front == back == 0:
        windows: Expr = call("reshape", padded, shape=(batch, channels, depth, 1, *x.shape[3:]), span=inner)
    else:
        windows = call("gather", padded, Constant(met.astype(np.int64)), axis=2, span=inner)
    turned = call("transpose", windows, perm=(0, 2, 1, 3, 4, 5), span=inner)
    images = call("reshape", turned, shape=(batch * out_depth, channels * taps, *x.shape[3:]), span=inner)
    weights = call("reshape", w, shape=(w.shape[0], w.shape[1] * taps, *w.shape[3:]), span=w.span)
    conv = call(
        "nn.conv2d", images, weights, strides=tuple(strides), dilations=tuple(dilations), groups=node.attr("groups"),
        pads=(top, left, bottom, right), span=inner,
    )  # fmt: skip
    split = call("reshape", conv, shape=(batch, out_depth, *conv.shape[1:]), span=inner)
    return call("transpose", split, perm=(0, 2, 1, 3, 4), span=node.span)


def max_pool3d_as_images(node: Call) -> Expr | None:
    """nn.max_pool over volumes  ->  one over the slices, one along them"""
    if node.op != "nn.max_pool" or len(node.attr("kernel")) != 3:
        return None
    x, inner = node.args[0], Span(node.span.nodes)
    (kernel, *kernels), (stride, *strides) = node.attr("kernel"), node.attr("strides")
    dilation, *dilations = node.attr("dilations")
    front, top, left, back, bottom, right = node.attr("pads")
    batch, channels, depth, *size = x.shape
    slices = call("reshape", x, shape=(batch, channels * depth, *size), span=inner)
    flat = call(
        "nn.max_pool", slices, kernel=tuple(kernels), strides=tuple(strides), dilations=tuple(dilations),
        pads=(top, left, bottom, right), span=inner,
    )  # fmt: skip
    rows = call("reshape", flat, shape=(batch, channels, depth, math.prod(flat.shape[2:])), span=inner)
    pooled = call(
        "nn.max_pool", rows, kernel=(kernel, 1), strides=(stride, 1), dilations=(dilation, 1),
        pads=(front, 0, back, 0), span=inner,
    )  # fmt: skip
    return call("reshape", pooled, shape=node.shape, span=node.span)


def average_pool3d_as_convolution(node: Call) -> Expr | None:
    """nn.average_pool of quantised volumes whose windows all have as many elements  ->  nn.conv3d"""
    if node.op != "nn.average_pool" or len(node.attr("kernel")) != 3 or not _is_quantised(node.args[0]):
        return None
    if any(node.attr("pads")) and not node.attr("count_include_pad"):
        return None
    channels, kernel = node.shape[1], node.attr("kernel")
    ones = Constant(np.ones((channels, 1, *kernel), np.int8), span=node.span)
    share = Constant(np.array(1 / math.prod(kernel), np.float32), span=node.span)
    weights = call("dequantise", ones, share, Constant(np.zeros((), np.int8)), span=node.span)
    attrs = {name: node.attr(name) for name in ("strides", "pads", "dilations")}
    return call("nn.conv3d", node.args[0], weights, groups=channels, span=node.span, **attrs)


def _is_quantised(x: Expr) -> bool:
    """Whether a value is that of small integers, moved and clipped at most."""
    match x:
        case Call(op="dequantise"):
            return True
        case Call(op="pad" | "reshape" | "transpose" | "slice" | "nn.clip" | "gather"):
            return _is_quantised(x.args[0])
    return False


_RULES = (split_phases, average_pool3d_as_convolution)
windows_of_volumes = rule_pass("plain-windows", _RULES, tolerance=1e-4, about=__doc__ or "")
"""For targets with convolutions and poolings over volumes of bytes."""

plain_windows = rule_pass(
    "plain-windows", (*_RULES, conv3d_as_images, max_pool3d_as_images), tolerance=1e-4, about=__doc__ or ""
)
