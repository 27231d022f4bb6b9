"""Rows of dense layers become pixels of one image where moves take the result apart for products, as heads.

A dense layer has its rows as images, so each row's channels lie together, and the heads of many rows are entries far
apart. Of an image all pixels of a block of channels lie together: a head is a few long pieces, which the loads of the
products read where they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ....graph import Call, Constant, Expr, Function, Fusion, Module, TensorType, Var, call, operator_of
from ....graph.registry import Anchor
from ....graph.visit import topological_order, with_children
from ....passes.manager import graph_pass
from .channel_moves import move_of

Readers = Mapping[Expr, Sequence[Expr]]


@graph_pass("rows-as-pixels")
def rows_as_pixels(module: Module) -> Module:
    """Dense layers of what the host has, with the arithmetic behind them, whose results only products read, through
    moves."""
    body = module.main.body
    order = topological_order(body)
    readers: dict[Expr, list[Expr]] = {}
    for node in order:
        for child in dict.fromkeys(node.children):
            readers.setdefault(child, []).append(node)
    for_products = _for_products(order, readers)
    memo: dict[Expr, Expr] = {}
    for node in order:
        steps = _steps(node, readers) if node in for_products else []
        if steps and _is_of_host(steps[0].args[0]):
            memo[node] = _with_pixels(steps, memo)
        else:
            memo[node] = with_children(node, tuple(memo[child] for child in node.children))
    return module if memo[body] is body else module.with_main(memo[body])


def _steps(node: Expr, readers: Readers) -> list[Call]:
    """A dense layer with several rows and the arithmetic behind it, of which ``node`` is the last, in 8 bits; none if
    it is something else. Each step is read by the next one alone."""
    steps: list[Call] = []
    if not isinstance(node, Call) or not isinstance(node.type, TensorType) or node.dtype != "int8":
        return steps
    value: Expr = node
    while isinstance(value, Call) and (value is node or len(readers[value]) == 1):
        entry = operator_of(value)
        if entry is None or not all(isinstance(arg, Constant) for arg in value.args[1:]):
            break
        if _keeps_rows(value):
            value = value.args[0]
            continue
        steps.append(value)
        if entry.anchor is Anchor.CONVOLUTION and entry.fusion is Fusion.ANCHOR:
            whole = len(value.shape) == 4 and value.args[0].shape[2:] == value.shape[2:] == (1, 1)
            return steps[::-1] if whole and value.shape[0] > 1 and len(steps) > 1 else []
        if entry.fusion is not Fusion.ELEMENTWISE:
            break
        value = value.args[0]
    return []


def _keeps_rows(node: Call) -> bool:
    """Whether a call gives rows of channels another shape: (N, C) or (N, C, 1, 1)."""
    shapes = node.args[0].shape, node.shape
    alone = all(len(shape) in (2, 4) and set(shape[2:]) <= {1} for shape in shapes)
    return node.op == "reshape" and alone and shapes[0][:2] == shapes[1][:2]


def _is_of_host(value: Expr) -> bool:
    """Whether rows come from the host, which gives them any order as it packs them."""
    while isinstance(value, Call) and move_of(value) is not None:
        value = value.args[0]
    made = isinstance(value, Call) and isinstance(value.op, Function) and bool(value.op.host_reason)
    return made or isinstance(value, Var)


def _for_products(order: Sequence[Expr], readers: Readers) -> set[Expr]:
    """The values that only products of computed tensors read, through moves."""
    found: set[Expr] = set()
    for node in reversed(order):
        reading = readers.get(node, ())
        if reading and all(
            isinstance(reader, Call) and (reader.op == "product" or (reader in found and move_of(reader) is not None))
            for reader in reading
        ):
            found.add(node)
    return found


def _with_pixels(steps: Sequence[Call], memo: Mapping[Expr, Expr]) -> Call:
    layer, last = steps[0], steps[-1]
    rows, channels = layer.args[0].shape[:2]
    made: Expr = _turned(memo[layer.args[0]], (rows, channels), (1, channels, rows, 1))
    for step in steps:
        made = call(step.op, made, *step.args[1:], span=step.span, **step.attrs)
    return _turned(made, (last.shape[1], rows), last.shape)


def _turned(x: Expr, matrix: tuple[int, int], shape: tuple[int, ...]) -> Call:
    """``x``, seen as a matrix, with rows for columns, under another shape."""
    turned = call("transpose", call("reshape", x, shape=matrix, span=x.span), perm=(1, 0), span=x.span)
    return call("reshape", turned, shape=shape, span=x.span)
