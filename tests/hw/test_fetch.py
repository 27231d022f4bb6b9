"""Fetch: instructions reach their queues in order, whatever the width of the bus, and bad ones are refused."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import pytest
from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.sim import Simulator
from weft.hw.bus import ReadClient
from weft.hw.config import CoreConfig
from weft.hw.decode import decode
from weft.hw.errors import InstructionError
from weft.hw.fetch import Fetch
from weft.hw.isa import (
    LEGAL_ENGINES,
    Engine,
    Fault,
    Finish,
    Gemm,
    Instruction,
    Load,
    Loop,
    Opcode,
    Scratchpad,
    Store,
    Sync,
    encode,
    seal,
)
from weft.hw.read_dma import ReadMaster

from .axi_memory import AxiMemory

WINDOW_BASE = 0x1000
WINDOW_SIZE = 16384
NARROW = CoreConfig()
DEEP = CoreConfig(inp_depth=65536, wgt_depth=16384, block_in=4, block_out=4)


@dataclass
class Seen:
    queues: dict[Engine, list[tuple[int, int]]] = field(default_factory=lambda: {engine: [] for engine in Engine})
    finished: bool = False
    fault: tuple[Fault, int] | None = None
    bursts: list[tuple[int, int]] = field(default_factory=list)  # first byte, words


def run(
    config: CoreConfig,
    words: list[int],
    *,
    offset: int = 0,
    count: int | None = None,
    window_size: int = WINDOW_SIZE,
    seed: int = 0,
    errors: tuple[int, ...] = (),
) -> Seen:
    """Fetch a program; queues take an instruction in three cycles of four."""
    content = bytearray(WINDOW_SIZE)
    raw = b"".join(word.to_bytes(config.instruction_bytes, "little") for word in words)
    content[offset : offset + len(raw)] = raw
    memory = AxiMemory(content, config, seed, WINDOW_BASE, errors=errors)
    fetch, master = Fetch(config), ReadMaster(config)
    m = Module()
    m.submodules.fetch = fetch
    m.submodules.master = master
    wiring.connect(m, fetch.client, master.clients[ReadClient.FETCH])
    seen = Seen()
    random = Random(seed)

    async def testbench(ctx: Any) -> None:
        ctx.set(fetch.offset, offset)
        ctx.set(fetch.count, len(words) if count is None else count)
        ctx.set(fetch.window_size, window_size)
        ctx.set(master.base, WINDOW_BASE)
        ctx.set(fetch.start, 1)
        for _ in range(20000):
            if ctx.get(fetch.fault.valid):
                seen.fault = (Fault(ctx.get(fetch.fault.cause)), ctx.get(fetch.fault.number))
            seen.finished = bool(ctx.get(fetch.finished))
            if (seen.fault or seen.finished) and not ctx.get(master.busy):
                return
            for engine in Engine:
                commands = fetch.commands[engine]
                ctx.set(commands.ready, random.random() < 0.75)
                if ctx.get(commands.valid) and ctx.get(commands.ready):
                    seen.queues[engine].append((ctx.get(commands.payload.number), ctx.get(commands.payload.word)))
            await ctx.tick()
            ctx.set(fetch.start, 0)
        raise AssertionError(f"fetch does not end: {seen}")

    async def serve(ctx: Any) -> None:
        await memory.serve_reads(ctx, master.axi)

    simulator = Simulator(m)
    simulator.add_clock(1e-6)
    simulator.add_testbench(testbench)
    simulator.add_testbench(serve, background=True)
    simulator.run()
    seen.bursts = [(start, beats) for _, start, beats in memory.bursts]
    return seen


def long_program(count: int) -> list[Instruction]:
    kinds: list[Instruction] = [
        Load(scratchpad=Scratchpad.INP, index=1, offset=2, rows=3, columns=4, send=1 << Engine.GEMM),
        Load(engine=Engine.LOADW, scratchpad=Scratchpad.WGT, index=0, offset=9, rows=1, columns=1),
        Loop(engine=Engine.GEMM, level=0, extent=7, dst_stride=1),
        Gemm(dst=0, src=0, wgt=0, wait=1 << Engine.LOAD),
        Sync(engine=Engine.VECTOR, wait=1 << Engine.GEMM),
        Store(index=3, offset=1, rows=1, columns=1),
    ]
    random = Random(5)
    return [random.choice(kinds) for _ in range(count)]


@pytest.mark.parametrize("base", [NARROW, DEEP], ids=["128-bit instructions", "256-bit instructions"])
@pytest.mark.parametrize("bus_bits", [64, 128, 256, 512])
def test_instructions_reach_their_queues_in_order(base: CoreConfig, bus_bits: int) -> None:
    config = replace(base, bus_bits=bus_bits)
    program = long_program(61)
    words = [encode(config, instruction) for instruction in program]
    seen = run(config, [*words, encode(config, Finish()), 0], offset=448, seed=bus_bits)
    assert seen.finished
    assert seen.fault is None
    for engine in Engine:
        expected = [(number, words[number]) for number, item in enumerate(program) if item.engine is engine]
        assert seen.queues[engine] == expected


def header(opcode: int, engine: int, wait: int = 0, send: int = 0) -> int:
    return opcode | engine << 3 | wait << 6 | send << 11


@pytest.mark.parametrize("opcode", Opcode)
def test_no_instruction_names_its_own_engine(opcode: Opcode) -> None:
    engine = LEGAL_ENGINES[opcode][-1]
    good = encode(NARROW, Sync(engine=Engine.STORE))
    for masks in ({"wait": 1 << engine}, {"send": 1 << engine}):
        word = seal(NARROW, header(opcode, engine, **masks))
        assert run(NARROW, [good, word]).fault == (Fault.ILLEGAL, 1), masks


def bad_headers() -> list[int]:
    """Every header with few tokens that the assembler calls illegal for its header, and a sample of reserved bits."""
    words = [
        header(opcode, engine, wait, send)
        for opcode in range(8)
        for engine in range(8)
        for wait, send in ((0, 0), (1 << engine & 31, 0), (0, 1 << engine & 31))
    ]
    words += [header(opcode, 0 if opcode != 3 else 4) | 1 << 119 for opcode in (3, 6, 7)]
    bad = []
    for word in (seal(NARROW, word) for word in words):
        try:
            decode(NARROW, word)
        except InstructionError as error:
            if "extent" not in str(error) and "cannot write" not in str(error):
                bad.append(word)
    return bad


def test_illegal_headers_are_refused_with_their_number() -> None:
    words = bad_headers()
    assert len(words) > 50
    good = encode(NARROW, Sync(engine=Engine.STORE))
    for word in Random(3).sample(words, 12):
        seen = run(NARROW, [good, good, word, encode(NARROW, Finish())])
        assert seen.fault == (Fault.ILLEGAL, 2), f"{word:#x}"
        assert [number for number, _ in seen.queues[Engine.STORE]] == [0, 1]


@pytest.mark.parametrize("bus_bits", [64, 256])
def test_damaged_instructions_are_refused_with_their_number(bus_bits: int) -> None:
    config = replace(NARROW, bus_bits=bus_bits)
    random = Random(bus_bits)
    words = [encode(config, instruction) for instruction in (*long_program(7), Finish())]
    for count in (1, 1, 2, 3):
        place = random.randrange(len(words))
        damaged = list(words)
        for bit in random.sample(range(config.instruction_bits), count):
            damaged[place] ^= 1 << bit
        assert run(config, damaged).fault == (Fault.CORRUPT, place)


def test_every_legal_opcode_passes() -> None:
    seen = run(NARROW, [encode(NARROW, instruction) for instruction in (*long_program(12), Finish())])
    assert seen.finished
    assert {Opcode(word & 7) for queue in seen.queues.values() for _, word in queue} >= {Opcode.LOAD, Opcode.GEMM}


@pytest.mark.parametrize(
    ("settings", "fault"),
    [
        ({"count": 0}, (Fault.NO_FINISH, 0)),
        ({"count": 2}, (Fault.NO_FINISH, 2)),
        ({"offset": 32}, (Fault.ALIGNMENT, 0)),
        ({"offset": 64, "window_size": 64 + 47}, (Fault.WINDOW, 0)),
        ({"errors": (20,)}, (Fault.BUS_READ, 1)),
    ],
)
def test_programs_that_cannot_be_read_are_refused(settings: dict[str, Any], fault: tuple[Fault, int]) -> None:
    sync = encode(NARROW, Sync(engine=Engine.GEMM))
    assert run(NARROW, [sync, sync, encode(NARROW, Finish())], **settings).fault == fault


@pytest.mark.parametrize(("bus_bits", "burst_beats", "longest"), [(64, 64, 16), (512, 64, 16), (64, 4, 4)])
@pytest.mark.parametrize("count", [4, 100])
def test_the_program_is_read_and_nothing_else(bus_bits: int, burst_beats: int, longest: int, count: int) -> None:
    config = replace(NARROW, bus_bits=bus_bits, burst_beats=burst_beats)
    words = [encode(config, Sync(engine=Engine.GEMM))] * (count - 1) + [encode(config, Finish())]
    offset, size = 1024, config.instruction_bytes * count
    bursts = run(config, words, offset=offset).bursts
    read = [start + word * config.bus_bytes for start, beats in bursts for word in range(beats)]
    assert read == list(range(offset, offset + size, config.bus_bytes))
    assert max(beats for _, beats in bursts) == min(longest, len(read))


def test_a_program_may_end_with_the_window() -> None:
    sync = encode(NARROW, Sync(engine=Engine.GEMM))
    seen = run(NARROW, [sync, sync, encode(NARROW, Finish())], offset=64, window_size=64 + 48)
    assert seen.finished
    assert seen.fault is None


def test_read_errors_beyond_finish_do_not_count() -> None:
    sync = encode(NARROW, Sync(engine=Engine.GEMM))
    seen = run(NARROW, [sync, encode(NARROW, Finish()), sync, sync], errors=(40, 56))
    assert seen.finished
    assert seen.fault is None
