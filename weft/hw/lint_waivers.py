"""What Verilator's ``-Wall`` says of the exported Verilog that is no mistake, each with its reason."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Waiver:
    """A rule of Verilator, why the exported Verilog may break it, and the messages meant (``*`` is any text)."""

    rule: str
    reason: str
    match: str = "*"


EXTENDS = "Yosys writes each operand at its own width; the standard extends it with zeros, or with its sign"
LOCAL = "a register in the engine of that name holds its instruction; what it hides is the engine, in the core"

WAIVERS = (
    Waiver("CASEOVERLAP", "a multiplexer that one wire for each input selects is a casez; one wire at most is high"),
    Waiver("DECLFILENAME", "one file holds all modules of the core, whatever its name"),
    Waiver("PROCASSINIT", "an initial value is that of the reset; 'weft hw --no-initial-values' leaves it out"),
    Waiver("SYMRSVDWORD", "only C++ compilers reserve the word, and Verilator then writes another", "*'interrupt'*"),
    Waiver("UNUSEDSIGNAL", "signals that nothing reads stay, so that waveforms show them under their names"),
    Waiver("VARHIDDEN", LOCAL, "*scope: 'load'*"),
    Waiver("VARHIDDEN", LOCAL, "*scope: 'store'*"),
    Waiver("WIDTHEXPAND", EXTENDS),
    Waiver("WIDTHTRUNC", "'! x' of several bits asks whether all are 0", "*LOGNOT expects 1 bit on the LHS*"),
    Waiver("WIDTHTRUNC", "a field is taken by a shift: the rest is meant to go", "*Assign RHS's SHIFTR generates*"),
)  # fmt: skip


def waiver_file(verilog: str) -> str:
    """Verilator's control file with all waivers, for the Verilog in a file of name ``verilog``."""
    name = re.sub(r"[^\w.+-]", "?", verilog)  # the tool's pattern for any character
    lines = ["`verilator_config", "// Read before the Verilog: verilator --lint-only -Wall FILE.vlt FILE.v"]
    for each in WAIVERS:
        lines.append(f"// {each.reason}")
        lines.append(f'lint_off -rule {each.rule} -file "*{name}" -match "{each.match}"')
    return "\n".join([*lines, ""])
