"""Proves of a whole program at once that it is free of races, deadlocks and faults.

The checker (`check`) follows a program instruction by instruction and names what is wrong. Nearly every program is
right, and that is known sooner: to run its tokens once gives the clocks, and all accesses are looked at as arrays. What
is not proved here is for the checker to judge.

The ends of all that is accessed cut a memory into pieces, whose units meet the same accesses. Of each piece the last
read and the last write of every engine are kept, in the order of the program: an access has to come behind the writes
of the others, and a write behind their reads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from ....hw.config import LOOP_LEVELS, CoreConfig
from ....hw.isa import TAP_COLUMNS, TAP_ROWS, Engine, Load, Opcode, Scratchpad, VectorOp, VectorTarget
from ....hw.load_counts import bytes_each, entries_each, granules_reached
from ....hw.memories import Memory
from ....hw.programs import Columns
from ..llvm.scan import scan

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Shape = tuple[tuple[int, int], ...]
"""Extents and strides."""

ENGINES = len(Engine)


class _DoubtError(Exception):
    """Something is wrong, or too odd to be judged here."""


@dataclass(frozen=True)
class _Touched:
    """Some accesses to a memory: the instructions, the first units, and which of ``shapes`` each has."""

    memory: Memory
    numbers: Ints
    firsts: Ints
    shapes: Sequence[Shape]
    which: Ints
    write: bool


def proved(
    config: CoreConfig, kinds: Mapping[Opcode, Columns], window_bytes: int, constants: Sequence[tuple[int, int]]
) -> bool:
    """Whether a program, given by its columns, is surely right. ``constants``: bytes of the window that are read
    without order and never written, from start to stop."""
    try:
        program = _Program.of(kinds)
        clocks = _clocks(config, program)
        touched = [*_computed(config, kinds, program), *_transferred(config, kinds, window_bytes, constants)]
        for memory in (*config.scratchpads, Memory.DRAM):
            size = window_bytes // config.granule_bytes if memory is Memory.DRAM else config.depth(memory)
            _ordered(size, program, clocks, [each for each in touched if each.memory is memory])
    except _DoubtError:
        return False
    return True


@dataclass(frozen=True)
class _Program:
    """By number of the instruction: its engine, the masks of its tokens, and how many its engine has had with it."""

    engines: Ints
    waits: Ints
    sends: Ints
    counts: Ints

    @staticmethod
    def of(kinds: Mapping[Opcode, Columns]) -> _Program:
        length = sum(len(each.numbers) for each in kinds.values())
        ends = kinds[Opcode.FINISH].numbers.tolist() if Opcode.FINISH in kinds else []
        if ends != [length - 1]:
            raise _DoubtError
        engines, waits, sends, counts = (np.zeros(length - 1, np.int64) for _ in range(4))
        for opcode, each in kinds.items():
            if opcode is not Opcode.FINISH:
                for name, column in (("engine", engines), ("wait", waits), ("send", sends)):
                    column[each.numbers] = each.fields[name]
        for engine in range(ENGINES):
            own = np.flatnonzero(engines == engine)
            counts[own] = np.arange(1, len(own) + 1)
        return _Program(engines, waits, sends, counts)


def _clocks(config: CoreConfig, program: _Program) -> Ints:
    """For each instruction what it knows of the engines when it starts: how many of their instructions have ended. What
    it knows of its own engine takes no part. One axis, ENGINES numbers for each.

    They run one after the other. Where that comes to its end, so do all other ways to run them: what engines do to
    one another goes through queues and tokens alone, which are first in, first out.
    """
    length, room = len(program.engines), config.token_depth
    clocks = np.zeros(length * ENGINES, np.int64)
    doubt = _scan_clocks(
        program.engines, program.counts, program.waits, program.sends, length, room, np.zeros(ENGINES**2, np.int64),
        np.zeros(ENGINES**2, np.int64), np.zeros(ENGINES**2 * room * ENGINES, np.int64), clocks,
    )  # fmt: skip
    if doubt:
        raise _DoubtError
    return clocks


@scan
def _scan_clocks(
    engines: Ints, counts: Ints, waits: Ints, sends: Ints, length: int, room: int, now: Ints, held: Ints, tokens: Ints,
    clocks: Ints,
) -> int:  # fmt: skip
    """Whether there is doubt. ``now``: of each engine its clock. A pair of engines has so many tokens ``held``, each
    with a clock, the oldest first."""
    for number in range(length):
        engine = engines[number]
        own = engine * ENGINES
        for source in range(ENGINES):
            if waits[number] >> source & 1:
                pair = source * ENGINES + engine
                first = pair * room * ENGINES
                if held[pair] == 0:
                    return 1
                held[pair] -= 1
                for other in range(ENGINES):
                    now[own + other] = max(now[own + other], tokens[first + other])
                for place in range(first, first + held[pair] * ENGINES):
                    tokens[place] = tokens[place + ENGINES]
        for other in range(ENGINES):
            clocks[number * ENGINES + other] = now[own + other]
        now[own + engine] = counts[number]
        for target in range(ENGINES):
            if sends[number] >> target & 1:
                pair = engine * ENGINES + target
                first = (pair * room + held[pair]) * ENGINES
                if held[pair] == room:
                    return 1
                held[pair] += 1
                for other in range(ENGINES):
                    tokens[first + other] = now[own + other]
    for pair in range(ENGINES * ENGINES):
        if held[pair] > 0:
            return 1
    return 0


def _computed(config: CoreConfig, kinds: Mapping[Opcode, Columns], program: _Program) -> list[_Touched]:
    """What products and vector work touch."""
    found = []
    if gemm := kinds.get(Opcode.GEMM):
        levels, fields = _levels(kinds, Engine.GEMM, gemm, len(program.engines)), gemm.fields
        taps = np.zeros((len(gemm.numbers), 4), np.int64)
        if "depthwise" in fields:
            taps[:, 0], taps[:, 1], taps[:, 2], taps[:, 3] = (
                TAP_ROWS, fields["row_pitch"], TAP_COLUMNS, fields["column_pitch"]
            )  # fmt: skip
            taps *= fields["depthwise"][:, None]
        for memory, name, operand, more in (
            (Memory.INP, "src", 2, taps), (Memory.WGT, "wgt", 3, None), (Memory.ACC, "dst", 1, None),
        ):  # fmt: skip
            found.append(_touched(memory, gemm.numbers, fields[name], levels, operand, more, write=name == "dst"))
    if vector := kinds.get(Opcode.VECTOR):
        levels, fields = _levels(kinds, Engine.VECTOR, vector, len(program.engines)), vector.fields
        found.append(_touched(Memory.ACC, vector.numbers, fields["a"], levels, 2, None, write=False))
        entries = np.array([op.b_entries for op in sorted(VectorOp)])[np.searchsorted(sorted(VectorOp), fields["op"])]
        takes = np.flatnonzero((fields["b_immediate"] == 0) & (entries > 0))
        more = np.stack([entries[takes], np.ones_like(takes)], axis=1)
        found.append(_touched(Memory.ACC, vector.numbers[takes], fields["b"][takes], levels[takes], 3, more,
                              write=False))  # fmt: skip
        for target in VectorTarget:
            own = np.flatnonzero(fields["target"] == target)
            found.append(_touched(target.memory, vector.numbers[own], fields["dst"][own], levels[own], 1, None,
                                  write=True))  # fmt: skip
    return found


def _levels(kinds: Mapping[Opcode, Columns], engine: Engine, computing: Columns, length: int) -> Ints:
    """Of each computing instruction the loops that it runs, the innermost first: extent and strides (dst, a, b). Those
    that it does not run have one iteration."""
    names = ("extent", "dst_stride", "a_stride", "b_stride")
    found = np.zeros((len(computing.numbers), LOOP_LEVELS, len(names)), np.int64)
    found[:, :, 0] = 1
    loops = kinds.get(Opcode.LOOP)
    if loops is not None:
        values = np.stack([loops.fields[name] for name in names], axis=1)
        for level in range(LOOP_LEVELS):
            own = np.flatnonzero((loops.fields["engine"] == engine) & (loops.fields["level"] == level))
            latest = np.searchsorted(loops.numbers[own], computing.numbers) - 1
            runs = np.flatnonzero((latest >= 0) & (computing.fields["levels"] > level))
            found[runs, level] = values[own[latest[runs]]]
    return found


def _touched(
    memory: Memory, numbers: Ints, firsts: Ints, levels: Ints, operand: int, more: Ints | None, *, write: bool
) -> _Touched:
    """``more``: extents and strides of further loops, one after the other."""
    pairs = levels[:, :, [0, operand]].reshape(len(numbers), 2 * LOOP_LEVELS)
    rows = (pairs if more is None else np.concatenate([pairs, more], axis=1)).tolist()
    known: dict[tuple[int, ...], int] = {}
    which = np.array([known.setdefault(tuple(row), len(known)) for row in rows], np.int64)
    shapes = [tuple((extent, stride) for extent, stride in zip(row[::2], row[1::2], strict=True) if extent != 0)
              for row in known]  # fmt: skip
    return _Touched(memory, numbers, firsts, shapes, which, write)


def _transferred(
    config: CoreConfig, kinds: Mapping[Opcode, Columns], window_bytes: int, constants: Sequence[tuple[int, int]]
) -> list[_Touched]:
    """What loads and stores touch."""
    found = []
    areas = _Areas.of(config, constants)
    if loads := kinds.get(Opcode.LOAD):
        fields = loads.fields
        each, size = of_each_load(config, loads, entries_each), of_each_load(config, loads, bytes_each)
        rows = fields["pad_top"] + fields["rows"] + fields["pad_bottom"]
        counts = rows * (fields["pad_left"] + fields["columns"] + fields["pad_right"]) * each
        for scratchpad in Scratchpad:
            own = np.flatnonzero(fields["scratchpad"] == scratchpad)
            found.append(
                _consecutive(config, scratchpad.memory, loads.numbers[own], fields["index"][own], counts[own], True)
            )
        found.append(_in_dram(config, loads, size, window_bytes, areas, write=False))
    if stores := kinds.get(Opcode.STORE):
        counts = stores.fields["rows"] * stores.fields["columns"]
        found.append(_consecutive(config, Memory.OUT, stores.numbers, stores.fields["index"], counts, False))
        size = np.full(len(stores.numbers), config.out_bytes)
        found.append(_in_dram(config, stores, size, window_bytes, areas, write=True))
    return found


def of_each_load(config: CoreConfig, loads: Columns, count: Callable[[CoreConfig, Load], int]) -> Ints:
    """What ``count`` says of each load, which follows from where it loads to, and how."""
    pairs = np.stack([loads.fields["scratchpad"], loads.fields["pad_value"]])
    distinct, which = np.unique(pairs, axis=1, return_inverse=True)
    members = {int(each): each for each in Scratchpad}
    examples = [
        Load(scratchpad=members[scratchpad], pad_value=value, index=0, offset=0, rows=0, columns=0)
        for scratchpad, value in distinct.T.tolist()
    ]
    return np.array([count(config, load) for load in examples], np.int64)[which.reshape(-1)]


def _consecutive(
    config: CoreConfig, memory: Memory, numbers: Ints, firsts: Ints, counts: Ints, write: bool
) -> _Touched:
    """Entries of transfers. Those of none have to begin in the memory, too."""
    if (firsts > config.depth(memory)).any():
        raise _DoubtError
    some = np.flatnonzero(counts)
    distinct, which = np.unique(counts[some], return_inverse=True)
    return _Touched(memory, numbers[some], firsts[some], [((count, 1),) for count in distinct.tolist()], which, write)


@dataclass(frozen=True)
class _Areas:
    """Constants in DRAM, in granules, by where they start; ``reach``: where those up to each end at the latest."""

    starts: Ints
    reach: Ints

    @staticmethod
    def of(config: CoreConfig, constants: Sequence[tuple[int, int]]) -> _Areas:
        pairs = np.array(sorted(constants), np.int64).reshape(-1, 2) // config.granule_bytes
        return _Areas(pairs[:, 0], np.concatenate([[-1], np.maximum.accumulate(pairs[:, 1])]))

    def touched(self, first: Ints, stop: Ints) -> Flags:
        """Whether one has a granule of ``first .. stop - 1``."""
        return self.reach[np.searchsorted(self.starts, stop)] > first

    def inside(self, first: Ints, stop: Ints) -> Flags:
        """Whether these granules are all of one."""
        return self.reach[np.searchsorted(self.starts, first, side="right")] >= stop


def _in_dram(
    config: CoreConfig, transfers: Columns, entry_bytes: Ints, window_bytes: int, areas: _Areas, *, write: bool
) -> _Touched:
    fields = transfers.fields
    some = np.flatnonzero(fields["rows"] * fields["columns"])
    rows, columns, stride, offset = (fields[name][some] for name in ("rows", "columns", "stride", "offset"))
    size, granule = entry_bytes[some], config.granule_bytes
    reach = granules_reached(config, rows, columns, stride, size)
    stop = offset + reach
    if (offset * granule % np.minimum(size & -size, config.bus_bytes)).any():
        raise _DoubtError
    if (stop > window_bytes // granule).any() or (write and areas.touched(offset, stop).any()):
        raise _DoubtError
    ordered = np.flatnonzero(~areas.inside(offset, stop))
    whole, units = size % granule == 0, size // granule  # of other entries all granules from the first to the last
    columns, stride = np.where(whole, columns * units, reach)[ordered], np.where(whole, stride * units, 0)[ordered]
    rows = np.where(whole, rows, 1)[ordered]
    shapes, which = np.unique(np.stack([columns, rows, stride], axis=1), axis=0, return_inverse=True)
    return _Touched(
        Memory.DRAM, transfers.numbers[some[ordered]], offset[ordered],
        [((count, 1), (several, apart)) for count, several, apart in shapes.tolist()], which.reshape(-1), write,
    )  # fmt: skip


@lru_cache(maxsize=65536)
def _pieces(shape: Shape) -> tuple[Ints, Ints]:
    """The runs of consecutive units of ``sum(i * stride)``: where each begins, and where it has ended."""
    units = np.zeros(1, np.int64)
    for extent, stride in shape:
        if stride and extent > 1:
            units = np.unique(np.add.outer(units, np.arange(extent, dtype=np.int64) * stride))
    breaks = np.flatnonzero(np.diff(units) > 1) + 1
    return units[np.concatenate([[0], breaks])], units[np.concatenate([breaks - 1, [len(units) - 1]])] + 1


def _ordered(size: int, program: _Program, clocks: Ints, touched: Sequence[_Touched]) -> None:
    """Doubt whether all that touches a memory of ``size`` units is inside of it, and in order."""
    begins, ends, sources = [], [], []
    for source in touched:
        cut = [_pieces(shape) for shape in source.shapes]
        counts = np.array([len(starts) for starts, _ in cut], np.int64)
        where = np.cumsum(counts) - counts
        lengths = counts[source.which]
        piece = np.arange(lengths.sum()) + np.repeat(where[source.which] - np.cumsum(lengths) + lengths, lengths)
        first = np.repeat(source.firsts, lengths)
        empty = np.zeros(0, np.int64)
        begins.append(np.concatenate([empty, *(starts for starts, _ in cut)])[piece] + first)
        ends.append(np.concatenate([empty, *(stops for _, stops in cut)])[piece] + first)
        sources.append((np.repeat(source.numbers, lengths), np.full(len(piece), source.write)))
    if not touched or not sum(map(len, begins)):
        return
    begin, end = np.concatenate(begins), np.concatenate(ends)
    number, write = (np.concatenate(column) for column in zip(*sources, strict=True))
    if begin.min() < 0 or end.max() > size:
        raise _DoubtError
    points, places = np.unique(np.concatenate([begin, end]), return_inverse=True)
    in_turn = np.argsort(number, kind="stable")
    begin, end = places[: len(begin)][in_turn], places[len(begin) :][in_turn]
    number, write = number[in_turn], write[in_turn].astype(np.int64)
    doubt = _scan_accesses(
        number, write, begin, end, len(number), program.engines, program.counts, clocks,
        np.zeros(len(points) * 2 * ENGINES, np.int64),
    )  # fmt: skip
    if doubt:
        raise _DoubtError


@scan
def _scan_accesses(
    number: Ints, write: Ints, begin: Ints, end: Ints, accesses: int, engines: Ints, counts: Ints, clocks: Ints,
    past: Ints,
) -> int:  # fmt: skip
    """Whether there is doubt. ``past``: of each piece of the memory the counts of the last reads of each engine, then
    of its last writes."""
    for access in range(accesses):
        instruction = number[access]
        engine = engines[instruction]
        for piece in range(begin[access], end[access]):
            first = piece * 2 * ENGINES
            for other in range(ENGINES):
                clock = clocks[instruction * ENGINES + other]
                read = past[first + other]
                written = past[first + ENGINES + other]
                if other != engine and (written > clock or (write[access] and read > clock)):
                    return 1
            past[first + write[access] * ENGINES + engine] = counts[instruction]
    return 0
