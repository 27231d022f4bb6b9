"""Tiles of floats: what a step keeps in registers beside its sums, and what stays in memory."""

from __future__ import annotations

import re

import llvmlite.ir as ll
import numpy as np
import pytest
from weft.compiler import tensor as t
from weft.compiler.targets.cpu.convolution import CpuConvolutions
from weft.compiler.targets.cpu.intrinsics import intrinsic_named
from weft.compiler.targets.cpu.llvm.emit import emit_kernel
from weft.compiler.targets.cpu.processor import PROCESSORS, host_target, named_target
from weft.compiler.targets.cpu.products import product_tile, rated_product_tiles
from weft.compiler.targets.cpu.tiles import Held, held_registers, pieces
from weft.compiler.targets.loops.kernels import Tile

from .jit import run_compiled
from .test_byte_forms import loop_of

PRODUCT = """def product(
    a: float32[ROWS, 40] @ "global",
    b: float32[40, LANES] @ "global",
    out: float32[ROWS, LANES] @ "global",
):
    with allocate(float32[ROWS, LANES] @ "register") as acc:
        for r in unroll(ROWS):
            for l in vectorize(LANES):
                with block("begin", "spatial"):
                    acc[r, l] = out[r, l]
        for k in range(40):
            outer_product_ROWS_LANES_40("sums",
                acc=tile(acc[0, 0], [ROWS, LANES], [LANES, 1]),
                a=tile(a[0, k], [ROWS], [40]),
                b=tile(b[k, 0], [LANES], [1]),
                over=[k])
        for s in unroll(ROWS):
            for m in vectorize(LANES):
                with block("end", "spatial"):
                    out[s, m] = acc[s, m]
"""

TILES = [(7, 16), (14, 8), (3, 32), (2, 48), (1, 112), (6, 16), (4, 20), (2, 50), (7, 12)]


def product(rows: int, lanes: int) -> t.PrimFunc:
    return t.parse(PRODUCT.replace("ROWS", str(rows)).replace("LANES", str(lanes)), intrinsic_named)


@pytest.mark.parametrize(("rows", "lanes"), TILES)
def test_a_step_adds_the_outer_product_whatever_it_keeps(level: str, rows: int, lanes: int) -> None:
    random = np.random.default_rng(rows * lanes)
    a, b, out = (random.integers(-9, 9, shape).astype(np.float32) for shape in ((rows, 40), (40, lanes), (rows, lanes)))
    found = run_compiled(product(rows, lanes), {"a": a, "b": b, "out": out}, host_target())["out"]
    np.testing.assert_array_equal(found, out + a @ b)


@pytest.mark.parametrize(
    ("rows", "parts", "held"),
    [(6, 2, Held(2)), (4, 3, Held(3)), (3, 4, Held(0, values=True)), (2, 6, Held(0, values=True)),
     (7, 2, Held(1, again=6)), (2, 7, Held(1, again=6)), (14, 1, Held(1)), (8, 2, None), (5, 3, None)],
)  # fmt: skip
def test_what_a_step_keeps_with_sixteen_registers(rows: int, parts: int, held: Held | None) -> None:
    assert held_registers(rows, parts, named_target("x86-64-v3")) == held
    if held != Held(parts):
        for name in ("x86-64-v2", "armv7a"):  # whose multiply-adds take no operand in memory
            assert held_registers(rows, parts, named_target(name)) is None


@pytest.mark.parametrize(("rows", "lanes"), [(7, 16), (3, 32), (2, 48), (6, 16), (1, 112)])
def test_a_step_of_sixteen_registers_leaves_no_sum_on_the_stack(rows: int, lanes: int) -> None:
    """Weights that are operands in memory are so for each row: LLVM would hold them, and put sums on the stack."""
    target, unit = named_target("x86-64-v3"), ll.Module("kernel")
    emit_kernel(unit, product(rows, lanes), target, 1, {}, proved=True)
    loop, count = loop_of(str(unit), target, "vfmadd[0-9]+ps")
    parts = lanes // target.float_lanes
    assert count % (rows * parts) == 0
    assert not [line for line in loop if re.search(r"\((%rsp|%rbp)", line)]
    again = sum("vfmadd" in line and "(" in line for line in loop) * rows * parts // count
    held = held_registers(rows, parts, target)
    assert held is not None
    assert not held.again or again >= rows * (parts - held.weights)


@pytest.mark.parametrize(
    ("name", "rows", "lanes", "depth", "lines"),
    [("x86-64-v3", 7, 16, 2000, 1), ("x86-64-v3", 3, 32, 2000, 2), ("x86-64-v4", 14, 32, 2000, 2),
     ("x86-64-v3", 7, 16, 40, 0), ("x86-64-v3", 2, 48, 2000, 0), ("aarch64", 4, 16, 2000, 0)],
)  # fmt: skip
def test_weights_that_leave_the_nearest_cache_are_brought_nearer(
    name: str, rows: int, lanes: int, depth: int, lines: int
) -> None:
    """Not where the cache holds all of them, where units that load have no time to spare, or on boards."""
    text = PRODUCT.replace("ROWS", str(rows)).replace("LANES", str(lanes)).replace("40", str(depth))
    func, unit = t.parse(text, intrinsic_named), ll.Module("kernel")
    emit_kernel(unit, func, named_target(name), 1, {}, proved=True)
    assert str(unit).count('call void @"llvm.prefetch.p0"') == lines


def test_columns_that_do_not_follow_each_other_are_not_brought_nearer() -> None:
    """What lies behind them belongs to other columns."""
    text = PRODUCT.replace("ROWS", "7").replace("40", "2000").replace("b: float32[2000, LANES]", "b: float32[2000, 99]")
    func, unit = t.parse(text.replace("LANES", "16"), intrinsic_named), ll.Module("kernel")
    emit_kernel(unit, func, named_target("x86-64-v3"), 1, {}, proved=True)
    assert "prefetch" not in str(unit)


@pytest.mark.parametrize("width", [3, 7, 14, 28, 56])
def test_rows_of_images_leave_few_pixels_of_tiles_unused(width: int) -> None:
    """Seven pixels were two tiles of four, 56 were ten of six."""
    tile = CpuConvolutions(named_target("x86-64-v3")).tile(width, 64, 16, "floats")
    assert -(-width // tile.rows) * tile.rows <= 1.08 * width
    sums = tile.rows * len(pieces(tile.lanes, 8))
    assert sums >= 12


@pytest.mark.parametrize("name", PROCESSORS)
@pytest.mark.parametrize(
    "shape", [(1, 256), (1, 1000), (7, 196), (196, 196), (512, 196), (128, 197), (49, 1000)], ids=str
)
def test_sums_of_products_are_in_registers(name: str, shape: tuple[int, int]) -> None:
    """A tile of one row had as many sums as fit into 256 lanes, of which sixteen registers hold fourteen."""
    target = named_target(name)

    def sums(tile: Tile) -> int:
        return tile.rows * len(pieces(tile.lanes, target.float_lanes))

    for constant in (False, True):
        assert max(sums(tile) for _, tile in rated_product_tiles(*shape, 256, constant, target)) <= target.registers - 2
        assert sums(product_tile(*shape, 256, constant, target)) <= target.registers - 2


def test_many_rows_share_columns_that_leave_the_nearest_cache() -> None:
    """One row of 98 columns loads as much as it multiplies, from the second level: half of what six rows reach."""
    for name in ("x86-64-v3", "x86-64-v4"):
        assert product_tile(512, 196, 256, True, named_target(name)).rows > 1
