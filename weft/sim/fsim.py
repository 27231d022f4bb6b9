"""Functional simulator: executes the encoded instruction stream to the bit, without time.

Engines run in turn, each as far as queues and tokens let it, so that a deadlock of the core is a deadlock here; the
scratchpads, DRAM and the fault record end as ``docs/isa.md`` says. Races are found for every possible timing
(:mod:`weft.sim.races`).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace

import numpy as np

from ..hw.assembly import format_instruction
from ..hw.config import LOOP_LEVELS, PROGRAM_ALIGNMENT, CoreConfig
from ..hw.decode import decode
from ..hw.errors import InstructionError
from ..hw.footprint import Footprint
from ..hw.isa import (
    ENGINE_NAMES,
    FETCH,
    HEADER,
    LEGAL_ENGINES,
    Engine,
    Fault,
    Finish,
    Gemm,
    Instruction,
    Load,
    Loop,
    Opcode,
    Store,
    Vector,
    instruction_fields,
    mask_engines,
    seal,
)
from ..hw.memories import Memory
from ..hw.pipelines import IN_FLIGHT
from .dma import Transfer, granules, run_load, run_store, transfer_of, transfer_problem
from .dram import BusErrors
from .errors import RaceError, SimulationError
from .gemm import run_gemm
from .loops import LoopLevel, LoopNest
from .races import Clock, RaceDetector
from .result import FaultRecord, RunResult
from .state import Bytes, Int8, Int32, Memories
from .vector import run_vector
from .work import check_micro_ops

MOST_SENDING = IN_FLIGHT - 1
"""Instructions that an engine executes while the tokens of the first of them have no room."""


@dataclass(frozen=True)
class _Refused(Instruction):
    """Tokens of an instruction that its engine refuses with ILLEGAL."""

    problem: str


@dataclass(frozen=True)
class _Sending:
    """An executed instruction whose tokens, or those of one before it, have no room yet."""

    number: int
    instruction: Instruction
    clock: Clock


class _CoreStoppedError(Exception):
    """The core stops with a fault."""

    def __init__(self, record: FaultRecord) -> None:
        super().__init__(str(record))
        self.record = record


class FunctionalSimulator:
    """A core with its DRAM.

    ``dram`` is the memory as bytes; addresses of a run are relative to ``window_start``, a place in it. Scratchpads
    keep their content from run to run. With ``check_races`` a program whose tokens leave two accesses unordered raises
    :class:`weft.sim.errors.RaceError`. ``memory``: the bytes, where they are those of other cores as well;
    ``footprint`` collects what programs touch of them, if it is set.
    """

    def __init__(
        self,
        config: CoreConfig,
        memory_bytes: int,
        *,
        check_races: bool = True,
        bus_errors: BusErrors | None = None,
        memory: Bytes | None = None,
    ) -> None:
        self.config = config
        self.dram: Bytes = np.zeros(memory_bytes, np.uint8) if memory is None else memory
        self.footprint: Footprint | None = None
        self.memories = Memories(config)
        self.bus_errors = bus_errors
        self.races: RaceDetector | None = None
        if check_races:
            entries = {each: config.depth(each) for each in config.scratchpads}
            self.races = RaceDetector(entries | {Memory.DRAM: -(-memory_bytes // config.granule_bytes)})

    def read_scratchpad(self, memory: Memory) -> Int8 | Int32:
        """Copy of a scratchpad: ``(depth, elements)``."""
        return self.memories.array(memory).copy()

    def write_scratchpad(self, memory: Memory, values: Int8 | Int32) -> None:
        """Replace a scratchpad's content."""
        self.memories.array(memory)[...] = values

    def run(self, offset: int, count: int, *, window_start: int = 0, window_bytes: int | None = None) -> RunResult:
        """Run ``count`` instructions at byte ``offset`` of the window (default: the whole memory)."""
        size = len(self.dram) - window_start if window_bytes is None else window_bytes
        if window_start < 0 or size < 0 or window_start + size > len(self.dram):
            raise SimulationError(
                f"window {window_start:#x} + {size:#x} bytes is not inside the memory of {len(self.dram):#x} bytes"
            )
        return _Execution(self, offset, count, window_start, size).run()


class _Execution:
    """One run of one program."""

    def __init__(
        self, core: FunctionalSimulator, offset: int, count: int, window_start: int, window_bytes: int
    ) -> None:
        self.core = core
        self.config = core.config
        self.offset = offset
        self.count = count
        self.window_start = window_start
        self.window_bytes = window_bytes
        self.fetched = 0
        self.finished = False
        self.queues: list[deque[tuple[int, Instruction]]] = [deque() for _ in Engine]
        self.sending: list[deque[_Sending]] = [deque() for _ in Engine]
        self.tokens: dict[tuple[Engine, Engine], deque[Clock]] = {
            (source, target): deque() for source in Engine for target in Engine if source != target
        }
        self.loops = {engine: [LoopLevel() for _ in range(LOOP_LEVELS)] for engine in LEGAL_ENGINES[Opcode.LOOP]}
        self.bytes_read = 0
        self.bytes_written = 0

    def run(self) -> RunResult:
        fault = None
        if self.core.races is not None:
            self.core.races.begin_program()
        try:
            self._check_program()
            progress = True
            while progress:
                progress = self._fetch()
                for engine in Engine:
                    while self._step(engine):
                        progress = True
            if not self.finished or any(self.queues) or any(self.sending):
                fault = self._deadlock()
        except _CoreStoppedError as stop:
            fault = stop.record
        return RunResult(
            cycles=None,
            fault=fault,
            bytes_read=self.bytes_read,
            bytes_written=self.bytes_written,
            tokens_left={pair: len(waiting) for pair, waiting in self.tokens.items() if waiting},
        )

    # Fetch

    def _check_program(self) -> None:
        size = self.config.instruction_bytes
        if self.offset % PROGRAM_ALIGNMENT:
            self._fault(
                Fault.ALIGNMENT, FETCH, 0, f"program offset {self.offset:#x} is not a multiple of {PROGRAM_ALIGNMENT}"
            )
        if self.offset + self.count * size > self.window_bytes:
            end = self.offset + self.count * size
            self._fault(
                Fault.WINDOW, FETCH, 0, f"program ends at byte {end:#x} of a window of {self.window_bytes:#x} bytes"
            )

    def _fetch(self) -> bool:
        """Move instructions into queues until one is full; True if any moved."""
        progress = False
        size = self.config.instruction_bytes
        while not self.finished:
            if self.fetched == self.count:
                self._fault(Fault.NO_FINISH, FETCH, self.count, f"no FINISH in {self.count} instructions")
            start = self.window_start + self.offset + self.fetched * size
            self._check_bus(start, start + size, FETCH, self.fetched, write=False)
            if self.core.footprint is not None:
                self.core.footprint.add(start, size, write=False)
            instruction = self._decode(self._word(self.fetched))
            if isinstance(instruction, Finish):
                self.finished = True
            elif len(self.queues[instruction.engine]) == self.config.queue_depth:
                break
            else:
                self.queues[instruction.engine].append((self.fetched, instruction))
            self.fetched += 1
            self.bytes_read += size
            progress = True
        return progress

    def _word(self, number: int) -> int:
        size = self.config.instruction_bytes
        start = self.window_start + self.offset + number * size
        return int.from_bytes(self.core.dram[start : start + size].tobytes(), "little")

    def _decode(self, word: int) -> Instruction:
        """The instruction; the faults here are what fetch itself finds, a :class:`_Refused` is left to the engine."""
        if word != seal(self.config, word):
            raise self._stop(Fault.CORRUPT, FETCH, self.fetched, "the check bits do not fit the other bits")
        try:
            return decode(self.config, word)
        except InstructionError as error:
            header: dict[str, int] = {}
            position = 0
            for name, width, _ in HEADER:
                header[name] = word >> position & (1 << width) - 1
                position += width
            if header["opcode"] in Opcode._value2member_map_:
                opcode = Opcode(header["opcode"])
                used = position + sum(width for _, width, _ in instruction_fields(self.config, opcode))
                own_bit = (header["wait"] | header["send"]) >> header["engine"] & 1
                legal_engine = header["engine"] in LEGAL_ENGINES[opcode]
                reserved = word >> used & (1 << self.config.instruction_bits - self.config.check_bits - used) - 1
                if legal_engine and not reserved and not own_bit and opcode is not Opcode.FINISH:
                    engine = Engine(header["engine"])
                    return _Refused(engine=engine, wait=header["wait"], send=header["send"], problem=str(error))
            raise self._stop(Fault.ILLEGAL, FETCH, self.fetched, str(error)) from None

    # Engines

    def _step(self, engine: Engine) -> bool:
        """Send what is pending, or execute the next instruction if its tokens are there; False if neither."""
        sending = self.sending[engine]
        if sending and not any(self._is_full(engine, target) for target in mask_engines(sending[0].instruction.send)):
            sent = sending.popleft()
            for target in mask_engines(sent.instruction.send):
                self.tokens[engine, target].append(sent.clock)
            return True
        if not self.queues[engine] or len(sending) == MOST_SENDING:
            return False
        if self._missing(engine):
            return False
        number, instruction = self.queues[engine].popleft()
        sources = mask_engines(instruction.wait)
        received = [self.tokens[source, engine].popleft() for source in sources]
        if self.core.races is not None:
            self.core.races.begin(engine, number, received)
        try:
            self._execute(number, instruction)
        except RaceError as error:
            for part in (error.first, error.second):
                error.add_note(f"instruction {part}: {format_instruction(self._decode(self._word(part)))}")
            raise
        if instruction.send or sending:
            clock = self.core.races.clock(engine) if self.core.races is not None else ()
            sending.append(_Sending(number, instruction, clock))
        return True

    def _execute(self, number: int, instruction: Instruction) -> None:
        match instruction:
            case Loop():
                self.loops[instruction.engine][instruction.level] = LoopLevel(
                    instruction.extent, instruction.dst_stride, instruction.a_stride, instruction.b_stride
                )
            case Load():
                self._load(number, instruction)
            case Store():
                self._store(number, instruction)
            case Gemm():
                self._gemm(number, instruction)
            case Vector():
                self._vector(number, instruction)
            case _Refused():
                self._fault(Fault.ILLEGAL, instruction.engine, number, instruction.problem)

    def _load(self, number: int, instruction: Load) -> None:
        transfer = transfer_of(self.config, instruction)
        if problem := transfer_problem(self.config, transfer, self.window_bytes):
            self._fault(problem[0], instruction.engine, number, problem[1])
        if transfer.bytes:
            self._check_transfer(transfer, instruction.engine, number, write=False)
            if self.core.races is not None:
                self.core.races.access(instruction.engine, Memory.DRAM, granules(self.config, transfer), write=False)
            self._leave_footprint(transfer, write=False)
        written = run_load(self.core.memories, self.core.dram, self.window_start, instruction, transfer)
        if self.core.races is not None:
            self.core.races.access(instruction.engine, transfer.memory, written, write=True)
        self.bytes_read += transfer.bytes

    def _store(self, number: int, instruction: Store) -> None:
        transfer = transfer_of(self.config, instruction)
        if problem := transfer_problem(self.config, transfer, self.window_bytes):
            self._fault(problem[0], instruction.engine, number, problem[1])
        if not transfer.bytes:
            return
        self._check_transfer(transfer, Engine.STORE, number, write=True)
        if self.core.races is not None:
            self.core.races.access(Engine.STORE, Memory.DRAM, granules(self.config, transfer), write=True)
            program_end = self.offset + self.count * self.config.instruction_bytes
            if transfer.start < program_end and self.offset < transfer.end:
                raise SimulationError(
                    f"instruction {number} stores to bytes {transfer.start:#x}..{transfer.end:#x}, "
                    "where its own program lies",
                    hint="keep results and program apart",
                )
        self._leave_footprint(transfer, write=True)
        read = run_store(self.core.memories, self.core.dram, self.window_start, transfer)
        if self.core.races is not None:
            self.core.races.access(Engine.STORE, Memory.OUT, read, write=False)
        self.bytes_written += transfer.bytes

    def _gemm(self, number: int, instruction: Gemm) -> None:
        access, bad = run_gemm(self.core.memories, self._nest(number, instruction), instruction)
        if self.core.races is not None:
            self.core.races.access(Engine.GEMM, Memory.INP, access.inp, write=False)
            self.core.races.access(Engine.GEMM, Memory.WGT, access.wgt, write=False)
            self.core.races.access(Engine.GEMM, Memory.ACC, access.acc, write=True)
        self._check_index(Engine.GEMM, number, bad)

    def _vector(self, number: int, instruction: Vector) -> None:
        access, bad = run_vector(self.core.memories, self._nest(number, instruction), instruction)
        if self.core.races is not None:
            self.core.races.access(Engine.VECTOR, Memory.ACC, access.read, write=False)
            if entries := instruction.table_entries:
                self.core.races.access(Engine.VECTOR, Memory.TAB, slice(entries.start, entries.stop), write=False)
            self.core.races.access(Engine.VECTOR, instruction.target.memory, access.written, write=True)
        self._check_index(Engine.VECTOR, number, bad)

    def _nest(self, number: int, instruction: Gemm | Vector) -> LoopNest:
        nest = LoopNest(tuple(reversed(self.loops[instruction.engine][: instruction.levels])))
        check_micro_ops(number, nest.count)
        return nest

    def _check_index(self, engine: Engine, number: int, bad: int | None) -> None:
        if bad is not None:
            self._fault(Fault.INDEX, engine, number, f"an index of micro-op {bad} is outside its memory")

    # Ends of a program

    def _check_transfer(self, transfer: Transfer, engine: int, number: int, *, write: bool) -> None:
        """Every bus word of every row has to come without an error."""
        if self.core.bus_errors is None:
            return
        word = self.config.bus_bytes
        for row in range(transfer.rows):
            start = self.window_start + transfer.start + row * transfer.stride_bytes
            end = start + transfer.row_bytes
            self._check_bus(start // word * word, -(-end // word) * word, engine, number, write=write)

    def _leave_footprint(self, transfer: Transfer, *, write: bool) -> None:
        if self.core.footprint is not None:
            start = self.window_start + transfer.start
            self.core.footprint.add(start, transfer.row_bytes, transfer.rows, transfer.stride_bytes, write=write)

    def _check_bus(self, start: int, stop: int, engine: int, number: int, *, write: bool) -> None:
        errors = self.core.bus_errors
        if errors is not None and errors.hits(start, stop, write=write):
            cause = Fault.BUS_WRITE if write else Fault.BUS_READ
            self._fault(cause, engine, number, f"the memory answered bytes {start:#x}..{stop:#x} with an error")

    def _deadlock(self) -> FaultRecord:
        """The record of the watchdog: every engine that is stuck, and on what."""
        records: list[FaultRecord] = []
        waiting: list[FaultRecord] = []
        for engine in Engine:
            if missing := self._missing(engine):
                number, instruction = self.queues[engine][0]
                reason = f"waits for a token of {', '.join(ENGINE_NAMES[source] for source in missing)}"
            elif self.sending[engine]:
                number, instruction = self.sending[engine][0].number, self.sending[engine][0].instruction
                full = (target for target in mask_engines(instruction.send) if self._is_full(engine, target))
                reason = f"cannot send: no room for a token to {', '.join(ENGINE_NAMES[target] for target in full)}"
            else:
                continue
            text = f"instruction {number} ({format_instruction(instruction)}) {reason}"
            records.append(FaultRecord(Fault.WATCHDOG, engine, number, text))
            if missing:
                waiting.append(records[-1])
        texts = [record.message for record in records]
        if not self.finished:
            engine = self._decode(self._word(self.fetched)).engine
            texts.append(f"fetch cannot place instruction {self.fetched}: the queue of {ENGINE_NAMES[engine]} is full")
        return replace((waiting or records)[0], message=f"deadlock: {'; '.join(texts)}")

    def _missing(self, engine: Engine) -> list[Engine]:
        """Engines whose token the next instruction lacks."""
        if not self.queues[engine]:
            return []
        sources = mask_engines(self.queues[engine][0][1].wait)
        return [source for source in sources if not self.tokens[source, engine]]

    def _is_full(self, source: Engine, target: Engine) -> bool:
        return len(self.tokens[source, target]) >= self.config.token_depth

    def _stop(self, cause: Fault, engine: int, number: int, message: str) -> _CoreStoppedError:
        return _CoreStoppedError(FaultRecord(cause, engine, number, message))

    def _fault(self, cause: Fault, engine: int, number: int, message: str) -> None:
        raise self._stop(cause, engine, number, message)
