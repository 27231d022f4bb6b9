"""One write port of a scratchpad for two engines: the vector engine and load both write ``inp``."""

from __future__ import annotations

from amaranth.hdl import Module, Mux
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .interfaces import WritePortSignature


class SharedWrite(wiring.Component):
    """``first`` writes whenever it wants to; ``second`` waits in the cycles in which ``first`` writes.

    ``second.ready`` depends on nothing but ``first.enable``. Neither sees when the other one is there otherwise: writes
    reach ``port`` in the cycle in which they are accepted.
    """

    def __init__(self, index_bits: int, data_bits: int, chunk_bits: int) -> None:
        write = WritePortSignature(index_bits, data_bits, chunk_bits)
        super().__init__({"first": In(write), "second": In(write), "port": Out(write)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        first, second, port = self.first, self.second, self.port
        m.d.comb += [
            first.ready.eq(1),
            second.ready.eq(~first.enable),
            port.enable.eq(first.enable | second.enable),
            port.index.eq(Mux(first.enable, first.index, second.index)),
            port.data.eq(Mux(first.enable, first.data, second.data)),
            port.mask.eq(Mux(first.enable, first.mask, second.mask)),
        ]
        return m
