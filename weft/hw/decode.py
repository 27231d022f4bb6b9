"""Instructions out of words: the reverse of `isa.encode`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache

from .config import CoreConfig
from .errors import InstructionError
from .isa import (
    ENUMERATED,
    HEADER,
    INSTRUCTION_TYPES,
    OPCODE_BITS,
    OPCODES,
    Instruction,
    Opcode,
    body_problem,
    header_problem,
    instruction_fields,
    seal,
)

_MEMBERS = {name: {int(member): member for member in kind} for name, kind in ENUMERATED.items()}

DAMAGED = "the instruction is damaged: its check bits do not fit its other bits"


def decode(config: CoreConfig, word: int) -> Instruction:
    """The instruction behind an integer; :class:`InstructionError` where the core raises CORRUPT or ILLEGAL."""
    if word != seal(config, word):
        raise InstructionError(DAMAGED)
    return decode_sound(config, word)


def decode_sound(config: CoreConfig, word: int) -> Instruction:
    """As :func:`decode`, of a word whose check bits are known to fit."""
    opcode_bits = word & (1 << OPCODE_BITS) - 1
    if opcode_bits not in OPCODES:
        raise InstructionError(f"no instruction has opcode {opcode_bits}")
    opcode = OPCODES[opcode_bits]
    fields, reserved = _decoding(config, opcode)
    if word & reserved:
        raise InstructionError(f"{opcode.name}: reserved bits are set")
    values: dict[str, int] = {}
    for name, position, mask, sign, members in fields:
        value = word >> position & mask
        if value & sign:
            value -= mask + 1
        if members is not None:
            if value not in members:
                raise InstructionError(f"{opcode.name}: {name} is {value}, which does not exist")
            value = members[value]
        values[name] = value
    instruction = INSTRUCTION_TYPES[opcode](**values)  # type: ignore[arg-type]
    if problem := header_problem(instruction) or body_problem(config, instruction):
        raise InstructionError(f"{opcode.name}: {problem}")
    return instruction


def field_places(config: CoreConfig, opcode: Opcode) -> Iterator[tuple[str, int, int, bool]]:
    """Of each field of an instruction, header first: name, lowest bit, width, and whether it is signed."""
    position = 0
    for name, width, signed in HEADER + instruction_fields(config, opcode):
        yield name, position, width, signed
        position += width


@lru_cache(maxsize=1024)
def _decoding(
    config: CoreConfig, opcode: Opcode
) -> tuple[list[tuple[str, int, int, int, Mapping[int, int] | None]], int]:  # fmt: skip
    """Of each field of an instruction but its opcode: name, lowest bit, mask, sign bit (0: it has none) and the values
    that exist, if not all; and the word's bits that are reserved."""
    fields: list[tuple[str, int, int, int, Mapping[int, int] | None]] = []
    used = 0
    for name, position, width, signed in field_places(config, opcode):
        used = position + width
        if name != "opcode":
            sign = 1 << width - 1 if signed else 0
            fields.append((name, position, (1 << width) - 1, sign, _MEMBERS.get(name)))
    end = config.instruction_bits - config.check_bits
    return fields, (1 << end) - (1 << used)
