"""The text form of instructions, one a line, for listings, error texts and hand-written programs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import MISSING, fields
from enum import IntEnum
from typing import TypeVar

from .errors import InstructionError
from .isa import (
    ENGINE_NAMES,
    ENUMERATED,
    INSTRUCTION_TYPES,
    Engine,
    Instruction,
    Opcode,
    engine_mask,
    mask_engines,
)


def format_instruction(instruction: Instruction) -> str:
    """One line of assembly, e.g. ``gemm gemm dst=0 src=4 wgt=1 zero=1 wait=load,loadw``; defaults are left out."""
    words = [instruction.opcode.name.lower()]
    if instruction.opcode is not Opcode.FINISH:
        words.append(ENGINE_NAMES[instruction.engine])
    for item in fields(instruction):
        value = getattr(instruction, item.name)
        if item.name == "engine" or (item.default is not MISSING and value == item.default):
            continue
        if item.name in ("wait", "send"):
            words.append(f"{item.name}={','.join(ENGINE_NAMES[engine] for engine in mask_engines(value))}")
        elif isinstance(value, IntEnum):
            words.append(f"{item.name}={value.name.lower()}")
        else:
            words.append(f"{item.name}={value}")
    return " ".join(words)


def parse_instruction(text: str) -> Instruction:
    """Read what :func:`format_instruction` wrote; :class:`InstructionError` shows the word at fault."""
    words = text.split("#")[0].split()
    if not words or words[0].upper() not in Opcode.__members__:
        raise InstructionError(
            f"no instruction is called {words[0] if words else ''!r}", hint=_one_of(Opcode.__members__)
        )
    kind = INSTRUCTION_TYPES[Opcode[words[0].upper()]]
    values: dict[str, int] = {}
    rest = words[1:]
    if rest and "=" not in rest[0]:
        values["engine"] = _parse_member(Engine, rest.pop(0))
    names = {item.name for item in fields(kind)}
    for word in rest:
        name, _, value = word.partition("=")
        if name not in names or not value:
            raise InstructionError(f"{words[0]} has no field {word!r}", hint=_one_of(names))
        if name in ("wait", "send"):
            values[name] = engine_mask(_parse_member(Engine, part) for part in value.split(","))
        elif name in ENUMERATED:
            values[name] = _parse_member(ENUMERATED[name], value)
        else:
            try:
                values[name] = int(value, 0)
            except ValueError:
                raise InstructionError(f"{words[0]}: {name} is {value!r}, which is not a number") from None
    try:
        return kind(**values)  # type: ignore[arg-type]
    except TypeError as error:
        raise InstructionError(f"{words[0]}: {str(error).split('__init__() ')[-1]}") from None


Member = TypeVar("Member", bound=IntEnum)


def _parse_member(kind: type[Member], text: str) -> Member:
    if text.upper() not in kind.__members__:
        raise InstructionError(f"unknown {kind.__name__.lower()} {text!r}", hint=_one_of(kind.__members__))
    return kind[text.upper()]


def _one_of(names: Iterable[str]) -> str:
    return f"one of: {', '.join(sorted(name.lower() for name in names))}"
