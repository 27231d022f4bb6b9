"""Accumulator memory: banks with one read and one write port each, shared by five readers and writers."""

from __future__ import annotations

from collections.abc import Sequence

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In
from amaranth.utils import ceil_log2

from .config import CoreConfig
from .interfaces import ArbitratedReadPortSignature, ReadPortSignature, WritePortSignature, chunk_bits
from .scratchpad import Scratchpad

ARBITRATED_READERS = ("vector_a", "vector_b", "vector_d")
ARBITRATED_WRITERS = ("vector_write", "load_write", "loadw_write")


class AccMemory(wiring.Component):
    """``acc_banks`` consecutive ranges; each bank serves one read and one write a cycle, the first of this order:

    reads ``gemm_read``, ``vector_a``, ``vector_b``, ``vector_d``; writes ``gemm_write``, ``vector_write``,
    ``load_write``, ``loadw_write``. Others that want the same bank see ``ready`` at 0; gemm never waits. Grants are
    combinational; data is there two cycles after the grant, for that one cycle. A read that is granted in the cycle
    after a write sees it; in the same cycle it does not.
    """

    def __init__(self, config: CoreConfig) -> None:
        self.config = config
        index_bits, data_bits = ceil_log2(config.acc_depth), 8 * config.acc_bytes
        chunk = chunk_bits(config, config.acc_bytes)
        self.banks = [
            Scratchpad(config.acc_depth // config.acc_banks, data_bits, chunk) for _ in range(config.acc_banks)
        ]
        write = WritePortSignature(index_bits, data_bits, chunk)
        super().__init__(
            {
                "gemm_read": In(ReadPortSignature(index_bits, data_bits)),
                **{name: In(ArbitratedReadPortSignature(index_bits, data_bits)) for name in ARBITRATED_READERS},
                "gemm_write": In(write),
                **{name: In(write) for name in ARBITRATED_WRITERS},
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.config
        bank_index_bits = ceil_log2(config.acc_depth // config.acc_banks)

        def bank_of(index: Value) -> Value:
            return index[bank_index_bits:]

        banks = self.banks
        for number, bank in enumerate(banks):
            m.submodules[f"bank_{number}"] = bank

        for names in (("gemm_read", *ARBITRATED_READERS), ("gemm_write", *ARBITRATED_WRITERS)):
            ports = [getattr(self, name) for name in names]
            for position, port in enumerate(ports):
                blocked = Signal(name=f"{names[position]}_blocked")
                for other in ports[:position]:
                    with m.If(other.enable & (bank_of(other.index) == bank_of(port.index))):
                        m.d.comb += blocked.eq(1)
                if names[position] != "gemm_read":
                    m.d.comb += port.ready.eq(~blocked)

        readers = [self.gemm_read, *(getattr(self, name) for name in ARBITRATED_READERS)]
        writers = [self.gemm_write, *(getattr(self, name) for name in ARBITRATED_WRITERS)]
        for number, bank in enumerate(banks):
            # The last assignment counts, so the highest priority comes last.
            for port in reversed(readers):
                with m.If(port.enable & (bank_of(port.index) == number)):
                    m.d.comb += [bank.read.enable.eq(1), bank.read.index.eq(port.index[:bank_index_bits])]
            chosen = Signal(range(len(writers)), name=f"bank_{number}_writer")
            for position, port in reversed(list(enumerate(writers))):
                with m.If(port.enable & (bank_of(port.index) == number)):
                    m.d.comb += [bank.write.enable.eq(1), chosen.eq(position)]
            m.d.comb += [
                bank.write.index.eq(select(chosen, [port.index[:bank_index_bits] for port in writers])),
                bank.write.mask.eq(select(chosen, [port.mask for port in writers])),
                bank.write.data.eq(select(chosen, [port.data for port in writers])),
            ]
        for port in readers:
            self._route_data(m, port, banks, bank_of(port.index))
        return m

    def _route_data(self, m: Module, port: wiring.PureInterface, banks: list[Scratchpad], bank: Value) -> None:
        """Give the reader the data of the bank that it read two cycles ago."""
        granted = port.enable & port.ready if hasattr(port, "ready") else port.enable
        if len(banks) == 1:
            m.d.comb += port.data.eq(banks[0].read.data)
            return
        asked, answering = Signal(len(bank)), Signal(len(bank))
        with m.If(granted):
            m.d.sync += asked.eq(bank)
        m.d.sync += answering.eq(asked)
        m.d.comb += port.data.eq(select(answering, [source.read.data for source in banks]))


def select(number: Value, values: Sequence[Value]) -> Value:
    """``values[number]`` for as many values as ``number`` can name.

    A tree of multiplexers takes one LUT of six inputs for each bit of four values; a chain of choices takes twice that.
    """
    for bit in number:
        values = [Mux(bit, odd, even) for even, odd in zip(values[::2], values[1::2], strict=True)]
    return values[0]
