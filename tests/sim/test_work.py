"""A program that asks for years of work is refused before it runs, by name."""

from __future__ import annotations

import time

import numpy as np
import pytest
from weft.hw import isa, programs
from weft.hw.config import LOOP_LEVELS, TINY
from weft.hw.isa import Engine
from weft.sim.errors import SimulationError
from weft.sim.timing import predict
from weft.sim.work import WORK_LIMIT, check_work


def nest(extent: int, repeats: int = 1, levels: int = LOOP_LEVELS) -> np.ndarray:
    loops = [isa.Loop(engine=Engine.GEMM, level=level, extent=extent) for level in range(levels)]
    gemm = isa.Gemm(levels=levels, dst=0, src=0, wgt=0)
    return programs.assemble(TINY, [*loops, *[gemm] * repeats, isa.Finish()])


def test_a_loop_nest_of_years_is_refused_at_once() -> None:
    started = time.perf_counter()
    with pytest.raises(SimulationError, match=rf"instruction {LOOP_LEVELS} has {1023**LOOP_LEVELS} micro-ops"):
        predict(TINY, nest(1023))
    assert time.perf_counter() - started < 10


def test_many_long_instructions_are_refused_by_their_sum() -> None:
    code = nest(200, repeats=WORK_LIMIT // 200**3 + 1, levels=3)
    with pytest.raises(SimulationError, match=r"up to instruction \d+ the program has 8,\d+,\d+,\d+ micro-ops"):
        check_work(TINY, code)


def test_transfers_count_by_their_entries() -> None:
    load = isa.Load(scratchpad=isa.Scratchpad.INP, index=0, offset=0, rows=1023, columns=1023)
    code = np.tile(programs.assemble(TINY, [load]), WORK_LIMIT // 1023**2 + 1)
    with pytest.raises(SimulationError, match=r"the program has 8,\d+,\d+,\d+ micro-ops and transferred entries"):
        check_work(TINY, code)
    check_work(TINY, np.tile(programs.assemble(TINY, [load]), WORK_LIMIT // 1023**2))


def test_loops_count_for_their_engine_and_the_levels_in_use() -> None:
    loops = [isa.Loop(engine=Engine.GEMM, level=level, extent=1023) for level in range(LOOP_LEVELS)]
    vector = isa.Vector(op=isa.VectorOp.SUM, levels=LOOP_LEVELS, dst=0, a=0)
    check_work(TINY, programs.assemble(TINY, [*loops, vector, isa.Gemm(levels=2, dst=0, src=0, wgt=0), isa.Finish()]))


def test_what_the_core_really_does_is_counted() -> None:
    check_work(TINY, nest(20, levels=3))
    assert predict(TINY, nest(20, levels=3)).cycles > 20**3
