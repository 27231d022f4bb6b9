"""Programs: instructions as bytes in DRAM, and back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from .config import CoreConfig
from .decode import DAMAGED, decode_sound
from .errors import InstructionError
from .instruction_checksum import damaged_words, seal_words
from .isa import Instruction, Load, Store, unsealed

Code = npt.NDArray[np.uint8]


def assemble(config: CoreConfig, program: Sequence[Instruction]) -> Code:
    """Program bytes as they lie in DRAM, ``instruction_bytes`` each, little endian."""
    size = config.instruction_bytes
    words = b"".join([unsealed(config, instruction).to_bytes(size, "little") for instruction in program])
    return seal_words(np.frombuffer(words, dtype=np.uint8).reshape(-1, size)).ravel()


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
