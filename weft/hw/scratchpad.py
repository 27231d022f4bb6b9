"""Scratchpad with one write and one read port: ``inp``, ``wgt`` and ``out``."""

from __future__ import annotations

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In
from amaranth.utils import ceil_log2

from .interfaces import ReadPortSignature, WritePortSignature


class Scratchpad(wiring.Component):
    """``depth`` entries of ``data_bits``; one write (in chunks of ``chunk_bits``) and one read a cycle, never waits.

    Read data comes two cycles after ``enable`` (block RAM and a register) and stays until the next read's. A read in
    the cycle of a write to the same entry has no defined result; in the cycle after, it sees the write.
    """

    def __init__(self, depth: int, data_bits: int, chunk_bits: int) -> None:
        self.depth = depth
        self.data_bits = data_bits
        self.chunk_bits = chunk_bits
        self.memory = Memory(shape=data_bits, depth=depth, init=[])
        index_bits = ceil_log2(depth)
        super().__init__(
            {
                "write": In(WritePortSignature(index_bits, data_bits, chunk_bits)),
                "read": In(ReadPortSignature(index_bits, data_bits)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.memory = memory = self.memory
        write = memory.write_port(granularity=self.chunk_bits)
        read = memory.read_port()
        m.d.comb += [
            self.write.ready.eq(1),
            write.addr.eq(self.write.index),
            write.data.eq(self.write.data),
            read.addr.eq(self.read.index),
            read.en.eq(self.read.enable),
        ]
        with m.If(self.write.enable):
            m.d.comb += write.en.eq(self.write.mask)
        output = Signal(self.data_bits, reset_less=True)
        arriving = Signal()
        m.d.sync += arriving.eq(self.read.enable)
        with m.If(arriving):
            m.d.sync += output.eq(read.data)
        m.d.comb += self.read.data.eq(output)
        return m
