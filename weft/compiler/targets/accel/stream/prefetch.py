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

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf, prod

import numpy as np

from .....hw.config import CoreConfig
from .....hw.dram_rate import DramRate
from .....hw.isa import TAP_COLUMNS, Engine, Gemm, Load, Loop, Store, Vector
from .....hw.load_counts import bytes_each
from .....hw.memories import Memory
from .conflicts import Conflicts
from .stream import TRANSFERS, Issue

PIPELINE_CYCLES = 16
"""Cycles from the last micro-op of an instruction to its end, about."""

MARGIN = 1.1
"""Time of the bus that a load is given, as a multiple of what its bytes take: the timetable is no more than rough."""

QUEUED = 500
"""Cycles by which a load goes later than there is room for it: instructions reach their queues before they start, and a
load that waits there holds up all behind it."""


@dataclass(frozen=True)
class _Timetable:
    """When things happen if no load of ``loadw`` takes time."""

    ends: Sequence[int]  # of the last instruction with which each instruction shares an entry
    reached: Sequence[int]  # when the latest of what was to be computed so far starts
    wanted: Mapping[int, int]  # when what a load brings is used, by the load's position in the stream
    cost: Mapping[int, int]  # cycles of the bus that it takes
    free: Sequence[tuple[float, float]]  # when nobody uses the bus


def prefetches(
    config: CoreConfig, rate: DramRate, issues: Sequence[Issue], conflicts: Conflicts
) -> dict[int, int]:  # fmt: skip
    """Of the loads of ``loadw``, by position in the stream: the position behind which each should go at the latest.

    What they share with other instructions is for the caller to look at.
    """
    table = _timetable(config, rate, issues, conflicts)
    free = list(table.free)
    latest, moment = {}, inf
    for position in reversed(table.cost):
        moment = min(moment, table.wanted.get(position, inf))
        missing = MARGIN * table.cost[position]
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
        latest[position] = bisect_left(table.reached, max(moment, table.ends[position] + QUEUED)) - 1
    return latest


def _timetable(config: CoreConfig, rate: DramRate, issues: Sequence[Issue], conflicts: Conflicts) -> _Timetable:
    bandwidth = rate.for_bus(config)
    latest = np.full(len(issues), -1)
    earlier, later = conflicts.pairs
    np.maximum.at(latest, later, earlier)
    taken = _cycles(config, bandwidth, issues)
    clock = [0] * len(Engine)
    ended: list[int] = []
    ends: list[int] = []
    reached: list[int] = []
    untaken: dict[Engine, list[int]] = {Engine.GEMM: [], Engine.VECTOR: []}
    wanted: dict[int, int] = {}
    cost: dict[int, int] = {}
    free: list[tuple[float, float]] = []
    now = bus = 0
    for position, (issue, last, cycles) in enumerate(zip(issues, latest.tolist(), taken, strict=True)):
        engine = issue.instruction.engine
        first = ended[last] if last >= 0 else 0
        ends.append(first)
        if engine is Engine.LOADW:
            end = 0
            if writes := issue.writes:
                cost[position] = cycles
                untaken[Engine.GEMM if writes[0].memory is Memory.WGT else Engine.VECTOR].append(position)
        elif engine in TRANSFERS:
            begin = max(bus, clock[engine], first)
            if begin > bus:
                free.append((bus, begin))
            clock[engine] = bus = begin + cycles
            end = bus + rate.latency
        else:
            start = max(clock[engine], first)
            clock[engine] = end = start + cycles
            now = max(now, start)
            if untaken[engine] and not isinstance(issue.instruction, Loop):
                wanted.update(dict.fromkeys(untaken[engine], start))
                untaken[engine].clear()
        ended.append(end)
        reached.append(now)
    return _Timetable(ends, reached, wanted, cost, [*free, (bus, inf)])


def _cycles(config: CoreConfig, bandwidth: int, issues: Sequence[Issue]) -> list[int]:
    """What each instruction takes of its engine, or of DRAM, about. ``bandwidth``: bytes of DRAM a cycle."""
    extents: dict[Engine, dict[int, int]] = {engine: {} for engine in Engine}
    found = []
    for issue in issues:
        instruction, cycles = issue.instruction, PIPELINE_CYCLES
        match instruction:
            case Load():
                cycles += instruction.rows * instruction.columns * bytes_each(config, instruction) // bandwidth
            case Store():
                cycles += instruction.rows * instruction.columns * config.out_bytes // bandwidth
            case Gemm() | Vector():
                own = extents[instruction.engine]
                micro_ops = prod([own[level] for level in range(instruction.levels)])
                if isinstance(instruction, Gemm) and instruction.depthwise:  # an output takes one to three cycles
                    micro_ops *= (1 + TAP_COLUMNS) // 2
                cycles += micro_ops
            case Loop():
                extents[instruction.engine][instruction.level] = instruction.extent
                cycles = 1
            case _:
                cycles = 1
        found.append(cycles)
    return found
