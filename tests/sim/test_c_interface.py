"""Structs that Python and C++ share are laid out alike, and C++ refuses to compile where they are not."""

from __future__ import annotations

import ctypes
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from weft.sim.c_interface import CField, CStruct, enumeration, fields, header

MIXED = CStruct(
    "Mixed",
    (
        *fields("uint32_t", "first"),
        CField("table", "int32_t", (2, 3)),
        CField("bytes", "const uint8_t*"),
        CField("call", "int (*)(uint64_t)"),
    ),
)


def compiles(lines: list[str], folder: Path) -> bool:
    (folder / "check.cpp").write_text(header(lines))
    command = ["g++", "-std=c++17", "-w", "-fsyntax-only", "check.cpp"]
    return subprocess.run(command, cwd=folder, capture_output=True, check=False).returncode == 0


def test_members_lie_where_the_compiler_puts_them(tmp_path: Path) -> None:
    structure = MIXED.python()
    assert structure is CStruct(MIXED.name, MIXED.fields).python()
    lines = ["#include <cstddef>", MIXED.text]
    for field in MIXED.fields:
        offset = getattr(structure, field.name).offset
        lines.append(f"static_assert(offsetof(Mixed, {field.name}) == {offset});")
    assert compiles(lines, tmp_path)


def test_another_layout_does_not_compile(tmp_path: Path) -> None:
    longer = replace(MIXED, fields=(*MIXED.fields, *fields("int64_t", "more")))
    size = f"== {ctypes.sizeof(MIXED.python())}"
    assert compiles([longer.text], tmp_path)
    assert not compiles([longer.text.replace(f"== {ctypes.sizeof(longer.python())}", size)], tmp_path)


@pytest.mark.parametrize(("name", "value"), [("kOpLoad", 2), ("kOpMinAccumulate", 10)])
def test_enumerations_have_pythons_numbers(name: str, value: int, tmp_path: Path) -> None:
    text = enumeration("Op", "uint8_t", "kOp", {"LOAD": 2, "MIN_ACCUMULATE": 10})
    assert compiles([text, f"static_assert({name} == {value});"], tmp_path)
