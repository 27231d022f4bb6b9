"""Matrices of zeros: no instruction loads them or multiplies with them, and the integers are the same."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from weft.compiler.graph import Constant, Function, call
from weft.compiler.model import CompiledModel
from weft.compiler.targets.accel.operators import packed_layout
from weft.compiler.targets.accel.operators.empty_matrices import Kept, Mask, parts_of
from weft.compiler.targets.accel.operators.lower import lower_function
from weft.compiler.targets.accel.passes.function_signature import signature
from weft.hw.config import PYNQ, TINY, CoreConfig
from weft.hw.isa import Gemm, Load, Loop, Scratchpad
from weft.hw.programs import disassemble
from weft.sim.dram import DramModel
from weft.sim.rtl import RtlSimulator
from weft.sim.timing import predict

from ..kernels import CONFIGS, Build, check, compile_function, program_of, run_on_fsim, write_model

SMALL = replace(TINY, name="tiny-few-weights", wgt_depth=16, inp_depth=64)
"""Reductions are cut into chunks."""


@st.composite
def masks(draw: st.DrawFn) -> Mask:
    shape = draw(st.lists(st.integers(1, 6), max_size=4))
    share, seed = draw(st.sampled_from((0.1, 0.5, 0.9))), draw(st.integers(0, 1 << 30))
    return np.asarray(np.random.default_rng(seed).random(shape) < share)


@given(masks())
def test_parts_are_the_iterations_that_count_each_once(mask: Mask) -> None:
    times = np.zeros(mask.shape, np.int64)
    for part in parts_of(mask):
        times[np.ix_(*(range(first, first + step * count, step) for first, step, count in part))] += 1
    np.testing.assert_array_equal(times, mask)


@given(masks())
def test_parts_of_the_same_outer_iterations_stand_together(mask: Mask) -> None:
    rows = [part[0] for part in parts_of(mask) if part]
    changes = [row for place, row in enumerate(rows) if not place or row != rows[place - 1]]
    assert len(changes) == len(set(changes))
    taken = [index for first, step, count in changes for index in range(first, first + step * count, step)]
    assert len(taken) == len(set(taken))


def test_equal_distances_are_one_part() -> None:
    mask = np.zeros((2, 9), np.bool_)
    mask[0, [1, 4, 7]] = mask[1, [1, 4, 7]] = True
    assert parts_of(mask) == (((0, 1, 2), (1, 3, 3)),)


def sparse(
    config: CoreConfig, seed: int, share: float, channels: int = 23, filters: int = 21,
    kernel: tuple[int, int] = (1, 1), size: tuple[int, int] = (7, 6), empty_groups: bool = True,
) -> Function:  # fmt: skip
    """A convolution of whose matrices a ``share`` is not zero, and perhaps none of the first two output groups."""
    build = Build(config, seed)
    x = build.input(1, channels, *size)
    acc = build.conv(x, channels, filters, kernel, pads=(0, 0, kernel[0] - 1, kernel[1] - 1), pad_value=5)
    weights = acc.args[1]
    assert isinstance(weights, Constant)
    value = weights.value.copy()
    value[build.random.random(value.shape[:-2]) >= share] = 0
    if empty_groups:
        value[:2] = 0
    acc = call(str(acc.op), x, Constant(value), span=acc.span, **acc.attrs)
    return build.function(build.requantise(acc, filters, 40_000))


def instructions(model: CompiledModel) -> list[object]:
    return list(disassemble(model.config, program_of(model).program))


def matrices_loaded(model: CompiledModel) -> int:
    loads = [each for each in instructions(model) if isinstance(each, Load) and each.scratchpad is Scratchpad.WGT]
    return sum(each.rows * each.columns for each in loads)


def products(model: CompiledModel) -> int:
    """Micro-ops of the array."""
    held, total = {}, 0
    for each in instructions(model):
        if isinstance(each, Loop) and each.engine == 2:
            held[each.level] = each.extent
        if isinstance(each, Gemm):
            total += int(np.prod([held.get(level, 1) for level in range(each.levels)], dtype=np.int64))
    return total


@pytest.mark.parametrize("config", [*CONFIGS, SMALL], ids=lambda config: config.name)
@pytest.mark.parametrize("seed", range(3))
def test_a_sparse_layer_equals_numpy_and_skips_what_is_zero(config: CoreConfig, seed: int) -> None:
    share, kernel = (0.15, 0.3, 0.5)[seed], ((1, 1), (3, 2), (1, 3))[seed]
    function = sparse(config, seed, share, kernel=kernel)
    kept = lower_function(function).section.kept
    assert kept is not None
    model = check(function, config, seed=seed)
    dense = compile_function(sparse(config, seed, 1.1, kernel=kernel, empty_groups=False), config)
    assert matrices_loaded(model) < matrices_loaded(dense)
    assert products(model) <= kept.share * products(dense) + 1


def test_a_chunk_without_matrices_starts_the_sum_from_zero() -> None:
    """Where the first input channels of an output group have no matrix, later chunks add to zeros."""
    build = Build(SMALL, 0)
    x = build.input(1, 160, 4, 5)
    acc = build.conv(x, 160, 8, (1, 1))
    weights = acc.args[1]
    assert isinstance(weights, Constant)
    value = weights.value.copy()
    value[:, : value.shape[1] // 2] = 0
    value[0, -1] = 0
    function = build.function(build.requantise(call(str(acc.op), x, Constant(value), **acc.attrs), 8, 40_000))
    model = check(function, SMALL)
    fills = [
        each for each in instructions(model)
        if isinstance(each, Load) and each.scratchpad is Scratchpad.ACC8 and not each.rows
    ]  # fmt: skip
    assert fills


@pytest.mark.parametrize("seed", range(2))
def test_a_sparse_layer_on_the_rtl(seed: int) -> None:
    """The same integers, in the timing model's cycles."""
    model = compile_function(sparse(SMALL, seed, 0.3, kernel=(1, 2)), SMALL)
    (name, slot), *_ = [(each, model.core.slots[each]) for each in program_of(model).inputs]
    random = np.random.default_rng(seed)
    inputs = {name: random.integers(-128, 128, slot.shape).astype(np.int8)}
    memory = DramModel(latency=40)
    simulator = RtlSimulator(SMALL, model.core.window_bytes, dram=memory)
    write_model(simulator, model, inputs)
    step = program_of(model)
    count = len(step.program) // SMALL.instruction_bytes
    result = simulator.run(step.program_offset, count, window_bytes=model.core.window_bytes)
    assert result.fault is None, str(result.fault)
    assert result.cycles == predict(SMALL, step.program, memory, offset=step.program_offset).cycles
    for output, expected in run_on_fsim(model, inputs).items():
        place = model.core.slots[output]
        found = simulator.dram[place.offset : place.offset + place.nbytes].view(place.dtype).reshape(place.shape)
        np.testing.assert_array_equal(found, expected)


def test_groups_of_more_than_a_block_skip_each_others_channels() -> None:
    weights = np.random.default_rng(3).integers(-128, 128, (32, 16, 3, 3)).astype(np.int8)
    build = Build(PYNQ, 4)
    x = build.input(1, 32, 6, 5)
    grouped = packed_layout.dense_weights(weights, 2)
    first = call("packed_conv2d", x, Constant(packed_layout.pack_weights(grouped, build.blocks)),
                 blocks=build.blocks.sizes, pads=(1, 1, 1, 1))  # fmt: skip
    function = build.function(build.requantise(first, 32, 40_000))
    kept = lower_function(function).section.kept
    assert kept is not None
    assert kept.share == 0.5
    model = check(function, PYNQ)
    assert matrices_loaded(model) == 18


def test_dense_layers_leave_nothing_out() -> None:
    function = sparse(TINY, 0, 1.1, empty_groups=False)
    assert lower_function(function).section.kept is None


def test_a_single_empty_matrix_is_not_worth_an_instruction() -> None:
    mask = np.ones((4, 40, 3, 3), np.bool_)
    mask[2, 20, 1, 1] = False
    weights = np.broadcast_to(mask[..., None, None], (*mask.shape, 2, 2))
    assert not Kept.of(weights).saves(pixels=2, load_cycles=1, moving=0)
    assert Kept.of(np.zeros((4, 40, 3, 3, 2, 2), np.int8)).saves(pixels=2, load_cycles=1, moving=0)


def test_where_the_memory_is_the_limit_nothing_is_left_out() -> None:
    half = Kept.of(np.tile(np.array([0, 1], np.int8), 8).reshape(4, 4, 1, 1))
    assert half.saves(pixels=100, load_cycles=4, moving=0)
    assert not half.saves(pixels=100, load_cycles=4, moving=2000)


def test_where_the_zeros_are_distinguishes_kernels() -> None:
    """What is known of one is not taken for the other's."""
    first, second = sparse(TINY, 0, 0.2), sparse(TINY, 1, 0.2)
    assert lower_function(first).signature != lower_function(second).signature
    assert signature(first) != signature(second)


def test_an_output_group_without_matrices_keeps_one() -> None:
    weights = np.zeros((2, 3, 1, 1, 2, 2), np.int8)
    weights[1, 2] = 1
    assert Kept.of(weights).mask[:, :, 0, 0].tolist() == [[True, False, False], [False, False, True]]
