"""Block RAM behind AXI: random bursts of a core and accesses of a host against an array."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest
from amaranth.sim import Simulator
from weft.hw.config import CoreConfig
from weft.hw.standalone.block_memory import BlockMemory

from .memory_bench import MemoryBench, handshake

BYTES = 4096


@pytest.mark.parametrize("bus_bits", [64, 128])
@pytest.mark.parametrize("stall", [0.0, 0.4])
def test_bursts_and_a_host_see_each_others_bytes(bus_bits: int, stall: float) -> None:
    config = CoreConfig(bus_bits=bus_bits, block_in=16, block_out=16)
    memory = BlockMemory(config, BYTES)
    content = np.zeros(BYTES, np.uint8)
    own = MemoryBench(memory.axi, memory.host, config.bus_bytes, content, BYTES, Random(bus_bits), stall)

    async def bench(ctx: Any) -> None:
        for index in range(BYTES // 4):  # block RAM starts with anything
            await own.access(ctx, index, 0)
        await own.rounds(ctx, 25, range(BYTES))

    simulator = Simulator(memory)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()


def test_a_host_that_comes_at_any_time_disturbs_no_burst() -> None:
    config = CoreConfig()
    memory = BlockMemory(config, BYTES)
    axi, host, random = memory.axi, memory.host, Random(3)
    got: list[int] = []
    asked: list[tuple[int, int]] = []

    async def core(ctx: Any) -> None:
        await ctx.tick().until(host.index == 1)  # the host has written by then
        ctx.set(axi.rready, 1)
        for first in range(0, 64, 16):
            ctx.set(axi.araddr, 8 * first)
            ctx.set(axi.arlen, 15)
            await handshake(ctx, random, axi.arvalid, axi.arready, 0)
            count = 0
            while count < 16:
                _, _, valid, data = await ctx.tick().sample(axi.rvalid, axi.rdata)
                if valid:
                    got.append(int(data))
                    count += 1

    async def other(ctx: Any) -> None:
        ctx.set(host.write, 1)
        ctx.set(host.enable, 1)
        for index in reversed(range(1, 128)):
            ctx.set(host.index, index)
            ctx.set(host.data, 1000 + index)
            await ctx.tick()
        ctx.set(host.write, 0)
        for _ in range(300):
            index = random.randrange(2, 128)
            ctx.set(host.index, index)
            ctx.set(host.enable, enabled := random.random() < 0.6)
            await ctx.tick()
            if enabled:
                asked.append((index, int(ctx.get(host.result))))
        ctx.set(host.enable, 0)

    simulator = Simulator(memory)
    simulator.add_clock(1e-6)
    simulator.add_testbench(core)
    simulator.add_testbench(other)
    simulator.run()
    expected = [(1000 + 2 * word) | (1000 + 2 * word + 1) << 32 for word in range(64)]
    assert got[1:] == expected[1:]
    assert asked
    assert all(value == 1000 + index for index, value in asked)


def test_writes_of_core_and_host_at_the_same_time_are_all_kept() -> None:
    """The core fills the first half without a pause, the host at the same time words of the second."""
    memory, random = BlockMemory(CoreConfig(), BYTES), Random(4)
    axi, host = memory.axi, memory.host
    written: dict[int, int] = {}
    done: list[bool] = []

    async def core(ctx: Any) -> None:
        ctx.set(axi.wstrb, 255)
        ctx.set(axi.bready, 1)
        for first in range(0, 256, 16):
            ctx.set(axi.awaddr, 8 * first)
            ctx.set(axi.awlen, 15)
            await handshake(ctx, random, axi.awvalid, axi.awready, 0)
            for beat in range(16):
                ctx.set(axi.wdata, first + beat + 1)
                ctx.set(axi.wlast, beat == 15)
                await handshake(ctx, random, axi.wvalid, axi.wready, 0)
        done.append(True)

    async def other(ctx: Any) -> None:
        while not done:
            index, value = random.randrange(512, 1024), random.getrandbits(32)
            ctx.set(host.index, index)
            ctx.set(host.data, value)
            ctx.set(host.write, 1)
            ctx.set(host.enable, enabled := random.random() < 0.5)
            if enabled:
                written[index] = value
            await ctx.tick()
        ctx.set(host.write, 0)
        ctx.set(host.enable, 1)
        for index in (*range(512), *written):
            ctx.set(host.index, index)
            await ctx.tick()
            expected = written.get(index, 0 if index % 2 else index // 2 + 1)
            assert ctx.get(host.result) == expected, index

    simulator = Simulator(memory)
    simulator.add_clock(1e-6)
    simulator.add_testbench(core)
    simulator.add_testbench(other)
    simulator.run()
    assert len(written) > 50
