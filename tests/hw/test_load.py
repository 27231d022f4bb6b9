"""Load engines against the meaning of LOAD, on a memory that does whatever AXI allows."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from weft.hw.config import STRIDE_BITS, CoreConfig
from weft.hw.isa import LEGAL_SCRATCHPADS, Engine, Fault, Instruction, Load, Scratchpad, Sync
from weft.hw.memories import Memory
from weft.sim.dma import transfer_of, transfer_problem

from .axi_memory import AxiMemory, random_bytes
from .dma_bench import WINDOW_BASE, DmaBench, random_memories, reference

DRAM_BYTES = 16384

# Entries smaller than, equal to and larger than the bus word; both blocks larger.
SHAPES = (
    {"block_in": 4, "block_out": 4, "bus_bits": 64},
    {"block_in": 2, "block_out": 8, "bus_bits": 512},
    {"block_in": 16, "block_out": 16, "bus_bits": 64, "burst_beats": 16},
    {"batch": 2, "block_in": 8, "block_out": 2, "bus_bits": 128},
    {"batch": 4, "block_in": 4, "block_out": 16, "bus_bits": 256, "read_outstanding": 2, "burst_beats": 2},
)


def small_config(**shape: int) -> CoreConfig:
    return CoreConfig(inp_depth=64, wgt_depth=32, acc_depth=64, out_depth=64, acc_banks=4, **shape)


@cache
def bench(number: int, engine: Engine) -> DmaBench:
    return DmaBench(small_config(**SHAPES[number]), engine)


@st.composite
def loads(draw: st.DrawFn, config: CoreConfig, engine: Engine) -> Instruction:
    """A LOAD that passes all checks, or a SYNC."""
    if draw(st.integers(0, 9)) == 0:
        return Sync(engine=engine, send=1 << Engine.STORE)
    pads = {f"pad_{side}": draw(st.sampled_from((0, 0, 1, 3))) for side in ("top", "bottom", "left", "right")}
    instruction = Load(
        engine=engine,
        scratchpad=draw(st.sampled_from(LEGAL_SCRATCHPADS[engine])),
        index=draw(st.integers(0, 40)),
        offset=draw(st.integers(0, 200)),
        rows=draw(st.integers(0, 4)),
        columns=draw(st.integers(0, 9)),
        stride=draw(st.integers(0, 20)),
        pad_value=draw(st.integers(-128, 127)),
        send=1 << Engine.GEMM if draw(st.booleans()) else 0,
        **(pads if draw(st.booleans()) else {}),
    )
    return legal(config, instruction, draw(st.booleans()))


def legal(config: CoreConfig, instruction: Load, dense: bool) -> Load:
    """The instruction with less of everything, until it passes the checks."""
    values = vars(instruction) | ({"stride": instruction.columns} if dense else {})
    while problem := transfer_problem(config, transfer_of(config, Load(**values)), DRAM_BYTES):
        match problem[0]:
            case Fault.INDEX:
                names = ("index", "rows", "columns", "pad_top", "pad_bottom", "pad_left", "pad_right")
                values |= {name: values[name] // 2 for name in names}
            case Fault.ALIGNMENT:
                values["offset"] -= 1
            case _:
                values["offset"] //= 2
                values["stride"] //= 2
                values["rows"] -= values["offset"] == 0
    return Load(**values)


@pytest.mark.parametrize("engine", [Engine.LOAD, Engine.LOADW])
@pytest.mark.parametrize("number", range(len(SHAPES)))
@settings(max_examples=6)
@given(data=st.data())
def test_loads_do_what_the_instruction_says(number: int, engine: Engine, data: st.DataObject) -> None:
    config = small_config(**SHAPES[number])
    program = data.draw(st.lists(loads(config, engine), min_size=1, max_size=8))
    seed = data.draw(st.integers(0, 1000))
    content = random_bytes(DRAM_BYTES, seed)
    expected = random_memories(config, seed)
    assert reference(expected, bytearray(content), program, DRAM_BYTES) is None

    dram = AxiMemory(content, config, seed, WINDOW_BASE, outstanding_limit=config.read_outstanding)
    observed = bench(number, engine).run(
        random_memories(config, seed), dram, program, window_size=DRAM_BYTES, seed=seed
    )
    assert observed.fault is None
    assert observed.retired == list(range(len(program)))
    assert observed.sent == [instruction.send for instruction in program if instruction.send]
    for name in (Memory.INP, Memory.WGT, Memory.ACC):
        np.testing.assert_array_equal(observed.memories.array(name), expected.array(name), err_msg=name)


@pytest.mark.parametrize(
    ("fields", "window", "fault"),
    [
        ({"scratchpad": Scratchpad.WGT}, DRAM_BYTES, Fault.ILLEGAL),
        ({"index": 60, "columns": 5}, DRAM_BYTES, Fault.INDEX),
        ({"index": 50, "rows": 2, "columns": 5, "pad_left": 2, "pad_bottom": 1}, DRAM_BYTES, Fault.INDEX),
        ({"index": 60, "columns": 5, "offset": 1}, DRAM_BYTES, Fault.INDEX),
        ({"scratchpad": Scratchpad.ACC, "offset": 1}, 8, Fault.ALIGNMENT),
        ({"offset": 1, "columns": 2}, 11, Fault.WINDOW),
        ({"rows": 3, "columns": 2, "stride": 100}, 807, Fault.WINDOW),
        ({"rows": 2, "columns": 1, "stride": 2**STRIDE_BITS - 1}, DRAM_BYTES, Fault.WINDOW),
    ],
)
def test_illegal_loads_are_refused_before_anything_moves(fields: dict[str, int], window: int, fault: Fault) -> None:
    config = small_config(**SHAPES[0])
    values = {"scratchpad": Scratchpad.INP, "index": 0, "offset": 0, "rows": 1, "columns": 1} | fields
    program = [Load(scratchpad=Scratchpad.INP, index=3, offset=0, rows=0, columns=1), Load(**values)]  # type: ignore[arg-type]
    dram = AxiMemory(random_bytes(DRAM_BYTES, 0), config, base=WINDOW_BASE)
    observed = bench(0, Engine.LOAD).run(random_memories(config, 1), dram, program, window_size=window)
    assert observed.fault == (fault, 1)
    assert not dram.bursts
    assert observed.memories.inp.tobytes() == random_memories(config, 1).inp.tobytes()


def test_window_and_scratchpad_may_be_used_to_their_last_byte() -> None:
    config = small_config(**SHAPES[0])
    program = [Load(scratchpad=Scratchpad.INP, index=62, offset=100, rows=2, columns=1, stride=3)]
    dram = AxiMemory(random_bytes(DRAM_BYTES, 0), config, base=WINDOW_BASE)
    observed = bench(0, Engine.LOAD).run(random_memories(config, 1), dram, program, window_size=416)
    assert observed.fault is None
    assert observed.retired == [0]


def test_read_error_names_the_load_whose_data_is_bad() -> None:
    config = small_config(**SHAPES[2])
    program = [
        Load(scratchpad=Scratchpad.INP, index=8 * number, offset=8 * number, rows=1, columns=8) for number in range(4)
    ]
    dram = AxiMemory(random_bytes(DRAM_BYTES, 0), config, base=WINDOW_BASE, errors=(16 * 20,))
    observed = bench(2, Engine.LOAD).run(random_memories(config, 1), dram, program, window_size=DRAM_BYTES)
    assert observed.fault == (Fault.BUS_READ, 2)


def test_bad_data_that_came_early_counts_for_its_own_load() -> None:
    """While the first LOAD writes its padding, the word that the memory refused the second one is already there."""
    config = small_config(**SHAPES[0])
    program = [
        Load(
            scratchpad=Scratchpad.INP, index=0, offset=0, rows=0, columns=0, pad_value=-5,
            pad_top=15, pad_bottom=15, pad_left=1, pad_right=1,
        ),
        Load(scratchpad=Scratchpad.INP, index=60, offset=64, rows=1, columns=1),
    ]  # fmt: skip
    dram = AxiMemory(random_bytes(DRAM_BYTES, 0), config, base=WINDOW_BASE, latency=1, errors=(4 * 64,))
    observed = bench(0, Engine.LOAD).run(random_memories(config, 1), dram, program, window_size=DRAM_BYTES)
    assert observed.fault == (Fault.BUS_READ, 1)
    assert (observed.memories.inp[:60] == -5).all()


def test_bus_stays_busy_from_row_to_row_and_from_load_to_load() -> None:
    config = small_config(**SHAPES[2])
    program = [
        Load(scratchpad=Scratchpad.INP, index=0, offset=64 * number, rows=4, columns=14, stride=15)
        for number in range(8)
    ]
    dram = AxiMemory(random_bytes(DRAM_BYTES, 0), config, base=WINDOW_BASE, latency=50, stall=0.0)
    observed = bench(2, Engine.LOAD).run(random_memories(config, 1), dram, program, window_size=DRAM_BYTES)
    words = 8 * 4 * 14 * 2
    span = observed.write_cycles[-1] - observed.write_cycles[0] + 1
    assert len(observed.write_cycles) == words
    assert span < 1.1 * words
