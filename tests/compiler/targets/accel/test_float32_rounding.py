"""Layers whose sums a core rounds as float32 does: their integers are those of processors, halves included."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import weft
from weft.compiler.graph import Call, Constant, Expr, call
from weft.hw.config import PYNQ_FLOAT32, TINY, CoreConfig
from weft.hw.isa import Vector, VectorOp
from weft.hw.programs import assemble, disassemble
from weft.verify import verify

from tests.compiler.targets.accel.rounded_layers import made, values
from tests.verify.planted import with_program

FLOAT32 = replace(TINY, name="float32", rounding="float32")
CORES = [FLOAT32, PYNQ_FLOAT32, replace(FLOAT32, batch=2), replace(FLOAT32, block_in=8), replace(FLOAT32, tables=2)]


def quantised(x: Expr, scale: float = 1.0, zero: int = 3) -> Call:
    """Scales are powers of two, so that many sums are halves."""
    constants = Constant(np.float32(scale)), Constant(np.int8(zero))
    return call("dequantise", call("quantise", x, *constants, rounding="float32"), *constants)


def layer(x: Expr, filters: int, *, kernel: int = 1, groups: int = 1, scale: float = 1.0) -> Call:
    random = np.random.default_rng(filters + kernel)
    values = random.integers(-3, 4, (filters, x.shape[1] // groups, kernel, kernel)).astype(np.int8)
    scales = Constant(np.float32(2.0) ** random.integers(-3, 0, filters).astype(np.float32))
    weights = call("dequantise", Constant(values), scales, Constant(np.zeros(filters, np.int8)), axis=0)
    return quantised(call("nn.conv2d", x, weights, groups=groups, pads=(kernel // 2,) * 4), scale)


def given(x: Expr) -> Call:
    return quantised(x, 0.5)


def convolution(x: Expr) -> Call:
    return layer(given(x), 12, kernel=3)


def two_layers(x: Expr) -> Call:
    return layer(layer(given(x), 12, kernel=3), 8, kernel=3)


def depthwise(x: Expr) -> Call:
    return layer(given(x), 8, kernel=3, groups=8)


def residual(x: Expr) -> Call:
    start = layer(given(x), 8)
    return layer(quantised(call("nn.add", layer(start, 8, kernel=3), start)), 8)


def gate(x: Expr) -> Call:
    value = layer(given(x), 8)
    return quantised(call("nn.multiply", value, layer(value, 8)), 32.0)


def through_a_table(x: Expr) -> Call:
    return layer(quantised(call("nn.sigmoid", layer(given(x), 8)), 1 / 256, -128), 8)


def by_constants(x: Expr) -> Call:
    values = np.random.default_rng(1).integers(-99, 99, (1, 8, 1, 1)).astype(np.int8)
    factors = call("dequantise", Constant(values), Constant(np.float32(0.125)), Constant(np.int8(0)))
    return quantised(call("nn.multiply", layer(given(x), 8), factors), 2.0)


LAYERS: list[Callable[[Expr], Call]] = [
    convolution, two_layers, depthwise, residual, gate, through_a_table, by_constants
]  # fmt: skip


def roundings(model: weft.CompiledModel) -> list[int]:
    """Of each requantise of a model whether it rounds in float32."""
    assert model.core is not None
    programs = [disassemble(model.core.config, step.program) for step in model.programs]
    return [each.rounding for program in programs for each in program
            if isinstance(each, Vector) and each.op is VectorOp.REQUANTISE]  # fmt: skip


@pytest.mark.parametrize("body", LAYERS)
@pytest.mark.parametrize(
    "config", CORES, ids=lambda core: f"{core.batch}x{core.block_in}x{core.block_out}-{core.tables}"
)
def test_a_core_has_the_integers_of_processors(config: CoreConfig, body: Callable[[Expr], Call]) -> None:
    module, model = made(body, config)
    wanted = weft.load(weft.compile(module, target="cpu")).run(values())["y"]
    assert len(np.unique(wanted)) > 8
    np.testing.assert_array_equal(weft.load(model, "fsim").run(values())["y"], wanted)
    assert any(roundings(model))
    assert verify(model).proved


@pytest.mark.parametrize("body", [convolution, gate, by_constants])
def test_these_cases_tell_one_rounding_from_the_other(body: Callable[[Expr], Call]) -> None:
    module, model = made(body, TINY)
    wanted = weft.load(weft.compile(module, target="cpu")).run(values())["y"]
    assert np.any(weft.load(model, "fsim").run(values())["y"] != wanted)
    assert not any(roundings(model))


def test_a_requantise_that_rounds_otherwise_is_not_proved() -> None:
    _, model = made(convolution, FLOAT32)
    assert model.core is not None
    config = model.core.config
    instructions = disassemble(config, model.programs[0].program)
    place = next(n for n, each in enumerate(instructions) if isinstance(each, Vector) and each.rounding)
    instructions[place] = replace(instructions[place], rounding=0)  # type: ignore[call-arg]
    assert not verify(with_program(model, 0, assemble(config, instructions))).proved


def test_the_rtl_rounds_so() -> None:
    module, model = made(two_layers, FLOAT32)
    np.testing.assert_array_equal(
        weft.load(model, "rtl").run(values())["y"], weft.load(weft.compile(module, target="cpu")).run(values())["y"]
    )
