"""Attention whose cost is linear in a text's length, as onnxruntime's own domain has it: a state for each head, which
each position changes, and the convolution before it, which looks at the positions before."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ...graph import Expr
from .activation import swish
from .loop import looped
from .node import Converted, Node, converter
from .window import channels_first, channels_last

RULES = ("linear", "gated", "delta", "gated_delta")


@converter("LinearAttention")
def _linear_attention(node: Node) -> Converted:
    """Each position fades the state (B, heads, depth, width) by ``exp(decay)``, adds the product of its key with its
    value (of the delta rules: with beta times what the value is more than the state has at that key), and reads the
    state at its queries."""
    rule = node.string("update_rule", "gated_delta")
    if rule not in RULES:
        raise node.error(f"update rule {rule!r} is not known", f"{', '.join(RULES)} are")
    if node.integer("state_window", 0):
        raise node.error("states of several positions are not read", "export with state_window=0")
    asking, heads = node.integer("q_num_heads", 0), node.integer("kv_num_heads", 0)
    if asking < 1 or heads < 1 or (asking % heads and heads % asking):
        raise node.error(f"{asking} heads of queries do not share {heads} of keys evenly")
    query, key, value = (_by_position(node, index, count) for index, count in ((0, asking), (1, heads), (2, heads)))
    length, batch, _, depth = query.shape
    shares = max(1, asking // heads)  # heads of queries that read one state
    if asking < heads:
        query = _repeated(node, query, heads // asking)
    scale = node.number("scale", 0.0) or 1 / math.sqrt(depth)
    query = node.call("nn.multiply", query, node.like(scale, query))
    query = node.reshape(query, (length, batch, heads, shares, depth))
    sequences = [query, node.reshape(key, (*key.shape, 1)), node.reshape(value, (*value.shape[:3], 1, value.shape[3]))]
    if "gated" in rule:
        decay = _by_position(node, 4, heads)
        sequences.append(node.call("nn.exp", node.reshape(decay, (*decay.shape, 1))))
    if "delta" in rule:
        wide = node.input(5).shape[-1] if node.input(5).shape else 1
        beta = _by_position(node, 5, min(wide, heads))
        sequences.append(node.reshape(beta, (*beta.shape, 1)))
    shape = batch, heads, depth, value.shape[3]
    past = node.cast(node.input(3), "float32") if node.has(3) else node.like(np.zeros(shape), "float32")
    if past.shape != shape:
        raise node.error(f"the state is {past.type}, but must be {shape}")

    def step(states: Sequence[Expr], items: Sequence[Expr]) -> tuple[tuple[Expr, ...], tuple[Expr, ...]]:
        (state,), (asked, at, new, *more) = states, items
        if "gated" in rule:
            state = node.call("nn.multiply", state, more.pop(0))
        if "delta" in rule:
            known = node.call("nn.matmul", node.transpose(at, (0, 1, 3, 2)), state)
            new = node.call("nn.multiply", node.call("nn.subtract", new, known), more.pop(0))
        state = node.call("nn.add", state, node.call("nn.multiply", at, new))
        return (state,), (node.call("nn.matmul", asked, state),)

    (state,), (read,) = looped(node, step, (past,), sequences, (False,) * (len(sequences) + 1))
    rows = node.transpose(node.reshape(read, (length, batch, heads * shares * shape[3])), (1, 0, 2))
    return node.cast(rows, node.input(0).dtype), node.cast(state, node.input(3 if node.has(3) else 0).dtype)


def _by_position(node: Node, index: int, heads: int) -> Expr:
    """(B, T, heads * depth) as (T, B, heads, depth), in float32."""
    x = node.cast(node.input(index), "float32")
    if len(x.shape) != 3 or x.shape[2] % heads:
        raise node.error(f"{x.type} is no (batch, length, heads x depth) of {heads} heads")
    return node.reshape(node.transpose(x, (1, 0, 2)), (x.shape[1], x.shape[0], heads, x.shape[2] // heads))


def _repeated(node: Node, x: Expr, times: int) -> Expr:
    """Each head (T, B, heads, depth) so many times."""
    length, batch, heads, depth = x.shape
    wide = node.call("expand", node.reshape(x, (length, batch, heads, 1, depth)),
                     shape=(length, batch, heads, times, depth))  # fmt: skip
    return node.reshape(wide, (length, batch, heads * times, depth))


@converter("CausalConvWithState")
def _causal_convolution(node: Node) -> Converted:
    """A convolution of each channel by itself over a text and the positions before it, which are handed on."""
    for name, usual in (("ndim", 1), ("state_window", 0), ("state_update_capacity", 0), ("state_length", 0),
                        ("input_channels", 0), ("input_channel_offset", 0)):  # fmt: skip
        if node.integer(name, usual) != usual:
            raise node.error(f"attribute {name!r} is {node.integer(name, usual)}, but is read as {usual} alone")
    last = bool(node.integer("channels_last", 0))
    x = channels_first(node, node.input(0)) if last else node.input(0)
    weights, spacing = node.input(1), node.integer("dilation", 1)
    if len(x.shape) != 3 or len(weights.shape) != 3 or weights.shape[0] != x.shape[1] or spacing < 1:
        raise node.error(f"weights {weights.type} do not fit {node.input(0).type}, one kernel a channel")
    batch, channels, length = x.shape
    before = (weights.shape[2] - 1) * spacing
    past: Expr = node.like(np.zeros((batch, channels, before)), x)
    if node.has(3):
        past = channels_first(node, node.input(3)) if last else node.input(3)
    if past.shape != (batch, channels, before):
        raise node.error(f"the state is {node.input(3).type}, but {before} positions of {channels} channels are before")
    whole = node.call("concat", past, x, axis=2) if before else x
    images = node.reshape(whole, (batch, channels, 1, before + length))
    kernels = node.reshape(weights, (channels, 1, 1, weights.shape[2]))
    windows = node.call("nn.conv2d", images, kernels, dilations=(1, spacing), groups=channels)
    result: Expr = node.reshape(windows, x.shape)
    if node.has(2):
        result = node.call("nn.add", result, node.reshape(node.input(2), (1, channels, 1)))
    name = node.string("activation", "none")
    if name in ("silu", "swish"):
        result = swish(node, result)
    elif name != "none":
        raise node.error(f"activation {name!r} is not read", "silu, swish and none are")
    state = node.slice(whole, 2, length, before)
    return (channels_last(node, result), channels_last(node, state)) if last else (result, state)
