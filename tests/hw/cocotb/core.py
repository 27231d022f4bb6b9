"""The whole core: random programs under random timing, and several engines at once."""

from __future__ import annotations

from dataclasses import replace

from weft.hw.isa import (
    Engine,
    Finish,
    Gemm,
    Instruction,
    Load,
    Loop,
    Scratchpad,
    Store,
    Sync,
    Vector,
    VectorOp,
    VectorTarget,
)
from weft.hw.pipelines import IN_FLIGHT
from weft.sim.fuzz import random_case
from weft.testbench.bench import Bench, core_test
from weft.testbench.memory import Timing

ENTRIES = 96
TO_LOAD, TO_VECTOR, TO_STORE = (1 << engine for engine in (Engine.LOAD, Engine.VECTOR, Engine.STORE))


@core_test()
async def adds_seven(bench: Bench) -> None:
    """``result = int8(int32 data + 7)``: load, vector and store hand each other one token."""
    program = [
        Load(scratchpad=Scratchpad.ACC, index=0, offset=0, rows=1, columns=ENTRIES, send=TO_VECTOR),
        Loop(engine=Engine.VECTOR, level=0, extent=ENTRIES, dst_stride=1, a_stride=1),
        Vector(
            op=VectorOp.ADD,
            levels=1,
            target=VectorTarget.OUT,
            b_immediate=1,
            dst=0,
            a=0,
            b=7,
            wait=TO_LOAD,
            send=TO_STORE,
        ),
        Store(index=0, offset=0x4000 // bench.config.granule_bytes, rows=1, columns=ENTRIES, wait=TO_VECTOR),
        Finish(),
    ]
    await bench.check(program)


@core_test()
async def random_programs(bench: Bench) -> None:
    """Whatever is legal, with a memory that is fast, slow, stuttering, or answers out of order."""
    for _ in range(400 if bench.long else 40):
        bench.memory.set_timing(Timing.random(bench.random))
        case = random_case(bench.config, bench.random.randint)
        await bench.check(
            case.instructions,
            offset=case.program_offset,
            window_start=case.window_start,
            window_bytes=len(bench.dram) - case.window_start,
        )


@core_test()
async def results_go_to_inp_beside_loads(bench: Bench) -> None:
    """Vector and load write other entries of ``inp`` at the same time; gemm reads both behind their tokens."""
    if not bench.config.inp_takes_results:
        return
    to_gemm, count = 1 << Engine.GEMM, 60
    for timing in (Timing(), Timing(latency=(2, 30), stall=0.3)):
        bench.memory.set_timing(timing)
        first = bench.random.randrange(100)
        loop = Loop(engine=Engine.VECTOR, level=0, extent=count, dst_stride=1, a_stride=1)
        add = Vector(op=VectorOp.ADD, b_immediate=1, b=9, levels=1, target=VectorTarget.INP, dst=first, a=0)
        await bench.check(
            [
                loop,
                Load(scratchpad=Scratchpad.INP, index=first + count, offset=0, rows=3, columns=40, stride=41),
                add,
                replace(add, a=3, send=to_gemm),
                Load(scratchpad=Scratchpad.INP, index=first + 4 * count, offset=8, rows=1, columns=50, send=to_gemm),
                Loop(engine=Engine.GEMM, level=0, extent=3 * count, dst_stride=1, a_stride=1),
                Gemm(levels=1, zero=1, dst=0, src=first, wgt=0, wait=1 << Engine.LOAD | TO_VECTOR),
                Finish(),
            ]
        )


def chain(engine: Engine, step: int, count: int) -> list[Instruction]:
    """Instructions of one engine, each of which begins ``step`` entries after the one before has ended."""
    copy = {"rows": 1, "columns": 4}
    match engine:
        case Engine.LOAD:
            return [Load(scratchpad=Scratchpad.INP, index=i * (3 + step), offset=32 * i, **copy) for i in range(count)]
        case Engine.LOADW:
            load = Load(engine=engine, scratchpad=Scratchpad.WGT, index=0, offset=0, **copy)
            return [replace(load, index=i * (3 + step), offset=32 * i) for i in range(count)]
        case Engine.GEMM:
            return [Gemm(dst=i * step, src=i, wgt=i) for i in range(count)]
        case Engine.VECTOR:
            add = Vector(op=VectorOp.ADD, b_immediate=1, b=3, dst=0, a=0)
            return [replace(add, a=i * step, dst=i * step) for i in range(count)]
        case Engine.STORE:
            return [Store(index=i * (3 + step), offset=0x1000 + 32 * i, **copy) for i in range(count)]


@core_test()
async def engine_goes_on_after_every_kind_of_stall(bench: Bench) -> None:
    """Successive instructions meet in the same entry, in neighbours, or not at all; the second comes at once, late,
    waits for a token, for the memory, or for room for a token that the engine sends."""
    for engine in Engine:
        other = Engine.LOADW if engine is Engine.LOAD else Engine.LOAD
        third = [Sync(engine=Engine.VECTOR if engine is Engine.STORE else Engine.STORE)] * 16
        long_load = Load(engine=other, scratchpad=Scratchpad.ACC, index=128, offset=0, rows=1, columns=100)
        for step in (0, 1, 5):
            first, second, *_ = parts = chain(engine, step, 8)
            soon = [first, *(Sync(engine=other) for _ in range(15)), second]
            late = [first, *(Sync(engine=other) for _ in range(40)), second]
            for_a_token = [first, replace(long_load, send=1 << engine), replace(second, wait=1 << other)]
            for timing in (Timing(), Timing(latency=(60, 60)), Timing(latency=(2, 30), stall=0.6)):
                bench.memory.set_timing(timing)
                await bench.check([*parts, *soon, Finish()])
            bench.memory.set_timing(Timing())
            await bench.check([*late, Finish()])
            await bench.check([*for_a_token, Finish()])
            for sends in range(bench.config.token_depth + IN_FLIGHT - 2, bench.config.token_depth + IN_FLIGHT + 1):
                for_room = [first, *(Sync(engine=engine, send=1 << other) for _ in range(sends)), second, *third]
                takes = [Sync(engine=other, wait=1 << engine) for _ in range(sends)]
                await bench.check([*for_room, *takes, Finish()])
