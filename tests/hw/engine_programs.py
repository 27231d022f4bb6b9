"""Random programs for one gemm or vector engine, with indices so few that every hazard occurs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import strategies as st
from weft.hw.config import CoreConfig
from weft.hw.isa import Engine, Gemm, Instruction, Loop, Sync, Vector, VectorOp, VectorTarget, vector_targets
from weft.sim.state import Memories

from tests.sim.rounding_operands import OPERANDS

from .engine_bench import random_memories

SMALL = CoreConfig(
    batch=2, block_in=2, block_out=4, inp_depth=8, wgt_depth=16, acc_depth=16, out_depth=8, acc_banks=2, queue_depth=4
)
"""Batches, blocks of different size, two banks."""

NARROW = CoreConfig(
    block_in=8, block_out=2, inp_depth=16, wgt_depth=8, acc_depth=32, out_depth=64, acc_banks=4, queue_depth=4
)
"""The other block is the larger one; ``out`` is deeper than ``acc``."""

ONE_BANK = CoreConfig(
    block_in=4, block_out=4, inp_depth=16, wgt_depth=8, acc_depth=16, out_depth=8, acc_banks=1, queue_depth=4
)

DEPTHWISE = CoreConfig(
    block_in=16, block_out=16, inp_depth=64, wgt_depth=8, acc_depth=32, out_depth=8, acc_banks=2, queue_depth=4,
    depthwise=1,
)  # fmt: skip
"""With the depthwise mode. The vector engine has nothing to do with it."""

UNLIKE = CoreConfig(
    block_in=2, block_out=2, inp_depth=32, wgt_depth=8, acc_depth=16, out_depth=8, acc_banks=2, queue_depth=4
)
"""Results may go to ``inp`` as well, and every memory that they go to is of another depth."""

TABLES = CoreConfig(
    block_in=2, block_out=2, inp_depth=16, wgt_depth=8, acc_depth=32, out_depth=8, acc_banks=2, queue_depth=4, tables=2
)
"""Results may pass through tables, which are far deeper than the other memories."""

HALVES = CoreConfig(
    block_in=4, block_out=4, inp_depth=16, wgt_depth=8, acc_depth=512, out_depth=128, acc_banks=2, queue_depth=4,
)  # fmt: skip
"""With room for operands of many requantises."""

CONFIGS = {"small": SMALL, "narrow": NARROW, "one-bank": ONE_BANK, "unlike": UNLIKE}
GEMM_CONFIGS = CONFIGS | {"depthwise": DEPTHWISE}
VECTOR_CONFIGS = CONFIGS | {"tables": TABLES, **{each: replace(HALVES, rounding=each) for each in OPERANDS}}

levels = st.sampled_from((0, 0, 1, 2, 3, 4, 6))
strides = st.sampled_from((0, 0, 1, 1, 2, 3))
flags = st.integers(0, 1)
masks = st.one_of(st.just(0), st.integers(0, 31))


def loops(engine: Engine) -> st.SearchStrategy[Instruction]:
    return st.builds(
        Loop,
        engine=st.just(engine),
        level=st.integers(0, 5),
        extent=st.sampled_from((1, 2, 2, 3, 4)),
        dst_stride=strides,
        a_stride=strides,
        b_stride=strides,
    )


def gemms(config: CoreConfig) -> st.SearchStrategy[Instruction]:
    taps: dict[str, Any] = {}
    if config.depthwise:
        rows = st.sampled_from((1, 3, 5, 7, 9, 11))
        taps = {"depthwise": flags, "row_pitch": rows, "column_pitch": st.sampled_from((0, 1, 1, 1, 2, 3))}
    return st.builds(
        Gemm,
        zero=flags,
        levels=levels,
        dst=st.integers(0, config.acc_depth // 2),
        src=st.integers(0, config.inp_depth // 2),
        wgt=st.integers(0, config.wgt_depth // 2),
        **taps,
    )


@st.composite
def vectors(draw: Any, config: CoreConfig) -> Instruction:
    op = draw(st.sampled_from(VectorOp))
    immediate = draw(flags) if op is not VectorOp.REQUANTISE else 0
    limits = st.integers(-256, 255)
    target = draw(st.sampled_from(vector_targets(config, op)))
    depth = min(config.acc_depth, config.out_depth, config.inp_depth)
    takes_table = config.tables and not op.accumulates and target is not VectorTarget.TAB
    return Vector(
        op=op,
        zero=draw(flags),
        levels=draw(levels),
        target=target,
        b_immediate=immediate,
        dst=draw(_table_entries(config) if target is VectorTarget.TAB else st.integers(0, depth // 2)),
        a=draw(st.integers(0, config.acc_depth // 2)),
        b=draw(_immediates() if immediate else _entries_of_b(config)),
        zero_point=draw(limits),
        low=draw(limits),
        high=draw(limits),
        left_shift=draw(st.integers(0, 31)),
        table=draw(st.integers(0, config.tables)) if takes_table else 0,
        rounding=draw(flags) if config.rounding != "half_up" else 0,
    )


def _table_entries(config: CoreConfig) -> st.SearchStrategy[int]:
    """Mostly near 0, where many results look; also at the ends of tables, and of all."""
    places = [*range(4), *range(252, 260), config.tab_depth - 3, config.tab_depth - 1]
    return st.one_of(st.sampled_from(places), st.integers(0, config.tab_depth - 1))


def _immediates() -> st.SearchStrategy[int]:
    return st.one_of(st.integers(-40, 40), st.integers(-(2**24), 2**24 - 1))


def _entries_of_b(config: CoreConfig) -> st.SearchStrategy[int]:
    inside = st.integers(0, config.acc_depth // 2)
    return st.integers(0, 19).flatmap(
        lambda choice: inside if choice else st.sampled_from((-1, config.acc_depth - 2, 2**20))
    )


@st.composite
def programs(draw: Any, config: CoreConfig, engine: Engine) -> list[Instruction]:
    """Up to eight instructions, some of which wait for tokens and send some."""
    work = gemms(config) if engine is Engine.GEMM else vectors(config)
    kinds = st.one_of(loops(engine), work, work, st.builds(Sync, engine=st.just(engine)))
    own = 1 << engine
    return [
        replace(instruction, wait=draw(masks) & ~own, send=draw(masks) & ~own)
        for instruction in draw(st.lists(kinds, min_size=1, max_size=8))
    ]


def varied_memories(config: CoreConfig, seed: int) -> Memories:
    """Random content; in ``acc`` also shift amounts and extremes."""
    memories = random_memories(config, seed)
    random = np.random.default_rng([seed, 1])
    kind = random.random(config.acc_depth)
    small = random.integers(-40, 41, memories.acc.shape, np.int32)
    extreme = random.choice(np.array([-(2**31), 2**31 - 1, 0, -1, 2**24, -(2**24)], np.int32), memories.acc.shape)
    memories.acc[kind < 0.3] = small[kind < 0.3]
    memories.acc[kind > 0.9] = extreme[kind > 0.9]
    return memories
