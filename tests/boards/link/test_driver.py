"""The driver on the RTL in this process: no pynq, but memory of its own on each side, as a board has it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from weft.boards.link.driver import Core, Driver, Window, free_memory
from weft.boards.link.errors import LinkError
from weft.boards.link.interrupt import InterruptLine
from weft.boards.zipapp import core_constants
from weft.hw.config import ISA_VERSION, TINY
from weft.hw.isa import Engine, Fault, Finish, Instruction, Load, Scratchpad, Sync
from weft.hw.programs import assemble
from weft.hw.registers import Register, Status
from weft.sim.dram import BusFault
from weft.sim.rtl import BASE_ADDRESS, RtlSimulator

CORE = Core(TINY.hash64, ISA_VERSION, TINY.address_bits, TINY.bus_bytes, TINY.instruction_bytes)
BYTES = 1 << 16


class Block:
    """The core's registers. ``wrong`` replaces what some addresses read as; a look at STATUS takes some cycles."""

    def __init__(self, simulator: RtlSimulator) -> None:
        self.simulator = simulator
        self.wrong: dict[int, int] = {}
        self.written: list[int] = []

    def read(self, address: int) -> int:
        if address in self.wrong:
            return self.wrong[address]
        for _ in range(50 * (address == Register.STATUS)):
            self.simulator.read_register(address)
        return self.simulator.read_register(address)

    def write(self, address: int, value: int) -> None:
        assert type(value) is int
        assert 0 <= value < 1 << 32
        self.written.append(address)
        self.simulator.write_register(address, value)


class Buffer(np.ndarray[Any, Any]):
    """The processor's copy of a part of the core's memory."""

    device_address: int
    core: Any
    freed = False

    def sync_to_device(self) -> None:
        self.core[:] = np.asarray(self)

    def sync_from_device(self) -> None:
        self[:] = self.core

    def freebuffer(self) -> None:
        type(self).freed = True


def buffer(simulator: RtlSimulator, size: int, address: int = BASE_ADDRESS) -> Buffer:
    made = np.full(size, 0xEE, np.uint8).view(Buffer)
    made.device_address, made.core = address, simulator.dram[:size]
    Buffer.freed = False
    return made


class Line(InterruptLine):
    """The core's interrupt; time passes while it is awaited. ``wire``: a level in place of the pin's."""

    def __init__(self, simulator: RtlSimulator) -> None:
        self.simulator = simulator
        self.wire: bool | None = None
        self.waits: list[float] = []

    def wait(self, seconds: float) -> bool:
        self.waits.append(seconds)
        for _ in range(200):
            status, enabled = map(self.simulator.read_register, (Register.STATUS, Register.INTERRUPT_ENABLE))
            pin = bool(status & Status.INTERRUPT and enabled)
            if pin if self.wire is None else self.wire:
                return True
        return False


class Setup:
    """A driver with a window that holds a program."""

    def __init__(self, program: Sequence[Instruction] = (Finish(),)) -> None:
        self.simulator = RtlSimulator(TINY, BYTES)
        self.block = Block(self.simulator)
        self.line = Line(self.simulator)
        self.driver = Driver(core_constants(), CORE, self.block, lambda size: buffer(self.simulator, size), self.line)
        self.window = self.driver.allocate(BYTES)
        self.count = len(program)
        self.window.write(0, assemble(TINY, program).tobytes())

    def run(self, seconds: float = 20.0, watchdog: int = 0, **options: Any) -> Any:
        return self.driver.run(self.window, 0, self.count, seconds=seconds, watchdog=watchdog, **options)


LOST = Sync(wait=1 << Engine.STORE, engine=Engine.LOAD)
"""Waits for a token that nobody sends."""


def test_a_run_gives_what_the_simulator_says_of_it() -> None:
    board = Setup()
    first, second = board.run(), board.run()
    expected = board.simulator.run(0, 1)
    assert replace(first, seconds=0.0, polls=0, wakes=0) == replace(second, seconds=0.0, polls=0, wakes=0)
    assert first.fault is None
    assert first.cycles == expected.cycles
    assert first.read_beats * TINY.bus_bytes == expected.bytes_read
    counters = {engine: dict(kinds) for engine, kinds in expected.counters.items()}
    for engine, kind, cycles in first.counters:
        assert {each.value: count for each, count in counters[Engine(engine)].items()}[kind] == cycles


def test_each_difference_of_identity_has_its_words() -> None:
    simulator = RtlSimulator(TINY, BYTES)
    for core, wrong, message in (
        (CORE, {Register.MAGIC: 0xDEADBEEF}, "no core answers: its first register is 0xdeadbeef, not 0x54464557"),
        (replace(CORE, version=99), {}, f"instruction set {ISA_VERSION}, the model's program 99"),
        (replace(CORE, hash=1), {}, f"core {TINY.hash64:016x}, but the model is compiled for 0000000000000001"),
    ):
        block = Block(simulator)
        block.wrong = {int(address): value for address, value in wrong.items()}
        with pytest.raises(LinkError, match=message) as caught:
            Driver(core_constants(), core, block, lambda size: buffer(simulator, size))
        assert caught.value.kind == "identity"
        assert block.written == []  # nothing is asked of a stranger


@pytest.mark.parametrize("address", [(1 << 32) - BYTES + 4096, 1 << 35, BASE_ADDRESS + 64])
def test_memory_out_of_reach_is_refused_and_given_back(address: int) -> None:
    simulator = RtlSimulator(TINY, BYTES)
    driver = Driver(core_constants(), CORE, Block(simulator), lambda size: buffer(simulator, size, address))
    with pytest.raises(LinkError, match="out of the core's reach: it has 32 address bits") as caught:
        driver.allocate(BYTES)
    assert caught.value.kind == "address"
    assert Buffer.freed


def test_no_memory() -> None:
    def none(size: int) -> Any:
        raise RuntimeError("Failed to allocate Memory!")

    driver = Driver(core_constants(), CORE, Block(RtlSimulator(TINY, BYTES)), none)
    with pytest.raises(LinkError, match="no 65536 bytes of memory for the core: Failed to allocate") as caught:
        driver.allocate(BYTES)
    assert caught.value.kind == "memory"


@pytest.mark.parametrize(("offset", "size"), [(-1, 1), (BYTES, 1), (BYTES - 4, 5), (1 << 40, 1)])
def test_nothing_is_read_or_written_outside_of_a_window(offset: int, size: int) -> None:
    window: Window = Setup().window
    before = window.data.copy()
    with pytest.raises(LinkError, match="outside a window of 65536 bytes"):
        window.write(offset, bytes(size))
    with pytest.raises(LinkError, match="outside a window of 65536 bytes"):
        window.read(offset, size)
    np.testing.assert_array_equal(window.data, before)


@pytest.mark.parametrize(("offset", "count"), [(8, 1), (BYTES - 64, 5), (0, BYTES), (BYTES, 1)])
def test_a_program_outside_of_the_window_is_not_started(offset: int, count: int) -> None:
    board = Setup()
    before = len(board.block.written)
    with pytest.raises(LinkError, match="not a program inside the window"):
        board.driver.run(board.window, offset, count, seconds=1, watchdog=0)
    assert len(board.block.written) == before


def test_a_fault_is_a_result_and_the_core_lives_on() -> None:
    outside = Load(scratchpad=Scratchpad.INP, index=0, offset=1 << 20, rows=1, columns=1)
    board = Setup([outside, Finish()])
    assert board.run().fault == (Fault.WINDOW, Engine.LOAD, 0)
    board.window.write(0, assemble(TINY, [Finish(), Finish()]).tobytes())
    assert board.run().fault is None


def test_the_watchdog_of_the_core_is_set() -> None:
    fault = Setup([LOST, Finish()]).run(watchdog=3000).fault
    assert fault is not None
    assert fault[0] == Fault.WATCHDOG


def test_a_program_that_never_ends_is_stopped_at_its_deadline() -> None:
    board = Setup([LOST, Finish()])
    with pytest.raises(LinkError, match=r"not ended after .* status is 0x2 \(RUNNING\)") as caught:
        board.run(seconds=0.05)
    assert caught.value.kind == "deadline"
    board.window.write(0, assemble(TINY, [Finish(), Finish()]).tobytes())
    assert board.run().fault is None


def test_a_run_that_nobody_waits_for_is_stopped() -> None:
    with pytest.raises(LinkError, match="not ended"):
        Setup([LOST, Finish()]).run(seconds=60, gone=lambda: True)


def test_a_core_without_a_clock_is_told_from_one_that_waits() -> None:
    board = Setup([LOST, Finish()])
    board.block.wrong = {int(Register.CYCLES_LO): 7, int(Register.CYCLES_HI): 0}
    with pytest.raises(LinkError, match=r"status is 0x2 \(RUNNING\).*its counter of cycles stands still") as caught:
        board.run(seconds=0.05)
    assert caught.value.kind == "clock"


def interrupt_enabled(board: Setup) -> bool:
    return bool(board.simulator.read_register(Register.INTERRUPT_ENABLE))


def test_the_end_of_a_run_is_told_by_the_interrupt() -> None:
    board = Setup([LOST, Finish()])
    by_interrupt, polled = board.run(watchdog=9000, wait="interrupt"), board.run(watchdog=9000, wait="poll")
    assert by_interrupt.wakes == 1
    assert by_interrupt.polls == 2  # before the wait and after it
    assert polled.wakes == 0
    assert replace(by_interrupt, seconds=0, polls=0, wakes=0) == replace(polled, seconds=0, polls=0, wakes=0)
    assert not interrupt_enabled(board)


def test_a_short_program_is_over_before_the_interrupt_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weft.boards.link.driver.BUSY_SECONDS", 5.0)
    board = Setup([LOST, Finish()])
    assert board.run(watchdog=9000).wakes == 0
    assert not board.line.waits
    monkeypatch.setattr("weft.boards.link.driver.BUSY_SECONDS", 0.0)
    assert board.run(watchdog=9000).wakes == 1


@pytest.mark.parametrize(
    ("wire", "message"),
    [(False, "a program has ended, but its interrupt does not come"), (True, "has come 5 times while the core ran")],
)
def test_an_interrupt_that_is_of_no_use(wire: bool, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weft.boards.link.driver.BUSY_SECONDS", 0.0)
    board = Setup([LOST, Finish()])
    board.line.wire = wire
    program = {"watchdog": 100_000 if wire else 9000}
    for _ in range(2):
        with pytest.raises(LinkError, match=message) as caught:
            board.run(wait="interrupt", **program)
        assert caught.value.kind == "interrupt"
        assert not interrupt_enabled(board)
    board = Setup([LOST, Finish()])
    board.line.wire = wire
    assert board.run(**program).fault[0] == Fault.WATCHDOG
    waits = len(board.line.waits)
    assert waits > 0
    assert board.run(**program).fault[0] == Fault.WATCHDOG
    assert len(board.line.waits) == waits  # it is not trusted again
    board.line.wire = None
    assert board.run(wait="interrupt", **program).wakes == 1  # unless that is asked for


def test_an_interrupt_may_come_late_and_tell_of_the_run_before() -> None:
    board = Setup([LOST, Finish()])
    told = [True, True, False, False, False, True]
    board.line.wait = lambda seconds: board.simulator.read_register(Register.STATUS) >= 0 and told.pop(0)  # type: ignore[method-assign]
    block, looks = board.block, iter([Status.RUNNING] * 5 + [Status.DONE | Status.IDLE] * 9)
    read = block.read
    block.read = lambda address: int(next(looks)) if address == Register.STATUS else read(address)  # type: ignore[method-assign]
    run = board.run(wait="interrupt")
    assert not told
    assert run.wakes == 3


@pytest.mark.parametrize("wait", ["poll", "interrupt", "auto"])
def test_every_wait_has_a_deadline_and_ends_when_nobody_waits(wait: str) -> None:
    for seconds, gone in ((0.05, False), (60.0, True)):
        board = Setup([LOST, Finish()])
        with pytest.raises(LinkError, match="not ended after") as caught:
            board.run(seconds=seconds, wait=wait, gone=lambda gone=gone: gone)
        assert caught.value.kind == "deadline"
        assert not interrupt_enabled(board)
        assert all(0 < each <= seconds for each in board.line.waits)


def test_a_core_without_interrupt() -> None:
    board = Setup()
    made = core_constants(), CORE, board.block, lambda size: buffer(board.simulator, size)
    driver = Driver(*made, None, "no wire")
    with pytest.raises(LinkError, match="the core has no interrupt: no wire") as caught:
        driver.run(board.window, 0, 1, seconds=1, watchdog=0, wait="interrupt")
    assert caught.value.kind == "interrupt"
    assert driver.run(board.window, 0, 1, seconds=20, watchdog=0).wakes == 0


def test_what_pynq_raises_while_waiting() -> None:
    class Gone:
        async def wait(self) -> None:
            raise RuntimeError("Interrupt invalidated by Overlay change")

    with pytest.raises(LinkError, match="RuntimeError: Interrupt invalidated") as caught:
        InterruptLine(Gone()).wait(1.0)
    assert caught.value.kind == "interrupt"


def test_settings_are_written_first_and_read_afterwards() -> None:
    board = Setup()
    size, base = int(Register.WINDOW_SIZE_LO), int(Register.WINDOW_BASE_LO)
    assert board.driver.try_settings([(size, 5), (base, 0x12345678), (size, 6)]) == [6, 0x12345000, 6]
    for address in (int(Register.CONTROL), int(Register.STATUS), size + 1, 1 << 20):
        before = len(board.block.written)
        with pytest.raises(LinkError, match="is no setting"):
            board.driver.try_settings([(size, 0), (address, 1)])
        assert len(board.block.written) == before
    board.block.wrong = {int(Register.STATUS): int(Status.RUNNING)}
    with pytest.raises(LinkError, match="the core is running"):
        board.driver.try_settings([(size, 0)])
    board.block.wrong = {}
    assert board.run().fault is None


def test_a_core_that_cannot_be_stopped_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weft.boards.link.driver.STOP_SECONDS", 0.05)
    board = Setup()
    board.simulator.inject(BusFault.HUNG)
    with pytest.raises(LinkError, match=r"does not stop: its status is 0x21 \(IDLE BUS_BUSY\)") as caught:
        board.run(seconds=0.05)
    assert caught.value.kind == "stuck"
    with pytest.raises(LinkError, match="load the design again"):
        board.run()


def test_what_the_host_wrote_reaches_the_core_only_by_a_sync() -> None:
    board = Setup()
    assert board.simulator.dram[:16].tobytes() != board.window.read(0, 16)
    board.run()
    assert board.simulator.dram[:16].tobytes() == board.window.read(0, 16)


def test_what_linux_says_of_contiguous_memory(tmp_path: Any) -> None:
    info = tmp_path / "meminfo"
    info.write_text("MemTotal:  1 kB\nCmaTotal:         131072 kB\nCmaFree:           1024 kB\n")
    assert free_memory(info) == " (CmaTotal: 131072 kB, CmaFree: 1024 kB)"
    assert free_memory(tmp_path / "none") == ""
