"""Both load engines: every scratchpad, shape and padding, pages, narrow ends, what they refuse."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from weft.hw.bus import Response
from weft.hw.config import CoreConfig
from weft.hw.isa import (
    ENGINE_NAMES,
    LEGAL_SCRATCHPADS,
    Engine,
    Fault,
    Finish,
    Load,
    Scratchpad,
)
from weft.hw.load_counts import entries_each, takes_records
from weft.hw.weight_form import FOUR_BITS
from weft.sim.dma import transfer_of
from weft.sim.dram import BusErrors
from weft.testbench.bench import MEMORY_BYTES, Bench, core_test
from weft.testbench.memory import Timing
from weft.testbench.points import PADS

PAGE = 4096
OTHERS = {Engine.LOAD: Scratchpad.WGT, Engine.LOADW: Scratchpad.INP}
"""What each engine cannot write."""


def kinds(config: CoreConfig) -> Iterator[Load]:
    """One load for each engine and scratchpad, and one of 4-bit weights where the core unpacks them."""
    for engine, scratchpads in LEGAL_SCRATCHPADS.items():
        for scratchpad in scratchpads:
            yield Load(engine=engine, scratchpad=scratchpad, index=0, offset=0, rows=1, columns=1)
    if config.weight_group:
        weights = {"scratchpad": Scratchpad.WGT, "pad_value": FOUR_BITS}
        yield Load(engine=Engine.LOADW, index=0, offset=0, rows=1, columns=1, **weights)  # type: ignore[arg-type]


def may_pad(bench: Bench, load: Load) -> bool:
    return not takes_records(bench.config, load)


def most(bench: Bench, load: Load) -> int:
    """Columns that fill the scratchpad."""
    return depth(bench, load) // entries_each(bench.config, load)


def depth(bench: Bench, load: Load) -> int:
    return bench.config.depth(load.scratchpad.memory)


def offset_of(bench: Bench, load: Load, byte: int) -> int:
    """The load's offset for a byte of the window, rounded down to what the alignment rule allows."""
    step = max(bench.config.granule_bytes, min(transfer_of(bench.config, load).entry_bytes, bench.config.bus_bytes))
    return byte // step * step // bench.config.granule_bytes


@core_test()
async def copies_every_shape(bench: Bench) -> None:
    """Dense, strided, overlapping and empty rectangles, each with random padding and under random timing."""
    for load in kinds(bench.config):
        bench.memory.set_timing(Timing.random(bench.random))
        program: list[Load | Finish] = []
        for rows, columns, stride in ((3, 4, 4), (3, 4, 9), (4, 5, 2), (1, 7, 0), (0, 3, 1), (2, 0, 1), (2, 3, 3)):
            pads = {name: bench.random.choice((0, 1, 3)) for name in ("pad_top", "pad_bottom", "pad_left", "pad_right")}
            shape = {"rows": rows, "columns": columns, "stride": stride}
            place = {"index": bench.random.randrange(8), "offset": offset_of(bench, load, bench.random.randrange(4096))}
            value = (
                0
                if load.scratchpad is Scratchpad.WGT and bench.config.weight_group
                else bench.random.randint(-128, 127)
            )
            program.append(replace(load, **shape, **place))
            if may_pad(bench, load):
                program.append(replace(load, **shape, **place, **pads, pad_value=value))
        await bench.check([*program, Finish()])


@core_test()
async def rows_cross_pages_and_end_within_words(bench: Bench) -> None:
    """Rows begin and end at every place within a bus word, next to a multiple of 4 KiB; no burst crosses it."""
    bench.memory.set_timing(Timing(reorder=True))
    for load in kinds(bench.config):
        size = transfer_of(bench.config, load).entry_bytes
        program = [
            replace(load, offset=offset_of(bench, load, PAGE - before * size), rows=2, columns=columns, stride=70)
            for before in range(4)
            for columns in (1, 2, 3, min(20, most(bench, load) // 2))
        ]
        await bench.check([*program, Finish()])


@core_test()
async def fills_scratchpads_to_both_ends(bench: Bench) -> None:
    """All entries in one load, longer than the read buffer; slow memory, so that it fills with requests."""
    bench.memory.set_timing(Timing(latency=(300, 300)))
    for load in kinds(bench.config):
        each = entries_each(bench.config, load)
        await bench.check([replace(load, columns=most(bench, load)), Finish()])
        last = depth(bench, load) - each
        await bench.check([replace(load, index=last), replace(load, index=last - 3 * each, columns=2), Finish()])


@core_test()
async def engines_share_the_bus(bench: Bench) -> None:
    """Both engines load at once, with answers that overtake each other."""
    for _ in range(20 if bench.long else 5):
        bench.memory.set_timing(replace(Timing.random(bench.random), reorder=True))
        program = []
        for number in range(8):
            for engine, scratchpad in ((Engine.LOAD, Scratchpad.INP), (Engine.LOADW, Scratchpad.WGT)):
                load = Load(engine=engine, scratchpad=scratchpad, index=16 * number, offset=0, rows=1, columns=16)
                program.append(replace(load, offset=offset_of(bench, load, bench.random.randrange(8192))))
        await bench.check([*program, Finish()])


@core_test()
async def refuses_what_is_out_of_bounds(bench: Bench) -> None:
    """One entry too many, one byte outside the window, a start within a bus word, another engine's scratchpad."""
    for load in kinds(bench.config):
        entry = transfer_of(bench.config, load).entry_bytes
        end = offset_of(bench, load, MEMORY_BYTES - entry)
        good = replace(load, columns=2)
        for bad, cause in (
            (replace(load, index=depth(bench, load) - 1, columns=2), Fault.INDEX),
            (replace(load, columns=most(bench, load) + 1), Fault.INDEX),
            (replace(load, columns=2, offset=end), Fault.WINDOW),
            (replace(load, rows=2, stride=MEMORY_BYTES // entry), Fault.WINDOW),
        ):
            fault = await bench.check_fault([good, bad, good, Finish()])
            assert (fault.cause, fault.engine, fault.number) == (cause, load.engine, 1)
        if entry > bench.config.granule_bytes:
            fault = await bench.check_fault([replace(load, offset=1), Finish()])
            assert (fault.cause, fault.engine) == (Fault.ALIGNMENT, load.engine)
        wrong = [replace(load, scratchpad=OTHERS[load.engine])]
        if not may_pad(bench, load):
            wrong += [replace(load, pad_value=FOUR_BITS + 1), *(replace(load, **{pad: 1}) for pad in PADS)]
        for bad in wrong:
            fault = await bench.check_fault([bad, Finish()])
            assert (fault.cause, fault.engine) == (Fault.ILLEGAL, load.engine)


@core_test()
async def error_responses_are_faults(bench: Bench) -> None:
    """The first, a middle and the last word of a load, answered with SLVERR and DECERR."""
    for load in kinds(bench.config):
        size = transfer_of(bench.config, load).entry_bytes
        columns = min(40, most(bench, load))
        for response, entry in ((Response.SLVERR, 0), (Response.DECERR, columns // 2), (Response.SLVERR, columns - 1)):
            bench.memory.set_timing(Timing.random(bench.random))
            errors = BusErrors(entry * size, entry * size + 1)
            fault = await bench.check_fault(
                [replace(load, columns=columns), Finish()], errors=errors, response=response
            )
            assert (fault.cause, fault.engine, fault.number) == (Fault.BUS_READ, load.engine, 0)


@core_test()
async def dead_memory_is_reported(bench: Bench) -> None:
    """The memory stops answering once the program is read: the watchdog names the engine and its instruction."""
    for engine, scratchpad in ((Engine.LOAD, Scratchpad.INP), (Engine.LOADW, Scratchpad.WGT)):
        bench.memory.set_timing(Timing(latency=(5, 5)))
        load = Load(engine=engine, scratchpad=scratchpad, index=0, offset=0, rows=2, columns=32, stride=64)
        await bench.start_program([load, Finish()], watchdog=400)
        await bench.bus_moves("ar", 2)
        bench.memory.hang()
        result = await bench.finish_program()
        assert result.fault is not None
        names = (Fault.WATCHDOG, ENGINE_NAMES[engine])
        assert (result.fault.cause, ENGINE_NAMES[result.fault.engine]) == names
        bench.memory.set_timing(Timing())
        await bench.drain()
