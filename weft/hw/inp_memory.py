"""Input memory of a core with the depthwise mode: four interleaved banks, so that three rows are read at once."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In
from amaranth.utils import ceil_log2

from .acc_memory import select
from .config import INP_BANKS, CoreConfig
from .interfaces import RowsReadPortSignature, WritePortSignature, chunk_bits
from .memories import Memory
from .scratchpad import Scratchpad

BANK_BITS = ceil_log2(INP_BANKS)


class InpMemory(wiring.Component):
    """Like a :class:`~weft.hw.scratchpad.Scratchpad`; the lowest bits of an index are the number of its bank.

    A read gives three entries, ``pitch`` apart: where that is odd, each lies in a bank of its own. Latency and order of
    reads and writes are those of the banks. All banks read at once, whatever is wanted, as a single memory would.
    """

    def __init__(self, config: CoreConfig) -> None:
        index_bits, data_bits = ceil_log2(config.inp_depth), 8 * config.inp_bytes
        chunk = chunk_bits(config, config.inp_bytes)
        bank_depth = config.inp_depth // config.banks(Memory.INP)
        self.banks = [Scratchpad(bank_depth, data_bits, chunk) for _ in range(config.banks(Memory.INP))]
        super().__init__(
            {
                "write": In(WritePortSignature(index_bits, data_bits, chunk)),
                "read": In(RowsReadPortSignature(index_bits, data_bits)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        read, write = self.read, self.write
        places = [Signal.like(read.index, name=f"row_{row}_index") for row in range(len(read.above) + 1)]
        m.d.comb += [
            write.ready.eq(1),
            places[2].eq(read.index),
            places[1].eq(read.index - read.pitch),
            places[0].eq(read.index - (read.pitch << 1)),
        ]
        for number, bank in enumerate(self.banks):
            m.submodules[f"bank_{number}"] = bank
            upper = Mux(_bank_of(places[1]) == number, places[1][BANK_BITS:], places[0][BANK_BITS:])
            m.d.comb += [
                bank.write.enable.eq(write.enable & (_bank_of(write.index) == number)),
                bank.write.index.eq(write.index[BANK_BITS:]),
                bank.write.data.eq(write.data),
                bank.write.mask.eq(write.mask),
                bank.read.enable.eq(read.enable),
                bank.read.index.eq(Mux(_bank_of(places[2]) == number, places[2][BANK_BITS:], upper)),
            ]
        arriving = Signal()
        m.d.sync += arriving.eq(read.enable)
        for row, (place, data) in enumerate(zip(places, (*read.above, read.data), strict=True)):
            asked, answering = (Signal(BANK_BITS, name=f"row_{row}_{name}") for name in ("asked", "answering"))
            with m.If(read.enable):
                m.d.sync += asked.eq(_bank_of(place))
            with m.If(arriving):
                m.d.sync += answering.eq(asked)
            m.d.comb += data.eq(select(answering, [bank.read.data for bank in self.banks]))
        return m


def _bank_of(index: Value) -> Value:
    return index[:BANK_BITS]
