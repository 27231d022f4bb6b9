"""SDRAM behind AXI: random bursts of a core and accesses of a host, with a chip at the pins."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest
from amaranth.sim import Simulator
from weft.hw.config import CoreConfig
from weft.hw.standalone.sdram_memory import SdramMemory

from .memory_bench import MemoryBench, handshake
from .sdram_chip import CHIP, ModelledChip

SMALL = replace(CHIP, row_bits=11, column_bits=8)
MHZ = 50


def simulated(memory: SdramMemory, *benches: Any) -> ModelledChip:
    chip = ModelledChip(SMALL, MHZ * 1e6)

    async def run(ctx: Any) -> None:
        await chip.run(ctx, memory.sdram)

    simulator = Simulator(memory)
    simulator.add_clock(1e-6)
    for bench in benches:
        simulator.add_testbench(bench)
    simulator.add_testbench(run, background=True)
    simulator.run()
    assert chip.error == ""
    return chip


@pytest.mark.parametrize("bus_bits", [64, 128])
@pytest.mark.parametrize("stall", [0.0, 0.4])
def test_bursts_and_a_host_see_each_others_bytes(bus_bits: int, stall: float) -> None:
    config = CoreConfig(bus_bits=bus_bits, block_in=16, block_out=16)
    memory = SdramMemory(config, SMALL, MHZ * 1_000_000)
    content = np.zeros(SMALL.size, np.uint8)
    own = MemoryBench(memory.axi, memory.host, config.bus_bytes, content, SMALL.size, Random(bus_bits), stall)
    places = range(3 * 512 - 256, 3 * 512 + 256)  # the end of one bank's row and the start of another's

    async def bench(ctx: Any) -> None:
        for index in range(places.start // 4, places.stop // 4):
            await own.access(ctx, index, 0)
        await own.rounds(ctx, 25, places)

    simulated(memory, bench)


def test_reads_writes_and_a_host_at_the_same_time() -> None:
    """Each has a part of the memory to itself, and all of them come to their ends."""
    config = CoreConfig()
    memory = SdramMemory(config, SMALL, MHZ * 1_000_000)
    axi, got, read_beats = memory.axi, [], 16 * 12
    content = np.zeros(SMALL.size, np.uint8)
    own = MemoryBench(axi, memory.host, 8, content, SMALL.size, Random(1), 0.1)
    ready = [False]

    async def host(ctx: Any) -> None:
        for word in range(2 * read_beats):
            await own.access(ctx, word, 1000 + word)
        ready[0] = True
        for number in range(60):
            index = 2048 + number % 20
            await own.access(ctx, index, number)
            assert await own.access(ctx, index, None) == number

    async def reader(ctx: Any) -> None:
        while not ready[0]:
            await ctx.tick()
        for first in range(0, read_beats, 16):
            ctx.set(axi.araddr, 8 * first)
            ctx.set(axi.arlen, 15)
            await handshake(ctx, own.random, axi.arvalid, axi.arready, 0)

    async def taker(ctx: Any) -> None:
        ctx.set(axi.rready, 1)
        while len(got) < read_beats:
            _, _, valid, data = await ctx.tick().sample(axi.rvalid, axi.rdata)
            if valid:
                got.append(int(data))

    async def writer(ctx: Any) -> None:
        while not ready[0]:
            await ctx.tick()
        for number in range(12):
            await own.write(ctx, 1 << 16 | number << 7, 16, masked=False)

    simulated(memory, host, reader, taker, writer)
    assert got == [(1000 + 2 * beat) | (1001 + 2 * beat) << 32 for beat in range(read_beats)]

    async def checked(ctx: Any) -> None:
        for number in range(12):
            await own.write(ctx, 1 << 16 | number << 7, 16, masked=False)
            for beat, (data, _) in enumerate(await own.read(ctx, 1 << 16 | number << 7, 16, 2)):
                assert data == int.from_bytes(content[1 << 16 | number << 7 | 8 * beat :][:8].tobytes(), "little")

    simulated(memory, checked)


def test_reads_that_nobody_takes_wait_in_the_memory() -> None:
    """More bursts than there is room for; no beat is lost, and none comes twice."""
    memory = SdramMemory(CoreConfig(), SMALL, MHZ * 1_000_000)
    axi, got = memory.axi, []
    own = MemoryBench(axi, memory.host, 8, np.zeros(SMALL.size, np.uint8), SMALL.size, Random(2), 0)

    async def core(ctx: Any) -> None:
        for word in range(128):
            await own.access(ctx, word, word)
        ctx.set(axi.arlen, 15)
        await handshake(ctx, own.random, axi.arvalid, axi.arready, 0)
        ctx.set(axi.araddr, 128)
        ctx.set(axi.arvalid, 1)
        await ctx.tick().repeat(300)
        ctx.set(axi.rready, 1)
        while len(got) < 32:
            _, _, valid, data, ready = await ctx.tick().sample(axi.rvalid, axi.rdata, axi.arready)
            if ready:
                ctx.set(axi.arvalid, 0)
            if valid:
                got.append(int(data))

    simulated(memory, core)
    assert got == [2 * beat | (2 * beat + 1) << 32 for beat in range(32)]
