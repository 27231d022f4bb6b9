"""The AXI4-Lite register file: every register at its address, strobes, locks, pulses and stalls."""

from __future__ import annotations

import runpy
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

from amaranth.hdl import Fragment, Value
from amaranth.sim import Simulator
from weft.hw import register_file
from weft.hw.bus import REGISTER_BITS
from weft.hw.config import ISA_VERSION, PYNQ, TINY, CoreConfig
from weft.hw.cycle_class import CycleClass
from weft.hw.isa import Engine, Fault
from weft.hw.register_file import CycleCounters, RegisterFile
from weft.hw.registers import (
    CLASS_COUNTERS,
    COUNTERS,
    MAGIC,
    Control,
    Kind,
    Register,
    Status,
    class_counter,
)

DOCS = Path(__file__).parents[2] / "docs"

WIDE_ADDRESSES = CoreConfig(address_bits=40)


class Host:
    """AXI4-Lite master that sends address and data in any order and stalls at random."""

    def __init__(self, ctx: Any, bus: Any, seed: int = 0) -> None:
        self.ctx = ctx
        self.bus = bus
        self.random = Random(seed)

    async def write(self, address: int, value: int, strobe: int = 0xF) -> None:
        ctx, bus = self.ctx, self.bus
        todo = {"aw", "w"}
        ctx.set(bus.awaddr, address)
        ctx.set(bus.wdata, value)
        ctx.set(bus.wstrb, strobe)
        while todo:
            for channel in sorted(todo):
                if self.random.random() < 0.5:
                    ctx.set(getattr(bus, f"{channel}valid"), 1)
            done = [
                channel
                for channel in todo
                if ctx.get(getattr(bus, f"{channel}valid")) and ctx.get(getattr(bus, f"{channel}ready"))
            ]
            await ctx.tick()
            for channel in done:
                ctx.set(getattr(bus, f"{channel}valid"), 0)
                todo.remove(channel)
        assert await self._response("b") == ()

    async def read(self, address: int) -> int:
        ctx, bus = self.ctx, self.bus
        ctx.set(bus.araddr, address)
        ctx.set(bus.arvalid, 1)
        while not ctx.get(bus.arready):
            await ctx.tick()
        await ctx.tick()
        ctx.set(bus.arvalid, 0)
        (value,) = await self._response("r")
        return value

    async def _response(self, channel: str) -> tuple[int, ...]:
        """Wait for a response, let it wait a little, and take it; it must not change meanwhile."""
        ctx, bus = self.ctx, self.bus
        valid = getattr(bus, f"{channel}valid")
        for _ in range(20):
            if ctx.get(valid):
                break
            await ctx.tick()
        payload = (ctx.get(bus.rdata),) if channel == "r" else ()
        for _ in range(self.random.randint(0, 2)):
            await ctx.tick()
            assert ctx.get(valid)
            assert channel == "b" or ctx.get(bus.rdata) == payload[0]
        ctx.set(getattr(bus, f"{channel}ready"), 1)
        await ctx.tick()
        ctx.set(getattr(bus, f"{channel}ready"), 0)
        return payload


def simulate(config: CoreConfig, test: Callable[[Any, RegisterFile, Host], Awaitable[None]]) -> None:
    registers = RegisterFile(config)

    async def testbench(ctx: Any) -> None:
        await test(ctx, registers, Host(ctx, registers.bus))

    simulator = Simulator(registers)
    simulator.add_clock(1e-6)
    simulator.add_testbench(testbench)
    simulator.run()


def test_identity_tells_what_the_core_is() -> None:
    async def test(ctx: Any, registers: RegisterFile, host: Host) -> None:
        assert (await host.read(Register.MAGIC)).to_bytes(4, "little") == b"WEFT"
        assert await host.read(Register.MAGIC) == MAGIC
        assert await host.read(Register.VERSION) == ISA_VERSION
        low, high = await host.read(Register.HASH_LO), await host.read(Register.HASH_HI)
        assert low | high << 32 == PYNQ.hash64
        assert await host.read(0x02C) == 0
        assert await host.read(0xFFC) == 0

    simulate(PYNQ, test)


def test_settings_keep_what_is_written() -> None:
    written = {
        Register.INTERRUPT_ENABLE: (0xFFFF_FFFF, 1),
        Register.WINDOW_BASE_LO: (0x1234_5FFF, 0x1234_5000),
        Register.WINDOW_BASE_HI: (0xFFFF_FFA5, 0xA5),
        Register.WINDOW_SIZE_LO: (0x89AB_CDEF, 0x89AB_CDEF),
        Register.WINDOW_SIZE_HI: (3, 1),
        Register.PROGRAM_OFFSET: (0xFEDC_BA98, 0xFEDC_BA98),
        Register.PROGRAM_COUNT: (0xFF12_3456, 0x12_3456),
        Register.WATCHDOG: (1_000_000, 1_000_000),
    }

    async def test(ctx: Any, registers: RegisterFile, host: Host) -> None:
        for register, (value, _) in written.items():
            await host.write(register, value)
        for register, (_, kept) in written.items():
            assert await host.read(register) == kept, register.name
        assert ctx.get(registers.settings.window_base) == 0xA5_1234_5000
        assert ctx.get(registers.settings.window_size) == 0x1_89AB_CDEF
        await host.write(Register.PROGRAM_OFFSET, 0x1122_3344, strobe=0b0101)
        assert await host.read(Register.PROGRAM_OFFSET) == 0xFE22_BA44
        ctx.set(registers.locked, 1)
        for register in written:
            await host.write(register, 0)
        assert await host.read(Register.INTERRUPT_ENABLE) == 0
        assert await host.read(Register.WATCHDOG) == 1_000_000
        await host.write(Register.MAGIC, 0)
        assert await host.read(Register.MAGIC) == MAGIC

    simulate(WIDE_ADDRESSES, test)


def test_control_bits_are_pulses_of_one_cycle() -> None:
    async def test(ctx: Any, registers: RegisterFile, host: Host) -> None:
        pulses = {
            Control.START: registers.start,
            Control.RESET: registers.reset,
            Control.CLEAR_INTERRUPT: registers.clear_interrupt,
        }
        seen = dict.fromkeys(pulses, 0)

        async def count() -> None:
            for _ in range(6):
                for bit, pulse in pulses.items():
                    seen[bit] += ctx.get(pulse)
                await ctx.tick()

        for bit in Control:
            ctx.set(registers.bus.awaddr, Register.CONTROL)
            ctx.set(registers.bus.wdata, bit)
            ctx.set(registers.bus.wstrb, 1)
            ctx.set(registers.bus.bready, 1)
            ctx.set(registers.bus.awvalid, 1)
            ctx.set(registers.bus.wvalid, 1)
            await ctx.tick()
            ctx.set(registers.bus.awvalid, 0)
            ctx.set(registers.bus.wvalid, 0)
            await count()
        assert seen == dict.fromkeys(pulses, 1)
        assert await host.read(Register.CONTROL) == 0

    simulate(PYNQ, test)


def test_status_and_fault_record_are_read() -> None:
    async def test(ctx: Any, registers: RegisterFile, host: Host) -> None:
        ctx.set(registers.status, Status.FAULT | Status.BUS_BUSY)
        ctx.set(registers.fault_cause, Fault.ALIGNMENT)
        ctx.set(registers.fault_engine, Engine.STORE)
        ctx.set(registers.fault_number, 0x12_3456)
        assert Status(await host.read(Register.STATUS)) == Status.FAULT | Status.BUS_BUSY
        assert await host.read(Register.FAULT_CAUSE) == Fault.ALIGNMENT
        assert await host.read(Register.FAULT_ENGINE) == Engine.STORE
        assert await host.read(Register.FAULT_NUMBER) == 0x12_3456

    simulate(PYNQ, test)


def test_counters_count_and_clear() -> None:
    async def test(ctx: Any, registers: RegisterFile, host: Host) -> None:
        for number in range(len(COUNTERS)):
            ctx.set(registers.count, 1 << number)
            await ctx.tick().repeat(3 + number)
        ctx.set(registers.count, 0)
        for number, name in enumerate(COUNTERS):
            assert await host.read(Register[f"{name.upper()}_LO"]) == 3 + number
            assert await host.read(Register[f"{name.upper()}_HI"]) == 0
        ctx.set(registers.clear_counters, 1)
        await ctx.tick()
        ctx.set(registers.clear_counters, 0)
        assert await host.read(Register.CYCLES_LO) == 0

    simulate(PYNQ, test)


@contextmanager
def inside(module: Any, kind: str) -> Iterator[list[Any]]:
    """What :mod:`weft.hw.register_file` makes of one kind, ``Signal`` or ``Memory``, while a test builds a part."""
    made: list[Any] = []
    make = getattr(module, kind)

    def remembered(*arguments: Any, **options: Any) -> Any:
        made.append(make(*arguments, **options))
        return made[-1]

    with patch.object(module, kind, remembered):
        yield made


def test_counters_go_on_beyond_32_bits() -> None:
    """A run of a minute: each counter is set to the end of its lower half, and counts on."""
    with inside(register_file, "Signal") as signals:

        async def test(ctx: Any, registers: RegisterFile, host: Host) -> None:
            counters = {signal.name: signal for signal in signals if signal.name in COUNTERS}
            assert set(counters) == set(COUNTERS)
            for start in (2**32 - 1, 2**47 - 1):
                for counter in counters.values():
                    ctx.set(counter, start)
                ctx.set(registers.count, -1)
                await ctx.tick().repeat(3)
                ctx.set(registers.count, 0)
                for name in COUNTERS:
                    low = await host.read(Register[f"{name.upper()}_LO"])
                    high = await host.read(Register[f"{name.upper()}_HI"])
                    assert high << 32 | low == start + 3, name

        simulate(PYNQ, test)


def test_class_counters_go_on_beyond_32_bits() -> None:
    with inside(register_file, "Memory") as memories:
        counters = CycleCounters()

        async def testbench(ctx: Any) -> None:
            for start in (2**32 - 1, 2**47 - 1):
                for memory in memories:
                    ctx.set(memory.data[CycleClass.BUSY.value], start)
                for engine in Engine:
                    ctx.set(counters.activity[engine], CycleClass.BUSY)
                ctx.set(counters.count, 1)
                await ctx.tick().repeat(3)
                ctx.set(counters.count, 0)
                await ctx.tick()  # a cycle is counted in the next one
                ctx.set(counters.number, CycleClass.BUSY.value)
                for engine in Engine:
                    ctx.set(counters.engine, engine)
                    assert ctx.get(counters.value) == start + 3, engine

        simulator = Simulator(counters)
        simulator.add_clock(1e-6)
        simulator.add_testbench(testbench)
        simulator.run()
        assert len(memories) == len(Engine)


def test_class_counters_are_read_at_their_addresses() -> None:
    async def test(ctx: Any, registers: RegisterFile, host: Host) -> None:
        for engine in Engine:
            for cycle_class in CycleClass:
                address = class_counter(engine, cycle_class)
                assert CLASS_COUNTERS <= address < 0x400
                ctx.set(registers.class_count, 0xABCD_1234_5678)
                assert await host.read(address) == 0x1234_5678
                assert await host.read(address + 4) == 0xABCD
                assert ctx.get(registers.class_engine) == engine
                assert ctx.get(registers.class_number) == cycle_class.value

    simulate(PYNQ, test)


def test_each_cycle_counts_in_one_class_of_each_engine() -> None:
    counters = CycleCounters()
    random = Random(4)

    async def testbench(ctx: Any) -> None:
        for _ in range(2):
            await run(ctx)

    async def run(ctx: Any) -> None:
        expected = {(engine, cycle_class): 0 for engine in Engine for cycle_class in CycleClass}
        ctx.set(counters.count, 0)
        ctx.set(counters.clear, 1)
        await ctx.tick().repeat(16)
        ctx.set(counters.clear, 0)
        for _ in range(500):
            counting = random.random() < 0.8
            ctx.set(counters.count, counting)
            for engine in Engine:
                cycle_class = random.choice(list(CycleClass))
                ctx.set(counters.activity[engine], cycle_class)
                expected[engine, cycle_class] += counting
            await ctx.tick()
        ctx.set(counters.count, 0)
        await ctx.tick()  # a cycle is counted in the next one
        for (engine, cycle_class), count in expected.items():
            ctx.set(counters.engine, engine)
            ctx.set(counters.number, cycle_class.value)
            assert ctx.get(counters.value) == count

    simulator = Simulator(counters)
    simulator.add_clock(1e-6)
    simulator.add_testbench(testbench)
    simulator.run()


def test_signals_behind_the_registers_are_as_wide_as_the_table_says() -> None:
    registers = RegisterFile(TINY)
    Fragment.get(registers, None)  # otherwise Amaranth warns that it was never used
    for register in Register:
        if register.kind is Kind.STATE:
            assert len(Value.cast(getattr(registers, register.signal))) == register.bits, register
        if register.word == 0 and register.bits is not None and register.bits > REGISTER_BITS:
            upper = Register(register + REGISTER_BITS // 8)
            assert (upper.signal, upper.word, upper.kind) == (register.signal, 1, register.kind)


def test_the_page_of_registers_is_as_its_command_writes_it() -> None:
    command = runpy.run_path(str(DOCS / "registers.py"))
    text = (DOCS / "registers.md").read_text()
    assert text == command["page"](), "after a change of hw/registers.py: python docs/registers.py"
