"""First-in first-out queue of structures."""

from __future__ import annotations

from amaranth.hdl import Module
from amaranth.lib import data, fifo, stream, wiring
from amaranth.lib.wiring import In, Out


class LayoutFifo(wiring.Component):
    """FIFO of a structure, with stream ports; ``empty`` tells that nothing is in it."""

    def __init__(self, shape: data.Layout, depth: int) -> None:
        self._shape = shape
        self._depth = depth
        super().__init__(
            {"input": In(stream.Signature(shape)), "output": Out(stream.Signature(shape)), "empty": Out(1)}
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        width = self._shape.size
        m.submodules.fifo = queue = fifo.SyncFIFOBuffered(width=width, depth=self._depth)
        m.d.comb += [
            queue.w_data.eq(self.input.payload.as_value()),
            queue.w_en.eq(self.input.valid),
            self.input.ready.eq(queue.w_rdy),
            self.output.payload.as_value().eq(queue.r_data),
            self.output.valid.eq(queue.r_rdy),
            queue.r_en.eq(self.output.ready),
            self.empty.eq(queue.level == 0),
        ]
        return m
