"""A Tcl interpreter in which Vivado's commands are recorded instead of run, and what its cells look like.

The commands answer as Vivado would for objects that exist: a cell that was made, a pin that its type has. Pins and
segments of each type are written down here from the vendor's manuals, apart from what the package knows of them.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pytest

CALL, WORD = "\x1e", "\x1f"


@dataclass(frozen=True)
class CellType:
    """Buses (with the clock pin of each), input wires that must be driven, other wires; address segments."""

    buses: Mapping[str, str]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    others: tuple[str, ...] = ()
    segments: tuple[str, ...] = ()
    spaces: tuple[str, ...] = ()


def _ports(count: int, clock: str, pattern: str) -> dict[str, str]:
    return {pattern.format(number): clock.format(number) for number in range(count)}


TYPES: dict[str, CellType] = {
    "xilinx.com:ip:processing_system7": CellType(
        buses={"M_AXI_GP0": "M_AXI_GP0_ACLK", "M_AXI_GP1": "M_AXI_GP1_ACLK"}
        | _ports(4, "S_AXI_HP{}_ACLK", "S_AXI_HP{}"),
        inputs=("IRQ_F2P",),
        outputs=("FCLK_CLK0", "FCLK_CLK1", "FCLK_RESET0_N"),
        segments=tuple(f"S_AXI_HP{number}/HP{number}_DDR_LOWOCM" for number in range(4)),
        spaces=("Data",),
    ),
    "xilinx.com:ip:zynq_ultra_ps_e": CellType(
        buses={"M_AXI_HPM0_FPD": "maxihpm0_fpd_aclk", "M_AXI_HPM1_FPD": "maxihpm1_fpd_aclk"}
        | _ports(4, "saxihp{}_fpd_aclk", "S_AXI_HP{}_FPD"),
        inputs=("pl_ps_irq0",),
        outputs=("pl_clk0", "pl_clk1", "pl_resetn0"),
        segments=tuple(
            f"SAXIGP{number + 2}/HP{number}_{name}"
            for number in range(4)
            for name in ("DDR_LOW", "DDR_HIGH", "LPS_OCM", "QSPI")
        ),
        spaces=("Data",),
    ),
    "weft:hw:weft_core": CellType(
        buses={"s_axil": "aclk", "m_axi": "aclk"},
        inputs=("aclk", "aresetn"),
        outputs=("interrupt",),
        segments=("s_axil/reg0",),
        spaces=("m_axi",),
    ),
    "weft:hw:weft_system": CellType(
        buses={"s_axil": "aclk", "m0_axi": "aclk"},
        inputs=("aclk", "aresetn"),
        outputs=("interrupt",),
        segments=("s_axil/reg0",),
        spaces=("m0_axi",),
    ),
    "xilinx.com:ip:proc_sys_reset": CellType(
        buses={},
        inputs=("slowest_sync_clk", "ext_reset_in"),
        outputs=("peripheral_aresetn", "interconnect_aresetn", "peripheral_reset", "mb_reset", "bus_struct_reset"),
        others=("aux_reset_in", "mb_debug_sys_rst", "dcm_locked"),
    ),
    "xilinx.com:ip:axi_intc": CellType(
        buses={"s_axi": "s_axi_aclk"},
        inputs=("s_axi_aclk", "s_axi_aresetn", "intr"),
        outputs=("irq",),
        segments=("S_AXI/Reg",),
    ),
    "xilinx.com:ip:smartconnect": CellType(
        buses=_ports(4, "aclk", "S{:02}_AXI") | _ports(4, "aclk", "M{:02}_AXI"),
        inputs=("aclk", "aresetn"),
        outputs=(),
    ),
}

COMMANDS: Mapping[str, tuple[str, ...]] = {
    "add_files": ("-norecurse",),
    "apply_bd_automation": ("-rule", "-config"),
    "assign_bd_address": ("-force", "-offset", "-range", "-target_address_space"),
    "close_project": (),
    "connect_bd_intf_net": (),
    "connect_bd_net": (),
    "create_bd_cell": ("-type", "-vlnv"),
    "create_bd_design": (),
    "create_project": ("-force", "-part"),
    "current_fileset": (),
    "current_project": (),
    "exclude_bd_addr_seg": ("-target_address_space",),
    "get_bd_addr_segs": ("-quiet",),
    "get_bd_addr_spaces": ("-quiet",),
    "get_bd_cells": ("-quiet",),
    "get_bd_intf_pins": ("-quiet",),
    "get_bd_pins": ("-quiet",),
    "get_board_parts": ("-quiet",),
    "get_files": ("-quiet",),
    "get_ipdefs": ("-quiet",),
    "get_property": (),
    "get_runs": (),
    "ipx::add_address_block": (),
    "ipx::add_memory_map": (),
    "ipx::add_register": (),
    "ipx::associate_bus_interfaces": ("-busif", "-clock"),
    "ipx::check_integrity": (),
    "ipx::create_xgui_files": (),
    "ipx::current_core": (),
    "ipx::get_address_blocks": ("-quiet", "-of_objects"),
    "ipx::get_bus_interfaces": ("-quiet", "-of_objects"),
    "ipx::get_memory_maps": ("-quiet", "-of_objects"),
    "ipx::package_project": ("-force", "-import_files", "-root_dir", "-vendor", "-library", "-taxonomy"),
    "ipx::save_core": (),
    "ipx::update_checksums": (),
    "launch_runs": ("-jobs", "-to_step"),
    "make_wrapper": ("-top", "-files"),
    "open_run": (),
    "report_timing_summary": ("-file",),
    "report_utilization": ("-hierarchical", "-file"),
    "save_bd_design": (),
    "set_property": ("-dict",),
    "update_compile_order": ("-fileset",),
    "update_ip_catalog": (),
    "validate_bd_design": (),
    "version": ("-short",),
    "wait_on_run": (),
    "write_hw_platform": ("-fixed", "-include_bit", "-force"),
    # Tcl's own that touch files, which the interpreter must not do.
    "cd": (),
    "close": (),
    "file": ("-force",),
    "glob": ("-nocomplain",),
    "open": (),
    "puts": (),
    "source": (),
}
"""Every command that a script may use, with all of its options: Vivado's (UG835, UG994), and Tcl's for files."""

# ``vivado::known`` holds objects that exist, ``vivado::answers`` what properties have. Files are not touched.
PRELUDE = r"""
namespace eval vivado {
  variable calls {}
  variable made
  array set made {}
  proc record {words} {
    variable calls
    lappend calls [join $words "\x1f"]
  }
  proc last {words} { return [lindex $words end] }
  proc exists {table words} {
    variable $table
    variable made
    set name [last $words]
    set cell [lindex [split $name /] 0]
    if {![info exists made($cell)]} { return "" }
    set rest [join [lrange [split $name /] 1 end] /]
    if {[dict exists [set $table] $made($cell)] && $rest in [dict get [set $table] $made($cell)]} { return $name }
    return ""
  }
  proc answer {words} {
    variable made
    variable answers
    set name [last $words]
    switch -- [lindex $words 0] {
      version { return [dict get $answers version] }
      create_bd_cell {
        set kind [lindex $words [expr {[lsearch $words -vlnv] + 1}]]
        set made($name) [join [lrange [split $kind :] 0 2] :]
        return $name
      }
      get_bd_cells { return [expr {[info exists made($name)] ? $name : ""}] }
      get_bd_pins { return [exists pins $words] }
      get_bd_intf_pins { return [exists buses $words] }
      get_bd_addr_segs { return [exists segments $words] }
      get_bd_addr_spaces { return [exists spaces $words] }
      get_ipdefs { return [list [string map {* 1.0} $name] [string map {* 1.2} $name]] }
      get_board_parts { return [dict get $answers board_parts] }
      get_files - get_runs - make_wrapper { return $name }
      current_project - current_fileset - ipx::current_core { return [lindex $words 0] }
      ipx::get_bus_interfaces { return [lindex [lsearch -all -inline -not $words -*] 1] }
      ipx::add_register - ipx::add_memory_map - ipx::add_address_block { return [lindex $words 1] }
      get_property {
        set property [lindex $words 1]
        if {[dict exists $answers $property]} { return [dict get $answers $property] }
        return "unknown"
      }
      glob { return [lindex $words 2] }
      open { return channel }
    }
    return ""
  }
}
rename unknown _unknown
proc unknown args { vivado::record $args; return [vivado::answer $args] }
rename file _file
proc file args {
  if {[lindex $args 0] in {dirname normalize}} { return [_file {*}$args] }
  vivado::record [list file {*}$args]
}
foreach command {cd close puts open glob} {
  rename $command _$command
  proc $command args "vivado::record \[list $command {*}\$args\]; return \[vivado::answer \[list $command {*}\$args\]\]"
}
proc source args { vivado::record [list source {*}$args]; uplevel #0 $vivado::package }
"""


@dataclass(frozen=True)
class Record:
    """All calls in order, each a list of words, and the error that ended the script, if one did."""

    calls: list[list[str]]
    error: str

    def of(self, *commands: str) -> list[list[str]]:
        return [call for call in self.calls if call[0] in commands]


@dataclass(frozen=True)
class Vivado:
    """How Vivado answers: a good run, unless a field says otherwise."""

    mhz: float
    progress: str = "100%"
    wns: str = "0.123"
    whs: str = "0.021"
    board_parts: str = "a:b:part0:1.0"
    version: str = "2024.1"
    properties: Mapping[str, str] = field(default_factory=dict)

    def run(self, script: str, package: str) -> Record:
        """Run ``build.tcl`` with the text of ``package_ip.tcl``, in Tk's interpreter or in ``tclsh``."""
        text = "\n".join(
            [
                PRELUDE,
                self._tables(),
                f"set vivado::package {_braced(package)}",
                f"set vivado::failed [catch {{uplevel #0 {_braced(script)}}} vivado::message]",
                'if {!$vivado::failed} { set vivado::message "" }',
                'set vivado::result [join [list $vivado::message {*}$vivado::calls] "\\x1e"]',
            ]
        )
        error, *calls = _evaluate(text).split(CALL)
        return Record([call.split(WORD) for call in calls], error)

    def _tables(self) -> str:
        def words(names: Sequence[str]) -> str:
            return _braced(" ".join(names))

        tables = {
            "pins": {
                kind: [*each.inputs, *each.outputs, *each.others, *dict.fromkeys(each.buses.values())]
                for kind, each in TYPES.items()
            },
            "buses": {kind: list(each.buses) for kind, each in TYPES.items()},
            "segments": {kind: list(each.segments) for kind, each in TYPES.items()},
            "spaces": {kind: list(each.spaces) for kind, each in TYPES.items()},
        }
        lines = [
            f"set vivado::{name} [dict create {' '.join(f'{kind} {words(names)}' for kind, names in table.items())}]"
            for name, table in tables.items()
        ]
        answers = {
            "version": self.version,
            "board_parts": self.board_parts,
            "PROGRESS": self.progress,
            "STATUS": "write_bitstream Complete!",
            "STATS.WNS": self.wns,
            "STATS.WHS": self.whs,
            "CONFIG.PCW_ACT_FPGA0_PERIPHERAL_FREQMHZ": f"{self.mhz:.6f}",
            "CONFIG.PSU__CRL_APB__PL0_REF_CTRL__ACT_FREQMHZ": f"{self.mhz:.6f}",
            **self.properties,
        }
        pairs = " ".join(f"{name} {_braced(value)}" for name, value in answers.items())
        return "\n".join([*lines, f"set vivado::answers [dict create {pairs}]"])


def _braced(text: str) -> str:
    """A Tcl word that stands for the text as it is; its braces must be balanced, as those of any script are."""
    return "{" + text + "}"


def _evaluate(text: str) -> str:
    """The value of ``vivado::result`` after running the text, by Python's own Tcl or by the program ``tclsh``."""
    try:
        import tkinter
    except ImportError:
        return _evaluate_outside(text)
    interpreter = tkinter.Tcl()
    interpreter.eval(text)
    return str(interpreter.eval("set vivado::result"))


def _evaluate_outside(text: str) -> str:
    program = shutil.which("tclsh")
    if program is None:
        pytest.skip("neither tkinter nor tclsh is there: apt-get install tcl")
    ending = "\nfconfigure stdout -encoding utf-8\n_puts -nonewline $vivado::result\n"
    result = subprocess.run([program], input=text + ending, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout
