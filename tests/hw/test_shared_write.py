"""The write port of two engines: who goes first, and that every write arrives once, whole and in order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.sim import Simulator
from weft.hw.scratchpad import Scratchpad
from weft.hw.shared_write import SharedWrite


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_the_first_never_waits_and_both_write_what_they_offer(share: float) -> None:
    depth, data_bits, chunk_bits = 8, 32, 16
    m = Module()
    m.submodules.shared = shared = SharedWrite(3, data_bits, chunk_bits)
    m.submodules.pad = pad = Scratchpad(depth, data_bits, chunk_bits)
    wiring.connect(m, shared.port, pad.write)
    random = np.random.default_rng(round(share * 10))
    written = [0, 0]

    async def bench(ctx: Any) -> None:
        content = [0] * depth
        answer: list[int | None] = [None, None]
        ports = (shared.first, shared.second)
        offers: list[tuple[int, int, int] | None] = [None, None]
        for _ in range(600):
            for place, port in enumerate(ports):
                if offers[place] is None and random.random() < (share, 0.6)[place]:
                    offers[place] = (
                        int(random.integers(depth)), int(random.integers(2**data_bits)), int(random.integers(4)),
                    )  # fmt: skip
                index, value, mask = offers[place] or (int(random.integers(depth)), 2**data_bits - 1, 3)
                ctx.set(port.enable, offers[place] is not None)
                ctx.set(port.index, index)
                ctx.set(port.data, value)
                ctx.set(port.mask, mask)
            ready = [bool(ctx.get(port.ready)) for port in ports]
            assert ready == [True, offers[0] is None]
            read = int(random.integers(depth))
            reads = all(offer is None or offer[0] != read for offer in offers)
            ctx.set(pad.read.enable, reads)
            ctx.set(pad.read.index, read)
            answer.append(content[read] if reads else None)
            if (expected := answer.pop(0)) is not None:
                assert ctx.get(pad.read.data) == expected
            for place, offer in enumerate(offers):
                if offer is None or not ready[place]:
                    continue
                index, value, mask = offer
                part = sum(0xFFFF << 16 * chunk for chunk in range(2) if mask >> chunk & 1)
                content[index] = content[index] & ~part | value & part
                written[place] += 1
                offers[place] = None
            await ctx.tick()

    simulator = Simulator(m)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    assert min(written) > 20
