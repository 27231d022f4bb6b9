"""The scratchpad: latency, write mask and when a write becomes visible."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from amaranth.sim import Simulator
from weft.hw.scratchpad import Scratchpad


@pytest.mark.parametrize("chunk_bits", [8, 16, 32])
def test_reads_see_all_writes_of_earlier_cycles(chunk_bits: int) -> None:
    depth, data_bits = 8, 32
    chunks = data_bits // chunk_bits
    pad = Scratchpad(depth, data_bits, chunk_bits)
    random = np.random.default_rng(chunk_bits)

    async def bench(ctx: Any) -> None:
        content = [0] * depth
        answers: list[int | None] = [None, None]
        for _ in range(400):
            write, read = (int(index) for index in random.integers(0, depth, 2))
            value, mask = int(random.integers(0, 2**data_bits)), int(random.integers(0, 2**chunks))
            writes, reads = random.random() < 0.7, read != write and random.random() < 0.7
            ctx.set(pad.write.enable, writes)
            ctx.set(pad.write.index, write)
            ctx.set(pad.write.data, value)
            ctx.set(pad.write.mask, mask)
            ctx.set(pad.read.enable, reads)
            ctx.set(pad.read.index, read)
            assert ctx.get(pad.write.ready)
            answers.append(content[read] if reads else None)
            answer = answers.pop(0)
            if answer is not None:
                assert ctx.get(pad.read.data) == answer
            if writes:
                for chunk in range(chunks):
                    if mask >> chunk & 1:
                        part = (1 << chunk_bits) - 1 << chunk_bits * chunk
                        content[write] = content[write] & ~part | value & part
            await ctx.tick()

    simulator = Simulator(pad)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
