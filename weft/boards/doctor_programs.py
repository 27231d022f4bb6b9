"""Programs that try a core: every engine, every alignment of a transfer, bursts of every length.

A :class:`Trial` is a window with a program in it. What an exact core leaves there, the functional simulator says.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from ..hw.bus import PAGE_BYTES
from ..hw.config import LOOP_LEVELS, STRIDE_BITS, TABLE_ENTRIES, CoreConfig
from ..hw.isa import (
    Engine,
    Finish,
    Gemm,
    Instruction,
    Load,
    Loop,
    Scratchpad,
    Store,
    Sync,
    Vector,
    VectorOp,
    VectorTarget,
)
from ..hw.programs import assemble
from ..roundings import FLOAT32, HALF_AWAY, HALF_EVEN
from ..sim.dma import transfer_of
from ..sim.fsim import FunctionalSimulator
from ..sim.fuzz import add_tokens, seeded
from ..sim.result import FaultRecord

Bytes = npt.NDArray[np.uint8]

PROGRAM_BYTES = 1 << 16
"""What is kept for a program, at the start of a window."""

SOURCE = PROGRAM_BYTES
"""Where random data begin; behind them, at :func:`target_of`, is the place for results."""

LEAST_SOURCE_BYTES = 1 << 15
UNTOUCHED = 0xC3
"""What lies where results go."""

BANDWIDTH_BYTES = 1 << 14


@dataclass(frozen=True, eq=False)
class Trial:
    """``window`` as the host writes it, with a program of ``count`` instructions at its start."""

    name: str
    config: CoreConfig
    window: Bytes
    count: int

    @property
    def code(self) -> Bytes:
        """The program's bytes."""
        return self.window[: self.count * self.config.instruction_bytes]

    @cached_property
    def expected(self) -> tuple[FaultRecord | None, Bytes]:
        """The fault, and the window after the program, of a core that is exact."""
        simulator = FunctionalSimulator(self.config, self.window.size, check_races=False)
        simulator.dram[:] = self.window
        return simulator.run(0, self.count).fault, simulator.dram


def trial(name: str, config: CoreConfig, plain: Sequence[Instruction], seed: int = 1) -> Trial:
    """A trial of instructions in a legal order; tokens are derived, FINISH comes last."""
    program = [*add_tokens(config, plain, lambda low, high: low), Finish()]
    target = target_of(config)
    ends = [transfer_of(config, each).end for each in plain if isinstance(each, (Load, Store))]
    window = np.full(-(-max(target, *ends) // PAGE_BYTES) * PAGE_BYTES, UNTOUCHED, np.uint8)
    window[SOURCE:target] = np.random.default_rng(seed).integers(0, 256, target - SOURCE, np.uint8)
    code = assemble(config, program)
    if code.size > PROGRAM_BYTES:
        raise ValueError(f"{name}: {code.size} bytes of program")
    window[: code.size] = code
    return Trial(name, config, window, len(program))


def of_bytes(name: str, config: CoreConfig, code: Bytes, count: int) -> Trial:
    """A trial of a program as bytes, right or wrong."""
    window = np.full(PROGRAM_BYTES, UNTOUCHED, np.uint8)
    window[: code.size] = code
    return Trial(name, config, window, count)


def of_program(name: str, config: CoreConfig, program: Sequence[Instruction]) -> Trial:
    """A trial of a program as it stands."""
    return of_bytes(name, config, assemble(config, program), len(program))


LOST = Sync(wait=1 << Engine.STORE, engine=Engine.LOAD)
"""Waits for a token that nobody sends."""


def single_instructions(config: CoreConfig, count: int = 60) -> list[Trial]:
    """Programs of one random instruction that moves nothing, and no FINISH: each that arrives ends with the same fault,
    and every bit that an instruction may have is set in some."""
    draw = seeded(9)
    made: list[Instruction] = []
    for number in range(count):
        offset, columns = draw(0, (1 << config.dram_bits) - 1), draw(0, (1 << config.count_bits) - 1)
        stride = draw(0, (1 << STRIDE_BITS) - 1)
        if number % 3 == 0:
            made.append(
                Load(
                    scratchpad=Scratchpad.INP, index=draw(0, config.inp_depth - 1), offset=offset, rows=0,
                    columns=columns, stride=stride, pad_left=draw(0, 15), pad_right=draw(0, 15),
                    pad_value=draw(-128, 127),
                )
            )  # fmt: skip
        elif number % 3 == 1:
            index = draw(0, config.out_depth - 1)
            made.append(Store(index=index, offset=offset, rows=0, columns=columns, stride=stride))
        else:
            strides = [draw(0, (1 << config.index_bits) - 1) for _ in range(3)]
            made.append(
                Loop(
                    engine=(Engine.GEMM, Engine.VECTOR)[draw(0, 1)], level=draw(0, LOOP_LEVELS - 1),
                    extent=draw(1, config.inp_depth), dst_stride=strides[0], a_stride=strides[1], b_stride=strides[2],
                )
            )  # fmt: skip
    return [of_program("one instruction", config, [each]) for each in made]


def target_of(config: CoreConfig) -> int:
    """Where results go."""
    return SOURCE + max(LEAST_SOURCE_BYTES, 8 * config.wgt_bytes)


# Transfers at every alignment


PAIRED = 4
"""With so many places in a word for the store each place for the load is tried; all of them where there are few."""


def copies(config: CoreConfig) -> Trial:
    """Loads and stores of bytes from and to every place of a bus word, and across the edges of bursts and pages."""
    entry = config.out_bytes
    step = max(config.granule_bytes, min(entry, config.bus_bytes))
    word = max(step, config.bus_bytes)
    phases = range(0, word, step)
    burst = min(config.burst_beats * config.bus_bytes, PAGE_BYTES)
    around = [edge + away for edge in (burst, PAGE_BYTES) for away in range(-2 * step, step + 1, step)]
    most = min(config.acc_depth, config.out_depth)
    lengths = sorted({min(most, each) for each in (1, 2, 3, word // entry + 1, 2 * word // entry + 1)})
    plain: list[Instruction] = []
    place = target_of(config)
    for number, load_at in enumerate((*phases, *around)):
        for turn in range(min(len(phases), PAIRED)):
            store_at = phases[(number + turn * len(phases) // PAIRED) % len(phases)]
            columns = lengths[(number + turn) % len(lengths)]
            plain += _copy(config, SOURCE + load_at, place + store_at, rows=1, columns=columns, stride=0)
            place += -(-(columns * entry + store_at + 1) // word) * word
    for columns in sorted({min(most // 3, each) for each in lengths}):
        plain += _copy(config, SOURCE + step, place, rows=3, columns=columns, stride=columns + 2)
        place += -(-3 * (columns + 2) * entry // word) * word
    page = -(-place // PAGE_BYTES) * PAGE_BYTES
    for store_at in around:
        plain += _copy(config, SOURCE, page + store_at, rows=1, columns=lengths[-1], stride=0)
        page += -(-(store_at + lengths[-1] * entry) // PAGE_BYTES) * PAGE_BYTES
    return trial("copies", config, plain, seed=2)


def _copy(
    config: CoreConfig, source: int, target: int, *, rows: int, columns: int, stride: int
) -> Iterator[Instruction]:
    """Bytes from one place to another, through ``acc`` and ``out``."""
    granule = config.granule_bytes
    entries = rows * columns
    yield Load(scratchpad=Scratchpad.ACC8, index=0, offset=source // granule, rows=rows, columns=columns, stride=stride)
    yield Loop(engine=Engine.VECTOR, level=0, extent=entries, dst_stride=1, a_stride=1)
    yield Vector(op=VectorOp.ADD, levels=1, target=VectorTarget.OUT, b_immediate=1, dst=0, a=0)
    yield Store(index=0, offset=target // granule, rows=rows, columns=columns, stride=stride)


# A program of each engine


def engine_trials(config: CoreConfig) -> list[Trial]:
    """One trial of each engine, by its name."""
    return [
        trial("load", config, [*_load_acc(config, Engine.LOAD)], seed=3),
        trial("loadw", config, [*_load_acc(config, Engine.LOADW)], seed=4),
        trial("gemm", config, [*_products(config)], seed=5),
        trial("vector", config, [*_vectors(config)], seed=6),
        trial("store", config, [*_stores(config)], seed=7),
    ]


def _at(config: CoreConfig, byte: int) -> int:
    """The offset in an instruction of a byte in the source that any transfer may begin at."""
    alignment = max(config.bus_bytes, config.granule_bytes)
    return (SOURCE + -(-byte // alignment) * alignment) // config.granule_bytes


DUMPED = 8
"""Most entries of ``acc`` that are dumped at a time."""


def _dump(config: CoreConfig, first: int, entries: int, slot: int) -> Iterator[Instruction]:
    """Entries of ``acc`` as bytes in the target: the lowest bytes of all, then the next ones."""
    part_bytes = -(-DUMPED * config.out_bytes // config.bus_bytes) * config.bus_bytes
    yield Loop(engine=Engine.VECTOR, level=0, extent=entries, dst_stride=1, a_stride=1)
    for byte in range(4):
        yield Vector(op=VectorOp.SHR, levels=1, target=VectorTarget.OUT, b_immediate=1, b=8 * byte, dst=0, a=first)
        target = target_of(config) + (4 * slot + byte) * part_bytes
        yield Store(index=0, offset=target // config.granule_bytes, rows=1, columns=entries, stride=0)


def _load_acc(config: CoreConfig, engine: Engine) -> Iterator[Instruction]:
    """Rectangles with a border of padding, of 32-bit and (engine load) of 8-bit elements."""
    load = Load(
        engine=engine, scratchpad=Scratchpad.ACC, index=0, offset=_at(config, 0), rows=2, columns=2, stride=3,
        pad_top=1, pad_left=1, pad_right=1, pad_value=-3,
    )  # fmt: skip
    yield load
    yield from _dump(config, 0, 8, 0)
    if engine is Engine.LOAD:
        yield Load(scratchpad=Scratchpad.ACC8, index=1, offset=_at(config, 64), rows=1, columns=7, pad_value=5)
        yield from _dump(config, 1, 7, 1)


def _products(config: CoreConfig) -> Iterator[Instruction]:
    """Two rows of outputs, each a sum over four pairs of inputs and weights; then once more, added to these.

    Where results may be inputs, one more output is made of them.
    """
    inputs, weights, outputs = 8, 4, 4
    yield Load(scratchpad=Scratchpad.INP, index=0, offset=_at(config, 0), rows=1, columns=inputs)
    yield Load(engine=Engine.LOADW, scratchpad=Scratchpad.WGT, index=0, offset=_at(config, 1024), rows=1,
               columns=weights)  # fmt: skip
    yield Loop(engine=Engine.GEMM, level=0, extent=4, a_stride=1, b_stride=1)
    yield Loop(engine=Engine.GEMM, level=1, extent=outputs, dst_stride=1, a_stride=1)
    yield Gemm(zero=1, levels=2, dst=0, src=0, wgt=0)
    yield from _dump(config, 0, outputs, 0)
    yield Loop(engine=Engine.GEMM, level=1, extent=1)
    yield Gemm(levels=2, dst=1, src=2, wgt=0)
    yield from _dump(config, 0, outputs, 1)
    if config.inp_takes_results:
        yield Loop(engine=Engine.VECTOR, level=0, extent=outputs, dst_stride=1, a_stride=1)
        yield Vector(op=VectorOp.SHR, levels=1, target=VectorTarget.INP, b_immediate=1, b=4, dst=1, a=0)
        yield Gemm(zero=1, levels=2, dst=outputs, src=1, wgt=0)
        yield from _dump(config, outputs, 1, 2)


def _vectors(config: CoreConfig) -> Iterator[Instruction]:
    """Every operation, on operands from ``acc`` and, where it may be, an immediate."""
    operands, results = 8, 8
    yield Load(scratchpad=Scratchpad.ACC, index=0, offset=_at(config, 0), rows=1, columns=operands)
    yield Loop(engine=Engine.VECTOR, level=1, extent=1)
    for slot, op in enumerate(VectorOp):
        where = operands + slot % (config.acc_depth - operands)
        if op is not VectorOp.REQUANTISE and not op.accumulates:
            yield Vector(op=op, levels=0, b_immediate=1, dst=where, a=slot % results, b=-3)
            yield from _dump(config, where, 1, 2 * slot)
        yield Vector(op=op, levels=0, zero=1, dst=where, a=slot % 3, b=3 + slot % 3, zero_point=3, low=-100, high=90,
                     left_shift=2)  # fmt: skip
        yield from _dump(config, where, 1, 2 * slot + 1)
    if config.tables:
        yield from _tables(config, operands, 2 * len(VectorOp))
    if config.rounding in (FLOAT32, HALF_AWAY, HALF_EVEN):
        yield from _halves(config, operands, 2 * len(VectorOp) + 2)  # behind what tables leave


def _tables(config: CoreConfig, operands: int, slot: int) -> Iterator[Instruction]:
    """The operands in ``acc`` by turns in all entries of the first and the last table, and results that pass through
    these."""
    yield Loop(engine=Engine.VECTOR, level=0, extent=operands, dst_stride=1, a_stride=1)
    yield Loop(engine=Engine.VECTOR, level=1, extent=TABLE_ENTRIES // operands, dst_stride=operands)
    for table in (1, config.tables):
        yield Vector(op=VectorOp.SHR, levels=2, target=VectorTarget.TAB, b_immediate=1, b=table % 2,
                     dst=TABLE_ENTRIES * (table - 1), a=0)  # fmt: skip
    yield Loop(engine=Engine.VECTOR, level=1, extent=1)
    for number, table in enumerate((1, config.tables)):
        yield Vector(op=VectorOp.SHR, levels=1, b_immediate=1, b=3, dst=operands, a=0, table=table)
        yield from _dump(config, operands, operands, slot + number)


def _halves(config: CoreConfig, operands: int, slot: int) -> Iterator[Instruction]:
    """The operands' highest bytes, halved: what is a half goes to what is even, or away from zero."""
    for place, number in enumerate((0, 1, 1), start=operands):  # bias, multiplier, shift
        yield Vector(op=VectorOp.MUL, b_immediate=1, b=0, dst=place, a=0)
        yield Vector(op=VectorOp.ADD, b_immediate=1, b=number, dst=place, a=place)
    yield Loop(engine=Engine.VECTOR, level=0, extent=operands, dst_stride=1, a_stride=1)
    yield Vector(op=VectorOp.SHR, levels=1, b_immediate=1, b=24, dst=0, a=0)
    yield Vector(op=VectorOp.REQUANTISE, levels=1, dst=0, a=0, b=operands, low=-256, high=255, rounding=1)
    yield from _dump(config, 0, operands, slot)


def _stores(config: CoreConfig) -> Iterator[Instruction]:
    """Rows apart, rows without a gap, and rows that overlap, of which the last one stays."""
    columns, rows = 2, 3
    yield Load(scratchpad=Scratchpad.ACC8, index=0, offset=_at(config, 0), rows=1, columns=columns * rows)
    yield Loop(engine=Engine.VECTOR, level=0, extent=columns * rows, dst_stride=1, a_stride=1)
    yield Vector(op=VectorOp.ADD, levels=1, target=VectorTarget.OUT, b_immediate=1, dst=0, a=0, b=1)
    for slot, stride in enumerate((columns, columns + 3, columns - 1)):
        target = target_of(config) + slot * rows * (columns + 3) * config.out_bytes
        yield Store(index=0, offset=target // config.granule_bytes, rows=rows, columns=columns, stride=stride)


# Bursts


@dataclass(frozen=True)
class Stream:
    """A trial that moves ``bytes`` in rows of ``words`` bus words, each a burst of its own."""

    writes: bool
    words: int
    bytes: int
    trial: Trial


def streams(config: CoreConfig) -> list[Stream]:
    """Reads and writes in bursts of one bus word up to the longest."""
    found = []
    for writes in (False, True):
        words = 1
        while words <= min(config.burst_beats, PAGE_BYTES // config.bus_bytes):
            if stream := _stream(config, writes, words):
                found.append(stream)
            words *= 2
    return found


def _stream(config: CoreConfig, writes: bool, words: int) -> Stream | None:
    entry = config.out_bytes if writes else config.inp_bytes
    depth = config.out_depth if writes else config.inp_depth
    row = words * config.bus_bytes
    columns = row // entry
    if not columns or columns > depth:
        return None
    rows = max(1, min(depth // columns, LEAST_SOURCE_BYTES // (2 * row)))
    repeats = -(-BANDWIDTH_BYTES // (rows * row))
    base = (target_of(config) if writes else SOURCE) // config.granule_bytes
    stride = 2 * columns  # a gap, so that no rows merge
    one: Instruction
    if writes:
        one = Store(index=0, offset=base, rows=rows, columns=columns, stride=stride)
    else:
        one = Load(scratchpad=Scratchpad.INP, index=0, offset=base, rows=rows, columns=columns, stride=stride)
    name = f"{'writes' if writes else 'reads'} in bursts of {words}"
    return Stream(writes, words, repeats * rows * row, trial(name, config, [one] * repeats))
