"""The whole core: random programs under random timing, and several engines at once."""

from __future__ import annotations

from weft.hw.isa import Engine, Finish, Load, Loop, Scratchpad, Store, Vector, VectorOp
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
        Vector(op=VectorOp.ADD, levels=1, to_out=1, b_immediate=1, dst=0, a=0, b=7, wait=TO_LOAD, send=TO_STORE),
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
