"""Proves of a whole program at once that it is free of races, deadlocks and faults.

The checker (`check`) follows a program instruction by instruction and names what is wrong. Nearly every program is
right, and that is known sooner: to run its tokens once gives the clocks, and all accesses are looked at as arrays. What
is not proved here is for the checker to judge.

In the order of the program, the accesses to a memory are taken in parts. The ends of all that is accessed in a part cut
the memory into atoms, whose units meet the same accesses. It is enough that each access comes behind the last write,
and each write behind the reads since: what lies further back is then behind them, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from ....hw.config import LOOP_LEVELS, CoreConfig
from ....hw.isa import TAP_COLUMNS, TAP_ROWS, Engine, Load, Opcode, Scratchpad, VectorOp, VectorTarget, mask_engines
from ....hw.load_counts import bytes_each, entries_each
from ....hw.memories import Memory
from ....hw.programs import Columns

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Shape = tuple[tuple[int, int], ...]
"""Extents and strides."""

ENGINES = len(Engine)

RUNS = 1024
"""Of consecutive units, in all accesses of a part, about."""


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
    """For each instruction what it knows of the engines when it starts: how many of their instructions have ended.

    They run one after the other. Where that comes to its end, so do all other ways to run them: what engines do to
    one another goes through queues and tokens alone, which are first in, first out.
    """
    engine_of, counts = program.engines.tolist(), program.counts.tolist()
    waits, sends, room = program.waits.tolist(), program.sends.tolist(), config.token_depth
    clock = [[0] * ENGINES for _ in range(ENGINES)]
    tokens: list[list[list[list[int]]]] = [[[] for _ in range(ENGINES)] for _ in range(ENGINES)]
    known = [[0] * ENGINES]
    row = np.zeros(len(engine_of), np.int64)  # of ``known``, where it grows
    for number in np.flatnonzero(program.waits | program.sends).tolist():
        engine = engine_of[number]
        own = clock[engine]
        if waits[number]:
            for source in mask_engines(waits[number]):
                if not tokens[source][engine]:
                    raise _DoubtError
                own[:] = map(max, own, tokens[source][engine].pop(0))
            row[number] = len(known)
            known.append(own.copy())
        if sends[number]:
            own[engine] = counts[number]
            for target in mask_engines(sends[number]):
                if len(tokens[engine][target]) == room:
                    raise _DoubtError
                tokens[engine][target].append(own.copy())
    if any(map(any, tokens)):
        raise _DoubtError
    for engine in range(ENGINES):
        mine = np.flatnonzero(program.engines == engine)
        row[mine] = np.maximum.accumulate(row[mine])
    return np.array(known, np.int64)[row]


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
            found.append(_consecutive(scratchpad.memory, loads.numbers[own], fields["index"][own], counts[own], True))
        found.append(_in_dram(config, loads, size, window_bytes, areas, write=False))
    if stores := kinds.get(Opcode.STORE):
        counts = stores.fields["rows"] * stores.fields["columns"]
        found.append(_consecutive(Memory.OUT, stores.numbers, stores.fields["index"], counts, False))
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


def _consecutive(memory: Memory, numbers: Ints, firsts: Ints, counts: Ints, write: bool) -> _Touched:
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
    stop = offset + ((rows - 1) * stride + columns) * (size // granule)
    if (offset * granule % np.minimum(size & -size, config.bus_bytes)).any():
        raise _DoubtError
    if (stop > window_bytes // granule).any() or (write and areas.touched(offset, stop).any()):
        raise _DoubtError
    ordered = np.flatnonzero(~areas.inside(offset, stop))
    columns, rows, stride = (columns * (size // granule))[ordered], rows[ordered], (stride * (size // granule))[ordered]
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
    number, write = number[in_turn], write[in_turn]
    past = np.zeros((2, ENGINES, len(points)), np.int64)  # counts of the last reads and writes of each engine
    for start in range(0, len(number), RUNS):
        part = slice(start, start + RUNS)
        _ordered_part(program, clocks, number[part], write[part], begin[part], end[part], past)


def _ordered_part(
    program: _Program, clocks: Ints, number: Ints, write: Flags, begin: Ints, end: Ints, past: Ints
) -> None:  # fmt: skip
    """``past``: what happened before, by kind of access, engine and piece of the memory; brought up to date."""
    low, high = int(begin.min()), int(end.max())
    edges = np.unique(np.concatenate([begin, end]))
    first, lengths = np.searchsorted(edges, begin), np.searchsorted(edges, end) - np.searchsorted(edges, begin)
    atom = np.arange(lengths.sum()) + np.repeat(first - np.cumsum(lengths) + lengths, lengths)
    access = np.repeat(np.arange(len(number)), lengths)
    by_atom = np.argsort(atom.astype(np.uint16) if len(edges) < 1 << 16 else atom, kind="stable")
    atom, access = atom[by_atom], access[by_atom]
    instruction, writes = number[access], write[access]
    engine, index, none = program.engines[instruction], np.arange(len(atom)), -1
    # What an engine knows only grows: it is enough that its first access knows of what happened before the part.
    here = np.maximum.reduceat(past[:, :, low:high], edges[:-1] - low, axis=2)
    for kind, some in ((1, index), (0, np.flatnonzero(writes))):
        first = np.full((ENGINES, len(edges) - 1), none)
        first[engine[some[::-1]], atom[some[::-1]]] = some[::-1]  # the first of several stays
        for own in range(ENGINES):
            found = first[own][first[own] != none]
            late = here[kind][:, atom[found]] > clocks[instruction[found]].T
            late[own] = False
            if late.any():
                raise _DoubtError
    last = np.maximum.accumulate(np.where(writes, index, none))
    last = np.concatenate([[none], last[:-1]])
    following = np.minimum.accumulate(np.where(writes, index, len(atom))[::-1])[::-1]
    read = np.flatnonzero(~writes & (following < len(atom)))
    for earlier, later in ((last, index), (read, following[read])):
        both = np.flatnonzero((earlier != none) & (atom[earlier] == atom[later]) & (engine[earlier] != engine[later]))
        before, behind = earlier[both], instruction[later[both]]
        if (clocks[behind, engine[before]] < program.counts[instruction[before]]).any():
            raise _DoubtError
    latest = np.zeros_like(here)
    latest[writes.astype(np.int64), engine, atom] = program.counts[instruction]  # the last of several stays
    section = past[:, :, low:high]
    np.maximum(section, np.repeat(latest, np.diff(edges), axis=2), out=section)
