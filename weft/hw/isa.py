"""The instruction set, declared once; RTL, assembler, disassembler and simulators use these layouts.

``docs/isa.md`` states what each instruction means. Fields are declared low bit first as
``(name, width, signed)`` and become Amaranth ``StructLayout``s for the decoders in RTL.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import IntEnum, unique
from functools import lru_cache
from operator import attrgetter
from typing import TYPE_CHECKING, ClassVar

from ..records import quick_init
from ..roundings import HALF_UP, TWO_ROUNDINGS
from .config import LOOP_LEVELS, PAD_BITS, STRIDE_BITS, TABLE_ENTRIES, CoreConfig
from .errors import InstructionError
from .instruction_checksum import sealed
from .memories import Memory
from .weight_form import weights_problem

if TYPE_CHECKING:  # what assembles programs and simulates them needs no description of hardware
    from amaranth.lib import data


@unique
class Engine(IntEnum):
    """Engines with a queue of their own; the value is the bit in a token mask and the ``engine`` field."""

    LOAD = 0  # activations: DRAM -> inp, acc
    LOADW = 1  # weights and parameters: DRAM -> wgt, acc
    GEMM = 2
    VECTOR = 3
    STORE = 4


FETCH = 5
"""Engine number that a fault record uses for the fetch unit."""

ENGINE_BITS = 3
"""Width of an engine's number; :data:`FETCH` is one of them."""

ENGINE_NAMES = (*(engine.name.lower() for engine in Engine), "fetch")


@unique
class Opcode(IntEnum):
    """Instruction kinds. Zero is illegal on purpose: erased memory must not run."""

    LOOP = 1
    LOAD = 2
    STORE = 3
    GEMM = 4
    VECTOR = 5
    SYNC = 6
    FINISH = 7


OPCODE_BITS = 3


@dataclass(frozen=True)
class Users:
    """Engines that write a memory, and engines that read it."""

    writers: tuple[Engine, ...]
    readers: tuple[Engine, ...]


MEMORY_USERS: dict[Memory, Users] = {
    Memory.INP: Users((Engine.LOAD, Engine.VECTOR), (Engine.GEMM,)),
    Memory.WGT: Users((Engine.LOADW,), (Engine.GEMM,)),
    # gemm reads only entries that it writes as well
    Memory.ACC: Users((Engine.LOAD, Engine.LOADW, Engine.GEMM, Engine.VECTOR), (Engine.VECTOR,)),
    Memory.OUT: Users((Engine.VECTOR,), (Engine.STORE,)),
    Memory.TAB: Users((Engine.VECTOR,), (Engine.VECTOR,)),
    Memory.DRAM: Users((Engine.STORE,), (Engine.LOAD, Engine.LOADW)),
}
"""Who writes and who reads each memory; the order of engines is that of their numbers."""


@unique
class Scratchpad(IntEnum):
    """Target of a LOAD: its number, the memory that it fills, and the bits of an element in DRAM."""

    memory: Memory
    dram_bits: int

    def __new__(cls, number: int, memory: Memory, dram_bits: int) -> Scratchpad:
        member = int.__new__(cls, number)
        member._value_ = number
        member.memory, member.dram_bits = memory, dram_bits
        return member

    INP = 0, Memory.INP, 8
    WGT = 1, Memory.WGT, 8
    ACC = 2, Memory.ACC, 32
    ACC8 = 3, Memory.ACC, 8  # int8 in DRAM, widened into acc

    def dram_bytes(self, config: CoreConfig) -> int:
        """Bytes of one entry in DRAM."""
        return config.entry_elements(self.memory) * self.dram_bits // 8


@unique
class VectorOp(IntEnum):
    """Operation of a VECTOR instruction, lane by lane in int32 (``docs/isa.md``, "VECTOR").

    Each has its number; the consecutive ``acc`` entries that it reads at ``b`` where ``b`` is not an immediate; and,
    where it accumulates (``dst = op(dst, a, b)``), the identity from which it starts with ``zero`` set.
    """

    b_entries: int
    identity: int | None

    def __new__(cls, number: int, b_entries: int, identity: int | None = None) -> VectorOp:
        member = int.__new__(cls, number)
        member._value_ = number
        member.b_entries, member.identity = b_entries, identity
        return member

    ADD = 0, 1
    SUB = 1, 1
    MUL = 2, 1
    MIN = 3, 1
    MAX = 4, 1
    SHR = 5, 1
    REQUANTISE = 6, 3  # bias, multiplier, shift
    MAC = 8, 1, 0
    SUM = 9, 0, 0
    MIN_ACCUMULATE = 10, 0, 2**31 - 1
    MAX_ACCUMULATE = 11, 0, -(2**31)

    @property
    def accumulates(self) -> bool:
        """True when the destination is also read."""
        return self.identity is not None


@unique
class VectorTarget(IntEnum):
    """Where the results of a VECTOR go: its number, and the memory."""

    memory: Memory

    def __new__(cls, number: int, memory: Memory) -> VectorTarget:
        member = int.__new__(cls, number)
        member._value_ = number
        member.memory = memory
        return member

    ACC = 0, Memory.ACC
    OUT = 1, Memory.OUT  # the low 8 bits
    INP = 2, Memory.INP  # the low 8 bits
    TAB = 3, Memory.TAB  # the low 8 bits


VECTOR_TARGET_BITS = 2


def vector_targets(config: CoreConfig, op: VectorOp) -> tuple[VectorTarget, ...]:
    """Where the results of ``op`` may go on a core: every other target is ILLEGAL."""
    if op.accumulates:
        return (VectorTarget.ACC,)
    lacking = {VectorTarget.INP: not config.inp_takes_results, VectorTarget.TAB: not config.tables}
    return tuple(target for target in VectorTarget if not lacking.get(target))


@unique
class Fault(IntEnum):
    """Cause in the fault record."""

    NONE = 0
    ILLEGAL = 1  # no such instruction, or a field out of its range
    INDEX = 2  # index out of a scratchpad
    WINDOW = 3  # address outside the DMA window
    ALIGNMENT = 4  # DRAM offset not a multiple of the entry or of the bus word
    BUS_READ = 5  # error response on the read channel
    BUS_WRITE = 6  # error response on the write channel
    WATCHDOG = 7  # no progress for the set number of cycles: a token deadlock or a dead bus
    NO_FINISH = 8  # the program ended without FINISH
    CORRUPT = 9  # an instruction's check bits do not fit its other bits


TAP_ROWS = 3
"""Rows of taps of a depthwise GEMM: entries of ``inp`` that it reads at once."""

TAP_COLUMNS = 3
"""Columns of taps of a depthwise GEMM."""

TAP_ROW_OUTPUTS = 4
"""Distance, in a ``wgt`` entry, of the outputs that hold the taps of two rows."""

IMMEDIATE_BITS = 25
"""Width of an immediate, and of the second factor of MUL, MAC and REQUANTISE: one DSP48 operand."""

CLAMP_BITS = 9
"""Width of zero point and clamp limits: a value minus its zero point has nine bits."""

Field = tuple[str, int, bool]

HEADER: tuple[Field, ...] = (
    ("opcode", OPCODE_BITS, False),
    ("engine", ENGINE_BITS, False),
    ("wait", len(Engine), False),
    ("send", len(Engine), False),
)


@lru_cache(maxsize=1024)
def multiplier_bits(config: CoreConfig) -> int:
    """Low bits of an entry that are the multiplier of a REQUANTISE, with their sign."""
    return 32 if config.rounding == TWO_ROUNDINGS else IMMEDIATE_BITS


def instruction_fields(config: CoreConfig, opcode: Opcode) -> tuple[Field, ...]:
    """Fields of an instruction after the header, low bit first."""
    index, count = config.index_bits, config.count_bits
    match opcode:
        case Opcode.LOOP:
            return (
                ("level", 3, False), ("extent", count, False),
                ("dst_stride", index, False), ("a_stride", index, False), ("b_stride", index, False),
            )  # fmt: skip
        case Opcode.LOAD:
            return (
                ("scratchpad", 2, False), ("index", index, False), ("offset", config.dram_bits, False),
                ("rows", count, False), ("columns", count, False), ("stride", STRIDE_BITS, False),
                ("pad_top", PAD_BITS, False), ("pad_bottom", PAD_BITS, False),
                ("pad_left", PAD_BITS, False), ("pad_right", PAD_BITS, False), ("pad_value", 8, True),
            )  # fmt: skip
        case Opcode.STORE:
            return (
                ("index", index, False), ("offset", config.dram_bits, False),
                ("rows", count, False), ("columns", count, False), ("stride", STRIDE_BITS, False),
            )  # fmt: skip
        case Opcode.GEMM:
            product: tuple[Field, ...] = (
                ("zero", 1, False), ("levels", 3, False),
                ("dst", index, False), ("src", index, False), ("wgt", index, False),
            )  # fmt: skip
            if not config.depthwise:
                return product
            return (*product, ("depthwise", 1, False), ("row_pitch", index, False), ("column_pitch", index, False))
        case Opcode.VECTOR:
            table: tuple[Field, ...] = (("table", config.tables.bit_length(), False),) if config.tables else ()
            rounding: tuple[Field, ...] = (("rounding", 1, False),) if config.rounding != HALF_UP else ()
            return (
                ("op", 4, False), ("zero", 1, False), ("levels", 3, False),
                ("target", VECTOR_TARGET_BITS, False), ("b_immediate", 1, False),
                ("dst", index, False), ("a", index, False), ("b", IMMEDIATE_BITS, True),
                ("zero_point", CLAMP_BITS, True), ("low", CLAMP_BITS, True), ("high", CLAMP_BITS, True),
                ("left_shift", 5, False), *table, *rounding,
            )  # fmt: skip
        case Opcode.SYNC | Opcode.FINISH:
            return ()


@lru_cache(maxsize=1024)
def instruction_layout(config: CoreConfig, opcode: Opcode) -> data.StructLayout:
    """Layout of a whole instruction; ``reserved`` fills it up to ``check`` and must be zero."""
    from amaranth.hdl import signed, unsigned
    from amaranth.lib import data

    members = {
        name: signed(width) if sign else unsigned(width)
        for name, width, sign in HEADER + instruction_fields(config, opcode)
    }
    used = sum(width for _, width, _ in HEADER + instruction_fields(config, opcode))
    members["reserved"] = unsigned(config.instruction_bits - config.check_bits - used)
    members["check"] = unsigned(config.check_bits)
    return data.StructLayout(members)


def header_layout(config: CoreConfig) -> data.StructLayout:
    """Layout that shows the header only."""
    from amaranth.hdl import unsigned
    from amaranth.lib import data

    members = {name: unsigned(width) for name, width, _ in HEADER}
    members["payload"] = unsigned(config.instruction_bits - sum(width for _, width, _ in HEADER))
    return data.StructLayout(members)


def seal(config: CoreConfig, word: int) -> int:
    """The word with the check bits that its other bits ask for."""
    return sealed(word, config.instruction_bits)


def engine_mask(engines: Iterable[Engine]) -> int:
    """Token mask of a set of engines."""
    mask = 0
    for engine in engines:
        mask |= 1 << engine
    return mask


@lru_cache(maxsize=256)
def mask_engines(mask: int) -> tuple[Engine, ...]:
    """Engines of a token mask, in order."""
    return tuple(engine for engine in Engine if mask >> engine & 1)


@dataclass(frozen=True, kw_only=True)
class Instruction:
    """What all instructions have: who waits for whose token, and who gets one at the end."""

    opcode: ClassVar[Opcode]
    engine: Engine
    wait: int = 0  # mask of engines: one token of each is taken before the instruction starts
    send: int = 0  # mask of engines: one token to each when the instruction's writes are visible


@quick_init
@dataclass(frozen=True, kw_only=True)
class Loop(Instruction):
    """Set one level of the engine's affine loops; level 0 is the innermost."""

    opcode: ClassVar[Opcode] = Opcode.LOOP
    level: int  # 0 to 5, the innermost first
    extent: int  # iterations, at least 1
    dst_stride: int = 0  # added to `dst` with each iteration, in entries
    a_stride: int = 0  # stride of `a` (vector) or `src` (gemm)
    b_stride: int = 0  # stride of `b` (vector) or `wgt` (gemm)


@quick_init
@dataclass(frozen=True, kw_only=True)
class Load(Instruction):
    """2-D strided copy from DRAM into consecutive entries of a scratchpad, with padding."""

    opcode: ClassVar[Opcode] = Opcode.LOAD
    engine: Engine = Engine.LOAD
    scratchpad: Scratchpad  # what is filled, and from how many bits
    index: int  # first entry that is written
    offset: int  # granules from the window's base
    rows: int  # rows that are read; 0: padding alone
    columns: int  # entries
    stride: int = 0  # entries from row to row in DRAM
    pad_top: int = 0  # rows of `pad_value` above
    pad_bottom: int = 0  # rows of `pad_value` below
    pad_left: int = 0  # entries of `pad_value` before each row
    pad_right: int = 0  # entries of `pad_value` behind each row
    pad_value: int = 0  # of each element that is padding


@quick_init
@dataclass(frozen=True, kw_only=True)
class Store(Instruction):
    """2-D strided copy of consecutive ``out`` entries to DRAM."""

    opcode: ClassVar[Opcode] = Opcode.STORE
    engine: Engine = Engine.STORE
    index: int  # first entry of `out`
    offset: int  # granules from the window's base
    rows: int  # rows that are written
    columns: int  # entries of a row
    stride: int = 0  # entries from row to row in DRAM


@quick_init
@dataclass(frozen=True, kw_only=True)
class Gemm(Instruction):
    """``acc[dst] += inp[src] x wgt[wgt]`` for each iteration of the innermost ``levels`` loops.

    With ``depthwise`` each micro-op gives one output of nine taps for each channel (``docs/isa.md``, "GEMM").
    """

    opcode: ClassVar[Opcode] = Opcode.GEMM
    engine: Engine = Engine.GEMM
    zero: int = 0  # 1: a sum begins at 0 instead of what `acc` holds
    levels: int = 0  # loops that run, 0 to 6
    dst: int  # first entry of `acc`
    src: int  # first entry of `inp`
    wgt: int  # first entry of `wgt`
    depthwise: int = 0  # each channel meets nine taps of its own; only on cores that have the mode
    row_pitch: int = 0  # entries of inp from one row of taps to the next; odd
    column_pitch: int = 0  # and from one column to the next

    @property
    def src_offsets(self) -> tuple[int, ...]:
        """Entries of ``inp`` that each micro-op reads, counted from its ``src``; of taps, row by row."""
        if not self.depthwise:
            return (0,)
        columns = [column * self.column_pitch for column in range(TAP_COLUMNS)]
        return tuple(row * self.row_pitch + column for row in range(TAP_ROWS) for column in columns)


@quick_init
@dataclass(frozen=True, kw_only=True)
class Vector(Instruction):
    """One vector operation for each iteration of the innermost ``levels`` loops.

    With ``table`` each result gives way, lane by lane, to what that table holds for it (``docs/isa.md``, "Tables").
    """

    opcode: ClassVar[Opcode] = Opcode.VECTOR
    engine: Engine = Engine.VECTOR
    op: VectorOp  # what is done in each lane
    zero: int = 0  # 1: an accumulating operation begins at its identity
    levels: int = 0  # loops that run, 0 to 6
    target: VectorTarget = VectorTarget.ACC  # where results go
    b_immediate: int = 0  # 1: `b` is a number, not the index of an entry
    dst: int  # first entry of the target
    a: int  # first entry of `acc`
    b: int = 0  # second operand: a number, or its first entry of `acc`
    zero_point: int = 0  # of a REQUANTISE: added before the limits
    low: int = 0  # of a REQUANTISE: the least result
    high: int = 0  # of a REQUANTISE: the largest result
    left_shift: int = 0  # of a REQUANTISE: bits that its result is shifted by
    table: int = 0  # 0: none, n: table n - 1; only on cores that have tables
    rounding: int = 0  # 1: a REQUANTISE rounds in the mode that the core has beside half up

    @property
    def table_entries(self) -> range:
        """Entries of ``tab`` of which each micro-op reads one a lane, which one depends on the result."""
        return range(TABLE_ENTRIES * (self.table - 1), TABLE_ENTRIES * self.table) if self.table else range(0)

    @property
    def b_entries(self) -> int:
        """Consecutive ``acc`` entries that each micro-op reads at ``b``."""
        return 0 if self.b_immediate else self.op.b_entries


@quick_init
@dataclass(frozen=True, kw_only=True)
class Sync(Instruction):
    """Only waits and sends."""

    opcode: ClassVar[Opcode] = Opcode.SYNC


@quick_init
@dataclass(frozen=True, kw_only=True)
class Finish(Instruction):
    """End of the program: done once every engine has drained. Handled by fetch; no tokens."""

    opcode: ClassVar[Opcode] = Opcode.FINISH
    engine: Engine = Engine.LOAD


INSTRUCTION_TYPES: dict[Opcode, type[Instruction]] = {
    kind.opcode: kind for kind in (Loop, Load, Store, Gemm, Vector, Sync, Finish)
}

LEGAL_ENGINES: dict[Opcode, tuple[Engine, ...]] = {
    Opcode.LOOP: (Engine.GEMM, Engine.VECTOR),
    Opcode.LOAD: (Engine.LOAD, Engine.LOADW),
    Opcode.STORE: (Engine.STORE,),
    Opcode.GEMM: (Engine.GEMM,),
    Opcode.VECTOR: (Engine.VECTOR,),
    Opcode.SYNC: tuple(Engine),
    Opcode.FINISH: (Engine.LOAD,),
}

LEGAL_SCRATCHPADS: dict[Engine, tuple[Scratchpad, ...]] = {
    engine: tuple(target for target in Scratchpad if engine in MEMORY_USERS[target.memory].writers)
    for engine in LEGAL_ENGINES[Opcode.LOAD]
}


OPCODES = {int(opcode): opcode for opcode in Opcode}

ENUMERATED: dict[str, type[Engine | Scratchpad | VectorOp | VectorTarget]] = {
    "engine": Engine,
    "scratchpad": Scratchpad,
    "op": VectorOp,
    "target": VectorTarget,
}
"""Fields whose values have names."""


def header_problem(instruction: Instruction) -> str:
    """Why fetch refuses the instruction, or an empty string."""
    if instruction.engine not in LEGAL_ENGINES[instruction.opcode]:
        return f"{instruction.opcode.name} cannot run on engine {ENGINE_NAMES[instruction.engine]!r}"
    for name, mask in (("wait", instruction.wait), ("send", instruction.send)):
        if mask and instruction.opcode is Opcode.FINISH:
            return f"FINISH takes no tokens, but {name} is {mask:#x}"
        if mask >> instruction.engine & 1:
            return f"{name} names the instruction's own engine {ENGINE_NAMES[instruction.engine]!r}"
    return ""


def body_problem(config: CoreConfig, instruction: Instruction) -> str:
    """Why the engine refuses the instruction (cause ILLEGAL), or an empty string."""
    match instruction:
        case Loop(level=level) if level >= LOOP_LEVELS:
            return f"loop level {level} does not exist; there are {LOOP_LEVELS}"
        case Loop(extent=0):
            return "loop extent is 0"
        case Load(engine=engine, scratchpad=scratchpad) if scratchpad not in LEGAL_SCRATCHPADS[engine]:
            return f"engine {ENGINE_NAMES[engine]!r} cannot write scratchpad {scratchpad.name}"
        case Load(scratchpad=Scratchpad.WGT, pad_value=value) if config.weight_group and value:
            pads = instruction.pad_top, instruction.pad_bottom, instruction.pad_left, instruction.pad_right
            return weights_problem(value, pads)
        case Gemm(levels=levels) | Vector(levels=levels) if levels > LOOP_LEVELS:
            return f"{levels} loop levels, but there are {LOOP_LEVELS}"
        case Vector(op=op, target=target) if target not in vector_targets(config, op):
            if op.accumulates:
                return f"{op.name} accumulates and cannot write to {target.memory}"
            if target is VectorTarget.TAB:
                return f"results cannot go to {target.memory}: the core has no tables"
            return (
                f"results cannot go to {target.memory}: its entries have {config.block_in} channels, "
                f"those of results {config.block_out}"
            )
        case Vector(table=table) if table > config.tables:
            return f"table {table} does not exist; the tables are 1..{config.tables}"
        case Vector(op=op, table=table) if table and op.accumulates:
            return f"{op.name} accumulates: its results pass through no table"
        case Vector(target=VectorTarget.TAB, table=table) if table:
            return "results that go to tab pass through no table"
        case Gemm(depthwise=1, row_pitch=pitch) if pitch % 2 == 0:
            return f"row_pitch is {pitch}, but must be odd: rows in the same bank of inp cannot be read at once"
        case Vector(op=VectorOp.REQUANTISE, b_immediate=1):
            return "REQUANTISE takes its parameters from acc, not from an immediate"
    return ""


FREE_FIELDS = frozenset({
    "index", "offset", "rows", "columns", "stride", "zero", "dst", "src", "wgt", "a", "b", "column_pitch",
    "dst_stride", "a_stride", "b_stride", "zero_point", "low", "high", "left_shift",
    "float32",
})  # fmt: skip
"""Fields at which :func:`header_problem` and :func:`body_problem` do not look: any value is legal."""


def encode(config: CoreConfig, instruction: Instruction) -> int:
    """The instruction as an integer; :class:`InstructionError` names a field whose value does not fit."""
    return seal(config, unsealed(config, instruction))


def encode_unchecked(config: CoreConfig, instruction: Instruction) -> int:
    """Like :func:`encode`, but lets instructions through that fit their fields and that the core calls illegal."""
    return seal(config, unsealed(config, instruction, legal=False))


def unsealed(config: CoreConfig, instruction: Instruction, *, legal: bool = True) -> int:
    """As :func:`encode` or, not ``legal``, :func:`encode_unchecked`, with check bits of 0."""
    if isinstance(instruction, Vector) and instruction.table and not config.tables:
        raise InstructionError(
            f"Vector: core {config.name!r} has no tables", hint="a configuration with tables=1 or more has them"
        )
    if isinstance(instruction, Vector) and instruction.rounding and config.rounding == HALF_UP:
        raise InstructionError(
            f"Vector: core {config.name!r} rounds half up alone", hint="a configuration with another rounding has it"
        )
    if legal and (problem := header_problem(instruction) or body_problem(config, instruction)):
        raise InstructionError(f"{type(instruction).__name__}: {problem}")
    if isinstance(instruction, Gemm) and instruction.depthwise and not config.depthwise:
        raise InstructionError(
            f"Gemm: core {config.name!r} has no depthwise mode", hint="a configuration with depthwise=1 has it"
        )
    return _packed(config, instruction)


def _packed(config: CoreConfig, instruction: Instruction) -> int:
    """The fields at their places; InstructionError names one whose value does not fit."""
    places, values = _layout(config, instruction.opcode)
    word = 0
    for value, (name, position, low, high) in zip(values(instruction), places, strict=True):
        if not value:
            continue  # 0 fits every field
        if type(value) is not int:
            value = int(value)
        if not low <= value <= high:
            raise InstructionError(f"{type(instruction).__name__}: {name} is {value}, but must be in {low}..{high}")
        word |= (value & high - low) << position
    return word


def values_of(config: CoreConfig, opcode: Opcode) -> Callable[[Instruction], tuple[int, ...]]:
    """What takes the values of all fields of an instruction, in their order."""
    return _layout(config, opcode)[1]


@lru_cache(maxsize=1024)
def _layout(
    config: CoreConfig, opcode: Opcode
) -> tuple[list[tuple[str, int, int, int]], Callable[[Instruction], tuple[int, ...]]]:
    """Of each field of an instruction: name, lowest bit, least and largest value, whose difference is the field's
    mask; and what takes all fields of an instruction at once."""
    places = []
    position = 0
    for name, width, sign in HEADER + instruction_fields(config, opcode):
        low = -(1 << width - 1) if sign else 0
        places.append((name, position, low, low + (1 << width) - 1))
        position += width
    return places, attrgetter(*(name for name, _, _, _ in places))
