"""The store engine: every shape, pages, rows that begin and end within a bus word, what it refuses."""

from __future__ import annotations

from dataclasses import replace

from cocotb.triggers import ClockCycles
from weft.hw.bus import Response
from weft.hw.isa import Engine, Fault, Finish, Store
from weft.sim.dram import BusErrors
from weft.testbench.bench import MEMORY_BYTES, PROGRAM, Bench, core_test
from weft.testbench.memory import Timing

PAGE = 4096
STORE = Store(index=0, offset=0, rows=1, columns=1)


def granules(bench: Bench, byte: int) -> int:
    """The offset of a byte of the window."""
    return byte // bench.config.granule_bytes


@core_test()
async def copies_every_shape(bench: Bench) -> None:
    """Dense, strided, overlapping and empty rectangles, under random timing; bytes between rows stay."""
    for _ in range(30 if bench.long else 4):
        bench.memory.set_timing(Timing.random(bench.random))
        program = []
        for rows, columns, stride in ((3, 4, 4), (3, 4, 9), (4, 5, 2), (1, 7, 0), (0, 3, 1), (2, 0, 1), (5, 1, 1)):
            offset = granules(bench, bench.random.randrange(PROGRAM - 512))
            index = bench.random.randrange(bench.config.out_depth - 24)
            program.append(Store(index=index, offset=offset, rows=rows, columns=columns, stride=stride))
        await bench.check([*program, Finish()])


@core_test()
async def rows_cross_pages_and_end_within_words(bench: Bench) -> None:
    """Byte strobes keep what stands beside the rows; no burst crosses a multiple of 4 KiB."""
    size = bench.config.out_bytes
    program = [
        Store(index=before, offset=granules(bench, PAGE * (1 + columns % 5) - before * size), rows=1, columns=columns)
        for before in range(4)
        for columns in (1, 2, 3, 4, 20)
    ]
    await bench.check([*program, Finish()])


@core_test()
async def write_buffer_fills_while_the_memory_takes_nothing(bench: Bench) -> None:
    """All of the scratchpad, several times, to a memory that takes no data for a while."""
    depth = bench.config.out_depth
    program = [
        Store(index=0, offset=granules(bench, number * depth * bench.config.out_bytes), rows=1, columns=depth)
        for number in range(12)
    ]
    await bench.check([replace(STORE, index=depth - 1), *program, Finish()])
    expected = bench.dram.copy()
    bench.dram[:PROGRAM] = 0
    await bench.start_program([*program, Finish()])
    await bench.bus_moves("aw", 1)
    bench.memory.hang("w")
    await ClockCycles(bench.dut.clk, 1200)
    bench.memory.set_timing(Timing())
    assert (await bench.finish_program()).fault is None
    stored = len(program) * depth * bench.config.out_bytes
    assert (bench.dram[:stored] == expected[:stored]).all()


@core_test()
async def refuses_what_is_out_of_bounds(bench: Bench) -> None:
    """One entry too many, one byte outside the window, a start that the core does not support."""
    config = bench.config
    cases = [
        (replace(STORE, index=config.out_depth - 1, columns=2), Fault.INDEX),
        (replace(STORE, columns=config.out_depth, index=1), Fault.INDEX),
        (replace(STORE, columns=2, offset=granules(bench, MEMORY_BYTES - config.out_bytes)), Fault.WINDOW),
        (replace(STORE, rows=3, columns=1, stride=MEMORY_BYTES // config.out_bytes), Fault.WINDOW),
    ]
    if min(config.out_bytes, config.bus_bytes) > config.granule_bytes:
        cases.append((replace(STORE, offset=1), Fault.ALIGNMENT))
    for bad, cause in cases:
        fault = await bench.check_fault([STORE, bad, STORE, Finish()])
        assert (fault.cause, fault.engine, fault.number) == (cause, Engine.STORE, 1)


@core_test()
async def error_responses_are_faults(bench: Bench) -> None:
    """Errors of the first and of the last burst; the one instruction under way is named."""
    for response in (Response.SLVERR, Response.DECERR):
        for byte in (0, 4 * 100 - 1):
            bench.memory.set_timing(Timing.random(bench.random))
            store = replace(STORE, columns=400 // bench.config.out_bytes)
            fault = await bench.check_fault([store, Finish()], errors=BusErrors(byte, byte + 1), response=response)
            assert (fault.cause, fault.engine, fault.number) == (Fault.BUS_WRITE, Engine.STORE, 0)


@core_test()
async def dead_memory_is_reported(bench: Bench) -> None:
    """No response ever: the watchdog names store."""
    program = [replace(STORE, columns=64), Finish()]
    await bench.start_program(program, watchdog=400)
    await bench.bus_moves("aw", 1)
    bench.memory.hang()
    result = await bench.finish_program()
    assert result.fault is not None
    assert (result.fault.cause, result.fault.engine, result.fault.number) == (Fault.WATCHDOG, Engine.STORE, 0)
    bench.memory.set_timing(Timing())
    await bench.drain()
