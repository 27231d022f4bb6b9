"""What starts, ends and resets runs, and the watchdog: each by itself, cycle by cycle."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from amaranth.sim import Simulator
from weft.hw.core import RunControl, Watchdog
from weft.hw.cycle_class import CycleClass
from weft.hw.isa import FETCH, Engine, Fault
from weft.hw.pipelines import CLEAR_CYCLES
from weft.hw.registers import Status

PULSES = ("start", "reset", "clear_interrupt", "drained", "fault")


@dataclass
class Control:
    """A :class:`RunControl` and what it did in each cycle."""

    ctx: Any
    unit: RunControl
    begins: int = 0
    clears: int = 0
    counted: int = 0

    @property
    def status(self) -> Status:
        return Status(self.ctx.get(self.unit.status))

    @property
    def record(self) -> tuple[Fault, int, int]:
        unit, get = self.unit, self.ctx.get
        return Fault(get(unit.fault_cause)), get(unit.fault_engine), get(unit.fault_number)

    async def tick(self, *pulses: str, cycles: int = 1) -> None:
        """Go on, with these inputs at 1 in the first cycle."""
        for cycle in range(cycles):
            for name in PULSES:
                self.ctx.set(getattr(self.unit, name), cycle == 0 and name in pulses)
            self.begins += self.ctx.get(self.unit.begin)
            self.clears += self.ctx.get(self.unit.clear)
            self.counted += self.ctx.get(self.unit.counting)
            assert self.ctx.get(self.unit.stop) == (not self.ctx.get(self.unit.counting))
            await self.ctx.tick()

    async def fault(self, cause: Fault, engine: int, number: int) -> None:
        for name, value in (("new_cause", cause), ("new_engine", engine), ("new_number", number)):
            self.ctx.set(getattr(self.unit, name), value)
        await self.tick("fault")
        for name in ("new_cause", "new_engine", "new_number"):
            self.ctx.set(getattr(self.unit, name), 0)

    async def run(self) -> None:
        """Start, and go on until the program runs."""
        await self.tick("start")
        await self.tick(cycles=CLEAR_CYCLES + 3)
        assert self.ctx.get(self.unit.counting)


def simulate(test: Callable[[Control], Awaitable[None]]) -> None:
    unit = RunControl()

    async def bench(ctx: Any) -> None:
        await test(Control(ctx, unit))

    simulator = Simulator(unit)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()


def test_a_run_clears_begins_once_and_ends_when_all_is_drained() -> None:
    async def test(control: Control) -> None:
        assert control.status == Status.IDLE
        await control.tick("start")
        assert control.status == Status.RUNNING
        await control.tick(cycles=CLEAR_CYCLES + 10)
        assert (control.clears, control.begins) == (CLEAR_CYCLES, 1)
        assert control.status == Status.RUNNING
        counted = control.counted
        await control.tick("start", cycles=5)
        assert (control.counted, control.clears) == (counted + 5, CLEAR_CYCLES), "a start while it runs is ignored"
        await control.tick("drained")
        assert control.status == Status.IDLE | Status.DONE | Status.INTERRUPT
        counted = control.counted
        await control.tick(cycles=5)
        assert control.counted == counted
        await control.tick("start")
        assert control.status == Status.RUNNING | Status.INTERRUPT, "done is of the last run"

    simulate(test)


def test_an_interrupt_stays_until_it_is_cleared() -> None:
    async def test(control: Control) -> None:
        await control.run()
        await control.tick("drained")
        await control.tick(cycles=10)
        assert control.ctx.get(control.unit.interrupt)
        await control.tick("clear_interrupt")
        assert not control.ctx.get(control.unit.interrupt)
        assert control.status == Status.IDLE | Status.DONE

    simulate(test)


def test_the_first_fault_is_kept_until_a_reset() -> None:
    async def test(control: Control) -> None:
        await control.run()
        await control.fault(Fault.WINDOW, Engine.STORE, 77)
        first = (Fault.WINDOW, Engine.STORE, 77)
        assert control.status == Status.IDLE | Status.FAULT | Status.INTERRUPT
        await control.tick()  # the record follows a cycle later
        assert (control.status, control.record) == (Status.IDLE | Status.FAULT | Status.INTERRUPT, first)
        await control.fault(Fault.INDEX, Engine.LOAD, 3)
        await control.tick("start", cycles=3 * CLEAR_CYCLES)
        assert (control.status, control.record) == (Status.IDLE | Status.FAULT | Status.INTERRUPT, first)
        await control.tick("reset")
        assert (control.status, control.record) == (Status.IDLE, (Fault.NONE, 0, 0))
        await control.run()

    simulate(test)


def test_a_reset_forgets_a_fault_that_was_not_yet_recorded() -> None:
    async def test(control: Control) -> None:
        await control.run()
        await control.fault(Fault.WINDOW, Engine.STORE, 77)
        await control.tick("reset")
        await control.tick(cycles=3)
        assert (control.status, control.record) == (Status.IDLE, (Fault.NONE, 0, 0))

    simulate(test)


@pytest.mark.parametrize("cycles", [0, 1, 2, CLEAR_CYCLES, CLEAR_CYCLES + 1, CLEAR_CYCLES + 2, CLEAR_CYCLES + 9])
def test_a_reset_ends_a_run_in_any_cycle(cycles: int) -> None:
    async def test(control: Control) -> None:
        await control.tick("start")
        await control.tick(cycles=cycles)
        await control.tick("reset")
        begins = control.begins
        assert control.status == Status.IDLE
        await control.tick(cycles=2 * CLEAR_CYCLES)
        assert (control.status, control.begins) == (Status.IDLE, begins)
        await control.run()
        assert control.begins == begins + 1

    simulate(test)


def test_a_start_waits_for_the_bus() -> None:
    async def test(control: Control) -> None:
        control.ctx.set(control.unit.bus_busy, 1)
        await control.tick("start", cycles=50)
        assert control.status == Status.RUNNING | Status.BUS_BUSY
        assert control.clears == 0
        control.ctx.set(control.unit.bus_busy, 0)
        await control.tick(cycles=CLEAR_CYCLES + 3)
        assert (control.clears, control.begins) == (CLEAR_CYCLES, 1)

    simulate(test)


# Watchdog

HELD, RUNNING, SENDING, FETCHED = 100, 200, 300, 999
"""Numbers of the instruction that an engine holds, last started and cannot send for (plus the engine); and fetch's."""


@dataclass(frozen=True)
class Stall:
    """What the engines do when nothing moves, and who is to blame."""

    name: str
    activities: dict[Engine, CycleClass] = field(default_factory=dict)
    engine: int = FETCH
    number: int = FETCHED


STALLS = (
    Stall("nobody"),
    Stall("token", {Engine.GEMM: CycleClass.TOKEN_LOAD}, Engine.GEMM, HELD + Engine.GEMM),
    Stall("last token class", {Engine.LOADW: CycleClass.TOKEN_STORE}, Engine.LOADW, HELD + Engine.LOADW),
    Stall("memory", {Engine.STORE: CycleClass.MEMORY}, Engine.STORE, RUNNING + Engine.STORE),
    Stall("room", {Engine.VECTOR: CycleClass.SEND}, Engine.VECTOR, SENDING + Engine.VECTOR),
    Stall(
        "the lowest that waits", {Engine.VECTOR: CycleClass.TOKEN_GEMM, Engine.LOADW: CycleClass.MEMORY},
        Engine.LOADW, RUNNING + Engine.LOADW,
    ),
    Stall(
        "waiting before room", {Engine.LOAD: CycleClass.SEND, Engine.STORE: CycleClass.TOKEN_VECTOR},
        Engine.STORE, HELD + Engine.STORE,
    ),
    Stall(
        "the lowest without room", {Engine.LOADW: CycleClass.SEND, Engine.GEMM: CycleClass.SEND},
        Engine.LOADW, SENDING + Engine.LOADW,
    ),
    Stall("conflicts are nobody's", {Engine.GEMM: CycleClass.CONFLICT, Engine.LOAD: CycleClass.INSTRUCTION}),
)  # fmt: skip


def watch(test: Callable[[Any, Watchdog], Awaitable[None]]) -> None:
    watchdog = Watchdog()

    async def bench(ctx: Any) -> None:
        ctx.set(watchdog.fetch_number, FETCHED)
        await test(ctx, watchdog)

    simulator = Simulator(watchdog)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()


@pytest.mark.parametrize("stall", STALLS, ids=lambda stall: stall.name)
def test_watchdog_names_who_waits(stall: Stall) -> None:
    async def test(ctx: Any, watchdog: Watchdog) -> None:
        for engine in Engine:
            ctx.set(watchdog.started[engine].number, RUNNING + engine)
            ctx.set(watchdog.started[engine].valid, 1)
            ctx.set(watchdog.holding[engine], HELD + engine)
            ctx.set(watchdog.sending[engine], SENDING + engine)
            ctx.set(watchdog.activity[engine], stall.activities.get(engine, CycleClass.IDLE))
        await ctx.tick()
        for engine in Engine:
            ctx.set(watchdog.started[engine].number, 0)
            ctx.set(watchdog.started[engine].valid, 0)
        await ctx.tick()
        assert (ctx.get(watchdog.engine), ctx.get(watchdog.number)) == (stall.engine, stall.number)

    watch(test)


def test_watchdog_expires_after_its_limit_without_progress() -> None:
    async def patience(ctx: Any, watchdog: Watchdog, most: int = 60) -> int | None:
        ctx.set(watchdog.progress, 1)
        await ctx.tick()
        ctx.set(watchdog.progress, 0)
        for cycle in range(most):
            if ctx.get(watchdog.expired):
                return cycle
            await ctx.tick()
        return None

    async def test(ctx: Any, watchdog: Watchdog) -> None:
        assert await patience(ctx, watchdog) is None, "0 means never"
        for limit in (5, 20, 40):
            ctx.set(watchdog.limit, limit)
            assert await patience(ctx, watchdog) == limit + 1
        for _ in range(5):
            ctx.set(watchdog.limit, 20)
            assert await patience(ctx, watchdog, most=20) is None, "progress starts the count again"

    watch(test)
