"""Store engine against the meaning of STORE, on a memory that does whatever AXI allows."""

from __future__ import annotations

from functools import cache
from random import Random
from typing import Any

import pytest
from amaranth.sim import Simulator
from hypothesis import given, settings
from hypothesis import strategies as st
from weft.hw.config import CoreConfig
from weft.hw.isa import Engine, Fault, Instruction, Store, Sync
from weft.hw.store import EntryPacker
from weft.sim.dma import transfer_of, transfer_problem

from .axi_memory import AxiMemory, random_bytes
from .dma_bench import WINDOW_BASE, DmaBench, random_memories, reference

DRAM_BYTES = 16384

# Entries smaller than, equal to and larger than the bus word.
SHAPES = (
    {"block_in": 4, "block_out": 4, "bus_bits": 64},
    {"block_in": 8, "block_out": 2, "bus_bits": 512},
    {"block_in": 16, "block_out": 16, "bus_bits": 64},
    {"batch": 2, "block_in": 8, "block_out": 8, "bus_bits": 128, "write_outstanding": 1, "burst_beats": 16},
    {"batch": 4, "block_in": 4, "block_out": 16, "bus_bits": 256, "write_outstanding": 2, "burst_beats": 2},
)


def small_config(**shape: int) -> CoreConfig:
    return CoreConfig(inp_depth=64, wgt_depth=32, acc_depth=64, out_depth=64, acc_banks=4, **shape)


@cache
def bench(number: int) -> DmaBench:
    return DmaBench(small_config(**SHAPES[number]), Engine.STORE)


@st.composite
def stores(draw: st.DrawFn, config: CoreConfig) -> Instruction:
    """A STORE that passes all checks, or a SYNC."""
    if draw(st.integers(0, 9)) == 0:
        return Sync(engine=Engine.STORE, send=1 << Engine.LOAD)
    columns = draw(st.integers(0, 9))
    values = {
        "index": draw(st.integers(0, 40)),
        "offset": draw(st.integers(0, 200)),
        "rows": draw(st.integers(0, 4)),
        "columns": columns,
        "stride": columns if draw(st.booleans()) else draw(st.integers(0, 20)),
        "send": draw(st.sampled_from((0, 1 << Engine.GEMM))),
    }
    while problem := transfer_problem(config, transfer_of(config, Store(**values)), DRAM_BYTES):
        if problem[0] is Fault.ALIGNMENT:
            values["offset"] -= 1
        else:
            values = {name: value // 2 for name, value in values.items()} | {"send": values["send"]}
    return Store(**values)


@pytest.mark.parametrize("number", range(len(SHAPES)))
@settings(max_examples=10)
@given(data=st.data())
def test_stores_do_what_the_instruction_says(number: int, data: st.DataObject) -> None:
    config = small_config(**SHAPES[number])
    program = data.draw(st.lists(stores(config), min_size=1, max_size=8))
    seed = data.draw(st.integers(0, 1000))
    memories = random_memories(config, seed)
    expected = random_bytes(DRAM_BYTES, seed)
    limit = config.write_outstanding
    dram = AxiMemory(bytearray(expected), config, seed, WINDOW_BASE, outstanding_limit=limit)
    assert reference(memories, expected, program, DRAM_BYTES) is None

    observed = bench(number).run(memories, dram, program, window_size=DRAM_BYTES, seed=seed)
    assert observed.fault is None
    assert observed.retired == list(range(len(program)))
    assert observed.sent == [instruction.send for instruction in program if instruction.send]
    assert dram.content == expected
    assert dram.open_writes == 0
    stored = 0
    for instruction, answered in zip(program, observed.answered, strict=True):
        stored += transfer_of(config, instruction).bytes if isinstance(instruction, Store) else 0
        assert answered * config.bus_bytes >= stored, "retired before the memory had it all"


@pytest.mark.parametrize("number", [0, 2])
def test_entries_wait_until_their_words_are_taken(number: int) -> None:
    """The write master takes a word now and then; the packer reads ahead of it only as far as it has room."""
    config = small_config(**SHAPES[number])
    packer = EntryPacker(config)
    entries = [random_bytes(config.out_bytes, index) for index in range(40)]
    random = Random(number)
    packed = bytearray()

    async def bench(ctx: Any) -> None:
        answers: list[int | None] = [None, None]
        ctx.set(packer.rows.payload.rows, 1)
        ctx.set(packer.rows.payload.columns, len(entries))
        for cycle in range(1000):
            ctx.set(packer.rows.valid, cycle == 0)
            answer = answers.pop(0)
            if answer is not None:
                ctx.set(packer.out.data, int.from_bytes(entries[answer], "little"))
            ctx.set(packer.words.ready, random.random() < 0.2)
            answers.append(ctx.get(packer.out.index) if ctx.get(packer.out.enable) else None)
            if ctx.get(packer.words.valid) and ctx.get(packer.words.ready):
                word = ctx.get(packer.words.payload.data).to_bytes(config.bus_bytes, "little")
                strobe = ctx.get(packer.words.payload.strobe)
                packed.extend(byte for place, byte in enumerate(word) if strobe >> place & 1)
            await ctx.tick()

    simulator = Simulator(packer)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    assert packed == b"".join(entries)


@pytest.mark.parametrize(
    ("fields", "window", "fault"),
    [
        ({"index": 60, "columns": 5}, DRAM_BYTES, Fault.INDEX),
        ({"rows": 65, "columns": 1}, DRAM_BYTES, Fault.INDEX),
        ({"offset": 1, "columns": 2}, 11, Fault.WINDOW),
        ({"rows": 3, "columns": 2, "stride": 100}, 807, Fault.WINDOW),
    ],
)
def test_illegal_stores_are_refused_before_anything_moves(fields: dict[str, int], window: int, fault: Fault) -> None:
    config = small_config(**SHAPES[0])
    program = [Store(**({"index": 0, "offset": 0, "rows": 1, "columns": 1} | fields))]
    dram = AxiMemory(random_bytes(DRAM_BYTES, 0), config, base=WINDOW_BASE)
    observed = bench(0).run(random_memories(config, 1), dram, program, window_size=window)
    assert observed.fault == (fault, 0)
    assert not dram.bursts


def test_write_error_names_a_store_under_way_and_the_bus_drains() -> None:
    config = small_config(**SHAPES[2])
    program = [Store(index=8 * number, offset=8 * number, rows=1, columns=8) for number in range(4)]
    dram = AxiMemory(random_bytes(DRAM_BYTES, 0), config, base=WINDOW_BASE, errors=(16 * 20,))
    observed = bench(2).run(random_memories(config, 1), dram, program, window_size=DRAM_BYTES)
    assert observed.fault is not None
    cause, number = observed.fault
    assert (cause, number in (1, 2)) == (Fault.BUS_WRITE, True)
    assert dram.open_writes == 0


def test_a_store_of_many_bursts_retires_with_the_last_answer() -> None:
    config = small_config(**SHAPES[2])
    program = [Store(index=0, offset=64 * number, rows=4, columns=14, stride=15) for number in range(2)]
    dram = AxiMemory(random_bytes(DRAM_BYTES, 0), config, base=WINDOW_BASE, latency=100)
    observed = bench(2).run(random_memories(config, 1), dram, program, window_size=DRAM_BYTES)
    assert observed.answered == [4 * 14 * 2, 2 * 4 * 14 * 2]


def test_bus_stays_busy_from_row_to_row_and_from_store_to_store() -> None:
    config = small_config(**SHAPES[2])
    program = [Store(index=0, offset=64 * number, rows=4, columns=14, stride=15) for number in range(8)]
    dram = AxiMemory(random_bytes(DRAM_BYTES, 0), config, base=WINDOW_BASE, latency=5, stall=0.0)
    observed = bench(2).run(random_memories(config, 1), dram, program, window_size=DRAM_BYTES)
    words = 8 * 4 * 14 * 2
    assert dram.write_beats == words
    assert observed.cycles < 1.1 * words + 150
