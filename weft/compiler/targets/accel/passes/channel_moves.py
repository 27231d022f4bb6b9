"""Channels that change places between layers of the core: channel shuffles, splits, and what else amounts to them.

They stand in a graph as reshapes, transposes and slices, which the host does: the core waits, and its result is
unpacked and packed again. Where such a chain only picks channels, a 1 x 1 convolution with ones and zeros does the same
on the core, exactly.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ....graph.ir import Attrs, Call, Constant, Expr, Function, Module, Var, topological_order
from ....graph.registry import Family, apply, call, operator_of
from ....graph.visit import with_children
from ....passes.manager import graph_pass
from ..link.phases import is_primitive
from .place_concat import exact

Array = np.ndarray[Any, Any]

MOST_CHANNELS = 1024
"""Of the tensor that is picked from: the weights that pick them are a matrix of all its channels."""

LARGEST = 1 << 24
"""Elements of a tensor that is looked at."""

BEYOND_BYTES = 1024
"""Where the numbers of elements begin: what a move fills in is none of them."""


@graph_pass("channel-moves")
def channel_moves(module: Module) -> Module:
    """Chains of moves that pick channels of a layer's result for another layer become layers."""
    body = module.main.body
    order = topological_order(body)
    wanted = {id(arg) for node in order if _is_on_core(node) for arg in node.children}
    memo: dict[int, Expr] = {}
    for node in order:
        rebuilt = with_children(node, tuple(memo[id(child)] for child in node.children))
        layer = _picking_layer(rebuilt) if id(node) in wanted and isinstance(rebuilt, Call) else None
        memo[id(node)] = rebuilt if layer is None else layer
    return module.with_main(memo[id(body)])


def _is_on_core(node: Expr) -> bool:
    if isinstance(node, Call) and node.op == "concat":
        return node.attr("axis") == 1 and node.tensor_type.rank == 4
    return is_primitive(node)


def _picking_layer(node: Call) -> Call | None:
    """The call of a primitive function that does what the moves below ``node`` do; None where they do more."""
    chain: list[Call] = []
    root: Expr = node
    while isinstance(root, Call) and move_of(root) is not None:
        chain.append(root)
        root = root.args[0]
    if not chain or not _is_on_core(root) or len(root.shape) != 4 or len(node.shape) != 4:
        return None
    if (
        0 in (*root.shape, *node.shape)
        or root.shape[0] != node.shape[0]
        or root.shape[2:] != node.shape[2:]
        or root.dtype != "int8"
    ):
        return None
    if root.shape[1] > MOST_CHANNELS or root.tensor_type.size > LARGEST:
        return None
    places = np.arange(root.tensor_type.size).reshape(root.shape) + BEYOND_BYTES
    moved = places
    for move in reversed(chain):
        moved = moved_by(move, moved)
    picked = (moved[0, :, 0, 0] - BEYOND_BYTES) // (root.shape[2] * root.shape[3])
    if not np.isin(picked, range(root.shape[1])).all() or not np.array_equal(moved, places[:, picked]):
        return None
    weights = np.zeros((len(picked), root.shape[1], 1, 1), np.int8)
    weights[np.arange(len(picked)), picked] = 1
    x = Var("x0", root.tensor_type)
    layer = exact(call("conv2d", x, Constant(weights, f"{node.span.node}.channels"), span=node.span), 1.0)
    # moving channels is no work of the model, whatever products it takes
    attrs = Attrs({"name": node.span.node or "channels", "primitive": True, "anchor": "conv2d", "macs": 0})
    return call(Function((x,), layer, attrs), root, span=node.span)


def move_of(node: Call) -> Call | None:
    """The move of one computed value that a call is, in ``main`` or on the host."""
    inner = node.op.body if isinstance(node.op, Function) and node.op.host_reason else node
    entry = operator_of(inner)
    if not isinstance(inner, Call) or entry is None or entry.family not in (Family.MOVE, Family.INDEX):
        return None
    computed = [arg for arg in inner.args if not isinstance(arg, Constant)]
    alone = len(computed) == 1 and computed[0] is inner.args[0] and len(node.args) == 1
    return inner if alone and node.dtype == "int8" else None


def moved_by(node: Call, values: Array) -> Array:
    """What a move makes of other values."""
    inner = move_of(node)
    if inner is None:
        raise TypeError(f"{node.op} is no move")
    return apply(inner, [values, *(arg.value for arg in inner.args[1:] if isinstance(arg, Constant))])
