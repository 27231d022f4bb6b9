"""Between several cores and one memory port: an AXI4 arbiter, round robin, a burst at a time."""

from __future__ import annotations

from collections.abc import Sequence

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import fifo, wiring
from amaranth.lib.wiring import In, Out

from .axi import BURST_INCR, CACHE_NORMAL, ID_BITS, MasterSignature
from .config import CoreConfig

WRITES_ORDERED = 16
"""Write bursts whose address was granted and whose words are not all sent."""

HELD = ("id", "addr", "len")
"""Signals of an address channel that the arbiter's register holds."""


def port_id_bits(cores: int) -> int:
    """Width of the IDs at a port: the core's number on the port stands above the core's own ID."""
    return ID_BITS + (cores - 1).bit_length()


class Arbiter(wiring.Component):
    """Joins the buses of ``cores`` at one port.

    Addresses of reads, and of writes, have one register each. It is loaded in a cycle in which it is empty or taken,
    from the next core after the one that was last granted; where no burst of the channel is under way, turns begin
    with core 0, so that what a program takes depends on no program before it. Words of writes follow in the order of
    the granted addresses. Answers go by their ID, without a register.

    core_0, core_1, ...
        The cores.
    port
        The memory, with IDs of :func:`port_id_bits`.
    """

    def __init__(self, cores: Sequence[CoreConfig]) -> None:
        self.configs = tuple(cores)
        self.count = len(self.configs)
        buses = {f"core_{number}": In(MasterSignature(config)) for number, config in enumerate(self.configs)}
        super().__init__({**buses, "port": Out(MasterSignature(self.configs[0], port_id_bits(self.count)))})

    @property
    def cores(self) -> list[wiring.FlippedInterface]:
        """The buses of the cores."""
        return [getattr(self, f"core_{number}") for number in range(self.count)]

    def elaborate(self, platform: object) -> Module:
        m = Module()
        port = self.port
        read_ends = port.rvalid & port.rready & port.rlast
        reads = sum(config.read_outstanding for config in self.configs)
        self._addresses(m, "ar", Value.cast(1), read_ends, reads)
        m.submodules.order = order = fifo.SyncFIFO(width=max(1, (self.count - 1).bit_length()), depth=WRITES_ORDERED)
        writes = sum(config.write_outstanding for config in self.configs)
        grant, takes = self._addresses(m, "aw", order.w_rdy, port.bvalid & port.bready, writes)
        m.d.comb += [
            order.w_en.eq(takes),
            order.w_data.eq(grant),
            order.r_en.eq(port.wvalid & port.wready & port.wlast),
        ]
        self._words(m, order)
        self._answers(m)
        return m

    def _addresses(self, m: Module, channel: str, room: Value, ends: Value, most: int) -> tuple[Signal, Signal]:
        """One address channel; which core is granted, and whether one is in this cycle. ``ends``: a burst of the
        channel is over; ``most``: bursts that can be under way."""

        def of(bus: object, name: str) -> Signal:
            signal: Signal = getattr(bus, f"{channel}{name}")
            return signal

        cores = range(self.count)
        last = Signal(cores, name=f"{channel}_last")
        after = Signal(cores, name=f"{channel}_after")
        grant = Signal(cores, name=f"{channel}_grant")
        takes = Signal(name=f"{channel}_takes")
        held = Signal(name=f"{channel}_held")
        under_way = Signal(range(most + self.count + 1), name=f"{channel}_under_way")
        free = ~held | of(self.port, "ready")
        m.d.comb += [
            after.eq(Mux(under_way == 0, self.count - 1, last)),
            takes.eq(free & room & Cat(of(bus, "valid") for bus in self.cores).any()),
            of(self.port, "valid").eq(held),
        ]
        with m.Switch(after):
            for number in cores:
                with m.Case(number):  # of several assignments the last counts: the next core's
                    for step in reversed(range(1, self.count + 1)):
                        candidate = (number + step) % self.count
                        with m.If(of(self.cores[candidate], "valid")):
                            m.d.comb += grant.eq(candidate)
        m.d.sync += under_way.eq(under_way + takes - ends)
        with m.If(free):
            m.d.sync += held.eq(takes)
        with m.If(takes):
            m.d.sync += last.eq(grant)
        registers = {name: Signal.like(of(self.port, name), name=f"{channel}_{name}") for name in HELD}
        with m.Switch(grant):
            for number, bus in enumerate(self.cores):
                with m.Case(number):
                    m.d.comb += of(bus, "ready").eq(takes)
                    with m.If(takes):
                        m.d.sync += [
                            registers["id"].eq(Cat(of(bus, "id"), Value.cast(number))),
                            registers["addr"].eq(of(bus, "addr")),
                            registers["len"].eq(of(bus, "len")),
                        ]
        m.d.comb += [
            *(of(self.port, name).eq(register) for name, register in registers.items()),
            of(self.port, "size").eq(self.configs[0].bus_bytes.bit_length() - 1),
            of(self.port, "burst").eq(BURST_INCR),
            of(self.port, "cache").eq(CACHE_NORMAL),
        ]
        return grant, takes

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

    def _answers(self, m: Module) -> None:
        """The R and B channels, by ID."""
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
