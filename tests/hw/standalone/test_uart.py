"""The serial line: bytes through both ends, at every rate that is possible, with a clock that is a little off."""

from __future__ import annotations

from typing import Any

import pytest
from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.sim import Simulator
from weft.hw.standalone.uart import UartReceiver, UartTransmitter


class Loop(wiring.Component):
    """What is sent is received: ``tx`` to ``rx`` is the test's wire."""

    def __init__(self, divisor: int) -> None:
        self.transmitter, self.receiver = UartTransmitter(divisor), UartReceiver(divisor)
        super().__init__({"rx": In(1, init=1), "tx": Out(1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.transmitter, m.submodules.receiver = self.transmitter, self.receiver
        m.d.comb += [self.receiver.rx.eq(self.rx), self.tx.eq(self.transmitter.tx)]
        return m


@pytest.mark.parametrize("divisor", [4, 5, 16])
def test_all_bytes_come_as_they_were_sent_without_a_pause(divisor: int) -> None:
    loop, sent = Loop(divisor), [0, 255, 0x55, 0xAA, *range(1, 200, 7)]
    received: list[int] = []
    levels: list[int] = []

    async def bench(ctx: Any) -> None:
        rest = list(sent)
        for _ in range(10 * divisor * (len(sent) + 2)):
            ctx.set(loop.transmitter.input.valid, bool(rest))
            ctx.set(loop.transmitter.input.payload, rest[0] if rest else 0)
            levels.append(ctx.get(loop.tx))
            ctx.set(loop.rx, levels[-1])
            taken = rest and ctx.get(loop.transmitter.input.ready)
            await ctx.tick()
            if taken:
                rest.pop(0)
            if ctx.get(loop.receiver.valid):
                received.append(ctx.get(loop.receiver.data))

    simulator = Simulator(loop)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    assert received == sent
    start = levels.index(0)
    assert [levels[start + divisor * bit + divisor // 2] for bit in range(10)] == [0] * 9 + [1]  # the byte 0


@pytest.mark.parametrize("bit_cycles", [15.5, 16, 16.5])
def test_a_line_that_is_three_per_cent_off_is_understood_and_a_break_gives_no_byte(bit_cycles: float) -> None:
    receiver = UartReceiver(16)
    received: list[int] = []
    bits = [level for byte in (0x00, 0xFF, 0xA5) for level in (0, *(byte >> bit & 1 for bit in range(8)), 1)]
    bits += [0] * 12 + [1] * 12  # a break

    async def bench(ctx: Any) -> None:
        for cycle in range(int(bit_cycles * len(bits))):
            ctx.set(receiver.rx, bits[int(cycle / bit_cycles)])
            await ctx.tick()
            if ctx.get(receiver.valid):
                received.append(ctx.get(receiver.data))

    simulator = Simulator(receiver)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    assert received[:3] == [0x00, 0xFF, 0xA5]
    assert 0 not in received[3:]
