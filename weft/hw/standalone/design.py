"""Core, memory and serial line, wired together: all of a board's logic but its pins and its clock."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ..core import Core
from ..mac_array_packed import Multipliers
from ..verilog import TIMESCALE, emit_component
from .block_memory import BlockMemory
from .host_link import HostLink
from .sdram import SdramPins
from .sdram_memory import SdramMemory
from .settings import LEDS, Standalone
from .uart import UartReceiver, UartTransmitter

TOP = "weft_standalone"
"""Name of the exported module; its clock is ``clk``, its synchronous reset ``rst``."""

CORE_INSTANCE = "core"
"""Name of the core in it."""


class StandaloneLogic(wiring.Component):
    """``leds``: interrupt, core runs, memory is read, memory is written, a question comes, and three bits of a counter
    that shows that there is a clock. ``sdram`` is there if the settings have a chip."""

    def __init__(self, settings: Standalone) -> None:
        self.settings = settings
        chip = {} if settings.sdram is None else {"sdram": Out(SdramPins(settings.sdram))}
        super().__init__({"rx": In(1, init=1), "tx": Out(1, init=1), "leds": Out(LEDS), **chip})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        settings = self.settings
        m.submodules.receiver = receiver = UartReceiver(settings.divisor)
        m.submodules.transmitter = transmitter = UartTransmitter(settings.divisor)
        m.submodules.link = link = HostLink(settings.memory_bytes, settings.clock_hz, settings.silence)
        m.submodules.memory = memory = self._memory()
        m.submodules[CORE_INSTANCE] = core = Core(settings.core)
        if isinstance(memory, SdramMemory):
            connect(m, flipped(self.sdram), memory.sdram)
        connect(m, core.m_axi, memory.axi)
        connect(m, link.memory, memory.host)
        connect(m, link.registers, core.s_axil)
        connect(m, link.answer, transmitter.input)
        seconds = Signal(range(2 * settings.clock_hz))
        m.d.sync += seconds.eq(seconds + 1)
        m.d.comb += [
            receiver.rx.eq(self.rx),
            link.received.eq(receiver.data),
            link.valid.eq(receiver.valid),
            self.tx.eq(transmitter.tx),
            self.leds.eq(
                Cat(core.interrupt, memory.axi.arvalid, memory.axi.rvalid, memory.axi.wvalid, ~self.rx, seconds[-3:])
            ),
        ]
        return m

    def _memory(self) -> BlockMemory | SdramMemory:
        settings = self.settings
        if settings.sdram is None:
            return BlockMemory(settings.core, settings.memory_bytes)
        return SdramMemory(settings.core, settings.sdram, settings.clock_hz)


def standalone_verilog(settings: Standalone) -> str:
    """Verilog of :class:`StandaloneLogic`, its module is :data:`TOP`. :class:`~weft.hw.errors.HardwareError` if Yosys
    fails."""
    return TIMESCALE + emit_component(StandaloneLogic(settings), TOP, Multipliers.PLAIN)
