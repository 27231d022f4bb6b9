"""The registers of a core, as drivers, simulators and the manual see them; :mod:`.register_file` is made from this.

``python docs/registers.py`` writes the manual's page.
"""

from __future__ import annotations

from enum import Enum, IntEnum, IntFlag, unique
from typing import Self

from .bus import OFFSET_BITS, PAGE_BYTES, REGISTER_BITS, WINDOW_BITS
from .config import CoreConfig
from .cycle_class import CycleClass
from .isa import ENGINE_BITS, Engine, Fault
from .pipelines import NUMBER_BITS

MAGIC = int.from_bytes(b"WEFT", "little")

COUNTER_BITS = 48
"""Width of every counter: more than a month at 100 MHz."""

WINDOW_ALIGNMENT = PAGE_BYTES
"""The window's base is a multiple of this; its lower bits are not stored."""

CLASS_COUNTERS = 0x100
"""Address of the counters per engine and :class:`~weft.hw.interfaces.CycleClass`; see :func:`class_counter`."""


class Bits(IntFlag):
    """Bits of a register, each with its meaning."""

    meaning: str

    def __new__(cls, value: int, meaning: str = "") -> Self:
        member = int.__new__(cls, value)
        member._value_ = value
        member.meaning = meaning
        return member


class Control(Bits):
    """Bits of CONTROL; each takes effect when written as 1."""

    START = 1 << 0, "run the program; ignored while running and after a fault"
    RESET = 1 << 1, "stop, and forget the fault; a start waits until the bus has drained"
    CLEAR_INTERRUPT = 1 << 2, "lower the interrupt"


class Status(Bits):
    """Bits of STATUS."""

    IDLE = 1 << 0, "not running: a start is accepted unless FAULT is set"
    RUNNING = 1 << 1, "a program runs, or its start is pending"
    DONE = 1 << 2, "the last program reached FINISH; until the next start or reset"
    FAULT = 1 << 3, "the last program faulted; until the reset"
    INTERRUPT = 1 << 4, "done or faulted since the interrupt was cleared"
    BUS_BUSY = 1 << 5, "bursts are under way"


@unique
class Kind(Enum):
    """Who changes a register."""

    CONSTANT = "constant"
    STATE = "state"  # the core
    COUNTER = "counter"  # the core, one bit of ``RegisterFile.count`` for each
    COMMAND = "command"  # nobody: writing it makes the core do something
    SETTING = "setting"  # the host

    @property
    def access(self) -> str:
        """What the host can do with it."""
        return {Kind.COMMAND: "write", Kind.SETTING: "read, write"}.get(self, "read")


@unique
class Register(IntEnum):
    """Each register: its byte address, its kind, the signal behind it, bits of that, and what it means.

    ``*_HI`` is the upper half of the signal of the register before it (``word`` 1). A signal without a number of bits
    is as wide as a bus address.
    """

    kind: Kind
    signal: str
    bits: int | None
    meaning: str
    word: int

    def __new__(
        cls, address: int, kind: Kind, signal: str, bits: int | None, meaning: str = "", word: int = 0
    ) -> Register:
        member = int.__new__(cls, address)
        member._value_ = address
        member.kind, member.signal, member.bits, member.meaning, member.word = kind, signal, bits, meaning, word
        return member

    MAGIC = 0x000, Kind.CONSTANT, "magic", 32, f"`WEFT`, {MAGIC:#x}"
    VERSION = 0x004, Kind.CONSTANT, "version", 32, "version of the instruction set (`ISA_VERSION`)"
    HASH_LO = 0x008, Kind.CONSTANT, "hash", 64, "hash of the configuration (`CoreConfig.hash64`)"
    HASH_HI = 0x00C, Kind.CONSTANT, "hash", 64, "", 1
    CONTROL = 0x010, Kind.COMMAND, "control", len(Control), "bits of `Control`; each acts when written as 1"
    STATUS = 0x014, Kind.STATE, "status", len(Status), "bits of `Status`"
    INTERRUPT_ENABLE = 0x018, Kind.SETTING, "interrupt_enable", 1, "1: the core raises its interrupt"
    FAULT_CAUSE = 0x020, Kind.STATE, "fault_cause", max(Fault).bit_length(), "`isa.Fault`; 0 without a fault"
    FAULT_ENGINE = 0x024, Kind.STATE, "fault_engine", ENGINE_BITS, "`isa.Engine`, or `isa.FETCH`"
    FAULT_NUMBER = 0x028, Kind.STATE, "fault_number", NUMBER_BITS, "number of the instruction in its program"
    WINDOW_BASE_LO = 0x030, Kind.SETTING, "window_base", None, f"bus address; multiple of {WINDOW_ALIGNMENT}"
    WINDOW_BASE_HI = 0x034, Kind.SETTING, "window_base", None, "", 1
    WINDOW_SIZE_LO = 0x038, Kind.SETTING, "window_size", WINDOW_BITS, "bytes of the window, at most 4 GiB"
    WINDOW_SIZE_HI = 0x03C, Kind.SETTING, "window_size", WINDOW_BITS, "", 1
    PROGRAM_OFFSET = 0x040, Kind.SETTING, "program_offset", OFFSET_BITS, "bytes from the window's base, multiple of 64"
    PROGRAM_COUNT = 0x044, Kind.SETTING, "program_count", NUMBER_BITS, "instructions of the program"
    WATCHDOG = 0x048, Kind.SETTING, "watchdog", REGISTER_BITS, "cycles without progress until it faults; 0: never"
    CYCLES_LO = 0x050, Kind.COUNTER, "cycles", COUNTER_BITS, "cycles of the run: of the last one, or so far"
    CYCLES_HI = 0x054, Kind.COUNTER, "cycles", COUNTER_BITS, "", 1
    READ_BEATS_LOAD_LO = 0x058, Kind.COUNTER, "read_beats_load", COUNTER_BITS, "bus words read by engine load"
    READ_BEATS_LOAD_HI = 0x05C, Kind.COUNTER, "read_beats_load", COUNTER_BITS, "", 1
    READ_BEATS_LOADW_LO = 0x060, Kind.COUNTER, "read_beats_loadw", COUNTER_BITS, "bus words read by engine loadw"
    READ_BEATS_LOADW_HI = 0x064, Kind.COUNTER, "read_beats_loadw", COUNTER_BITS, "", 1
    READ_BEATS_FETCH_LO = 0x068, Kind.COUNTER, "read_beats_fetch", COUNTER_BITS, "bus words read by fetch"
    READ_BEATS_FETCH_HI = 0x06C, Kind.COUNTER, "read_beats_fetch", COUNTER_BITS, "", 1
    WRITE_BEATS_LO = 0x070, Kind.COUNTER, "write_beats", COUNTER_BITS, "bus words written"
    WRITE_BEATS_HI = 0x074, Kind.COUNTER, "write_beats", COUNTER_BITS, "", 1


COUNTERS = tuple(dict.fromkeys(register.signal for register in Register if register.kind is Kind.COUNTER))
"""Signals that count, in the order of their addresses."""


def class_counter(engine: Engine, cycle_class: CycleClass) -> int:
    """Address of the lower half of a counter; the upper half follows."""
    return CLASS_COUNTERS + 128 * int(engine) + 8 * int(cycle_class.value)


def settings_bits(config: CoreConfig) -> dict[str, int]:
    """Signals that the host sets, and their widths."""
    return {
        register.signal: config.address_bits if register.bits is None else register.bits
        for register in Register
        if register.kind is Kind.SETTING
    }
