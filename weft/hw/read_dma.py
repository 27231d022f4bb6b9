"""Reading memory: one AXI read master for all clients, and the buffer in which each client keeps its data.

A client asks only for what its buffer has room for, so the master takes every beat at once: a client that has
to wait (for a token, for a scratchpad port) never holds up the data of another.
"""

from __future__ import annotations

from amaranth.hdl import Array, Cat, Module, Mux, Signal
from amaranth.lib import data, fifo, stream, wiring
from amaranth.lib.wiring import In, Out

from .axi import ReadMasterSignature
from .bursts import burst_layout
from .bus import CACHE_NORMAL, ReadClient
from .config import CoreConfig


def word_layout(config: CoreConfig) -> data.StructLayout:
    """A bus word as read, and whether the memory answered with an error."""
    return data.StructLayout({"data": config.bus_bits, "error": 1})


class ReadClientSignature(wiring.Signature):
    """From the client's side: it must be able to take all ``words`` that it asked for, one a cycle."""

    def __init__(self, config: CoreConfig) -> None:
        super().__init__(
            {
                "bursts": Out(stream.Signature(burst_layout(config))),
                "word_valid": In(1),
                "word": In(word_layout(config)),
            }
        )


class ReadBuffer(wiring.Component):
    """Lets bursts through as long as there is room for their beats, and holds the beats: one a cycle.

    ``words.payload.error`` marks the first word that the memory refused, and all behind it. It comes from a register:
    what is done with a word is decided before block RAM has shown it.
    """

    def __init__(self, config: CoreConfig, depth: int) -> None:
        self._config = config
        self._depth = depth
        super().__init__(
            {
                "bursts": In(stream.Signature(burst_layout(config))),
                "client": Out(ReadClientSignature(config)),
                "words": Out(stream.Signature(word_layout(config))),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.buffer = buffer = fifo.SyncFIFOBuffered(width=self._config.bus_bits, depth=self._depth)
        room = Signal(range(self._depth + 1), init=self._depth)
        fits = Signal()
        sent = Signal()
        taken = Signal()
        beats_minus_1 = self.bursts.payload.beats_minus_1
        m.d.comb += [
            fits.eq(beats_minus_1 < room),  # no sum: the master's choice comes behind it
            self.client.bursts.payload.eq(self.bursts.payload),
            self.client.bursts.valid.eq(self.bursts.valid & fits),
            self.bursts.ready.eq(self.client.bursts.ready & fits),
            sent.eq(self.bursts.valid & self.bursts.ready),
            buffer.w_en.eq(self.client.word_valid),
            buffer.w_data.eq(self.client.word.data),
            self.words.payload.data.eq(buffer.r_data),
            self.words.valid.eq(buffer.r_rdy),
            buffer.r_en.eq(self.words.ready),
            taken.eq(self.words.valid & self.words.ready),
        ]
        with m.If(sent):  # two differences, so that what comes late only chooses
            m.d.sync += room.eq(Mux(taken, room - beats_minus_1, room - beats_minus_1 - 1))
        with m.Elif(taken):
            m.d.sync += room.eq(room + 1)

        # Words ahead of the first one that was refused.
        refused = Signal()
        ahead = Signal(range(self._depth + 1), reset_less=True)
        reached = Signal()
        m.d.comb += self.words.payload.error.eq(reached)
        with m.If(~refused):
            m.d.sync += [
                refused.eq(self.client.word_valid & self.client.word.error),
                ahead.eq(Mux(taken, buffer.level - 1, buffer.level)),
                reached.eq(
                    self.client.word_valid & self.client.word.error & Mux(taken, buffer.level == 1, buffer.level == 0)
                ),
            ]
        with m.Elif(taken & ~reached):
            m.d.sync += [ahead.eq(ahead - 1), reached.eq(ahead == 1)]
        return m


class ReadMaster(wiring.Component):
    """AXI4 read master for all :class:`ReadClient`s.

    Arbitration is round robin, a burst at a time; at most ``read_outstanding`` bursts are in flight.

    base
        Byte address of the window, a multiple of 4 KiB; must not change while ``busy``.
    stop
        Start no burst. Those under way are completed; their data is delivered.
    busy
        A burst is under way.
    beat
        A beat of this client arrives in this cycle (for the counters).
    """

    def __init__(self, config: CoreConfig) -> None:
        self._config = config
        super().__init__(
            {
                "clients": In(ReadClientSignature(config)).array(len(ReadClient)),
                "axi": Out(ReadMasterSignature(config)),
                "base": In(config.address_bits),
                "stop": In(1),
                "busy": Out(1),
                "beat": Out(len(ReadClient)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        axi = self.axi
        outstanding = Signal(range(config.read_outstanding + 1))
        may_begin = Signal()
        begins = Signal()
        ends = Signal()
        last_granted = Signal(ReadClient)
        grant = Signal(ReadClient)
        wanted = Signal()

        with m.Switch(last_granted):
            for last in ReadClient:
                with m.Case(last):
                    # The lowest priority first: a later assignment wins.
                    for step in range(len(ReadClient), 0, -1):
                        client = (last + step) % len(ReadClient)
                        with m.If(self.clients[client].bursts.valid):
                            m.d.comb += [grant.eq(client), wanted.eq(1)]
        bursts = Array(client.bursts.payload.as_value() for client in self.clients)
        burst = data.View(burst_layout(config), bursts[grant])
        m.d.comb += [
            may_begin.eq(~self.stop & (~axi.arvalid | axi.arready) & (outstanding != config.read_outstanding)),
            begins.eq(wanted & may_begin),
            axi.arsize.eq(config.bus_bytes.bit_length() - 1),
            axi.arburst.eq(1),
            axi.arcache.eq(CACHE_NORMAL),
        ]
        # The same choice seen from each client, which does not wait for the whole of it.
        for client in ReadClient:
            before = Signal(name=f"others_before_{client.name.lower()}")
            with m.Switch(last_granted):
                for last in ReadClient:
                    with m.Case(last):
                        turns = [(last + turn) % len(ReadClient) for turn in range(1, len(ReadClient) + 1)]
                        earlier = turns[: turns.index(client)]
                        m.d.comb += before.eq(Cat(self.clients[other].bursts.valid for other in earlier).any())
            m.d.comb += self.clients[client].bursts.ready.eq(may_begin & ~before)
        with m.If(begins):
            m.d.sync += [
                last_granted.eq(grant),
                axi.arid.eq(grant),
                axi.araddr.eq(self.base + burst.word * config.bus_bytes),
                axi.arlen.eq(burst.beats_minus_1),
            ]
        with m.If(begins | axi.arready):
            m.d.sync += axi.arvalid.eq(begins)
        with m.If(begins & ~ends):
            m.d.sync += outstanding.eq(outstanding + 1)
        with m.Elif(ends & ~begins):
            m.d.sync += outstanding.eq(outstanding - 1)

        word = Signal(word_layout(config), reset_less=True)
        word_id = Signal(ReadClient, reset_less=True)
        word_valid = Signal()
        m.d.comb += [axi.rready.eq(1), ends.eq(axi.rvalid & axi.rlast)]
        m.d.sync += word_valid.eq(axi.rvalid)
        with m.If(axi.rvalid):
            m.d.sync += [word.data.eq(axi.rdata), word.error.eq(axi.rresp[1]), word_id.eq(axi.rid)]
        for client in ReadClient:
            m.d.comb += [
                self.beat[client].eq(word_valid & (word_id == client)),
                self.clients[client].word.eq(word),
                self.clients[client].word_valid.eq(self.beat[client]),
            ]
        m.d.comb += self.busy.eq((outstanding != 0) | word_valid)
        return m
