"""A serial line: 8 bits, no parity, one stop bit. ``divisor`` is the number of cycles that a bit takes."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.cdc import FFSynchronizer
from amaranth.lib.wiring import In, Out


class UartReceiver(wiring.Component):
    """``valid`` for one cycle with each byte; one without a stop bit is dropped."""

    def __init__(self, divisor: int) -> None:
        self.divisor = divisor
        super().__init__({"rx": In(1, init=1), "data": Out(8), "valid": Out(1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        line = Signal(init=1)
        m.submodules.synchronizer = FFSynchronizer(self.rx, line, init=1)
        wait = Signal(range(2 * self.divisor))
        bit = Signal(range(10))  # 0: between bytes; 9: the stop bit
        m.d.sync += self.valid.eq(0)
        with m.If(bit == 0), m.If(~line):
            m.d.sync += [bit.eq(1), wait.eq(self.divisor + self.divisor // 2 - 1)]  # the middle of the next one
        with m.Elif(wait != 0):
            m.d.sync += wait.eq(wait - 1)
        with m.Elif(bit == 9):
            m.d.sync += [bit.eq(0), self.valid.eq(line)]
        with m.Else():
            m.d.sync += [self.data.eq(Cat(self.data[1:], line)), bit.eq(bit + 1), wait.eq(self.divisor - 1)]
        return m


class UartTransmitter(wiring.Component):
    """Sends the bytes of a stream."""

    def __init__(self, divisor: int) -> None:
        self.divisor = divisor
        super().__init__({"tx": Out(1, init=1), "input": In(stream.Signature(8))})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        shift = Signal(10, init=0x3FF)
        left = Signal(range(11))
        wait = Signal(range(self.divisor))
        m.d.comb += [self.tx.eq(shift[0]), self.input.ready.eq(left == 0)]
        with m.If(left == 0), m.If(self.input.valid):
            m.d.sync += [shift.eq(Cat(Const(0, 1), self.input.payload, Const(1, 1))), left.eq(10)]
            m.d.sync += wait.eq(self.divisor - 1)
        with m.Elif(wait != 0):
            m.d.sync += wait.eq(wait - 1)
        with m.Else():
            m.d.sync += [shift.eq(Cat(shift[1:], Const(1, 1))), left.eq(left - 1), wait.eq(self.divisor - 1)]
        return m
