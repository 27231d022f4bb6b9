"""The array against a matrix product in NumPy, in the lane order of the scratchpads, and its variants against each
other in every cycle."""

from __future__ import annotations

from itertools import product
from typing import Any, NamedTuple

import numpy as np
import pytest
from amaranth.hdl import Fragment, Module
from amaranth.sim import Simulator
from hypothesis import example, given, settings
from hypothesis import strategies as st
from weft.hw.config import CoreConfig
from weft.hw.mac_array import MacArray, PlainMacArray, input_lane, output_lane
from weft.hw.mac_array_packed import Multipliers, PackedMacArray, mac_array
from weft.hw.pipelines import array_latency

SHAPES = [(1, 2, 2), (1, 4, 4), (2, 2, 4), (2, 8, 2), (4, 4, 4), (1, 16, 2)]


CORNERS = (-128, -127, -1, 0, 1, 127)


@pytest.mark.parametrize("multipliers", Multipliers)
@pytest.mark.parametrize(("batch", "block_in", "block_out"), SHAPES)
def test_sums_come_after_the_latency(batch: int, block_in: int, block_out: int, multipliers: Multipliers) -> None:
    config = CoreConfig(batch=batch, block_in=block_in, block_out=block_out)
    array = mac_array(config, multipliers)
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


class Wave(NamedTuple):
    """What is at the ports in one cycle."""

    valid: bool
    inp: bytes = b""
    wgt: bytes = b""
    depthwise: bool = False
    above: tuple[bytes, bytes] = (b"", b"")

    def put(self, ctx: Any, array: MacArray) -> None:
        ctx.set(array.valid, self.valid)
        ctx.set(array.inp, int.from_bytes(self.inp, "little"))
        ctx.set(array.wgt, int.from_bytes(self.wgt, "little"))
        if array.config.depthwise:
            ctx.set(array.depthwise, self.depthwise)
            for port, row in zip(array.above, self.above, strict=True):
                ctx.set(port, int.from_bytes(row, "little"))


def assert_equal_in_every_cycle(config: CoreConfig, waves: list[Wave]) -> None:
    """Both arrays get the same operands; their sums are compared in all cycles, also those that no wave reaches."""
    m = Module()
    m.submodules.plain = plain = PlainMacArray(config)
    m.submodules.packed = packed = PackedMacArray(config)

    async def bench(ctx: Any) -> None:
        drain = [Wave(False)] * (array_latency(config) + 1)
        for cycle, wave in enumerate(waves + drain):
            for array in (plain, packed):
                wave.put(ctx, array)
            sums = [[ctx.get(lane) for lane in array.sums] for array in (plain, packed)]
            assert sums[0] == sums[1], f"cycle {cycle}"
            await ctx.tick()

    simulator = Simulator(m)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()


def test_packed_products_are_exact_for_all_corner_values() -> None:
    config = CoreConfig(block_in=2, block_out=2)
    waves = []
    for low, high, value in product(CORNERS, repeat=3):
        # All triples in the first channel; in the second, the same with the outputs swapped.
        inp, wgt = np.array([value, value], np.int8), np.array([low, high, high, low], np.int8)
        waves.append(Wave(True, inp.tobytes(), wgt.tobytes()))
    assert_equal_in_every_cycle(config, waves)


@st.composite
def runs(draw: st.DrawFn) -> tuple[CoreConfig, list[Wave]]:
    """A shape and some waves with gaps; operands change in the gaps too."""
    batch, block_in, block_out = draw(st.sampled_from([*SHAPES, (1, 16, 16)]))
    depthwise = int((batch, block_in, block_out) == (1, 16, 16))
    config = CoreConfig(batch=batch, block_in=block_in, block_out=block_out, depthwise=depthwise)
    element = st.sampled_from([corner % 256 for corner in CORNERS]) | st.integers(0, 255)

    def entry(size: int) -> st.SearchStrategy[bytes]:
        return st.lists(element, min_size=size, max_size=size).map(bytes)

    row = entry(config.inp_bytes)
    wave = st.builds(Wave, st.booleans(), row, entry(config.wgt_bytes), st.booleans(), st.tuples(row, row))
    return config, draw(st.lists(wave, min_size=1, max_size=12))


@settings(max_examples=30, deadline=None)
@given(runs())
@example((CoreConfig(block_in=4, block_out=4), [Wave(True, b"\x80" * 4, b"\x80" * 16)] * 3))  # the largest sums
def test_packed_array_equals_the_plain_one_in_every_cycle(run: tuple[CoreConfig, list[Wave]]) -> None:
    assert_equal_in_every_cycle(*run)


def entry_of(values: np.ndarray[Any, Any]) -> bytes:
    return values.astype(np.int8).tobytes()


@pytest.mark.parametrize("multipliers", Multipliers)
@pytest.mark.parametrize("block", [16, 32])
def test_a_depthwise_wave_is_the_last_column_of_three(block: int, multipliers: Multipliers) -> None:
    """Waves of both modes with gaps; a depthwise one filters those of its mode, whatever lies between them."""
    config = CoreConfig(block_in=block, block_out=block, depthwise=1)
    array = mac_array(config, multipliers)
    random = np.random.default_rng(block)

    async def bench(ctx: Any) -> None:
        expected: list[np.ndarray[Any, Any] | None] = [None] * array_latency(config)
        columns: list[tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]] = []
        for cycle in range(60):
            low, high = (-128, -127) if cycle % 9 > 4 else (-128, 128)  # for a while, all products are the largest
            rows = random.integers(low, high, (3, block))
            wgt = random.integers(low, high, (block, block))
            valid, depthwise = random.random() < 0.8, random.random() < 0.8
            Wave(valid, entry_of(rows[2]), entry_of(wgt), depthwise, (entry_of(rows[0]), entry_of(rows[1]))).put(
                ctx, array
            )
            sums = None
            if valid and depthwise:
                columns = [*columns[-2:], (rows, wgt)]
                if len(columns) == 3:
                    sums = np.zeros(block, np.int64)
                    for kw, (pixels, taps) in enumerate(columns):
                        sums += sum(pixels[kh] * taps[4 * kh + kw] for kh in range(3))
            elif valid:
                sums = wgt @ rows[2]
            expected.append(sums)
            due = expected.pop(0)
            if due is not None:
                assert [ctx.get(lane) for lane in array.sums] == due.tolist()
            await ctx.tick()

    simulator = Simulator(array)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()


def test_any_other_platform_gets_the_plain_array() -> None:
    array = mac_array(CoreConfig(block_in=2, block_out=2), None)
    Fragment.get(array, None)  # Amaranth warns of what is never elaborated
    assert type(array) is PlainMacArray
