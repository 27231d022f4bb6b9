"""Windows that slide over 2 or 3 axes of (N, C, ...), in whatever layout the operand's view has: what the lowerings of
convolutions and poolings share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .. import tensor as te
from ..graph.chooser import Chooser
from ..graph.ir import Call
from ..tensor import ir as tir
from ..tensor.view import Builder, Index, View


def padded_read(x: View, pads: tuple[int, ...], fill: tir.Const) -> Callable[[Index], tir.Expr]:
    """Reads (n, c, ...) at places that count from the padding's first; outside it is ``fill``."""
    count = len(pads) // 2
    around = bool(x.halo) and x.fill == fill.value and all(h >= wanted for h, wanted in zip(x.halo, pads, strict=True))

    def read(index: Index) -> tir.Expr:
        places = [place - before for place, before in zip(index[2:], pads[:count], strict=True)]
        if around:
            return x[(*index[:2], *places)]
        inside: tir.Expr | None = None
        for axis, place in enumerate(places):
            for wanted, condition in (
                (pads[axis], tir.Const(0) <= place), (pads[count + axis], place < x.shape[2 + axis]),
            ):  # fmt: skip
                if wanted:
                    inside = condition if inside is None else inside & condition
        value = x[(*index[:2], *places)]
        return value if inside is None else tir.select(inside, value, fill)

    return read


def clamped_read(x: View, pads: tuple[int, ...]) -> Callable[[Index], tir.Expr]:
    """As `padded_read`, but outside it gives the nearest element: right for a maximum over an undilated window."""
    count = len(pads) // 2

    def clamp(place: tir.Expr, axis: int) -> tir.Expr:
        before, after = pads[axis], pads[count + axis]
        place = place - before
        place = tir.maximum(place, 0) if before else place
        return tir.minimum(place, x.shape[2 + axis] - 1) if after else place

    return lambda index: x[(*index[:2], *(clamp(place, axis) for axis, place in enumerate(index[2:])))]


def window_axes(builder: Builder, kernel: tuple[int, ...]) -> list[te.ReduceAxis]:
    """The places of a window of 2 or 3 axes."""
    return [builder.axis(size, name) for size, name in zip(kernel, ("kd", "kh", "kw")[-len(kernel) :], strict=True)]


def met(
    index: Index, window: Sequence[tir.Expr], strides: tuple[int, ...], dilations: tuple[int, ...]
) -> tuple[tir.Expr, ...]:
    """Where a place of the window meets the padded input, for a result at ``index``: its axes after the channel."""
    return tuple(
        place * stride + offset * dilation
        for place, offset, stride, dilation in zip(index[2:], window, strides, dilations, strict=True)
    )


def pooled(
    builder: Builder, call: Call, read: Callable[[Index], tir.Expr], reducer: Callable[..., te.Reduction]
) -> View:
    """Windows of ``read`` combined."""
    kernel = call.attr("kernel")
    dilations = call.attr("dilations") if "dilations" in call.attrs else (1,) * len(kernel)
    window = window_axes(builder, kernel)

    def value(*index: tir.Expr) -> te.Reduction:
        return reducer(read((*index[:2], *met(index, window, call.attr("strides"), dilations))), window)

    return builder.reduction(call.shape, value, "acc")


def windows_meet_input(call: Call, x: View) -> bool:
    """Whether all undilated windows, so the first and the last of each axis, have an element that is not padding."""
    reach = [size - pad for size, pad in zip(call.attr("kernel") * 2, call.attr("pads"), strict=True)]
    return min(reach) > 0 and all(
        (call.shape[2 + axis] - 1) * stride - call.attr("pads")[axis] < x.shape[2 + axis]
        for axis, stride in enumerate(call.attr("strides"))
    )


def drawn_window(choose: Chooser, pads: int = 2, dilations: int = 2) -> dict[str, Any]:
    """Attributes of a random window over two axes, with at most these pads and dilations."""
    return {
        "strides": (choose.whole(1, 2), choose.whole(1, 2)),
        "pads": tuple(choose.whole(0, pads) for _ in range(4)),
        "dilations": (choose.whole(1, dilations), choose.whole(1, dilations)),
    }
