"""Instructions of functions before they have places: what a walk finds, whatever stands before it in the stream.

A walk gives every buffer a number instead of an address: those in DRAM first, then one for each time that room is taken
in a scratchpad. An address is the number of its buffer, in the upper bits, and what lies between the buffer's beginning
and the address. So one walk serves wherever its functions stand: only places are put in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from .....hw.config import TABLE_ENTRIES
from .....hw.isa import Engine, Loop
from .....hw.memories import Memory
from ..stream.rows import Form, Rows
from ..stream.scratchpads import Ring, Zone
from ..stream.stream import Issue

_BITS = 40
"""Of an address inside its buffer: entries of a scratchpad, or granules of DRAM."""

HeldLevels = dict[Engine, dict[int, tuple[int, int, int, int]]]
"""What the loop registers of an engine hold: extent and strides (dst, a, b) of each level."""

Rings = Mapping[Memory, Ring]


def address(buffer: int) -> int:
    """The beginning of a buffer with this number; those of numbers from 1 on have a place."""
    return buffer << _BITS


Addresses = TypeVar("Addresses", int, npt.NDArray[np.int64])


def inside(addresses: Addresses) -> Addresses:
    """How far addresses lie behind the beginning of their buffer."""
    return addresses & (address(1) - 1)


def buffer_of(first: int) -> int:
    """The number of the buffer in which an address lies."""
    return first >> _BITS


class Take(NamedTuple):
    """A request for room in a scratchpad, as `Ring.take` gets it."""

    memory: Memory
    entries: int
    name: str
    zones: tuple[Zone, ...]
    leaving: int


@dataclass(frozen=True)
class Unplaced:
    """Instructions of functions, whatever their loops find in the registers.

    ``takes``: the different requests for room; ``turns``: which of these comes next, or, as -1 - n, that the room of
    the n-th is given back. Instruction n has form ``form_of[n]`` and tile ``tile_of[n]``. ``owners`` and ``offsets``:
    of its addresses, in row n, buffer and distance from its beginning. ``tiles``: number of the last tile.
    """

    takes: tuple[Take, ...]
    turns: npt.NDArray[np.int32]
    forms: tuple[Form, ...]
    form_of: npt.NDArray[np.int32]
    tile_of: npt.NDArray[np.int32]
    owners: npt.NDArray[np.int32]
    offsets: npt.NDArray[np.int64]
    tiles: int

    @classmethod
    def of(cls, turns: Sequence[Take | int], issues: Sequence[Issue], tiles: int) -> Unplaced:
        """What a walk has found. ``turns``: its requests, and the numbers of those whose room was given back."""
        takes: dict[Take, int] = {}
        order = [-1 - each if isinstance(each, int) else takes.setdefault(each, len(takes)) for each in turns]
        rows = Rows.of(issues)
        tables, column = _tables(rows)
        rows.addresses[tables, column] = (rows.addresses[tables, column] - 1) * TABLE_ENTRIES
        return cls(
            tuple(takes), np.array(order, np.int32), tuple(rows.forms), rows.form_of.astype(np.int32),
            rows.tiles.astype(np.int32), (rows.addresses >> _BITS).astype(np.int32), inside(rows.addresses), tiles,
        )  # fmt: skip

    def taken(self, rings: Rings) -> list[int]:
        """First entries of the room that is taken. Raises ScratchpadFullError where there is none."""
        starts: list[int] = []
        memories: list[Memory] = []
        for turn in self.turns.tolist():
            if turn < 0:
                rings[memories[-1 - turn]].release(starts[-1 - turn])
                continue
            memory, entries, name, zones, leaving = self.takes[turn]
            starts.append(rings[memory].take(entries, name, zones, leaving=leaving))
            memories.append(memory)
        return starts

    def placed(self, places: Sequence[int], held: HeldLevels, layer: int) -> Rows:
        """The instructions. ``places``: of the buffers in DRAM, then of the room that is taken. ``held``: of the loop
        registers, as they are before; afterwards as they are then."""
        first_of = np.array([0, *places], np.int64)
        form_of = self.form_of.astype(np.int64)
        rows = Rows(self.forms, form_of, first_of[self.owners] + self.offsets, np.full(len(form_of), layer, np.int64),
                    self.tile_of.astype(np.int64))  # fmt: skip
        tables, column = _tables(rows)
        rows.addresses[tables, column] = rows.addresses[tables, column] // TABLE_ENTRIES + 1
        again = self._set_again(held)
        if not again:
            return rows
        stays = np.ones(len(rows), np.bool_)
        stays[again] = False
        return rows.picked(np.flatnonzero(stays))

    def _set_again(self, held: HeldLevels) -> list[int]:
        """The instructions that set a register to what it holds: only the first of a register meets what was there
        before. ``held``: as of :meth:`placed`."""
        found = []
        registers: dict[tuple[Engine, int], list[int]] = {}
        for number, form in enumerate(self.forms):
            if form.kind is Loop:
                registers.setdefault(_register(form.common)[:2], []).append(number)
        for (engine, level), forms in registers.items():
            own = np.flatnonzero(np.isin(self.form_of, forms))
            first, last = (_register(self.forms[self.form_of[own[each]]].common)[2] for each in (0, -1))
            if held[engine].get(level) == first:
                found.append(int(own[0]))
            held[engine][level] = last
        return found


def _tables(rows: Rows) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The instructions that look up a table, and the columns of their addresses in which its number is, last of the
    addressed fields. A walk knows the table's first entry."""
    columns = rows.by_form(lambda form: len(form.addressed) if form.addressed[-1:] == ("table",) else 0)
    found = np.flatnonzero(columns)
    return found, columns[found] - 1


def _register(fields: Mapping[str, Any]) -> tuple[Engine, int, tuple[int, int, int, int]]:
    """Engine and level of a LOOP, and what it sets there."""
    wanted = fields["extent"], fields["dst_stride"], fields["a_stride"], fields["b_stride"]
    return fields["engine"], fields["level"], wanted
