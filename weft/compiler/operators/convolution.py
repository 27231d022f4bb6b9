"""Convolutions of floats over 2 and 3 axes, and the loops of every plain convolution.

Products are summed in float64 and rounded once. 1-D windows are 2-D ones with a height of 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from .. import tensor as te
from ..graph.chooser import Chooser
from ..graph.dtypes import FLOATS
from ..graph.ir import Array, Attrs, Call, Expr, TensorType
from ..graph.registry import Anchor, Draw, Family, Fusion, Operator, Sample, TypeRule, call, register
from ..integers import products
from ..tensor import ir as tir
from ..tensor.view import Builder, NotLoweredError, View
from . import numerics
from .samples import IMAGE, WEIGHTS, sample_of
from .type_rules import conv_type, require_dtype
from .window_gradients import convolution_gradient
from .windows import drawn_window, met, padded_read, window_axes


def _conv_type(spatial: int) -> TypeRule:
    def rule(operands: Sequence[TensorType], attrs: Attrs) -> TensorType:
        x, w = operands
        require_dtype(x, "the input", *FLOATS)
        require_dtype(w, "the weights", x.dtype)
        return conv_type(x, w, attrs, x.dtype, spatial)

    return rule


def _conv(x: Array, w: Array, **attrs: Any) -> Array:
    return numerics.convolve(x, w, pad_value=0.0, dtype=np.float64, **attrs).astype(x.dtype)


def convolution_macs(node: Call) -> int:
    """Multiply-accumulates of a convolution whose second operand are its weights (O, C/groups, ...)."""
    return node.tensor_type.size * prod(node.args[1].shape[1:])


def convolution(builder: Builder, call: Call, operands: tuple[View, ...]) -> View:
    """The lowering: floats, or int8 with sums in int32."""
    x, w = operands
    if x.dtype not in (*tir.FLOATS, "int8"):
        raise NotLoweredError(f"{call.op} of {x.dtype}")
    out_channels, group_in, *kernel = w.shape
    group_out = out_channels // call.attr("groups")
    fill = tir.Const(call.attrs.get("pad_value", 0), x.dtype)  # type: ignore[arg-type]
    read = padded_read(x, call.attr("pads"), fill)
    kc, window = builder.axis(group_in, "kc"), window_axes(builder, tuple(kernel))
    wide: tir.DType = x.dtype if x.dtype in tir.FLOATS else "int32"

    def value(*index: tir.Expr) -> te.Reduction:
        n, o = index[:2]
        channel = kc if group_out == out_channels else o // group_out * group_in + kc
        places = met(index, window, call.attr("strides"), call.attr("dilations"))
        return te.sum(read((n, channel, *places)).astype(wide) * w[(o, kc, *window)].astype(wide), [kc, *window])

    return builder.reduction(call.shape, value, "acc")


def _draw_conv2d(choose: Chooser) -> Expr:
    groups = choose.pick((1, 1, 2))
    channels = groups * choose.whole(1, 9)
    if choose.chance(0.7):
        groups = 1
        x = choose.operand(lambda node: len(node.shape) == 4, ("float32",))
        channels = x.shape[1]
    else:
        x = choose.leaf((choose.whole(1, 2), channels, choose.whole(1, 9), choose.whole(1, 9)), "float32")
    kernel = (choose.whole(1, 3), choose.whole(1, 3))
    w = choose.leaf((groups * choose.whole(1, 20), channels // groups, *kernel), "float32")
    return call("nn.conv2d", x, w, groups=groups, **drawn_window(choose))


def _register(rank: int, sample: Sample, draw: Draw | None) -> None:
    register(Operator(
        f"nn.conv{rank}d", "x w", family=Family.SOURCE, types=_conv_type(rank), numpy=_conv, lower=convolution,
        defaults={"strides": (1,) * rank, "pads": (0, 0) * rank, "dilations": (1,) * rank, "groups": 1},
        gradient=convolution_gradient, fusion=Fusion.ANCHOR, anchor=Anchor.CONVOLUTION, macs=convolution_macs,
        sample=sample, draw=draw, integer=products.weighted,
        doc=f"Convolution without bias over {rank} axes; pads: before each axis, then after.",
    ))  # fmt: skip


_register(2, sample_of("nn.conv2d", IMAGE, WEIGHTS, groups=2, strides=(2, 1), pads=(1, 0, 1, 1), dilations=(1, 2)),
          _draw_conv2d)  # fmt: skip
_register(3, sample_of("nn.conv3d", (1, 2, 3, 4, 4), (3, 2, 2, 2, 2), strides=(1, 2, 1)), None)
