"""Compiles the timing model (``timing.cpp``) once for each version of its sources, into the user's cache folder."""

from __future__ import annotations

import ctypes
from functools import cache
from importlib import resources
from pathlib import Path

from ..cache import cache_key, kept_file
from ..hw.axi import PAGE_BYTES, ReadClient
from ..hw.config import LOOP_LEVELS
from ..hw.interfaces import CycleClass
from ..hw.isa import HEADER, Engine, Opcode, Scratchpad, VectorOp
from ..hw.load_writer import LoadKind
from .build import compiler_flags, run_compiler

SOURCE = "timing.cpp"
HEADERS = ("timing.h", "timing_memory.h", "timing_control.h", "timing_compute.h", "timing_transfer.h")

CONSTANTS = "timing_isa.h"

CLASSES = 1 << CycleClass.as_shape().width
"""Numbers that a cycle class may have."""

OPCODES = 1 << HEADER[0][1]
"""Numbers that an opcode may have."""


def constants_header() -> str:
    """C++ for the enumerations of the instruction set, so that they are written down once, in ``hw/``."""
    enums: dict[str, tuple[str, str, dict[str, int]]] = {
        "Engine": ("unsigned", "k", {each.name: each.value for each in Engine}),
        "ReadId": ("unsigned", "kClient", {each.name: each.value for each in ReadClient}),
        "Opcode": ("uint8_t", "kOp", {each.name: each.value for each in Opcode}),
        "VectorOp": ("uint8_t", "kOp", {each.name: each.value for each in VectorOp}),
        "Scratchpad": ("uint32_t", "kPad", {each.name: each.value for each in Scratchpad}),
        "LoadKind": ("unsigned", "kWrite", {each.name: each.value for each in LoadKind}),
        "Class": ("uint8_t", "k", {name: each.value for name, each in CycleClass.__members__.items()}),
    }
    numbers = {
        "kEngines": len(Engine),
        "kReadClients": len(ReadClient),
        "kOpcodes": OPCODES,
        "kLoadKinds": len(LoadKind),
        "kClasses": CLASSES,
        "kLevels": LOOP_LEVELS,
    }
    lines = ["#pragma once", "#include <cstdint>", "namespace weft {"]
    for name, (shape, prefix, members) in enums.items():
        listed = ", ".join(f"{prefix}{_camel(member)} = {value}" for member, value in members.items())
        lines.append(f"enum {name} : {shape} {{ {listed} }};")
    lines += [f"constexpr unsigned {name} = {value};" for name, value in numbers.items()]
    lines += [f"constexpr int64_t kPageBytes = {PAGE_BYTES};", "}  // namespace weft", ""]
    return "\n".join(lines)


def _camel(name: str) -> str:
    return "".join(word.capitalize() for word in name.split("_"))


@cache
def timing_library() -> ctypes.CDLL:
    """The compiled model; takes some seconds the first time. :class:`BuildError` if there is no C++ compiler."""
    texts = {name: resources.files(__package__).joinpath(name).read_text() for name in (SOURCE, *HEADERS)}
    texts[CONSTANTS] = constants_header()
    flags = [*compiler_flags(), "-O2"]

    def build(library: Path) -> None:
        for name, text in texts.items():
            (library.parent / name).write_text(text)
        run_compiler([*flags, "-shared", "-o", str(library), str(library.parent / SOURCE)])

    library = kept_file("timing", f"{cache_key(*flags, *texts.values())}.so", build)
    loaded = ctypes.CDLL(str(library))
    loaded.weft_timing_predict.restype = ctypes.c_void_p
    loaded.weft_timing_predict.argtypes = [
        ctypes.c_void_p,
        ctypes.c_void_p,
        ctypes.c_uint64,
        ctypes.c_uint32,
        ctypes.c_int64,
        ctypes.c_int32,
        ctypes.c_int32,
        ctypes.c_void_p,
    ]
    loaded.weft_timing_delete.restype = None
    loaded.weft_timing_delete.argtypes = [ctypes.c_void_p]
    for name in ("events", "activity"):
        function = getattr(loaded, f"weft_timing_{name}")
        function.restype = ctypes.c_uint64
        function.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    return loaded
