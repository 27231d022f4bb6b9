"""Instructions of functions before they have places: what a walk finds, whatever stands before it in the stream.

A walk gives every buffer a number instead of an address: those in DRAM first, then one for each time that room is taken
in a scratchpad. An address is the number of its buffer, in the upper bits, and what lies between the buffer's beginning
and the address. So one walk serves wherever its functions stand: only places are put in.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from .....hw.config import TABLE_ENTRIES
from .....hw.isa import Engine, Gemm, Instruction, Load, Loop, Store, Vector
from .....hw.memories import Memory
from ..stream.scratchpads import Ring, Zone
from ..stream.stream import Access, Issue

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
class Form:
    """What instructions have in common that differ in nothing but addresses. ``fields``: of the instruction, without
    those at ``addressed``; ``sets``: memory, extents and strides of the accesses; ``reads`` and ``writes``: which of
    these they are."""

    kind: type[Instruction]
    fields: tuple[tuple[str, Any], ...]
    addressed: tuple[str, ...]
    sets: tuple[tuple[Memory, tuple[int, ...], tuple[int, ...]], ...]
    reads: tuple[int, ...]
    writes: tuple[int, ...]


@dataclass(frozen=True)
class Unplaced:
    """Instructions of functions, whatever their loops find in the registers.

    ``takes``: the different requests for room; ``turns``: which of these comes next, or, as -1 - n, that the room of
    the n-th is given back. Instruction n has form ``form_of[n]`` and tile ``tile_of[n]``. ``owners`` and ``offsets``:
    of all their addresses, one after the other, buffer and distance from its beginning. ``tiles``: number of the last
    tile.
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
        forms: dict[Form, int] = {}
        form_of, addresses = [], []
        for issue in issues:
            form, own = _form(issue)
            form_of.append(forms.setdefault(form, len(forms)))
            addresses += own
        numbers = np.array(addresses, np.int64)
        return cls(
            tuple(takes), np.array(order, np.int32), tuple(forms), np.array(form_of, np.int32),
            np.array([issue.tile for issue in issues], np.int32), (numbers >> _BITS).astype(np.int32), inside(numbers),
            tiles,
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

    def placed(self, places: Sequence[int], held: HeldLevels, layer: int) -> Iterator[Issue]:
        """The instructions. ``places``: of the buffers in DRAM, then of the room that is taken. ``held``: of the loop
        registers, as they are before; afterwards as they are then."""
        known = {engine: dict(levels) for engine, levels in held.items()}
        first_of = np.array([0, *places], np.int64)
        addresses = (first_of[self.owners] + self.offsets).tolist()
        forms = [(dict(form.fields), form) for form in self.forms]
        at = 0
        for number, tile in zip(self.form_of.tolist(), self.tile_of.tolist(), strict=True):
            fields, form = forms[number]
            if form.kind is Loop:
                engine, level, wanted = _register(fields)
                held[engine][level] = wanted
                if known[engine].pop(level, None) == wanted:
                    continue  # only the first of a register meets what was there before
            instruction: Any = object.__new__(form.kind)  # `replace` takes several times as long
            own = instruction.__dict__
            own.update(fields)
            for name in form.addressed:
                own[name] = addresses[at]
                at += 1
            if "table" in form.addressed:
                own["table"] = own["table"] // TABLE_ENTRIES + 1
            accesses = []
            for memory, extents, strides in form.sets:
                accesses.append(Access(memory, addresses[at], extents, strides))
                at += 1
            yield Issue(
                instruction, tuple([accesses[each] for each in form.reads]),
                tuple([accesses[each] for each in form.writes]), layer, tile,
            )  # fmt: skip


def _register(fields: Mapping[str, Any]) -> tuple[Engine, int, tuple[int, int, int, int]]:
    """Engine and level of a LOOP, and what it sets there."""
    wanted = fields["extent"], fields["dst_stride"], fields["a_stride"], fields["b_stride"]
    return fields["engine"], fields["level"], wanted


def _form(issue: Issue) -> tuple[Form, list[int]]:
    """The form of an instruction, and its addresses: those of its fields, then of its accesses."""
    instruction = issue.instruction
    fields = dict(instruction.__dict__)
    names = _addressed(instruction)
    addresses = [fields.pop(name) for name in names]
    if "table" in names:
        addresses[-1] = (addresses[-1] - 1) * TABLE_ENTRIES
    numbers: dict[int, int] = {}
    accesses: list[Access] = []
    for access in (*issue.reads, *issue.writes):
        if id(access) not in numbers:
            numbers[id(access)] = len(accesses)
            accesses.append(access)
    sets = tuple([(each.memory, each.extents, each.strides) for each in accesses])
    reads, writes = (tuple([numbers[id(each)] for each in own]) for own in (issue.reads, issue.writes))
    form = Form(type(instruction), tuple(fields.items()), names, sets, reads, writes)
    return form, [*addresses, *(each.start for each in accesses)]


def _addressed(instruction: Instruction) -> tuple[str, ...]:
    """The fields that hold addresses; `Vector.table`, a number of a table, stands last."""
    match instruction:
        case Load() | Store():
            return ("index", "offset")
        case Gemm():
            return ("dst", "src", "wgt")
        case Vector(b_immediate=immediate, table=table):
            return ("dst", "a", *(() if immediate else ("b",)), *(("table",) if table else ()))
    return ()
