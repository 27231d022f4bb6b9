"""Writes a design's ``.hwh`` as pynq reads it: for virtual boards and tests.

A real board gets the file that Vivado exports beside the ``.bit``. This one has what pynq's parser asks for: cells,
buses, addresses, clocks, interrupts and the core's registers.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntFlag
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

from ..hw.bus import PAGE_BYTES
from ..hw.cycle_class import CycleClass
from ..hw.isa import Engine
from ..hw.register_windows import GROUP_MEMBERS, GROUP_WINDOW, SHARED_START, SHARED_STOP, WINDOW_BYTES
from ..hw.registers import Control, Kind, Register, Status, class_counter
from ..hw.relay_plan import RelayControl, RelayRegister, RelayStatus
from .block_design import CONTROL_BUS, INTERRUPTS, SYSTEM, Assigned, BlockDesign, Cell, block_design
from .design import NAME, REGISTER_SPACE, Design

AXI = "xilinx.com:interface:aximm:1.0"

_FIELDS: dict[Register, type[IntFlag]] = {Register.CONTROL: Control, Register.STATUS: Status}
_ACCESS = {"read": "read-only", "write": "write-only", "read, write": "read-write"}


def hwh_text(design: Design) -> str:
    """The XML text of a ``.hwh``."""
    blocks = block_design(design)
    root = Element("EDKSYSTEM", EDWVERSION="1.2", VIVADOVERSION=design.board.software.vivado)
    SubElement(root, "SYSTEMINFO", ARCH=design.system.architecture, DEVICE=design.board.part, NAME=NAME)
    SubElement(root, "EXTERNALPORTS")
    SubElement(root, "EXTERNALINTERFACES")
    modules = SubElement(root, "MODULES")
    for cell in blocks.cells:
        _add_module(modules, cell, blocks, design)
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _add_module(modules: Element, cell: Cell, blocks: BlockDesign, design: Design) -> None:
    _, _, kind, version = cell.vlnv.split(":")
    module = SubElement(
        modules, "MODULE",
        FULLNAME=f"/{cell.name}", HWVERSION=version, INSTANCE=cell.name,
        MODTYPE=design.system.modtype if cell.name == SYSTEM else kind, VLNV=cell.vlnv,
    )  # fmt: skip
    if cell.name == design.cell:
        _add_registers(module, design)
    parameters = SubElement(module, "PARAMETERS")
    for name, value in _parameters(cell, design).items():
        SubElement(parameters, "PARAMETER", NAME=name, VALUE=value)
    _add_ports(module, cell.name, blocks)
    _add_buses(module, cell.name, blocks)
    _add_memory_map(module, cell.name, blocks)


def _parameters(cell: Cell, design: Design) -> dict[str, str]:
    """A cell's parameters; the processing system's with all four clocks, of which the first one runs."""
    parameters = dict(cell.parameters)
    for slave, addresses in {design.cell: design.control, INTERRUPTS: design.interrupts}.items():
        if cell.name == slave:
            parameters |= {"C_BASEADDR": f"{addresses.base:#010x}", "C_HIGHADDR": f"{addresses.last:#010x}"}
    if cell.name == SYSTEM:
        clock, system = design.clock, design.system
        for number in range(4):
            stated = system.clock_parameters(number, clock.pll, clock.divisors, clock.mhz)
            if number:
                stated |= {name: "0" for name in stated if name.endswith("_ENABLE")}
            parameters |= stated
    return parameters


def _add_ports(module: Element, cell: str, blocks: BlockDesign) -> None:
    """The single wires of a cell, each with all that it is connected to."""
    ports = SubElement(module, "PORTS")
    for net in blocks.nets:
        for pin in (net.driver, *net.sinks):
            if pin.cell != cell:
                continue
            direction = "O" if pin == net.driver else "I"
            signal = "INTERRUPT" if net.kind == "intr" else net.kind
            port = SubElement(ports, "PORT", DIR=direction, NAME=pin.name, SIGIS=signal)
            connections = SubElement(port, "CONNECTIONS")
            for other in net.sinks if pin == net.driver else (net.driver,):
                SubElement(connections, "CONNECTION", INSTANCE=other.cell, PORT=other.name)


def _add_buses(module: Element, cell: str, blocks: BlockDesign) -> None:
    buses = SubElement(module, "BUSINTERFACES")
    for number, link in enumerate(blocks.links):
        for pin, kind in ((link.master, "MASTER"), (link.slave, "SLAVE")):
            if pin.cell == cell:
                SubElement(buses, "BUSINTERFACE", BUSNAME=f"bus_{number}", NAME=pin.name, TYPE=kind, VLNV=AXI)


def _add_memory_map(module: Element, cell: str, blocks: BlockDesign) -> None:
    ranges = [assigned for assigned in blocks.addresses if assigned.master.cell == cell]
    if ranges:
        memory_map = SubElement(module, "MEMORYMAP")
        for assigned in ranges:
            SubElement(memory_map, "MEMRANGE", _memory_range(assigned))


def _memory_range(assigned: Assigned) -> dict[str, str]:
    return {
        "ADDRESSBLOCK": assigned.segment,
        "BASEVALUE": f"0x{assigned.addresses.base:08X}",
        "HIGHVALUE": f"0x{assigned.addresses.last:08X}",
        "INSTANCE": assigned.slave.cell,
        "MASTERBUSINTERFACE": assigned.master.name,
        "MEMTYPE": "MEMORY" if assigned.memory else "REGISTER",
        "SLAVEBUSINTERFACE": assigned.slave.name,
    }


Described = tuple[str, int, str, str, "type[IntFlag] | None"]
"""A register: name, byte address, access, meaning, and its bits where they have names."""


def registers_of(design: Design) -> Iterator[Described]:
    """Every register of what is in the logic. Of a system those of core 1 begin with ``CORE_1_``."""
    if design.cores is None:
        yield from registers()
        return
    for core in range(len(design.cores.cores)):
        for name, address, access, meaning, bits in registers():
            yield f"CORE_{core}_{name}", core * WINDOW_BYTES + address, access, meaning, bits
    control = GROUP_WINDOW + Register.CONTROL
    yield "GROUP_CONTROL", control, _ACCESS[Register.CONTROL.kind.access], "CONTROL of all cores of the group", Control
    yield "GROUP_MEMBERS", GROUP_MEMBERS, "read-write", "a bit for each core of the group", None
    if design.cores.shared_reads:
        yield "SHARED_START", SHARED_START, "read-write", "first page whose reads of weights cores share", None
        yield "SHARED_STOP", SHARED_STOP, "read-write", "first page behind them", None
    if design.cores.relay:
        yield from _relay_registers(len(design.cores.cores))


def _relay_registers(cores: int) -> Iterator[Described]:
    fields: dict[RelayRegister, type[IntFlag]] = {
        RelayRegister.RELAY_CONTROL: RelayControl,
        RelayRegister.RELAY_STATUS: RelayStatus,
    }
    for register in RelayRegister:
        meaning = register.meaning or f"upper half of {register.name.removesuffix('_HI')}_LO"
        for core in range(cores if register.of_cores else 1):
            name = f"{register.name}_{core}" if register.of_cores else register.name
            yield name, register + 4 * core, _ACCESS[register.kind.access], meaning, fields.get(register)


def registers() -> Iterator[Described]:
    """Every register of a core."""
    for register in Register:
        meaning = register.meaning or f"upper half of {register.name.removesuffix('_HI')}_LO"
        yield register.name, int(register), _ACCESS[register.kind.access], meaning, _FIELDS.get(register)
    for engine in Engine:
        for kind, cycle_class in CycleClass.__members__.items():
            address = class_counter(engine, cycle_class)
            name = f"{engine.name}_{kind}"
            meaning = f"cycles of engine {engine.name.lower()} in class {kind}"
            yield f"{name}_LO", address, _ACCESS[Kind.COUNTER.access], meaning, None
            yield f"{name}_HI", address + 4, _ACCESS[Kind.COUNTER.access], f"upper half of {name}_LO", None


def register_bytes(design: Design) -> int:
    """Addresses of all registers of what is in the logic."""
    return REGISTER_SPACE if design.cores else PAGE_BYTES


def _add_registers(module: Element, design: Design) -> None:
    blocks = SubElement(module, "ADDRESSBLOCKS")
    block = SubElement(
        blocks, "ADDRESSBLOCK",
        ACCESS="read-write", INTERFACE=CONTROL_BUS, NAME="reg0", RANGE=str(register_bytes(design)), USAGE="register",
    )  # fmt: skip
    table = SubElement(block, "REGISTERS")
    for name, address, access, meaning, bits in registers_of(design):
        entry = SubElement(table, "REGISTER", NAME=name)
        _add_properties(
            entry, DESCRIPTION=meaning, ADDRESS_OFFSET=hex(address), SIZE="32", ACCESS=access, IS_ENABLED="true"
        )
        if bits is not None:
            named = SubElement(entry, "FIELDS")
            for bit in bits:
                place = str(int(bit).bit_length() - 1)
                one = SubElement(named, "FIELD", NAME=str(bit.name))
                _add_properties(one, BIT_OFFSET=place, BIT_WIDTH="1", ACCESS=access, DESCRIPTION=_meaning(bit))


def _meaning(bit: IntFlag) -> str:
    return str(getattr(bit, "meaning", ""))


def _add_properties(element: Element, **properties: str) -> None:
    for name, value in properties.items():
        SubElement(element, "PROPERTY", NAME=name, VALUE=value)
