"""Where cores meet that read the same words: one read of the memory answers all of them.

The meeting is strict. A burst that is to be shared waits until every core whose program runs has such a burst waiting;
then a round begins, in which each of these bursts is read once, together with those that are the same. Bursts that no
other one is the same as are read alone. So cores with equal programs keep in step, and unlike ones get what they asked
for, one after the other.

No core waits for ever: of the cores that run, one that has no burst waiting is held up by nothing here, so it goes on
until it has one or ends; and when there is none, a round begins. A core that ends, by a fault or not, is waited for no
more, and the burst that it left waiting is read in the next round.
"""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from .config import CoreConfig


def read_layout(config: CoreConfig) -> data.StructLayout:
    """What an address channel says of a burst."""
    return data.StructLayout({"addr": config.address_bits, "len": 8})


class SharedReads(wiring.Component):
    """Joins bursts of ``count`` cores.

    asks
        The bursts that each core wants to share.
    running
        A bit for each core: its program runs.
    waits
        A bit for each core: a burst of it is in here.
    reads
        What to read.
    members
        A bit for each core: the words of ``reads`` are for it.
    """

    def __init__(self, config: CoreConfig, count: int) -> None:
        self._layout = read_layout(config)
        self._count = count
        super().__init__(
            {
                "asks": In(stream.Signature(self._layout)).array(count),
                "running": In(count),
                "waits": Out(count),
                "reads": Out(stream.Signature(self._layout)),
                "members": Out(count),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        waiting = [Signal(self._layout, name=f"waiting_{number}") for number in range(self._count)]
        left = Signal(self._count)  # of this round
        served = Signal(self._count)
        for number, (ask, burst) in enumerate(zip(self.asks, waiting, strict=True)):
            m.d.comb += ask.ready.eq(~self.waits[number])
            with m.If(ask.valid & ask.ready):
                m.d.sync += [burst.eq(ask.payload), self.waits[number].eq(1)]
            with m.If(served[number]):
                m.d.sync += self.waits[number].eq(0)
        for number, burst in reversed(list(enumerate(waiting))):  # of several the last counts: the first core's
            with m.If(left[number]):
                m.d.comb += self.reads.payload.eq(burst)
        same = Cat(burst.as_value() == self.reads.payload.as_value() for burst in waiting)
        m.d.comb += [self.reads.valid.eq(left.any()), self.members.eq(left & same)]
        with m.If(self.reads.valid & self.reads.ready):
            m.d.comb += served.eq(self.members)
            m.d.sync += left.eq(left & ~same)
        with m.Elif(~left.any() & (self.waits | ~self.running).all()):
            m.d.sync += left.eq(self.waits)
        return m
