"""Memory in block RAM behind a core's AXI port, which a host reads and writes as well."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ..axi import MasterSignature
from ..bus import ID_BITS, Response
from ..config import CoreConfig
from ..layout_fifo import LayoutFifo

WORD_BYTES = 4

BEATS = 4
"""Beats of a burst that are read before the core takes them."""


class HostPortSignature(wiring.Signature):
    """Words of 32 bits, from the host's side. An access begins with a cycle of ``enable``; the other signals stay as
    they are until ``done``, when what was read is in ``result``: in the next cycle at the earliest."""

    def __init__(self, memory_bytes: int) -> None:
        super().__init__(
            {
                "enable": Out(1),
                "write": Out(1),
                "index": Out(ceil_log2(memory_bytes // WORD_BYTES)),
                "data": Out(8 * WORD_BYTES),
                "result": In(8 * WORD_BYTES),
                "done": In(1),
            }
        )


class BlockMemory(wiring.Component):
    """``memory_bytes`` (a power of two, a page at least) from bus address 0 on.

    axi
        One burst at a time each way, a beat a cycle. An address outside gets DECERR.
    host
        Goes first: the bus waits for it. An access takes place in the cycle of ``enable``.
    """

    def __init__(self, config: CoreConfig, memory_bytes: int) -> None:
        self.memory_bytes = memory_bytes
        self._bus_bytes = config.bus_bytes
        self._index_bits = ceil_log2(memory_bytes // config.bus_bytes)
        # A memory of its own for each byte of the bus: block RAM of all makers has that without byte enables.
        depth = memory_bytes // config.bus_bytes
        self.lanes = [Memory(shape=8, depth=depth, init=[]) for _ in range(config.bus_bytes)]
        super().__init__({"axi": In(MasterSignature(config)), "host": In(HostPortSignature(memory_bytes))})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        host, shift = self.host, ceil_log2(self._bus_bytes)
        part_bits = ceil_log2(self._bus_bytes // WORD_BYTES)
        host_index, host_part = host.index[part_bits:], host.index[:part_bits]
        read_index, write_index = Signal(self._index_bits), Signal(self._index_bits)
        write_mask, beat = Signal(self._bus_bytes), Signal(8 * self._bus_bytes)
        self._read_bursts(m, shift, beat, read_index)
        self._write_bursts(m, shift, write_index, write_mask)
        host_write = host.enable & host.write
        for number in range(self._bus_bytes):
            m.submodules[f"lane_{number}"] = lane = self.lanes[number]
            read, write = lane.read_port(), lane.write_port()
            byte = 8 * (number % WORD_BYTES)
            chosen = host_part == number // WORD_BYTES
            m.d.comb += [
                read.addr.eq(Mux(host.enable, host_index, read_index)),
                beat[8 * number : 8 * number + 8].eq(read.data),
                write.addr.eq(Mux(host_write, host_index, write_index)),
                write.data.eq(Mux(host_write, host.data[byte : byte + 8], self.axi.wdata.word_select(number, 8))),
                write.en.eq(Mux(host_write, chosen, write_mask[number])),
            ]
        asked = Signal(max(1, part_bits))
        m.d.sync += asked.eq(host_part)
        m.d.comb += [host.result.eq(beat.word_select(asked, 8 * WORD_BYTES)), host.done.eq(1)]
        return m

    def _read_bursts(self, m: Module, shift: int, beat: Signal, index: Signal) -> None:
        """Reads the beats of a burst as long as there is room for them."""
        axi = self.axi
        layout = data.StructLayout({"data": 8 * self._bus_bytes, "id": ID_BITS, "resp": Response, "last": 1})
        m.submodules.beats = beats = LayoutFifo(layout, 2 * BEATS)
        active, left, waiting = Signal(), Signal(8), Signal(range(BEATS + 1))
        burst_id, resp = Signal(ID_BITS), Signal(Response)
        issue, arriving, last = Signal(), Signal(), Signal()
        taken = axi.rvalid & axi.rready
        m.d.comb += [axi.arready.eq(~active), issue.eq(active & (waiting < BEATS) & ~self.host.enable)]
        # Beats that were issued and not taken yet: there is a place for each in the FIFO.
        m.d.sync += [waiting.eq(waiting + issue - taken), arriving.eq(issue), last.eq(left == 0)]
        with m.If(issue):
            m.d.sync += [index.eq(index + 1), left.eq(left - 1), active.eq(left != 0)]
        with m.If(axi.arvalid & axi.arready):
            m.d.sync += [active.eq(1), index.eq(axi.araddr >> shift), left.eq(axi.arlen), burst_id.eq(axi.arid)]
            m.d.sync += resp.eq(self._response(axi.araddr))
        # A burst's number and response stay until its last beat has arrived: the next one begins a cycle later.
        payload = beats.input.payload
        m.d.comb += [
            payload.data.eq(beat), payload.id.eq(burst_id), payload.resp.eq(resp), payload.last.eq(last),
            beats.input.valid.eq(arriving),
            axi.rvalid.eq(beats.output.valid), beats.output.ready.eq(axi.rready),
            axi.rdata.eq(beats.output.payload.data), axi.rid.eq(beats.output.payload.id),
            axi.rresp.eq(beats.output.payload.resp), axi.rlast.eq(beats.output.payload.last),
        ]  # fmt: skip

    def _write_bursts(self, m: Module, shift: int, index: Signal, mask: Signal) -> None:
        """Takes the beats of a burst, then answers it."""
        axi = self.axi
        active = Signal()
        m.d.comb += [
            axi.awready.eq(~active & ~axi.bvalid),
            axi.wready.eq(active & ~(self.host.enable & self.host.write)),
        ]
        with m.If(axi.bready):
            m.d.sync += axi.bvalid.eq(0)
        with m.If(axi.awvalid & axi.awready):
            m.d.sync += [active.eq(1), index.eq(axi.awaddr >> shift), axi.bid.eq(axi.awid)]
            m.d.sync += axi.bresp.eq(self._response(axi.awaddr))
        with m.If(axi.wvalid & axi.wready):
            m.d.sync += index.eq(index + 1)
            with m.If(axi.bresp == Response.OKAY):
                m.d.comb += mask.eq(axi.wstrb)
            with m.If(axi.wlast):
                m.d.sync += [active.eq(0), axi.bvalid.eq(1)]

    def _response(self, address: Value) -> Value:
        return Mux(address < self.memory_bytes, Response.OKAY, Response.DECERR)
