"""AXI4-Lite register file of the core; :class:`Register` is the map that drivers, simulators and the manual use."""

from __future__ import annotations

from enum import IntEnum, IntFlag, unique

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from .axi import REGISTER_ADDRESS_BITS, REGISTER_BITS, RegisterSlaveSignature, Response
from .bursts import OFFSET_BITS, WINDOW_BITS
from .config import ISA_VERSION, CoreConfig
from .interfaces import ENGINES, NUMBER_BITS, CycleClass
from .isa import Engine, Fault

MAGIC = int.from_bytes(b"WEFT", "little")

COUNTER_BITS = 48
"""Width of every counter: more than a month at 100 MHz."""

WINDOW_ALIGNMENT = 4096
"""The window's base is a multiple of this; its lower bits are not stored."""

CLASS_COUNTERS = 0x100
"""Address of the counters per engine and :class:`~weft.hw.interfaces.CycleClass`; see :func:`class_counter`."""


@unique
class Register(IntEnum):
    """Byte addresses. ``*_LO``/``*_HI`` are the halves of a 64-bit value."""

    MAGIC = 0x000  # "WEFT"
    VERSION = 0x004  # of the instruction set
    HASH_LO = 0x008  # of the configuration
    HASH_HI = 0x00C
    CONTROL = 0x010  # write-only, see Control
    STATUS = 0x014  # see Status
    INTERRUPT_ENABLE = 0x018  # bit 0
    FAULT_CAUSE = 0x020  # isa.Fault
    FAULT_ENGINE = 0x024  # isa.Engine, or isa.FETCH
    FAULT_NUMBER = 0x028  # of the instruction in its program
    WINDOW_BASE_LO = 0x030  # byte address, a multiple of 4096
    WINDOW_BASE_HI = 0x034
    WINDOW_SIZE_LO = 0x038  # bytes
    WINDOW_SIZE_HI = 0x03C
    PROGRAM_OFFSET = 0x040  # bytes from the window's base, a multiple of 64
    PROGRAM_COUNT = 0x044  # instructions
    WATCHDOG = 0x048  # cycles without progress until the fault; 0: never
    CYCLES_LO = 0x050  # from start to the end of the program
    CYCLES_HI = 0x054
    READ_BEATS_LOAD_LO = 0x058  # bus words read by engine load, and so on
    READ_BEATS_LOAD_HI = 0x05C
    READ_BEATS_LOADW_LO = 0x060
    READ_BEATS_LOADW_HI = 0x064
    READ_BEATS_FETCH_LO = 0x068
    READ_BEATS_FETCH_HI = 0x06C
    WRITE_BEATS_LO = 0x070
    WRITE_BEATS_HI = 0x074


class Control(IntFlag):
    """Bits of CONTROL; each takes effect when written as 1."""

    START = 1 << 0  # run the program; ignored while running and after a fault
    RESET = 1 << 1  # stop, and forget the fault; a start waits until the bus has drained
    CLEAR_INTERRUPT = 1 << 2


class Status(IntFlag):
    """Bits of STATUS."""

    IDLE = 1 << 0  # not running: a start is accepted unless FAULT is set
    RUNNING = 1 << 1
    DONE = 1 << 2  # the last program reached FINISH; until the next start or reset
    FAULT = 1 << 3  # the last program faulted; until the reset
    INTERRUPT = 1 << 4  # done or faulted since the interrupt was cleared
    BUS_BUSY = 1 << 5  # bursts are under way


def class_counter(engine: Engine, cycle_class: CycleClass) -> int:
    """Address of the lower half of a counter; the upper half follows."""
    return CLASS_COUNTERS + 128 * int(engine) + 8 * int(cycle_class.value)


def settings_layout(config: CoreConfig) -> data.StructLayout:
    """What the host sets."""
    return data.StructLayout(
        {
            "interrupt_enable": 1,
            "window_base": config.address_bits,
            "window_size": WINDOW_BITS,
            "program_offset": OFFSET_BITS,
            "program_count": NUMBER_BITS,
            "watchdog": REGISTER_BITS,
        }
    )


COUNTERS = ("cycles", "read_beats_load", "read_beats_loadw", "read_beats_fetch", "write_beats")


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
                "settings": Out(settings_layout(config)),
                "locked": In(1),
                "start": Out(1),
                "reset": Out(1),
                "clear_interrupt": Out(1),
                "status": In(len(Status)),
                "fault_cause": In(Fault),
                "fault_engine": In(3),
                "fault_number": In(NUMBER_BITS),
                "count": In(len(COUNTERS)),
                "clear_counters": In(1),
                "class_engine": Out(3),
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
        settings = self.settings
        low_zero = WINDOW_ALIGNMENT.bit_length() - 1
        stored = {
            Register.WINDOW_BASE_LO: settings.window_base[:32],
            Register.WINDOW_BASE_HI: settings.window_base[32:],
            Register.WINDOW_SIZE_LO: settings.window_size[:32],
            Register.WINDOW_SIZE_HI: settings.window_size[32:],
            Register.PROGRAM_OFFSET: settings.program_offset,
            Register.PROGRAM_COUNT: settings.program_count,
            Register.WATCHDOG: settings.watchdog,
        }
        with m.If(write), m.Switch(address[2:]):
            with m.Case(Register.CONTROL >> 2):
                m.d.sync += [pulse.eq(value[bit.bit_length() - 1] & strobe[0]) for bit, pulse in control.items()]
            with m.Case(Register.INTERRUPT_ENABLE >> 2):
                m.d.sync += settings.interrupt_enable.eq(merged(settings.interrupt_enable))
            for register, field in stored.items():
                if not len(field):
                    continue
                with m.Case(register >> 2), m.If(~self.locked):
                    if register is Register.WINDOW_BASE_LO:
                        m.d.sync += field[low_zero:].eq(merged(field)[low_zero:])
                    else:
                        m.d.sync += field.eq(merged(field))

    def _read_side(self, m: Module, counters: list[Signal]) -> None:
        bus = self.bus
        config = self._config
        settings = self.settings
        values: dict[int, Value] = {
            Register.MAGIC: Const(MAGIC, 32),
            Register.VERSION: Const(ISA_VERSION, 32),
            Register.HASH_LO: Const(config.hash64 & 0xFFFF_FFFF, 32),
            Register.HASH_HI: Const(config.hash64 >> 32, 32),
            Register.STATUS: self.status,
            Register.INTERRUPT_ENABLE: settings.interrupt_enable,
            Register.FAULT_CAUSE: self.fault_cause,
            Register.FAULT_ENGINE: self.fault_engine,
            Register.FAULT_NUMBER: self.fault_number,
            Register.WINDOW_BASE_LO: settings.window_base[:32],
            Register.WINDOW_BASE_HI: settings.window_base[32:],
            Register.WINDOW_SIZE_LO: settings.window_size[:32],
            Register.WINDOW_SIZE_HI: settings.window_size[32:],
            Register.PROGRAM_OFFSET: settings.program_offset,
            Register.PROGRAM_COUNT: settings.program_count,
            Register.WATCHDOG: settings.watchdog,
        }
        for name, counter in zip(COUNTERS, counters, strict=True):
            values[Register[f"{name.upper()}_LO"]] = counter[:32]
            values[Register[f"{name.upper()}_HI"]] = counter[32:]

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


class CycleCounters(wiring.Component):
    """One counter for each engine and class, in distributed RAM: exactly one of each engine's goes up in a cycle.

    count
        Add this cycle to the counters of ``activity``.
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
                "engine": In(3),
                "number": In(4),
                "value": Out(COUNTER_BITS),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        clearing = Signal(4)
        m.d.sync += clearing.eq(clearing + 1)
        for engine in Engine:
            memory = Memory(shape=COUNTER_BITS, depth=16, init=[])
            m.submodules[f"{engine.name.lower()}_classes"] = memory
            write, old = memory.write_port(), memory.read_port(domain="comb")
            outside = memory.read_port(domain="comb")
            m.d.comb += [
                old.addr.eq(self.activity[engine].as_value()),
                outside.addr.eq(self.number),
                write.en.eq(self.count | self.clear),
                write.addr.eq(Mux(self.clear, clearing, old.addr)),
                write.data.eq(Mux(self.clear, 0, old.data + 1)),
            ]
            with m.If(self.engine == engine):
                m.d.comb += self.value.eq(outside.data)
        return m
