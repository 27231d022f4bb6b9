"""Between several cores and one memory port: an AXI4 arbiter, round robin, in turns of one burst or of several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import fifo, wiring
from amaranth.lib.wiring import In, Out

from .axi import MasterSignature
from .bus import BURST_INCR, CACHE_NORMAL, ID_BITS, PAGE_BYTES, WRITES_ORDERED, ReadClient, port_id_bits
from .config import CoreConfig
from .register_windows import PAGE_BITS
from .shared_reads import SharedReads

HELD = ("id", "addr", "len")
"""Signals of an address channel that the arbiter's register holds."""


@dataclass(frozen=True)
class _Source:
    """One that asks at an address channel: its handshake, and what the register is to hold of it."""

    valid: Value
    ready: Signal
    held: Mapping[str, Value]


class Arbiter(wiring.Component):
    """Joins the buses of ``cores`` at one port.

    Addresses of reads, and of writes, have one register each. It is loaded in a cycle in which it is empty or taken,
    from the next core after the one that was last granted; where no burst of the channel is under way, turns begin
    with core 0, so that what a program takes depends on no program before it. A turn has as many bursts as the core's
    weight says, and ends early where the core asks for none. Words of writes follow in the order of the granted
    addresses. Answers go by their ID, without a register.

    With ``shares_reads``, reads of weights in a part of the memory meet (:class:`.SharedReads`), and have a turn of
    their own, the last, of one burst. All reads of weights then have one ID, so that each core gets its own in their
    order.

    core_0, core_1, ...
        The cores. Each takes a word that it asked for at once: ``rready`` is high.
    port
        The memory, with IDs of :func:`port_id_bits`.
    running
        With ``shares_reads``, a bit for each core: its program runs.
    shared_start, shared_stop
        With ``shares_reads``, the pages of the memory that are shared.
    """

    def __init__(self, cores: Sequence[CoreConfig], *, weights: Sequence[int] = (), shares_reads: bool = False) -> None:
        self.configs = tuple(cores)
        self.count = len(self.configs)
        self.weights = tuple(weights) or (1,) * self.count
        self.shares_reads = shares_reads
        buses = {f"core_{number}": In(MasterSignature(config)) for number, config in enumerate(self.configs)}
        sharing = {"running": In(self.count), "shared_start": In(PAGE_BITS), "shared_stop": In(PAGE_BITS)}
        super().__init__(
            {
                **buses,
                "port": Out(MasterSignature(self.configs[0], port_id_bits(self.count))),
                **(sharing if shares_reads else {}),
            }
        )

    @property
    def cores(self) -> list[wiring.FlippedInterface]:
        """The buses of the cores."""
        return [getattr(self, f"core_{number}") for number in range(self.count)]

    def elaborate(self, platform: object) -> Module:
        m = Module()
        port = self.port
        read_ends = port.rvalid & port.rready & port.rlast
        reads = sum(config.read_outstanding for config in self.configs)
        if self.shares_reads:
            members = self._shared_reads(m, read_ends, reads)
        else:
            sources = [self._source(number, bus, "ar") for number, bus in enumerate(self.cores)]
            self._addresses(m, "ar", sources, Value.cast(1), read_ends, reads)
            members = Const(0, self.count)
        m.submodules.order = order = fifo.SyncFIFO(width=max(1, (self.count - 1).bit_length()), depth=WRITES_ORDERED)
        writes = sum(config.write_outstanding for config in self.configs)
        sources = [self._source(number, bus, "aw") for number, bus in enumerate(self.cores)]
        grant, takes = self._addresses(m, "aw", sources, order.w_rdy, port.bvalid & port.bready, writes)
        m.d.comb += [
            order.w_en.eq(takes),
            order.w_data.eq(grant),
            order.r_en.eq(port.wvalid & port.wready & port.wlast),
        ]
        self._words(m, order)
        self._answers(m, members)
        return m

    def _source(self, number: int, bus: Any, channel: str) -> _Source:
        """A core at an address channel, with its number above its ID."""

        def of(name: str) -> Signal:
            signal: Signal = getattr(bus, f"{channel}{name}")
            return signal

        held = {"id": Cat(of("id"), Const(number)), "addr": of("addr"), "len": of("len")}
        return _Source(of("valid"), of("ready"), held)

    def _shared_reads(self, m: Module, read_ends: Value, most: int) -> Value:
        """The AR channel where reads of weights may be shared; to which cores the words of the oldest go."""
        m.submodules.shared = shared = SharedReads(self.configs[0], self.count)
        m.submodules.members = members = fifo.SyncFIFO(width=self.count, depth=most)
        m.d.comb += shared.running.eq(self.running)
        weights = Const(ReadClient.LOADW, ID_BITS)
        page = (PAGE_BYTES - 1).bit_length()
        sources = []
        for number, bus in enumerate(self.cores):
            plain = self._source(number, bus, "ar")
            is_weights, meets = Signal(name=f"weights_{number}"), Signal(name=f"meets_{number}")
            ready = Signal(name=f"ready_{number}")
            ask = shared.asks[number]
            m.d.comb += [
                is_weights.eq(bus.arid == weights),
                meets.eq(
                    is_weights & (bus.araddr[page:] >= self.shared_start) & (bus.araddr[page:] < self.shared_stop)
                ),
                ask.valid.eq(bus.arvalid & meets),
                ask.payload.addr.eq(bus.araddr),
                ask.payload.len.eq(bus.arlen),
                bus.arready.eq(Mux(meets, ask.ready, ready)),
            ]
            # Weights that are not shared do not overtake those that wait.
            valid = bus.arvalid & ~meets & ~(is_weights & shared.waits[number])
            own = {**plain.held, "id": Mux(is_weights, weights, plain.held["id"])}
            sources.append(_Source(valid, ready, own))
        burst = shared.reads.payload
        together = {"id": weights, "addr": burst.addr, "len": burst.len}
        sources.append(_Source(shared.reads.valid, shared.reads.ready, together))
        grant, takes = self._addresses(m, "ar", sources, Value.cast(1), read_ends, most)
        granted_weights = Signal()
        with m.Switch(grant):
            for number, bus in enumerate(self.cores):
                with m.Case(number):
                    m.d.comb += [granted_weights.eq(bus.arid == weights), members.w_data.eq(1 << number)]
            with m.Case(self.count):
                m.d.comb += [granted_weights.eq(1), members.w_data.eq(shared.members)]
        m.d.comb += [
            members.w_en.eq(takes & granted_weights),
            members.r_en.eq(read_ends & (self.port.rid == weights)),
        ]
        return members.r_data

    def _addresses(
        self, m: Module, channel: str, sources: Sequence[_Source], room: Value, ends: Value, most: int
    ) -> tuple[Signal, Signal]:
        """One address channel; which source is granted, and whether one is in this cycle. ``ends``: a burst of the
        channel is over; ``most``: bursts that can be under way."""

        def of_port(name: str) -> Signal:
            signal: Signal = getattr(self.port, f"{channel}{name}")
            return signal

        count = len(sources)
        last = Signal(range(count), name=f"{channel}_last")
        after = Signal(range(count), name=f"{channel}_after")
        grant = Signal(range(count), name=f"{channel}_grant")
        takes = Signal(name=f"{channel}_takes")
        held = Signal(name=f"{channel}_held")
        under_way = Signal(range(most + count + 1), name=f"{channel}_under_way")
        free = ~held | of_port("ready")
        m.d.comb += [
            after.eq(Mux(under_way == 0, count - 1, last)),
            takes.eq(free & room & Cat(source.valid for source in sources).any()),
            of_port("valid").eq(held),
        ]
        goes_on = self._turns(m, channel, sources, (last, grant), takes, under_way)
        with m.Switch(after):
            for number in range(count):
                with m.Case(number):  # of several assignments the last counts: the next source's
                    for step in reversed(range(1, count + 1)):
                        candidate = (number + step) % count
                        with m.If(sources[candidate].valid):
                            m.d.comb += grant.eq(candidate)
        if goes_on is not None:
            with m.If(goes_on):
                m.d.comb += grant.eq(last)
        m.d.sync += under_way.eq(under_way + takes - ends)
        with m.If(free):
            m.d.sync += held.eq(takes)
        with m.If(takes):
            m.d.sync += last.eq(grant)
        registers = {name: Signal.like(of_port(name), name=f"{channel}_{name}") for name in HELD}
        with m.Switch(grant):
            for number, source in enumerate(sources):
                with m.Case(number):
                    m.d.comb += source.ready.eq(takes)
                    with m.If(takes):
                        m.d.sync += [registers[name].eq(source.held[name]) for name in HELD]
        m.d.comb += [
            *(of_port(name).eq(register) for name, register in registers.items()),
            of_port("size").eq(self.configs[0].bus_bytes.bit_length() - 1),
            of_port("burst").eq(BURST_INCR),
            of_port("cache").eq(CACHE_NORMAL),
        ]
        return grant, takes

    def _turns(
        self, m: Module, channel: str, sources: Sequence[_Source], last_and_next: tuple[Signal, Signal], takes: Signal,
        under_way: Signal,
    ) -> Value | None:  # fmt: skip
        """Whether the source that was last granted is granted again; None where every turn is one burst."""
        if max(self.weights) == 1:
            return None
        last, grant = last_and_next
        left = Signal(range(max(self.weights)), name=f"{channel}_left")  # bursts that the turn still has
        asks, goes_on = Signal(name=f"{channel}_asks_again"), Signal(name=f"{channel}_goes_on")
        with m.Switch(last):
            for number, source in enumerate(sources):
                with m.Case(number):
                    m.d.comb += asks.eq(source.valid)
        m.d.comb += goes_on.eq((under_way != 0) & (left != 0) & asks)
        with m.If(takes & goes_on):
            m.d.sync += left.eq(left - 1)
        with m.Elif(takes), m.Switch(grant):
            for number, weight in enumerate(self.weights):
                with m.Case(number):
                    m.d.sync += left.eq(weight - 1)
            with m.Default():  # reads that cores share
                m.d.sync += left.eq(0)
        return goes_on

    def _words(self, m: Module, order: fifo.SyncFIFO) -> None:
        """The W channel: of the core whose granted address is the oldest."""
        port = self.port
        with m.Switch(order.r_data):
            for number, bus in enumerate(self.cores):
                with m.Case(number):
                    m.d.comb += [
                        port.wvalid.eq(bus.wvalid & order.r_rdy),
                        bus.wready.eq(port.wready & order.r_rdy),
                        port.wdata.eq(bus.wdata),
                        port.wstrb.eq(bus.wstrb),
                        port.wlast.eq(bus.wlast),
                    ]

    def _answers(self, m: Module, members: Value) -> None:
        """The R and B channels, by ID; words of weights that may be shared go to the ``members``."""
        port = self.port
        for bus in self.cores:
            m.d.comb += [
                bus.rid.eq(port.rid[:ID_BITS]),
                bus.rdata.eq(port.rdata),
                bus.rresp.eq(port.rresp),
                bus.rlast.eq(port.rlast),
                bus.bid.eq(port.bid[:ID_BITS]),
                bus.bresp.eq(port.bresp),
            ]
        for letter in "rb":
            valid, ready = (getattr(port, f"{letter}{name}") for name in ("valid", "ready"))
            with m.Switch(getattr(port, f"{letter}id")[ID_BITS:]):
                for number, bus in enumerate(self.cores):
                    with m.Case(number):
                        m.d.comb += [
                            getattr(bus, f"{letter}valid").eq(valid),
                            ready.eq(getattr(bus, f"{letter}ready")),
                        ]
        if self.shares_reads:
            with m.If(port.rid[:ID_BITS] == ReadClient.LOADW):
                m.d.comb += port.rready.eq(1)
                m.d.comb += [bus.rvalid.eq(port.rvalid & members[number]) for number, bus in enumerate(self.cores)]
