"""Programs: instructions as bytes in DRAM, and back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from . import columns
from .config import CoreConfig
from .decode import DAMAGED, decode_sound
from .errors import InstructionError
from .instruction_checksum import damaged_words, seal_words
from .isa import Instruction, Load, Opcode, Store, unsealed

Code = npt.NDArray[np.uint8]
Columns = columns.Columns


def assemble(config: CoreConfig, program: Sequence[Instruction]) -> Code:
    """Program bytes as they lie in DRAM, ``instruction_bytes`` each, little endian; InstructionError for an instruction
    that cannot be encoded."""
    kinds = columns.in_columns(config, program)
    words = None if kinds is None else columns.packed(config, kinds)
    return _refused(config, program) if words is None else _sealed(config, words)


def assemble_columns(config: CoreConfig, kinds: Mapping[Opcode, Columns]) -> Code:
    """As :func:`assemble`, of instructions by kind."""
    words = columns.packed(config, kinds)
    return _refused(config, columns.instructions_of(kinds)) if words is None else _sealed(config, words)


def _refused(config: CoreConfig, program: Sequence[Instruction]) -> Code:
    for instruction in program:
        unsealed(config, instruction)  # one of them says what is wrong
    raise AssertionError("instructions that can be encoded one by one cannot be together")


def _sealed(config: CoreConfig, words: columns.Words) -> Code:
    return seal_words(words.astype("<u8").view(np.uint8).reshape(-1, config.instruction_bytes)).ravel()


def moved(program: Sequence[Instruction], granules: int, which: Callable[[Load | Store], bool]) -> list[Instruction]:
    """The program with ``granules`` added to the offset of each transfer that ``which`` is true of."""
    return [
        replace(each, offset=each.offset + granules) if isinstance(each, (Load, Store)) and which(each) else each
        for each in program
    ]


def program_words(config: CoreConfig, program: Code) -> list[int]:
    """Split program bytes into instruction words; the length must be a whole number of instructions."""
    raw = program.tobytes()
    size = config.instruction_bytes
    if len(raw) % size:
        raise InstructionError(f"a program of {len(raw)} bytes is not a whole number of {size}-byte instructions")
    return [int.from_bytes(raw[start : start + size], "little") for start in range(0, len(raw), size)]


def columns_of(config: CoreConfig, program: Code) -> dict[Opcode, Columns]:
    """The fields of a program's instructions, by their kind; InstructionError as of :func:`disassemble`."""
    found = None
    if program.nbytes % config.instruction_bytes == 0:
        raw = np.frombuffer(program.tobytes(), np.uint8).reshape(-1, config.instruction_bytes)
        if not damaged_words(raw).any():
            found = columns.columns_of(config, raw.view("<u8").astype(np.uint64))
    if found is None:
        disassemble(config, program)
        raise AssertionError("instructions that are legal one by one are not together")
    return found


def disassemble(config: CoreConfig, program: Code) -> list[Instruction]:
    """Instructions of a program; :class:`InstructionError` names the number of an illegal one."""
    instructions = []
    words = program_words(config, program)
    damaged = damaged_words(np.frombuffer(program.tobytes(), np.uint8).reshape(-1, config.instruction_bytes)).tolist()
    for number, word in enumerate(words):
        try:
            if damaged[number]:
                raise InstructionError(DAMAGED)
            instructions.append(decode_sound(config, word))
        except InstructionError as error:
            raise InstructionError(f"instruction {number}: {error}") from error
    return instructions
