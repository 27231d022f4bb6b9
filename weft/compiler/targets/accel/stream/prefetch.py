"""How far ahead weights and parameters are loaded: before anyone waits for them, and while nobody else needs the bus.

Engine ``loadw`` brings what no instruction writes, so its loads may go as far up the stream as their scratchpads have
room. Too late, and the array waits, as in a classifier whose weights are all wanted at once. Too early, and they take
the bus from those who wait for it, or stand in the queue in front of what is wanted sooner.

A rough timetable says when. The stream is walked in the walk's order, each engine with a clock of its own: an
instruction starts when its engine is free and the last instruction with which it shares an entry has ended. Loads of
``loadw`` take no time in it, so it tells when each is wanted: when the next work of its taker starts. Then, from the
last load back, each is given time of the bus that the timetable leaves free, ahead of the one behind it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

import numpy as np

from .....hw.config import CoreConfig
from .....hw.dram_rate import DramRate
from .....hw.isa import TAP_COLUMNS, Engine, Opcode
from .....hw.memories import Memory
from ...llvm.scan import scan
from .accesses import stream_of
from .conflicts import Conflicts
from .rows import Form, Ints, Rows, loops_held, transferred
from .stream import TRANSFERS, Issue

PIPELINE_CYCLES = 16
"""Cycles from the last micro-op of an instruction to its end, about."""

MARGIN = 1.1
"""Time of the bus that a load is given, as a multiple of what its bytes take: the timetable is no more than rough."""

QUEUED = 500
"""Cycles by which a load goes later than there is room for it: instructions reach their queues before they start, and a
load that waits there holds up all behind it."""

_LOADW = int(Engine.LOADW)


@dataclass(frozen=True)
class _Timetable:
    """When things happen if no load of ``loadw`` takes time. ``ends``: of each instruction, when the last one with
    which it shares an entry does; ``reached``: when the latest of what was to be computed so far starts. ``loads``:
    positions of those loads, and ``cost``: the cycles of the bus that each takes; ``wanted``: of each instruction, if
    it is such a load, when what it brings is used, or -1. ``free``: when nobody uses the bus."""

    ends: Ints
    reached: Ints
    loads: Ints
    cost: Ints
    wanted: Ints
    free: Sequence[tuple[float, float]]


def prefetches(
    config: CoreConfig, rate: DramRate, issues: Sequence[Issue], conflicts: Conflicts
) -> dict[int, int]:  # fmt: skip
    """Of the loads of ``loadw``, by position in the stream: the position behind which each should go at the latest.

    What they share with other instructions is for the caller to look at.
    """
    table = _timetable(config, rate, issues, conflicts)
    free = list(table.free)
    found, moments, moment = [], [], inf
    columns = table.loads, table.cost, table.wanted[table.loads]
    for position, cost, wanted in zip(*(each[::-1].tolist() for each in columns), strict=True):
        if wanted >= 0:
            moment = min(moment, wanted)
        missing = MARGIN * cost
        while missing > 0 and free:
            begin, end = free[-1]
            if begin >= moment:
                free.pop()
                continue
            moment = min(moment, end)
            taken = min(missing, moment - begin)
            moment -= taken
            missing -= taken
        if missing > 0:
            break  # what is wanted at once stays where the walk has it, beside what else is wanted at once
        found.append(position)
        moments.append(moment)
    latest = np.maximum(np.array(moments), table.ends[found] + QUEUED) if found else np.zeros(0)
    return dict(zip(found, (np.searchsorted(table.reached, latest) - 1).tolist(), strict=True))


def _timetable(config: CoreConfig, rate: DramRate, issues: Sequence[Issue], conflicts: Conflicts) -> _Timetable:
    rows = stream_of(issues).rows
    count = len(rows)
    latest = np.full(count, -1)
    earlier, later = conflicts.pairs
    np.maximum.at(latest, later, earlier)
    cycles = _cycles(config, rate.for_bus(config), rows)
    takers = rows.by_form(_taker)
    works = (rows.opcodes != Opcode.LOOP).astype(np.int64)
    wanted, ended, ends, reached, waiting, begins, stops = (np.full(count, -1) for _ in range(7))
    bus = np.zeros(1, np.int64)
    free = _scan_times(
        rows.engines, np.array([each in TRANSFERS for each in Engine], np.int64), latest, cycles, takers, works, count,
        rate.latency, np.zeros(len(Engine), np.int64), np.full(len(Engine), -1), waiting, wanted, ended, ends, reached,
        begins, stops, bus,
    )  # fmt: skip
    loads = np.flatnonzero(takers >= 0)
    times = zip(begins[:free].tolist(), stops[:free].tolist(), strict=True)
    return _Timetable(ends, reached, loads, cycles[loads], wanted, [*times, (int(bus[0]), inf)])


def _taker(form: Form) -> int:
    """Who uses what a load of ``loadw`` brings; -1 of other instructions."""
    if form.common["engine"] is not Engine.LOADW or not form.writes:
        return -1
    return Engine.GEMM if form.sets[form.writes[0]][0] is Memory.WGT else Engine.VECTOR


@scan
def _scan_times(
    engines: Ints, transfers: Ints, latest: Ints, cycles: Ints, takers: Ints, works: Ints, count: int, latency: int,
    clock: Ints, head: Ints, waiting: Ints, wanted: Ints, ended: Ints, ends: Ints, reached: Ints, begins: Ints,
    stops: Ints, bus: Ints,
) -> int:  # fmt: skip
    """How often the bus is free, from ``begins`` to ``stops``. ``head``: of each taker the last load that it has not
    used yet; ``waiting``: of a load, the one before it."""
    now = 0
    free = 0
    for position in range(count):
        engine = engines[position]
        first = 0
        if latest[position] >= 0:
            first = ended[latest[position]]
        ends[position] = first
        end = 0
        if engine == _LOADW:
            if takers[position] >= 0:
                waiting[position] = head[takers[position]]
                head[takers[position]] = position
        elif transfers[engine]:
            begin = max(max(bus[0], clock[engine]), first)
            if begin > bus[0]:
                begins[free] = bus[0]
                stops[free] = begin
                free += 1
            bus[0] = begin + cycles[position]
            clock[engine] = bus[0]
            end = bus[0] + latency
        else:
            start = max(clock[engine], first)
            end = start + cycles[position]
            clock[engine] = end
            now = max(now, start)
            if works[position]:
                load = head[engine]
                while load >= 0:
                    wanted[load] = start
                    load = waiting[load]
                head[engine] = -1
        ended[position] = end
        reached[position] = now
    return free


def _cycles(config: CoreConfig, bandwidth: int, rows: Rows) -> Ints:
    """What each instruction takes of its engine, or of DRAM, about. ``bandwidth``: bytes of DRAM a cycle."""
    found = np.ones(len(rows), np.int64)
    moving = rows.places(Opcode.LOAD, Opcode.STORE)
    found[moving] = PIPELINE_CYCLES + transferred(config, rows, moving) // bandwidth
    for opcode, engine in ((Opcode.GEMM, Engine.GEMM), (Opcode.VECTOR, Engine.VECTOR)):
        own = rows.places(opcode)
        (extents,) = loops_held(rows, engine, own, ["extent"])
        runs = np.arange(extents.shape[1]) < rows.column("levels", own)[:, None]
        micro_ops = np.where(runs, extents, 1).prod(axis=1)
        micro_ops[rows.column("depthwise", own) > 0] *= (1 + TAP_COLUMNS) // 2  # an output takes one to three cycles
        found[own] = PIPELINE_CYCLES + micro_ops
    return found
