"""Memory in a chip of SDRAM behind a core's AXI port, which a host reads and writes as well."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ..axi import MasterSignature
from ..bus import ID_BITS, Response
from ..config import CoreConfig
from ..layout_fifo import LayoutFifo
from .block_memory import WORD_BYTES, HostPortSignature
from .sdram import SdramController, SdramPins
from .sdram_chip import SdramChip

BEATS = 16
"""Beats that are read before the core takes them."""


class SdramMemory(wiring.Component):
    """All of a chip from bus address 0 on.

    axi
        One burst at a time; a read and a write that both wait take turns. An address outside gets DECERR.
    host
        Goes between bursts.
    """

    def __init__(self, config: CoreConfig, chip: SdramChip, clock_hz: int) -> None:
        self._config, self._chip, self._clock_hz = config, chip, clock_hz
        super().__init__(
            {
                "axi": In(MasterSignature(config)),
                "host": In(HostPortSignature(chip.size)),
                "sdram": Out(SdramPins(chip)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.controller = controller = SdramController(self._chip, self._clock_hz, self._config.bus_bytes)
        wiring.connect(m, wiring.flipped(self.sdram), controller.pins)
        axi, host, size = self.axi, self.host, self._config.bus_bytes
        request, shift = controller.request, ceil_log2(size)

        # Whose word a read brings: known when it is asked for, wanted when it comes.
        asked_layout = data.StructLayout({"host": 1, "id": ID_BITS, "resp": Response, "last": 1})
        m.submodules.asked = asked = LayoutFifo(asked_layout, BEATS + 1)
        beat_layout = data.StructLayout({"data": 8 * size, "id": ID_BITS, "resp": Response, "last": 1})
        m.submodules.beats = beats = LayoutFifo(beat_layout, BEATS)
        asks = request.valid & request.ready & ~request.payload.write
        m.d.comb += [asked.input.valid.eq(asks), asked.output.ready.eq(controller.valid)]
        origin, beat = asked.output.payload, beats.input.payload
        m.d.comb += [
            beats.input.valid.eq(controller.valid & ~origin.host),
            beat.data.eq(controller.given), beat.id.eq(origin.id), beat.resp.eq(origin.resp), beat.last.eq(origin.last),
            axi.rvalid.eq(beats.output.valid), beats.output.ready.eq(axi.rready),
            axi.rdata.eq(beats.output.payload.data), axi.rid.eq(beats.output.payload.id),
            axi.rresp.eq(beats.output.payload.resp), axi.rlast.eq(beats.output.payload.last),
        ]  # fmt: skip

        # Beats that were asked for and not taken yet: there is a place for each in the FIFO.
        waiting, reads_beat = Signal(range(BEATS + 1)), Signal()
        m.d.sync += waiting.eq(waiting + (reads_beat & request.ready) - (axi.rvalid & axi.rready))

        index, left, reads_next = Signal.like(request.payload.index), Signal(8), Signal()
        burst_id, resp = Signal(ID_BITS), Signal(Response)
        ask = asked.input.payload
        m.d.comb += [ask.id.eq(burst_id), ask.resp.eq(resp), ask.last.eq(left == 0), request.payload.index.eq(index)]
        host_waits, host_wrote = Signal(), Signal()
        with m.If(host.enable):
            m.d.sync += host_waits.eq(1)
        with m.If(axi.bready):
            m.d.sync += axi.bvalid.eq(0)
        m.d.sync += host_wrote.eq(0)

        def begin(address: Value, number: Value) -> None:
            m.d.sync += [index.eq(address >> shift), burst_id.eq(number)]
            m.d.sync += resp.eq(Mux(address < self._chip.size, Response.OKAY, Response.DECERR))

        with m.FSM():
            with m.State("IDLE"):
                with m.If(host_waits):
                    m.next = "HOST"
                with m.Elif(axi.arvalid & (reads_next | ~axi.awvalid)):
                    m.d.comb += axi.arready.eq(1)
                    begin(axi.araddr, axi.arid)
                    m.d.sync += [left.eq(axi.arlen), reads_next.eq(0)]
                    m.next = "READ"
                with m.Elif(axi.awvalid & ~axi.bvalid):
                    m.d.comb += axi.awready.eq(1)
                    begin(axi.awaddr, axi.awid)
                    m.d.sync += reads_next.eq(1)
                    m.next = "WRITE"
            with m.State("READ"):
                m.d.comb += [reads_beat.eq(waiting < BEATS), request.valid.eq(reads_beat)]
                with m.If(request.valid & request.ready):
                    m.d.sync += [index.eq(index + 1), left.eq(left - 1)]
                    with m.If(left == 0):
                        m.next = "IDLE"
            with m.State("WRITE"):
                m.d.comb += [request.valid.eq(axi.wvalid), axi.wready.eq(request.ready), request.payload.write.eq(1)]
                m.d.comb += [
                    request.payload.data.eq(axi.wdata),
                    request.payload.mask.eq(Mux(resp == Response.OKAY, axi.wstrb, 0)),
                ]
                with m.If(axi.wvalid & axi.wready):
                    m.d.sync += index.eq(index + 1)
                    with m.If(axi.wlast):
                        m.d.sync += [axi.bvalid.eq(1), axi.bid.eq(burst_id), axi.bresp.eq(resp)]
                        m.next = "IDLE"
            with m.State("HOST"):
                part = host.index[: ceil_log2(size // WORD_BYTES)]
                m.d.comb += [
                    request.valid.eq(1), ask.host.eq(1), request.payload.write.eq(host.write),
                    request.payload.index.eq(host.index[len(part) :]),
                    request.payload.data.eq(host.data.replicate(size // WORD_BYTES)),
                    request.payload.mask.word_select(part, WORD_BYTES).eq(-1),
                ]  # fmt: skip
                with m.If(request.ready):
                    m.d.sync += [host_waits.eq(0), host_wrote.eq(host.write)]
                    m.next = "IDLE"
        m.d.comb += [
            host.done.eq(host_wrote | controller.valid & origin.host),
            host.result.eq(controller.given.word_select(host.index[: ceil_log2(size // WORD_BYTES)], 8 * WORD_BYTES)),
        ]
        return m
