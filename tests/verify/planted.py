"""Faults in instructions: one field of one instruction of a program, changed to another legal value."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from weft.compiler.model import CompiledModel, CoreStep
from weft.hw.config import CoreConfig
from weft.hw.errors import InstructionError
from weft.hw.isa import Instruction, instruction_fields
from weft.hw.programs import assemble

TOKENS = [("wait", 5, False), ("send", 5, False)]


@dataclass(frozen=True)
class Planted:
    """``program``: the changed bytes; ``place``, ``name``: instruction and field."""

    place: int
    name: str
    old: Instruction
    new: Instruction
    program: npt.NDArray[np.uint8]


def plant(choice: random.Random, config: CoreConfig, instructions: Sequence[Instruction]) -> Planted:
    """A random fault that the decoder accepts."""
    while True:
        place = choice.randrange(len(instructions) - 1)
        old = instructions[place]
        fields = list(instruction_fields(config, old.opcode))
        name, width, signed = choice.choice(TOKENS if not fields or choice.random() < 0.1 else fields)
        value = int(getattr(old, name))
        step = choice.choice((-8, -4, -2, -1, 1, 2, 4, 8))
        changed = choice.choice((value ^ (1 << choice.randrange(width)), value + step))
        if not (-(1 << (width - 1)) if signed else 0) <= changed < (1 << (width - signed)):
            continue
        try:
            new = replace(old, **{name: type(getattr(old, name))(changed)})
            program = assemble(config, [*instructions[:place], new, *instructions[place + 1 :]])
        except (InstructionError, ValueError):
            continue
        return Planted(place, name, old, new, program)


def with_program(model: CompiledModel, number: int, program: npt.NDArray[np.uint8]) -> CompiledModel:
    """The model with other bytes for one of its programs."""
    step = model.programs[number]
    steps = tuple(
        replace(each, program=program) if isinstance(each, CoreStep) and each is step else each for each in model.steps
    )
    return replace(model, steps=steps)
