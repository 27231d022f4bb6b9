"""Products and convolutions in tiles: as loops, before any device sees them, and on one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import weft
from hypothesis import given, settings
from hypothesis import strategies as st
from weft.compiler import tensor as te
from weft.compiler.graph import Call, Constant, Module, call
from weft.compiler.targets.gpu.devices import DEVICES
from weft.compiler.targets.gpu.launches import Barrier, Grid
from weft.compiler.targets.gpu.phases import grids_of
from weft.compiler.targets.gpu.tile_schedule import TILES, Tile, choose_tile, schedule_tiled
from weft.compiler.tensor.evaluate import ITEM_BYTES
from weft.compiler.tensor.interpreter import interpret
from weft.compiler.tensor.ir import For, Seq, Stmt

from .graphs import check, module_of, variable

GENERIC = DEVICES["generic"]


def product(rows: int, columns: int, depth: int) -> te.Schedule:
    """A product of int32 with stages as a tiled kernel has them."""
    a, b = te.placeholder((rows, depth), "int32", "a"), te.placeholder((depth, columns), "int32", "b")
    left = te.compute((rows, depth), lambda i, k: a[i, k], "left")
    right = te.compute((depth, columns), lambda k, j: b[k, j], "right")
    axis = te.reduce_axis(depth, "k")
    acc = te.compute((rows, columns), lambda i, j: te.sum(left[i, axis] * right[axis, j], [axis]), "acc")
    out = te.compute((rows, columns), lambda i, j: acc[i, j] + 1, "out")
    return te.create_schedule(out, [a, b])


def barriers(stmt: Stmt) -> int:
    """How many stand in the text of a launch."""
    match stmt:
        case Barrier():
            return 1
        case Seq(body=items):
            return sum(map(barriers, items))
        case For(body=body):
            return barriers(body)
    return 0


def launch(schedule: te.Schedule) -> Grid:
    (grid,) = grids_of(schedule.func, GENERIC)
    return grid


@pytest.mark.parametrize("tile", TILES, ids=lambda tile: f"{tile.rows}x{tile.columns}")
def test_every_tile_fits_a_group(tile: Tile) -> None:
    schedule = product(tile.rows * 2, tile.columns * 3, tile.depth * 2)
    schedule_tiled(schedule, tile)
    grid = launch(schedule)
    assert grid.groups == (3, 2, 1)
    assert grid.threads == tile.threads <= GENERIC.group_threads
    assert sum(buffer.size * ITEM_BYTES[buffer.dtype] for buffer in grid.shared) <= GENERIC.shared_bytes
    (register,) = grid.registers
    assert register.shape == (tile.thread_rows, tile.thread_columns)


@settings(max_examples=8)
@given(st.integers(8, 40), st.integers(8, 40), st.integers(8, 40), st.sampled_from(TILES[3:]))
def test_the_schedule_keeps_the_meaning_for_any_size(rows: int, columns: int, depth: int, tile: Tile) -> None:
    schedule = product(rows, columns, depth)
    schedule_tiled(schedule, tile)
    launch(schedule)
    generator = np.random.default_rng(0)
    a = generator.integers(-9, 9, (rows, depth)).astype(np.int32)
    b = generator.integers(-9, 9, (depth, columns)).astype(np.int32)
    np.testing.assert_array_equal(interpret(schedule.func, {"a": a, "b": b})["out"], a @ b + 1)


def test_a_step_of_the_depth_has_two_barriers() -> None:
    """One before the tiles are written over, one before they are read."""
    schedule = product(64, 64, 64)
    schedule_tiled(schedule, TILES[3])
    assert barriers(launch(schedule).body) == 2


def test_small_products_have_no_tile() -> None:
    assert choose_tile(1, 1, 1000, 1000, GENERIC) is None
    assert choose_tile(1, 1000, 1000, 4, GENERIC) is None
    assert choose_tile(4, 512, 512, 64, GENERIC) == TILES[0]


def convolution(x: tuple[int, ...], w: tuple[int, ...], dtype: str = "float32", **attrs: Any) -> Module:
    generator = np.random.default_rng(1)
    data = variable("x", dtype, *x)
    if dtype == "int8":
        weights = Constant(generator.integers(-128, 128, w).astype(np.int8))
        return module_of([data], call("conv2d", data, weights, **attrs))
    weights = Constant(generator.normal(size=w).astype(np.float32))
    return module_of([data], call("nn.abs", call(f"nn.conv{len(x) - 2}d", data, weights, **attrs)))


def matmul(dtype: str, left: tuple[int, ...], right: tuple[int, ...]) -> Module:
    a, b = variable("a", dtype, *left), variable("b", dtype, *right)
    node: Call = call("nn.matmul", a, b)
    return module_of([a, b], node)


@pytest.mark.parametrize(
    ("module", "tolerance"),
    [
        (matmul("float32", (2, 70, 33), (2, 33, 50)), 1e-5),
        (matmul("float16", (40, 33), (33, 50)), 1e-3),
        (matmul("int32", (2, 16, 64), (64, 16)), 0.0),
        (convolution((2, 16, 9, 11), (24, 16, 3, 3), pads=(1, 1, 1, 1)), 1e-5),
        (convolution((2, 16, 9, 11), (32, 8, 3, 2), pads=(1, 0, 1, 1), strides=(2, 1), groups=2), 1e-5),
        (convolution((1, 8, 4, 5, 6), (16, 8, 2, 3, 3), pads=(0, 1, 1, 1, 1, 0)), 1e-5),
        (convolution((1, 16, 9, 9), (32, 16, 3, 3), "int8", pads=(1, 1, 1, 1), pad_value=-7, strides=(2, 2)), 0.0),
    ],
    ids=["batch", "half", "int", "conv", "groups", "volume", "bytes"],
)  # fmt: skip
def test_on_a_device(module: Module, tolerance: float) -> None:
    model = check(module, tolerance)
    assert isinstance(model, weft.CompiledModel)
    assert "tiled" in {layer.kind for layer in model.layers}
