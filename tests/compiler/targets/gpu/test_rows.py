"""Long reductions, of which a group's threads each do a part."""

from __future__ import annotations

import pytest
from weft.compiler.graph import Expr, Module, call
from weft.compiler.model import HostStep
from weft.compiler.targets.gpu.devices import DEVICES
from weft.compiler.targets.gpu.launches import Grid
from weft.compiler.targets.gpu.phases import grids_of
from weft.compiler.tensor.parser import parse

from .graphs import check, module_of, variable

GENERIC = DEVICES["generic"]


def launches(module: Module) -> list[Grid]:
    """Check the module on a device; its launches."""
    model = check(module)
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
