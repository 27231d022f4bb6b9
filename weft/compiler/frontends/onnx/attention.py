"""Attention as onnxruntime's own domain has it: rotary positions, caches that share a buffer, heads that share keys.

ONNX's own ``Attention`` and ``RotaryEmbedding`` are read through the functions that define them.
"""

from __future__ import annotations

import math

import numpy as np

from ...graph import Constant, Expr
from ...graph.dtypes import limits
from ..forms import crop_or_pad, matrix_product
from .fused import root_mean_square_unit
from .node import Converted, Node, converter
from .product import product_as_floats
from .quantised import raw_integers

HIDDEN = -1e4
"""What is added to scores that a mask leaves out, unless the node says another number."""


def _concat(node: Node, values: tuple[Expr, ...], axis: int) -> Expr:
    return values[0] if len(values) == 1 else node.call("concat", *values, axis=axis)


def _heads(node: Node, x: Expr, count: int) -> Expr:
    """(B, S, heads * depth) as (B, heads, S, depth)."""
    if len(x.shape) != 3 or count < 1 or x.shape[2] % count:
        raise node.error(f"{x.type} is no (batch, length, heads x depth) of {count} heads")
    split = node.reshape(x, (*x.shape[:2], count, x.shape[2] // count))
    return node.transpose(split, (0, 2, 1, 3))


def _rows(node: Node, x: Expr) -> Expr:
    """(B, heads, S, depth) as (B, S, heads * depth)."""
    batch, heads, length, depth = x.shape
    return node.reshape(node.transpose(x, (0, 2, 1, 3)), (batch, length, heads * depth))


def _refuse(node: Node, attributes: dict[str, float], operands: dict[int, str]) -> None:
    """ModelError for what is not read: attributes with another value than the one given, operands that are there."""
    for name, usual in attributes.items():
        if name in node.attrs and node.number(name, usual) != usual:
            raise node.error(f"attribute {name!r} is {node.number(name, usual):g}, but is read as {usual:g} alone")
    for index, what in operands.items():
        if node.has(index):
            raise node.error(f"{what} (operand {index}) are not read", hint="export the model without them")


def _attended(
    node: Node, query: Expr, key: Expr, value: Expr, added: list[Expr], sinks: Expr | None = None
) -> Expr:  # fmt: skip
    """softmax(scale * query key^T + added) value, (B, N, S, depth). ``key``, ``value``: (B, heads, T, depth), of which
    each serves as many heads of the query, one behind the other; ``added``: what (B, N, S, T) broadcasts with;
    ``sinks`` (N): scores of a position more, which has no value."""
    batch, heads, length, depth = query.shape
    shared, total = key.shape[1], key.shape[2]
    if heads % shared:
        raise node.error(f"{heads} heads do not share {shared} heads of keys evenly")
    stacked = node.reshape(query, (batch, shared, heads // shared * length, depth))
    scores: Expr = node.call("nn.matmul", stacked, node.transpose(key, (0, 1, 3, 2)))
    scale = node.number("scale", 0.0) or 1 / math.sqrt(depth)
    scores = node.call("nn.multiply", scores, node.like(scale, scores))
    softcap = node.number("softcap", 0.0)
    if softcap:
        capped = node.call("nn.tanh", node.call("nn.divide", scores, node.like(softcap, scores)))
        scores = node.call("nn.multiply", capped, node.like(softcap, scores))
    scores = node.reshape(scores, (batch, heads, length, total))
    for each in added:
        scores = node.call("nn.add", scores, node.cast(each, scores.dtype))
    if sinks is not None:
        column = node.reshape(node.cast(sinks, scores.dtype), (1, heads, 1, 1))
        scores = _concat(node, (scores, node.call("expand", column, shape=(batch, heads, length, 1))), 3)
    shares: Expr = node.call("nn.softmax", scores, axis=3)
    if sinks is not None:
        shares = node.slice(shares, 3, 0, total)
    stacked = node.reshape(shares, (batch, shared, heads // shared * length, total))
    return node.reshape(node.call("nn.matmul", stacked, value), (batch, heads, length, value.shape[3]))


def _where(node: Node, seen: Expr, x: Expr, hidden: float) -> Expr:
    """0 where something is seen, ``hidden`` elsewhere, of the type of ``x``."""
    return node.call("nn.where", seen, node.like(0, x), node.like(hidden, x))


# Rotary positions


def _turned(node: Node, x: Expr, cosine: Expr, sine: Expr, interleaved: bool) -> Expr:
    """(B, N, S, depth) turned by angles (B or 1, 1, S, pairs); values behind the pairs stay."""
    pairs = cosine.shape[3]
    if 2 * pairs > x.shape[3]:
        raise node.error(f"{pairs} angles are too many for heads of {x.shape[3]} values")
    part = node.slice(x, 3, 0, 2 * pairs)
    if interleaved:
        split = node.reshape(part, (*x.shape[:3], pairs, 2))
        one, other = (node.reshape(node.slice(split, 4, at, 1), (*x.shape[:3], pairs)) for at in (0, 1))
    else:
        one, other = (node.slice(part, 3, start, pairs) for start in (0, pairs))
    low = node.call("nn.subtract", node.call("nn.multiply", one, cosine), node.call("nn.multiply", other, sine))
    high = node.call("nn.add", node.call("nn.multiply", one, sine), node.call("nn.multiply", other, cosine))
    if interleaved:
        wide = tuple(node.reshape(each, (*x.shape[:3], pairs, 1)) for each in (low, high))
        turned = node.reshape(_concat(node, wide, 4), part.shape)
    else:
        turned = _concat(node, (low, high), 3)
    rest = x.shape[3] - 2 * pairs
    return _concat(node, (turned, node.slice(x, 3, 2 * pairs, rest)), 3) if rest else turned


def _angles(node: Node, table: Expr, places: Expr, x: Expr) -> Expr:
    """Rows of a table (positions, pairs) at places (B or 1, S): (B or 1, 1, S, pairs)."""
    if len(table.shape) != 2:
        raise node.error(f"angles are {table.type}, but must be a table (positions, pairs)")
    rows = node.call("gather", table, places, axis=0)
    return node.cast(node.reshape(rows, (places.shape[0], 1, *rows.shape[1:])), x.dtype)


@converter("com.microsoft.RotaryEmbedding")
def _rotary_embedding(node: Node) -> Converted:
    _refuse(node, {"is_packed_batching": 0, "scale": 1}, {})
    x, places = node.input(0), node.cast(node.input(1), "int64")
    if len(x.shape) == 4:
        heads = x
    else:
        partial = node.integer("rotary_embedding_dim", 0)
        count = node.integer("num_heads", 0) if partial else x.shape[-1] // max(1, 2 * node.input(2).shape[-1])
        heads = _heads(node, x, count)
    batch, _, length, _ = heads.shape
    if math.prod(places.shape) == 1:
        first = node.reshape(places, (1, 1))
        places = node.call("nn.add", first, node.like(np.arange(length)[None], "int64"))
    elif places.shape != (batch, length):
        raise node.error(f"places are {places.type}, but must be one, or ({batch}, {length})")
    cosine, sine = (_angles(node, node.input(index), places, heads) for index in (2, 3))
    turned = _turned(node, heads, cosine, sine, bool(node.integer("interleaved", 0)))
    return turned if len(x.shape) == 4 else _rows(node, turned)


@converter("MRotaryEmbedding")
def _rotary_embedding_of_three_places(node: Node) -> Converted:
    """Each pair of a head is turned by a position in time, in rows or in columns: places (3, B, S)."""
    _refuse(node, {"is_packed_batching": 0, "scale": 1}, {})
    x, places = node.input(0), node.cast(node.input(1), "int64")
    heads = x if len(x.shape) == 4 else _heads(node, x, node.integer("num_heads", 0))
    batch, _, length, _ = heads.shape
    if places.shape != (3, batch, length):
        raise node.error(f"places are {places.type}, but must be (3, {batch}, {length})")
    cosine, sine = (_of_three(node, node.input(index), places, heads) for index in (2, 3))
    turned = _turned(node, heads, cosine, sine, bool(node.integer("interleaved", 0)))
    return turned if len(x.shape) == 4 else _rows(node, turned)


def _of_three(node: Node, table: Expr, places: Expr, x: Expr) -> Expr:
    """The angles of each pair, by the one of three places that is its own."""
    pairs, sections = table.shape[-1], node.integers("mrope_section") or ()
    if len(sections) != 3 or min(sections) < 0 or sum(sections) != pairs:
        raise node.error(f"sections {list(sections)} are no three parts of {pairs} angles")
    own = np.repeat(np.arange(3), sections)
    if node.integer("mrope_layout", 0):
        own = np.zeros(pairs, np.int64)
        for axis in (1, 2):
            own[axis : 3 * sections[axis] : 3] = axis
    parts = [_angles(node, table, node.reshape(node.slice(places, 0, axis, 1), places.shape[1:]), x)
             for axis in range(3)]  # fmt: skip
    kinds = node.like(own.reshape(1, 1, 1, pairs), "int64")
    rest = node.call("nn.where", node.call("nn.equal", kinds, node.like(1, "int64")), parts[1], parts[2])
    return node.call("nn.where", node.call("nn.equal", kinds, node.like(0, "int64")), parts[0], rest)


# Heads that share keys, with a cache


@converter("GroupQueryAttention")
def _group_query_attention(node: Node) -> Converted:
    """Causal attention over a cache that has room for ``present`` positions, of which each sequence has its own number:
    ``seqlens_k`` + 1 with those of this run. What lies behind is not looked at."""
    _refuse(
        node, {"causal": 1, "qk_output": 0, "kv_cache_bit_width": 0, "sliding_window_cache": 0},
        {12: "scales of a quantised cache", 13: "scales of a quantised cache", 16: "lengths of queries"},
    )  # fmt: skip
    heads, shared = node.integer("num_heads", 0), node.integer("kv_num_heads", 0)
    if heads < 1 or shared < 1 or heads % shared:
        raise node.error(f"{heads} heads do not share {shared} heads of keys evenly")
    query, key, value = _queries(node, heads, shared)
    if node.has(14) or node.has(15):
        query, key = (_normalised(node, each, index) for index, each in ((14, query), (15, key)))
    batch, _, length, _ = query.shape
    total = int(node.known_integers(6, "the total length")[0])
    cached = node.has(3) and node.input(3).shape[2] > 0
    past = (node.input(3), node.input(4)) if cached else None
    counts = node.reshape(node.cast(node.input(5), "int64"), (batch, 1))
    if total == length:  # a prompt begins an empty cache
        before: Expr = node.like(np.zeros((batch, 1)), "int64")
    else:
        before = node.call("nn.add", counts, node.like(1 - length, "int64"))
    places = node.call("nn.add", before, node.like(np.arange(length)[None], "int64"))
    if node.integer("do_rotary", 0):
        given = node.cast(node.input(9), "int64") if node.has(9) else places
        cosine, sine = (_angles(node, node.input(index), given, query) for index in (7, 8))
        interleaved = bool(node.integer("rotary_interleaved", 0))
        query, key = (_turned(node, each, cosine, sine, interleaved) for each in (query, key))
    if past is not None:
        room = max(past[0].shape[2], total)
        key, value = (_written(node, old, new, before, room)
                      for old, new in zip(past, (key, value), strict=True))  # fmt: skip
    room = key.shape[2]
    at = node.like(np.arange(room)[None, None], "int64")
    own = node.reshape(places, (batch, length, 1))
    seen: Expr = node.call("nn.less_equal", at, own)
    window = node.integer("local_window_size", -1)
    if window > 0:
        first = node.call("nn.add", own, node.like(-window, "int64"))
        seen = node.call("nn.and", seen, node.call("nn.less", first, at))
    hidden = float(limits(query.dtype)[0]) if query.dtype == "float16" else -1e30
    added = [node.reshape(_where(node, seen, query, hidden), (batch, 1, length, room))]
    if node.has(10):
        added.append(_bias(node, node.input(10), room))
    sinks = node.optional(11)
    if sinks is None and node.integer("smooth_softmax", 0):
        sinks = node.like(np.zeros(heads), query)
    return _rows(node, _attended(node, query, key, value, added, sinks)), key, value


def _normalised(node: Node, x: Expr, weights: int) -> Expr:
    """Each head over the root of its mean square, times operand ``weights``."""
    own = "q_norm_epsilon" if weights == 14 else "k_norm_epsilon"
    epsilon = node.number(own, node.number("qk_norm_epsilon", 1e-6))
    return root_mean_square_unit(node, x, node.input(weights), epsilon)


def _queries(node: Node, heads: int, shared: int) -> tuple[Expr, Expr, Expr]:
    """Queries, keys and values by heads; the three may come in one tensor, one behind the other."""
    if node.has(1) and node.has(2):
        key, value = (_heads(node, node.input(index), shared) for index in (1, 2))
        return _heads(node, node.input(0), heads), key, value
    packed = node.input(0)
    depth = packed.shape[-1] // (heads + 2 * shared)
    sizes = [heads * depth, shared * depth, shared * depth]
    if sum(sizes) != packed.shape[-1]:
        raise node.error(f"{packed.type} does not hold {heads} heads of queries and {shared} of keys and of values")
    parts = [node.slice(packed, 2, sum(sizes[:place]), size) for place, size in enumerate(sizes)]
    return _heads(node, parts[0], heads), _heads(node, parts[1], shared), _heads(node, parts[2], shared)


def _written(node: Node, old: Expr, new: Expr, before: Expr, room: int) -> Expr:
    """A cache (B, heads, room, depth) with new positions written behind ``before`` (B, 1) others."""
    batch, heads, kept, depth = old.shape
    length = new.shape[2]
    if kept < room:
        old = crop_or_pad(node, old, [0, 0, 0, 0], [0, 0, room - kept, 0], 0.0)
    offset = node.call("nn.subtract", node.like(np.arange(room)[None], "int64"), before)
    inside = node.call("nn.and", node.call("nn.less_equal", node.like(0, "int64"), offset),
                       node.call("nn.less", offset, node.like(length, "int64")))  # fmt: skip
    if length > 1:
        row = node.call("nn.maximum", offset, node.like(0, "int64"))
        row = node.call("nn.minimum", row, node.like(length - 1, "int64"))
        wide = node.call("expand", node.reshape(row, (batch, 1, room, 1)), shape=(batch, heads, room, depth))
        new = node.call("gather_elements", new, wide, axis=2)
    return node.call("nn.where", node.reshape(inside, (batch, 1, room, 1)), new, old)


def _bias(node: Node, bias: Expr, total: int) -> Expr:
    """What is added to scores, of as many positions as there are."""
    if len(bias.shape) != 4 or bias.shape[3] < total:
        raise node.error(f"what is added to scores is {bias.type}, but there are {total} positions")
    return node.slice(bias, 3, 0, total)


# Attention with a mask


def _padding(node: Node, mask: Expr, x: Expr, length: int, total: int) -> Expr:
    """What a mask of keys adds to scores: lengths (B), or 1 where a key counts, (B, T) or (B, S, T)."""
    hidden, batch = node.number("mask_filter_value", HIDDEN), x.shape[0]
    if mask.shape == (batch,):
        at = node.like(np.arange(total)[None], mask.dtype)
        seen = node.call("nn.less", at, node.reshape(mask, (batch, 1)))
    elif mask.shape in ((batch, total), (batch, length, total)):
        seen = node.call("nn.less", node.like(0, mask.dtype), mask)
    else:
        raise node.error(f"a mask {mask.type} is not read", hint=f"({batch}), ({batch}, {total}) or with each query's")
    return node.reshape(_where(node, seen, x, hidden), (batch, 1, mask.shape[1] if len(mask.shape) == 3 else 1, total))


def _later(node: Node, x: Expr, length: int, total: int) -> Expr:
    """What hides keys behind each query's own, which is among the last ``length``."""
    seen = np.arange(total) <= np.arange(length)[:, None] + total - length
    return Constant(np.where(seen, 0, -1e30 if x.dtype != "float16" else HIDDEN).astype(np.float32), span=node.span)


def _biased(node: Node, query: Expr, key: Expr, value: Expr, bias: Expr | None) -> tuple[Expr, Expr, Expr]:
    """Rows with the parts of a bias, one behind the other."""
    if bias is None:
        return query, key, value
    parts, start = [], 0
    for rows in (query, key, value):
        parts.append(node.call("nn.add", rows, node.slice(bias, 0, start, rows.shape[2])))
        start += rows.shape[2]
    return parts[0], parts[1], parts[2]


@converter("MultiHeadAttention")
def _multi_head_attention(node: Node) -> Converted:
    _refuse(node, {}, {8: "lengths of a cache that is a buffer", 9: "beams of a search"})
    heads, query = node.integer("num_heads", 0), node.input(0)
    if len(query.shape) == 5:
        batch, length, count, _, depth = query.shape
        key = value = query
        query, key, value = (node.reshape(node.slice(query, 3, place, 1), (batch, length, count * depth))
                             for place in range(3))  # fmt: skip
    elif node.has(1) and len(node.input(1).shape) == 5:
        batch, length, count, _, depth = node.input(1).shape
        key, value = (node.reshape(node.slice(node.input(1), 3, place, 1), (batch, length, count * depth))
                      for place in range(2))  # fmt: skip
    elif node.has(1) and node.has(2):
        key, value = node.input(1), node.input(2)
    else:
        raise node.error("there are no keys and values")
    ready = len(key.shape) == 4  # those of a cross attention, by heads
    if not ready:
        query, key, value = _biased(node, query, key, value, node.optional(3))
    elif node.has(3):
        bias = node.slice(node.input(3), 0, 0, query.shape[2])
        query = node.call("nn.add", query, bias)
    by_heads = _heads(node, query, heads)
    if not ready:
        key, value = _heads(node, key, heads), _heads(node, value, heads)
    if node.has(6):
        key, value = (_concat(node, (node.input(index), each), 2) for index, each in ((6, key), (7, value)))
    return _masked(node, by_heads, key, value, node.optional(4), node.optional(5))


def _masked(
    node: Node, query: Expr, key: Expr, value: Expr, mask: Expr | None, bias: Expr | None
) -> tuple[Expr, Expr, Expr]:
    """Rows of the result, and the keys and values."""
    length, total = query.shape[2], key.shape[2]
    added = []
    if mask is not None:
        added.append(_padding(node, mask, query, length, total))
    if bias is not None:
        added.append(_bias(node, bias, total))
    if node.integer("unidirectional", 0):
        added.append(_later(node, query, length, total))
    return _rows(node, _attended(node, query, key, value, added)), key, value


@converter("com.microsoft.Attention")
def _attention(node: Node) -> Converted:
    _refuse(node, {"do_rotary": 0, "past_present_share_buffer": 0}, {6: "lengths of a cache that is a buffer"})
    product = matrix_product(node, node.input(0), node.input(1))
    if node.has(2):
        product = node.call("nn.add", product, node.input(2))
    return _self_attention(node, product, past=node.optional(4), mask=node.optional(3), bias=node.optional(5))


@converter("QAttention")
def _attention_of_integers(node: Node) -> Converted:
    """Attention whose first product is one of 8-bit integers; all that follows is in floats."""
    _refuse(node, {"do_rotary": 0, "past_present_share_buffer": 0}, {})
    a, b = raw_integers(node, 0, 6), raw_integers(node, 1, 7, axis=1)
    scale = node.call("nn.multiply", node.input(3), node.input(4))
    product = product_as_floats(node, a, b, scale, 2)
    return _self_attention(node, product, past=node.optional(8), mask=node.optional(5), bias=None)


def _self_attention(
    node: Node, product: Expr, *, past: Expr | None, mask: Expr | None, bias: Expr | None
) -> Converted:  # fmt: skip
    """``product`` (B, S, columns) holds queries, keys and values one behind the other; ``past`` the keys and values
    before them, (2, B, heads, P, depth)."""
    heads, columns = node.integer("num_heads", 0), product.shape[-1]
    third = columns // 3
    sizes = node.integers("qkv_hidden_sizes") or (third, third, third)
    if len(sizes) != 3 or sum(sizes) != columns:
        raise node.error(f"weights of {columns} columns do not hold {sizes} columns of queries, keys and values")
    query, key, value = (_heads(node, node.slice(product, 2, sum(sizes[:place]), size), heads)
                         for place, size in enumerate(sizes))  # fmt: skip
    if past is not None:
        key, value = (
            _concat(node, (node.reshape(node.slice(past, 0, place, 1), past.shape[1:]), each), 2)
            for place, each in ((0, key), (1, value))
        )  # fmt: skip
    result, key, value = _masked(node, query, key, value, mask, bias)
    if not node.wants(1):
        return result
    stacked = tuple(node.reshape(each, (1, *each.shape)) for each in (key, value))
    return result, _concat(node, stacked, 0)
