"""The skid buffer: order, no cycle lost, and a ``ready`` that no output has a say in."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from amaranth.lib import data
from amaranth.sim import Simulator
from weft.hw.skid_buffer import SkidBuffer


def run(test: Callable[[Any, SkidBuffer], Any]) -> None:
    skid = SkidBuffer(data.StructLayout({"low": 4, "high": 8}))

    async def bench(ctx: Any) -> None:
        await test(ctx, skid)

    simulator = Simulator(skid)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()


@pytest.mark.parametrize(("offers", "takes"), [(0.9, 0.3), (0.3, 0.9), (0.7, 0.7)])
def test_what_goes_in_comes_out_in_order_and_at_once(offers: float, takes: float) -> None:
    async def test(ctx: Any, skid: SkidBuffer) -> None:
        random = Random(1)
        inside: deque[tuple[int, int]] = deque()
        offered: tuple[int, int] | None = None  # stays until it is taken
        for _ in range(500):
            if offered is None and random.random() < offers:
                offered = (random.getrandbits(4), random.getrandbits(8))
            ctx.set(skid.input.valid, offered is not None)
            ctx.set(
                skid.input.payload,
                {"low": 0, "high": 0} if offered is None else dict(zip(("low", "high"), offered, strict=True)),
            )
            assert ctx.get(skid.input.ready) == (not inside), "there is room for one"
            if offered is not None and not inside:
                inside.append(offered)
                offered = None
            ctx.set(skid.output.ready, random.random() < takes)
            assert ctx.get(skid.output.valid) == bool(inside), "it is offered in the cycle in which it comes"
            if inside:
                assert (ctx.get(skid.output.payload.low), ctx.get(skid.output.payload.high)) == inside[0]
                if ctx.get(skid.output.ready):
                    inside.popleft()
            await ctx.tick()

    run(test)


def test_ready_does_not_follow_the_output_in_the_same_cycle() -> None:
    async def test(ctx: Any, skid: SkidBuffer) -> None:
        ctx.set(skid.input.valid, 1)
        for ready in (0, 1, 1, 0, 0, 1):
            before = ctx.get(skid.input.ready)
            ctx.set(skid.output.ready, ready)
            assert ctx.get(skid.input.ready) == before
            await ctx.tick()

    run(test)
