"""Rows are scaled or shifted by one number each on the core, in the lanes of the products behind."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
import weft
from weft.compiler.graph import Attrs, Call, Constant, Expr, Function, Module, TensorType, Var, call, evaluate
from weft.compiler.passes import PassManager, integer_passes
from weft.hw.config import PYNQ, TINY, CoreConfig

ONE = Constant(np.ones((), np.float32))
SHAPES = [(1, 1, 48), (1, 5, 48), (2, 3, 32), (1, 4, 20)]


def quantised(x: Expr, scale: float = 0.05, zero: int = -3) -> Call:
    step, point = Constant(np.float32(scale)), Constant(np.int8(zero))
    return call("dequantise", call("quantise", x, step, point), step, point)


def dense(x: Expr, width: int, scale: float = 0.05) -> Call:
    values = np.random.default_rng(width).integers(-127, 128, (width, x.shape[-1])).astype(np.int8)
    weights = call("dequantise", Constant(values), Constant(np.float32(0.002)), Constant(np.int8(0)))
    flat = call("reshape", x, shape=(math.prod(x.shape[:-1]), x.shape[-1]))
    return quantised(call("reshape", call("nn.dense", flat, weights), shape=(*x.shape[:-1], width)), scale)


def scaled(x: Expr, number: Expr) -> Expr:
    """The number comes to the core as it is."""
    return quantised(call("nn.multiply", x, number), 0.2)


def shifted(x: Expr, number: Expr) -> Expr:
    return quantised(call("nn.add", x, number), 0.1)


def by_its_root(x: Expr, number: Expr) -> Expr:
    """The core makes something of the number first."""
    positive = quantised(call("nn.add", number, Constant(np.float32(0.5))), 0.04, 5)
    return quantised(call("nn.multiply", x, quantised(call("nn.divide", ONE, positive), 0.03)), 0.2)


def compiled(
    build: Callable[[Expr, Expr], Expr], shape: tuple[int, ...], config: CoreConfig, number: Sequence[int]
) -> weft.CompiledModel:
    """Rows, what ``build`` makes of them and a number each, and a product; its integers are those of the contract."""
    x, r = Var("x", TensorType(shape, "float32")), Var("r", TensorType(tuple(number), "float32"))
    body = dense(build(quantised(x), quantised(r, 0.02, 1)), 24)
    module = Module(Function((x, r), body, Attrs({"name": "main", "outputs": ("y",)})))
    model = weft.compile(module, config)
    assert isinstance(model, weft.CompiledModel)
    random = np.random.default_rng(0)
    values = {
        "x": random.normal(0, 3, shape).astype(np.float32),
        "r": random.uniform(0, 2.5, number).astype(np.float32),
    }
    wanted = evaluate(PassManager(integer_passes()).run(module), values)["y"]
    assert len(np.unique(wanted)) > 10
    np.testing.assert_array_equal(weft.load(model, "fsim").run(values)["y"], wanted)
    return model


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("build", [scaled, shifted, by_its_root])
def test_rows_and_their_numbers_are_one_launch(build: Callable[[Expr, Expr], Expr], shape: tuple[int, ...]) -> None:
    """Also where channels fill no block, so that lanes have no number to repeat."""
    assert len(compiled(build, shape, PYNQ, (*shape[:-1], 1)).programs) == 1


@pytest.mark.parametrize("config", [TINY, replace(TINY, name="tiny-wide", block_in=8)], ids=lambda each: each.name)
def test_other_arrays_give_the_same(config: CoreConfig) -> None:
    compiled(by_its_root, (1, 3, 24), config, (1, 3, 1))


def test_a_number_of_each_channel_is_no_number_of_a_row() -> None:
    compiled(scaled, (1, 3, 32), PYNQ, (1, 1, 32))
