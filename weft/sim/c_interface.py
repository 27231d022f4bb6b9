"""What Python and the C++ of the simulators share, written down once: structs, enumerations and constants.

Python's side of a :class:`CStruct` is made by :meth:`CStruct.python`, the C++ text by :meth:`CStruct.text`; the text
asserts that the compiler lays the struct out as Python does.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

_TYPES: dict[str, Any] = {
    "int32_t": ctypes.c_int32,
    "int64_t": ctypes.c_int64,
    "uint32_t": ctypes.c_uint32,
    "uint64_t": ctypes.c_uint64,
}


@dataclass(frozen=True)
class CField:
    """One member: a type of C, a pointer to one, or (nested) arrays of one; extents are from the outside in."""

    name: str
    type: str
    extents: tuple[int, ...] = ()

    @property
    def python(self) -> Any:
        """The type in ``ctypes``; pointers of all kinds are addresses."""
        kind = _TYPES.get(self.type, ctypes.c_void_p)
        for extent in reversed(self.extents):
            kind = kind * extent
        return kind

    @property
    def text(self) -> str:
        """The declaration in C++."""
        # Of 8 bytes on a machine with shorter addresses as well, so that structs are the same everywhere.
        aligned = "" if self.type in _TYPES else "alignas(8) "
        if "(*)" in self.type:  # a pointer to a function has its name inside
            return aligned + self.type.replace("(*)", f"(*{self.name})")
        return f"{aligned}{self.type} {self.name}{''.join(f'[{extent}]' for extent in self.extents)}"


@dataclass(frozen=True)
class CStruct:
    """A struct of both languages, with members in order."""

    name: str
    fields: tuple[CField, ...]

    def python(self) -> Any:
        """The ``ctypes`` structure; the same one each time."""
        return _structure(self)

    @property
    def text(self) -> str:
        """The definition in C++."""
        members = "".join(f"    {field.text};\n" for field in self.fields)
        size = ctypes.sizeof(self.python())
        return f"struct {self.name} {{\n{members}}};\nstatic_assert(sizeof({self.name}) == {size});"


@cache
def _structure(struct: CStruct) -> Any:
    members = [(field.name, field.python) for field in struct.fields]
    return type(struct.name, (ctypes.Structure,), {"_fields_": members})


def fields(kind: str, *names: str) -> tuple[CField, ...]:
    """Members of one type."""
    return tuple(CField(name, kind) for name in names)


def enumeration(name: str, shape: str, prefix: str, members: Mapping[str, int]) -> str:
    """The C++ definition of an enumeration, its members in camel case after ``prefix``: ``kOpLoad = 2``."""
    listed = ", ".join(f"{prefix}{camel(member)} = {int(value)}" for member, value in members.items())
    return f"enum {name} : {shape} {{ {listed} }};"


def camel(name: str) -> str:
    """``TOKEN_LOAD`` -> ``TokenLoad``."""
    return "".join(word.capitalize() for word in name.split("_"))


def header(lines: Sequence[str]) -> str:
    """A C++ header with ``lines``."""
    return "\n".join(["#pragma once", "#include <cstdint>", *lines, ""])


EVENT = CStruct("WeftEvent", (*fields("uint32_t", "engine", "number"), *fields("uint64_t", "start", "retire")))
"""One instruction's life: cycle of its start and of its retirement."""

BUS_USE = CStruct("WeftBusUse", (*fields("uint32_t", "cores", "writes"), *fields("uint64_t", "start", "cycles")))
"""Consecutive cycles with a word of reads, or of writes, for the same cores, a bit for each."""

ACTIVITY = CStruct("WeftActivity", (*fields("uint32_t", "engine", "kind"), *fields("uint64_t", "start", "cycles")))
"""Consecutive cycles that an engine spent in one :class:`~weft.hw.interfaces.CycleClass` (``kind``)."""
