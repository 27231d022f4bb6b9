"""What ``functional.cpp`` knows of a core: structs, enumerations and constants, all from ``hw/``."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from ..hw.config import PROGRAM_ALIGNMENT, TABLE_ENTRIES, CoreConfig
from ..hw.isa import (
    FETCH,
    IMMEDIATE_BITS,
    TAP_ROW_OUTPUTS,
    TAP_ROWS,
    Fault,
    Scratchpad,
    VectorOp,
    VectorTarget,
    multiplier_bits,
)
from ..hw.memories import Memory
from ..roundings import FLOAT32, ROUNDINGS, nudged
from .c_interface import CField, CStruct, camel, enumeration, fields, header
from .fsim import MOST_SENDING
from .timing_interface import FIELDS, INTERFACE, OPCODES, instruction_places

FUNCTIONAL_INTERFACE = "functional_interface.h"
"""The header that :func:`functional_header` is written to; it includes the timing model's, for its enumerations."""

MEMORIES: tuple[Memory, ...] = tuple(memory for memory in Memory if memory is not Memory.DRAM)
"""Scratchpads; one's number in C++ is its place here."""

_CORE = CStruct(
    "WeftFunctionalCore",
    (
        *fields(
            "int64_t",
            "batch",
            "block_in",
            "block_out",
            "sub_block",
            "instruction_bytes",
            "queue_depth",
            "token_depth",
            "granule_bytes",
            "bus_bytes",
            "weight_group",  # 0: the core takes no weights of 4 bits
            "record_entries",
            "record_bytes",
            "record_head_bytes",
            "multiplier_bits",  # of a requantise
            "rounding",  # beside half up
        ),
        CField("depth", "int64_t", (len(MEMORIES),)),
        CField("elements", "int64_t", (len(MEMORIES),)),  # of an entry
        CField("dram_bytes", "int64_t", (len(Scratchpad),)),  # of an entry in DRAM
        CField("fields", "int32_t", (OPCODES, len(FIELDS), 3)),  # position, width, and whether it is signed
    ),
)

_RESULT = CStruct(
    "WeftFunctionalResult",
    fields("int64_t", "fault", "engine", "number", "bytes_read", "bytes_written"),
)

FunctionalCore, FunctionalResult = _CORE.python(), _RESULT.python()


def describe_functional_core(config: CoreConfig) -> Any:
    """The struct for a core."""
    core = FunctionalCore(
        batch=config.batch,
        block_in=config.block_in,
        block_out=config.block_out,
        sub_block=config.sub_block,
        instruction_bytes=config.instruction_bytes,
        queue_depth=config.queue_depth,
        token_depth=config.token_depth,
        granule_bytes=config.granule_bytes,
        bus_bytes=config.bus_bytes,
        weight_group=config.weight_group,
        record_entries=config.weight_record_entries if config.weight_group else 0,
        record_bytes=config.weight_record_bytes if config.weight_group else 0,
        record_head_bytes=config.weight_head_bytes if config.weight_group else 0,
        multiplier_bits=multiplier_bits(config),
        rounding=ROUNDINGS.index(config.rounding),
    )
    for memory in config.scratchpads:
        core.depth[MEMORIES.index(memory)] = config.depth(memory)
        core.elements[MEMORIES.index(memory)] = config.entry_elements(memory)
    for scratchpad in Scratchpad:
        core.dram_bytes[scratchpad] = scratchpad.dram_bytes(config)
    for opcode, name, place in instruction_places(config):
        core.fields[opcode][FIELDS.index(name)][:] = place
    return core


@dataclass(frozen=True)
class _Text:
    """An expression in C++, made by operators as numbers have them."""

    text: str

    def __add__(self, other: _Text | int) -> _Text:
        return self._with("+", other)

    def __sub__(self, other: int) -> _Text:
        return self._with("-", other)

    def __mul__(self, other: _Text) -> _Text:
        return self._with("*", other)

    def __and__(self, other: int) -> _Text:
        return self._with("&", other)

    def __or__(self, other: int) -> _Text:
        return self._with("|", other)

    def __lshift__(self, other: int) -> _Text:
        return self._with("<<", other)

    def __rshift__(self, other: _Text | int) -> _Text:
        return self._with(">>", other)

    def _with(self, sign: str, other: _Text | int) -> _Text:
        return _Text(f"({self.text} {sign} {other.text if isinstance(other, _Text) else other})")


def _nudged() -> str:
    """`weft.roundings.nudged` in C++."""
    product, shift = _Text("product"), _Text("shift")
    cases = " ".join(
        f"case kRounding{camel(each)}: return {nudged(each, product, shift).text};"
        for each in ROUNDINGS
        if each != FLOAT32
    )
    signature = "inline int64_t nudged(int64_t rounding, int64_t product, int64_t shift)"
    return f"{signature} {{ switch (rounding) {{ {cases} default: return product; }} }}"


@cache
def functional_header() -> str:
    """C++ for all that is shared."""
    identities = ", ".join(
        f"int32_t({next((op.identity for op in VectorOp if op == number and op.identity is not None), 0)}LL)"
        for number in range(1 << max(VectorOp).bit_length())
    )
    numbers: dict[Memory, int] = {memory: number for number, memory in enumerate(MEMORIES)}
    of_scratchpad = ", ".join(str(numbers[each.memory]) for each in Scratchpad)
    of_target = ", ".join(str(numbers[each.memory]) for each in VectorTarget)
    return header(
        [
            f'#include "{INTERFACE}"',
            "namespace weft {",
            enumeration("Fault", "int64_t", "kFault", Fault.__members__),
            enumeration("Memory", "unsigned", "kMemory", {memory.name: number for memory, number in numbers.items()}),
            f"constexpr unsigned kMemories = {len(MEMORIES)};",
            f"constexpr int32_t kIdentities[] = {{ {identities} }};  // by VectorOp",
            f"constexpr unsigned kOfScratchpad[] = {{ {of_scratchpad} }};  // memories",
            f"constexpr unsigned kOfTarget[] = {{ {of_target} }};  // memories, by VectorTarget",
            f"constexpr int64_t kFetchUnit = {FETCH};  // in a fault record",
            f"constexpr int64_t kProgramAlignment = {PROGRAM_ALIGNMENT};",
            f"constexpr unsigned kTapRows = {TAP_ROWS};",
            f"constexpr unsigned kTapRowOutputs = {TAP_ROW_OUTPUTS};",
            f"constexpr unsigned kImmediateBits = {IMMEDIATE_BITS};",
            enumeration("Rounding", "int64_t", "kRounding", {each: place for place, each in enumerate(ROUNDINGS)}),
            _nudged(),
            f"constexpr int64_t kTableEntries = {TABLE_ENTRIES};",
            f"constexpr size_t kMostSending = {MOST_SENDING};",
            "}  // namespace weft",
            _CORE.text,
            _RESULT.text,
        ]
    )
