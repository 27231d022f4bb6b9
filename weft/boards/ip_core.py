"""The core, or a system of cores, as a cell of a block design.

A Verilog module with AXI's attributes, and a Tcl that packages it.
"""

from __future__ import annotations

from collections.abc import Iterator

from amaranth.hdl import Shape
from amaranth.lib.wiring import In, Signature

from ..hw.axi import MasterSignature, RegisterSlaveSignature
from ..hw.bus import port_id_bits
from ..hw.config import CoreConfig
from ..hw.register_windows import ADDRESS_BITS
from ..hw.system_config import SystemConfig
from ..hw.verilog import TOP, top_of
from .block_design import CLOCK, CONTROL_BUS, INTERRUPT, MEMORY_BUS, RESET_N, SYSTEM_MEMORY_BUS, memory_bus
from .design import Design
from .hwh import register_bytes, registers_of

MODULE = "weft_core_ip"
"""Name of the module; it holds the module that :func:`~weft.hw.verilog.emit_verilog` writes."""

CORE_FILE, MODULE_FILE = f"{TOP}.v", f"{MODULE}.v"

IP_FOLDER = "ip"
"""Where Vivado puts the packaged core, beside the scripts."""


def module_verilog(held: CoreConfig | SystemConfig) -> str:
    """Verilog around a core or a system: AXI's names, attributes that Vivado infers interfaces from, and AXI's reset.

    The core's reset is active when high, AXI's when low. The core's trace stays open. The interrupts of a system are
    one: it is high while any of them is.
    """
    buses: dict[str, Signature]
    if isinstance(held, CoreConfig):
        core, memory, pin = held, MEMORY_BUS, "interrupt"
        buses = {CONTROL_BUS: RegisterSlaveSignature(), memory: MasterSignature(core)}
        before, interrupt = "", INTERRUPT
    else:
        core, memory, pin = held.cores[0], SYSTEM_MEMORY_BUS, "interrupts"
        master = MasterSignature(core, port_id_bits(len(held.cores)))
        buses = {CONTROL_BUS: RegisterSlaveSignature(ADDRESS_BITS), memory: master}
        last = len(held.cores) + held.relay - 1
        before, interrupt = f"  wire [{last}:0] interrupts;\n  assign {INTERRUPT} = |interrupts;\n", "interrupts"
    clocked = f"ASSOCIATED_BUSIF {CONTROL_BUS}:{memory}, ASSOCIATED_RESET {RESET_N}"
    ports = [
        _wire("input", CLOCK, "clock:1.0", "CLK", clocked),
        _wire("input", RESET_N, "reset:1.0", "RST", "POLARITY ACTIVE_LOW"),
        _wire("output", INTERRUPT, "interrupt:1.0", "INTERRUPT", "SENSITIVITY LEVEL_HIGH"),
    ]
    connections = [f".clk({CLOCK})", f".rst(~{RESET_N})", f".{pin}({interrupt})"]
    for bus, signature in buses.items():
        ports += _bus_ports(bus, signature, _bus_parameters(bus, held))
        connections += [f".{bus}_{name}({bus}_{name})" for name in signature.members]
    text = ",\n".join(ports)
    wires = ",\n    ".join(connections)
    return f"module {MODULE} (\n{text}\n);\n{before}  {top_of(held)} core (\n    {wires}\n  );\nendmodule\n"


def _wire(direction: str, name: str, kind: str, logical: str, parameter: str) -> str:
    info = f'X_INTERFACE_INFO = "xilinx.com:signal:{kind} {name} {logical}"'
    return f'  (* {info}, X_INTERFACE_PARAMETER = "{parameter}" *)\n  {direction} wire {name}'


def _bus_parameters(bus: str, held: CoreConfig | SystemConfig) -> str:
    """What Vivado cannot see from a bus's signals; the converters are made after it."""
    if bus == CONTROL_BUS:
        return "PROTOCOL AXI4LITE"
    cores = (held,) if isinstance(held, CoreConfig) else held.cores
    reads, writes = (sum(getattr(core, f"{kind}_outstanding") for core in cores) for kind in ("read", "write"))
    return (
        f"PROTOCOL AXI4, NUM_READ_OUTSTANDING {reads}, NUM_WRITE_OUTSTANDING {writes}, "
        f"MAX_BURST_LENGTH {max(core.burst_beats for core in cores)}, SUPPORTS_NARROW_BURST 0"
    )


def _bus_ports(bus: str, signature: Signature, parameters: str) -> Iterator[str]:
    """A port with its attributes for each signal of a bus; the first one carries the bus's parameters."""
    for place, (name, member) in enumerate(signature.members.items()):
        info = f'X_INTERFACE_INFO = "xilinx.com:interface:aximm:1.0 {bus} {name.upper()}"'
        if place == 0:
            info += f', X_INTERFACE_PARAMETER = "{parameters}"'
        direction = "input" if member.flow is In else "output"
        width = Shape.cast(member.shape).width
        span = f"[{width - 1}:0] " if width > 1 else ""
        yield f"  (* {info} *)\n  {direction} wire {span}{bus}_{name}"


def package_tcl(design: Design) -> str:
    """Tcl that makes an IP of the two Verilog files in :data:`IP_FOLDER`, with the core's registers described."""
    vendor, library, name, version = design.vlnv.split(":")
    rows = "\n".join(
        f"  {register} 0x{address:03x} {access}" for register, address, access, _, _ in registers_of(design)
    )
    return f"""\
# Packages the core as an IP of this folder. build.tcl runs it.

create_project -force ip_project ip_project -part {design.board.part}
add_files -norecurse {{{CORE_FILE} {MODULE_FILE}}}
set_property top {MODULE} [current_fileset]
update_compile_order -fileset sources_1
ipx::package_project -force -import_files -root_dir {IP_FOLDER} -vendor {vendor} -library {library} -taxonomy /UserIP
set core [ipx::current_core]
set_property name {name} $core
set_property version {version} $core
set_property display_name {{weft {"system" if design.cores else "core"} {design.digits}}} $core

# The buses come from the attributes in {MODULE_FILE}: stop if Vivado has not seen them.
foreach bus {{{CONTROL_BUS} {memory_bus(design)}}} {{
  one "bus $bus" [ipx::get_bus_interfaces -quiet $bus -of_objects $core]
  ipx::associate_bus_interfaces -busif $bus -clock {CLOCK} $core
}}

# The registers; pynq offers them by name.
set map [ipx::get_memory_maps -quiet {CONTROL_BUS} -of_objects $core]
if {{$map eq ""}} {{
  set map [ipx::add_memory_map {CONTROL_BUS} $core]
  set_property slave_memory_map_ref {CONTROL_BUS} [ipx::get_bus_interfaces {CONTROL_BUS} -of_objects $core]
}}
set block [ipx::get_address_blocks -quiet reg0 -of_objects $map]
if {{$block eq ""}} {{ set block [ipx::add_address_block reg0 $map] }}
set_property usage register $block
set_property range {register_bytes(design)} $block
set_property width 32 $block
foreach {{register offset access}} {{
{rows}
}} {{
  set entry [ipx::add_register $register $block]
  set_property address_offset $offset $entry
  set_property size 32 $entry
  set_property access $access $entry
}}

ipx::create_xgui_files $core
ipx::update_checksums $core
ipx::check_integrity $core
ipx::save_core $core
close_project
"""
