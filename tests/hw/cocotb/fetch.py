"""Fetch: finds the program, hands its instructions out in order, waits for full queues, refuses what is no program."""

from __future__ import annotations

from dataclasses import replace

from weft.hw.bus import Response
from weft.hw.isa import FETCH, Engine, Fault, Finish, Gemm, Load, Scratchpad, Sync, encode_unchecked, seal
from weft.sim.dram import BusErrors
from weft.testbench.bench import MEMORY_BYTES, PROGRAM, Bench, core_test
from weft.testbench.memory import Timing

PAGE = 4096


def syncs(bench: Bench, count: int) -> list[Sync]:
    """Instructions that do nothing, on random engines."""
    return [Sync(engine=Engine(bench.random.randrange(len(Engine)))) for _ in range(count)]


@core_test()
async def program_crosses_pages_of_memory(bench: Bench) -> None:
    """The program begins just before a multiple of 4 KiB; no burst may cross it (the bus is watched)."""
    for before in (64, 128, 512, PAGE):
        bench.memory.set_timing(Timing.random(bench.random))
        await bench.check([*syncs(bench, 40), Finish()], offset=2 * PAGE - before)


@core_test()
async def program_ends_with_the_window(bench: Bench) -> None:
    """The last instruction may be the last bytes of the window, whatever stands behind FINISH."""
    program = [*syncs(bench, 6), Finish(), *syncs(bench, 1)]
    size = len(program) * bench.config.instruction_bytes
    await bench.check(program, offset=MEMORY_BYTES - size)


@core_test()
async def fetch_waits_while_a_queue_is_full(bench: Bench) -> None:
    """An engine waits for a long load, and gets more instructions than its queue holds."""
    for engine in Engine:
        other = Engine.LOADW if engine is Engine.LOAD else Engine.LOAD
        slow = Load(engine=other, scratchpad=Scratchpad.ACC, index=0, offset=0, rows=1, columns=bench.config.acc_depth)
        slow = replace(slow, send=1 << engine)
        many = [Sync(engine=engine) for _ in range(bench.config.queue_depth + 20)]
        await bench.check([slow, Sync(engine=engine, wait=1 << other), *many, Finish()])


@core_test()
async def refuses_what_is_no_instruction(bench: Bench) -> None:
    """ILLEGAL: erased memory, an engine or a token that cannot be, reserved bits; CORRUPT: flipped bits."""
    config = bench.config
    sync = encode_unchecked(config, Sync(engine=Engine.GEMM))
    reserved = 1 << config.instruction_bits - config.check_bits - 1
    for bad in (
        seal(config, 0),
        seal(config, sync | reserved),
        encode_unchecked(config, Gemm(engine=Engine.STORE, dst=0, src=0, wgt=0)),
        encode_unchecked(config, Sync(engine=Engine.GEMM, wait=1 << Engine.GEMM)),
        encode_unchecked(config, Sync(engine=Engine.GEMM, send=1 << Engine.GEMM)),
        encode_unchecked(config, Finish(send=1 << Engine.STORE)),
    ):
        fault = await bench.check_fault([*syncs(bench, 3), bad, Finish()])
        assert (fault.cause, fault.engine, fault.number) == (Fault.ILLEGAL, FETCH, 3)
    for bit in range(0, config.instruction_bits, 9):
        fault = await bench.check_fault([sync ^ 1 << bit, Finish()])
        assert (fault.cause, fault.number) == (Fault.CORRUPT, 0)


@core_test()
async def refuses_a_place_that_is_no_program(bench: Bench) -> None:
    """Outside the window, not at a multiple of 64, or without an end."""
    program = [*syncs(bench, 2), Finish()]
    size = len(program) * bench.config.instruction_bytes
    assert (await bench.check_fault(program, window_bytes=PROGRAM + size - 1)).cause is Fault.WINDOW
    assert (await bench.check_fault(program, offset=PROGRAM + 32)).cause is Fault.ALIGNMENT
    assert (await bench.check_fault(program, count=2)).cause is Fault.NO_FINISH
    assert (await bench.check_fault(program, count=0)).cause is Fault.NO_FINISH
    await bench.check(program)


@core_test()
async def error_responses_are_faults_of_the_instruction_read(bench: Bench) -> None:
    """Errors beyond FINISH do not matter, although fetch reads ahead."""
    size = bench.config.instruction_bytes
    for response in (Response.SLVERR, Response.DECERR):
        for number in (0, 1, 7):
            bench.memory.set_timing(Timing.random(bench.random))
            errors = BusErrors(PROGRAM + number * size, PROGRAM + number * size + 1)
            fault = await bench.check_fault([*syncs(bench, 8), Finish()], errors=errors, response=response)
            assert (fault.cause, fault.engine, fault.number) == (Fault.BUS_READ, FETCH, number)
    behind = PROGRAM + 4 * size
    bench.memory.dram.errors = BusErrors(behind, behind + 64)
    assert (await bench.run([*syncs(bench, 3), Finish()])).fault is None


@core_test()
async def dead_memory_is_reported(bench: Bench) -> None:
    """No answer at all: the watchdog names fetch, and the core runs again once the memory answers."""
    bench.memory.hang()
    await bench.start_program([Finish()], watchdog=200)
    result = await bench.finish_program()
    assert result.fault is not None
    assert (result.fault.cause, result.fault.engine, result.fault.number) == (Fault.WATCHDOG, FETCH, 0)
    bench.memory.set_timing(Timing())
    await bench.drain()
    await bench.check([Finish()])
