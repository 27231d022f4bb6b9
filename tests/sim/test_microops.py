"""GEMM and VECTOR of the functional simulator against one-at-a-time Python integers."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from weft.hw.config import TINY, CoreConfig
from weft.hw.isa import Gemm, Vector, VectorOp, VectorTarget, body_problem
from weft.hw.memories import Memory
from weft.sim.gemm import run_gemm
from weft.sim.loops import LoopLevel, LoopNest
from weft.sim.state import Memories
from weft.sim.vector import run_vector

from . import reference
from .rounding_operands import OPERANDS

SMALL = replace(TINY, inp_depth=32, wgt_depth=16, acc_depth=32, out_depth=16)
DEPTHWISE = replace(SMALL, block_in=16, block_out=16, inp_depth=64, depthwise=1)
CONFIGS = [
    SMALL,
    replace(SMALL, batch=2),
    replace(SMALL, block_in=8, block_out=2, batch=2),
    replace(SMALL, block_in=2, block_out=8, batch=2),
]


def filled(config: CoreConfig, seed: int) -> Memories:
    rng = np.random.default_rng(seed)
    memories = Memories(config)
    memories.inp[...] = rng.integers(-128, 128, memories.inp.shape)
    memories.wgt[...] = rng.integers(-128, 128, memories.wgt.shape)
    span = 2 ** rng.integers(1, 32, memories.acc.shape)
    memories.acc[...] = rng.integers(-span, span, memories.acc.shape)
    if config.tables:
        tab = memories.array(Memory.TAB)
        tab[...] = rng.integers(-128, 128, tab.shape)
    return memories


def assert_equal(actual: Memories, expected: Memories) -> None:
    for name in actual.config.scratchpads:
        np.testing.assert_array_equal(actual.array(name), expected.array(name), err_msg=name)


@st.composite
def loop_levels(draw: st.DrawFn, largest_stride: int) -> list[LoopLevel]:
    stride = st.sampled_from([0, 0, 1, 1, 2, 3, largest_stride])
    return [
        LoopLevel(draw(st.integers(1, 4)), draw(stride), draw(stride), draw(stride))
        for _ in range(draw(st.integers(0, 4)))
    ]


@settings(max_examples=300, deadline=None)
@given(
    config=st.sampled_from(CONFIGS),
    levels=loop_levels(largest_stride=8),
    zero=st.integers(0, 1),
    indices=st.tuples(st.integers(0, 31), st.integers(0, 31), st.integers(0, 15)),
    seed=st.integers(0, 99),
)
def test_gemm_is_micro_ops_one_after_another(config, levels, zero, indices, seed):
    dst, src, wgt = indices
    instruction = Gemm(zero=zero, levels=len(levels), dst=dst, src=src, wgt=wgt)
    actual, expected = filled(config, seed), filled(config, seed)
    nest = LoopNest(tuple(reversed(levels)))
    _, bad = run_gemm(actual, nest, instruction)
    assert bad == reference.gemm(expected, levels, instruction)
    assert_equal(actual, expected)


@settings(max_examples=100, deadline=None)
@given(
    config=st.sampled_from([DEPTHWISE, replace(DEPTHWISE, block_in=32, block_out=32)]),
    levels=loop_levels(largest_stride=8),
    zero=st.integers(0, 1),
    indices=st.tuples(st.integers(0, 31), st.integers(0, 31), st.integers(0, 15)),
    pitches=st.tuples(st.sampled_from([1, 3, 5, 7, 15]), st.sampled_from([0, 1, 1, 2, 4, 14])),
    seed=st.integers(0, 99),
)
def test_depthwise_gemm_is_micro_ops_one_after_another(config, levels, zero, indices, pitches, seed):
    dst, src, wgt = indices
    instruction = Gemm(
        zero=zero, levels=len(levels), dst=dst, src=src, wgt=wgt,
        depthwise=1, row_pitch=pitches[0], column_pitch=pitches[1],
    )  # fmt: skip
    actual, expected = filled(config, seed), filled(config, seed)
    access, bad = run_gemm(actual, LoopNest(tuple(reversed(levels))), instruction)
    assert bad == reference.gemm(expected, levels, instruction)
    assert_equal(actual, expected)
    done = list(reference.iterations(levels))[:bad]
    read = {src + a + kh * pitches[0] + kw * pitches[1] for _, a, _, _ in done for kh in range(3) for kw in range(3)}
    assert set(access.inp.tolist()) == read


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("dilation", [1, 2, 3])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_depthwise_gemm_is_the_convolution_of_a_picture(size: int, dilation: int, stride: int):
    """A picture whose rows lie an odd number of entries apart; smaller kernels have taps of zero."""
    rng = np.random.default_rng([size, dilation, stride])
    rows, columns, pitch, block = 3, 4, 19, 16
    config = replace(DEPTHWISE, inp_depth=512, acc_depth=64)
    memories = Memories(config)
    height, width = (stride * (n - 1) + 2 * dilation + 1 for n in (rows, columns))
    picture = rng.integers(-128, 128, (height, width, block), np.int8)
    kernel = rng.integers(-128, 128, (size, size, block), np.int8)
    for y, x in product(range(height), range(width)):
        memories.inp[5 + y * pitch + x] = picture[y, x]
    taps = memories.wgt[2].reshape(block, block)
    for kh, kw in product(range(size), repeat=2):
        taps[4 * kh + kw] = kernel[kh, kw]
    levels = (LoopLevel(rows, columns, stride * pitch, 0), LoopLevel(columns, 1, stride, 0))
    instruction = Gemm(
        zero=1, levels=2, dst=7, src=5, wgt=2, depthwise=1, row_pitch=dilation * pitch, column_pitch=dilation
    )
    if instruction.row_pitch % 2 == 0:
        assert "must be odd" in body_problem(config, instruction)  # the meaning is the same, but no core has it
    _, bad = run_gemm(memories, LoopNest(levels), instruction)
    assert bad is None
    expected = np.zeros((rows, columns, block), np.int64)
    for y, x, kh, kw in product(range(rows), range(columns), range(size), range(size)):
        at = picture[y * stride + kh * dilation, x * stride + kw * dilation]
        expected[y, x] += at.astype(np.int64) * kernel[kh, kw]
    np.testing.assert_array_equal(memories.acc[7 : 7 + rows * columns], expected.reshape(-1, block))


@pytest.mark.parametrize("terms", [127, 128, 129, 257, 601])
@pytest.mark.parametrize("config", [SMALL, replace(SMALL, block_in=8)], ids=["4 channels", "8 channels"])
def test_gemm_sums_the_largest_products_exactly(config: CoreConfig, terms: int):
    """In one matrix product, of up to 1,024 of the largest products and of more: then float32 has not all sums."""
    actual, expected = Memories(config), Memories(config)
    for memories in (actual, expected):
        memories.inp[...] = memories.wgt[...] = -128
        memories.inp[:, 0] = memories.wgt[:, 0] = -127
    levels = [LoopLevel(extent=terms), LoopLevel(extent=4, dst_stride=1, a_stride=1)]
    instruction = Gemm(zero=1, levels=2, dst=0, src=0, wgt=0)
    _, bad = run_gemm(actual, LoopNest(tuple(reversed(levels))), instruction)
    assert bad is None
    assert reference.gemm(expected, levels, instruction) is None
    assert_equal(actual, expected)


@settings(max_examples=500, deadline=None)
@given(
    config=st.sampled_from([*CONFIGS, *(replace(config, tables=2) for config in CONFIGS)]),
    levels=loop_levels(largest_stride=5),
    op=st.sampled_from(list(VectorOp)),
    flags=st.tuples(st.integers(0, 1), st.sampled_from(list(VectorTarget)), st.integers(0, 1)),
    table=st.integers(0, 2),
    indices=st.tuples(st.integers(0, 15), st.integers(0, 15), st.integers(-1, 15)),
    immediate=st.one_of(st.integers(-40, 40), st.sampled_from([-(2**24), 2**24 - 1])),
    limits=st.tuples(st.integers(-256, 255), st.integers(-256, 255), st.integers(-256, 255), st.integers(0, 31)),
    seed=st.integers(0, 99),
)
def test_vector_is_micro_ops_one_after_another(config, levels, op, flags, table, indices, immediate, limits, seed):
    zero, target, b_immediate = flags
    instruction = Vector(
        op=op,
        zero=zero,
        levels=len(levels),
        target=target,
        b_immediate=b_immediate,
        dst=indices[0],
        a=indices[1],
        b=immediate if b_immediate else indices[2],
        zero_point=limits[0],
        low=limits[1],
        high=limits[2],
        left_shift=limits[3],
        table=table,
    )
    if body_problem(config, instruction):
        return
    actual, expected = filled(config, seed), filled(config, seed)
    _, bad = run_vector(actual, LoopNest(tuple(reversed(levels))), instruction)
    assert bad == reference.vector(expected, levels, instruction)
    assert_equal(actual, expected)


@pytest.mark.parametrize("target", [VectorTarget.ACC, VectorTarget.OUT, VectorTarget.INP])
@pytest.mark.parametrize("table", [1, 2])
def test_a_table_is_a_function_of_each_lane(table: int, target: VectorTarget):
    """Written an entry at a time, and used for all values of eight bits, and for some that have more bits."""
    config = replace(SMALL, acc_depth=1024, out_depth=1024, inp_depth=1024, tables=2)
    memories = Memories(config)
    functions = np.random.default_rng(table).integers(-128, 128, (256, config.lanes))
    values = np.arange(-128, 128)
    memories.acc[:256] = functions + 256 * values[:, None]  # only the low 8 bits are written
    fill = Vector(op=VectorOp.ADD, b_immediate=1, levels=1, target=VectorTarget.TAB, dst=256 * (table - 1), a=0)
    nest = LoopNest((LoopLevel(extent=256, dst_stride=1, a_stride=1),))
    assert run_vector(memories, nest, fill)[1] is None
    arguments = np.concatenate([values, values + 256, values - 512])
    memories.acc[:768] = arguments[:, None]
    nest = LoopNest((LoopLevel(extent=768, dst_stride=1, a_stride=1),))
    use = Vector(op=VectorOp.ADD, b_immediate=1, levels=1, target=target, dst=0, a=0, table=table)
    assert run_vector(memories, nest, use)[1] is None
    results = memories.array(target.memory)[:768]
    np.testing.assert_array_equal(results, functions[arguments % 256])


@pytest.mark.parametrize(
    "instruction", [Gemm(dst=3, src=0, wgt=0, levels=2), Vector(op=VectorOp.SUM, dst=3, a=0, levels=2)]
)
def test_a_micro_op_out_of_range_is_counted_from_the_first(instruction: Gemm | Vector):
    """Thousands of them are looked at in blocks."""
    levels = [LoopLevel(extent=1000), LoopLevel(extent=6, dst_stride=6)]
    actual, expected = filled(SMALL, 0), filled(SMALL, 0)
    nest = LoopNest(tuple(reversed(levels)))
    if isinstance(instruction, Gemm):
        _, bad = run_gemm(actual, nest, instruction)
        assert reference.gemm(expected, levels, instruction) == 5000
    else:
        _, bad = run_vector(actual, nest, instruction)
        assert reference.vector(expected, levels, instruction) == 5000
    assert bad == 5000
    assert_equal(actual, expected)


@pytest.mark.parametrize("zero_point", [-3, 0, 100])
@pytest.mark.parametrize(("rounding", "operands"), OPERANDS.items(), ids=list(OPERANDS))
def test_requantise_rounds_as_the_core_does(rounding, operands, zero_point):
    config = replace(SMALL, acc_depth=1024, rounding=rounding)
    memories, expected = Memories(config), Memories(config)
    values, *parameters = operands(np.random.default_rng(zero_point % 256), (200, config.lanes))
    for target in (memories, expected):
        target.acc[:200] = values
        for place, each in enumerate(parameters):
            target.acc[200 + place : 800 : 3] = each
    instruction = Vector(
        op=VectorOp.REQUANTISE, dst=800, a=0, b=200, levels=1, zero_point=zero_point, low=-256, high=255, rounding=1
    )
    levels = [LoopLevel(extent=200, dst_stride=1, a_stride=1, b_stride=3)]
    run_vector(memories, LoopNest(tuple(levels)), instruction)
    reference.vector(expected, levels, instruction)
    assert_equal(memories, expected)
    halves_up = Memories(config)
    halves_up.acc[:800] = memories.acc[:800]
    run_vector(halves_up, LoopNest(tuple(levels)), replace(instruction, rounding=0))
    assert np.mean(halves_up.acc[800:1000] != memories.acc[800:1000]) > 0.05  # the operands tell one from the other


@pytest.mark.parametrize("zero_point", [-256, 0, 255])
@pytest.mark.parametrize("shift", [0, 1, 24, 62, 63])
def test_requantise_at_the_edges_of_its_operands(shift, zero_point):
    memories, expected = Memories(SMALL), Memories(SMALL)
    extremes = [-(2**31), 2**31 - 1, -1, 1]
    for target in (memories, expected):
        target.acc[0], target.acc[1] = extremes, [2**24 - 1, -(2**24), -1, 2**24]
        target.acc[4], target.acc[5], target.acc[6] = [1, -1, 0, 7], [-(2**24), 2**24 - 1, 1, -1], shift
    instruction = Vector(
        op=VectorOp.REQUANTISE, dst=8, a=0, b=4, zero_point=zero_point, low=-256, high=255, left_shift=31
    )
    run_vector(memories, LoopNest(()), instruction)
    reference.vector(expected, [], instruction)
    assert_equal(memories, expected)
