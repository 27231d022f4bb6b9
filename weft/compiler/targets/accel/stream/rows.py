"""The instructions of a stream as arrays: forms, of which there are few, and what each instruction has of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property, lru_cache
from operator import itemgetter
from typing import Any, NamedTuple, overload

import numpy as np
import numpy.typing as npt

from .....hw.config import LOOP_LEVELS, CoreConfig
from .....hw.isa import (
    HEADER,
    INSTRUCTION_TYPES,
    Engine,
    Gemm,
    Instruction,
    Load,
    Opcode,
    Store,
    Vector,
    instruction_fields,
)
from .....hw.load_counts import bytes_each
from .....hw.memories import Memory
from .....hw.programs import Columns
from .stream import Access, Issue

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

Shape = tuple[Memory, tuple[int, ...], tuple[int, ...]]
"""Memory, extents and strides of an access."""


@dataclass(frozen=True)
class Form:
    """What instructions have in common that differ in nothing but addresses. ``fields``: of the instruction, without
    those at ``addressed``; ``sets``: of the accesses; so many of these, the first, are ``reads``, and which of them are
    ``writes``. ``left_out``: DRAM is left out of what is only read, and of what is written (`Issue.forget`)."""

    kind: type[Instruction]
    fields: tuple[tuple[str, Any], ...]
    addressed: tuple[str, ...]
    sets: tuple[Shape, ...]
    reads: int
    writes: tuple[int, ...]
    left_out: tuple[bool, bool] = (False, False)

    @cached_property
    def common(self) -> dict[str, Any]:
        """The fields by their names."""
        return dict(self.fields)

    @cached_property
    def accesses(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The sets that are only read, and those that are written, as :attr:`Issue.accesses` has them."""
        reads = [each for each in range(self.reads) if each not in self.writes]
        several = []
        for own, forgets in zip((reads, self.writes), self.left_out, strict=True):
            several.append(tuple([each for each in own if not (forgets and self.sets[each][0] is Memory.DRAM)]))
        return several[0], several[1]

    @cached_property
    def width(self) -> int:
        """Addresses of an instruction."""
        return len(self.addressed) + len(self.sets)

    @cached_property
    def example(self) -> Instruction:
        """One with addresses of 0."""
        return self.issue([0] * self.width, 0, 0).instruction

    def issue(self, addresses: Sequence[int], layer: int, tile: int) -> Issue:
        """The instruction with these addresses: what the addressed fields hold, then where the accesses begin."""
        instruction: Any = object.__new__(self.kind)  # `replace` takes several times as long
        instruction.__dict__.update(self.common)
        instruction.__dict__.update(zip(self.addressed, addresses, strict=False))
        starts = addresses[len(self.addressed) : self.width]
        made = [Access(memory, start, extents, strides)
                for (memory, extents, strides), start in zip(self.sets, starts, strict=True)]  # fmt: skip
        only_read, written = (tuple([made[each] for each in own]) for own in self.accesses)
        writes = tuple([made[each] for each in self.writes])
        return Issue(instruction, tuple(made[: self.reads]), writes, layer, tile, _accesses=(only_read, written))


class FormFinder:
    """Forms of instructions, each with its number."""

    def __init__(self) -> None:
        self.forms: list[Form] = []
        self._numbers: dict[tuple[Any, ...], int] = {}

    def number(self, issue: Issue) -> tuple[int, list[int]]:
        """Of an instruction's form; and its addresses."""
        instruction, accesses = issue.instruction, list(issue.reads)
        writes = tuple([_place(each, accesses) for each in issue.writes])
        own = _fields(instruction)
        sets = tuple([(each.memory, each.extents, each.strides) for each in accesses])
        left_out = _left_out(issue)
        form = own.others(instruction.__dict__), own, sets, len(issue.reads), writes, left_out
        number = self._numbers.setdefault(form, len(self.forms))
        if number == len(self.forms):
            self.forms.append(Form(type(instruction), tuple(zip(own.names, form[0], strict=True)), own.addressed,
                                   sets, len(issue.reads), writes, left_out))  # fmt: skip
        return number, [*own.values(instruction.__dict__), *[each.start for each in accesses]]


@dataclass(frozen=True)
class Rows(Sequence[Issue]):
    """The instructions of a stream. Instruction n has form ``form_of[n]``, is of layer ``layers[n]`` and tile
    ``tiles[n]``, and has the addresses of row n, in which zeros may follow."""

    forms: Sequence[Form]
    form_of: Ints
    addresses: Ints
    layers: Ints
    tiles: Ints

    @classmethod
    def of(cls, issues: Iterable[Issue]) -> Rows:
        """Those of single instructions."""
        found, form_of, addresses, layers, tiles = FormFinder(), [], [], [], []
        for issue in issues:
            number, own = found.number(issue)
            form_of.append(number)
            addresses.append(own)
            layers.append(issue.layer)
            tiles.append(issue.tile)
        return cls(found.forms, _ints(form_of), padded(addresses), _ints(layers), _ints(tiles))

    @classmethod
    def joined(cls, parts: Sequence[Rows]) -> Rows:
        """Those of all parts, one after the other."""
        if len(parts) == 1:
            return parts[0]
        numbers: dict[Form, int] = {}
        form_of = [_ints([numbers.setdefault(each, len(numbers)) for each in part.forms])[part.form_of]
                   for part in parts]  # fmt: skip
        width = max((part.addresses.shape[1] for part in parts), default=0)
        addresses = np.zeros((sum(map(len, parts)), width), np.int64)
        done = 0
        for part in parts:
            addresses[done : done + len(part), : part.addresses.shape[1]] = part.addresses
            done += len(part)
        none = [_ints([])]
        return cls(
            list(numbers), np.concatenate(none + form_of), addresses,
            np.concatenate(none + [part.layers for part in parts]),
            np.concatenate(none + [part.tiles for part in parts]),
        )  # fmt: skip

    def picked(self, places: Ints) -> Rows:
        """The instructions at these places, in this order."""
        return replace(self, form_of=self.form_of[places], addresses=self.addresses[places], layers=self.layers[places],
                       tiles=self.tiles[places])  # fmt: skip

    @overload
    def __getitem__(self, place: int) -> Issue: ...

    @overload
    def __getitem__(self, place: slice) -> list[Issue]: ...

    def __getitem__(self, place: int | slice) -> Issue | list[Issue]:
        if isinstance(place, slice):
            return list(self.picked(np.arange(*place.indices(len(self)))))
        form = self.forms[int(self.form_of[place])]
        return form.issue(self.addresses[place].tolist(), int(self.layers[place]), int(self.tiles[place]))

    def __len__(self) -> int:
        return len(self.form_of)

    def __iter__(self) -> Iterator[Issue]:
        rows = zip(self.form_of.tolist(), self.addresses.tolist(), self.layers.tolist(), self.tiles.tolist(),
                   strict=True)  # fmt: skip
        for number, addresses, layer, tile in rows:
            yield self.forms[number].issue(addresses, layer, tile)

    def by_form(self, value: Callable[[Form], int]) -> Ints:
        """Of each instruction what follows from its form."""
        return _ints([value(form) for form in self.forms])[self.form_of]

    @cached_property
    def opcodes(self) -> Ints:
        """The kind of each instruction."""
        return self.by_form(lambda form: form.kind.opcode)

    @cached_property
    def engines(self) -> Ints:
        """The engine of each instruction."""
        return self.by_form(lambda form: form.common["engine"])

    def places(self, *opcodes: Opcode) -> Ints:
        """Where instructions of these kinds are."""
        return np.flatnonzero(np.isin(self.opcodes, opcodes))

    def column(self, name: str, places: Ints) -> Ints:
        """A field of the instructions at some places; 0 where they have none of this name."""
        common = _ints([int(form.common.get(name, 0)) for form in self.forms])
        where = _ints([form.addressed.index(name) if name in form.addressed else -1 for form in self.forms])
        numbers = self.form_of[places]
        found, at = common[numbers], where[numbers]
        own = np.flatnonzero(at >= 0)
        found[own] = self.addresses[places[own], at[own]]
        return found


def columns_of_rows(config: CoreConfig, rows: Rows, waits: Ints, sends: Ints) -> dict[Opcode, Columns]:
    """The program of a stream with tokens, which ends with FINISH, as columns."""
    found = {}
    for opcode in map(Opcode, np.unique(rows.opcodes).tolist()):
        own = rows.places(opcode)
        fields = {"wait": waits[own], "send": sends[own], "opcode": np.full(len(own), opcode, np.int64)}
        declared = [name for name, *_ in HEADER + instruction_fields(config, opcode)]
        found[opcode] = Columns(own, {name: fields[name] if name in fields else rows.column(name, own)
                                      for name in declared})  # fmt: skip
    end = {"opcode": Opcode.FINISH, "engine": Engine.LOAD, "wait": 0, "send": 0}
    found[Opcode.FINISH] = Columns(_ints([len(rows)]), {name: _ints([value]) for name, value in end.items()})
    return found


def transferred(config: CoreConfig, rows: Rows, places: Ints) -> Ints:
    """Bytes of DRAM that the transfers at some places read or write."""
    return rows.column("rows", places) * rows.column("columns", places) * bytes_of_each(config, rows)[places]


def bytes_of_each(config: CoreConfig, rows: Rows) -> Ints:
    """Bytes in DRAM of what the columns of a transfer count; 0 of other instructions."""

    def of(form: Form) -> int:
        match form.example:
            case Load() as load:
                return bytes_each(config, load)
            case Store():
                return config.out_bytes
        return 0

    return rows.by_form(of)


def loops_held(rows: Rows, engine: Engine, places: Ints, fields: Sequence[str]) -> Ints:
    """What the loop registers of an engine hold at some places: these fields of each level, 0 where none was set;
    first axis: the fields, last axis: levels."""
    found = np.zeros((len(fields), len(places), LOOP_LEVELS), np.int64)
    loops = rows.places(Opcode.LOOP)
    loops = loops[rows.engines[loops] == engine]
    of_level = rows.column("level", loops)
    for level in np.unique(of_level).tolist():
        own = loops[of_level == level]
        last = np.searchsorted(own, places) - 1
        for number, name in enumerate(fields):
            found[number, :, level] = np.where(last >= 0, rows.column(name, own)[last], 0)
    return found


def last_of(rows: Rows, opcode: Opcode) -> int:
    """The place of the last such instruction; -1 where there is none."""
    return int(rows.places(opcode).max(initial=-1))


def padded(rows: Sequence[Sequence[int]]) -> Ints:
    """Rows of a matrix that are filled up with zeros."""
    width = max(map(len, rows), default=0)
    return np.array([[*row, *[0] * (width - len(row))] for row in rows], np.int64).reshape(len(rows), width)


def _ints(values: Sequence[int]) -> Ints:
    return np.array(values, np.int64)


def _left_out(issue: Issue) -> tuple[bool, bool]:
    """Whether DRAM is left out of what an instruction only reads, and of what it writes."""
    reads, writes = issue.accesses
    only_read = [each for each in issue.reads if not any(each is other for other in issue.writes)]
    return len(reads) < len(only_read), len(writes) < len(issue.writes)


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

    def values(self, fields: Mapping[str, Any]) -> list[int]:
        """What the addressed fields hold."""
        return [fields[name] for name in self.addressed]


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
