"""Python's side of ``harness.cpp``: the structs, numbers and constants that both use."""

from __future__ import annotations

import ctypes
from enum import IntEnum, unique
from functools import cache
from importlib import resources

from ..hw.axi import ID_BITS, PAGE_BYTES, Response
from ..hw.isa import Engine
from .c_interface import ACTIVITY, EVENT, CField, CStruct, enumeration, fields, header
from .dram import BusFault

INTERFACE = "harness_interface.h"
"""The header that :func:`interface_header` is written to."""


@unique
class Outcome(IntEnum):
    """How a run ended."""

    FINISHED = 0
    CYCLE_LIMIT = 1
    PROTOCOL_ERROR = 2


_ACCESS = CStruct("WeftAccess", fields("uint32_t", "address", "value"))

_DRAM = CStruct(
    "WeftDram",
    (
        CField("bytes", "uint8_t*"),
        CField("size", "uint64_t"),
        CField("base", "uint64_t"),  # bus address of bytes[0]
        *fields("uint64_t", "latency", "bytes_per_cycle", "jitter", "seed", "outstanding", "reorder"),
        *fields("uint64_t", "error_start", "error_stop"),  # bus addresses
        *fields("uint64_t", "error_reads", "error_writes"),
    ),
)

_RUN = CStruct(
    "WeftRun",
    (
        CField("before", "const WeftAccess*"),  # writes; the last one starts the program
        CField("before_count", "uint64_t"),
        CField("reads", "WeftAccess*"),  # filled in after the end
        CField("reads_count", "uint64_t"),
        CField("status_address", "uint32_t"),
        CField("status_busy", "uint32_t"),  # mask: registers are read once none of these bits is set
        *fields("uint64_t", "cycle_limit", "trace"),
        CField("moments", "const uint64_t*"),  # cycles of the run, ascending, in which visit is called
        CField("moments_count", "uint64_t"),
        CField("visit", "void (*)(uint64_t cycle)"),
    ),
)

Access, Dram, Run = _ACCESS.python(), _DRAM.python(), _RUN.python()
Visit = ctypes.CFUNCTYPE(None, ctypes.c_uint64)


@cache
def interface_header() -> str:
    """C++ for all that is shared."""
    return header(
        [
            f"constexpr unsigned kEngines = {len(Engine)};",
            f"constexpr unsigned kIds = {1 << ID_BITS};",
            f"constexpr unsigned kPageBytes = {PAGE_BYTES};",
            enumeration("WeftResponse", "uint8_t", "kResponse", {each.name: each.value for each in Response}),
            enumeration(
                "WeftBusFault", "uint32_t", "kFault", {"NONE": 0, **{each.name: each.value for each in BusFault}}
            ),
            enumeration("WeftOutcome", "int", "kOutcome", {each.name: each.value for each in Outcome}),
            *(struct.text for struct in (_DRAM, _ACCESS, _RUN, EVENT, ACTIVITY)),
        ]
    )


@cache
def harness_files() -> dict[str, str]:
    """Names and texts of the C++ beside the verilated core."""
    source = resources.files(__package__).joinpath("harness.cpp").read_text()
    return {"harness.cpp": source, INTERFACE: interface_header()}
