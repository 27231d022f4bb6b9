"""AXI4-Lite register file of the core, with its counters; :class:`.registers.Register` is the map."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from .axi import RegisterSlaveSignature
from .bus import REGISTER_ADDRESS_BITS, REGISTER_BITS, Response
from .config import ISA_VERSION, CoreConfig
from .cycle_class import CycleClass
from .interfaces import ENGINES
from .isa import ENGINE_BITS, Engine, Fault
from .pipelines import NUMBER_BITS
from .registers import (
    CLASS_COUNTERS,
    COUNTER_BITS,
    COUNTERS,
    MAGIC,
    WINDOW_ALIGNMENT,
    Control,
    Kind,
    Register,
    Status,
    settings_bits,
)


class RegisterFile(wiring.Component):
    """AXI4-Lite slave: one read and one write at a time; unknown addresses read as 0 and ignore writes.

    settings
        As written; while ``locked``, all but the interrupt enable keep their value.
    start, reset, clear_interrupt
        One cycle long.
    status
        Bits of :class:`Status`.
    fault_cause, fault_engine, fault_number
        Fault record.
    count
        Bit for each of :data:`COUNTERS`: add one. ``clear_counters`` sets them to 0.
    class_engine, class_number, class_count
        Combinational read port of the counters per class (:class:`CycleCounters`).
    """

    def __init__(self, config: CoreConfig) -> None:
        self._config = config
        super().__init__(
            {
                "bus": Out(RegisterSlaveSignature()),
                "settings": Out(data.StructLayout(settings_bits(config))),
                "locked": In(1),
                "start": Out(1),
                "reset": Out(1),
                "clear_interrupt": Out(1),
                "status": In(len(Status)),
                "fault_cause": In(Fault),
                "fault_engine": In(ENGINE_BITS),
                "fault_number": In(NUMBER_BITS),
                "count": In(len(COUNTERS)),
                "clear_counters": In(1),
                "class_engine": Out(ENGINE_BITS),
                "class_number": Out(4),
                "class_count": In(COUNTER_BITS),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        counters = [Signal(COUNTER_BITS, name=name) for name in COUNTERS]
        for number, counter in enumerate(counters):
            with m.If(self.clear_counters):
                m.d.sync += counter.eq(0)
            with m.Elif(self.count[number]):
                m.d.sync += counter.eq(counter + 1)
        self._write_side(m)
        self._read_side(m, counters)
        return m

    def _setting(self, register: Register) -> Value:
        """The part of a setting that a register holds."""
        return word_of(getattr(self.settings, register.signal), register.word)

    def _write_side(self, m: Module) -> None:
        bus = self.bus
        address = Signal(REGISTER_ADDRESS_BITS)
        value = Signal(REGISTER_BITS)
        strobe = Signal(REGISTER_BITS // 8)
        has_address, has_value, write = Signal(), Signal(), Signal()
        m.d.comb += [
            bus.awready.eq(~has_address),
            bus.wready.eq(~has_value),
            write.eq(has_address & has_value & (~bus.bvalid | bus.bready)),
            bus.bresp.eq(Response.OKAY),
        ]
        with m.If(bus.awvalid & bus.awready):
            m.d.sync += [address.eq(bus.awaddr), has_address.eq(1)]
        with m.If(bus.wvalid & bus.wready):
            m.d.sync += [value.eq(bus.wdata), strobe.eq(bus.wstrb), has_value.eq(1)]
        with m.If(write):
            m.d.sync += [has_address.eq(0), has_value.eq(0)]
        with m.If(write | bus.bready):
            m.d.sync += bus.bvalid.eq(write)

        def merged(old: Value) -> Value:
            """``old`` with the strobed bytes written."""
            return Cat(
                Mux(strobe[byte], value.word_select(byte, 8), Cat(old, Const(0, REGISTER_BITS)).word_select(byte, 8))
                for byte in range(REGISTER_BITS // 8)
            )

        control = {Control.START: self.start, Control.RESET: self.reset, Control.CLEAR_INTERRUPT: self.clear_interrupt}
        m.d.sync += [pulse.eq(0) for pulse in control.values()]
        low_zero = WINDOW_ALIGNMENT.bit_length() - 1
        with m.If(write), m.Switch(address[2:]):
            with m.Case(Register.CONTROL >> 2):
                m.d.sync += [pulse.eq(value[bit.bit_length() - 1] & strobe[0]) for bit, pulse in control.items()]
            for register in Register:
                if register.kind is not Kind.SETTING or not len(field := self._setting(register)):
                    continue
                with m.Case(register >> 2):
                    if register is Register.INTERRUPT_ENABLE:
                        m.d.sync += field.eq(merged(field))
                    else:
                        first = low_zero if register is Register.WINDOW_BASE_LO else 0
                        with m.If(~self.locked):
                            m.d.sync += field[first:].eq(merged(field)[first:])

    def _read_side(self, m: Module, counters: list[Signal]) -> None:
        bus = self.bus
        signals: dict[str, Value] = {
            "magic": Const(MAGIC, 32),
            "version": Const(ISA_VERSION, 32),
            "hash": Const(self._config.hash64, 64),
            "status": self.status,
            "fault_cause": self.fault_cause,
            "fault_engine": self.fault_engine,
            "fault_number": self.fault_number,
            **dict(zip(COUNTERS, counters, strict=True)),
        }
        values = {
            register: self._setting(register)
            if register.kind is Kind.SETTING
            else word_of(signals[register.signal], register.word)
            for register in Register
            if register.kind is not Kind.COMMAND
        }

        address = Signal(REGISTER_ADDRESS_BITS)
        has_address, read = Signal(), Signal()
        offset = Signal(REGISTER_ADDRESS_BITS)
        m.d.comb += [
            bus.arready.eq(~has_address),
            read.eq(has_address & (~bus.rvalid | bus.rready)),
            bus.rresp.eq(Response.OKAY),
            offset.eq(address - CLASS_COUNTERS),
            self.class_number.eq(offset[3:7]),
            self.class_engine.eq(offset[7:]),
        ]
        with m.If(bus.arvalid & bus.arready):
            m.d.sync += [address.eq(bus.araddr), has_address.eq(1)]
        with m.If(read):
            m.d.sync += [has_address.eq(0), bus.rdata.eq(0)]
            with m.If((address >= CLASS_COUNTERS) & (address < CLASS_COUNTERS + 128 * ENGINES)):
                m.d.sync += bus.rdata.eq(Mux(address[2], self.class_count[32:], self.class_count[:32]))
            with m.Else(), m.Switch(address[2:]):
                for register, value in values.items():
                    with m.Case(register >> 2):
                        m.d.sync += bus.rdata.eq(value)
        with m.If(read | bus.rready):
            m.d.sync += bus.rvalid.eq(read)


def word_of(value: Value, word: int) -> Value:
    """The part of a value that its ``word``-th register shows."""
    return value if len(value) <= REGISTER_BITS and not word else value[REGISTER_BITS * word :][:REGISTER_BITS]


class CycleCounters(wiring.Component):
    """One counter for each engine and class, in distributed RAM: exactly one of each engine's goes up in a cycle.

    count
        Add this cycle to the counters of ``activity``; they show it two cycles later.
    clear
        Set all to 0; must last 16 cycles.
    engine, number, value
        Combinational read.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "activity": In(CycleClass).array(ENGINES),
                "count": In(1),
                "clear": In(1),
                "engine": In(ENGINE_BITS),
                "number": In(4),
                "value": Out(COUNTER_BITS),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        clearing = Signal(4)
        counted = Signal()  # what engines did comes late in the cycle, and a counter is long: it counts a cycle later
        m.d.sync += [clearing.eq(clearing + 1), counted.eq(self.count)]
        for engine in Engine:
            activity = Signal(CycleClass, name=f"{engine.name.lower()}_activity", reset_less=True)
            m.d.sync += activity.eq(self.activity[engine])
            memory = Memory(shape=COUNTER_BITS, depth=16, init=[])
            m.submodules[f"{engine.name.lower()}_classes"] = memory
            write, old = memory.write_port(), memory.read_port(domain="comb")
            outside = memory.read_port(domain="comb")
            m.d.comb += [
                old.addr.eq(activity),
                outside.addr.eq(self.number),
                write.en.eq(counted | self.clear),
                write.addr.eq(Mux(self.clear, clearing, old.addr)),
                write.data.eq(Mux(self.clear, 0, old.data + 1)),
            ]
            with m.If(self.engine == engine):
                m.d.comb += self.value.eq(outside.data)
        return m
