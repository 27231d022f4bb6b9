"""Kernels on images with their channels last: what stands between convolutions on tensor cores."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ... import tensor as te
from ...graph.ir import Call, Expr
from ..loops.blocked import blocked_kernel
from ..loops.fusion import FusedGroup
from ..loops.kernels import Kernel
from ..loops.layouts import Layout, channels_last
from ..loops.placement import Placement


@dataclass(frozen=True)
class ChannelsLastKernels:
    """Groups that make images which others read, of images with their channels last, or for convolutions that want
    them so. ``arrange`` schedules the stages."""

    arrange: Callable[[te.Schedule], None]
    name: str = "channels last"

    def result_layout(self, group: FusedGroup, placement: Placement) -> Layout | None:
        root = group.root
        if len(root.shape) != 4 or root not in placement.readers:
            return None
        given = [value for value in group.inputs if _keeps_channels(value, root)]
        found = any(not placement.layout(value).is_plain for value in given)
        layout = channels_last(root)
        if group.anchor is not None and layout.block != root.shape[1]:
            return None
        return layout if found or placement.feeds_blocks(root) else None

    def data_layout(self, group: FusedGroup, placement: Placement) -> Layout | None:
        return None

    def needs_blocks(self, anchor: Call) -> bool:
        return False

    def build(self, group: FusedGroup, layouts: Mapping[Expr, Layout], layout: Layout, name: str) -> Kernel:
        return blocked_kernel(group, layouts, layout, name, lambda schedule, _: self.arrange(schedule))


def _keeps_channels(value: Expr, root: Call) -> bool:
    """Whether two images are of the same channels, or of the same pixels."""
    images, channels, *pixels = root.shape
    return len(value.shape) == 4 and (value.shape[:2] == (images, channels) or list(value.shape[2:]) == pixels)
