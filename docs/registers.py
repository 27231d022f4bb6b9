"""Writes docs/registers.md, the register map, from weft/hw/registers.py.

python docs/registers.py
"""

from __future__ import annotations

from pathlib import Path

from weft.hw.config import PYNQ
from weft.hw.cycle_class import CycleClass
from weft.hw.isa import ENGINE_NAMES, Engine, Fault
from weft.hw.registers import COUNTER_BITS, REGISTER_BITS, Bits, Control, Kind, Register, Status, class_counter
from weft.hw.relay_plan import RelayControl, RelayRegister, RelayStatus

PAGE = Path(__file__).with_suffix(".md")

_HEAD = f"""# Registers

A driver starts the core by its registers, and reads from them what a run took. This is all that it has to do:

    WINDOW_BASE, WINDOW_SIZE        where the program and its data lie
    PROGRAM_OFFSET, PROGRAM_COUNT   which program in the window, and how many instructions it has
    CONTROL = START                 then wait until STATUS says that it has ended, or for the interrupt
    CYCLES, FAULT_CAUSE             what it took, and what went wrong

Written by `python docs/registers.py` from `weft/hw/registers.py`.

AXI4-Lite, {REGISTER_BITS} bits, 4 KiB. Byte strobes work. Unknown addresses read as 0 and ignore writes. While the
core runs or its bus is busy, only CONTROL and INTERRUPT_ENABLE take a write. The counters, {COUNTER_BITS} bits each,
are stable once the run has ended. A value wider than a register lies in two: the lower half at the first address.
"""


def _registers() -> list[str]:
    lines = ["| address | register | bits | access | meaning |", "|---|---|---:|---|---|"]
    for register in Register:
        if register.word:
            continue
        halves = [other for other in Register if other.signal == register.signal]
        addresses = ", ".join(f"{half:#05x}" for half in halves)
        name = register.name if len(halves) == 1 else f"{register.name}, _HI"
        bits = register.bits or f"`address_bits` ({PYNQ.address_bits})"
        lines.append(f"| {addresses} | {name} | {bits} | {register.kind.access} | {register.meaning} |")
    first = class_counter(Engine(0), CycleClass(0))
    engine = class_counter(Engine(1), CycleClass(0)) - first
    cycle_class = class_counter(Engine(0), CycleClass(1)) - first
    lines.append(
        f"| {first:#05x} + {engine} x engine + {cycle_class} x class, and 4 more | class counters | {COUNTER_BITS} | "
        f"{Kind.COUNTER.access} | cycles of the run in which the engine was in the class |"
    )
    return lines


_RELAY_HEAD = """
## Registers of a relay

A [system](systems.md#cores-that-start-each-other) whose cores start each other has these, beside its cores' windows."""


def _relay() -> list[str]:
    lines = [_RELAY_HEAD, "", "| address | register | bits | access | meaning |", "|---|---|---:|---|---|"]
    for register in RelayRegister:
        if register.word:
            continue
        halves = [other for other in RelayRegister if other.signal == register.signal]
        addresses = ", ".join(f"{half:#06x}" for half in halves) + (" + 4 x core" if register.of_cores else "")
        name = register.name if len(halves) == 1 else f"{register.name}, _HI"
        lines.append(f"| {addresses} | {name} | {register.bits} | {register.kind.access} | {register.meaning} |")
    return lines


def _bits(register: Register | RelayRegister, flags: type[Bits]) -> list[str]:
    lines = ["", f"## {register.name}", "", "| bit | name | meaning |", "|---:|---|---|"]
    return lines + [f"| {flag.bit_length() - 1} | {flag.name} | {flag.meaning} |" for flag in flags]


def _numbers(title: str, names: dict[int, str]) -> list[str]:
    return ["", f"## {title}", "", "| number | name |", "|---:|---|", *(f"| {k} | {v} |" for k, v in names.items())]


def page() -> str:
    """The text of the page."""
    lines = [
        _HEAD,
        *_registers(),
        *_bits(Register.CONTROL, Control),
        *_bits(Register.STATUS, Status),
        *_numbers("Engines", dict(enumerate(ENGINE_NAMES))),
        *_numbers("Causes of faults", {int(cause): cause.name for cause in Fault}),
        *_numbers("Classes of cycles", {each.value: name for name, each in CycleClass.__members__.items()}),
        *_relay(),
        *_bits(RelayRegister.RELAY_CONTROL, RelayControl),
        *_bits(RelayRegister.RELAY_STATUS, RelayStatus),
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
