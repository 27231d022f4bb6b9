"""A dense layer reads one row where a layer of the core has put it: its weights change places, and the host moves
nothing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import weft
from weft.compiler.graph import Attrs, Call, Constant, Expr, Function, Module, TensorType, Var, call, evaluate
from weft.compiler.operators.numerics import quantise_multiplier
from weft.compiler.targets.accel.operators.packed_layout import Blocks, pack_activation
from weft.compiler.targets.accel.passes import accel_passes
from weft.compiler.targets.accel.passes.order_of_bytes import moves_before, order_of_bytes
from weft.hw.config import PYNQ, PYNQ_W4, TINY, CoreConfig
from weft.verify import verify

CORES = (TINY, replace(TINY, name="tiny-wide", block_in=8), PYNQ)


def layer(x: Expr, filters: int, seed: int = 0) -> Call:
    random = np.random.default_rng(seed)
    weights = random.integers(-128, 128, (filters, *x.shape[1:2], 1, 1)).astype(np.int8)
    multiplier, shift = quantise_multiplier(random.uniform(0.5, 1, filters) / (40 * x.shape[1] ** 0.5))
    params = (np.zeros(filters, np.int32), multiplier, shift)
    return call("requantise", call("conv2d", x, Constant(weights)), *map(Constant, params))


def heads_side_by_side(x: Expr) -> Expr:
    """(heads, C, queries, 1) as one row, as behind the values of an attention of one token: query by query."""
    return call("reshape", call("transpose", x, perm=(0, 2, 1, 3)), shape=(1, x.tensor_type.size, 1, 1))


def backwards(x: Expr) -> Expr:
    sizes = x.shape
    turned = call("transpose", x, perm=(3, 2, 1, 0))
    return call("reshape", call("reshape", turned, shape=(sizes[3] * sizes[2], sizes[1] * sizes[0])),
                shape=(1, x.tensor_type.size, 1, 1))  # fmt: skip


def compiled(x: Var, body: Expr, config: CoreConfig) -> weft.CompiledModel:
    module = Module(Function((x,), body, Attrs({"name": "main", "outputs": ("y",)})))
    packed = module
    for step in accel_passes(Blocks.of(config), core=config):
        packed = step(packed)
    model = weft.compile(replace(packed, stage="packed"), config)
    assert isinstance(model, weft.CompiledModel)
    inputs = {"x": np.random.default_rng(1).integers(-128, 128, x.type.shape).astype(np.int8)}
    wanted = evaluate(module, inputs)["y"]
    assert len(np.unique(wanted)) > 5
    np.testing.assert_array_equal(weft.load(model, "fsim").run(inputs)["y"], wanted)
    return model


@pytest.mark.parametrize("config", CORES, ids=lambda config: config.name)
@pytest.mark.parametrize("moved", [heads_side_by_side, backwards])
@pytest.mark.parametrize("shape", [(2, 64, 2, 1), (1, 32, 3, 1), (2, 20, 1, 1)], ids=str)
def test_a_row_is_read_where_it_lies(shape: tuple[int, ...], moved: object, config: CoreConfig) -> None:
    """Also where channels fill no block, between which lie bytes that no channel is."""
    x = Var("x", TensorType(shape, "int8"))
    model = compiled(x, layer(moved(layer(x, shape[1])), 24, 1), config)  # type: ignore[operator]
    assert len(model.programs) == 1
    window = shape[0] == 1 and moved is heads_side_by_side  # a picture, which a convolution reads as a window
    assert window or any("packed_as_pixel" in each.operators for each in model.layers)


def test_rows_of_which_there_are_several_stay_as_they_are() -> None:
    x = Var("x", TensorType((2, 16, 3, 1), "int8"))
    rows = call("reshape", call("transpose", layer(x, 16), perm=(2, 0, 1, 3)), shape=(3, 32, 1, 1))
    model = compiled(x, layer(rows, 24, 1), PYNQ)
    assert not any("packed_as_pixel" in each.operators for each in model.layers)


def test_what_a_move_fills_in_is_no_byte() -> None:
    x = Var("x", TensorType((1, 16, 2, 1), "int8"))
    padded = call("pad", layer(x, 16), pads=(0, 0, 1, 0, 0, 0, 0, 0), value=0)
    model = compiled(x, layer(call("reshape", padded, shape=(1, 48, 1, 1)), 8, 1), PYNQ)
    assert not any("packed_as_pixel" in each.operators for each in model.layers)


def test_the_host_still_has_the_row_where_something_else_reads_it() -> None:
    x = Var("x", TensorType((2, 16, 2, 1), "int8"))
    row = heads_side_by_side(layer(x, 16))
    both = call(
        "concat", call("reshape", layer(row, 16, 1), shape=(1, 16)), call("reshape", row, shape=(1, 64)), axis=1
    )
    compiled(x, both, PYNQ)


def test_the_order_is_that_of_the_packed_bytes() -> None:
    x = Var("x", TensorType((2, 20, 3, 1), "int8"))
    source, moves = moves_before(heads_side_by_side(x))
    assert source is x
    gaps = order_of_bytes(source, moves, Blocks(1, 16, 16))
    assert gaps is not None
    assert gaps.shape == (1, 2 * 32 * 3, 1, 1)
    values = np.random.default_rng(0).integers(-128, 128, x.type.shape).astype(np.int8)
    packed = pack_activation(values, Blocks(1, 16, 16)).reshape(-1)
    np.testing.assert_array_equal(packed[gaps.channels], values.transpose(0, 2, 1, 3).reshape(-1))


@pytest.mark.parametrize(("shared", "reads"), [(64, False), (128, True), (256, True)])
def test_weights_of_4_bits_are_such_in_the_new_order_too(shared: int, reads: bool) -> None:
    """Blocks of 16 channels move among the two queries of an image, 128 channels, and so do groups of 64 weights, which
    have a scale and a zero point for ``shared`` weights."""
    random = np.random.default_rng(2)
    pairs = [random.permutation(np.arange(first, 16, 2))[: 256 // shared, None] for first in (4, 5)]
    codes = random.integers(0, 16, (24, 256 // shared, shared))
    codes[..., ::16], codes[..., 1::16] = 0, 15
    numbers = ((codes - pairs[1] % 16) * (pairs[0] // 2)).clip(-128, 127).astype(np.int8)
    weights = Constant(numbers.reshape(24, 256, 1, 1))
    x = Var("x", TensorType((2, 64, 2, 1), "int8"))
    multiplier, shift = quantise_multiplier(np.full(24, 1 / 2000))
    params = map(Constant, (np.zeros(24, np.int32), multiplier, shift))
    row = heads_side_by_side(layer(x, 64))
    model = compiled(x, call("requantise", call("conv2d", row, weights), *params), PYNQ_W4)
    assert any("packed_as_pixel" in each.operators for each in model.layers) == reads
    last = next(each for each in reversed(model.layers) if each.device == "core")
    assert last.bytes_loaded < 0.75 * 32 * 256  # in 4 bits either way


def test_a_row_that_is_read_where_it_lies_is_proved() -> None:
    x = Var("x", TensorType((2, 20, 2, 1), "int8"))
    body = layer(heads_side_by_side(layer(x, 20)), 24, 1)
    module = Module(Function((x,), body, Attrs({"name": "main", "outputs": ("y",)})))
    assert verify(compiled(x, body, TINY), module).proved
    swapped = layer(backwards(layer(x, 20)), 24, 1)
    other = Module(Function((x,), swapped, Attrs({"name": "main", "outputs": ("y",)})))
    assert not verify(compiled(x, body, TINY), other).proved
