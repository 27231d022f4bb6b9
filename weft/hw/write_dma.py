"""Writing memory: gathers each burst's words before it asks for the bus, so that the bus never waits for data."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, ResetInserter, Signal
from amaranth.lib import data, fifo, stream, wiring
from amaranth.lib.wiring import In, Out

from .axi import WriteMasterSignature
from .bursts import burst_layout, length_bits
from .bus import CACHE_NORMAL, buffer_beats
from .config import CoreConfig


def strobed_word_layout(config: CoreConfig) -> data.StructLayout:
    """A bus word to write and its byte enables."""
    return data.StructLayout({"data": config.bus_bits, "strobe": config.bus_bytes})


class WriteClientSignature(wiring.Signature):
    """From the client's side.

    bursts, words
        Bursts, and the words of all of them in order; words may come before their burst.
    acknowledged
        The memory has answered a burst in this cycle (in order): ``last`` as in its request, ``error`` if refused.
    """

    def __init__(self, config: CoreConfig) -> None:
        acknowledgement = data.StructLayout({"last": 1, "error": 1})
        super().__init__(
            {
                "bursts": Out(stream.Signature(burst_layout(config))),
                "words": Out(stream.Signature(strobed_word_layout(config))),
                "acknowledged": In(1),
                "acknowledgement": In(acknowledgement),
            }
        )


class WriteMaster(wiring.Component):
    """AXI4 write master: at most ``write_outstanding`` bursts between their address and their response.

    base
        Byte address of the window, a multiple of 4 KiB; must not change while ``busy``.
    stop
        Start no burst. Those under way are completed; when that is done, words of other bursts are dropped.
    busy
        A burst is under way.
    beat
        A word is written in this cycle (for the counters).
    """

    def __init__(self, config: CoreConfig) -> None:
        self._config = config
        super().__init__(
            {
                "client": In(WriteClientSignature(config)),
                "axi": Out(WriteMasterSignature(config)),
                "base": In(config.address_bits),
                "stop": In(1),
                "busy": Out(1),
                "beat": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        axi, client = self.axi, self.client
        drop = Signal()
        clear = ResetInserter(drop)
        word_width, depth = config.bus_bits + config.bus_bytes, buffer_beats(config)
        m.submodules.words = words = clear(fifo.SyncFIFOBuffered(width=word_width, depth=depth))
        # Bursts whose address is out and whose words are not all written; and those that have no response yet.
        m.submodules.lengths = lengths = fifo.SyncFIFOBuffered(
            width=length_bits(config), depth=config.write_outstanding
        )
        m.submodules.unanswered = unanswered = fifo.SyncFIFOBuffered(width=1, depth=config.write_outstanding)

        # Words in the buffer that belong to no burst under way.
        gathered = Signal(range(depth + 1))
        begins = Signal()
        beats_minus_1 = client.bursts.payload.beats_minus_1
        put = Signal()
        m.d.comb += [
            words.w_data.eq(client.words.payload),
            words.w_en.eq(client.words.valid),
            client.words.ready.eq(words.w_rdy),
            put.eq(client.words.valid & client.words.ready),
            begins.eq(
                client.bursts.valid
                & ~self.stop
                & (~axi.awvalid | axi.awready)
                & (beats_minus_1 < gathered)
                & lengths.w_rdy
                & unanswered.w_rdy
            ),
            client.bursts.ready.eq(begins),
            lengths.w_en.eq(begins),
            lengths.w_data.eq(beats_minus_1),
            unanswered.w_en.eq(begins),
            unanswered.w_data.eq(client.bursts.payload.last),
            axi.awsize.eq(config.bus_bytes.bit_length() - 1),
            axi.awburst.eq(1),
            axi.awcache.eq(CACHE_NORMAL),
            drop.eq(self.stop & ~self.busy),
        ]
        with m.If(drop):
            m.d.sync += gathered.eq(0)
        with m.Elif(begins):  # two differences, so that what comes late only chooses
            m.d.sync += gathered.eq(Mux(put, gathered - beats_minus_1, gathered - beats_minus_1 - 1))
        with m.Elif(put):
            m.d.sync += gathered.eq(gathered + 1)
        with m.If(begins):
            m.d.sync += [
                axi.awaddr.eq(self.base + client.bursts.payload.word * config.bus_bytes),
                axi.awlen.eq(beats_minus_1),
            ]
        with m.If(begins | axi.awready):
            m.d.sync += axi.awvalid.eq(begins)

        self._write_words(m, words, lengths)
        self._take_responses(m, unanswered, begins)
        return m

    def _write_words(self, m: Module, words: fifo.SyncFIFOBuffered, lengths: fifo.SyncFIFOBuffered) -> None:
        """The W channel: the words of each burst whose address is out, the last one marked."""
        axi = self.axi
        beat_number = Signal(length_bits(self._config))
        word = data.View(strobed_word_layout(self._config), words.r_data)
        next_word = Signal()
        last_word = Signal()
        m.d.comb += [
            last_word.eq(beat_number == lengths.r_data),
            next_word.eq(lengths.r_rdy & words.r_rdy & (~axi.wvalid | axi.wready)),
            words.r_en.eq(next_word),
            lengths.r_en.eq(next_word & last_word),
            self.beat.eq(axi.wvalid & axi.wready),
        ]
        with m.If(next_word):
            m.d.sync += [
                axi.wdata.eq(word.data),
                axi.wstrb.eq(word.strobe),
                axi.wlast.eq(last_word),
                beat_number.eq(beat_number + 1),
            ]
            with m.If(last_word):
                m.d.sync += beat_number.eq(0)
        with m.If(next_word | axi.wready):
            m.d.sync += axi.wvalid.eq(next_word)

    def _take_responses(self, m: Module, unanswered: fifo.SyncFIFOBuffered, begins: Signal) -> None:
        """The B channel: count the bursts under way, and tell the client of each that ends."""
        axi, client = self.axi, self.client
        outstanding = Signal(range(self._config.write_outstanding + 2))
        answered = Signal()
        m.d.comb += [
            axi.bready.eq(unanswered.r_rdy),
            answered.eq(axi.bvalid & axi.bready),
            unanswered.r_en.eq(answered),
            self.busy.eq(outstanding != 0),
        ]
        with m.If(begins & ~answered):
            m.d.sync += outstanding.eq(outstanding + 1)
        with m.Elif(answered & ~begins):
            m.d.sync += outstanding.eq(outstanding - 1)
        m.d.sync += [
            client.acknowledged.eq(answered),
            client.acknowledgement.last.eq(unanswered.r_data),
            client.acknowledgement.error.eq(axi.bresp[1]),
        ]
