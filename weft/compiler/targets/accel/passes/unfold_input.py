"""Fill the array where a convolution reads few channels from the host: its window is unfolded into channels.

An image has 3 channels, but the array takes ``block_in`` at a time; the other lanes would multiply by zeros. The host
gives the data the accelerator's layout anyway, so it can as well put side by side what the kernel's columns, its rows
or both meet: a 7 x 7 convolution of 3 channels becomes a 1 x 1 convolution of 147, exactly.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import product

from ....graph import Call, Constant, Expr, Family, Function, GraphError, Module, Var, call, operator
from ....graph.host import host_call, renumber
from ....graph.visit import calls, rewrite, use_counts
from ....passes.manager import Pass
from ..operators.packed_layout import Blocks

LEAST_SPEEDUP = 1.25
"""Unfolding has to make the layer this many times faster: it costs the host time and memory."""


def unfold_input(blocks: Blocks, bytes_per_cycle: int = 8, *, chains: bool = False) -> Pass:
    """The pass for an array of this shape, with DRAM that moves ``bytes_per_cycle`` a cycle. ``chains``: whether what a
    pooling alone reads stays on the core, and is not written."""
    return Pass(
        "unfold-input",
        lambda module: _run(module, blocks, bytes_per_cycle, chains),
        needs=("legalise",),
        about=__doc__ or "",
    )


@dataclass(frozen=True)
class Unfolding:
    """Which axes of the kernel become channels."""

    rows: bool
    columns: bool

    def split(self, rows: int, columns: int, without: int = 1) -> tuple[tuple[int, int], tuple[int, int]]:
        """What the unfolding takes of a pair of values, and what the convolution keeps; ``without`` in its place."""
        taken = rows if self.rows else without, columns if self.columns else without
        kept = without if self.rows else rows, without if self.columns else columns
        return taken, kept


_PLAIN = Unfolding(rows=False, columns=False)


@dataclass(frozen=True)
class _Cost:
    """Sizes of a convolution on the core."""

    lanes: int  # channels that do useful work
    padded_lanes: int
    waves: int  # matrix products
    input_bytes: int
    traffic_bytes: int  # everything read and written once

    def cycles(self, bytes_per_cycle: int) -> int:
        """The layer's bound: computing and moving data overlap."""
        return max(self.waves, -(-self.traffic_bytes // bytes_per_cycle))


def _run(module: Module, blocks: Blocks, bytes_per_cycle: int, chains: bool) -> Module:
    pooled = _pooled(module.main.body) if chains else {}

    def rule(node: Call) -> Expr | None:
        unfolding = _best(node, pooled.get(node, node), blocks, bytes_per_cycle)
        return None if unfolding == _PLAIN else _rewritten(node, unfolding, blocks)

    return module.with_main(renumber(rewrite(module.main.body, rule)))


def _pooled(body: Expr) -> dict[Expr, Call]:
    """Convolutions whose requantised results go nowhere but into a pooling; with that."""
    uses = use_counts(body)
    found: dict[Expr, Call] = {}
    for node in calls(body):
        match node:
            case Call(op="max_pool", args=(Call(op="requantise", args=(Call(op="conv2d") as conv, *_)) as data,)):
                if uses[data] == uses[conv] == 1:
                    found[conv] = node
    return found


def _best(node: Call, written: Call, blocks: Blocks, bytes_per_cycle: int) -> Unfolding:
    """The fastest unfolding of a convolution, of equal ones that with the least data; `_PLAIN` for everything else.
    ``written``: what goes to DRAM in the place of its result."""
    if node.op != "conv2d" or node.attr("groups") != 1:
        return _PLAIN
    x, w = node.args
    if not isinstance(w, Constant) or not _from_host(x):
        return _PLAIN
    costs = {
        choice: _cost(node, choice, blocks, written)
        for choice in (Unfolding(rows, columns) for rows, columns in product((False, True), repeat=2))
    }
    best = min(costs, key=lambda choice: (costs[choice].cycles(bytes_per_cycle), costs[choice].input_bytes))
    gain = costs[_PLAIN].cycles(bytes_per_cycle) / costs[best].cycles(bytes_per_cycle)
    return best if gain >= LEAST_SPEEDUP else _PLAIN


def _from_host(x: Expr) -> bool:
    """Whether the host makes this value: an input of the model, or what a host function or a move makes of one."""
    match x:
        case Var() | Call(op=Function()):
            return True
        case Call(op=str() as name, args=(inner,)) if operator(name).family is Family.MOVE:
            return _from_host(inner)
    return False


def _cost(node: Call, unfolding: Unfolding, blocks: Blocks, result: Call) -> _Cost:
    x, w = node.args
    (taken_h, taken_w), kept = unfolding.split(*w.shape[2:])
    height = node.shape[2] if unfolding.rows else x.shape[2]
    width = node.shape[3] if unfolding.columns else x.shape[3]
    lanes = x.shape[1] * taken_h * taken_w
    read = math.prod(blocks.activation_shape((x.shape[0], lanes, height, width)))
    written = math.prod(blocks.activation_shape(result.shape))
    padded = -(-lanes // blocks.dram_block) * blocks.dram_block
    products = padded // blocks.block_in * math.prod(kept)
    waves = math.prod(blocks.accumulator_shape(node.shape)[:4]) * products
    weights = -(-node.shape[1] // blocks.dram_block) * blocks.dram_block * padded * math.prod(kept)
    return _Cost(lanes, padded, waves, read, read + written + weights)


def _rewritten(node: Call, unfolding: Unfolding, blocks: Blocks) -> Call:
    kernel, _ = unfolding.split(*node.args[1].shape[2:])
    before, after = _cost(node, _PLAIN, blocks, node), _cost(node, unfolding, blocks, node)
    reason = (
        f"puts side by side what a {kernel[0]} x {kernel[1]} window meets, so that {after.lanes} of "
        f"{after.padded_lanes} lanes of the array do useful work instead of {before.lanes} of {before.padded_lanes}"
    )
    return unfolded(node, unfolding, reason)


def unfolded(node: Call, unfolding: Unfolding, reason: str) -> Call:
    """A convolution of the unfolded input, where tap (i, j) of channel c is channel ``(i*KW + j)*C + c``. ``reason``:
    why the host unfolds it."""
    x, w = node.args
    if not isinstance(w, Constant):
        raise GraphError("only constant weights can be unfolded", at=node.span)
    kernel, kept_kernel = unfolding.split(*w.shape[2:])
    strides, kept_strides = unfolding.split(*node.attr("strides"))
    dilations, kept_dilations = unfolding.split(*node.attr("dilations"))
    top, left, bottom, right = node.attr("pads")
    (top, left), (kept_top, kept_left) = unfolding.split(top, left, without=0)
    (bottom, right), (kept_bottom, kept_right) = unfolding.split(bottom, right, without=0)
    window = {
        "kernel": kernel, "strides": strides, "pads": (top, left, bottom, right), "dilations": dilations,
        "pad_value": node.attr("pad_value"),
    }  # fmt: skip
    data = host_call("unfold", (x,), window, reason, x.span)
    out, channels = w.shape[:2]
    split = w.value.reshape(out, channels, kernel[0], kept_kernel[0], kernel[1], kept_kernel[1])
    weights = split.transpose(0, 2, 4, 1, 3, 5).reshape(out, -1, *kept_kernel)
    attrs = node.attrs.replace(
        strides=kept_strides, dilations=kept_dilations, pads=(kept_top, kept_left, kept_bottom, kept_right)
    )
    return call("conv2d", data, Constant(weights, w.name, w.span), span=node.span, **attrs)
