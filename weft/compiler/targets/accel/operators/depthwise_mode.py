"""Depthwise convolutions in the array's depthwise mode (`docs/isa.md`, "GEMM"): nine taps of a channel at a time.

A micro-op reads three rows by three columns of entries of ``inp``, and those of a row share columns. Kernels are
rounded up to whole threes of rows and columns, with weights of zero; larger ones are several passes over the same
accumulators.
"""

from __future__ import annotations

from .....hw.config import CoreConfig
from .....hw.isa import TAP_COLUMNS, TAP_ROWS
from ....graph import Attrs, Call, Constant, Expr, Function, call
from ....graph.visit import topological_order, with_children
from . import packed_layout
from .builder import Size, Window
from .operators import packed_form
from .packed_layout import blocks_of

PLAIN = packed_form("depthwise_conv2d")
TAPPED = packed_form("tapped_conv2d")


def in_depthwise_mode(config: CoreConfig, function: Function) -> Function | None:
    """A packed function with its depthwise convolution in the array's depthwise mode; None where there is none, or the
    mode cannot compute it."""
    values: dict[Expr, Expr] = {}
    found = False
    for node in topological_order(function.body):
        new = with_children(node, tuple(values[child] for child in node.children))
        if isinstance(node, Call) and node.op == PLAIN:
            tapped = _tapped(config, node, values[node.args[0]])
            if tapped is None:
                return None
            new, found = tapped, True
        values[node] = new
    return Function(function.params, values[function.body], function.attrs, function.span) if found else None


def _tapped(config: CoreConfig, node: Call, x: Expr) -> Call | None:
    """A depthwise convolution in the mode. The three rows that are read at once lie an odd number of entries apart, so
    they cannot be an even number of the picture's rows apart."""
    weights = node.args[1]
    if not config.depthwise or not isinstance(weights, Constant):
        return None
    kernel_h, kernel_w = weights.shape[1:3]
    dilation_h, dilation_w = (
        1 if kernel == 1 else dilation
        for kernel, dilation in zip((kernel_h, kernel_w), node.attr("dilations"), strict=True)
    )
    if dilation_h % 2 == 0:
        return None
    plain = packed_layout.unpack_depthwise_weights(weights.value)
    taps = packed_layout.pack_depthwise_taps(plain, blocks_of(node.attr("blocks")))
    top, left, bottom, right = node.attr("pads")
    below, beside = -kernel_h % TAP_ROWS * dilation_h, -kernel_w % TAP_COLUMNS * dilation_w
    attrs = Attrs({**node.attrs, "dilations": (dilation_h, dilation_w),
                   "pads": (top, left, bottom + below, right + beside)})  # fmt: skip
    return call(TAPPED, x, Constant(taps, weights.name, weights.span), span=node.span, **attrs)


def row_pitch(columns: Size) -> Size:
    """Distance of two rows in ``inp`` that hold so many columns (a number or an array)."""
    return columns | 1


def row_cycles(window: Window, columns: int) -> int:
    """Cycles in which the array computes a row of so many outputs, of one channel group, for three rows by three
    columns of taps."""
    step, dilation = window.strides[1], window.dilations[1]
    if step == dilation:
        return columns + TAP_COLUMNS - 1
    return 2 * columns + 1 if step == 2 * dilation else TAP_COLUMNS * columns
