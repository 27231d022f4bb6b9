"""The Tcl that builds a design with Vivado in batch mode. It is plain, so that the risk lies in names and data.

Nothing is taken from a running Vivado but versions of cells; every object that a name stands for must exist. The
script stops at the first thing that is not as it should be; only a design that meets its timing is exported.
"""

from __future__ import annotations

from .block_design import SYSTEM, Assigned, BlockDesign, Cell, Pin, block_design, memory_bus
from .design import NAME, Design
from .ip_core import IP_FOLDER

PROJECT, REPORTS, OVERLAY, PLATFORM = "project", "reports", "overlay", "platform"
"""Folders that the script makes beside itself."""

SCRIPT, PACKAGE_SCRIPT = "build.tcl", "package_ip.tcl"

UTILISATION, TIMING = "utilisation.txt", "timing.txt"
"""Reports, in the folder :data:`REPORTS`."""

BUILT = "built.json"
"""What Vivado reached, in the folder :data:`OVERLAY`; it is written last."""

CLOCK_TOLERANCE = 0.001
"""Relative difference of clocks that only comes from rounding."""


def build_tcl(design: Design) -> str:
    """The script for ``vivado -mode batch -source build.tcl``; all its paths are relative to its folder."""
    blocks = block_design(design)
    sections = [
        _head(design),
        _project(design),
        _cells(design, blocks),
        _connections(blocks),
        _addresses(design, blocks),
        _run(),
        _export(design),
    ]
    return "\n".join(sections)


def _head(design: Design) -> str:
    board = design.board
    return f"""\
# Builds {design.held.name} for {board.title} ({board.part}): vivado -mode batch -source {SCRIPT}
# Design {design.hash}

cd [file dirname [info script]]
set jobs 4
file mkdir {OVERLAY} {REPORTS} {PLATFORM}
file delete {OVERLAY}/{NAME}.bit {OVERLAY}/{NAME}.hwh {OVERLAY}/{BUILT}

proc stop {{text}} {{ error "weft: $text" }}

# A name that matches nothing gives an empty list in Vivado, and nothing happens: stop instead.
proc one {{what found}} {{
  if {{[llength $found] != 1}} {{ stop "$what: [llength $found] found, expected one" }}
  return $found
}}
proc cell {{name}} {{ return [one "cell $name" [get_bd_cells -quiet $name]] }}
proc pin {{name}} {{ return [one "pin $name" [get_bd_pins -quiet $name]] }}
proc bus {{name}} {{ return [one "interface $name" [get_bd_intf_pins -quiet $name]] }}
proc space {{name}} {{ return [one "address space $name" [get_bd_addr_spaces -quiet $name]] }}
proc segment {{name}} {{ return [one "address segment $name" [get_bd_addr_segs -quiet $name]] }}
proc newest {{kind}} {{
  set found [lsort -dictionary [get_ipdefs -quiet $kind]]
  if {{[llength $found] == 0}} {{ stop "this Vivado has no $kind" }}
  return [lindex $found end]
}}

# Other versions than this one may do: each looks up its own cells.
if {{![string match {board.software.vivado}* [version -short]]}} {{
  puts "weft: WARNING: Vivado [version -short]; overlays of this board's image come from {board.software.vivado}"
}}
"""


def _project(design: Design) -> str:
    board = design.board
    pattern = board.board_part.rpartition(":")[0] + ":*"
    return f"""\
# 1. The core as an IP, and a project that knows it.
source {PACKAGE_SCRIPT}
create_project -force {NAME} {PROJECT} -part {board.part}
set board_part [lindex [lsort -dictionary [get_board_parts -quiet {pattern}]] end]
if {{$board_part eq ""}} {{
  # The SD card's first stage sets up memory and pins, so a bit file of the bare part works, too.
  puts "weft: WARNING: Vivado has no board files {pattern}; building for the bare part {board.part}"
}} else {{
  set_property board_part $board_part [current_project]
}}
set_property ip_repo_paths {IP_FOLDER} [current_project]
update_ip_catalog
"""


def _cells(design: Design, blocks: BlockDesign) -> str:
    lines = ["# 2. The block design's cells.", f"create_bd_design {NAME}"]
    for cell in blocks.cells:
        lines.append(f"create_bd_cell -type ip -vlnv [newest {cell.vlnv_pattern}] {cell.name}")
        if cell.name == SYSTEM:
            lines.append(_preset(design))
        if cell.parameters:
            lines.append(_set_parameters(cell))
    wanted = f"{design.clock.mhz:.6f}"
    lines.append(f"""
# A PLL and two dividers make the clock: timing is checked for the rate that Vivado reached with them.
set mhz [get_property CONFIG.{design.system.achieved_parameter} [cell {SYSTEM}]]
if {{abs($mhz - {wanted}) > {CLOCK_TOLERANCE} * {wanted}}} {{
  stop "the clock is $mhz MHz, but {wanted} were planned: is the PLL's rate right in the board's file?"
}}
""")
    return "\n".join(lines)


def _preset(design: Design) -> str:
    """Settings of the board for memory and pins, where Vivado has them; pins of the part become ports."""
    system = design.system
    rule = f"xilinx.com:bd_rule:{system.modtype}"
    external = f'make_external "{", ".join(system.external)}" ' if system.external else ""
    external += 'Master "Disable" Slave "Disable" ' if system.external else ""  # no triggers between the processors
    return f"""\
if {{$board_part eq ""}} {{
  apply_bd_automation -rule {rule} -config {{{external}apply_board_preset "0"}} [cell {SYSTEM}]
}} else {{
  apply_bd_automation -rule {rule} -config {{{external}apply_board_preset "1"}} [cell {SYSTEM}]
}}"""


def _set_parameters(cell: Cell) -> str:
    pairs = " \\\n".join(f"  CONFIG.{name} {{{value}}}" for name, value in cell.parameters.items())
    return f"set_property -dict [list \\\n{pairs} \\\n] [cell {cell.name}]"


def _connections(blocks: BlockDesign) -> str:
    lines = ["# 3. Connections."]
    lines += [f"connect_bd_intf_net [bus {link.master}] [bus {link.slave}]" for link in blocks.links]
    for net in blocks.nets:
        pins = [f"[pin {pin}]" for pin in (net.driver, *net.sinks)]
        lines.append("connect_bd_net " + " \\\n  ".join(pins))
    return "\n".join([*lines, ""])


def _addresses(design: Design, blocks: BlockDesign) -> str:
    lines = ["# 4. Addresses. What else the port reaches is no memory for the core."]
    for each in blocks.addresses:
        space = f"{SYSTEM}/Data" if each.master.cell == SYSTEM else str(each.master)
        lines.append(
            f"assign_bd_address -force -offset {each.addresses.base:#x} -range {each.addresses.bytes:#x} "
            f"-target_address_space [space {space}] [segment {_segment(design, each)}]"
        )
    port = design.port
    used = [segment.name for segment in design.memory]
    others = [name for name in (*port.segments, *port.not_memory) if name not in used]
    if others:
        names = " ".join(f"{SYSTEM}/{port.segment_owner}/{name}" for name in others)
        lines += [
            f"foreach other {{{names}}} {{",
            "  foreach found [get_bd_addr_segs -quiet $other] {",
            f"    exclude_bd_addr_seg -target_address_space [space {Pin(design.cell, memory_bus(design))}] $found",
            "  }",
            "}",
        ]
    return "\n".join([*lines, ""])


def _segment(design: Design, each: Assigned) -> str:
    """Vivado's name of a slave's segment: capitals for the interrupt controller, other words for memory ports."""
    if each.memory:
        return f"{SYSTEM}/{design.port.segment_owner}/{each.segment}"
    bus = each.slave.name if each.slave.cell == design.cell else each.slave.name.upper()
    return f"{each.slave.cell}/{bus}/{each.segment}"


def _run() -> str:
    return f"""\
# 5. Check, then build. The processing system constrains its clock itself; the design has no pins of its own.
validate_bd_design
save_bd_design
set wrapper [make_wrapper -top -files [one "block design" [get_files -quiet {NAME}.bd]]]
add_files -norecurse $wrapper
set_property top {NAME}_wrapper [current_fileset]
update_compile_order -fileset sources_1
set_property strategy Performance_Explore [get_runs impl_1]

proc finish {{run}} {{
  wait_on_run $run
  set progress [get_property PROGRESS [get_runs $run]]
  if {{$progress ne "100%"}} {{
    stop "$run ended at $progress ([get_property STATUS [get_runs $run]]): see {PROJECT}/{NAME}.runs/$run/runme.log"
  }}
}}
launch_runs synth_1 -jobs $jobs
finish synth_1
launch_runs impl_1 -to_step write_bitstream -jobs $jobs
finish impl_1
"""


def _export(design: Design) -> str:
    return f"""\
# 6. Reports, whatever the timing; the overlay only if every path is fast enough.
open_run impl_1
report_utilization -hierarchical -file {REPORTS}/{UTILISATION}
report_timing_summary -file {REPORTS}/{TIMING}
set wns [get_property STATS.WNS [get_runs impl_1]]
set whs [get_property STATS.WHS [get_runs impl_1]]
if {{![string is double -strict $wns] || ![string is double -strict $whs]}} {{
  stop "no timing was reported (setup '$wns', hold '$whs'): see {REPORTS}/{TIMING}"
}}
if {{$wns < 0}} {{
  stop "too slow by $wns ns at $mhz MHz: see {REPORTS}/{TIMING}; build again with a lower --clock"
}}
if {{$whs < 0}} {{ stop "a path is too fast by $whs ns: see {REPORTS}/{TIMING}" }}

# The .xsa must not lie beside the .bit under the same name: pynq would take it and fail.
write_hw_platform -fixed -include_bit -force {PLATFORM}/platform.xsa
set hwh [glob -nocomplain {PROJECT}/{NAME}.gen/sources_1/bd/{NAME}/hw_handoff/{NAME}.hwh \\
  {PROJECT}/{NAME}.srcs/sources_1/bd/{NAME}/hw_handoff/{NAME}.hwh]
file copy -force {PROJECT}/{NAME}.runs/impl_1/{NAME}_wrapper.bit {OVERLAY}/{NAME}.bit
file copy -force [one "hardware description" $hwh] {OVERLAY}/{NAME}.hwh
set built [open {OVERLAY}/{BUILT} w]
puts $built "{{\\"design\\": \\"{design.hash}\\", \\"vivado\\": \\"[version -short]\\","
puts $built " \\"mhz\\": $mhz, \\"setup_slack_ns\\": $wns, \\"hold_slack_ns\\": $whs}}"
close $built
puts "weft: built {OVERLAY}/{NAME}.bit, $mhz MHz, $wns ns to spare"
"""
