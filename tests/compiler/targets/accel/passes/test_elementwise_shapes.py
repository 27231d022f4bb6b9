"""Elementwise arithmetic takes the shape of the products beside it: rows of tokens are images of one pixel there."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import weft
from weft.compiler.graph import Attrs, Call, Constant, Expr, Function, Module, TensorType, Var, call, evaluate
from weft.compiler.graph.visit import calls
from weft.compiler.passes import PassManager, integer_passes
from weft.compiler.targets.accel.operators.packed_layout import Blocks
from weft.compiler.targets.accel.passes.elementwise_shapes import elementwise_shapes

ROWS, WIDTH = 7, 24
WIDE = 64
"""Channels of four blocks."""

SHAPES = [(1, 1, WIDE), (1, WIDE), (1, 5, WIDE), (5, WIDE), (1, 16, WIDE)]


def quantised(x: Expr, scale: float = 0.05) -> Call:
    step, zero = Constant(np.float32(scale)), Constant(np.int8(-3))
    return call("dequantise", call("quantise", x, step, zero), step, zero)


def dense(x: Expr, width: int, scale: float = 0.05) -> Call:
    values = np.random.default_rng(width).integers(-127, 128, (width, x.shape[-1])).astype(np.int8)
    weights = call("dequantise", Constant(values), Constant(np.float32(0.002)), Constant(np.int8(0)))
    rows = call("reshape", x, shape=x.shape[1:])
    return quantised(call("reshape", call("nn.dense", rows, weights), shape=(1, x.shape[1], width)), scale)


def once(x: Expr) -> Expr:
    """The width comes back with the sum."""
    return call("nn.add", x, dense(dense(x, 40), WIDTH, 0.04))


def twice(x: Expr) -> Expr:
    return once(quantised(once(x), 0.07))


def product_first(x: Expr) -> Expr:
    return call("nn.add", dense(dense(x, 40), WIDTH, 0.04), x)


def launches(body: Callable[[Expr], Expr]) -> int:
    """How often the core runs for a residual sum of rows and one more layer; all results are those of the contract."""
    x = Var("x", TensorType((1, ROWS, WIDTH), "float32"))
    result = dense(quantised(body(quantised(x)), 0.06), 12)
    module = Module(Function((x,), result, Attrs({"name": "main", "outputs": ("y",)})))
    model = weft.compile(module, "tiny")
    assert isinstance(model, weft.CompiledModel)
    values = {"x": np.random.default_rng(0).normal(0, 3, x.type.shape).astype(np.float32)}
    wanted = evaluate(PassManager(integer_passes()).run(module), values)["y"]
    assert len(np.unique(wanted)) > 10
    np.testing.assert_array_equal(weft.load(model, "fsim").run(values)["y"], wanted)
    return len(model.programs)


@pytest.mark.parametrize("body", [once, twice, product_first])
def test_rows_with_residual_sums_are_one_launch(body: Callable[[Expr], Expr]) -> None:
    assert launches(body) == 1


def dense_of(x: Expr, width: int, scale: float = 0.05) -> Call:
    """As :func:`dense`, of rows of any shape, as exporters write it: without a reshape where there are two axes."""
    own = np.random.default_rng((width, round(1000 * scale)))  # equal weights would be one product, counted once
    values = own.integers(-127, 128, (width, x.shape[-1])).astype(np.int8)
    weights = call("dequantise", Constant(values), Constant(np.float32(0.002)), Constant(np.int8(0)))
    rows = math.prod(x.shape[:-1])
    flat = x if len(x.shape) == 2 else call("reshape", x, shape=(rows, x.shape[-1]))
    made = call("nn.dense", flat, weights)
    return quantised(made if len(x.shape) == 2 else call("reshape", made, shape=(*x.shape[:-1], width)), scale)


def after_relu(x: Expr) -> Expr:
    return dense_of(quantised(call("nn.clip", x, low=0.0, high=math.inf)), 2 * WIDE)


def with_residual(x: Expr) -> Expr:
    return dense_of(quantised(call("nn.add", x, dense_of(x, WIDE))), 2 * WIDE)


def gated(x: Expr) -> Expr:
    product = quantised(call("nn.multiply", dense_of(x, 2 * WIDE), dense_of(x, 2 * WIDE, 0.04)))
    return dense_of(product, WIDE)


def all_of_them(x: Expr) -> Expr:
    x = quantised(call("nn.clip", x, low=-1.0, high=math.inf))
    return after_relu(quantised(call("nn.add", quantised(call("nn.add", x, gated(x)), 0.06), x), 0.07))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("body", [after_relu, with_residual, gated, all_of_them])
def test_rows_load_their_weights_once(body: Callable[[Expr], Expr], shape: tuple[int, ...]) -> None:
    """Whatever shape the model gives to rows, their channels are lanes, and the host moves nothing between layers."""
    x = Var("x", TensorType(shape, "float32"))
    module = Module(Function((x,), body(quantised(x)), Attrs({"name": "main", "outputs": ("y",)})))
    model = weft.compile(module, "pynq")
    assert isinstance(model, weft.CompiledModel)
    values = {"x": np.random.default_rng(0).normal(0, 3, shape).astype(np.float32)}
    wanted = evaluate(PassManager(integer_passes()).run(module), values)["y"]
    assert len(np.unique(wanted)) > 10
    np.testing.assert_array_equal(weft.load(model, "fsim").run(values)["y"], wanted)
    assert len(model.programs) == 1
    rows = math.prod(shape[:-1])
    weights = sum(layer.macs for layer in model.layers) // rows
    parameters_and_rows = sum(
        (4 * 3 * 4 + 6 * rows) * math.prod(layer.shape) // rows for layer in model.layers if layer.device == "core"
    )
    assert sum(layer.bytes_loaded for layer in model.layers) <= weights + parameters_and_rows


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_table_is_looked_up_by_the_product_beside_it(shape: tuple[int, ...]) -> None:
    """Whatever shape the model gives to rows: the host has nothing to do between layers, and no layer is of its own."""
    x = Var("x", TensorType(shape, "float32"))
    gate = dense_of(quantised(x), 2 * WIDE)
    swish = quantised(call("nn.multiply", gate, call("nn.sigmoid", gate)), 0.03)
    product = quantised(call("nn.multiply", swish, dense_of(quantised(x), 2 * WIDE, 0.04)), 0.06)
    module = Module(Function((x,), dense_of(product, WIDE), Attrs({"name": "main", "outputs": ("y",)})))
    model = weft.compile(module, "pynq-tables")
    assert isinstance(model, weft.CompiledModel)
    values = {"x": np.random.default_rng(0).normal(0, 3, shape).astype(np.float32)}
    wanted = evaluate(PassManager(integer_passes(tables=True)).run(module), values)["y"]
    assert len(np.unique(wanted)) > 10
    np.testing.assert_array_equal(weft.load(model, "fsim").run(values)["y"], wanted)
    assert len(model.programs) == 1
    assert [layer.kind for layer in model.layers if layer.device == "core"] == ["conv2d"] * 3


def numbers(generator: np.random.Generator, *, own: bool) -> list[Constant]:
    """Bias, multiplier and shift of a requantise, ``own`` for each channel."""
    count = WIDE if own else 1
    bias, multiplier = generator.integers(-9, 9, count), generator.integers(1 << 22, 1 << 23, count)
    return [Constant(np.resize(each, WIDE).astype(np.int32)) for each in (bias, multiplier, np.array([24]))]


def test_a_scale_for_each_channel_is_computed_where_what_it_scales_is() -> None:
    """A normalisation of a row: a reshape between the two would make two kernels of them."""
    generator = np.random.default_rng(3)
    x = Var("x", TensorType((1, WIDE, 1, 1), "int8"))
    narrowed = call("requantise", call("multiply", x, x), *numbers(generator, own=False))
    scaled = call("requantise", call("reshape", narrowed, shape=(1, WIDE)), *numbers(generator, own=True))
    module = Module(Function((x,), scaled, Attrs({"name": "main", "outputs": ("y",)})))
    rewritten = elementwise_shapes(Blocks(1, 16, 16))(module)
    (last, first) = (node for node in reversed(calls(rewritten.main.body)) if node.op == "requantise")
    assert last.args[0] is first
    values = {"x": generator.integers(-128, 128, x.type.shape).astype(np.int8)}
    wanted = evaluate(module, values)["y"]
    assert len(np.unique(wanted)) > 10
    np.testing.assert_array_equal(evaluate(rewritten, values)["y"], wanted)


def test_channels_at_other_places_keep_their_scale_where_it_is() -> None:
    """(1, 64, 8, 1) read as eight rows of 64: what is a channel there is none here. Nothing moves over the reshape."""
    generator = np.random.default_rng(3)
    x = Var("x", TensorType((1, WIDE, 8, 1), "int8"))
    narrowed = call("requantise", x, *numbers(generator, own=True))
    scaled = call("requantise", call("reshape", narrowed, shape=(8, WIDE)), *numbers(generator, own=True))
    module = Module(Function((x,), scaled, Attrs({"name": "main", "outputs": ("y",)})))
    assert elementwise_shapes(Blocks(1, 16, 16))(module) is module
