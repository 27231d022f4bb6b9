"""The token matrix against counters in Python."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from amaranth.sim import Simulator
from weft.hw.config import CoreConfig
from weft.hw.isa import Engine
from weft.hw.tokens import TokenMatrix


@pytest.mark.parametrize("depth", [1, 2, 3, 4, 8])
def test_tokens_are_counted_for_every_pair(depth: int) -> None:
    """All depths of a counter that is just wide enough, and one that is not the last of its width."""
    matrix = TokenMatrix(CoreConfig(token_depth=depth))
    random = Random(1)
    counts = {(sender, receiver): 0 for sender in Engine for receiver in Engine}
    refused = 0

    async def testbench(ctx: Any) -> None:
        nonlocal refused
        for cycle in range(800):
            takes = {}
            taking = 31 if cycle // 100 % 2 else 0  # counters fill up, and become empty again
            for receiver in Engine:
                present = sum(1 << sender for sender in Engine if counts[sender, receiver])
                assert ctx.get(matrix.available[receiver]) == present
                takes[receiver] = present & taking & random.getrandbits(5)
                ctx.set(matrix.take[receiver], takes[receiver])
            sends = {sender: random.getrandbits(5) & ~(1 << sender) for sender in Engine}
            for sender in Engine:
                ctx.set(matrix.send[sender].payload, sends[sender])
                ctx.set(matrix.send[sender].valid, random.random() < 0.5)
            accepted = []
            for sender, mask in sends.items():
                receivers = [receiver for receiver in Engine if mask >> receiver & 1]
                room = all(counts[sender, receiver] < depth for receiver in receivers)
                assert ctx.get(matrix.send[sender].ready) == room
                refused += not room
                if room and ctx.get(matrix.send[sender].valid):
                    accepted += [(sender, receiver) for receiver in receivers]
            await ctx.tick()
            for pair in accepted:
                counts[pair] += 1
            for receiver, mask in takes.items():
                for sender in Engine:
                    counts[sender, receiver] -= mask >> sender & 1

    simulator = Simulator(matrix)
    simulator.add_clock(1e-6)
    simulator.add_testbench(testbench)
    simulator.run()
    assert refused > 100
