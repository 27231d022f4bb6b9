"""The block design as plain data: cells, AXI links, nets and addresses. Vivado's Tcl and the ``.hwh`` are made of it.

::

    ps.control -> control_switch -> core.s_axil
                                 -> interrupts.s_axi
    core.m_axi -> memory_switch  -> ps.memory port
    core.interrupt -> interrupts -> ps.interrupt

Both switches are SmartConnects: they turn AXI4 into what the ports speak (AXI3 on Zynq-7000) and AXI4 into AXI4-Lite.
One clock, from the processing system, drives everything.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from .design import Design
from .ranges import Range

SYSTEM, INTERRUPTS, RESET = "ps", "interrupts", "reset"
CONTROL_SWITCH, MEMORY_SWITCH = "control_switch", "memory_switch"

CLOCK, RESET_N, INTERRUPT = "aclk", "aresetn", "interrupt"
"""Ports of the core's cell besides its buses; the reset is low when active, as AXI wants it."""

CONTROL_BUS, MEMORY_BUS, SYSTEM_MEMORY_BUS = "s_axil", "m_axi", "m0_axi"
"""Buses of the core's cell; the last one of a system's, whose ports have numbers."""


def memory_bus(design: Design) -> str:
    """The bus through which the cell reaches memory."""
    return SYSTEM_MEMORY_BUS if design.cores else MEMORY_BUS


@dataclass(frozen=True, order=True)
class Pin:
    """A pin, a port or an interface of a cell."""

    cell: str
    name: str

    def __str__(self) -> str:
        return f"{self.cell}/{self.name}"


@dataclass(frozen=True)
class Cell:
    """An instance. ``vlnv`` is its type; its version is the one that a ``.hwh`` of ours names, Vivado takes its own."""

    name: str
    vlnv: str
    parameters: Mapping[str, str] = field(default_factory=dict)

    @property
    def vlnv_pattern(self) -> str:
        """Matches the type in any version."""
        return self.vlnv.rpartition(":")[0] + ":*"


@dataclass(frozen=True)
class Link:
    """An AXI connection."""

    master: Pin
    slave: Pin


@dataclass(frozen=True)
class Net:
    """A wire. ``kind`` is ``clk``, ``rst`` or ``intr``."""

    kind: str
    driver: Pin
    sinks: tuple[Pin, ...]


@dataclass(frozen=True)
class Assigned:
    """Addresses at which a master finds a segment of a slave. ``memory``: not registers."""

    master: Pin
    slave: Pin
    segment: str
    addresses: Range
    memory: bool = False


@dataclass(frozen=True)
class BlockDesign:
    """Everything that Vivado's block design holds, in the order in which it is made."""

    cells: tuple[Cell, ...]
    links: tuple[Link, ...]
    nets: tuple[Net, ...]
    addresses: tuple[Assigned, ...]

    def cell(self, name: str) -> Cell:
        return next(cell for cell in self.cells if cell.name == name)


def block_design(design: Design) -> BlockDesign:
    """The block design of a core, or of a system of cores, on a board."""
    system, port = design.system, design.port
    control, memory = Pin(SYSTEM, system.control), Pin(design.cell, memory_bus(design))
    core_registers, interrupt_registers = Pin(design.cell, CONTROL_BUS), Pin(INTERRUPTS, "s_axi")
    memory_port = Pin(SYSTEM, port.name)
    return BlockDesign(
        cells=(
            Cell(SYSTEM, system.vlnv, _system_parameters(design)),
            Cell(design.cell, design.vlnv),
            Cell(RESET, "xilinx.com:ip:proc_sys_reset:5.0"),
            # One output instead of a bus of them; level-sensitive, as the core's interrupt stays until it is cleared.
            Cell(INTERRUPTS, "xilinx.com:ip:axi_intc:4.1", {"C_IRQ_CONNECTION": "1"}),
            Cell(CONTROL_SWITCH, "xilinx.com:ip:smartconnect:1.0", {"NUM_SI": "1", "NUM_MI": "2"}),
            Cell(MEMORY_SWITCH, "xilinx.com:ip:smartconnect:1.0", {"NUM_SI": "1", "NUM_MI": "1"}),
        ),
        links=(
            Link(control, Pin(CONTROL_SWITCH, "S00_AXI")),
            Link(Pin(CONTROL_SWITCH, "M00_AXI"), core_registers),
            Link(Pin(CONTROL_SWITCH, "M01_AXI"), interrupt_registers),
            Link(memory, Pin(MEMORY_SWITCH, "S00_AXI")),
            Link(Pin(MEMORY_SWITCH, "M00_AXI"), memory_port),
        ),
        nets=(
            Net(
                "clk",
                Pin(SYSTEM, system.clock_out),
                (
                    Pin(SYSTEM, system.control_clock_pin),
                    Pin(SYSTEM, port.clock_pin),
                    Pin(design.cell, CLOCK),
                    Pin(RESET, "slowest_sync_clk"),
                    Pin(INTERRUPTS, "s_axi_aclk"),
                    Pin(CONTROL_SWITCH, "aclk"),
                    Pin(MEMORY_SWITCH, "aclk"),
                ),
            ),
            Net("rst", Pin(SYSTEM, system.reset_out), (Pin(RESET, "ext_reset_in"),)),
            Net(
                "rst",
                Pin(RESET, "peripheral_aresetn"),
                (
                    Pin(design.cell, RESET_N),
                    Pin(INTERRUPTS, "s_axi_aresetn"),
                    Pin(CONTROL_SWITCH, "aresetn"),
                    Pin(MEMORY_SWITCH, "aresetn"),
                ),
            ),
            Net("intr", Pin(design.cell, INTERRUPT), (Pin(INTERRUPTS, "intr"),)),
            Net("intr", Pin(INTERRUPTS, "irq"), (Pin(SYSTEM, system.interrupt_in),)),
        ),
        addresses=(
            Assigned(control, core_registers, "reg0", design.control),
            Assigned(control, interrupt_registers, "Reg", design.interrupts),
            *(Assigned(memory, memory_port, segment.name, segment.addresses, memory=True) for segment in design.memory),
        ),
    )


def _system_parameters(design: Design) -> dict[str, str]:
    """Parameters of the processing system: control port, interrupt, clock and the one memory port."""
    system, port, clock = design.system, design.port, design.clock
    return {
        **system.parameters,
        **system.wanted_clock(clock.pll, clock.asked_mhz),
        port.use_parameter: "1",
        port.width_parameter: str(design.port_bits),
    }
