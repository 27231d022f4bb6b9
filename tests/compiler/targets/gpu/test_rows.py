"""Long reductions, of which a group's threads each do a part."""

from __future__ import annotations

from math import prod

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from weft.compiler.graph import Expr, Module, call
from weft.compiler.model import HostStep
from weft.compiler.targets.gpu.columns import LEAST_DEPTH, LONG
from weft.compiler.targets.gpu.devices import DEVICES
from weft.compiler.targets.gpu.launches import Grid
from weft.compiler.targets.gpu.phases import grids_of
from weft.compiler.tensor.parser import parse

from .counting import counted, sectors
from .graphs import check, module_of, variable

GENERIC = DEVICES["generic"]


def launches(module: Module, tolerance: float = 1e-5) -> list[Grid]:
    """Check the module on a device; its launches."""
    model = check(module, tolerance)
    (step,) = model.steps
    assert isinstance(step, HostStep)
    return [grid for code in step.program.kernels for grid in grids_of(parse(code.text), GENERIC)]


def over(op: str, shape: tuple[int, ...], dtype: str = "float32", **attrs: object) -> Module:
    x = variable("x", dtype, *shape)
    node: Expr = call(op, x, **attrs)
    return module_of([x], node)


@pytest.mark.parametrize("columns", [64, 97, 300, 1000])
def test_a_softmax_is_one_launch_with_a_group_for_each_row(columns: int) -> None:
    (grid,) = launches(over("nn.softmax", (2, 3, columns), axis=2))
    assert grid.groups == (6, 1, 1)
    assert 32 <= grid.threads <= GENERIC.threads
    assert not grid.workspace


@pytest.mark.parametrize(
    ("op", "shape", "axes", "dtype"),
    [
        ("nn.reduce_mean", (4, 3, 16, 16), (2, 3), "float32"),
        ("nn.reduce_max", (7, 131), (1,), "int8"),
        ("nn.reduce_product", (3, 65), (1,), "float32"),
        ("nn.reduce_min", (3, 128), (1,), "float16"),
        ("nn.reduce_sum", (70, 5), (0,), "int32"),
    ],
)  # fmt: skip
def test_reductions_of_all_kinds(op: str, shape: tuple[int, ...], axes: tuple[int, ...], dtype: str) -> None:
    grids = launches(over(op, shape, dtype, axes=axes, keepdims=False))
    neighbours = axes[-1] == len(shape) - 1 and op != "nn.reduce_product"
    assert (max(grid.threads for grid in grids) >= 8) == neighbours


def test_a_sum_of_everything_is_shared_by_many_groups() -> None:
    grids = launches(over("nn.reduce_sum", (40, 50, 60), axes=(0, 1, 2), keepdims=True))
    assert grids[0].groups[0] == 64
    assert grids[0].threads == 125
    assert [grid.groups for grid in grids[1:]] == [(1, 1, 1)] * (len(grids) - 1)


def test_a_row_of_a_long_product_with_one_row() -> None:
    x, w = variable("x", "float32", 1, 512), variable("w", "float32", 20, 512)
    (grid,) = launches(module_of([x, w], call("nn.dense", x, w)))
    assert grid.groups == (20, 1, 1)
    assert grid.threads == 128


def test_a_workspace_lies_beside_what_is_alive() -> None:
    """The partial sums are made while the product, which is read again later, is in the arena."""
    x, w = variable("x", "float32", 40, 64), variable("w", "float32", 64, 64)
    product = call("nn.matmul", x, w)
    total = call("nn.reduce_sum", product, axes=(0, 1), keepdims=True)
    assert any(grid.workspace for grid in launches(module_of([x, w], call("nn.add", product, total))))


@pytest.mark.parametrize(
    ("shape", "axes", "dtype"),
    [
        ((1024, 512), (0,), "float32"),
        ((8, 700, 33), (1,), "float16"),
        ((9, 13, 20, 70), (0, 1, 2), "int32"),
        ((5, 331, 48), (1,), "float32"),
        ((6, 16, 28, 12), (0, 1, 2), "int8"),
        ((4, 30, 12, 5, 6), (1, 2), "uint32"),
    ],
    ids=["columns", "middle", "channels last", "prime", "few", "5-D"],
)
@pytest.mark.parametrize("op", ["sum", "max", "min", "mean"])
def test_columns_are_shared_by_many_groups(shape: tuple[int, ...], axes: tuple[int, ...], dtype: str, op: str) -> None:
    """Each thread adds up a part of the depth; the parts are added up by later launches."""
    if op == "mean" and "int" in dtype:
        return
    module = over(f"nn.reduce_{op}", shape, dtype, axes=axes, keepdims=op == "max")
    grids = launches(module, 1e-3 if dtype == "float16" else 1e-5)
    depth, results = prod(shape[axis] for axis in axes), prod(shape) // prod(shape[axis] for axis in axes)
    parts = [buffer for grid in grids for buffer, _ in grid.workspace]
    assert len(grids) >= 2
    assert depth // LEAST_DEPTH // 2 <= parts[0].size // results <= depth // LEAST_DEPTH
    assert parts[-1].size // results <= LONG


@settings(max_examples=10)
@given(st.integers(1, 9), st.integers(LONG + 1, 700), st.integers(1, 90), st.sampled_from(["sum", "max", "min"]),
       st.sampled_from(["float32", "int32", "int8"]))  # fmt: skip
def test_any_columns(outer: int, depth: int, columns: int, op: str, dtype: str) -> None:
    launches(over(f"nn.reduce_{op}", (outer, depth, columns), dtype, axes=(1,), keepdims=False))


def test_a_device_has_four_groups_for_each_multiprocessor() -> None:
    (first, second) = counted(over("nn.reduce_sum", (2048, 1024), axes=(0,), keepdims=False))
    device = DEVICES["sm_80"]
    assert 2 * device.multiprocessors <= first.call.groups[0] <= 4 * device.multiprocessors
    assert first.call.threads == device.threads
    for launch in (first, second):
        needed, fewest = sectors(launch.counts)
        assert needed == fewest
    parts = first.call.groups[0] * device.threads * 4 // 1024
    assert sectors(first.counts)[0] == (2048 + parts) * 1024 * 4 // 32


def test_a_softmax_over_columns_shares_both_of_its_reductions() -> None:
    grids = launches(over("nn.softmax", (300, 70), axis=0))
    assert len(grids) == 6


def test_short_or_many_columns_are_not_shared() -> None:
    assert len(launches(over("nn.reduce_sum", (LONG, 20), axes=(0,), keepdims=False))) == 1
    many = DEVICES["generic"].multiprocessors * DEVICES["generic"].threads * 4
    assert len(launches(over("nn.reduce_max", (2 * LONG, many), "int8", axes=(0,), keepdims=False))) == 1
