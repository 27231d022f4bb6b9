"""The checker of finished programs: refuses races, deadlocks, tokens left over, and indices out of range.

It knows nothing of how a program came to be: it decodes the bytes, runs queues and counting tokens, and follows with
vector clocks which accesses are ordered for every possible timing. An error names both instructions.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from ....hw.assembly import format_instruction
from ....hw.config import LOOP_LEVELS, CoreConfig
from ....hw.errors import InstructionError
from ....hw.isa import (
    ENGINE_NAMES,
    TAP_COLUMNS,
    TAP_ROWS,
    Engine,
    Finish,
    Gemm,
    Instruction,
    Load,
    Loop,
    Store,
    Vector,
    mask_engines,
)
from ....hw.load_counts import bytes_each, entries_of, granules_reached
from ....hw.memories import Memory
from ....hw.programs import columns_of, disassemble
from ..errors import ProgramError
from .check_at_once import proved

Clock = list[int]
Units = slice | npt.NDArray[np.int64]

ENGINES = len(Engine)
_maximum = np.maximum.reduce


@dataclass(frozen=True)
class Range:
    """Constant bytes of the window, ``start .. stop-1``: a program may read them without order, and never write."""

    start: int
    stop: int


@dataclass
class _EngineState:
    queue: deque[int] = field(default_factory=deque)
    clock: Clock = field(default_factory=lambda: [0] * ENGINES)
    executed: int = 0
    unsent: int = 0  # targets that the last instruction's token could not go to yet
    current: int = -1


class _Memory:
    """Who wrote and read each unit last, per engine, as numbers of that engine (0: nobody) and of the program; and the
    last of an engine that wrote, or read, any unit."""

    def __init__(self, name: Memory, size: int) -> None:
        self.name = name
        self.size = size
        self.last: dict[tuple[int, bool], npt.NDArray[np.int32]] = {}
        self.newest: dict[tuple[int, bool], int] = {}


def check_program(
    config: CoreConfig, program: npt.NDArray[np.uint8], window_bytes: int, constants: tuple[Range, ...] = ()
) -> None:
    """Raise ProgramError unless the program is free of races, deadlocks and faults, for every timing of the engines."""
    try:
        columns = columns_of(config, program)
    except InstructionError as error:
        raise ProgramError(error.message, hint=error.hint) from error
    if not proved(config, columns, window_bytes, [(area.start, area.stop) for area in constants]):
        check_instructions(config, disassemble(config, program), window_bytes, constants)


def check_instructions(
    config: CoreConfig, instructions: list[Instruction], window_bytes: int, constants: tuple[Range, ...] = ()
) -> None:
    """The same, of a program that is decoded already, and that is followed step by step."""
    _Checker(config, instructions, window_bytes, constants).run()


class _Checker:
    def __init__(
        self, config: CoreConfig, instructions: list[Instruction], window_bytes: int, constants: tuple[Range, ...]
    ) -> None:
        self.config = config
        self.instructions = instructions
        self.window_units = window_bytes // config.granule_bytes
        granule = config.granule_bytes
        self.constant_starts = np.array([area.start // granule for area in constants], np.int64)
        self.constant_stops = np.array([area.stop // granule for area in constants], np.int64)
        self.engines = [_EngineState() for _ in Engine]
        self.tokens: dict[tuple[int, int], deque[Clock]] = {}
        self.memories = {memory: _Memory(memory, config.depth(memory)) for memory in config.scratchpads}
        self.memories[Memory.DRAM] = _Memory(Memory.DRAM, self.window_units)
        self.number_of: list[list[int]] = [[-1] for _ in Engine]  # engine -> its n-th instruction -> program number
        self.levels = {engine: [(1, 0, 0, 0)] * LOOP_LEVELS for engine in (Engine.GEMM, Engine.VECTOR)}

    def describe(self, number: int) -> str:
        return f"instruction {number} ({format_instruction(self.instructions[number])})"

    def run(self) -> None:
        fetched, finished, progress = 0, False, True
        while progress:
            progress = False
            while not finished:
                if fetched == len(self.instructions):
                    raise ProgramError(f"the program of {fetched} instructions has no FINISH")
                instruction = self.instructions[fetched]
                if isinstance(instruction, Finish):
                    finished = True
                    break
                queue = self.engines[instruction.engine].queue
                if len(queue) == self.config.queue_depth:
                    break
                queue.append(fetched)
                fetched += 1
                progress = True
            for engine in range(ENGINES):
                while self.step(engine):
                    progress = True
        blocked = [state for state in self.engines if state.queue or state.unsent]
        if blocked or not finished:
            raise ProgramError("deadlock: " + "; ".join(self.why_blocked(e) for e, s in enumerate(self.engines)
                                                        if s.queue or s.unsent))  # fmt: skip
        for (source, target), tokens in self.tokens.items():
            if tokens:
                raise ProgramError(
                    f"{len(tokens)} tokens from {ENGINE_NAMES[source]!r} to {ENGINE_NAMES[target]!r} are left at FINISH"
                )

    def why_blocked(self, engine: int) -> str:
        state = self.engines[engine]
        if state.unsent:
            names = ", ".join(ENGINE_NAMES[target] for target in mask_engines(state.unsent))
            return f"{self.describe(state.current)} cannot send to {names}: {self.config.token_depth} tokens are there"
        head = state.queue[0]
        missing = [e for e in mask_engines(self.instructions[head].wait) if not self.tokens.get((e, engine))]
        return f"{self.describe(head)} waits for {', '.join(ENGINE_NAMES[source] for source in missing)}"

    def step(self, engine: int) -> bool:
        """Run the engine's next instruction if its tokens are there; False if nothing could be done."""
        state = self.engines[engine]
        if state.unsent:
            return self.send(engine, state)
        if not state.queue:
            return False
        instruction = self.instructions[state.queue[0]]
        sources = mask_engines(instruction.wait)
        if any(not self.tokens.get((source, engine)) for source in sources):
            return False
        number = state.queue.popleft()
        for source in sources:
            state.clock[:] = map(max, state.clock, self.tokens[source, engine].popleft())
        state.executed += 1
        state.current = number
        self.number_of[engine].append(number)
        self.execute(engine, number, instruction)
        state.clock[engine] = state.executed
        state.unsent = instruction.send
        self.send(engine, state)
        return True

    def send(self, engine: int, state: _EngineState) -> bool:
        before = state.unsent
        for target in mask_engines(state.unsent):
            tokens = self.tokens.setdefault((engine, target), deque())
            if len(tokens) < self.config.token_depth:
                tokens.append(state.clock.copy())
                state.unsent &= ~(1 << target)
        return state.unsent != before

    def execute(self, engine: int, number: int, instruction: Instruction) -> None:
        match instruction:
            case Loop():
                strides = (instruction.dst_stride, instruction.a_stride, instruction.b_stride)
                self.levels[instruction.engine][instruction.level] = (instruction.extent, *strides)
            case Gemm():
                levels = self.levels[Engine.GEMM][: instruction.levels]
                read = _shape(levels, 2)
                if instruction.depthwise:
                    read = (*read, (TAP_ROWS, instruction.row_pitch), (TAP_COLUMNS, instruction.column_pitch))
                self.touch(number, Memory.INP, instruction.src, read, write=False)
                self.touch(number, Memory.WGT, instruction.wgt, _shape(levels, 3), write=False)
                self.touch(number, Memory.ACC, instruction.dst, _shape(levels, 1), write=True)
            case Vector():
                levels = self.levels[Engine.VECTOR][: instruction.levels]
                self.touch(number, Memory.ACC, instruction.a, _shape(levels, 2), write=False)
                if instruction.b_entries:
                    shape = (*_shape(levels, 3), (instruction.b_entries, 1))
                    self.touch(number, Memory.ACC, instruction.b, shape, write=False)
                self.touch(number, instruction.target.memory, instruction.dst, _shape(levels, 1), write=True)
            case Load():
                self.load(number, instruction)
            case Store():
                count = instruction.rows * instruction.columns
                self.entries(number, Memory.OUT, instruction.index, count, write=False)
                self.dram(number, instruction, self.config.out_bytes, write=True)

    def load(self, number: int, load: Load) -> None:
        count = entries_of(self.config, load)
        self.entries(number, load.scratchpad.memory, load.index, count, write=True)
        self.dram(number, load, bytes_each(self.config, load), write=False)

    def entries(self, number: int, name: Memory, index: int, count: int, *, write: bool) -> None:
        """Check the entries of a transfer. One of none ends where it begins, and that has to be in the memory, too."""
        size = self.memories[name].size
        if index > size:
            raise ProgramError(f"{self.describe(number)} reaches unit {index} of {name!r}, which has {size}")
        self.touch(number, name, index, ((count, 1),), write=write)

    def dram(self, number: int, transfer: Load | Store, entry_bytes: int, *, write: bool) -> None:
        if not transfer.rows or not transfer.columns:
            return
        granule = self.config.granule_bytes
        if transfer.offset * granule % min(entry_bytes & -entry_bytes, self.config.bus_bytes):
            raise ProgramError(f"{self.describe(number)}: its DRAM offset is not aligned")
        reach = granules_reached(self.config, transfer.rows, transfer.columns, transfer.stride, entry_bytes)
        last = transfer.offset + reach
        if last > self.window_units:
            raise ProgramError(
                f"{self.describe(number)} ends at granule {last}, but the window has {self.window_units}"
            )
        touching = (self.constant_starts < last) & (self.constant_stops > transfer.offset)
        if np.count_nonzero(touching):
            if write:
                raise ProgramError(f"{self.describe(number)} writes to constants")
            inside = (self.constant_starts <= transfer.offset) & (self.constant_stops >= last)
            if np.count_nonzero(inside):
                return
        units, part = divmod(entry_bytes, granule)
        shape = ((transfer.columns * units, 1), (transfer.rows, transfer.stride * units))
        if part:  # entries that are no whole granules: all from the first to the last
            shape = ((reach, 1), (1, 0))
        self.touch(number, Memory.DRAM, transfer.offset, shape, write=write)

    def touch(self, number: int, name: Memory, first: int, shape: tuple[tuple[int, int], ...], *, write: bool) -> None:
        """Check one access of ``first + sum(i * stride)`` against all unordered ones before it, and record it.

        ``first`` may be negative, since ``b`` of a VECTOR has a sign; strides have none (``hw/isa.py``).
        """
        count = 1
        length = 1
        for extent, stride in shape:
            count *= extent
            length += (extent - 1) * stride
        if not count:
            return
        memory = self.memories[name]
        if first < 0 or first + length > memory.size:
            unit = first if first < 0 else first + length - 1
            raise ProgramError(f"{self.describe(number)} reaches unit {unit} of {name!r}, which has {memory.size}")
        offsets = _distinct(shape)
        units: Units = slice(first, first + length) if offsets is None else offsets + first
        engine = int(self.instructions[number].engine)
        state = self.engines[engine]
        clock = state.clock
        for (other, wrote), newest in memory.newest.items():
            if newest <= clock[other] or other == engine or not (write or wrote):
                continue  # all that the engine did there has ended
            section = memory.last[other, wrote][units]
            if int(_maximum(section)) > clock[other]:
                place = int(section.argmax())
                unit = first + place if isinstance(units, slice) else int(units[place])
                earlier = self.number_of[other][int(section[place])]
                raise ProgramError(
                    f"race: {self.describe(number)} {'writes' if write else 'reads'} unit {unit} of {name!r} and "
                    f"{self.describe(earlier)} {'writes' if wrote else 'reads'} it, with no tokens between them"
                )
        key = (engine, write)
        if key not in memory.last:
            memory.last[key] = np.zeros(memory.size, np.int32)
        memory.last[key][units] = memory.newest[key] = state.executed


def _shape(levels: list[tuple[int, int, int, int]], operand: int) -> tuple[tuple[int, int], ...]:
    return tuple((level[0], level[operand]) for level in levels)


@lru_cache(maxsize=65536)
def _distinct(shape: tuple[tuple[int, int], ...]) -> npt.NDArray[np.int64] | None:
    """The distinct offsets ``sum(i * stride)``, sorted; None where they are consecutive."""
    offsets = np.zeros(1, np.int64)
    for extent, stride in shape:
        if stride and extent > 1:
            offsets = np.unique(np.add.outer(offsets, np.arange(extent, dtype=np.int64) * stride))
    return None if int(offsets[-1]) + 1 == len(offsets) else offsets
