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

from tests.compiler.targets.accel.attention_layers import attention, check
from tests.compiler.targets.accel.quantised_layers import module_of

BLOCK = TINY.block_in


@pytest.mark.parametrize(
    ("images", "tokens", "heads", "depth"),
    [(1, BLOCK, 1, BLOCK), (2, 2 * BLOCK + 1, 1, BLOCK), (1, 5 * BLOCK - 1, 3, 3 * BLOCK)],
)  # fmt: skip
def test_heads_are_read_where_the_layer_put_them(images: int, tokens: int, heads: int, depth: int) -> None:
    module = attention(images, tokens, heads, depth)
    model = check(module)
    assert verify(model, integer_graph(module, model), seed=1).proved


def test_no_layer_only_moves_rows() -> None:
    """On a core whose loads bring enough entries."""
    model = check(attention(2, 64, 4, 48), PYNQ)
    assert not [layer for layer in model.layers if layer.device == "core" and layer.kind == "move"]


def test_on_the_rtl() -> None:
    model = check(attention(2, BLOCK + 1, 1, BLOCK))
    given = {"x": np.random.default_rng(1).normal(0, 3, (2, BLOCK + 1, 2 * BLOCK)).astype(np.float32)}
    device = weft.RtlDevice(TINY, dram=DramModel(latency=30, jitter=20, seed=3))
    found, wanted = (weft.load(model, each).run(given)["y"] for each in (device, "fsim"))
    np.testing.assert_array_equal(found, wanted)


def narrowed(y: Expr, seed: int = 0) -> Expr:
    random, channels = np.random.default_rng(seed), y.shape[1]
    numbers = random.integers(-9, 9, channels), random.integers(1 << 21, 1 << 22, channels), np.full(channels, 27)
    return call("requantise", y, *(Constant(each.astype(np.int32)) for each in numbers))


def rows(count: int, reader: str) -> tuple[Module, Module]:
    """A dense layer of what the host has, with arithmetic behind it, that a product or another layer reads, before and
    behind the pass."""
    x = Var("x", TensorType((count, BLOCK), "int8"))
    given = host_call("reshape", (x,), {"shape": (count, BLOCK, 1, 1)}, "a test", UNKNOWN)
    random = np.random.default_rng(0)
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


TOKENS, HEADS = 3, 2


def put_together(beside: str, reader: str) -> tuple[Module, Module]:
    """A dense layer of the rows that moves make of a product, with an addition behind it, before and behind the pass.
    ``beside``: who has made what is added. ``reader``: of the sum."""
    channels, random = HEADS * BLOCK, np.random.default_rng(1)
    x = Var("x", TensorType((TOKENS, channels), "int8"))
    image = call("reshape", call("transpose", x, perm=(1, 0)), shape=(HEADS, BLOCK, TOKENS, 1))
    made = narrowed(call("product", image, call("slice", image, starts=(0,) * 4, sizes=image.shape, steps=(1,) * 4),
                         depth=BLOCK, outputs=TOKENS))  # fmt: skip
    parts = call("reshape", made, shape=(1, HEADS, TOKENS, TOKENS))
    joined = call("reshape", call("transpose", parts, perm=(0, 3, 1, 2)), shape=(TOKENS, HEADS * TOKENS, 1, 1))
    weights = Constant(random.integers(-127, 128, (channels, HEADS * TOKENS, 1, 1)).astype(np.int8))
    flat = call("reshape", narrowed(call("conv2d", joined, weights), 1), shape=(TOKENS, channels))
    other: Expr = x
    if beside == "a constant":
        other = Constant(random.integers(-128, 128, (TOKENS, channels)).astype(np.int8))
    elif beside == "the core":
        other = narrowed(call("multiply_immediate", x, weight=5), 2)
    total = call("multiply_accumulate", call("multiply_immediate", flat, weight=3), other, weight=100)
    result = narrowed(total, 3)
    if reader == "the core, too":
        again = narrowed(call("multiply_immediate", result, weight=2), 4)
        result = host_call("concat", (result, again), {"axis": 1}, "a test", UNKNOWN)
    if reader == "the host":
        result = host_call("reshape", (result,), {"shape": (1, TOKENS, channels)}, "a test", UNKNOWN)
    module = module_of(x, result)
    return module, rows_as_pixels(module)


@pytest.mark.parametrize(("beside", "reader", "shape"), [
    ("the host", "the host", (1, HEADS * BLOCK, TOKENS, 1)), ("the core", "the host", (TOKENS, HEADS * BLOCK, 1, 1)),
    ("a constant", "the host", (TOKENS, HEADS * BLOCK, 1, 1)), ("the host", "none", (TOKENS, HEADS * BLOCK, 1, 1)),
    ("the host", "the core, too", (TOKENS, HEADS * BLOCK, 1, 1)),
])  # fmt: skip
def test_rows_of_products_are_pixels_for_the_host(beside: str, reader: str, shape: tuple[int, ...]) -> None:
    before, after = put_together(beside, reader)
    (layer,) = [node for node in calls(after.main.body) if node.op == "conv2d"]
    assert layer.shape == shape
    given = {"x": np.random.default_rng(2).integers(-128, 128, (TOKENS, HEADS * BLOCK)).astype(np.int8)}
    np.testing.assert_array_equal(evaluate(after, given)["y"], evaluate(before, given)["y"])


def test_a_host_function_with_several_results_is_passed_over() -> None:
    """It has no element type of its own."""
    x = Var("x", TensorType((1, 2, 4), "float32"))
    body = Function((x,), Tuple((x, x)), Attrs({"name": "both", "host": "a test"}))
    both = call(body, x)
    module = module_of(x, TupleGet(both, 0))
    assert rows_as_pixels(module) is module
