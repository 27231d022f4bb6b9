"""The RTL simulator around a core that plays a script: what ``sim/harness.cpp`` makes of any traffic, right or wrong.

Building it takes two seconds, because there is nothing to verilate: ``scripted_core/Vcore.h`` stands for the core.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

from weft.cache import cache_key, kept_file
from weft.hw.bus import BURST_INCR, ID_BITS
from weft.hw.config import TINY
from weft.hw.registers import Control, Register
from weft.sim import rtl
from weft.sim.build import BuildTimes
from weft.sim.c_interface import CStruct, fields, header
from weft.sim.cpp_compiler import compiler_flags, run_compiler
from weft.sim.harness import bus_text, harness_files
from weft.sim.rtl import BASE_ADDRESS, RtlSimulator

FOLDER = Path(__file__).parent / "scripted_core"
MEMORY_BYTES = 1 << 14
WORD = TINY.bus_bytes

_ADDRESS = ("valid", "addr", "len", "size", "burst", "id")
_ROW = CStruct(
    "Row",
    fields(
        "uint64_t",
        *(f"ar{name}" for name in _ADDRESS),
        *(f"aw{name}" for name in _ADDRESS),
        *("wvalid", "wdata", "wstrb", "wlast", "rready", "bready", "waits"),
    ),
)
_BEAT = CStruct("Beat", fields("uint64_t", "cycle", "id", "data", "response", "last"))
Row, Beat = _ROW.python(), _BEAT.python()

AR, AW, W, R, B = range(1, 6)
"""What a row may wait for."""

ANSWER = 2
"""``last`` of a beat that is the answer of a write."""


def library() -> Path:
    """The harness with the scripted core, compiled."""
    shared = header(
        [
            f"constexpr uint32_t kControl = {int(Register.CONTROL)};",
            f"constexpr uint32_t kStart = {int(Control.START)}, kReset = {int(Control.RESET)};",
            _ROW.text,
            _BEAT.text,
        ]
    )
    own = {"script.h": shared, "bus.h": header(bus_text(["m_axi_"], ID_BITS, 64))}
    files = {path.name: path.read_text() for path in FOLDER.glob("*.h")} | harness_files() | own

    def build(target: Path) -> None:
        for name, text in files.items():
            (target.parent / name).write_text(text)
        run_compiler([*compiler_flags(), "-O0", "-shared", "-o", str(target), str(target.parent / "harness.cpp")])

    return kept_file("rtl", f"{cache_key(*files, *files.values(), *compiler_flags())}.so", build)


class ScriptedSimulator(RtlSimulator):
    """An :class:`RtlSimulator` whose core does what it is told to."""

    def __init__(self) -> None:
        built = patch.object(rtl, "build_library", lambda *_, **__: (library(), BuildTimes()))
        apart = patch.object(rtl, "_libraries", {})  # nobody else must get this core
        with built, apart:
            super().__init__(TINY, MEMORY_BYTES)
        self._library.scripted_rows.argtypes = [ctypes.c_void_p, ctypes.c_uint64]
        self._library.scripted_beats.restype = ctypes.c_uint64

    def play(self, rows: Sequence[Any], cycle_limit: int = 5000, **options: Any) -> list[Any]:
        """Run the script, with other ``options`` of a run; what was read, and the answers to what was written."""
        script = (Row * len(rows))(*rows)
        self._library.scripted_rows(ctypes.addressof(script), len(rows))
        self.run(0, 0, cycle_limit=cycle_limit, **options)
        return self.beats()

    def beats(self) -> list[Any]:
        first = ctypes.c_void_p()
        count = self._library.scripted_beats(ctypes.byref(first))
        return [Beat.from_buffer_copy(beat) for beat in (Beat * count).from_address(first.value or 0)] if count else []


def address(channel: str, offset: int, beats: int = 1, *, waits: bool = True, **other: int) -> Any:
    """A row that asks for a burst, ``offset`` bytes into the memory; taken in this row if it ``waits``."""
    values = {"valid": 1, "addr": BASE_ADDRESS + offset, "len": beats - 1, "size": WORD.bit_length() - 1}
    values |= {"burst": BURST_INCR, "id": 0, **other}
    waited = {"ar": AR, "aw": AW}[channel] if waits else 0
    return Row(**{f"{channel}{name}": value for name, value in values.items()}, waits=waited)


def word(data: int, *, last: int, strobe: int = 0xFF, waits: bool = True) -> Any:
    """A row that writes a word."""
    return Row(wvalid=1, wdata=data, wstrb=strobe, wlast=last, waits=W if waits else 0)


def together(row: Any, *others: Any) -> Any:
    """The channels of several rows in one, which waits for what the first one waits for."""
    merged = Row.from_buffer_copy(row)
    for other in others:
        for name, _ in Row._fields_[:-1]:
            setattr(merged, name, getattr(merged, name) | getattr(other, name))
    return merged


def read_beats(count: int) -> list[Any]:
    return [Row(rready=1, waits=R)] * count


def answer() -> Any:
    """A row that takes the answer of a write."""
    return Row(bready=1, waits=B)
