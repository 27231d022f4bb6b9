"""Cores on which a pixel takes several entries: they lie together in the scratchpads, so rows of pixels are bursts."""

from __future__ import annotations

from dataclasses import replace

import pytest
from weft.compiler.graph import Function
from weft.compiler.targets.accel.cost.space import lower_bound
from weft.compiler.targets.accel.cost.tile_costs import tilings
from weft.compiler.targets.accel.operators.lower import lower_function
from weft.compiler.targets.accel.schedule.schedule import schedule_kernel
from weft.compiler.targets.accel.schedule.tiling import Problem
from weft.compiler.targets.errors import CompileError
from weft.hw.config import PYNQ, CoreConfig
from weft.hw.dram_rate import DramRate
from weft.hw.isa import Engine, Load, Loop, Scratchpad, Store
from weft.hw.programs import disassemble
from weft.sim.dram import DramModel
from weft.sim.timing import predict

from ..kernels import Build, check, compile_function, program_of

CORES = [
    replace(PYNQ, name=f"{batch}x{block_in}x{block_out}", batch=batch, block_in=block_in, block_out=block_out,
            depthwise=0)
    for batch, block_in, block_out in ((2, 16, 8), (1, 16, 4), (1, 8, 16), (1, 4, 32))
]  # fmt: skip
SLOW = DramRate(bytes_per_cycle=4, latency=400)


def layer(config: CoreConfig, kind: str) -> Function:
    """A layer of 64 channels on a picture of 24 x 10 pixels."""
    build, channels = Build(config), 64
    x = build.input(config.batch, channels, 24, 10)
    if kind == "depthwise":
        y = build.depthwise(x, channels, (3, 3), pads=(1, 1, 1, 1))
    elif kind == "residual":
        y = build.conv(x, channels, channels, (1, 1))
        y = build.op("add", y, build.like(y))
    elif kind == "sum":
        y = build.op("add", x, build.input(config.batch, channels, 24, 10))
    elif kind == "pool":
        y = build.op("max_pool", x, kernel=(3, 3), pads=(1, 1, 1, 1))
    else:
        y = build.conv(x, channels, channels, (3, 3), pads=(1, 1, 1, 1))
    return build.function(build.requantise(y, channels, 1e5))


KINDS = ("conv", "residual", "depthwise", "sum", "pool")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("config", CORES, ids=lambda config: config.name)
def test_no_burst_is_a_single_entry(config: CoreConfig, kind: str) -> None:
    copies = [
        each for each in disassemble(config, program_of(check(layer(config, kind), config)).program)
        if isinstance(each, Store)
        or (isinstance(each, Load) and each.rows and each.scratchpad in (Scratchpad.INP, Scratchpad.ACC8))
    ]  # fmt: skip
    assert any(isinstance(each, Store) for each in copies)
    narrow = [each for each in copies if each.columns == 1 and each.rows > 1 and each.stride != 1]
    assert not narrow, narrow[0]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("config", CORES, ids=lambda config: config.name)
def test_a_slow_memory_costs_what_its_bytes_do(config: CoreConfig, kind: str) -> None:
    function = layer(config, kind)
    step = program_of(compile_function(function, config, dram=SLOW))
    dram = DramModel(latency=SLOW.latency, bytes_per_cycle=SLOW.bytes_per_cycle)
    cycles = predict(config, step.program, dram, offset=step.program_offset).cycles
    bound = lower_bound(Problem(config, lower_function(function), 2, rate=SLOW))
    assert cycles is not None
    assert cycles <= 1.4 * bound + 3 * SLOW.latency, f"{cycles} cycles are {cycles / bound:.2f} times the bound"


def test_rows_of_a_matrix_go_past_the_same_parameters() -> None:
    """A requantise reads new parameters in three cycles, so the vector engine takes all rows of a channel group."""
    build = Build(PYNQ, seed=3)  # each channel has parameters of its own
    product = build.conv(build.input(32, 64, 1, 1), 64, 128, (1, 1))
    program = program_of(check(build.function(build.requantise(product, 128, 1e5)), PYNQ)).program
    innermost = [
        each for each in disassemble(PYNQ, program)
        if isinstance(each, Loop) and each.engine is Engine.VECTOR and each.level == 0
    ]  # fmt: skip
    assert innermost
    assert all(loop.extent > 1 and loop.b_stride == 0 for loop in innermost)


def test_a_tile_of_some_of_a_pixels_inputs_is_refused() -> None:
    config = CORES[2]
    problem = Problem(config, lower_function(layer(config, "conv")), 2)
    assert problem.reductions == (8, 4, 2)
    assert problem.whole_units(3) == 4
    tiling = replace(tilings(problem)[0], reduction=3)
    with pytest.raises(CompileError, match="3 input channel groups at a time, of which 2 lie together"):
        schedule_kernel(problem.kernel, config, tiling)
