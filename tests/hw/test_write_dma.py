"""The write master by itself: what is left of a run that was stopped does not reach the next one."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Module
from amaranth.sim import Simulator
from weft.hw.config import CoreConfig
from weft.hw.write_dma import WriteMaster

from .axi_memory import AxiMemory

BASE = 0x5A_FFFF_F000
"""An address of 39 bits."""


def test_words_without_a_burst_are_dropped_after_a_stop() -> None:
    config = CoreConfig(address_bits=40)
    master = WriteMaster(config)
    memory = AxiMemory(bytearray(4096), config, base=BASE)
    client = master.client

    async def put(ctx: Any, *words: int) -> None:
        for word in words:
            ctx.set(client.words.payload.data, word)
            ctx.set(client.words.payload.strobe, 0xFF)
            ctx.set(client.words.valid, 1)
            assert ctx.get(client.words.ready)
            await ctx.tick()
        ctx.set(client.words.valid, 0)

    async def ask(ctx: Any, word: int, beats: int, cycles: int = 100) -> bool:
        """Offer a burst; whether it began."""
        ctx.set(client.bursts.payload.word, word)
        ctx.set(client.bursts.payload.beats_minus_1, beats - 1)
        ctx.set(client.bursts.valid, 1)
        for _ in range(cycles):
            began = ctx.get(client.bursts.ready)
            await ctx.tick()
            if began:
                break
        ctx.set(client.bursts.valid, 0)
        return bool(began)

    async def drain(ctx: Any) -> None:
        for _ in range(300):
            if not ctx.get(master.busy):
                return
            await ctx.tick()
        raise AssertionError("the master does not drain")

    async def bench(ctx: Any) -> None:
        ctx.set(master.base, BASE)
        await put(ctx, 1, 2, 3, 4, 5)
        assert await ask(ctx, word=0, beats=2)
        ctx.set(master.stop, 1)
        assert not await ask(ctx, word=2, beats=3), "nothing begins after a stop"
        await drain(ctx)
        await ctx.tick().repeat(2)
        ctx.set(master.stop, 0)
        assert not await ask(ctx, word=2, beats=1), "the words are gone"
        await put(ctx, 6, 7)
        assert not await ask(ctx, word=2, beats=3), "a burst begins with all its words"
        assert await ask(ctx, word=2, beats=2)
        await ctx.tick()
        await drain(ctx)

    async def serve(ctx: Any) -> None:
        await memory.serve_writes(ctx, master.axi)

    m = Module()
    m.submodules.master = master
    simulator = Simulator(m)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.add_testbench(serve, background=True)
    simulator.run()
    words = [int.from_bytes(memory.content[8 * place : 8 * place + 8], "little") for place in range(6)]
    assert words == [1, 2, 6, 7, 0, 0]
    assert [(start, beats) for _, start, beats in memory.bursts] == [(0, 2), (16, 2)]
