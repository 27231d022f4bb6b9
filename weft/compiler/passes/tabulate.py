"""Functions of one 8-bit value as tables: whatever elementwise operators make them up, 256 results say all."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from ..graph import Array, Call, Constant, Expr, Family, Fusion, Role, Span, call, role_of
from ..graph.evaluate import static_value
from ..graph.host import host_call
from ..graph.registry import apply, operator_of

MOST_CHANNELS = 4096
"""Where constants differ by channel there is one table a channel; of more there are none."""


def tabulated(
    quantise: Call, signed: Mapping[int, Expr], tables: Collection[int] = (), *, on_core: bool = False
) -> Expr | None:
    """The int8 result of a quantise whose operand is computed, elementwise and with constants, from one 8-bit value.

    ``signed``: by id the int8 value that stands for an int8 or uint8 one. ``tables``: ids of quantise nodes that are
    tables themselves; where some are given, one of them has to be between, and the result is a table of both. None
    where there is no table. Every entry is what the operators' NumPy meanings give, so nothing is rounded differently.
    ``on_core``: as `look_up`, an operator of the integer contract; None unless one table does for all channels.
    """
    source = quantise.args[0]
    island = island_of(source, tables)
    if island is None or (tables and not any(id(node) in tables for node in island)):
        return None
    inside = set(map(id, island))
    root = next(node.args[0] for node in island if role_of(node) is Role.DEQUANTISE and id(node.args[0]) not in inside)
    constants = broadcast_of_constants(island, len(source.shape))
    count = math.prod(constants)
    if id(root) not in signed or count > MOST_CHANNELS or (on_core and count != 1):
        return None
    moved = any(
        node.op == "reshape" for node in island
    )  # elements stay in their order: fine where all are treated alike
    if root.tensor_type.size != source.tensor_type.size if moved else root.shape != source.shape:
        return None
    if moved and (count != 1 or len(constants) > len(source.shape)):
        return None
    x = signed[id(root)]
    if x.shape != source.shape:
        x = call("reshape", x, shape=source.shape, span=Span(quantise.span.nodes))
    offset = 128 if root.dtype == "uint8" else 0
    inputs = np.arange(-128 + offset, 128 + offset).astype(root.dtype)
    results = results_of([*island, quantise], root, inputs)
    shift = 128 if quantise.dtype == "uint8" else 0
    names = dict.fromkeys(str(node.op) for node in island if not _changes_scale(node) and node.op != "reshape")
    reason = f"{', '.join(names)} of one 8-bit value, as a table"
    entries = (results.astype(np.int16) - shift).astype(np.int8)
    span = quantise.span.merged(source.span)
    return table_of(x, entries, constants, span, reason, on_core=on_core)


def table_of(
    x: Expr, entries: Array, constants: tuple[int, ...], span: Span, reason: str, *, on_core: bool
) -> Expr | None:
    """What tables hold for each element of an int8 value ``x``. ``entries``: for -128 to 127, behind axes that
    broadcast to ``constants``, one table for each of these. ``on_core``: on the core, where one table does;
    else on the host for ``reason``. None where there are more than `MOST_CHANNELS`."""
    count = math.prod(constants)
    if count > MOST_CHANNELS:
        return None
    tables = np.broadcast_to(entries, (*constants, 256))
    if on_core and count == 1:
        table = Constant(np.ascontiguousarray(tables).reshape(-1), span=Span(span.nodes))
        return call("look_up", x, table, span=span)
    first = np.arange(count).reshape(constants) * 256 + 128
    return _look_up(x, tables, first.astype(np.int32), span, reason)


def look_up_on_host(node: Call, reason: str) -> Expr:
    """A `look_up` as operators of the host."""
    table = static_value(node.args[1])
    return _look_up(node.args[0], table, np.array([128], np.int32), node.span, reason)


def _look_up(x: Expr, tables: Array, first: Array, span: Span, reason: str) -> Expr:
    inner = Span(span.nodes)
    wide = host_call("nn.cast", (x,), {"to": "int32"}, reason, inner)
    place = host_call("nn.add", (wide, Constant(first if first.size > 1 else first.reshape(()))), {}, reason, inner)
    table = Constant(np.ascontiguousarray(tables).reshape(-1))
    return host_call("gather", (table, place), {"axis": 0}, reason, Span(span.nodes, span.tensor))


def island_of(source: Expr, tables: Collection[int] = ()) -> list[Call] | None:
    """The computed nodes that make ``source``, producers first, up to the dequantise of the only 8-bit value below
    them that is not in ``tables``; None where they are not all elementwise or reshapes, or there is not one such
    value."""
    found: dict[int, Call] = {}
    roots: set[int] = set()
    waiting = [source]
    while waiting:
        node = waiting.pop()
        if id(node) in found or node.static:
            continue
        entry = operator_of(node)
        if isinstance(node, Call) and node.op == "reshape":
            found[id(node)] = node
            waiting.append(node.args[0])
            continue
        if not isinstance(node, Call) or entry is None or entry.fusion is not Fusion.ELEMENTWISE:
            return None
        passed = entry.role is Role.DEQUANTISE or id(node) in tables
        if entry.role is Role.NORMALISATION or (entry.family is Family.QUANTISE and not passed):
            return None
        found[id(node)] = node
        if entry.role is Role.DEQUANTISE:
            if node.args[0].dtype not in ("int8", "uint8") or node.args[1].shape or not node.args[1].static:
                return None
            if id(node.args[0]) in tables:
                waiting.append(node.args[0])
            else:
                roots.add(id(node.args[0]))
        else:
            waiting += node.args
    return _in_order(source, found) if len(roots) == 1 else None


def _in_order(source: Expr, found: Mapping[int, Call]) -> list[Call]:
    order: dict[int, Call] = {}
    waiting = [source]
    while waiting:
        node = waiting[-1]
        missing = [arg for arg in node.children if id(arg) in found and id(arg) not in order]
        if missing:
            waiting += missing
            continue
        waiting.pop()
        order.setdefault(id(node), found[id(node)])
    return list(order.values())


def _changes_scale(node: Call) -> bool:
    return role_of(node) in (Role.QUANTISE, Role.DEQUANTISE)


def broadcast_of_constants(island: Sequence[Call], rank: int) -> tuple[int, ...]:
    """The shape of all constants of an island together, of the rank of its result."""
    shapes = [arg.shape for node in island if not _changes_scale(node) for arg in node.args if arg.static]
    return np.broadcast_shapes((1,) * rank, *shapes)


def results_of(nodes: Sequence[Call], root: Expr, inputs: Array) -> Array:
    """What the last node gives for each of ``inputs``, which become a last axis behind those of the constants."""
    rank = len(nodes[-1].shape)
    values: dict[int, Array] = {id(root): inputs.reshape(*(1 for _ in range(rank)), -1)}
    for node in nodes:
        if node.op == "reshape":
            values[id(node)] = values[id(node.args[0])]
            continue
        entry = operator_of(node)
        plain = entry is not None and entry.family is Family.QUANTISE
        operands = [
            values[id(arg)] if id(arg) in values else static_value(arg) if plain else _aligned(static_value(arg), rank)
            for arg in node.args
        ]
        values[id(node)] = apply(node, operands)
    return values[id(nodes[-1])]


def _aligned(value: Array, rank: int) -> Array:
    """A constant with its axes in front of the last one."""
    return value.reshape(*(1 for _ in range(rank - value.ndim)), *value.shape, 1)
