"""A decoder of Llama's form as a graph of weft: RMS normalisation, rotary positions, attention, a gated hidden layer.

One function makes all its shapes. With a cache it is what runs, a piece of a text at a time; without, what is trained.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import weft
from weft.compiler.graph import Array, Attrs, Constant, Expr, Function, Module, TensorType, Tuple, Var
from weft.compiler.operators import contract, nn

Parameters = Mapping[str, Array]
Initials = dict[str, "weft.train.Initial | Array"]

HIDDEN = -1e4
"""Of a score whose position is not looked at: its share is 0 in float32."""

EPSILON = 1e-5
ROTARY_BASE = 10000.0


@dataclass(frozen=True)
class Size:
    """``positions``: what the cache holds. ``tokens``: bytes, by default. ``key_heads``: of keys and values, each of
    which as many heads share; by default every head has its own."""

    width: int = 128
    heads: int = 4
    layers: int = 4
    hidden: int = 384
    positions: int = 256
    tokens: int = 256
    key_heads: int | None = None

    @property
    def shared(self) -> int:
        """Heads of keys and values."""
        return self.key_heads or self.heads

    @property
    def depth(self) -> int:
        """Of a head."""
        return self.width // self.heads


def training_module(size: Size, parameters: Parameters, batch: int, length: int) -> tuple[Module, Initials]:
    """From ``input_ids`` (batch, length) to ``logits`` (batch * length, tokens), and where parameters that have no
    value start."""
    builder = _Builder(size, parameters, batch, length)
    tokens = Var("input_ids", TensorType((batch, length), "int64"))
    body = builder.logits(tokens, Constant(np.arange(length)), None)
    return Module(Function((tokens,), body, Attrs({"name": "main", "outputs": ("logits",)}))), builder.missing


def cached_module(size: Size, parameters: Parameters, length: int = 1) -> Module:
    """``length`` tokens behind those of a cache of ``size.positions`` positions.

    Inputs: ``input_ids`` (1, length), ``position_ids`` (1, length), and ``past_key_values.N.key`` and ``.value``
    (1, key heads, positions, depth). Outputs: ``logits`` (length, tokens), and ``present.N.key`` and ``.value``
    (1, key heads, length, depth): what the cache gets at these positions.
    """
    builder = _Builder(size, parameters, 1, length)
    tokens = Var("input_ids", TensorType((1, length), "int64"))
    places = Var("position_ids", TensorType((1, length), "int64"))
    past = _past(size)
    logits = builder.logits(tokens, contract.reshape(places, shape=(length,)), past)
    return _with_cache(builder, (tokens, places), past, "logits", logits)


def layer_module(size: Size, parameters: Parameters) -> tuple[Module, Initials]:
    """The first layer alone, for one token: from ``x`` (1, width), ``position_ids`` (1, 1) and a cache to ``y``
    (1, width), with what the cache gets; and where parameters that have no value start."""
    builder = _Builder(size, parameters, 1, 1)
    x, places = Var("x", TensorType((1, size.width), "float32")), Var("position_ids", TensorType((1, 1), "int64"))
    past = _past(replace(size, layers=1))
    flat = contract.reshape(places, shape=(1,))
    y = builder.layer(0, x, builder.turns(flat), builder.hidden(flat, True), past)
    return _with_cache(builder, (x, places), past, "y", y), builder.missing


def _past(size: Size) -> dict[str, Var]:
    kind = TensorType((1, size.shared, size.positions, size.depth), "float32")
    names = [f"{layer}.{what}" for layer in range(size.layers) for what in ("key", "value")]
    return {name: Var(f"past_key_values.{name}", kind) for name in names}


def _with_cache(builder: _Builder, inputs: tuple[Var, ...], past: Mapping[str, Var], name: str, result: Expr) -> Module:
    attrs = Attrs({"name": "main", "outputs": (name, *(f"present.{state}" for state in past))})
    body = Tuple((result, *(builder.present[state] for state in past)))
    return Module(Function((*inputs, *past.values()), body, attrs))


class _Builder:
    """Collects layers on rows (batch * length, width). ``present``: keys and values of these positions, by name."""

    def __init__(self, size: Size, parameters: Parameters, batch: int, length: int) -> None:
        self.size, self.parameters, self.batch, self.length = size, parameters, batch, length
        self.missing: Initials = {}
        self.present: dict[str, Expr] = {}

    def parameter(self, name: str, initial: weft.train.Initial | Array) -> Constant:
        if name in self.parameters:
            return Constant(self.parameters[name], name)
        self.missing[name] = initial
        return Constant(np.zeros(initial.shape, np.float32), name)

    def linear(self, name: str, x: Expr, outputs: int, gain: float = 1.0) -> Expr:
        return nn.dense(x, self.parameter(name, weft.train.glorot((outputs, x.shape[1]), gain)))

    def normalised(self, name: str, x: Expr) -> Expr:
        square = nn.reduce_mean(nn.multiply(x, x), axes=(1,), keepdims=True)
        unit = nn.divide(x, nn.sqrt(nn.add(square, _number(EPSILON))))
        return nn.multiply(unit, self.parameter(name, np.ones(self.size.width, np.float32)))

    def split(self, rows: Expr) -> Expr:
        """(batch, heads, length, depth)."""
        depth = self.size.depth
        shape = self.batch, self.length, rows.shape[1] // depth, depth
        return contract.transpose(contract.reshape(rows, shape=shape), perm=(0, 2, 1, 3))

    def attention(self, name: str, x: Expr, turns: tuple[Expr, Expr], hidden: Expr, past: dict[str, Var] | None,
                  layer: int) -> Expr:  # fmt: skip
        size = self.size
        outputs = {"query": size.width, "key": size.shared * size.depth, "value": size.shared * size.depth}
        query, key, value = (self.split(self.linear(f"{name}.{what}", x, count)) for what, count in outputs.items())
        query, key = (rotated(each, *turns) for each in (query, key))
        if past is not None:
            self.present |= {f"{layer}.key": key, f"{layer}.value": value}
            key, value = (contract.concat(past[f"{layer}.{what}"], each, axis=2)
                          for what, each in (("key", key), ("value", value)))  # fmt: skip
        stack = size.heads // size.shared * self.length  # rows of all heads that share a key
        query = self.reshaped(query, size.shared, stack, size.depth)
        scores = nn.multiply(nn.matmul(query, contract.transpose(key, perm=(0, 1, 3, 2))), _number(size.depth**-0.5))
        total = key.shape[2]
        scores = self.reshaped(scores, size.heads, self.length, total)
        shares = self.reshaped(nn.softmax(nn.add(scores, hidden), axis=3), size.shared, stack, total)
        seen = self.reshaped(nn.matmul(shares, value), size.heads, self.length, size.depth)
        seen = contract.transpose(seen, perm=(0, 2, 1, 3))
        return self.linear(f"{name}.out", contract.reshape(seen, shape=x.shape), size.width, 0.5)

    def reshaped(self, x: Expr, *shape: int) -> Expr:
        wanted = self.batch, *shape
        return x if x.shape == wanted else contract.reshape(x, shape=wanted)

    def layer(
        self, layer: int, x: Expr, turns: tuple[Expr, Expr], hidden: Expr, past: dict[str, Var] | None
    ) -> Expr:  # fmt: skip
        size, name = self.size, f"layer{layer}"
        x = nn.add(x, self.attention(name, self.normalised(f"{name}.first", x), turns, hidden, past, layer))
        rows = self.normalised(f"{name}.second", x)
        gate, up = (self.linear(f"{name}.{what}", rows, size.hidden) for what in ("gate", "up"))
        gated = nn.multiply(nn.multiply(gate, nn.sigmoid(gate)), up)
        return nn.add(x, self.linear(f"{name}.down", gated, size.width, 0.5))

    def logits(self, tokens: Expr, places: Expr, past: dict[str, Var] | None) -> Expr:
        size = self.size
        table = self.parameter("embedding", weft.train.normal((size.tokens, size.width), 0.1))
        x = contract.reshape(contract.gather(table, tokens, axis=0), shape=(self.batch * self.length, size.width))
        turns = self.turns(places)
        hidden = self.hidden(places, past is not None)
        for layer in range(size.layers):
            x = self.layer(layer, x, turns, hidden, past)
        return self.linear("head", self.normalised("last", x), size.tokens)

    def turns(self, places: Expr) -> tuple[Expr, Expr]:
        """Cosine and sine of each position's angles, (length, depth)."""
        depth = self.size.depth
        angles = np.arange(self.size.positions)[:, None] * ROTARY_BASE ** (-np.arange(0, depth, 2) / depth)
        tables = (np.tile(wave(angles), 2).astype(np.float32) for wave in (np.cos, np.sin))
        cosine, sine = (contract.gather(Constant(table), places, axis=0) for table in tables)
        return cosine, sine

    def hidden(self, places: Expr, cached: bool) -> Expr:
        """What is added to scores: ``HIDDEN`` for positions of the cache that are not written yet, and for those
        behind a token's own."""
        own = np.triu(np.full((self.length, self.length), HIDDEN, np.float32), 1)
        if not cached:
            return Constant(own)
        first = contract.slice(places, starts=(0,), sizes=(1,), steps=(1,)) if self.length > 1 else places
        written = nn.less(Constant(np.arange(self.size.positions)), first)
        row = nn.where(written, _number(0), _number(HIDDEN))
        wide = contract.expand(contract.reshape(row, shape=(1, self.size.positions)),
                               shape=(self.length, self.size.positions))  # fmt: skip
        return contract.concat(wide, Constant(own), axis=1)


def rotated(x: Expr, cosine: Expr, sine: Expr) -> Expr:
    """Pairs of a head's values turned by their position's angles; the two of a pair lie half a head apart."""
    half = x.shape[-1] // 2
    sizes = *x.shape[:3], half
    low, high = (contract.slice(x, starts=(0, 0, 0, start), sizes=sizes, steps=(1,) * 4) for start in (0, half))
    turned = contract.concat(nn.negative(high), low, axis=3)
    return nn.add(nn.multiply(x, cosine), nn.multiply(turned, sine))


def _number(value: float) -> Constant:
    return Constant(np.array(value, np.float32))


def parameters_count(parameters: Parameters) -> int:
    return sum(math.prod(value.shape) for value in parameters.values())
