"""The whole core between cocotbext-axi's models, with the bus watched and results compared: what a test is written in.

@core_test()
async def adds_seven(bench: Bench) -> None:
    await bench.check([Load(...), Vector(...), Store(...), Finish()])
"""

from __future__ import annotations

import functools
import inspect
import logging
import os
from collections.abc import Awaitable, Callable, Sequence
from functools import reduce
from random import Random
from typing import Any

import cocotb
import numpy as np
from cocotb.clock import Clock
from cocotb.handle import Immediate
from cocotb.triggers import ClockCycles, First, RisingEdge
from cocotbext.axi import AxiBus, AxiLiteBus, AxiLiteMaster

from ..hw import memories
from ..hw.assembly import format_instruction
from ..hw.bus import Response
from ..hw.config import CoreConfig
from ..hw.core import memory_parts, memory_paths
from ..hw.isa import Fault, Instruction, encode_unchecked
from ..hw.registers import Control, Register, Status
from ..sim.dram import BusErrors
from ..sim.fsim import FunctionalSimulator
from ..sim.result import FaultRecord, RunResult
from ..sim.state import Int8, Int32
from .errors import BenchError
from .memory import Memory, Timing
from .observe import Observer
from .runner import SETTINGS, Settings
from .watch import AXI4_PAYLOADS, CLOCK_NS, LITE_PAYLOADS, BusWatch

BASE_ADDRESS = 0x1000_0000
"""Bus address of the memory's first byte."""

MEMORY_BYTES = 1 << 16
PROGRAM = 0x8000
"""Where :meth:`Bench.run` puts a program, in bytes from the memory's start."""

WATCHDOG_CYCLES = 3000
LIMIT_CYCLES = 200_000


class Bench:
    """The core, reset, with random contents in all memories.

    dram
        Content of the memory: a NumPy array of bytes.
    memory
        Its timing and its errors.
    registers
        AXI4-Lite master of the register file.
    bus, lite
        What has passed the two ports, and what was wrong with it.
    observer
        Coverage, from the reset on: before it, registers may hold anything.
    random
        Source of all that is random; from the seed and the test's name.
    """

    observer: Observer

    def __init__(self, dut: Any, settings: Settings, random: Random) -> None:
        self.dut = dut
        self.config: CoreConfig = settings.config
        self.long = settings.long
        self.random = random
        Clock(dut.clk, CLOCK_NS, "ns").start()
        dut.rst.value = 1
        self.lite = BusWatch.start(dut, "s_axil", LITE_PAYLOADS, 4)
        self.bus = BusWatch.start(dut, "m_axi", AXI4_PAYLOADS, self.config.bus_bytes, self.config.burst_beats)
        axi = AxiBus.from_prefix(dut, "m_axi")
        self.memory = Memory(axi, dut.clk, dut.rst, base=BASE_ADDRESS, size=MEMORY_BYTES, random=random)
        self.registers = AxiLiteMaster(AxiLiteBus.from_prefix(dut, "s_axil"), dut.clk, dut.rst)
        self.dram = self.memory.dram.content
        self.reference = FunctionalSimulator(self.config, MEMORY_BYTES)
        self._in_step = False  # the reference's scratchpads hold what those of the RTL hold
        self._scratchpads = {name: _entries(dut, self.config, name) for name in self.config.scratchpads}

    def stall_registers(self, share: float) -> None:
        """Random back-pressure in this share of the cycles on all channels of AXI4-Lite."""
        write, read = self.registers.write_if, self.registers.read_if
        for channel in (write.aw_channel, write.w_channel, write.b_channel, read.ar_channel, read.r_channel):
            channel.set_pause_generator(self.memory.stalls(share))

    async def start(self) -> None:
        """Reset the core and fill its memories."""
        await ClockCycles(self.dut.clk, 3)
        self.dut.rst.value = 0
        await ClockCycles(self.dut.clk, 2)
        self.observer = Observer(self.dut, self.config)
        self.fill()

    def fill(self) -> None:
        """Random contents for the DRAM and the scratchpads."""
        generator = np.random.default_rng(self.random.getrandbits(32))
        self.dram[:] = generator.integers(0, 256, len(self.dram), np.uint8)
        self._in_step = True
        for name in self.config.scratchpads:
            array = self.reference.read_scratchpad(name)
            limits = np.iinfo(array.dtype)
            self.write_scratchpad(
                name, generator.integers(limits.min, limits.max, array.shape, array.dtype, endpoint=True)
            )

    def read_scratchpad(self, name: memories.Memory) -> Int8 | Int32:
        """Content of ``inp``, ``wgt``, ``acc``, ``out`` or ``tab`` in the RTL: ``(depth, elements)``."""
        like = self.reference.read_scratchpad(name)
        for part, handles in self._scratchpads[name]:
            held = like[part]
            size = held.shape[1] * held.itemsize
            raw = b"".join(int(entry.value).to_bytes(size, "little") for entry in handles)
            like[part] = np.frombuffer(raw, like.dtype).reshape(held.shape)
        return like

    def write_scratchpad(self, name: memories.Memory, values: Int8 | Int32) -> None:
        """Replace a scratchpad's content in the RTL; shape and type as :meth:`read_scratchpad` gives them.

        :class:`BenchError` if they are others, or the core has no such scratchpad.
        """
        if name not in self._scratchpads:
            raise BenchError(f"the core has no scratchpad {name!r}", hint=f"it has {', '.join(self._scratchpads)}")
        wanted = self.reference.read_scratchpad(name)
        given = np.asarray(values)
        if given.shape != wanted.shape or given.dtype != wanted.dtype:
            raise BenchError(
                f"write_scratchpad({str(name)!r}): {given.dtype}{list(given.shape)}, "
                f"but the scratchpad holds {wanted.dtype}{list(wanted.shape)}"
            )
        for part, handles in self._scratchpads[name]:
            for entry, row in zip(handles, values[part], strict=True):
                entry.set(Immediate(int.from_bytes(row.tobytes(), "little")))
        self.reference.write_scratchpad(name, values)

    async def read_register(self, register: int) -> int:
        """A 32-bit register, through AXI4-Lite."""
        return int(await self.registers.read_dword(register))

    async def write_register(self, register: int, value: int) -> None:
        """A 32-bit register, through AXI4-Lite."""
        await self.registers.write_dword(register, value)

    async def start_program(
        self,
        program: Sequence[Instruction | int],
        *,
        offset: int = PROGRAM,
        count: int | None = None,
        window_start: int = 0,
        window_bytes: int = MEMORY_BYTES,
        watchdog: int = WATCHDOG_CYCLES,
    ) -> None:
        """Write a program into the DRAM and start it; an ``int`` in it is an instruction word as it stands."""
        self.observer.begin(program)
        self._in_step = False
        raw = self.program_bytes(program)
        stop = window_start + offset + len(raw)
        self.dram[window_start + offset : stop] = np.frombuffer(raw, np.uint8)
        base = BASE_ADDRESS + window_start
        for register, value in (
            (Register.INTERRUPT_ENABLE, 1),
            (Register.WINDOW_BASE_LO, base & 0xFFFF_FFFF),
            (Register.WINDOW_BASE_HI, base >> 32),
            (Register.WINDOW_SIZE_LO, window_bytes & 0xFFFF_FFFF),
            (Register.WINDOW_SIZE_HI, window_bytes >> 32),
            (Register.PROGRAM_OFFSET, offset),
            (Register.PROGRAM_COUNT, len(program) if count is None else count),
            (Register.WATCHDOG, watchdog),
            (Register.CONTROL, Control.START),
        ):
            await self.write_register(register, value)

    def program_bytes(self, program: Sequence[Instruction | int]) -> bytes:
        """The program as it lies in memory; instructions that the core must refuse are let through."""
        config = self.config
        words = (word if isinstance(word, int) else encode_unchecked(config, word) for word in program)
        return b"".join(word.to_bytes(config.instruction_bytes, "little") for word in words)

    async def run(self, program: Sequence[Instruction | int], **options: Any) -> RunResult:
        """Run a program to its end and reset the core if it faulted; options as for :meth:`start_program`."""
        await self.start_program(program, **options)
        return await self.finish_program()

    async def finish_program(self) -> RunResult:
        """Wait for the interrupt; what the registers then say."""
        if not self.dut.interrupt.value:
            limit = ClockCycles(self.dut.clk, LIMIT_CYCLES)
            ended = await First(RisingEdge(self.dut.interrupt), limit)
            assert ended is not limit, f"the core has not ended after {LIMIT_CYCLES} cycles"
        status = Status(await self.read_register(Register.STATUS))
        cycles = await self.read_register(Register.CYCLES_LO)
        words = [
            await self.read_register(register)
            for register in (
                Register.READ_BEATS_LOAD_LO,
                Register.READ_BEATS_LOADW_LO,
                Register.READ_BEATS_FETCH_LO,
                Register.WRITE_BEATS_LO,
            )
        ]
        fault = None
        if Status.FAULT in status:
            cause = Fault(await self.read_register(Register.FAULT_CAUSE))
            engine = await self.read_register(Register.FAULT_ENGINE)
            fault = FaultRecord(cause, engine, await self.read_register(Register.FAULT_NUMBER))
            await self.write_register(Register.CONTROL, Control.RESET)
        else:
            assert Status.DONE in status, f"the core has interrupted, but its status is {status!r}"
            await self.write_register(Register.CONTROL, Control.CLEAR_INTERRUPT)
        self.observer.end(fault)
        bytes_read = sum(words[:3]) * self.config.bus_bytes
        return RunResult(cycles, fault, bytes_read, words[3] * self.config.bus_bytes)

    async def check(self, program: Sequence[Instruction], **options: Any) -> RunResult:
        """Run a program here and on the functional simulator: same memories, every byte; it must not fault."""
        expected = self._expected(program, options)
        assert expected.fault is None, f"the functional simulator refuses the program: {expected.fault}"
        result = await self.run(program, **options)
        assert result.fault is None, f"the core refuses a program that is legal: {result.fault}"
        self.compare(program)
        return result

    async def check_fault(
        self,
        program: Sequence[Instruction | int],
        *,
        errors: BusErrors | None = None,
        response: Response = Response.SLVERR,
        precise: bool = False,
        **options: Any,
    ) -> FaultRecord:
        """Run a program here and on the functional simulator: same fault record. Then refill the memories.

        ``errors``: this part of the memory answers with ``response``. ``precise``: the memories are those that the
        instructions before the fault have left.
        """
        self.memory.dram.error_response = response
        self.memory.dram.errors = self.reference.bus_errors = errors
        expected = self._expected(program, options).fault
        result = await self.run(program, **options)
        self.memory.dram.errors = self.reference.bus_errors = None
        assert expected is not None, f"the program is legal, but the core reports {result.fault}"
        assert result.fault == expected, f"fault {result.fault}, expected {expected}"
        await self.drain()
        if precise:
            self.compare(program)
        self.fill()
        return result.fault

    async def bus_moves(self, channel: str, count: int) -> None:
        """Wait for ``count`` transfers on a channel of the AXI4 port, such as ``ar``."""
        stop = self.bus.transfers[channel] + count
        for _ in range(LIMIT_CYCLES):
            if self.bus.transfers[channel] >= stop:
                return
            await ClockCycles(self.dut.clk, 1)
        raise AssertionError(f"no {count} transfers on {channel} in {LIMIT_CYCLES} cycles")

    async def drain(self) -> None:
        """Wait until every burst is answered, here and in the core."""
        for _ in range(1000):
            if Status.BUS_BUSY not in Status(await self.read_register(Register.STATUS)) and self.bus.idle:
                return
        raise AssertionError("the bus does not drain")

    def compare(self, program: Sequence[Instruction | int]) -> None:
        """Assert that the RTL's memories are those of the reference."""
        for name in (*self.config.scratchpads, memories.Memory.DRAM):
            actual, expected = (
                (self.dram, self.reference.dram)
                if name is memories.Memory.DRAM
                else (self.read_scratchpad(name), self.reference.read_scratchpad(name))
            )
            wrong = np.argwhere(actual != expected)
            if len(wrong):
                place = tuple(int(number) for number in wrong[0])
                texts = (hex(part) if isinstance(part, int) else format_instruction(part) for part in program)
                listing = "\n".join(f"{number:4}: {text}" for number, text in enumerate(texts))
                raise AssertionError(
                    f"{name}{list(place)} is {actual[place]}, but must be {expected[place]}; "
                    f"{len(wrong)} elements differ after\n{listing}"
                )
        self._in_step = True

    def _expected(self, program: Sequence[Instruction | int], options: dict[str, Any]) -> RunResult:
        """Run the reference on what the RTL's memories hold now."""
        reference = self.reference
        offset, window_start = options.get("offset", PROGRAM), options.get("window_start", 0)
        raw = np.frombuffer(self.program_bytes(program), np.uint8)
        self.dram[window_start + offset : window_start + offset + len(raw)] = raw
        reference.dram[:] = self.dram
        if not self._in_step:
            for name in self.config.scratchpads:
                reference.write_scratchpad(name, self.read_scratchpad(name))
        return reference.run(
            offset,
            options.get("count", len(program)),
            window_start=window_start,
            window_bytes=options.get("window_bytes", MEMORY_BYTES),
        )

    def _assert_protocol(self) -> None:
        violations = [*self.lite.violations, *self.bus.violations]
        assert not violations, "\n".join(map(str, violations))

    async def finish(self, coverage: Any) -> None:
        """The end of a test: the bus is quiet and nothing was wrong on it; keep the coverage."""
        self._assert_protocol()
        self.memory.set_timing(Timing())
        await self.drain()
        self.lite.finish()
        self.bus.finish()
        self._assert_protocol()
        if coverage is not None:
            self.observer.coverage.merge_into(coverage)


def core_test(**options: Any) -> Callable[[Callable[[Bench], Awaitable[None]]], Any]:
    """Make a coroutine of a :class:`Bench` a cocotb test that prints its seed and ends with :meth:`Bench.finish`.

    ``options`` are those of ``cocotb.test``, such as ``skip``.
    """

    def decorate(function: Callable[[Bench], Awaitable[None]]) -> Any:
        @functools.wraps(function)
        async def test(dut: Any) -> None:
            settings = Settings.from_json(os.environ[SETTINGS])
            cocotb.log.info("%s: seed %d", function.__name__, settings.seed)
            logging.getLogger(f"cocotb.{dut._name}").setLevel(logging.WARNING)
            bench = Bench(dut, settings, Random(f"{settings.seed} {function.__name__}"))
            await bench.start()
            await function(bench)
            await bench.finish(settings.coverage)

        # cocotb passes its handle by position; it must not look for an argument called "bench".
        test.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [inspect.Parameter("dut", inspect.Parameter.POSITIONAL_OR_KEYWORD)]
        )
        return cocotb.test(**{"timeout_time": 50, "timeout_unit": "ms", **options})(test)

    return decorate


def _entries(dut: Any, config: CoreConfig, name: memories.Memory) -> list[tuple[tuple[slice, slice], list[Any]]]:
    """For each memory of a scratchpad its place in the whole, and handles of its entries."""
    result = []
    for path, part in zip(memory_paths(config, name), memory_parts(config, name), strict=True):
        memory = reduce(getattr, path, dut)
        result.append((part, [memory[index] for index in range(len(range(config.depth(name))[part[0]]))]))
    return result
