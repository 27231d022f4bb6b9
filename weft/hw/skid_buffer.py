"""A place for one item between two streams, so that ``ready`` comes from a register and no cycle is lost."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out


class SkidBuffer(wiring.Component):
    """Passes items on in the cycle in which they come; one that is not taken waits here.

    ``input.ready`` is a register: whoever offers items does not see in the same cycle whether they are taken.
    ``input`` may offer a new item in each cycle, ``output`` gives one in each cycle in which it is ready.
    """

    def __init__(self, shape: data.Layout) -> None:
        self._shape = shape
        super().__init__({"input": In(stream.Signature(shape)), "output": Out(stream.Signature(shape))})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        full = Signal()
        waiting = Signal(self._shape, reset_less=True)
        m.d.comb += [
            self.input.ready.eq(~full),
            self.output.valid.eq(full | self.input.valid),
            self.output.payload.eq(Mux(full, waiting, self.input.payload)),
        ]
        m.d.sync += full.eq(self.output.valid & ~self.output.ready)
        with m.If(~full):  # whether it is taken comes late, so what passes is written down too
            m.d.sync += waiting.eq(self.input.payload)
        return m
