"""Running the core: start, end, reset at any time, locked settings, interrupt, and cycles all accounted for."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import numpy as np
import pytest
from weft.hw.config import TINY
from weft.hw.core import scratchpad_ports
from weft.hw.cycle_class import CycleClass
from weft.hw.isa import (
    MEMORY_USERS,
    Engine,
    Fault,
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
    encode,
    encode_unchecked,
)
from weft.hw.memories import SCRATCHPADS
from weft.hw.programs import assemble
from weft.hw.registers import Control, Register, Status
from weft.sim.dram import DramModel
from weft.sim.result import FaultRecord
from weft.sim.rtl import RtlSimulator

MEMORY_BYTES = 1 << 16
PROGRAM = 0x8000
RESULT = 0x4000
ENTRIES = 96

TO_LOAD, TO_GEMM, TO_VECTOR, TO_STORE = (
    1 << engine for engine in (Engine.LOAD, Engine.GEMM, Engine.VECTOR, Engine.STORE)
)


def add_seven() -> list[Instruction]:
    """``result = int8(int32 data + 7)`` for ``ENTRIES`` entries."""
    return [
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
        Store(index=0, offset=RESULT // TINY.granule_bytes, rows=1, columns=ENTRIES, wait=TO_VECTOR),
        Finish(),
    ]


@cache
def machine() -> RtlSimulator:
    return RtlSimulator(TINY, MEMORY_BYTES)


@pytest.fixture
def simulator() -> Iterator[RtlSimulator]:
    """The core after a reset, with random data."""
    core = machine()
    core.set_dram(DramModel())
    core.dram[:] = np.random.default_rng(1).integers(0, 256, MEMORY_BYTES, np.uint8)
    yield core
    core.write_register(Register.CONTROL, Control.RESET)


def put(simulator: RtlSimulator, program: list[Instruction]) -> int:
    """Write the program into memory; return its length."""
    raw = assemble(TINY, program)
    simulator.dram[PROGRAM : PROGRAM + len(raw)] = raw
    return len(program)


def check_add_seven(simulator: RtlSimulator) -> None:
    """Run :func:`add_seven` and check its result and its cycles."""
    data = simulator.dram[: ENTRIES * TINY.acc_bytes].view(np.int32)
    simulator.dram[RESULT : RESULT + ENTRIES * TINY.out_bytes] = 0
    result = simulator.run(PROGRAM, put(simulator, add_seven()))
    assert result.fault is None
    stored = simulator.dram[RESULT : RESULT + ENTRIES * TINY.out_bytes].view(np.int8)
    np.testing.assert_array_equal(stored, (data + 7).astype(np.int8))
    assert all(sum(counts.values()) == result.cycles for counts in result.counters.values())


def start(simulator: RtlSimulator, count: int) -> None:
    """Start a program by hand, so that the test can act while it runs."""
    for register, value in (
        (Register.WINDOW_BASE_LO, 0x1000_0000),
        (Register.WINDOW_BASE_HI, 0),
        (Register.WINDOW_SIZE_LO, MEMORY_BYTES),
        (Register.WINDOW_SIZE_HI, 0),
        (Register.PROGRAM_OFFSET, PROGRAM),
        (Register.PROGRAM_COUNT, count),
        (Register.WATCHDOG, 0),
        (Register.CONTROL, Control.START),
    ):
        simulator.write_register(register, value)


def status(simulator: RtlSimulator) -> Status:
    return Status(simulator.read_register(Register.STATUS))


def wait_for(simulator: RtlSimulator, bits: Status) -> Status:
    for _ in range(5000):
        current = status(simulator)
        if bits in current:
            return current
    raise AssertionError(f"status stays {current!r}, without {bits!r}")


def stuck() -> list[Instruction]:
    """Loads and stores a lot, and then waits for a token that never comes."""
    moves: list[Instruction] = []
    for _ in range(8):
        moves.append(Load(scratchpad=Scratchpad.INP, index=0, offset=0, rows=16, columns=32, stride=40))
        moves.append(Store(index=0, offset=0xC000 // TINY.granule_bytes, rows=4, columns=30, stride=33))
    return [*moves, Sync(engine=Engine.LOAD, wait=TO_STORE), Finish()]


def test_the_scratchpads_are_wired_to_the_engines_that_use_them() -> None:
    wired = {(memory, engine) for engine, _, memory, _ in scratchpad_ports(TINY)}
    users = {memory: MEMORY_USERS[memory] for memory in SCRATCHPADS}
    assert wired == {(memory, engine) for memory, of in users.items() for engine in (*of.writers, *of.readers)}


def test_program_runs_and_every_cycle_is_in_one_class(simulator: RtlSimulator) -> None:
    check_add_seven(simulator)
    check_add_seven(simulator)


@pytest.mark.parametrize("latency", [DramModel().latency, 400])
def test_running_core_can_be_reset_at_any_time(simulator: RtlSimulator, latency: int) -> None:
    simulator.set_dram(DramModel(latency=latency))
    for polls in range(0, 120, 5):
        start(simulator, put(simulator, stuck()))
        for _ in range(polls):
            assert Status.RUNNING in status(simulator)
        simulator.write_register(Register.CONTROL, Control.RESET)
        assert status(simulator) in (Status.IDLE, Status.IDLE | Status.BUS_BUSY)
        check_add_seven_by_hand(simulator)


def check_add_seven_by_hand(simulator: RtlSimulator) -> None:
    """Start at once, even while the bus still drains. Settings are locked then: the number of instructions may be that
    of the program before, but FINISH ends this one."""
    simulator.dram[RESULT : RESULT + ENTRIES * TINY.out_bytes] = 0
    raw = assemble(TINY, add_seven())
    simulator.dram[PROGRAM : PROGRAM + len(raw)] = raw
    start(simulator, len(add_seven()))
    assert Status.FAULT not in wait_for(simulator, Status.DONE | Status.INTERRUPT)
    data = simulator.dram[: ENTRIES * TINY.acc_bytes].view(np.int32)
    stored = simulator.dram[RESULT : RESULT + ENTRIES * TINY.out_bytes].view(np.int8)
    np.testing.assert_array_equal(stored, (data + 7).astype(np.int8))


def wait_until_quiet(simulator: RtlSimulator) -> None:
    for _ in range(2000):
        if Status.BUS_BUSY not in status(simulator):
            return
    raise AssertionError("the bus does not drain")


def test_start_waits_until_the_bus_has_drained(simulator: RtlSimulator) -> None:
    simulator.set_dram(DramModel(latency=400))
    start(simulator, put(simulator, stuck()))
    while Status.BUS_BUSY not in status(simulator):
        pass
    simulator.write_register(Register.CONTROL, Control.RESET)
    simulator.write_register(Register.CONTROL, Control.START)
    assert status(simulator) == Status.RUNNING | Status.BUS_BUSY
    wait_for(simulator, Status.RUNNING)
    simulator.write_register(Register.CONTROL, Control.RESET)
    wait_until_quiet(simulator)
    assert status(simulator) == Status.IDLE


def test_start_is_ignored_while_running_and_after_a_fault(simulator: RtlSimulator) -> None:
    start(simulator, put(simulator, [Sync(engine=Engine.GEMM, wait=TO_LOAD), Finish()]))
    for _ in range(100):  # a read takes several cycles, the start 16
        before = simulator.read_register(Register.CYCLES_LO)
    simulator.write_register(Register.CONTROL, Control.START)
    assert simulator.read_register(Register.CYCLES_LO) > before > 200
    simulator.write_register(Register.CONTROL, Control.RESET)
    wait_until_quiet(simulator)

    start(simulator, 0)
    assert wait_for(simulator, Status.FAULT) == Status.IDLE | Status.FAULT | Status.INTERRUPT
    assert simulator.read_register(Register.FAULT_CAUSE) == Fault.NO_FINISH
    simulator.write_register(Register.CONTROL, Control.START)
    assert status(simulator) == Status.IDLE | Status.FAULT | Status.INTERRUPT
    simulator.write_register(Register.CONTROL, Control.RESET)
    assert status(simulator) == Status.IDLE
    assert simulator.read_register(Register.FAULT_CAUSE) == Fault.NONE
    check_add_seven(simulator)


def test_settings_are_locked_while_the_core_runs(simulator: RtlSimulator) -> None:
    start(simulator, put(simulator, [Sync(engine=Engine.GEMM, wait=TO_LOAD), Finish()]))
    simulator.write_register(Register.WINDOW_BASE_LO, 0)
    simulator.write_register(Register.PROGRAM_COUNT, 0)
    assert simulator.read_register(Register.WINDOW_BASE_LO) == 0x1000_0000
    assert simulator.read_register(Register.PROGRAM_COUNT) == 2


def test_settings_are_locked_while_the_bus_drains(simulator: RtlSimulator) -> None:
    """The masters of bursts under way still use the window's base."""
    simulator.set_dram(DramModel(latency=400))
    start(simulator, put(simulator, stuck()))
    while Status.BUS_BUSY not in status(simulator):
        pass
    simulator.write_register(Register.CONTROL, Control.RESET)
    simulator.write_register(Register.WINDOW_BASE_LO, 0)
    assert status(simulator) == Status.IDLE | Status.BUS_BUSY
    assert simulator.read_register(Register.WINDOW_BASE_LO) == 0x1000_0000
    wait_until_quiet(simulator)
    simulator.write_register(Register.WINDOW_BASE_LO, 0)
    assert simulator.read_register(Register.WINDOW_BASE_LO) == 0


def test_a_program_has_not_ended_before_the_bus_is_quiet(simulator: RtlSimulator) -> None:
    """What stands behind FINISH is on its way when FINISH is reached."""
    simulator.set_dram(DramModel(latency=400))
    for behind in (20, 100):
        start(simulator, put(simulator, [Finish(), *[Sync(engine=Engine.GEMM)] * behind]))
        assert wait_for(simulator, Status.DONE) == Status.IDLE | Status.DONE | Status.INTERRUPT


def test_the_watchdog_counts_only_while_a_program_runs(simulator: RtlSimulator) -> None:
    """However long the core was idle before, which is as long as the registers are read: some limit ends with that."""
    simulator.set_dram(DramModel(latency=5))
    count = put(simulator, [Sync(engine=Engine.GEMM), Finish()])
    patience = simulator.watchdog
    try:
        for simulator.watchdog in range(40, 2000):
            assert simulator.run(PROGRAM, count).fault is None, simulator.watchdog
    finally:
        simulator.watchdog = patience


def test_of_two_faults_in_one_cycle_the_lower_engine_counts(simulator: RtlSimulator) -> None:
    """Both engines get their token in the same cycle, and both refuse the instruction that waits for it."""
    refused = [
        Vector(op=VectorOp.ADD, levels=7, dst=0, a=0, wait=TO_LOAD),
        Gemm(levels=7, dst=0, src=0, wgt=0, wait=TO_LOAD),
    ]
    words = [encode_unchecked(TINY, instruction) for instruction in refused]
    words += [encode(TINY, Sync(engine=Engine.LOAD, send=TO_VECTOR | TO_GEMM)), encode(TINY, Finish())]
    raw = b"".join(word.to_bytes(TINY.instruction_bytes, "little") for word in words)
    simulator.dram[PROGRAM : PROGRAM + len(raw)] = np.frombuffer(raw, np.uint8)
    assert simulator.run(PROGRAM, len(words)).fault == FaultRecord(Fault.ILLEGAL, Engine.GEMM, 1)


def test_interrupt_is_cleared_by_its_bit_and_done_stays(simulator: RtlSimulator) -> None:
    check_add_seven(simulator)
    assert status(simulator) == Status.IDLE | Status.DONE | Status.INTERRUPT
    simulator.write_register(Register.CONTROL, Control.CLEAR_INTERRUPT)
    assert status(simulator) == Status.IDLE | Status.DONE


def test_loads_of_inputs_and_of_weights_share_the_bus_evenly(simulator: RtlSimulator) -> None:
    """Both at once take as long as one after the other, and neither waits for the other's last."""
    loads: list[Instruction] = [
        Load(engine=engine, scratchpad=pad, index=0, offset=0, rows=1, columns=columns)
        for _ in range(4)
        for engine, pad, columns in (
            (Engine.LOAD, Scratchpad.ACC, 128), (Engine.LOADW, Scratchpad.WGT, 128)
        )
    ]  # fmt: skip
    result = simulator.run(PROGRAM, put(simulator, [*loads, Finish()]), trace=True)
    assert result.fault is None
    words = sum(load.columns for load in loads if isinstance(load, Load)) * TINY.acc_bytes // TINY.bus_bytes
    assert result.cycles < words + 350
    assert result.trace is not None
    events = result.trace.events
    ends = [int(events["retire"][events["engine"] == engine].max()) for engine in (Engine.LOAD, Engine.LOADW)]
    assert abs(ends[0] - ends[1]) < 150


def test_gemm_and_vector_run_while_a_load_waits_for_memory(simulator: RtlSimulator) -> None:
    simulator.set_dram(DramModel(latency=500))
    program: list[Instruction] = [
        Load(scratchpad=Scratchpad.INP, index=0, offset=0, rows=1, columns=1, send=TO_GEMM),
        Gemm(zero=1, dst=0, src=8, wgt=0, send=TO_VECTOR),
        Vector(op=VectorOp.ADD, dst=64, a=0, b=0, wait=TO_GEMM, send=TO_GEMM),
        Gemm(dst=128, src=8, wgt=0, wait=TO_VECTOR),
        Sync(engine=Engine.GEMM, wait=TO_LOAD),
        Finish(),
    ]
    result = simulator.run(PROGRAM, put(simulator, program), trace=True)
    assert result.fault is None
    assert result.trace is not None
    retire = {int(event["number"]): int(event["retire"]) for event in result.trace.events}
    assert retire[3] + 300 < retire[0] < retire[4]
    assert result.counters[Engine.GEMM][CycleClass.TOKEN_LOAD] > 300
