"""The array against a matrix product in NumPy, in the lane order of the scratchpads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from amaranth.sim import Simulator
from weft.hw.config import CoreConfig
from weft.hw.mac_array import PlainMacArray, array_latency, input_lane, output_lane

SHAPES = [(1, 2, 2), (1, 4, 4), (2, 2, 4), (2, 8, 2), (4, 4, 4), (1, 16, 2)]


@pytest.mark.parametrize(("batch", "block_in", "block_out"), SHAPES)
def test_sums_come_after_the_latency(batch: int, block_in: int, block_out: int) -> None:
    config = CoreConfig(batch=batch, block_in=block_in, block_out=block_out)
    array = PlainMacArray(config)
    latency = array_latency(config)
    random = np.random.default_rng(0)

    async def bench(ctx: Any) -> None:
        expected: list[np.ndarray[Any, Any] | None] = [None] * latency
        for cycle in range(60):
            largest = 128 if cycle % 7 else -127  # now and then, all products are the largest
            inp = random.integers(-128, largest, (batch, block_in))
            wgt = random.integers(-128, largest, (block_out, block_in))
            valid = random.random() < 0.8
            ctx.set(array.valid, valid)
            lanes = np.zeros(config.inp_bytes, np.int8)
            for row in range(batch):
                for channel in range(block_in):
                    lanes[input_lane(config, row, channel)] = inp[row, channel]
            ctx.set(array.inp, int.from_bytes(lanes.tobytes(), "little"))
            ctx.set(array.wgt, int.from_bytes(wgt.astype(np.int8).tobytes(), "little"))
            expected.append(inp @ wgt.T if valid else None)
            sums = expected.pop(0)
            if sums is not None:
                for row in range(batch):
                    for channel in range(block_out):
                        assert ctx.get(array.sums[output_lane(config, row, channel)]) == sums[row, channel]
            await ctx.tick()

    simulator = Simulator(array)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()


def test_lanes_follow_the_smaller_block() -> None:
    config = CoreConfig(batch=2, block_in=8, block_out=4)
    # (block_in / 4, batch, 4): the second row of the first four channels, then the first row of the next four.
    assert [input_lane(config, 0, 3), input_lane(config, 1, 0), input_lane(config, 0, 4)] == [3, 4, 8]
    assert [output_lane(config, 0, 3), output_lane(config, 1, 0)] == [3, 4]
