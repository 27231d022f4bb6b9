"""Moves that turn axes, by tiles in shared memory."""

from __future__ import annotations

from functools import partial
from math import prod

import numpy as np
import pytest
import weft
from hypothesis import given, settings
from hypothesis import strategies as st
from weft.compiler import tensor as te
from weft.compiler.graph import Module, call
from weft.compiler.model import HostStep
from weft.compiler.targets.gpu.attempts import scheduled_by_one_of
from weft.compiler.targets.gpu.devices import DEVICES
from weft.compiler.targets.gpu.launches import Grid
from weft.compiler.targets.gpu.phases import grids_of
from weft.compiler.targets.gpu.transposed import LEAST_ELEMENTS, THREADS, TILE, by_turned_tiles
from weft.compiler.tensor.interpreter import interpret
from weft.compiler.tensor.parser import parse

from .counting import counted, sectors
from .graphs import check, module_of, variable

GENERIC = DEVICES["generic"]


def turned(shape: tuple[int, ...], perm: tuple[int, ...], dtype: str = "float32") -> Module:
    x = variable("x", dtype, *shape)
    return module_of([x], call("transpose", x, perm=perm))


def launch(model: weft.CompiledModel) -> Grid:
    """The one launch of a model for OpenCL."""
    (step,) = model.steps
    assert isinstance(step, HostStep)
    (code,) = step.program.kernels
    (grid,) = grids_of(parse(code.text), GENERIC)
    return grid


@pytest.mark.parametrize("dtype", ["int8", "float16", "float32", "int64", "bool"])
def test_whole_tiles_move_the_fewest_sectors_without_conflicts(dtype: str) -> None:
    rows, columns = 8 * TILE, 9 * TILE
    (found,) = counted(turned((rows, columns), (1, 0), dtype))
    needed, fewest = sectors(found.counts)
    item = {"int8": 1, "float16": 2, "float32": 4, "int64": 8, "bool": 1}[dtype]
    assert needed == fewest == 2 * rows * columns * item // 32
    assert found.counts.conflicts == 0
    assert found.call.groups == (8 * 9, 1, 1)
    assert found.call.threads == THREADS


@pytest.mark.parametrize(
    ("shape", "perm", "groups"),
    [
        ((4, 64, 32, 32), (0, 2, 3, 1), 4 * 2 * 32),
        ((4, 32, 32, 64), (0, 3, 1, 2), 4 * 2 * 32),
        ((8, 128, 4, 32), (0, 2, 3, 1), 8 * 4 * 4),
        ((64, 32, 64), (2, 1, 0), 2 * 32 * 2),
    ],
    ids=["channels last", "channels first", "heads", "reversed"],
)  # fmt: skip
def test_the_innermost_axes_are_tiled(shape: tuple[int, ...], perm: tuple[int, ...], groups: int) -> None:
    (found,) = counted(turned(shape, perm))
    needed, fewest = sectors(found.counts)
    assert needed == fewest
    assert found.counts.conflicts == 0
    assert prod(found.call.groups) == groups
    assert prod(launch(check(turned(shape, perm))).shared[0].shape) == TILE * TILE


@settings(max_examples=8)
@given(st.integers(240, 300), st.integers(280, 330), st.sampled_from(["float32", "int8", "int32", "float16", "int64"]))
def test_any_matrix(rows: int, columns: int, dtype: str) -> None:
    grid = launch(check(turned((rows, columns), (1, 0), dtype)))
    assert bool(grid.shared) == (rows * columns >= LEAST_ELEMENTS)
    if grid.shared:
        assert prod(grid.groups) == -(-rows // TILE) * -(-columns // TILE)


@settings(max_examples=8)
@given(st.permutations(range(4)), st.lists(st.integers(2, 40), min_size=3, max_size=3))
def test_any_order_of_axes(perm: list[int], sizes: list[int]) -> None:
    """The last size is what makes it large enough."""
    shape = (*sizes, -(-LEAST_ELEMENTS // prod(sizes)))
    check(turned(shape, tuple(perm)))


@pytest.mark.parametrize(
    ("shape", "perm"),
    [((16, 16), (1, 0)), ((9000, 8), (1, 0)), ((64, 3, 32, 32), (0, 2, 3, 1)), ((64, 32, 64), (1, 0, 2))],
    ids=["small", "narrow", "few channels", "rows stay"],
)
def test_others_are_moved_without(shape: tuple[int, ...], perm: tuple[int, ...]) -> None:
    assert not launch(check(turned(shape, perm))).shared


def scheduled(schedule: te.Schedule) -> bool:
    return scheduled_by_one_of([partial(by_turned_tiles, device=GENERIC)], schedule, GENERIC)


def test_what_stands_around_is_computed_in_the_same_kernel() -> None:
    """A sum by neighbours of the result, a factor by neighbours of the source, a sum of what is turned, too."""
    rows, columns = 260, 290
    x, y = te.placeholder((columns, rows), "float32", "x"), te.placeholder((columns, rows), "float32", "y")
    z, c = te.placeholder((rows, columns), "float32", "z"), te.placeholder((rows,), "float32", "c")
    out = te.compute((rows, columns), lambda i, j: x[j, i] * c[i] + y[j, i] + z[i, j], "out")
    schedule = te.create_schedule(out, [x, y, z, c])
    assert scheduled(schedule)
    (grid,) = grids_of(schedule.func, GENERIC)
    assert {buffer.name for buffer in grid.shared} == {"x_shared", "y_shared"}
    generator = np.random.default_rng(0)
    values = {each.name: generator.normal(size=each.shape).astype(np.float32) for each in (x, y, z, c)}
    wanted = values["x"].T * values["c"][:, None] + values["y"].T + values["z"]
    np.testing.assert_array_equal(interpret(schedule.func, values)["out"], wanted)


def test_a_source_that_is_read_twice_or_under_a_condition_is_left_alone() -> None:
    size = 256
    x = te.placeholder((size, size), "float32", "x")
    y = te.placeholder((64, 16), "float32", "y")
    repeated = te.compute((64, 64, 16), lambda i, j, k: y[j, k] + y[i, k], "out")
    spread = te.compute((64, 64, 16, 16), lambda j, i, k, n: y[j, n] + x[j, k], "out")
    along = te.compute((40, 8, 8, 64), lambda i, j, k, n: x[n, j], "out")
    twice = te.compute((size, size), lambda i, j: x[j, i] + x[i, j], "out")
    shifted = te.compute((size, size + 1), lambda i, j: te.select(j < size, x[j, i], te.Const(0.0, "float32")), "out")
    for out in (twice, shifted, repeated, spread, along):
        schedule = te.create_schedule(out, [x, y])
        before = str(schedule)
        assert not scheduled(schedule)
        assert str(schedule) == before
