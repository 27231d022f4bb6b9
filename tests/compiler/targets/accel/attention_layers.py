"""Attentions whose dense layers, products and softmaxes are quantised, for tests of what moves between them."""

from __future__ import annotations

import numpy as np
import weft
from weft.api import integer_graph
from weft.compiler.graph import Constant, Expr, Module, call, evaluate
from weft.hw.config import TINY

from tests.compiler.targets.accel.quantised_layers import module_of, quantised, variable


def dense(x: Expr, outputs: int, seed: int) -> Expr:
    values = np.random.default_rng(seed).integers(-127, 128, (outputs, x.shape[1])).astype(np.int8)
    weights = call("dequantise", Constant(values), Constant(np.float32(0.01)), Constant(np.int8(0)))
    return quantised(call("nn.dense", x, weights))


def attention(images: int, tokens: int, heads: int, depth: int) -> Module:
    """Of rows that the host makes: (images, tokens, channels) of a softmax, whose scale is that of no layer."""
    channels = 2 * TINY.block_in
    x = variable(images, tokens, channels)
    rows = call("reshape", quantised(call("nn.softmax", quantised(x), axis=2), 0.01), shape=(images * tokens, channels))

    def of_heads(seed: int) -> Expr:
        made = call("reshape", dense(rows, heads * depth, seed), shape=(images, tokens, heads, depth))
        return call("transpose", made, perm=(0, 2, 1, 3))

    query, key, value = map(of_heads, range(3))
    scores = quantised(call("nn.matmul", query, call("transpose", key, perm=(0, 1, 3, 2))), 0.02)
    mixed = quantised(call("nn.matmul", quantised(call("nn.softmax", scores, axis=3), 0.01), value), 0.02)
    mixed = call("reshape", call("transpose", mixed, perm=(0, 2, 1, 3)), shape=(images * tokens, heads * depth))
    return module_of(x, dense(mixed, channels, 3))


def check(module: Module, config: weft.CoreConfig = TINY) -> weft.CompiledModel:
    """Compiled, and equal to its integer graph on the functional simulator."""
    model = weft.compile(module, config)
    assert isinstance(model, weft.CompiledModel)
    (x,) = module.main.params
    given = {"x": np.random.default_rng(0).normal(0, 3, x.type.shape).astype(np.float32)}
    wanted = evaluate(integer_graph(module, model), given)["y"]
    np.testing.assert_array_equal(weft.load(model, "fsim").run(given)["y"], wanted)
    return model
