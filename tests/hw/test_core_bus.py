"""The whole core between AXI memories in Amaranth's simulator: how its parts share the bus, at any address."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

from amaranth.hdl import Module
from amaranth.sim import Simulator
from weft.hw.config import TINY, CoreConfig
from weft.hw.core import Core
from weft.hw.isa import Engine, Finish, Instruction, Load, Scratchpad, Store, encode
from weft.hw.registers import Control, Register, Status

from .axi_memory import AxiMemory
from .test_registers import Host

WINDOW = 4096
BASE = 0x0765_4000
RESULT = 1024

PROGRAM: list[Instruction] = [
    Load(scratchpad=Scratchpad.INP, index=0, offset=0, rows=1, columns=2, send=1 << Engine.STORE),
    Store(index=0, offset=RESULT // TINY.granule_bytes, rows=1, columns=4, wait=1 << Engine.LOAD),
    Finish(),
]


class Machine:
    """A core with its window at ``base``, and two memories: reads and writes have latencies of their own."""

    def __init__(self, ctx: Any, core: Core, reads: AxiMemory, writes: AxiMemory) -> None:
        self.ctx = ctx
        self.host = Host(ctx, core.s_axil)
        self.reads = reads
        self.writes = writes

    async def start(self) -> None:
        base = self.reads.base
        for register, value in (
            (Register.WINDOW_BASE_LO, base & 0xFFFF_FFFF),
            (Register.WINDOW_BASE_HI, base >> 32),
            (Register.WINDOW_SIZE_LO, WINDOW),
            (Register.PROGRAM_COUNT, len(PROGRAM)),
            (Register.CONTROL, Control.START),
        ):
            await self.host.write(register, value)

    async def status(self) -> Status:
        return Status(await self.host.read(Register.STATUS))

    async def until_done(self) -> None:
        for _ in range(200):
            if Status.DONE in await self.status():
                return
        raise AssertionError(f"the program does not end: {await self.status()!r}")


def simulate(config: CoreConfig, base: int, latency: int, test: Callable[[Machine], Awaitable[None]]) -> None:
    """A core with :data:`PROGRAM` in its window; ``latency``: about that of writes."""
    core = Core(config)
    content = bytearray(WINDOW)
    code = b"".join(encode(config, each).to_bytes(config.instruction_bytes, "little") for each in PROGRAM)
    content[: len(code)] = code
    reads = AxiMemory(content, config, base=base)
    writes = AxiMemory(bytearray(WINDOW), config, base=base, latency=latency)
    m = Module()
    m.submodules.core = core

    async def bench(ctx: Any) -> None:
        await test(Machine(ctx, core, reads, writes))

    async def serve_reads(ctx: Any) -> None:
        await reads.serve_reads(ctx, core.m_axi)

    async def serve_writes(ctx: Any) -> None:
        await writes.serve_writes(ctx, core.m_axi)

    simulator = Simulator(m)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    for serve in (serve_reads, serve_writes):
        simulator.add_testbench(serve, background=True)
    simulator.run()


def test_a_start_waits_for_the_answers_of_writes() -> None:
    """After a reset nothing is read any more, but a write has no answer yet."""

    async def test(machine: Machine) -> None:
        await machine.start()
        for _ in range(200):
            if machine.writes.open_writes:
                break
            await machine.host.read(Register.STATUS)
        await machine.host.write(Register.CONTROL, Control.RESET)
        assert machine.reads.open_reads == 0
        assert await machine.status() == Status.IDLE | Status.BUS_BUSY
        cycles, bursts = await machine.host.read(Register.CYCLES_LO), len(machine.reads.bursts)
        await machine.host.write(Register.CONTROL, Control.START)
        waited = 0
        while machine.writes.open_writes:
            assert len(machine.reads.bursts) == bursts, "the new run reads while the old one's write is under way"
            if await machine.status() == Status.RUNNING | Status.BUS_BUSY:
                waited += 1
                counted = await machine.host.read(Register.CYCLES_LO)
                assert counted == cycles or not machine.writes.open_writes
        assert waited > 5
        await machine.until_done()
        assert [channel for channel, _, _ in machine.writes.bursts] == ["write"] * 2

    simulate(TINY, BASE, 300, test)


def test_both_masters_address_all_of_a_64_bit_bus() -> None:
    """The memories of this test refuse what is outside of them."""

    async def test(machine: Machine) -> None:
        await machine.start()
        await machine.until_done()
        assert [start for _, start, _ in machine.writes.bursts] == [RESULT]
        assert {start for _, start, _ in machine.reads.bursts} == {0}

    simulate(replace(TINY, address_bits=64), 0xFFFF_FFFF_FFFF_E000, 10, test)
