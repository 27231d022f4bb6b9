"""Rows of dense layers become pixels of one image where moves take the result apart for products, as heads, or put the
operand together from what products made.

A dense layer has its rows as images, so each row's channels lie together, and the heads of many rows are entries far
apart. Of an image all pixels of a block of channels lie together: a head is a few long pieces, which the loads of the
products read where they are, and what a product made of it lies as the next dense layer reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ....graph import Call, Constant, Expr, Function, Fusion, Module, TensorType, Var, call, operator_of
from ....graph.registry import Anchor
from ....graph.visit import topological_order, with_children
from ....passes.manager import graph_pass
from .channel_moves import move_of

Readers = Mapping[Expr, Sequence[Expr]]


@dataclass(frozen=True)
class _Step:
    """A call of a chain; ``place`` of the operand that the step before it makes."""

    node: Call
    place: int

    @property
    def operand(self) -> Expr:
        return self.node.args[self.place]


@graph_pass("rows-as-pixels")
def rows_as_pixels(module: Module) -> Module:
    """Dense layers with the arithmetic behind them: of what the host has, whose results only products read, through
    moves; and of what products made, whose results only the host reads."""
    body = module.main.body
    order = topological_order(body)
    readers: dict[Expr, list[Expr]] = {}
    for node in order:
        for child in dict.fromkeys(node.children):
            readers.setdefault(child, []).append(node)
    for_products, for_host = _read_by(order, readers, _is_product), _read_by(order, readers, _is_host_call)
    memo: dict[Expr, Expr] = {}
    for node in order:
        steps = _steps(node, readers) if node in for_products or node in for_host else []
        source = steps[0].operand if steps else node
        if steps and (_is_of_host(source) if node in for_products else _is_of_product(source)):
            memo[node] = _with_pixels(steps, memo, node.tensor_type.shape)
        else:
            memo[node] = with_children(node, tuple(memo[child] for child in node.children))
    return module if memo[body] is body else module.with_main(memo[body])


def _steps(node: Expr, readers: Readers) -> list[_Step]:
    """A dense layer with several rows and the arithmetic behind it, of which ``node`` is the last, in 8 bits; none if
    it is something else. Each step is read by the next one alone."""
    steps: list[_Step] = []
    if not isinstance(node, Call) or not isinstance(node.type, TensorType) or node.dtype != "int8":
        return steps
    value: Expr = node
    while isinstance(value, Call) and (value is node or len(readers[value]) == 1):
        entry = operator_of(value)
        place = _place_of_rows(value)
        if entry is None or place is None:
            break
        if _keeps_rows(value):
            value = value.args[0]
            continue
        steps.append(_Step(value, place))
        if entry.anchor is Anchor.CONVOLUTION and entry.fusion is Fusion.ANCHOR:
            whole = len(value.shape) == 4 and value.args[0].shape[2:] == value.shape[2:] == (1, 1)
            return steps[::-1] if whole and value.shape[0] > 1 and len(steps) > 1 else []
        if entry.fusion is not Fusion.ELEMENTWISE or not _fits_rows(value):
            break
        value = value.args[place]
    return []


def _place_of_rows(node: Call) -> int | None:
    """The operand that a call computes with, beside constants and what the host has; None if there are several."""
    places = [place for place, arg in enumerate(node.args) if not isinstance(arg, Constant)]
    if len(places) > 1:
        places = [place for place in places if not _is_of_host(node.args[place])]
    return places[0] if len(places) == 1 else None


def _fits_rows(node: Call) -> bool:
    """Whether all computed operands of arithmetic are rows like the result, and all constants are for channels."""
    return all(
        arg.value.ndim <= 1 if isinstance(arg, Constant) else arg.shape == node.shape for arg in node.args
    )  # fmt: skip


def _keeps_rows(node: Call) -> bool:
    """Whether a call gives rows of channels another shape: (N, C) or (N, C, 1, 1)."""
    shapes = node.args[0].shape, node.shape
    alone = all(len(shape) in (2, 4) and set(shape[2:]) <= {1} for shape in shapes)
    return node.op == "reshape" and alone and shapes[0][:2] == shapes[1][:2]


def _is_of_host(value: Expr) -> bool:
    """Whether rows come from the host, which gives them any order as it packs them."""
    while isinstance(value, Call) and _is_move(value):
        value = value.args[0]
    return _is_host_call(value) or isinstance(value, Var)


def _is_of_product(value: Expr) -> bool:
    """Whether moves that exchange axes have put rows together from a product of computed tensors."""
    moved = False
    while isinstance(value, Call) and _is_move(value):
        moved |= "perm" in value.attrs
        value = value.args[0]
    while isinstance(value, Call) and _is_arithmetic(value):
        value = value.args[0]
    return moved and _is_product(value)


def _is_arithmetic(node: Call) -> bool:
    entry = operator_of(node)
    return entry is not None and entry.fusion is Fusion.ELEMENTWISE


def _is_product(node: Expr) -> bool:
    return isinstance(node, Call) and node.op == "product"


def _is_host_call(node: Expr) -> bool:
    return isinstance(node, Call) and isinstance(node.op, Function) and bool(node.op.host_reason)


def _read_by(order: Sequence[Expr], readers: Readers, reads: Callable[[Expr], bool]) -> set[Expr]:
    """The values that only calls of one kind read, through moves."""
    found: set[Expr] = set()
    for node in reversed(order):
        reading = readers.get(node, ())
        if reading and all(reads(reader) or (reader in found and _is_move(reader)) for reader in reading):
            found.add(node)
    return found


def _is_move(node: Expr) -> bool:
    return isinstance(node, Call) and move_of(node) is not None


def _with_pixels(steps: Sequence[_Step], memo: Mapping[Expr, Expr], shape: tuple[int, ...]) -> Call:
    """The steps on pixels, and their result as rows again, under ``shape``."""
    layer, last = steps[0], steps[-1].node
    rows = layer.operand.shape[0]

    def pixels(x: Expr) -> Call:
        return _turned(memo[x], (rows, x.shape[1]), (1, x.shape[1], rows, 1))

    made: Expr = pixels(layer.operand)
    for step in steps:
        args = tuple(
            made if place == step.place else arg if isinstance(arg, Constant) else pixels(arg)
            for place, arg in enumerate(step.node.args)
        )
        made = call(step.node.op, *args, span=step.node.span, **step.node.attrs)
    return _turned(made, (last.shape[1], rows), shape)


def _turned(x: Expr, matrix: tuple[int, int], shape: tuple[int, ...]) -> Call:
    """``x``, seen as a matrix, with rows for columns, under another shape."""
    turned = call("transpose", call("reshape", x, shape=matrix, span=x.span), perm=(1, 0), span=x.span)
    return call("reshape", turned, shape=shape, span=x.span)
