"""Bursts cover their rows and keep the rules of AXI; the read master shares the bus and routes the data."""

from __future__ import annotations

from functools import cache
from random import Random
from typing import Any

import pytest
from amaranth.hdl import Module
from amaranth.sim import Simulator
from hypothesis import given, settings
from hypothesis import strategies as st
from weft.hw.bursts import BurstCutter
from weft.hw.bus import PAGE_BYTES, ReadClient
from weft.hw.config import CoreConfig
from weft.hw.read_dma import ReadMaster

from .axi_memory import AxiMemory, random_bytes

Row = tuple[int, int]  # first and last byte
Transfer = tuple[int, int, int, int]  # first byte, bytes of a row, bytes from row to row, rows


class CutterBench:
    """A burst cutter, built once for a bus and run many times."""

    def __init__(self, bus_bits: int, burst_beats: int) -> None:
        self.config = CoreConfig(bus_bits=bus_bits, burst_beats=burst_beats)
        self.cutter = BurstCutter(self.config)
        self.simulator = Simulator(self.cutter)
        self.simulator.add_clock(1e-6)
        self.simulator.add_testbench(self._testbench)
        self.used = False
        self.transfers: list[Transfer] = []
        self.bursts: list[tuple[int, int, int]] = []
        self.cycles = 0

    def run(self, transfers: list[Transfer]) -> list[tuple[int, int, int]]:
        """Bursts of the transfers: first word, words, ``last``."""
        self.transfers, self.bursts = transfers, []
        if self.used:
            self.simulator.reset()
        self.used = True
        self.simulator.run()
        return self.bursts

    async def _testbench(self, ctx: Any) -> None:
        cutter, random, position = self.cutter, Random(len(self.transfers)), 0
        for cycle in range(20000):
            self.cycles = cycle
            waiting = position < len(self.transfers)
            if not waiting and ctx.get(cutter.idle) and not ctx.get(cutter.transfers.valid):
                return
            ctx.set(cutter.transfers.valid, waiting)
            if waiting:
                first, row_bytes, stride, rows = self.transfers[position]
                for name, value in (
                    ("first", first), ("final", first + row_bytes - 1), ("row_bytes", stride), ("rows", rows),
                ):  # fmt: skip
                    ctx.set(getattr(cutter.transfers.payload, name), value)
            ctx.set(cutter.bursts.ready, random.random() < 0.7)
            if ctx.get(cutter.bursts.valid) and ctx.get(cutter.bursts.ready):
                burst = cutter.bursts.payload
                self.bursts.append((ctx.get(burst.word), ctx.get(burst.beats_minus_1) + 1, ctx.get(burst.last)))
            accepted = waiting and ctx.get(cutter.transfers.ready)
            await ctx.tick()
            position += bool(accepted)
        raise AssertionError("the cutter does not end")


@cache
def cutter_bench(bus_bits: int, burst_beats: int) -> CutterBench:
    return CutterBench(bus_bits, burst_beats)


BUSES = [(64, 1), (64, 2), (64, 16), (64, 64), (128, 256), (512, 16), (512, 256)]


transfers_strategy = st.lists(
    st.tuples(st.integers(0, 1 << 16), st.integers(1, 6000), st.integers(0, 9000), st.integers(1, 5)),
    min_size=1,
    max_size=5,
)


@pytest.mark.parametrize(("bus_bits", "burst_beats"), BUSES)
@settings(max_examples=10)
@given(transfers=transfers_strategy)
def test_bursts_cover_each_row_word_by_word(bus_bits: int, burst_beats: int, transfers: list[Transfer]) -> None:
    bursts = cutter_bench(bus_bits, burst_beats).run(transfers)
    bus_bytes = bus_bits // 8
    words, lasts = [], []
    for word, beats, last in bursts:
        assert beats <= burst_beats
        assert word * bus_bytes // PAGE_BYTES == ((word + beats) * bus_bytes - 1) // PAGE_BYTES
        words += range(word, word + beats)
        lasts += [0] * (beats - 1) + [last]
    expected, expected_lasts = [], []
    for first, row_bytes, stride, rows in transfers:
        for row in range(rows):
            start = first + row * stride
            row_words = range(start // bus_bytes, (start + row_bytes - 1) // bus_bytes + 1)
            expected += row_words
            expected_lasts += [0] * (len(row_words) - 1) + [int(row == rows - 1)]
    assert words == expected
    assert lasts == expected_lasts


@pytest.mark.parametrize(("bus_bits", "burst_beats"), BUSES)
def test_pages_are_cut_into_the_longest_bursts(bus_bits: int, burst_beats: int) -> None:
    bursts = cutter_bench(bus_bits, burst_beats).run([(PAGE_BYTES, 2 * PAGE_BYTES, 0, 1)])
    assert {beats for _, beats, _ in bursts} == {min(burst_beats, 8 * PAGE_BYTES // bus_bits)}


@pytest.mark.parametrize(("outstanding", "base"), [(1, 0x8000), (4, 0x5A_FFFF_E000)])
def test_read_master_serves_all_clients_alike(outstanding: int, base: int) -> None:
    config = CoreConfig(read_outstanding=outstanding, address_bits=40)
    master = ReadMaster(config)
    content = random_bytes(3 * PAGE_BYTES, 7)
    memory = AxiMemory(content, config, 3, base, errors=(PAGE_BYTES,), outstanding_limit=outstanding)
    granted: list[ReadClient] = []
    received: dict[ReadClient, list[tuple[int, int]]] = {client: [] for client in ReadClient}
    asked: dict[ReadClient, list[int]] = {client: [] for client in ReadClient}
    random = Random(5)

    async def testbench(ctx: Any) -> None:
        ctx.set(master.base, base)
        for cycle in range(4000):
            if cycle > 3000 and not ctx.get(master.busy):
                return
            sampled = [
                (port.bursts.ready & port.bursts.valid, port.word_valid, port.word.data, port.word.error)
                for port in master.clients
            ]
            _, _, *values = await ctx.tick().sample(*(signal for signals in sampled for signal in signals))
            for client in ReadClient:
                began, arrives, data, error = values[4 * client : 4 * client + 4]
                bursts = master.clients[client].bursts
                if began:
                    granted.append(client)
                    word = ctx.get(bursts.payload.word)
                    asked[client] += range(word, word + ctx.get(bursts.payload.beats_minus_1) + 1)
                if arrives:
                    received[client].append((data, error))
                if began or cycle == 0:
                    ctx.set(bursts.payload.word, 512 * client + random.randrange(500))
                    ctx.set(bursts.payload.beats_minus_1, random.randrange(8))
                    ctx.set(bursts.valid, 1)
            ctx.set(master.stop, cycle > 3000)
        raise AssertionError("the master does not drain")

    async def serve(ctx: Any) -> None:
        await memory.serve_reads(ctx, master.axi)

    m = Module()
    m.submodules.master = master
    simulator = Simulator(m)
    simulator.add_clock(1e-6)
    simulator.add_testbench(testbench)
    simulator.add_testbench(serve, background=True)
    simulator.run()

    assert memory.open_reads == 0
    size = config.bus_bytes
    for client in ReadClient:
        data = [int.from_bytes(content[size * word : size * (word + 1)], "little") for word in asked[client]]
        errors = [int(size * word <= PAGE_BYTES < size * (word + 1)) for word in asked[client]]
        assert received[client] == list(zip(data, errors, strict=True))
    assert len(granted) > 60
    for place in range(3, len(granted) - 3):
        assert set(granted[place : place + 3]) == set(ReadClient), "a client was passed over"
