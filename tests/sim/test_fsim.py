"""The functional simulator alone: tokens, deadlocks, races, DMA, errors."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from weft.hw.config import TINY, CoreConfig
from weft.hw.isa import Engine, Fault
from weft.hw.programs import assemble
from weft.sim.errors import RaceError, SimulationError
from weft.sim.fsim import FunctionalSimulator
from weft.sim.fuzz import random_case, seeded
from weft.sim.fuzz_compare import fill as fill_case
from weft.sim.result import FaultRecord

from .programs import parse, run_text

DATA = 4096
"""Byte offset of data in these tests; tiny has granules of 4 bytes."""


def simulator(config: CoreConfig = TINY, **options: object) -> FunctionalSimulator:
    made = FunctionalSimulator(config, 1 << 14, **options)
    made.dram[DATA:] = np.arange(len(made.dram) - DATA) % 251
    return made


def test_load_pads_strides_and_widens():
    core = simulator()
    result = run_text(
        core,
        """
        load load scratchpad=inp index=3 offset=1024 rows=2 columns=2 stride=5 pad_top=1 pad_right=1 pad_value=-7
        load loadw scratchpad=acc8 index=8 offset=1030 rows=1 columns=2
        finish
        """,
    )
    assert result.fault is None
    source = core.dram[DATA:].view(np.int8).reshape(-1, 4)
    expected = np.full((3, 3, 4), -7, np.int8)
    expected[1:, :2] = source[[[0, 1], [5, 6]]]
    np.testing.assert_array_equal(core.memories.inp[3:12], expected.reshape(-1, 4))
    np.testing.assert_array_equal(core.memories.acc[8:10], source[6:8])
    assert result.bytes_read == 3 * 16 + 16 + 8


def test_store_rows_that_overlap_are_written_in_order():
    core = simulator()
    core.memories.out[:6] = np.arange(24).reshape(6, 4)
    run_text(core, "store store index=0 offset=1024 rows=3 columns=2 stride=1\nfinish")
    np.testing.assert_array_equal(
        core.dram[DATA : DATA + 16].reshape(4, 4), core.memories.out[[0, 2, 4, 5]].view(np.uint8)
    )


def test_a_chain_of_tokens_through_a_third_engine_orders_two():
    result = run_text(
        simulator(),
        """
        load load scratchpad=acc index=0 offset=1024 rows=1 columns=4 send=gemm
        sync gemm wait=load send=vector
        vector vector op=add b_immediate=1 dst=0 a=1 b=3 levels=0 wait=gemm
        finish
        """,
    )
    assert result.fault is None
    assert result.tokens_left == {}


def test_race_names_both_instructions_and_the_entry():
    with pytest.raises(RaceError) as caught:
        run_text(
            simulator(),
            """
            loop vector level=0 extent=4 dst_stride=1
            load load scratchpad=acc index=2 offset=1024 rows=1 columns=4
            vector vector op=sum dst=0 a=40 levels=1 zero=1
            finish
            """,
        )
    assert str(caught.value) == (
        "race on acc entry 2: instruction 1 (load) writes it and instruction 2 (vector) writes it, with no chain of "
        "tokens between them; hint: send a token from the first to the second, or let one engine do both"
    )
    assert caught.value.__notes__[0].startswith("instruction 1: load load scratchpad=acc index=2")


TO_INP = "vector vector op=add target=inp b_immediate=1 levels=1 dst=7 a=40 b=1"


@pytest.mark.parametrize(
    ("other", "what"),
    [
        ("gemm gemm dst=200 src=9 wgt=0", r"\(gemm\) reads it"),
        ("load load scratchpad=inp index=9 offset=1024 rows=1 columns=1", r"\(load\) writes it"),
    ],
)
@pytest.mark.parametrize("first", [False, True])
def test_results_in_inp_race_with_gemm_and_load(other: str, what: str, first: bool):
    lines = [other, TO_INP] if first else [TO_INP, other]
    sender, receiver = (line.split()[1] for line in lines)
    loop = "loop vector level=0 extent=3 dst_stride=1 a_stride=1\n"
    with pytest.raises(RaceError, match=f"race on inp entry 9: .*{what}"):
        run_text(simulator(), f"{loop}{lines[0]}\n{lines[1]}\nfinish")
    ordered = f"{loop}{lines[0]} send={receiver}\n{lines[1]} wait={sender}\nfinish"
    assert run_text(simulator(), ordered).fault is None


def test_a_layer_reads_from_inp_what_the_one_before_has_put_there():
    core = simulator()
    random = np.random.default_rng(0)
    for memory in (core.memories.inp, core.memories.wgt):
        memory[...] = random.integers(-9, 10, memory.shape)
    inp, wgt = core.memories.inp[:8].astype(int), core.memories.wgt.reshape(-1, 4, 4).astype(int)
    run_text(
        core,
        """
        loop gemm level=0 extent=8 dst_stride=1 a_stride=1
        gemm gemm levels=1 zero=1 dst=0 src=0 wgt=3 send=vector
        loop vector level=0 extent=8 dst_stride=1 a_stride=1
        vector vector op=shr target=inp b_immediate=1 levels=1 dst=100 a=0 b=2 wait=gemm send=gemm
        gemm gemm levels=1 zero=1 dst=20 src=100 wgt=5 wait=vector
        finish
        """,
    )
    between = (inp @ wgt[3].T >> 2).astype(np.int8)
    np.testing.assert_array_equal(core.memories.inp[100:108], between)
    np.testing.assert_array_equal(core.memories.acc[20:28], between.astype(int) @ wgt[5].T)


def test_race_through_dram():
    with pytest.raises(
        RaceError, match=r"race on dram granule 1025: instruction 0 \(load\) reads .* 1 \(store\) writes"
    ):
        run_text(
            simulator(),
            """
            load load scratchpad=inp index=0 offset=1024 rows=1 columns=2
            store store index=0 offset=1025 rows=1 columns=4
            finish
            """,
        )


def test_order_by_full_counters_does_not_hide_a_race():
    """The write happens late in every execution because a counter is full; nothing but capacity orders it."""
    config = replace(TINY, token_depth=1)
    text = """
    sync load send=gemm
    sync load send=gemm
    load load scratchpad=acc index=0 offset=1024 rows=1 columns=1
    gemm gemm dst=0 src=0 wgt=0 wait=load
    sync gemm wait=load
    finish
    """
    with pytest.raises(RaceError, match="race on acc entry 0"):
        run_text(simulator(config), text)


def test_the_program_must_not_store_over_itself():
    with pytest.raises(SimulationError, match=r"instruction 0 stores to bytes 0x10..0x14, where its own program lies"):
        run_text(simulator(), "store store index=0 offset=4 rows=1 columns=1\nfinish")


def test_nor_into_itself_from_before_its_start():
    core = simulator()
    program = parse("store store index=0 offset=63 rows=1 columns=2\nfinish")
    code = assemble(TINY, program)
    core.dram[256 : 256 + len(code)] = code
    with pytest.raises(SimulationError, match=r"stores to bytes 0xfc..0x104, where its own program lies"):
        core.run(256, len(program))


def test_rows_side_by_side_in_dram_do_not_race():
    """What is loaded ends where the row that is stored begins, and the other way round."""
    text = """
    load load scratchpad=inp index=0 offset=1024 rows=4 columns=2 stride=5
    store store index=0 offset=1026 rows=4 columns=3 stride=5
    finish
    """
    assert run_text(simulator(), text).fault is None


def test_deadlock_tells_what_each_engine_waits_for():
    result = run_text(
        simulator(),
        """
        sync load wait=store send=gemm
        gemm gemm dst=0 src=0 wgt=0 wait=load,loadw send=store
        sync store wait=gemm send=load
        finish
        """,
    )
    assert result.fault == FaultRecord(Fault.WATCHDOG, Engine.LOAD, 0)
    assert result.fault.message == (
        "deadlock: instruction 0 (sync load wait=store send=gemm) waits for a token of store; "
        "instruction 1 (gemm gemm wait=load,loadw send=store dst=0 src=0 wgt=0) waits for a token of load, loadw; "
        "instruction 2 (sync store wait=gemm send=load) waits for a token of gemm"
    )


def test_deadlock_by_a_full_counter_and_a_full_queue():
    config = replace(TINY, token_depth=1, queue_depth=2)
    sends = "sync load send=gemm\n" * 19  # one in the counter, 15 executed, two in the queue
    result = run_text(simulator(config), sends + "sync gemm wait=load\nfinish")
    assert result.fault is not None
    assert result.fault.cause is Fault.WATCHDOG
    assert "cannot send: no room for a token to gemm" in result.fault.message
    assert "fetch cannot place instruction 18: the queue of load is full" in result.fault.message


def test_tokens_left_are_reported():
    result = run_text(simulator(), "sync load send=gemm,store\nsync load send=gemm\nfinish")
    assert result.tokens_left == {(Engine.LOAD, Engine.GEMM): 2, (Engine.LOAD, Engine.STORE): 1}


def test_too_many_micro_ops_are_refused():
    loops = "".join(f"loop gemm level={level} extent=500\n" for level in range(4))
    with pytest.raises(SimulationError, match=r"instruction 4 has 62500000000 micro-ops, but at most"):
        run_text(simulator(), loops + "gemm gemm dst=0 src=0 wgt=0 levels=4\nfinish")


def test_window_must_be_inside_the_memory():
    with pytest.raises(
        SimulationError, match=r"window 0x1000 \+ 0x4000 bytes is not inside the memory of 0x4000 bytes"
    ):
        simulator().run(0, 1, window_start=4096, window_bytes=1 << 14)


@pytest.mark.parametrize("rows", [1, 3])
def test_a_race_about_a_part_of_a_granule_is_found(rows: int):
    """With batch 8, a weight has 16 bytes and a granule 32."""
    core = simulator(replace(TINY, batch=8))
    with pytest.raises(RaceError, match="dram"):
        run_text(
            core,
            f"""
            load loadw scratchpad=wgt index=0 offset=130 rows={rows} columns=1 stride=3
            store store index=0 offset=128 rows=1 columns=3
            finish
            """,
        )


@pytest.mark.parametrize(
    "config", [TINY, replace(TINY, token_depth=1, queue_depth=2), replace(TINY, batch=2, block_in=8)], ids=str
)
def test_random_programs_are_free_of_races_and_deadlocks(config):
    core = FunctionalSimulator(config, 1 << 16)
    for seed in range(60):
        case = random_case(config, seeded(seed))
        offset, count = fill_case(case, core)
        assert core.run(offset, count, window_start=case.window_start).fault is None, str(case)
