"""The fields of many instructions as arrays: packed into words, and taken out of words, all at once.

What a single instruction may not be is said by `isa.encode` and `decode.decode`. Whether a whole program has such a one
is found here for each combination of the fields that rules look at, of which a program has few.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from .config import CoreConfig
from .errors import InstructionError
from .isa import (
    ENUMERATED,
    FREE_FIELDS,
    HEADER,
    INSTRUCTION_TYPES,
    OPCODE_BITS,
    OPCODES,
    Instruction,
    Opcode,
    instruction_fields,
    unsealed,
    values_of,
)

Ints = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]
"""Of instructions, one a row, the lowest 64 bits first."""

BITS = 64

_MEMBERS: dict[str, dict[int, Any]] = {name: {int(each): each for each in kind} for name, kind in ENUMERATED.items()}


@dataclass(frozen=True)
class Columns:
    """All instructions of one kind in a program: their numbers in it, and the values of each field."""

    numbers: Ints
    fields: Mapping[str, Ints]


def columns_of(config: CoreConfig, words: Words) -> dict[Opcode, Columns] | None:
    """The instructions of sound words, by kind; None where one of them is illegal."""
    opcodes = (words[:, 0] & np.uint64((1 << OPCODE_BITS) - 1)).astype(np.int64)
    found: dict[Opcode, Columns] = {}
    for number in np.unique(opcodes).tolist():
        if number not in OPCODES:
            return None
        opcode, numbers = OPCODES[number], np.flatnonzero(opcodes == number)
        own, fields, position = words[numbers], {}, 0
        for name, width, signed in HEADER + instruction_fields(config, opcode):
            fields[name] = _taken(own, position, width, signed=signed)
            position += width
        end = config.instruction_bits - config.check_bits
        reserved = any(_taken(own, place, min(BITS // 2, end - place)).any()
                       for place in range(position, end, BITS // 2))  # fmt: skip
        names = [name for name in fields if name not in FREE_FIELDS and name != "opcode"]
        if reserved or not _legal(config, opcode, names, set(zip(*(fields[name].tolist() for name in names),
                                                                 strict=True))):  # fmt: skip
            return None
        found[opcode] = Columns(numbers, fields)
    return found


def instructions_of(kinds: Mapping[Opcode, Columns]) -> list[Instruction]:
    """The instructions whose columns these are, in the order of the program."""
    found: dict[int, Instruction] = {}
    for opcode, columns in kinds.items():
        kind, names = INSTRUCTION_TYPES[opcode], [name for name in columns.fields if name != "opcode"]
        values = [
            [_MEMBERS[name][value] for value in column] if name in _MEMBERS else column
            for name, column in ((name, columns.fields[name].tolist()) for name in names)
        ]
        for number, *own in zip(columns.numbers.tolist(), *values, strict=True):
            found[number] = kind(**dict(zip(names, own, strict=True)))
    return [found[number] for number in range(len(found))]


def in_columns(config: CoreConfig, program: Sequence[Instruction]) -> dict[Opcode, Columns] | None:
    """The instructions of a program, by kind; None where one has a value of more than 64 bits."""
    places: dict[Opcode, list[int]] = {}
    for place, instruction in enumerate(program):
        places.setdefault(instruction.opcode, []).append(place)
    found = {}
    for opcode, own in places.items():
        names = [name for name, *_ in HEADER + instruction_fields(config, opcode)]
        take = values_of(config, opcode)
        flat = chain.from_iterable([take(program[place]) for place in own])
        try:
            values = np.fromiter(flat, np.int64, len(own) * len(names)).reshape(len(own), -1).T
        except OverflowError:
            return None
        found[opcode] = Columns(np.array(own), dict(zip(names, values, strict=True)))
    return found


def packed(config: CoreConfig, kinds: Mapping[Opcode, Columns]) -> Words | None:
    """The words of a program, with check bits of 0; None where one of its instructions cannot be encoded."""
    length = sum(len(columns.numbers) for columns in kinds.values())
    words = np.zeros((length, config.instruction_bits // BITS), np.uint64)
    for opcode, columns in kinds.items():
        declared = HEADER + instruction_fields(config, opcode)
        names, own = [name for name, *_ in declared], columns.numbers
        values = [columns.fields[name] for name in names]
        rows, position = own, 0
        rules = np.zeros((len(own), words.shape[1]), np.uint64)  # the words, without what no rule looks at
        looked_at = []
        for number, (column, (name, width, signed)) in enumerate(zip(values, declared, strict=True)):
            low = -(1 << width - 1) if signed else 0
            if column.min() < low or column.max() >= low + (1 << width):
                return None
            bits = column.astype(np.uint64) & np.uint64((1 << width) - 1)
            _put(words, rows, position, bits, width)
            if name not in FREE_FIELDS and name != "opcode":
                looked_at.append(number)
                _put(rules, np.arange(len(own)), position, bits, width)
            position += width
        _, different = np.unique(rules.view(f"V{rules.itemsize * rules.shape[1]}"), return_index=True)
        combinations = zip(*(values[column][different].tolist() for column in looked_at), strict=True)
        if not _legal(config, opcode, [names[column] for column in looked_at], combinations):
            return None
    return words


def _legal(config: CoreConfig, opcode: Opcode, names: Sequence[str], combinations: Iterable[tuple[int, ...]]) -> bool:
    """Whether instructions with these values of the fields that rules look at are legal; all other fields are 0."""
    kind = INSTRUCTION_TYPES[opcode]
    others: dict[str, Any] = {name: 0 for name, *_ in instruction_fields(config, opcode) if name in FREE_FIELDS}
    try:
        for values in combinations:
            named: dict[str, Any] = {name: _MEMBERS[name][value] if name in _MEMBERS else value
                     for name, value in zip(names, values, strict=True)}  # fmt: skip
            unsealed(config, kind(**others, **named))
    except (InstructionError, KeyError):  # KeyError: of a value that has no name
        return False
    return True


def _taken(words: Words, position: int, width: int, *, signed: bool = False) -> Ints:
    """The fields of ``width`` bits at a bit of each word."""
    number, shift = divmod(position, BITS)
    values = words[:, number] >> np.uint64(shift)
    if shift + width > BITS:
        values = values | words[:, number + 1] << np.uint64(BITS - shift)
    found = (values & np.uint64((1 << width) - 1)).astype(np.int64)
    return (found ^ 1 << width - 1) - (1 << width - 1) if signed else found


def _put(words: Words, rows: Ints, position: int, values: Words, width: int) -> None:
    number, shift = divmod(position, BITS)
    words[rows, number] |= values << np.uint64(shift)
    if shift + width > BITS:
        words[rows, number + 1] |= values >> np.uint64(BITS - shift)
