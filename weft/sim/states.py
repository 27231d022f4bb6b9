"""What the registers of a core's RTL hold in each cycle of a run: for whoever evaluates the gates between them."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from .errors import SimulationError
from .verilated_names import MEMBER, encoded

Words = npt.NDArray[np.uint64]

CONTROL_FILE = "states.vlt"

_REGISTER = re.compile(r"^  reg (?:signed )?(?:\[\d+:0\] )?(\\\S+ |[\w$]+)(?: = [^;]+)?;", re.MULTILINE)
_ARRAY = re.compile(r"^  reg (?:signed )?(?:\[\d+:0\] )?(\\\S+ |[\w$]+) ?\[(\d+):0\];", re.MULTILINE)
_READ = re.compile(r"^  assign (\\\S+ |[\w$]+) ?= (\\\S+ |[\w$]+) ?\[", re.MULTILINE)


def state_names(verilog: str) -> list[str]:
    """Names of registers, of what arrays of them give, and of arrays that are one register, in all modules."""
    arrays = {_plain(name) for name, _ in _ARRAY.findall(verilog)}
    reads = [_plain(name) for name, array in _READ.findall(verilog) if _plain(array) in arrays]
    single = [_plain(name) for name, last in _ARRAY.findall(verilog) if last == "0"]
    return sorted({*map(_plain, _REGISTER.findall(verilog)), *reads, *single})


def _plain(name: str) -> str:
    return name.removeprefix("\\").rstrip()


def control_file(verilog: str) -> str:
    """Lets Verilator keep these signals as they are."""
    # Where a name has two underscores Verilator asks for the name itself, else for its own spelling.
    names = sorted({spelt for name in state_names(verilog) for spelt in (name, encoded(name))})
    return "\n".join(["`verilator_config", *(f'public_flat_rd -module "*" -var "{name}"' for name in names), ""])


def states_lines(verilog: str | None, root_header: str) -> list[str]:
    """C++ for ``ports.h``: a list of what is read, and a function that reads it. Nothing without ``verilog``."""
    if verilog is None:
        return []
    members: list[str] = []
    wanted = {encoded(name) for name in state_names(verilog)}
    for match in MEMBER.finditer(root_header):
        member = match["port"] or match["name"] or (match["memory"] if ", 1> " in match[0] else "")
        own = member.rpartition("__DOT__")[2] in wanted and not member.startswith("__V")  # Verilator's copies do
        if match["port"] or own:
            members.append(member)
    lines = ["struct WeftState { const char* name; uint32_t bytes; };", "static const WeftState kStates[] = {"]
    lines += [f'    {{"{member}", sizeof(Vcore___024root::{member})}},' for member in members]
    lines += ['    {"", 0},', "};", f"constexpr uint32_t kStateCount = {len(members)};"]
    lines += ["static inline uint8_t* weft_read_states(const Vcore___024root& root, uint8_t* to) {"]
    for member in members:
        lines.append(f"    std::memcpy(to, &root.{member}, sizeof root.{member}); to += sizeof root.{member};")
    return [*lines, "    return to;", "}"]


@dataclass
class StateRecording:
    """``windows``: the first cycle of each, and that before which it ends, ascending; counted over all programs.

    Filled by a simulator: ``places`` has the first byte and the bytes of each state by its name in the model,
    ``content`` ``(cycles, bytes)``.
    """

    windows: Sequence[tuple[int, int]]
    places: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    content: npt.NDArray[np.uint8] = field(default_factory=lambda: np.zeros((0, 0), np.uint8))

    def __post_init__(self) -> None:
        ends = [0, *(cycle for window in self.windows for cycle in window)]
        if sorted(ends) != ends or any(first == stop for first, stop in self.windows):
            raise SimulationError("windows of cycles are not in ascending order")

    def begin(self, library: ctypes.CDLL, machine: int) -> None:
        """Let a simulator write into ``content``."""
        self.places, width = read_places(library)
        self.content = np.zeros((sum(stop - first for first, stop in self.windows), width), np.uint8)
        self._bounds = np.array(self.windows, np.uint64)
        library.weft_read_states(machine, self.content.ctypes.data, self._bounds.ctypes.data, len(self.windows))

    def bits(self, name: str, first: int, stop: int) -> Words:
        """A state in the recorded cycles ``first .. stop - 1``, as ``(bits, words)``: bit ``i`` of a row is the cycle
        ``first + i``."""
        start, size = self.places[name]
        bits = np.unpackbits(self.content[first:stop, start : start + size], axis=1, bitorder="little")
        rows = np.zeros((8 * size, -(-(stop - first) // 64) * 64), np.uint8)
        rows[:, : stop - first] = bits.T
        return np.packbits(rows, axis=1, bitorder="little").view(np.uint64)


class _State(ctypes.Structure):
    _fields_ = (("name", ctypes.c_char_p), ("bytes", ctypes.c_uint32))


def read_places(library: ctypes.CDLL) -> tuple[dict[str, tuple[int, int]], int]:
    """Where each state of a model lies in what it writes of a cycle, and how many bytes that are."""
    library.weft_states.restype, library.weft_states.argtypes = ctypes.POINTER(_State), [ctypes.c_uint32]
    places, start, number = {}, 0, 0
    while state := library.weft_states(number):
        places[state.contents.name.decode()] = (start, state.contents.bytes)
        start += state.contents.bytes
        number += 1
    return places, start
