"""The model of an SDRAM chip, as C++ that is compiled once, and in Amaranth's simulator."""

from __future__ import annotations

import ctypes
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from weft.cache import cache_key, kept_file
from weft.hw.standalone.sdram import SdramCommand
from weft.hw.standalone.sdram_chip import SdramChip
from weft.sim.cpp_compiler import compiler_flags, run_compiler

CHIP = SdramChip(
    row_bits=13, column_bits=9, latency=2, rcd_ns=20, rp_ns=20, ras_ns=45, rc_ns=70, rrd_ns=15, rfc_ns=70, wr_ns=20,
    refresh_ns=7812.5, startup_ns=2000, access_ns=6,
)  # fmt: skip
"""Starts in a hundredth of the time that real ones take."""

FIGURES = ("rcd", "rp", "ras", "rc", "rrd", "rfc", "wr", "refresh", "startup")

WRAPPER = """
#include "sdram_model.h"
extern "C" {
void* chip_new(unsigned rows, unsigned columns, unsigned latency, const double* t) {
    return new SdramModel({rows, columns, latency, t[0], t[1], t[2], t[3], t[4], t[5], t[6], t[7], t[8], t[9]});
}
void chip_delete(void* chip) { delete static_cast<SdramModel*>(chip); }
int chip_edge(void* chip, unsigned command, unsigned bank, unsigned address, unsigned mask, unsigned driven,
              unsigned data) {
    return static_cast<SdramModel*>(chip)->edge(command, bank, address, mask, driven, data);
}
const char* chip_error(void* chip) { return static_cast<SdramModel*>(chip)->error().c_str(); }
unsigned chip_refreshes(void* chip) { return static_cast<SdramModel*>(chip)->refreshes(); }
unsigned chip_activates(void* chip) { return static_cast<SdramModel*>(chip)->activates(); }
}
"""


@cache
def library() -> ctypes.CDLL:
    header = resources.files("weft.boards.standalone").joinpath("sdram_model.h").read_text()

    def build(target: Path) -> None:
        source = target.parent / "chip.cpp"
        source.write_text(WRAPPER)
        (target.parent / "sdram_model.h").write_text(header)
        run_compiler([*compiler_flags(), "-O1", "-Wall", "-shared", str(source), "-o", str(target)])

    found = ctypes.CDLL(str(kept_file("tests", f"{cache_key(WRAPPER, header, compiler_flags())}.so", build)))
    found.chip_new.restype = ctypes.c_void_p
    found.chip_error.restype = ctypes.c_char_p
    number = ctypes.c_uint
    found.chip_new.argtypes = [number, number, number, ctypes.c_void_p]
    found.chip_edge.argtypes = [ctypes.c_void_p, *[number] * 6]
    for name in ("delete", "error", "refreshes", "activates"):
        getattr(found, f"chip_{name}").argtypes = [ctypes.c_void_p]
    return found


class ModelledChip:
    """A chip at a clock."""

    def __init__(self, chip: SdramChip, clock_hz: float) -> None:
        times = [*(getattr(chip, f"{name}_ns") for name in FIGURES), 1e9 / clock_hz]
        self._library = library()
        values = (ctypes.c_double * len(times))(*times)
        self._chip = self._library.chip_new(chip.row_bits, chip.column_bits, chip.latency, values)

    def __del__(self) -> None:
        self._library.chip_delete(self._chip)

    def edge(
        self, command: int = SdramCommand.NOTHING, bank: int = 0, address: int = 0, mask: int = 0, data: int = -1
    ) -> int:
        """A rising edge of its clock; ``data`` of -1: nobody drives the pins. What the chip drives, or -1."""
        return int(self._library.chip_edge(self._chip, command, bank, address, mask, data >= 0, max(data, 0)))

    @property
    def error(self) -> str:
        return str(self._library.chip_error(self._chip).decode())

    @property
    def refreshes(self) -> int:
        return int(self._library.chip_refreshes(self._chip))

    @property
    def activates(self) -> int:
        return int(self._library.chip_activates(self._chip))

    async def run(self, ctx: Any, pins: Any) -> None:
        """A testbench of Amaranth's: the chip at a controller's pins, half a cycle behind the controller's clock."""
        while True:
            await ctx.tick()
            data = ctx.get(pins.data) if ctx.get(pins.enable) else -1
            values = (int(ctx.get(getattr(pins, name))) for name in ("command", "bank", "address", "mask"))
            given = self.edge(*values, data)
            ctx.set(pins.given, given if given >= 0 else 0xDEAD)
