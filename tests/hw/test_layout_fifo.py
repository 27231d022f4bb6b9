"""The queue against a Python deque: order, depth, and what ``empty`` says."""

from __future__ import annotations

from collections import deque
from random import Random
from typing import Any

import pytest
from amaranth.lib import data
from amaranth.sim import Simulator
from weft.hw.layout_fifo import LayoutFifo


@pytest.mark.parametrize("depth", [2, 3, 16])
def test_what_goes_in_comes_out_in_order(depth: int) -> None:
    queue = LayoutFifo(data.StructLayout({"low": 4, "high": 8}), depth)
    random = Random(depth)
    fullest = 0

    async def bench(ctx: Any) -> None:
        nonlocal fullest
        inside: deque[tuple[int, int]] = deque()
        waited = 0  # cycles that the oldest has been inside and not offered
        for cycle in range(1500):
            filling = cycle // 100 % 2  # by turns mostly filled and mostly emptied
            assert ctx.get(queue.empty) == (not inside)
            value = (random.getrandbits(4), random.getrandbits(8))
            ctx.set(queue.input.payload.low, value[0])
            ctx.set(queue.input.payload.high, value[1])
            ctx.set(queue.input.valid, random.random() < (0.9 if filling else 0.3))
            ctx.set(queue.output.ready, random.random() < (0.3 if filling else 0.9))
            if ctx.get(queue.output.valid):
                payload = queue.output.payload
                assert (ctx.get(payload.low), ctx.get(payload.high)) == inside[0]
            waited = 0 if not inside or ctx.get(queue.output.valid) else waited + 1
            assert waited <= 1
            push = ctx.get(queue.input.valid) and ctx.get(queue.input.ready)
            pop = ctx.get(queue.output.valid) and ctx.get(queue.output.ready)
            await ctx.tick()
            if pop:
                inside.popleft()
            if push:
                inside.append(value)
            fullest = max(fullest, len(inside))

    simulator = Simulator(queue)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    assert fullest == depth
