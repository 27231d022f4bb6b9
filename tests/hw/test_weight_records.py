"""Weights of 4 bits on their way into ``wgt``: every weight of every record, whatever the memory does."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from weft.hw.config import TINY, CoreConfig
from weft.hw.isa import Engine, Fault, Instruction, Load, Scratchpad
from weft.hw.pipelines import UNPACK_CYCLES
from weft.hw.weight_form import FOUR_BITS

from .axi_memory import AxiMemory, random_bytes
from .dma_bench import WINDOW_BASE, DmaBench, random_memories, reference
from .test_load import legal

DRAM_BYTES = 16384

CORES = {
    "a word has four outputs": replace(TINY, weight_group=32),
    "a word has one output": replace(TINY, block_in=16, block_out=16, acc_depth=64, weight_group=64),
    "a word has half an output": replace(TINY, block_in=32, block_out=2, weight_group=32),
    "the head is filled up to a word": replace(TINY, block_in=16, block_out=4, bus_bits=128, weight_group=128),
    "the head is filled up to a granule": replace(TINY, batch=8, block_in=8, block_out=4, weight_group=64),
}  # fmt: skip
CORES = {name: replace(core, wgt_depth=64) for name, core in CORES.items()}


@cache
def bench(name: str) -> DmaBench:
    return DmaBench(CORES[name], Engine.LOADW)


def weights_of(core: CoreConfig, record: bytes) -> npt.NDArray[np.int8]:
    """Entries of a record as docs/isa.md defines them, weight by weight: ``(entries, block_out, block_in)``."""
    entries = np.zeros((core.weight_group // core.block_in, core.block_out, core.block_in), np.int8)
    for number, place in enumerate(np.ndindex(entries.shape)):
        scale, zero = record[place[1]] & 15, record[place[1]] >> 4
        code = record[core.weight_head_bytes + number // 2] >> 4 * (number % 2) & 15
        value = (code - zero) * scale & 255
        entries[place] = value - 256 if value > 127 else value
    return entries


@pytest.mark.parametrize("name", CORES)
def test_a_record_is_head_and_entries(name: str) -> None:
    core = CORES[name]
    content = random_bytes(DRAM_BYTES, 1)
    count = core.wgt_depth // core.weight_record_entries
    loads = [Load(engine=Engine.LOADW, scratchpad=Scratchpad.WGT, index=0, offset=0, rows=1, columns=count,
                  stride=count, pad_value=FOUR_BITS)]  # fmt: skip
    dram = AxiMemory(content, core, base=WINDOW_BASE)
    observed = bench(name).run(random_memories(core, 1), dram, loads, window_size=DRAM_BYTES)
    assert observed.fault is None
    size = core.weight_record_bytes
    records = [weights_of(core, bytes(content[number * size : (number + 1) * size])) for number in range(count)]
    np.testing.assert_array_equal(observed.memories.wgt, np.concatenate(records).reshape(core.wgt_depth, -1))


def test_every_code_meets_every_scale_and_zero_point() -> None:
    """With a group of 32 each output of a record has all 16 codes twice; 64 heads of four have all 256 pairs."""
    name = "a word has four outputs"
    core = CORES[name]
    size, each = core.weight_record_bytes, core.weight_record_entries
    content = bytearray(DRAM_BYTES)
    for number in range(64):
        head = bytes(4 * number + output for output in range(4))
        row = [2 * column | (2 * column + 1) << 4 for column in range(8)]
        body = b"".join(bytes(row[2 * (entry % 4) : 2 * (entry % 4) + 2] * 4) for entry in range(each))
        content[number * size : (number + 1) * size] = head.ljust(core.weight_head_bytes, b"\xa5") + body
    seen = set()
    load = Load(engine=Engine.LOADW, scratchpad=Scratchpad.WGT, index=0, offset=0, rows=1, columns=8,
                pad_value=FOUR_BITS)  # fmt: skip
    for part in range(8):
        offset = part * 8 * size // core.granule_bytes
        dram = AxiMemory(content, core, base=WINDOW_BASE)
        memories = random_memories(core, 0)
        observed = bench(name).run(memories, dram, [replace(load, offset=offset)], window_size=DRAM_BYTES)
        assert observed.fault is None
        got = memories.wgt.reshape(8, each, 4, 4)
        for record, output in np.ndindex(8, 4):
            pair = 4 * (8 * part + record) + output
            for code in range(16):
                value = (code - (pair >> 4)) * (pair & 15) & 255
                assert got[record, code // 4, output, code % 4] == (value - 256 if value > 127 else value)
                seen.add((pair, code))
    assert len(seen) == 256 * 16


@st.composite
def loads(draw: st.DrawFn, core: CoreConfig) -> Instruction:
    """A LOAD of records; now and then of plain weights with padding, of parameters, or of int8 into acc."""
    records = draw(st.integers(0, 3)) > 0
    scratchpad = Scratchpad.WGT if records else draw(st.sampled_from((Scratchpad.WGT, Scratchpad.ACC, Scratchpad.ACC8)))
    pads = {f"pad_{side}": draw(st.sampled_from((0, 0, 1))) for side in ("top", "bottom", "left", "right")}
    instruction = Load(
        engine=Engine.LOADW,
        scratchpad=scratchpad,
        index=draw(st.integers(0, 40)),
        offset=draw(st.integers(0, 100)) * max(1, core.bus_bytes // core.granule_bytes),
        rows=draw(st.integers(0, 4)),
        columns=draw(st.integers(0, 5)),
        stride=draw(st.integers(0, 8)),
        pad_value=FOUR_BITS if records else 0,
        send=1 << Engine.GEMM if draw(st.booleans()) else 0,
        **({} if records else pads),
    )
    return legal(core, instruction, draw(st.booleans()))


@pytest.mark.parametrize("name", CORES)
@settings(max_examples=6, deadline=None)
@given(data=st.data())
def test_records_among_other_loads(name: str, data: st.DataObject) -> None:
    core = CORES[name]
    program = data.draw(st.lists(loads(core), min_size=1, max_size=8))
    seed = data.draw(st.integers(0, 1000))
    content = random_bytes(DRAM_BYTES, seed)
    expected = random_memories(core, seed)
    assert reference(expected, bytearray(content), program, DRAM_BYTES) is None
    dram = AxiMemory(content, core, seed, WINDOW_BASE, outstanding_limit=core.read_outstanding)
    memories = random_memories(core, seed)
    observed = bench(name).run(memories, dram, program, window_size=DRAM_BYTES, seed=seed)
    assert observed.fault is None
    assert observed.retired == list(range(len(program)))
    np.testing.assert_array_equal(memories.wgt, expected.wgt)
    np.testing.assert_array_equal(memories.acc, expected.acc)


@pytest.mark.parametrize(
    ("fields", "window", "fault"),
    [
        ({"pad_value": 3}, DRAM_BYTES, Fault.ILLEGAL),
        ({"pad_value": -FOUR_BITS}, DRAM_BYTES, Fault.ILLEGAL),
        ({"pad_left": 1}, DRAM_BYTES, Fault.ILLEGAL),
        ({"pad_right": 1}, DRAM_BYTES, Fault.ILLEGAL),
        ({"pad_top": 1}, DRAM_BYTES, Fault.ILLEGAL),
        ({"pad_bottom": 1}, DRAM_BYTES, Fault.ILLEGAL),
        ({"index": 61}, DRAM_BYTES, Fault.INDEX),
        ({"columns": 17}, DRAM_BYTES, Fault.INDEX),
        ({}, 16 + 4 * 16 * 8 - 1, Fault.WINDOW),
        ({"rows": 2, "stride": 3}, 4 * (16 + 4 * 16 * 8) - 1, Fault.WINDOW),
    ],
)
def test_illegal_records_are_refused_before_anything_moves(fields: dict[str, int], window: int, fault: Fault) -> None:
    assert_refused("a word has one output", fields, window, fault)


def test_a_record_begins_with_a_bus_word() -> None:
    name = "a word has four outputs"
    assert CORES[name].granule_bytes < CORES[name].bus_bytes
    assert_refused(name, {"offset": 1}, DRAM_BYTES, Fault.ALIGNMENT)


def assert_refused(name: str, fields: dict[str, int], window: int, fault: Fault) -> None:
    core = CORES[name]
    load = Load(engine=Engine.LOADW, scratchpad=Scratchpad.WGT, index=0, offset=0, rows=1, columns=1,
                pad_value=FOUR_BITS)  # fmt: skip
    memories, before = random_memories(core, 1), random_memories(core, 1)
    dram = AxiMemory(random_bytes(DRAM_BYTES, 0), core, base=WINDOW_BASE)
    program = [replace(load, rows=0), replace(load, **fields)]  # type: ignore[arg-type]
    observed = bench(name).run(memories, dram, program, window_size=window)
    assert observed.fault == (fault, 1)
    assert not dram.bursts
    np.testing.assert_array_equal(memories.wgt, before.wgt)


@pytest.mark.parametrize("place", [0, 8, 16, 527])  # both words of the head, the first and the last weights
def test_a_read_error_names_the_load_whose_record_is_bad(place: int) -> None:
    core = CORES["a word has one output"]
    size, each = core.weight_record_bytes, core.weight_record_entries
    program = [
        Load(engine=Engine.LOADW, scratchpad=Scratchpad.WGT, index=each * number, rows=1, columns=1,
             offset=number * size // core.granule_bytes, pad_value=FOUR_BITS) for number in range(4)
    ]  # fmt: skip
    dram = AxiMemory(random_bytes(DRAM_BYTES, 0), core, base=WINDOW_BASE, errors=(2 * size + place,))
    memories = random_memories(core, 1)
    expected = random_memories(core, 1)
    reference(expected, bytearray(random_bytes(DRAM_BYTES, 0)), program[:2], DRAM_BYTES)
    observed = bench("a word has one output").run(memories, dram, program, window_size=DRAM_BYTES)
    assert observed.fault == (Fault.BUS_READ, 2)
    np.testing.assert_array_equal(memories.wgt[: 2 * each], expected.wgt[: 2 * each])


def test_a_word_of_weights_is_unpacked_every_cycle() -> None:
    core = CORES["a word has one output"]
    count = core.wgt_depth // core.weight_record_entries
    load = Load(engine=Engine.LOADW, scratchpad=Scratchpad.WGT, index=0, offset=0, rows=1, columns=count,
                pad_value=FOUR_BITS)  # fmt: skip
    dram = AxiMemory(random_bytes(DRAM_BYTES, 0), core, base=WINDOW_BASE, latency=5, stall=0.0)
    observed = bench("a word has one output").run(random_memories(core, 1), dram, [load], window_size=DRAM_BYTES)
    words = count * core.weight_record_bytes // core.bus_bytes
    heads = count * core.weight_head_bytes // core.bus_bytes
    assert len(observed.write_cycles) == words - heads
    first_head = core.weight_head_bytes // core.bus_bytes
    assert observed.write_cycles[-1] - observed.write_cycles[0] + 1 == words - first_head
    assert UNPACK_CYCLES < observed.write_cycles[0] < 60
