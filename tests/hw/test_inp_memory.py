"""The banked input memory: any entry alone, three at any odd distance at once, and when a write becomes visible."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from amaranth.sim import Simulator
from weft.hw.config import TINY, CoreConfig
from weft.hw.inp_memory import InpMemory


def core(depth: int) -> CoreConfig:
    return CoreConfig(
        inp_depth=depth, wgt_depth=8, acc_depth=TINY.acc_depth, out_depth=8, acc_banks=4, bus_bits=64, depthwise=1
    )


@pytest.mark.parametrize("depth", [8, 32])
def test_reads_of_one_entry_and_of_three_see_all_writes_of_earlier_cycles(depth: int) -> None:
    memory = InpMemory(core(depth))
    random = np.random.default_rng(depth)
    pitches = set()

    async def bench(ctx: Any) -> None:
        content = [0] * depth
        answers: list[list[int | None]] = [[None] * 3, [None] * 3]
        for _ in range(1500):
            index = int(random.integers(depth))
            pitch = int(random.integers(depth // 2)) * 2 + 1
            all_rows = index - 2 * pitch >= 0 and random.random() < 0.7
            rows = [index - 2 * pitch, index - pitch, index] if all_rows else [None, None, index]
            write, value = int(random.integers(depth)), int(random.integers(1 << 62))
            mask = int(random.integers(4))
            reads = write not in rows and random.random() < 0.7
            pitches.update([pitch] if reads and all_rows else [])
            ctx.set(memory.write.enable, reads or random.random() < 0.5)
            writes = ctx.get(memory.write.enable)
            ctx.set(memory.write.index, write)
            ctx.set(memory.write.data, value << 64 | value >> 3)
            ctx.set(memory.write.mask, mask)
            ctx.set(memory.read.enable, reads)
            ctx.set(memory.read.index, index)
            ctx.set(memory.read.pitch, pitch if all_rows else int(random.integers(depth)))
            assert ctx.get(memory.write.ready)
            answers.append([content[row] if row is not None else None for row in rows] if reads else [None] * 3)
            expected = answers.pop(0)
            for answer, port in zip(expected, (*memory.read.above, memory.read.data), strict=True):
                assert answer is None or ctx.get(port) == answer
            if writes:
                whole = value << 64 | value >> 3
                for chunk in range(2):
                    if mask >> chunk & 1:
                        part = (1 << 64) - 1 << 64 * chunk
                        content[write] = content[write] & ~part | whole & part
            await ctx.tick()

    simulator = Simulator(memory)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    assert pitches >= {1, 3} | ({5, 7, 9, 11, 13, 15} if depth == 32 else set())


def test_an_answer_stays_until_the_next() -> None:
    memory = InpMemory(core(8))

    async def bench(ctx: Any) -> None:
        for index in range(8):
            ctx.set(memory.write.enable, 1)
            ctx.set(memory.write.mask, 3)
            ctx.set(memory.write.index, index)
            ctx.set(memory.write.data, 100 + index)
            await ctx.tick()
        ctx.set(memory.write.enable, 0)
        ctx.set(memory.read.pitch, 3)
        ctx.set(memory.read.index, 7)
        ctx.set(memory.read.enable, 1)
        await ctx.tick()
        ctx.set(memory.read.enable, 0)
        for index in range(5):  # what stands at the port without `enable` does not matter
            ctx.set(memory.read.index, index)
            await ctx.tick()
            assert [ctx.get(port) for port in (*memory.read.above, memory.read.data)] == [101, 104, 107]

    simulator = Simulator(memory)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
