"""Python's side of ``harness.cpp``: the structs, numbers and constants that both use."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from enum import IntEnum, unique
from functools import cache
from importlib import resources

from ..hw.bus import PAGE_BYTES, Response
from ..hw.isa import Engine
from .c_interface import ACTIVITY, EVENT, CField, CStruct, enumeration, fields, header
from .dram import BusFault
from .dram_interface import interface_lines

INTERFACE = "harness_interface.h"
"""The header that :func:`interface_header` is written to."""


@unique
class Outcome(IntEnum):
    """How a run ended."""

    FINISHED = 0
    CYCLE_LIMIT = 1
    PROTOCOL_ERROR = 2


_ACCESS = CStruct("WeftAccess", fields("uint32_t", "address", "value"))

_START = CStruct("WeftStart", (*fields("uint32_t", "address", "value"), CField("cycle", "uint64_t")))

_DRAM = CStruct(
    "WeftDram",
    (
        CField("bytes", "uint8_t*"),
        CField("size", "uint64_t"),
        CField("base", "uint64_t"),  # bus address of bytes[0]
        *fields("uint64_t", "latency", "bytes_per_cycle", "jitter", "seed", "outstanding", "reorder"),
        *fields("uint64_t", "error_start", "error_stop"),  # bus addresses
        *fields("uint64_t", "error_reads", "error_writes"),
        CField("banks", "const WeftBanks*"),  # null: each port has a memory of its own, without banks
    ),
)

_RUN = CStruct(
    "WeftRun",
    (
        CField(
            "before", "const WeftAccess*"
        ),  # writes; the last one starts the program, if `starts` is empty; if both are, what runs goes on
        CField("before_count", "uint64_t"),
        CField("starts", "WeftStart*"),  # each in its cycle or as soon as it can be; the cycle is filled in
        CField("starts_count", "uint64_t"),
        CField("reads", "WeftAccess*"),  # filled in after the end
        CField("reads_count", "uint64_t"),
        CField("status_address", "uint32_t"),
        CField("status_busy", "uint32_t"),  # mask: registers are read once none of these bits is set
        CField("interrupts", "uint64_t"),  # mask: of the cores that run; the run ends when all of these are high
        CField("core_bytes", "uint64_t"),  # from the registers of one core to those of the next
        *fields("uint64_t", "cycle_limit", "trace"),
        CField("uncounted", "uint64_t"),  # cycles from the last of `before` that the core's own count lacks
        CField("more", "uint64_t"),  # whether what runs goes on, so that all cycles until the next call are of the run
        CField("moments", "const uint64_t*"),  # cycles of the run, ascending, in which visit is called
        CField("moments_count", "uint64_t"),
        CField("visit", "void (*)(uint64_t cycle)"),
    ),
)

Access, Start, Dram, Run = (each.python() for each in (_ACCESS, _START, _DRAM, _RUN))
Visit = ctypes.CFUNCTYPE(None, ctypes.c_uint64)


BUS_SIGNALS = (
    *(
        f"{channel}{name}"
        for channel in ("ar", "aw")
        for name in ("valid", "ready", "addr", "len", "size", "burst", "id")
    ),
    *("rvalid", "rready", "rid", "rdata", "rresp", "rlast"),
    *("wvalid", "wready", "wdata", "wstrb", "wlast", "bvalid", "bready", "bid", "bresp"),
)
"""Signals of a memory port that the harness looks at."""


def bus_text(prefixes: Sequence[str], id_bits: int, burst_beats: int) -> list[str]:
    """C++ lines: the struct ``WeftBus`` of one port's signals, that of each port of the verilated core, and limits."""
    lines = ["#include <type_traits>", f"constexpr unsigned kPorts = {len(prefixes)};"]
    lines += [f"constexpr unsigned kIds = {1 << id_bits};", f"constexpr unsigned kBurstBeats = {burst_beats};"]
    lines += ["struct WeftBus {"]
    lines += [f"    std::remove_reference_t<decltype(Vcore::{prefixes[0]}{name})>& {name};" for name in BUS_SIGNALS]
    lines += ["};", "static inline WeftBus weft_bus(Vcore& core, unsigned port) {"]
    for port, prefix in enumerate(prefixes):
        lines.append(f"    if (port == {port}) return {{{', '.join(f'core.{prefix}{name}' for name in BUS_SIGNALS)}}};")
    return [*lines, "    __builtin_unreachable();", "}"]


@cache
def interface_header() -> str:
    """C++ for all that is shared."""
    return header(
        [
            f"constexpr unsigned kEngines = {len(Engine)};",
            f"constexpr unsigned kPageBytes = {PAGE_BYTES};",
            enumeration("WeftResponse", "uint8_t", "kResponse", {each.name: each.value for each in Response}),
            enumeration(
                "WeftBusFault", "uint32_t", "kFault", {"NONE": 0, **{each.name: each.value for each in BusFault}}
            ),
            enumeration("WeftOutcome", "int", "kOutcome", {each.name: each.value for each in Outcome}),
            *interface_lines(),
            *(struct.text for struct in (_DRAM, _ACCESS, _START, _RUN, EVENT, ACTIVITY)),
        ]
    )


@cache
def harness_files() -> dict[str, str]:
    """Names and texts of the C++ beside the verilated core."""
    folder = resources.files(__package__)
    sources = {name: folder.joinpath(name).read_text() for name in ("harness.cpp", "harness_memory.h", "dram_banks.h")}
    return {**sources, INTERFACE: interface_header()}
