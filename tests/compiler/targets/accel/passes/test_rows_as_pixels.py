"""Rows of dense layers are pixels for the products of an attention."""

from __future__ import annotations

import numpy as np
import pytest
import weft
from weft.api import integer_graph
from weft.compiler.graph import (
    Attrs,
    Constant,
    Expr,
    Function,
    Module,
    TensorType,
    Tuple,
    TupleGet,
    Var,
    call,
    calls,
    evaluate,
)
from weft.compiler.graph.host import host_call
from weft.compiler.graph.ir import UNKNOWN
from weft.compiler.targets.accel.passes.rows_as_pixels import rows_as_pixels
from weft.hw.config import PYNQ, TINY
from weft.sim.dram import DramModel
from weft.verify import verify

from tests.compiler.targets.accel.quantised_layers import module_of, quantised, variable

BLOCK = TINY.block_in


def dense(x: Expr, outputs: int, seed: int) -> Expr:
    values = np.random.default_rng(seed).integers(-127, 128, (outputs, x.shape[1])).astype(np.int8)
    weights = call("dequantise", Constant(values), Constant(np.float32(0.01)), Constant(np.int8(0)))
    return quantised(call("nn.dense", x, weights))


def attention(images: int, tokens: int, heads: int, depth: int) -> Module:
    """Of rows that the host makes: (images, tokens, channels) of a softmax, whose scale is that of no layer."""
    channels = 2 * BLOCK
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
    model = weft.compile(module, config)
    assert isinstance(model, weft.CompiledModel)
    (x,) = module.main.params
    given = {"x": np.random.default_rng(0).normal(0, 3, x.type.shape).astype(np.float32)}
    wanted = evaluate(integer_graph(module, model), given)["y"]
    np.testing.assert_array_equal(weft.load(model, "fsim").run(given)["y"], wanted)
    return model


@pytest.mark.parametrize(
    ("images", "tokens", "heads", "depth"),
    [(1, BLOCK, 1, BLOCK), (2, 2 * BLOCK + 1, 1, BLOCK), (1, 5 * BLOCK - 1, 3, 3 * BLOCK)],
)  # fmt: skip
def test_heads_are_read_where_the_layer_put_them(images: int, tokens: int, heads: int, depth: int) -> None:
    module = attention(images, tokens, heads, depth)
    model = check(module)
    assert verify(model, integer_graph(module, model), seed=1).proved


def test_only_rows_are_moved_by_a_layer() -> None:
    """Those of the last dense layer, which the host reads; on a core whose loads bring enough entries."""
    model = check(attention(2, 64, 4, 48), PYNQ)
    assert len([layer for layer in model.layers if layer.device == "core" and layer.kind == "move"]) == 1


def test_on_the_rtl() -> None:
    model = check(attention(2, BLOCK + 1, 1, BLOCK))
    given = {"x": np.random.default_rng(1).normal(0, 3, (2, BLOCK + 1, 2 * BLOCK)).astype(np.float32)}
    device = weft.RtlDevice(TINY, dram=DramModel(latency=30, jitter=20, seed=3))
    found, wanted = (weft.load(model, each).run(given)["y"] for each in (device, "fsim"))
    np.testing.assert_array_equal(found, wanted)


def rows(count: int, reader: str) -> tuple[Module, Module]:
    """A dense layer of what the host has, with arithmetic behind it, that a product or another layer reads, before and
    behind the pass."""
    x = Var("x", TensorType((count, BLOCK), "int8"))
    given = host_call("reshape", (x,), {"shape": (count, BLOCK, 1, 1)}, "a test", UNKNOWN)
    random = np.random.default_rng(0)

    def narrowed(y: Expr) -> Expr:
        channels = y.shape[1]
        numbers = random.integers(-9, 9, channels), random.integers(1 << 21, 1 << 22, channels), np.full(channels, 27)
        return call("requantise", y, *(Constant(each.astype(np.int32)) for each in numbers))

    weights = Constant(random.integers(-127, 128, (2 * BLOCK, BLOCK, 1, 1)).astype(np.int8))
    made = narrowed(call("conv2d", given, weights))
    flat = call("reshape", made, shape=(count, 2 * BLOCK))
    flat = narrowed(call("multiply_immediate", flat, weight=3))
    image = call("reshape", call("transpose", flat, perm=(1, 0)), shape=(1, 2 * BLOCK, count, 1))
    if reader == "product":
        image = call("product", image, image, depth=2 * BLOCK, outputs=count, zero_points=(0, 1))
    module = module_of(x, narrowed(image) if reader == "product" else image)
    return module, rows_as_pixels(module)


@pytest.mark.parametrize(("count", "reader", "shape"), [
    (5, "product", (1, 2 * BLOCK, 5, 1)), (1, "product", (1, 2 * BLOCK, 1, 1)), (5, "host", (5, 2 * BLOCK, 1, 1)),
])  # fmt: skip
def test_rows_for_products_are_pixels(count: int, reader: str, shape: tuple[int, ...]) -> None:
    before, after = rows(count, reader)
    (layer,) = [node for node in calls(after.main.body) if node.op == "conv2d"]
    assert layer.shape == shape
    given = {"x": np.random.default_rng(2).integers(-128, 128, (count, BLOCK)).astype(np.int8)}
    np.testing.assert_array_equal(evaluate(after, given)["y"], evaluate(before, given)["y"])


def test_a_host_function_with_several_results_is_passed_over() -> None:
    """It has no element type of its own."""
    x = Var("x", TensorType((1, 2, 4), "float32"))
    body = Function((x,), Tuple((x, x)), Attrs({"name": "both", "host": "a test"}))
    both = call(body, x)
    module = module_of(x, TupleGet(both, 0))
    assert rows_as_pixels(module) is module
