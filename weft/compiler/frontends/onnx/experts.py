"""Mixtures of experts, as onnxruntime's own domain has them: in each row, networks of two layers whose scores are the
largest, weighed by these scores.

Where rows choose few of the experts, each takes its own experts' weights; else all experts compute all rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ...graph import Array, Constant, Expr
from .activation import gelu, swish
from .loop import looped
from .node import Converted, Node, converter
from .packed_weights import WIDTHS, numbers_of

GATHERED = 3
"""An expert's weights that are gathered move about so many times; a loop over all experts reads each once."""


@dataclass(frozen=True)
class _Layer:
    """``parts``: what the weights (experts, outputs, depth) are made of by ``weights``; ``bias`` (experts, outputs)."""

    parts: tuple[Expr, ...]
    weights: Callable[..., Expr]
    bias: Expr | None

    @property
    def operands(self) -> tuple[Expr, ...]:
        return self.parts if self.bias is None else (*self.parts, self.bias)

    def __call__(self, node: Node, x: Expr, operands: Sequence[Expr]) -> Expr:
        """``x`` (some, rows, depth), by the weights of so many experts."""
        weights = self.weights(node, *operands[: len(self.parts)])
        product = node.call("nn.matmul", x, node.transpose(node.cast(weights, x.dtype), (0, 2, 1)))
        if self.bias is None:
            return product
        bias = node.cast(operands[-1], x.dtype)
        return node.call("nn.add", product, node.reshape(bias, (bias.shape[0], 1, bias.shape[1])))


@converter("MoE")
def _mixture(node: Node) -> Converted:
    layers = [_Layer((node.input(place),), lambda _, w: w, node.optional(place + 1))
              for place in (2, 4, 6) if node.has(place)]  # fmt: skip
    return _mixed(node, layers, None)


@converter("QMoE")
def _mixture_of_integers(node: Node) -> Converted:
    """Weights of 2, 4 or 8 bits, from a byte's lowest bits on, with a scale a row, or for each block of a row."""
    if node.string("quant_type", "int") != "int":
        raise node.error(f"weights of the kind {node.string('quant_type', 'int')!r} are not read", "those of 'int' are")
    if node.integer("weights_prepacked", 0) == 1:
        raise node.error("weights in another order are not read", "export them with weights_prepacked=0")
    layers = [_packed(node, place, 11 + number, f"fc{number + 1}_expert_weight_bits")
              for number, place in enumerate((2, 5, 8)) if node.has(place)]  # fmt: skip
    return _mixed(node, layers, node.optional(14))


def _packed(node: Node, place: int, zero_points: int, width: str) -> _Layer:
    bits = node.integer(width, node.integer("expert_weight_bits", 4))
    if bits not in WIDTHS:
        raise node.error(f"weights of {bits} bits are not read", f"those of {', '.join(map(str, WIDTHS))} bits are")
    packed = node.constant(place, "the weights")
    if packed.ndim != 3 or packed.dtype != np.uint8:
        raise node.error(f"weights are {packed.dtype}{list(packed.shape)}, but must be uint8 (experts, outputs, bytes)")
    experts, outputs = packed.shape[:2]
    depth = packed.shape[2] * 8 // bits
    codes = numbers_of(packed.reshape(-1, packed.shape[2]), bits, depth).reshape(experts, outputs, depth)
    block = node.integer("block_size", 0) or depth
    blocks = math.ceil(depth / block)
    scales = node.constant(place + 1, "the scales")
    if scales.size != experts * outputs * blocks:
        raise node.error(f"{scales.size} scales, but {experts} experts have {outputs} rows of {blocks} blocks")
    zeros = np.full((experts, outputs, blocks), 1 << bits - 1, np.uint8)
    if node.has(zero_points):
        zeros = _zero_points(node, zero_points, bits, zeros.shape)
    parts = codes, scales.reshape(zeros.shape).astype(np.float32), zeros
    return _Layer(
        tuple(Constant(each, span=node.span) for each in parts),
        lambda at, *given: at.call("dequantise", *given, axis=2, block=block), node.optional(place + 2),
    )  # fmt: skip


def _zero_points(node: Node, place: int, bits: int, shape: tuple[int, ...]) -> Array:
    """Packed along the last axis, whose rows begin with a byte; with one a row, along the rows."""
    value = node.constant(place, "the zero points")
    across = shape[2] if value.ndim == 3 else shape[1]
    rows = math.prod(shape) // across
    if value.dtype != np.uint8 or value.size != rows * math.ceil(across * bits / 8):
        raise node.error(f"zero points are {value.dtype}{list(value.shape)}, but must hold {shape} of {bits} bits")
    return numbers_of(value.reshape(rows, -1), bits, across).reshape(shape)


def _mixed(node: Node, layers: Sequence[_Layer], mixing: Expr | None) -> Converted:
    """The rows' sums over the experts they choose. ``mixing``: what weighs instead of the scores that choose."""
    x, scores = node.input(0), node.input(1)
    rows, chosen = math.prod(x.shape[:-1]), node.integer("k", 1)
    if len(scores.shape) != 2 or scores.shape[0] != rows or not 1 <= chosen <= scores.shape[1]:
        raise node.error(f"scores are {scores.type}, but must be ({rows}, experts), of which {chosen} are chosen")
    if len(layers) < 2 or any(each.parts[0].shape[0] != scores.shape[1] for each in layers):
        raise node.error(f"scores are those of {scores.shape[1]} experts, but weights of other numbers")
    wide = node.reshape(node.cast(x, "float32"), (rows, x.shape[-1]))
    places, shares = _chosen(node, node.cast(scores, "float32"), chosen, mixing)
    compute = _by_row if rows * chosen * GATHERED < scores.shape[1] else _by_expert
    return node.cast(node.reshape(compute(node, layers, wide, places, shares), x.shape), x.dtype)


def _chosen(node: Node, scores: Expr, count: int, mixing: Expr | None) -> tuple[Expr, Expr]:
    """The experts of each row, and the shares they have: (rows, count)."""
    places = node.call("top_k", scores, k=count, axis=1, largest=True)
    if mixing is not None:
        shares: Expr = node.call("gather_elements", node.cast(mixing, "float32"), places, axis=1)
        if node.integer("normalize_routing_weights", 0):
            total = node.call("nn.reduce_sum", shares, axes=(1,), keepdims=True)
            shares = node.call("nn.divide", shares, total)
    elif node.integer("normalize_routing_weights", 0):
        shares = node.call("nn.softmax", node.call("gather_elements", scores, places, axis=1), axis=1)
    else:
        shares = node.call("gather_elements", node.call("nn.softmax", scores, axis=1), places, axis=1)
    return places, shares


def _network(node: Node, layers: Sequence[_Layer], x: Expr, operands: Sequence[Sequence[Expr]]) -> Expr:
    """``x`` (some, rows, depth) through so many experts. A third layer stands beside the first."""
    first = layers[0](node, x, operands[0])
    beside = layers[2](node, x, operands[2]) if len(layers) > 2 else None
    return layers[1](node, _activated(node, first, beside), operands[1])


def _activated(node: Node, x: Expr, beside: Expr | None) -> Expr:
    name, fusion = node.string("activation_type", "relu"), node.integer("swiglu_fusion", 0)
    if name == "swiglu":
        if beside is None and fusion in (1, 2) and x.shape[2] % 2 == 0:
            half = x.shape[2] // 2
            x, beside = (node.slice(x, 2, start if fusion == 1 else start * half, half, 2 if fusion == 1 else 1)
                         for start in (0, 1))  # fmt: skip
        if beside is None:
            raise node.error("a gate needs a layer beside the first, or both in one (swiglu_fusion 1 or 2)")
        return _gated(node, x, beside)
    if name == "gelu":
        result = gelu(node, x, approximate=True)
    elif name == "silu":
        result = swish(node, x)
    elif name in ("relu", "identity"):
        result = node.call("nn.clip", x, low=0.0) if name == "relu" else x
    else:
        raise node.error(f"activation {name!r} is not read", "relu, gelu, silu, swiglu and identity are")
    return result if beside is None else node.call("nn.multiply", result, beside)


def _gated(node: Node, gate: Expr, x: Expr) -> Expr:
    """gate * sigmoid(alpha * gate) * (x + beta), both limited before."""
    limit = node.number("swiglu_limit", math.inf)
    if math.isfinite(limit):
        gate = node.call("nn.minimum", gate, node.like(limit, gate))
        x = node.call("nn.clip", x, low=-limit, high=limit)
    moved = node.call("nn.add", x, node.like(node.number("activation_beta", 0), x))
    return node.call("nn.multiply", swish(node, gate, node.number("activation_alpha", 1)), moved)


def _by_row(node: Node, layers: Sequence[_Layer], x: Expr, places: Expr, shares: Expr) -> Expr:
    """Each row's experts are gathered."""
    rows, count = places.shape
    depth = x.shape[1]
    flat = node.reshape(places, (rows * count,))
    own = [[node.call("gather", each, flat, axis=0) for each in layer.operands] for layer in layers]
    copies = node.call("expand", node.reshape(x, (rows, 1, depth)), shape=(rows, count, depth))
    found = _network(node, layers, node.reshape(copies, (rows * count, 1, depth)), own)
    parts = node.call("nn.multiply", node.reshape(found, (rows, count, depth)), node.reshape(shares, (rows, count, 1)))
    return node.call("nn.reduce_sum", parts, axes=(1,), keepdims=False)


def _by_expert(node: Node, layers: Sequence[_Layer], x: Expr, places: Expr, shares: Expr) -> Expr:
    """All rows by one expert after the other, whose share is mostly zero."""
    rows, count = places.shape
    depth, experts = x.shape[1], layers[0].parts[0].shape[0]
    numbers = node.like(np.arange(experts).reshape(-1, 1, 1), places)
    hit = node.call("nn.equal", numbers, node.reshape(places, (1, rows, count)))
    mine = node.call("nn.where", hit, node.reshape(shares, (1, rows, count)), node.like(0, shares))
    weight = node.call("nn.reduce_sum", mine, axes=(2,), keepdims=False)
    taken = [layer.operands for layer in layers]

    def step(states: Sequence[Expr], items: Sequence[Expr]) -> tuple[tuple[Expr, ...], tuple[Expr, ...]]:
        flow = iter(node.reshape(each, (1, *each.shape)) for each in items[1:])
        own = [[next(flow) for _ in operands] for operands in taken]
        found = node.reshape(_network(node, layers, node.reshape(x, (1, rows, depth)), own), (rows, depth))
        part = node.call("nn.multiply", found, node.reshape(items[0], (rows, 1)))
        return (node.call("nn.add", states[0], part),), ()

    sequences = (weight, *(each for operands in taken for each in operands))
    nothing = Constant(np.zeros((rows, depth), np.float32))
    (total,), _ = looped(node, step, (nothing,), sequences, (False,) * len(sequences))
    return total
