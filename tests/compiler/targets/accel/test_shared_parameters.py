"""Parameters of a requantise that all channel groups share are packed once, loaded once, and stay for all tiles."""

from __future__ import annotations

import numpy as np
import pytest
from weft.compiler.graph import Constant, Expr, Function, GraphError, call
from weft.compiler.model import CompiledModel
from weft.compiler.targets.accel.cost.tile_costs import entries_of, tilings
from weft.compiler.targets.accel.operators import packed_layout
from weft.compiler.targets.accel.operators.lower import lower_function
from weft.compiler.targets.accel.operators.packed_layout import Blocks
from weft.compiler.targets.accel.schedule.tiling import ChainTiling, Problem
from weft.hw.config import TINY, CoreConfig
from weft.hw.isa import Load, Scratchpad
from weft.hw.programs import disassemble

from .chains import ChainCase, LayerCase, chain_function
from .kernels import Build, check, program_of

UNIFORM, VARIED = 1, 0
"""Seeds of builds whose channels have the same parameters, and parameters of their own."""


def parameters(channels: int, *, uniform: bool, blocks: Blocks) -> np.ndarray:
    bias = np.full(channels, 5, np.int32) if uniform else np.arange(channels, dtype=np.int32)
    return packed_layout.pack_parameters(
        bias, np.full(channels, 1 << 23, np.int32), np.full(channels, 24, np.int32), blocks
    )


def test_parameters_that_all_groups_share_are_packed_once() -> None:
    blocks = Blocks(2, 4, 8)
    shared = parameters(32, uniform=True, blocks=blocks)
    assert shared.shape == (1, 3, 2, 2, 4)
    assert shared[0, :, 0, 0, 0].tolist() == [5, 1 << 23, 24]
    assert parameters(32, uniform=False, blocks=blocks).shape == (4, 3, 2, 2, 4)


def test_channels_that_fill_no_block_keep_parameters_that_give_padding_zero() -> None:
    packed = parameters(30, uniform=True, blocks=Blocks(1, 8, 8))
    assert packed.shape == (4, 3, 1, 1, 8)
    assert packed[3, :, 0, 0, -1].tolist() == [0, 0, 1]


def addition(config: CoreConfig, seed: int, channels: int = 32) -> Function:
    build = Build(config, seed)
    x = build.input(1, channels, 6, 5)
    both: Expr = build.op("multiply_accumulate", build.op("multiply_immediate", x, weight=3), build.like(x), weight=5)
    return build.function(build.requantise(both, channels, 1000))


def loaded(model: CompiledModel) -> int:
    """Entries of parameters that a model of one program loads."""
    program = disassemble(model.config, program_of(model).program)
    loads = (each for each in program if isinstance(each, Load) and each.scratchpad is Scratchpad.ACC)
    return sum(each.rows * each.columns for each in loads)


@pytest.mark.parametrize("threads", [1, 2])
def test_they_are_loaded_once(threads: int) -> None:
    groups = 32 // TINY.block_out
    assert loaded(check(addition(TINY, VARIED), TINY, threads)) == 3 * groups
    assert loaded(check(addition(TINY, UNIFORM), TINY, threads)) == 3


def test_they_take_room_for_one_group() -> None:
    kernels = [lower_function(addition(TINY, seed)) for seed in (VARIED, UNIFORM)]
    problems = [Problem(TINY, kernel, 1) for kernel in kernels]
    assert [(problem.parameters, problem.kernel.section.shared_parameters) for problem in problems] == [(3, 0), (0, 3)]
    tiling = tilings(problems[0])[0]
    varied, shared = (entries_of(problem, tiling)["acc"] for problem in problems)
    assert varied - shared == 3 * (tiling.groups - 1)


FIRST_SHARED = 1
"""Seed of a chain of two layers the first of which has parameters that all channels share."""


@pytest.mark.parametrize(("resident", "times"), [(True, 1), (False, 6)])
def test_a_chain_loads_them_once_for_all_tiles(resident: bool, times: int) -> None:
    tiling = ChainTiling(2, 2, 2, 4, "yxc", 2, 2, 1, resident=resident, skewed=resident)
    layers = (LayerCase("dense", 16), LayerCase("dense", 8))
    function = chain_function(ChainCase((1, 8, 6, 4), layers, seed=FIRST_SHARED), TINY, tiling=tiling)
    assert loaded(check(function, TINY)) == 3 + times * 3 * 8 // TINY.block_out


def test_a_function_calls_for_one_group_or_all() -> None:
    build = Build(TINY)
    x = build.input(1, 16, 2, 2)
    two = Constant(np.repeat(parameters(16, uniform=True, blocks=build.blocks), 2, axis=0))
    with pytest.raises(GraphError, match=r"the parameters must be .* or "):
        call("packed_requantise", x, two, blocks=build.blocks.sizes)
