"""The driver of several cores on their RTL in this process: no pynq, but memory of its own on each side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest
from weft.boards.link.driver import Run, Window
from weft.boards.link.errors import LinkError
from weft.boards.link.system import Program, SystemDriver, settings_in
from weft.boards.zipapp import core_constants
from weft.hw.bus import PAGE_BYTES
from weft.hw.config import ISA_VERSION
from weft.hw.isa import Engine, Fault, Finish, Instruction, Sync
from weft.hw.programs import assemble
from weft.hw.register_windows import GROUP_MEMBERS, SHARED_START, SHARED_STOP, WINDOW_BYTES
from weft.hw.registers import MAGIC, Register
from weft.hw.relay_plan import RelayPlan, RelayRegister, settings_of_plan, settings_of_turns
from weft.sim.system_rtl import RtlSystem
from weft.sim.system_run import CoreProgram

from tests.boards.systems import Block, buffer, cores_of
from tests.sim.test_relay import RELAY, chain

SIZE = 4 * PAGE_BYTES
LOST = Sync(wait=1 << Engine.STORE, engine=Engine.LOAD)
"""Waits for a token that nobody sends."""
NOTHING = Sync(engine=Engine.LOAD)


class Setup:
    """A driver with a page of memory for each core, which holds a program of the core."""

    def __init__(self, *programs: list[Instruction]) -> None:
        self.simulator = RtlSystem(RELAY, SIZE, quick=True)
        self.block = Block(self.simulator)
        self.driver = SystemDriver(
            core_constants(), cores_of(RELAY), self.block, lambda size: buffer(self.simulator, size)
        )
        self.window = self.driver.allocate(SIZE)
        self.programs = []
        for core, (config, text) in enumerate(zip(RELAY.cores, programs, strict=False)):
            self.window.write(core * PAGE_BYTES, assemble(config, text).tobytes())
            self.programs.append(Program(core * PAGE_BYTES, PAGE_BYTES, 0, len(text)))

    def run(self, *programs: Program | None, shared: range = range(0), **how: Any) -> list[Run | None]:
        how = {"seconds": 60.0, "watchdog": 0, **how}
        return self.driver.run(self.window, programs or self.programs, shared, **how)


class Registers:
    """Of cores that stand still; nothing runs on them. ``wrong`` replaces what some addresses read as."""

    def __init__(self, wrong: dict[int, int] | None = None) -> None:
        self.values = {int(GROUP_MEMBERS): 7}
        self.written: dict[int, int] = {}
        for core, config in enumerate(RELAY.cores):
            for register, value in (
                (Register.MAGIC, MAGIC),
                (Register.VERSION, ISA_VERSION),
                (Register.HASH_LO, config.hash64 & 0xFFFF_FFFF),
                (Register.HASH_HI, config.hash64 >> 32),
            ):
                self.values[core * WINDOW_BYTES + register] = value
        self.values |= wrong or {}

    def read(self, address: int) -> int:
        return self.values.get(address, 0)

    def write(self, address: int, value: int) -> None:
        self.written[address] = value


class Still:
    """In the place of the RTL for what is refused before anything runs."""

    def __init__(self) -> None:
        self.dram = np.zeros(SIZE, np.uint8)


def standing(values: dict[int, int] | None = None) -> tuple[SystemDriver, Window, list[Program]]:
    """A driver of such cores, its window, and a program for each."""
    driver = SystemDriver(
        core_constants(), cores_of(RELAY), Registers(values), lambda size: buffer(cast("RtlSystem", Still()), size)
    )
    return driver, driver.allocate(SIZE), [Program(core * PAGE_BYTES, PAGE_BYTES, 0, 1) for core in range(3)]


def plain(run: Run | None) -> Run | None:
    return None if run is None else replace(run, seconds=0.0, polls=0)


def cycles_of(board: Setup) -> list[int | None]:
    """Of the same programs in the same memory, by the simulator's own start."""
    other = RtlSystem(RELAY, SIZE, quick=True)
    other.dram[:] = board.window.data
    programs = [
        CoreProgram(offset=each.offset, count=each.count, window_start=each.start, window_bytes=each.size)
        for each in board.programs
    ]
    return [result and result.cycles for result in other.run(programs).cores]


def test_cores_begin_at_once_and_each_says_what_it_did() -> None:
    board = Setup([Finish()], [NOTHING, Finish()], [NOTHING, NOTHING, Finish()])
    first, second = board.run(), board.run()
    assert list(map(plain, first)) == list(map(plain, second))
    assert [run and run.cycles for run in first] == cycles_of(board)
    board.window.write(0, assemble(RELAY.cores[0], [LOST, Finish()]).tobytes())
    before = board.block.read(Register.STATUS)
    alone = board.run(None, board.programs[1], None)
    assert board.block.read(Register.STATUS) == before  # core 0 was not started, or it would have faulted
    assert alone[0] is alone[2] is None
    assert alone[1] is not None
    assert alone[1].fault is None


def test_a_fault_is_of_its_core_and_the_others_end() -> None:
    board = Setup([Finish()], [Finish()], [Finish()])
    board.window.write(PAGE_BYTES, b"\xff" * RELAY.cores[1].instruction_bytes)
    faults = [run.fault for run in board.run() if run is not None]
    assert faults[0] is faults[2] is None
    assert faults[1] is not None
    assert faults[1][0] == Fault.ILLEGAL
    board.window.write(PAGE_BYTES, assemble(RELAY.cores[1], [Finish()]).tobytes())
    assert [run.fault for run in board.run() if run is not None] == [None] * 3


@pytest.mark.long
def test_a_core_that_does_not_end_is_named_and_the_next_run_works() -> None:
    board = Setup([Finish()], [Finish()], [LOST, Finish()])
    with pytest.raises(LinkError, match="core 2: the core has not ended after") as caught:
        board.run(seconds=0.2)
    assert caught.value.kind == "deadline"
    assert [run.fault for run in board.run(*board.programs[:2], None) if run is not None] == [None] * 2
    watched = board.run(watchdog=2000)[2]
    assert watched is not None
    assert watched.fault is not None
    assert watched.fault[0] == Fault.WATCHDOG


@pytest.mark.parametrize(
    ("address", "value", "message"),
    [
        (GROUP_MEMBERS, 3, "the design has 2 cores, but the system has 3"),
        (WINDOW_BYTES + Register.HASH_LO, 5, "core 1: the design holds the core"),
        (2 * WINDOW_BYTES + Register.MAGIC, 5, "core 2: no core answers"),
    ],
)
def test_other_cores_than_the_expected_are_refused(address: int, value: int, message: str) -> None:
    with pytest.raises(LinkError, match=message) as caught:
        SystemDriver(core_constants(), cores_of(RELAY), Registers({address: value}), np.zeros)
    assert caught.value.kind == "identity"


def test_cores_are_told_the_pages_whose_reads_they_share() -> None:
    registers = Registers()
    driver = SystemDriver(
        core_constants(), cores_of(RELAY), registers, lambda size: buffer(cast("RtlSystem", Still()), size)
    )
    window = driver.allocate(SIZE)
    programs = [Program(core * PAGE_BYTES, PAGE_BYTES, 0, 1) for core in range(3)]
    with pytest.raises(LinkError, match="core 0: "):  # these never end
        driver.run(window, programs, range(PAGE_BYTES, 3 * PAGE_BYTES), seconds=0.0, watchdog=0)
    first = window.address // PAGE_BYTES + 1
    assert [registers.written[int(each)] for each in (SHARED_START, SHARED_STOP)] == [first, first + 2]


def test_what_is_no_program_is_refused() -> None:
    driver, window, (first, second, third) = standing()

    def run(*programs: Program, shared: range = range(0), wait: str = "auto") -> None:
        driver.run(window, programs, shared, seconds=1.0, watchdog=0, wait=wait)

    for wrong, message in (
        (replace(second, start=SIZE - PAGE_BYTES + 256), "core 1: bytes .* are outside a window"),
        (replace(second, start=8), "core 1: a window cannot begin at byte 8"),
        (replace(second, offset=PAGE_BYTES), "core 1: 1 instructions at byte 4096 are not a program"),
    ):
        with pytest.raises(LinkError, match=message):
            run(first, wrong, third)
    with pytest.raises(LinkError, match="2 programs for 3 cores"):
        run(first, second)
    with pytest.raises(LinkError, match=r"bytes 8\.\.4096 are not whole pages"):
        run(first, second, third, shared=range(8, 4096))
    with pytest.raises(LinkError, match="seen by looking") as caught:
        run(first, second, third, wait="interrupt")
    assert caught.value.kind == "interrupt"
    with pytest.raises(LinkError, match="5 bytes are no addresses"):
        settings_in(b"12345")


def relayed(board: Setup, plan: RelayPlan, runs: int, *, seconds: float = 60.0) -> Any:
    """Runs of a pipeline whose cores add 1 to what the core before has left."""
    programs, _ = chain(board.simulator, plan.slots)
    board.window.write(0, board.simulator.dram.tobytes())
    first = [Program(0, PAGE_BYTES, own[0].offset, own[0].count) for own in programs]
    settings = settings_of_plan(plan, runs) + settings_of_turns([[(own[0].offset, own[0].count)] for own in programs])
    return board.driver.relay(board.window, first, range(0), settings, runs, seconds=seconds, watchdog=0)


def test_cores_start_each_other_as_on_the_simulator() -> None:
    board, plan, runs = Setup(), RelayPlan.pipeline(3, 2, PAGE_BYTES), 2
    done = relayed(board, plan, runs)
    other = RtlSystem(RELAY, SIZE, quick=True)
    programs, _ = chain(other, 2)
    expected = other.relay(plan, programs, runs)
    assert done.ended == [runs] * 3
    assert done.cycles == expected.cycles
    for ours, theirs in zip(done.runs, expected.last, strict=True):
        assert theirs is not None
        assert ours.cycles == theirs.cycles
    assert np.array_equal(board.window.data[: 2 * PAGE_BYTES], other.dram[: 2 * PAGE_BYTES])


def test_a_relay_is_over_when_all_cores_have_ended_all_runs() -> None:
    """Between two runs no core is at work for some cycles."""
    ended = {RelayRegister.ENDED + 4 * core: count for core, count in enumerate((2, 1, 1))}
    driver, window, first = standing(ended)
    settings = settings_of_plan(RelayPlan.pipeline(3, 1, PAGE_BYTES), 2)
    with pytest.raises(LinkError, match="core 1: the core has not ended after") as caught:
        driver.relay(window, first, range(0), settings, 2, seconds=0.01, watchdog=0)
    assert caught.value.kind == "deadline"
    driver, window, first = standing(dict.fromkeys(ended, 2))
    assert driver.relay(window, first, range(0), settings, 2, seconds=0.01, watchdog=0).ended == [2, 2, 2]


@pytest.mark.long
def test_a_fault_halts_the_relay() -> None:
    board, plan = Setup(), RelayPlan.pipeline(3, 1, PAGE_BYTES)
    programs, _ = chain(board.simulator, 1)
    board.window.write(0, board.simulator.dram.tobytes())
    board.window.write(programs[1][0].offset, b"\xff" * 16)
    first = [Program(0, PAGE_BYTES, own[0].offset, own[0].count) for own in programs]
    done = board.driver.relay(board.window, first, range(0), settings_of_plan(plan, 3), 3, seconds=60.0, watchdog=0)
    assert done.ended == [1, 0, 0]
    assert done.runs[1] is not None
    assert done.runs[1].fault is not None
    assert done.runs[2] is None  # has never begun
    assert relayed(board, plan, 3).ended == [3] * 3


def test_a_relay_that_leaves_the_buffer_or_sets_other_registers_is_refused() -> None:
    driver, window, first = standing()

    def relay(programs: Sequence[Program | None], settings: list[tuple[int, int]]) -> None:
        driver.relay(window, programs, range(0), settings, 1, seconds=1.0, watchdog=0)

    with pytest.raises(LinkError, match=r"core 0: bytes .* are outside a window"):
        relay(first, settings_of_plan(RelayPlan.pipeline(3, 5, PAGE_BYTES), 1))
    for address in (RelayRegister.RELAY_CONTROL, Register.CONTROL):
        with pytest.raises(LinkError, match=f"register {int(address):#x} is no setting of a relay"):
            relay(first, [(address, 1)])
    with pytest.raises(LinkError, match="have a program each"):
        relay([*first[:2], None], [])
