"""Which kernel each group becomes, and how each tensor lies in memory: decided once for the whole graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from ...graph.ir import Call, Constant, Expr
from ...graph.registry import Anchor, operator
from ..cpu.convolution import data_block, data_layout, is_convolution, is_matrix_convolution, result_block
from ..cpu.products import is_matrix_product
from .fusion import Group
from .layouts import NO_HALO, PLAIN, PREFERRED_BLOCKS, Layout, channel_block

Kind = Literal["convolution", "product", "blocked", "plain", "numpy", "alias"]


@dataclass
class Plan:
    """``kinds`` of the groups by their root; ``native``: the layout in which each value is made; ``wanted``: the layout
    that a convolution needs its data in, by the convolution."""

    kinds: dict[Expr, Kind] = field(default_factory=dict)
    native: dict[Expr, Layout] = field(default_factory=dict)
    wanted: dict[Expr, Layout] = field(default_factory=dict)

    def layout(self, value: Expr) -> Layout:
        return self.native.get(value, PLAIN)


def plan_layouts(groups: Sequence[Group], outputs: Sequence[Expr]) -> Plan:
    """Kinds and layouts. A value's halo is the widest that its convolutions ask for."""
    plan = Plan()
    readers = _readers(groups)
    for group in groups:
        kind, block = _kind(group, plan, readers, outputs)
        plan.kinds[group.root] = kind
        if kind in ("convolution", "blocked"):
            plan.native[group.root] = Layout(block)
    for group in groups:
        anchor = group.anchor
        if anchor is None or plan.kinds[group.root] not in ("convolution", "blocked") or not is_convolution(anchor):
            continue
        data = anchor.args[0]
        own = plan.layout(data)
        if plan.kinds[group.root] == "blocked":
            block = plan.native[group.root].block
        else:
            block = data_block(anchor, own.block)
        wanted = plan.wanted[group.root] = data_layout(anchor, block)
        if own.block == block and (NO_HALO in (own.halo, wanted.halo) or own.fill == wanted.fill):
            plan.native[data] = own.merged(wanted)
    return plan


def _readers(groups: Sequence[Group]) -> Mapping[Expr, list[Group]]:
    found: dict[Expr, list[Group]] = {}
    for group in groups:
        for value in group.inputs:
            found.setdefault(value, []).append(group)
    return found


def _is_depthwise(call: Call) -> bool:
    return (
        is_convolution(call) and len(call.shape) == 4 and isinstance(call.args[1], Constant)
        and call.shape[1] == call.attr("groups") and call.args[1].shape[1] == 1
        and call.args[0].dtype in ("float32", "int8") and channel_block(call.shape[1]) in PREFERRED_BLOCKS
    )  # fmt: skip


def _kind(
    group: Group, plan: Plan, readers: Mapping[Expr, list[Group]], outputs: Sequence[Expr]
) -> tuple[Kind, int]:
    root, anchor = group.root, group.anchor
    if group.reason:
        return "numpy", 0
    if root.op == "reshape" and len(group.members) == 1 and root not in outputs and len(group.inputs) == 1:
        return "alias", 0
    if anchor is not None and is_matrix_product(anchor):
        return "product", 0
    if anchor is not None and is_matrix_convolution(anchor):
        return "convolution", result_block(anchor)
    if len(root.shape) != 4:
        return "plain", 0
    block = channel_block(root.shape[1])
    if anchor is not None and _is_depthwise(anchor):
        return "blocked", block
    if anchor is not None and _keeps_channels(anchor):
        given = plan.layout(anchor.args[0]).block
        return ("blocked", given) if given else ("plain", 0)
    if anchor is None:
        blocks = {plan.layout(value).block for value in group.inputs if value.shape == root.shape}
        feeds = any(
            other.anchor is not None and other.anchor.args[0] == root
            and (is_matrix_convolution(other.anchor) or _is_depthwise(other.anchor))
            for other in readers.get(root, [])
        )  # fmt: skip
        if block in PREFERRED_BLOCKS and (block in blocks or feeds):
            return "blocked", block
    return "plain", 0


def _keeps_channels(call: Call) -> bool:
    """Whether a call is a pooling, or a reduction of each channel of an image to one number."""
    match operator(str(call.op)).anchor:
        case Anchor.POOL:
            return True
        case Anchor.REDUCTION:
            return bool(call.attr("axes") == (2, 3) and call.attr("keepdims"))
    return False
