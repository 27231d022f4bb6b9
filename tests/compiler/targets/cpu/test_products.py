"""Products of matrices give what they mean in NumPy, for any sizes, and with whatever is fused to them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from weft.compiler.graph import Constant, TensorType, Var, call
from weft.compiler.targets.cpu.processor import host_target, named_target
from weft.compiler.targets.cpu.products import NEARLY, block_size, choose_blocking, product_tile, rated_product_tiles
from weft.compiler.targets.loops.kernels import Tile

from .test_link import check, floats, kinds, module_of

SIZES = st.sampled_from([1, 2, 3, 5, 8, 13, 16, 17, 31, 33, 48, 65, 100])


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_two_computed_matrices_of_any_size(data: st.DataObject) -> None:
    """With batches that broadcast, and a bias and an activation behind them."""
    draw = data.draw
    rows, depth, columns = draw(SIZES), draw(SIZES), draw(SIZES)
    left, right = draw(st.sampled_from([((), ()), ((3,), ()), ((2, 1), (3,)), ((1,), (2,)), ((2, 3), (2, 3))]))
    a = Var("a", TensorType((*left, rows, depth), "float32"))
    b = Var("b", TensorType((*right, depth, columns), "float32"))
    value = call("nn.clip", call("nn.add", call("nn.matmul", a, b), floats(columns)), low=0.0)
    model = check(module_of(value, params=(a, b)), draw(st.sampled_from([1, 2])), terms=1.0)
    assert kinds(model) == ["product"]


@settings(max_examples=15, deadline=None)
@given(st.data())
def test_constant_weights(data: st.DataObject) -> None:
    """They lie in panels if these are whole; else they are copied where they are used, or read in place."""
    draw = data.draw
    rows, depth, columns = draw(SIZES), draw(SIZES), draw(SIZES)
    x = Var("x", TensorType((rows, depth), "float32"))
    if draw(st.booleans()):
        value = call("nn.dense", x, floats(columns, depth))
    else:
        value = call("nn.matmul", x, floats(depth, columns))
    assert kinds(check(module_of(value, params=(x,)))) == ["product"]


@pytest.mark.parametrize("lead", [(1,), (3,), (2, 3)])
@pytest.mark.parametrize("columns", [9, 64])
def test_constant_matrices_of_a_batch_lie_in_panels(lead: tuple[int, ...], columns: int) -> None:
    x = Var("x", TensorType((2, 3, 4, 24), "float32"))
    model = check(module_of(call("nn.matmul", x, floats(*lead, 24, columns)), params=(x,)))
    assert kinds(model) == ["product"]


def test_constant_panels_in_blocks_of_which_the_last_is_shorter() -> None:
    rows, depth = 192, 1500

    def last_is_shorter(columns: int) -> bool:
        blocking = choose_blocking((rows, columns), depth, (True, True), True, host_target())
        return not blocking.packed and columns % blocking.tile.lanes == 0 and columns % blocking.columns != 0

    columns = next(filter(last_is_shorter, range(64, 2049, 64)), 576)
    x = Var("x", TensorType((rows, depth), "float32"))
    check(module_of(call("nn.dense", x, floats(columns, depth)), params=(x,)), threads=2)


@pytest.mark.parametrize("vector_bytes", [16, 32])
def test_processors_with_shorter_registers(vector_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    shorter = replace(host_target(), vector_bytes=vector_bytes, registers=16)
    monkeypatch.setattr("weft.compiler.targets.cpu.target.named_target", lambda name: shorter)
    monkeypatch.setenv("WEFT_CACHE", "/dev/null")  # kernels are kept by the processor's name
    a, b = Var("a", TensorType((2, 19, 30), "float32")), Var("b", TensorType((2, 30, 45), "float32"))
    value = call("nn.softmax", call("nn.matmul", a, b), axis=2)
    check(module_of(call("nn.dense", call("reshape", value, shape=(38, 45)), floats(21, 45)), params=(a, b)))


def test_weights_that_are_computed() -> None:
    x, w = Var("x", TensorType((37, 20), "float32")), Var("w", TensorType((50, 20), "float32"))
    assert kinds(check(module_of(call("nn.dense", x, w), params=(x, w)))) == ["product"]


@pytest.mark.parametrize(("rows", "columns", "depth"), [(211, 250, 700), (300, 64, 513), (120, 41, 300)])
def test_computed_weights_are_turned_around_in_registers(rows: int, columns: int, depth: int) -> None:
    """Element by element such a copy took as long as the product."""
    x, w = Var("x", TensorType((rows, depth), "float32")), Var("w", TensorType((columns, depth), "float32"))
    model = check(module_of(call("nn.dense", x, w), params=(x, w)), threads=2)
    (kernel,) = model.steps[0].program.kernels
    assert "transposed_tile" in kernel.text


def test_blocks_of_rows_and_columns_that_are_no_multiple_of_the_tile() -> None:
    a, b = Var("a", TensorType((211, 700), "float32")), Var("b", TensorType((700, 250), "float32"))
    blocking = choose_blocking((211, 250), 700, (True, True), False, host_target())
    assert blocking.packed
    assert blocking.rows < 211
    assert blocking.columns < 250
    check(module_of(call("nn.matmul", a, b), params=(a, b)), threads=2)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_halves_are_multiplied_in_single_precision(dtype: str) -> None:
    """Both operands are converted once; the result is rounded once, but sums in another order may round elsewhere."""
    a, b = Var("a", TensorType((2, 9, 20), "float32")), Var("b", TensorType((2, 20, 40), "float32"))
    product = call("nn.matmul", call("nn.cast", a, to=dtype), call("nn.cast", b, to=dtype))
    model = check(module_of(call("nn.cast", product, to="float32"), params=(a, b)), tolerance=1e-2)
    assert "product" in kinds(model)


def test_an_operand_that_a_convolution_made_is_copied_into_rows() -> None:
    x = Var("x", TensorType((1, 8, 6, 10), "float32"))
    image = call("nn.conv2d", x, floats(16, 8, 1, 1))
    value = call("nn.matmul", image, Constant(np.eye(10, 20, dtype=np.float32)))
    model = check(module_of(call("nn.matmul", value, call("transpose", value, perm=(0, 1, 3, 2))), params=(x,)))
    assert kinds(model).count("product") == 2


@given(st.integers(1, 2000), st.integers(1, 30), st.integers(1, 20))
def test_no_block_is_smaller_than_a_tile(extent: int, tile: int, wanted: int) -> None:
    tile = min(extent, tile)
    size = block_size(extent, tile, wanted)
    assert tile <= size <= extent
    assert extent % size == 0 or extent % size >= tile
    assert -(-extent // size) <= max(1, wanted)


@given(st.integers(1, 300), st.integers(1, 5000), st.integers(1, 2000), st.booleans())
@pytest.mark.parametrize("processor", ["host", "armv7a", "aarch64"])
def test_a_tile_fits_the_registers(processor: str, rows: int, depth: int, columns: int, constant: bool) -> None:
    target = named_target(processor)
    tile = choose_blocking((rows, columns), depth, (True, True), constant, target).tile
    assert 1 <= tile.rows <= rows
    assert 1 <= tile.lanes <= columns
    assert tile.rows == 1 or (tile.rows + 1) * -(-tile.lanes // target.float_lanes) < target.registers


@settings(deadline=None)
@given(st.integers(1, 2100), st.integers(1, 600), st.integers(1, 2000), st.booleans())
@pytest.mark.parametrize("processor", ["host", "aarch64"])
def test_a_tile_that_overlaps_is_clearly_faster_than_those_that_do_not(
    processor: str, rows: int, columns: int, depth: int, constant: bool
) -> None:
    def overlaps(tile: Tile) -> bool:
        return rows % tile.rows != 0 or columns % tile.lanes != 0

    target = named_target(processor)
    chosen = product_tile(rows, columns, depth, constant, target)
    cycles = {tile: cost for cost, tile in rated_product_tiles(rows, columns, depth, constant, target)}
    if cycles:
        fewest = min(cycles.values())
        assert cycles[chosen] <= NEARLY * fewest
        apart = [tile for tile, cost in cycles.items() if cost <= NEARLY * fewest and not overlaps(tile)]
        assert not (apart and overlaps(chosen))


@pytest.mark.parametrize("shape", [(1, 1), (1, 1, 1), (1, 1, 1, 1)], ids=str)
def test_a_product_with_a_constant_of_one_element(shape: tuple[int, ...]) -> None:
    x = Var("x", TensorType(shape, "float32"))
    check(module_of(call("nn.matmul", x, floats(*shape)), params=(x,)))
