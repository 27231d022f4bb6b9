"""Chains of layers on the core: NumPy's integers for any shapes, tiles and cores, on the simulator and on the RTL."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from functools import cache, partial
from math import prod

import numpy as np
import pytest
from weft.compiler.graph import Function, evaluate_function
from weft.compiler.targets.accel.cost.chain_tiling import chain_tilings
from weft.compiler.targets.accel.link.compile_kernel import append
from weft.compiler.targets.accel.operators.depthwise_mode import in_depthwise_mode
from weft.compiler.targets.accel.operators.lower import lower_function
from weft.compiler.targets.accel.passes.chain import Form, on_vector_engine
from weft.compiler.targets.accel.schedule.schedule import schedule_kernel
from weft.compiler.targets.accel.schedule.tiling import ChainTiling, Problem
from weft.compiler.targets.accel.walk.emit import Emitter
from weft.compiler.targets.accel.walk.emit_nest import DramBuffer
from weft.compiler.targets.errors import CompileError, ScratchpadFullError
from weft.compiler.tensor import interpret
from weft.hw.config import TINY, CoreConfig
from weft.hw.isa import Engine, Gemm, Loop, Store, Vector, VectorTarget
from weft.hw.programs import disassemble
from weft.sim.dram import DramModel
from weft.sim.rtl import RtlSimulator
from weft.sim.timing import predict

from .chains import SQUARE, ChainCase, LayerCase, chain_function, pooled_case, random_case
from .kernels import check, compile_function, program_of, write_model
from .operators.test_depthwise_mode import MODES

BLOCK = ChainCase(
    (1, 8, 9, 8),
    (
        LayerCase("dense", 12),
        LayerCase("depthwise", 12, (3, 3), pads=(1, 1, 1, 1)),
        LayerCase("dense", 8, residual=True),
    ),
)
"""An inverted residual block."""

LONG_BOUNDS = 291
"""A case whose bounds of bounds once took hours to simplify."""

IN_PIECES_IN_MODE = (189,)
"""Cases in the depthwise mode for which there is room on their core, but nowhere in one piece."""

POOLS = ("average", "maximum")

TILING = ChainTiling(2, 4, 4, 1, "yxc", 2, 4, 1)


@cache
def random_tiling(case: ChainCase, config: CoreConfig, form: Form = on_vector_engine) -> ChainTiling | None:
    """One that should fit, as likely bad as good."""
    chance = random.Random(case.seed)
    found = chain_tilings(Problem(config, lower_function(chain_function(case, config, form)), 1))
    if not found:
        return None
    chosen = found[chance.randrange(len(found))]
    return replace(chosen, resident=chance.random() < 0.5, skewed=chance.random() < 0.7, ahead=chance.random() < 0.5)


def cases(seeds: Sequence[int]) -> list[tuple[ChainCase, CoreConfig, ChainTiling]]:
    """Chains for which there is a tile, by seed."""
    found = []
    for seed in seeds:
        case, config = random_case(seed), SQUARE[seed % len(SQUARE)]
        tiling = random_tiling(case, config)
        if tiling is not None:
            found.append((case, config, tiling))
    return found


@pytest.mark.parametrize(("case", "config", "tiling"), cases(range(24)), ids=str)
def test_a_chain_of_any_layers_equals_numpy(case: ChainCase, config: CoreConfig, tiling: ChainTiling) -> None:
    model = check(chain_function(case, config, tiling=tiling), config)
    assert model.layers[-1].kind == "chain"


def pooled_cases(seeds: Sequence[int]) -> list[tuple[ChainCase, CoreConfig, ChainTiling]]:
    """Chains with poolings for which there is a tile, by seed."""
    found = []
    for seed in seeds:
        case, config = pooled_case(seed), SQUARE[seed % len(SQUARE)]
        tiling = random_tiling(case, config) if any(each.kind in POOLS for each in case.layers) else None
        if tiling is not None:
            found.append((case, config, tiling))
    return found


@pytest.mark.parametrize(("case", "config", "tiling"), pooled_cases(range(24)), ids=str)
def test_a_chain_with_poolings_equals_numpy(case: ChainCase, config: CoreConfig, tiling: ChainTiling) -> None:
    model = check(chain_function(case, config, tiling=tiling), config)
    assert model.layers[-1].kind == "chain"


@pytest.mark.long
@pytest.mark.parametrize("seed", range(24, 300))
def test_many_chains_with_poolings_equal_numpy(seed: int) -> None:
    for case, config, tiling in pooled_cases([seed]):
        check(chain_function(case, config, tiling=tiling), config)


def rolling_cases(seeds: Sequence[int]) -> list[tuple[ChainCase, CoreConfig, ChainTiling]]:
    """Chains of which a layer finds rows where the tile above left them, by seed."""
    found = []
    for seed in seeds:
        case, config = pooled_case(seed), SQUARE[seed % len(SQUARE)]
        tilings = chain_tilings(Problem(config, lower_function(chain_function(case, config)), 1))
        rolling = [tiling for tiling in tilings if tiling.rolling]
        if rolling:
            chance = random.Random(seed)
            chosen = chance.choice(rolling)
            resident, skewed, ahead = (chance.random() < 0.6 for _ in range(3))
            found.append((case, config, replace(chosen, resident=resident, skewed=skewed, ahead=ahead)))
    return found


STEM = ChainCase((1, 8, 12, 11), (LayerCase("dense", 8), LayerCase("maximum", 8, (3, 3), (2, 2), (1, 1, 1, 1))))
"""The first layers of a ResNet."""

STEM_ROLLED = ChainTiling(2, 1, 3, 0, "xyc", 2, 1, 1, ahead=True, rolling=True)


@pytest.mark.parametrize(("case", "config", "tiling"), [(STEM, TINY, STEM_ROLLED), *rolling_cases(range(22))], ids=str)
def test_a_chain_with_rows_that_stay_equals_numpy(case: ChainCase, config: CoreConfig, tiling: ChainTiling) -> None:
    check(chain_function(case, config, tiling=tiling), config)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(22, 160))
def test_many_chains_with_rows_that_stay_equal_numpy(seed: int) -> None:
    for case, config, tiling in rolling_cases([seed]):
        check(chain_function(case, config, tiling=tiling), config)


@pytest.mark.parametrize("rows", [1, 2, 3, 4])
def test_rows_that_stay_are_multiplied_once(rows: int) -> None:
    deep = replace(TINY, name="tiny-deep", inp_depth=512, acc_depth=1024)
    tiling = replace(STEM_ROLLED, rows=rows, columns=6, epilogue_rows=rows)
    program = disassemble(deep, program_of(check(chain_function(STEM, deep, tiling=tiling), deep)).program)
    extents: dict[int, int] = {}
    products = 0
    for each in program:
        if isinstance(each, Loop) and each.engine is Engine.GEMM:
            extents[each.level] = each.extent
        elif isinstance(each, Gemm):
            products += prod(extents[level] for level in range(each.levels))
    assert products == 12 * 11 * 2 * 2  # two groups of four channels from two


def mode_cases(seeds: Sequence[int]) -> list[tuple[ChainCase, CoreConfig, ChainTiling]]:
    """Chains with depthwise layers, on cores that have a mode for them."""
    found = []
    for seed in seeds:
        case, config = random_case(seed), MODES[seed % len(MODES)]
        windows = [each for each in case.layers if each.kind == "depthwise" and each.dilations[0] % 2]
        tiling = random_tiling(case, config, in_mode(config)) if windows else None
        if tiling is not None:
            found.append((case, config, tiling))
    return found


def check_or_refuse(function: Function, config: CoreConfig, *, fits: bool) -> None:
    if fits:
        check(function, config)
        return
    with pytest.raises(ScratchpadFullError, match="in one piece"):
        check(function, config)


@cache
def in_mode(config: CoreConfig) -> Form:
    return partial(in_depthwise_mode, config)


@pytest.mark.parametrize(("case", "config", "tiling"), mode_cases([*range(24), LONG_BOUNDS]), ids=str)
def test_a_chain_in_the_depthwise_mode_equals_numpy(case: ChainCase, config: CoreConfig, tiling: ChainTiling) -> None:
    function = chain_function(case, config, in_mode(config), tiling=tiling)
    program = disassemble(config, program_of(check(function, config)).program)
    assert any(each.depthwise for each in program if isinstance(each, Gemm))
    plain = chain_function(case, config)
    chance = np.random.default_rng(case.seed)
    arrays = [chance.integers(-128, 128, param.type.shape).astype(np.int8) for param in function.params]
    np.testing.assert_array_equal(evaluate_function(function, arrays), evaluate_function(plain, arrays))


@pytest.mark.long
@pytest.mark.parametrize("seed", range(24, 300))
def test_many_chains_in_the_depthwise_mode_equal_numpy(seed: int) -> None:
    for case, config, tiling in mode_cases([seed]):
        fits = case.seed not in IN_PIECES_IN_MODE
        check_or_refuse(chain_function(case, config, in_mode(config), tiling=tiling), config, fits=fits)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(24, 200))
def test_many_chains_equal_numpy(seed: int) -> None:
    for case, config, tiling in cases([seed]):
        check(chain_function(case, config, tiling=tiling), config)


@pytest.mark.parametrize(
    ("case", "config", "tiling"),
    [(BLOCK, TINY, TILING), (STEM, TINY, STEM_ROLLED), *cases(range(12))[::4], *pooled_cases(range(8))[::2]],
    ids=str,
)
def test_the_rtl_gives_the_same_in_the_predicted_cycles(
    case: ChainCase, config: CoreConfig, tiling: ChainTiling
) -> None:
    equal_on_the_rtl(case, config, chain_function(case, config, tiling=tiling))


@pytest.mark.parametrize(("case", "config", "tiling"), mode_cases(range(16))[::3], ids=str)
def test_the_rtl_gives_the_same_in_the_depthwise_mode(case: ChainCase, config: CoreConfig, tiling: ChainTiling) -> None:
    equal_on_the_rtl(case, config, chain_function(case, config, in_mode(config), tiling=tiling))


def equal_on_the_rtl(case: ChainCase, config: CoreConfig, function: Function) -> None:
    """NumPy's integers, in the cycles that the timing model predicts."""
    model = compile_function(function, config)
    chance = np.random.default_rng(case.seed)
    arrays = [chance.integers(-128, 128, param.type.shape).astype(np.int8) for param in function.params]
    inputs = {param.name: array for param, array in zip(function.params, arrays, strict=True)}
    dram, step = DramModel(latency=30), program_of(model)
    simulator = RtlSimulator(config, model.core.window_bytes, dram=dram)
    write_model(simulator, model, inputs)
    count = len(step.program) // config.instruction_bytes
    result = simulator.run(step.program_offset, count, window_bytes=model.core.window_bytes)
    assert result.fault is None, str(result.fault)
    (name,) = step.outputs
    slot = model.core.slots[name]
    found = simulator.dram[slot.offset : slot.offset + slot.nbytes].view(slot.dtype).reshape(slot.shape)
    np.testing.assert_array_equal(found, evaluate_function(function, arrays))
    assert predict(config, step.program, dram, offset=step.program_offset).cycles == result.cycles


@pytest.mark.parametrize("resident", [False, True])
@pytest.mark.parametrize("skewed", [False, True])
@pytest.mark.parametrize("ahead", [False, True])
def test_every_way_through_a_block_equals_numpy(resident: bool, skewed: bool, ahead: bool) -> None:
    tiling = replace(TILING, resident=resident, skewed=skewed, ahead=ahead)
    check(chain_function(BLOCK, TINY, tiling=tiling), TINY)


def test_the_loops_of_a_chain_mean_the_same_before_they_are_instructions() -> None:
    function = chain_function(BLOCK, TINY)
    kernel = lower_function(function)
    schedule = schedule_kernel(kernel, TINY, TILING)
    x = np.random.default_rng(0).integers(-128, 128, function.params[0].type.shape).astype(np.int8)
    arrays = {tensor.name: np.asarray(value) for tensor, value in kernel.constants}
    arrays |= {kernel.inputs[0].name: x, kernel.output.name: np.zeros(kernel.output.shape, np.int8)}
    result = interpret(schedule.func, arrays)[kernel.output.name]
    np.testing.assert_array_equal(result, evaluate_function(function, [x]))


def test_nothing_between_the_layers_goes_to_dram() -> None:
    model = check(chain_function(BLOCK, TINY, tiling=TILING), TINY)
    program = disassemble(TINY, program_of(model).program)
    stored = sum(each.rows * each.columns for each in program if isinstance(each, Store))
    assert stored == 9 * 8 * 2  # the result: two groups of four channels
    assert {each.target for each in program if isinstance(each, Vector)} == {*VectorTarget} - {VectorTarget.TAB}


def tiles_in_order(tiling: ChainTiling) -> list[int]:
    """Of the products and the vector work, in the order of the stream."""
    kernel = lower_function(chain_function(BLOCK, TINY))
    emitter = Emitter(TINY)
    places = {tensor.name: DramBuffer(0) for tensor in (*kernel.inputs, kernel.output)}
    append(emitter, [(kernel, places, tiling)], 0, None)
    return [each.tile for each in emitter.issues if isinstance(each.instruction, Gemm | Vector)]


def test_layers_of_neighbouring_tiles_stand_side_by_side() -> None:
    skewed, plain = (tiles_in_order(replace(TILING, skewed=skewed)) for skewed in (True, False))
    assert plain == sorted(plain)
    assert sorted(skewed) == plain
    assert skewed != plain


def test_what_does_not_fit_the_core_is_refused() -> None:
    wide = replace(TINY, name="tiny-wide-in", block_in=8)
    layers = (LayerCase("dense", 12), LayerCase("dense", 8))
    with pytest.raises(CompileError, match="only where block_in and block_out are equal"):
        lower_function(chain_function(ChainCase((1, 8, 4, 4), layers), wide))
