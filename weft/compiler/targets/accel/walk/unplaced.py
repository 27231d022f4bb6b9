"""Instructions of functions before they have places: what a walk finds, whatever stands before it in the stream.

A walk gives every buffer a number instead of an address: those in DRAM first, then one for each time that room is taken
in a scratchpad. An address is the number of its buffer, in the upper bits, and what lies between the buffer's beginning
and the address. So one walk serves wherever its functions stand: only places are put in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from operator import itemgetter
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from .....hw.config import TABLE_ENTRIES
from .....hw.isa import INSTRUCTION_TYPES, Engine, Gemm, Instruction, Load, Loop, Opcode, Store, Vector
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
    those at ``addressed``; ``sets``: memory, extents and strides of the accesses; so many of these, the first, are
    ``reads``, and which of them are ``writes``."""

    kind: type[Instruction]
    fields: tuple[tuple[str, Any], ...]
    addressed: tuple[str, ...]
    sets: tuple[tuple[Memory, tuple[int, ...], tuple[int, ...]], ...]
    reads: int
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
        numbers_of: dict[tuple[Any, ...], int] = {}
        forms: list[Form] = []
        form_of: list[int] = []
        addresses: list[int] = []
        for issue in issues:
            instruction, accesses = issue.instruction, list(issue.reads)
            writes = tuple([_place(each, accesses) for each in issue.writes])
            own = _fields(instruction)
            sets = tuple([(each.memory, each.extents, each.strides) for each in accesses])
            form = own.others(instruction.__dict__), own, sets, len(issue.reads), writes
            number = numbers_of.setdefault(form, len(forms))
            if number == len(forms):
                forms.append(Form(type(instruction), tuple(zip(own.names, form[0], strict=True)), own.addressed,
                                  sets, len(issue.reads), writes))  # fmt: skip
            form_of.append(number)
            addresses += own.addresses(instruction)
            addresses += [each.start for each in accesses]
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
        forms = [(dict(form.fields), form, [(*each, dict[int, Access]()) for each in form.sets],
                  [place for place in range(form.reads) if place not in form.writes])
                 for form in self.forms]  # fmt: skip
        at = 0
        for number, tile in zip(self.form_of.tolist(), self.tile_of.tolist(), strict=True):
            common, form, sets, only_read = forms[number]
            if form.kind is Loop:
                engine, level, wanted = _register(common)
                held[engine][level] = wanted
                if known[engine].pop(level, None) == wanted:
                    continue  # only the first of a register meets what was there before
            instruction: Any = object.__new__(form.kind)  # `replace` takes several times as long
            own = instruction.__dict__
            own.update(common)
            for name in form.addressed:
                own[name] = addresses[at]
                at += 1
            if "table" in form.addressed:
                own["table"] = own["table"] // TABLE_ENTRIES + 1
            accesses = []
            for memory, extents, strides, made in sets:
                address = addresses[at]
                at += 1
                access = made.get(address)
                if access is None:
                    made[address] = access = Access(memory, address, extents, strides)
                accesses.append(access)
            writes = tuple([accesses[each] for each in form.writes])
            yield Issue(
                instruction, tuple(accesses[: form.reads]), writes, layer, tile,
                _accesses=(tuple([accesses[each] for each in only_read]), writes),
            )  # fmt: skip


def _register(fields: Mapping[str, Any]) -> tuple[Engine, int, tuple[int, int, int, int]]:
    """Engine and level of a LOOP, and what it sets there."""
    wanted = fields["extent"], fields["dst_stride"], fields["a_stride"], fields["b_stride"]
    return fields["engine"], fields["level"], wanted


def _place(access: Access, accesses: list[Access]) -> int:
    """Where an access stands among others; it is added if it is none of them."""
    for place, each in enumerate(accesses):
        if each is access:
            return place
    accesses.append(access)
    return len(accesses) - 1


class _Fields(NamedTuple):
    """Fields of a kind of instructions that are ``addressed``, and the ``names`` of the others."""

    addressed: tuple[str, ...]
    names: tuple[str, ...]
    others: Callable[[Mapping[str, Any]], tuple[Any, ...]]

    def addresses(self, instruction: Instruction) -> list[int]:
        """What the addressed fields hold; of a table its first entry."""
        found: list[int] = [instruction.__dict__[name] for name in self.addressed]
        if self.addressed[-1:] == ("table",):
            found[-1] = (found[-1] - 1) * TABLE_ENTRIES
        return found


@lru_cache(maxsize=64)
def _fields_of(opcode: Opcode, addressed: tuple[str, ...]) -> _Fields:
    names = tuple(each.name for each in fields(INSTRUCTION_TYPES[opcode]) if each.name not in addressed)
    return _Fields(addressed, names, itemgetter(*names))


def _fields(instruction: Instruction) -> _Fields:
    """The fields that hold addresses, and others; `Vector.table`, a number of a table, stands last."""
    match instruction:
        case Load() | Store():
            addressed: tuple[str, ...] = ("index", "offset")
        case Gemm():
            addressed = ("dst", "src", "wgt")
        case Vector(b_immediate=immediate, table=table):
            addressed = ("dst", "a", *(() if immediate else ("b",)), *(("table",) if table else ()))
        case _:
            addressed = ()
    return _fields_of(instruction.opcode, addressed)
