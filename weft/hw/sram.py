"""Memories as instances of one module, ``weft_sram``, so that macros can take their place: its model, and what sizes
a core asks for. The model, ``weft_sram.v``, holds the contract."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from importlib import resources

MAP = "sram_map.v"
"""What Yosys' techmap reads to put the module in the place of a memory."""

TECHMAP = f"techmap -map {MAP} a:no_rw_check"
"""Does so where what is read of an entry in the cycle of a write to it is of no use."""

_INSTANCE = re.compile(r"^  weft_sram #\(\n(.*?)\n  \) ", re.MULTILINE | re.DOTALL)
_PARAMETER = re.compile(r"\.(\w+)\(32'd(\d+)\)")


@dataclass(frozen=True, order=True)
class Sram:
    """A size: entries, bits of each, and of those how many are written together."""

    depth: int
    width: int
    granule: int

    def __str__(self) -> str:
        return f"{self.depth} entries of {self.width} bits, written {self.granule} at a time"


def map_file() -> str:
    """The text of :data:`MAP`."""
    return resources.files(__package__).joinpath(MAP).read_text()


def sram_sizes(verilog: str) -> Counter[Sram]:
    """How many memories of each size an exported text has (of a system, how often they stand in the text)."""
    sizes: Counter[Sram] = Counter()
    for instance in _INSTANCE.findall(verilog):
        found = dict(_PARAMETER.findall(instance))
        sizes[Sram(int(found["DEPTH"]), int(found["WIDTH"]), int(found["GRANULE"]))] += 1
    return sizes


def sram_model(verilog: str) -> str:
    """The module for simulators, with the list of sizes that an exported text asks for."""
    model = resources.files(__package__).joinpath("weft_sram.v").read_text()
    sizes = [f"//   {count} of {size}" for size, count in sorted(sram_sizes(verilog).items(), reverse=True)]
    return "\n".join(["// The sizes in use:", *sizes, model])
