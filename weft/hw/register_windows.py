"""One AXI4-Lite slave for the registers of several cores: a window of 4 KiB for each, and one for a group of them.

What is written to the group's window is written to all cores of the group at once, so that one write of CONTROL starts
them in the same cycle.
"""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .axi import RegisterSlaveSignature
from .bus import REGISTER_ADDRESS_BITS, REGISTER_BITS, Response
from .register_file import word_of
from .registers import Kind
from .relay import READ_ONLY, relay_ports

WINDOW_BYTES = 1 << REGISTER_ADDRESS_BITS
"""Of one core's registers; core ``i`` has those at ``i * WINDOW_BYTES``."""

NUMBER_BITS = 4
ADDRESS_BITS = REGISTER_ADDRESS_BITS + NUMBER_BITS
"""Width of the addresses of all windows: the same for any number of cores."""

GROUP = (1 << NUMBER_BITS) - 1
GROUP_WINDOW = GROUP * WINDOW_BYTES
"""Writes here go to all cores of the group."""

GROUP_MEMBERS = GROUP_WINDOW + WINDOW_BYTES - 4
"""Register with a bit for each core: the members of the group; all after a reset."""

SHARED_STOP = GROUP_MEMBERS - 4
SHARED_START = GROUP_MEMBERS - 8
"""Registers of a system that shares reads: the first page of the memory whose reads of weights cores share, and the
first page behind them. Both are 0 after a reset: nothing is shared. To be written while no core runs."""

PAGE_BITS = 32
"""Width of the number of a page of 4 KiB."""


class RegisterWindows(wiring.Component):
    """One write, and one read, at a time. An address that is no core's is answered with DECERR.

    outside
        The slave that the host sees.
    core_0, core_1, ...
        To the registers of each core.
    shared_start, shared_stop
        With ``shares_reads``, what was written to these registers.
    relay_released, ...
        With ``relay``, the signals of its registers (:func:`~weft.hw.relay.relay_ports`).
    members
        The cores of the group.
    """

    def __init__(self, count: int, *, shares_reads: bool = False, relay: bool = False) -> None:
        self.count = count
        inside = {f"core_{number}": In(RegisterSlaveSignature()) for number in range(count)}
        pages = {name: Out(PAGE_BITS) for name in ("shared_start", "shared_stop")} if shares_reads else {}
        relays = relay_ports(count) if relay else {}
        signals = {
            f"relay_{name}": (In if register.kind in READ_ONLY else Out)(register.bits)
            for name, (_, register) in relays.items()
        }
        super().__init__({"outside": Out(RegisterSlaveSignature(ADDRESS_BITS)), **inside, **pages, **signals})
        self.members = Signal(count, init=(1 << count) - 1)
        self._own: dict[int, Value] = {GROUP_MEMBERS: self.members}
        """Registers that are no core's, and what they hold."""
        if shares_reads:
            self._own |= {SHARED_START: self.shared_start, SHARED_STOP: self.shared_stop}
        self._shown: dict[int, Value] = {}
        """Registers that are no core's and that a write leaves as they are."""
        self._commands: dict[int, Value] = {}
        """Registers that are no core's and whose bits are high for the cycle after a write."""
        for name, (address, register) in relays.items():
            signal = getattr(self, f"relay_{name}")
            if register.kind in READ_ONLY:
                words = range(-(-register.bits // REGISTER_BITS))
                self._shown |= {address + 4 * word: word_of(signal, word) for word in words}
            else:
                (self._commands if register.kind is Kind.COMMAND else self._own)[address] = signal

    def elaborate(self, platform: object) -> Module:
        m = Module()
        self._write(m)
        self._read(m)
        return m

    def _cores(self) -> list[wiring.FlippedInterface]:
        return [getattr(self, f"core_{number}") for number in range(self.count)]

    def _write(self, m: Module) -> None:
        outside, cores = self.outside, self._cores()
        address, data, strobes = Signal(ADDRESS_BITS), Signal(32), Signal(4)
        # Of each core: its address, its data and its response are still to come.
        addresses, words, responses = Signal(self.count), Signal(self.count), Signal(self.count)
        error = Signal()
        number = outside.awaddr[REGISTER_ADDRESS_BITS:]
        chosen = Signal(self.count)
        with m.If(number == GROUP):
            m.d.comb += chosen.eq(self.members)
        with m.Else():
            m.d.comb += chosen.eq(1 << number)
        m.d.sync += [command.eq(0) for command in self._commands.values()]
        with m.FSM(name="write"):
            with m.State("idle"), m.If(outside.awvalid & outside.wvalid):
                m.d.comb += [outside.awready.eq(1), outside.wready.eq(1)]
                m.d.sync += [address.eq(outside.awaddr), data.eq(outside.wdata), strobes.eq(outside.wstrb), error.eq(0)]
                with m.Switch(outside.awaddr):
                    for place, register in (self._own | self._commands).items():
                        with m.Case(place):
                            m.d.sync += register.eq(outside.wdata)
                            m.next = "answer"
                    for place in self._shown:
                        with m.Case(place):
                            m.next = "answer"
                    with m.Default():
                        with m.If(chosen == 0):
                            m.d.sync += error.eq(1)
                            m.next = "answer"
                        with m.Else():
                            m.d.sync += [addresses.eq(chosen), words.eq(chosen), responses.eq(chosen)]
                            m.next = "send"
            with m.State("send"):
                for bit, core in enumerate(cores):
                    m.d.comb += [
                        core.awvalid.eq(addresses[bit]),
                        core.wvalid.eq(words[bit]),
                        core.bready.eq(responses[bit]),
                    ]
                    with m.If(core.awready):
                        m.d.sync += addresses[bit].eq(0)
                    with m.If(core.wready):
                        m.d.sync += words[bit].eq(0)
                    with m.If(core.bvalid & responses[bit]):
                        m.d.sync += responses[bit].eq(0)
                        with m.If(core.bresp != Response.OKAY):
                            m.d.sync += error.eq(1)
                with m.If(responses == 0):
                    m.next = "answer"
            with m.State("answer"):
                m.d.comb += [outside.bvalid.eq(1), outside.bresp.eq(Mux(error, Response.DECERR, Response.OKAY))]
                with m.If(outside.bready):
                    m.next = "idle"
        for core in cores:
            m.d.comb += [core.awaddr.eq(address), core.wdata.eq(data), core.wstrb.eq(strobes)]

    def _read(self, m: Module) -> None:
        outside, cores = self.outside, self._cores()
        address, data = Signal(ADDRESS_BITS), Signal(32)
        response = Signal(Response)
        number = address[REGISTER_ADDRESS_BITS:]
        asked = Signal()
        with m.FSM(name="read"):
            with m.State("idle"):
                m.d.comb += outside.arready.eq(1)
                with m.If(outside.arvalid):
                    m.d.sync += [address.eq(outside.araddr), asked.eq(0)]
                    m.next = "send"
            with m.State("send"):
                for bit, core in enumerate(cores):
                    with m.If(number == bit):
                        m.d.comb += [core.arvalid.eq(~asked), core.rready.eq(1)]
                        with m.If(core.arready):
                            m.d.sync += asked.eq(1)
                        with m.If(core.rvalid):
                            m.d.sync += [data.eq(core.rdata), response.eq(core.rresp)]
                            m.next = "answer"
                with m.If(number >= self.count):
                    m.d.sync += [data.eq(0), response.eq(Response.DECERR)]
                    with m.Switch(address):
                        for place, register in (self._own | self._shown).items():
                            with m.Case(place):
                                m.d.sync += [data.eq(register), response.eq(Response.OKAY)]
                    m.next = "answer"
            with m.State("answer"):
                m.d.comb += [outside.rvalid.eq(1), outside.rdata.eq(data), outside.rresp.eq(response)]
                with m.If(outside.rready):
                    m.next = "idle"
        for core in cores:
            m.d.comb += core.araddr.eq(address)
