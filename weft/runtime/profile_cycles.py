"""Where the cycles of a traced run went: exact sums over millions of cycles, by layer and by cause.

A run's trace says, for each engine and each cycle, what the engine did or waited for. Two questions are answered here:

* *Whose cycle is it?* A layer's cycles are those from the last result of the layers before it to its own last result.
  Layers overlap; counted so, they sum to the cycles of the run.
* *Why was the array not working in it?* The gemm engine waits for a token of another engine, which may itself wait for
  a token of a third; or for an instruction that fetch cannot bring, because the queue of another engine is full. The
  chain is followed to the engine that does something; what that engine does is the cause.

All is done on runs of equal cycles, never cycle by cycle.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property

import numpy as np
import numpy.typing as npt

from ..hw.cycle_class import CycleClass
from ..hw.isa import HEADER, Engine, Opcode
from .errors import DeviceError
from .module import HOW_TO_TRACE, StepRun

Integers = npt.NDArray[np.int64]

KINDS: dict[str, int] = {name: kind.value for name, kind in CycleClass.__members__.items()}
"""The numbers of :class:`CycleClass` as they stand in traces, by name."""

CLASSES = 16
"""Values that an engine's activity may take."""

_OPCODE_MASK = (1 << HEADER[0][1]) - 1
"""The opcode is the first field of every instruction, in its first byte."""

_TOKEN_BASE = KINDS["TOKEN_LOAD"]
"""``CycleClass`` of a wait for a token of engine 0; the wait for engine ``e`` is this plus ``e``."""

_AFTER_GEMM = (Engine.VECTOR, Engine.STORE, Engine.LOADW, Engine.LOAD)
"""Who is asked for the cause once gemm has nothing left to do, in this order."""


class Cause(IntEnum):
    """What a cycle was spent on, as seen from the array; each cycle of a run is in exactly one."""

    ARRAY = 0  # the array worked, for whichever layer
    RAMP = 1  # the layer's first tile was not there yet, or its last one was on its way out
    INPUTS = 2  # load was fetching activations
    WEIGHTS = 3  # loadw was fetching weights or parameters
    STORES = 4  # store was writing results
    VECTOR = 5  # the vector engine worked
    TOKENS = 6  # a token or a result was on its way from one engine to the next
    INSTRUCTIONS = 7  # the next instruction was still on its way from DRAM, and no full queue held it up


@dataclass(frozen=True)
class Runs:
    """A step function of time: ``values[i]`` from cycle ``starts[i]`` to ``starts[i + 1]``, the last to ``end``."""

    starts: Integers
    values: Integers
    end: int

    def at(self, cycles: Integers) -> Integers:
        """The values in these cycles."""
        return self.values[np.searchsorted(self.starts, cycles, side="right") - 1]


def totals(edges: Integers, runs: Sequence[Runs], sizes: Sequence[int]) -> Integers:
    """Cycles between consecutive ``edges`` by the values of several step functions, shape ``(edges - 1, *sizes)``.

    ``sizes[i]`` is the number of values that ``runs[i]`` takes (0 ... ``sizes[i] - 1``). ``edges`` must not decrease.
    """
    first, last = int(edges[0]), int(edges[-1])
    cuts = np.unique(np.concatenate([edges, *(run.starts for run in runs)]))
    cuts = cuts[(cuts >= first) & (cuts <= last)]
    starts, lengths = cuts[:-1], np.diff(cuts)
    place = np.searchsorted(edges, starts, side="right") - 1
    for run, size in zip(runs, sizes, strict=True):
        place = place * size + run.at(starts)
    shape = (len(edges) - 1, *sizes)
    # float64 sums of integers are exact far beyond any number of cycles that can be simulated.
    sums = np.bincount(place, weights=lengths, minlength=int(np.prod(shape)))
    return np.rint(sums).astype(np.int64).reshape(shape)


@dataclass(frozen=True)
class LayerSpan:
    """A layer's part of a program.

    ``start``, ``end``: its cycles. ``fill``: the cycle in which its first micro-op of the engine that does its work
    (``main``) starts; ``drain``: the cycle after the last one; both within ``start``..``end``.
    """

    layer: int
    start: int
    end: int
    fill: int
    drain: int
    main: Engine


class ProgramCycles:
    """The accounting of one traced program.

    Raises :class:`DeviceError` if the run was not traced.
    """

    def __init__(self, run: StepRun, queue_depth: int) -> None:
        if run.result.trace is None or run.result.cycles is None or not len(run.result.trace.activity):
            raise DeviceError("the run recorded no trace, so its cycles cannot be accounted for", hint=HOW_TO_TRACE)
        self.cycles = run.result.cycles
        self._queue_depth = queue_depth
        self._events = run.result.trace.events
        self._activity = run.result.trace.activity
        self._layer_of = run.step.layer_of.astype(np.int64)
        first_bytes = run.step.program.reshape(len(self._layer_of), -1)[:, 0]
        self._has_microops = np.isin(first_bytes & _OPCODE_MASK, [Opcode.GEMM, Opcode.VECTOR])

    @cached_property
    def activity(self) -> tuple[Runs, ...]:
        """For each engine the :class:`CycleClass` of every cycle."""
        return tuple(self._activity_of(engine) for engine in Engine)

    def _activity_of(self, engine: Engine) -> Runs:
        mine = self._activity[self._activity["engine"] == engine]
        if not len(mine):
            return Runs(np.zeros(1, np.int64), np.full(1, int(KINDS["IDLE"]), np.int64), self.cycles)
        return Runs(mine["start"].astype(np.int64), mine["kind"].astype(np.int64), self.cycles)

    @cached_property
    def working_for(self) -> tuple[Runs, ...]:
        """For each engine 1 + the layer of the instruction that it started last; 0 before the first, and for set-up."""
        return tuple(self._working_for(engine) for engine in Engine)

    @cached_property
    def issuing_for(self) -> tuple[Runs, ...]:
        """Like :attr:`working_for`, but 0 where that instruction has no micro-ops (LOOP, SYNC, LOAD, STORE)."""
        return tuple(self._working_for(engine, only_microops=True) for engine in Engine)

    def _working_for(self, engine: Engine, only_microops: bool = False) -> Runs:
        numbers, starts = self._order[engine]
        # Of instructions that start in the same cycle the last one counts.
        kept = np.append(starts[1:] != starts[:-1], True) if len(starts) else np.zeros(0, bool)
        layers = 1 + self._layer_of[numbers[kept]]
        if only_microops:
            layers = np.where(self._has_microops[numbers[kept]], layers, 0)
        return Runs(np.append(-1, starts[kept]), np.append(0, layers), self.cycles)

    @cached_property
    def causes(self) -> Runs:
        """The :class:`Cause` of every cycle, ramps not told apart (:meth:`causes_between` does)."""
        changes = [run.starts for run in (*self.activity, *self.working_for)]
        cuts = np.unique(np.concatenate(changes))
        cuts = cuts[cuts >= 0]
        kinds = np.stack([run.at(cuts) for run in self.activity])
        columns = np.arange(len(cuts))
        engine = np.full(len(cuts), int(Engine.GEMM), np.int64)
        for other in _AFTER_GEMM:
            engine = np.where(kinds[engine, columns] == KINDS["IDLE"], int(other), engine)
        for _ in range(2 * len(Engine)):  # longer chains go round in a circle: tokens on their way
            kind = kinds[engine, columns]
            engine = np.where(kind >= _TOKEN_BASE, kind - _TOKEN_BASE, engine)
            starved = np.flatnonzero(kinds[engine, columns] == KINDS["INSTRUCTION"])
            engine[starved] = self._holding_up(engine[starved], cuts[starved])
        values = _CAUSE_OF[engine, kinds[engine, columns]]
        kept = np.append(True, values[1:] != values[:-1])
        return Runs(cuts[kept], values[kept], self.cycles)

    @cached_property
    def _order(self) -> tuple[tuple[Integers, Integers], ...]:
        """For each engine the numbers of its instructions and the cycles in which they started, in order."""
        orders = []
        for engine in Engine:
            mine = self._events[self._events["engine"] == engine]
            mine = mine[np.argsort(mine["number"], kind="stable")]
            orders.append((mine["number"].astype(np.int64), mine["start"].astype(np.int64)))
        return tuple(orders)

    def _holding_up(self, engine: Integers, cycle: Integers) -> Integers:
        """The engine whose full queue keeps fetch from bringing the next instruction of ``engine``; else ``engine``."""
        wanted = np.zeros(len(engine), np.int64)
        for each, (numbers, starts) in enumerate(self._order):
            mine = engine == each
            place = np.searchsorted(starts, cycle[mine], side="right")
            wanted[mine] = np.append(numbers, len(self._layer_of))[place]
        waiting = np.stack([
            np.searchsorted(numbers, wanted) - np.searchsorted(starts, cycle, side="right")
            for numbers, starts in self._order
        ])  # fmt: skip
        longest = waiting.argmax(axis=0)
        result: Integers = np.where(waiting.max(axis=0) > self._queue_depth, longest, engine)
        return result

    @cached_property
    def spans(self) -> tuple[LayerSpan, ...]:
        """The layers' parts of the program, in order and without gaps."""
        layer = self._layer_of[self._events["number"].astype(np.int64)]
        retire = self._events["retire"].astype(np.int64)
        present = np.unique(layer[layer >= 0]).tolist()
        busy = {engine: self._extent(engine, max(present, default=0) + 1) for engine in (Engine.GEMM, Engine.VECTOR)}
        spans: list[LayerSpan] = []
        before = 0
        for index in present:
            mine = layer == index
            end = self.cycles if index == present[-1] else max(before, int(retire[mine].max()))
            main = Engine.GEMM if (self._events["engine"][mine] == Engine.GEMM).any() else Engine.VECTOR
            first, last = busy[main]
            fill, drain = (int(np.clip(cycle[index], before, end)) for cycle in (first, last))
            spans.append(LayerSpan(index, before, end, fill, drain, main))
            before = end
        return tuple(spans)

    def _extent(self, engine: Engine, layers: int) -> tuple[Integers, Integers]:
        """First and one past the last cycle in which ``engine`` issued micro-ops of each layer.

        The end of the run, twice, for a layer without any.
        """
        activity, owner = self.activity[engine], self.issuing_for[engine]
        cuts = np.unique(np.concatenate([activity.starts, owner.starts, [self.cycles]]))
        starts, ends = cuts[:-1], cuts[1:]
        mine = owner.at(starts) - 1
        kept = (activity.at(np.maximum(starts, 0)) == KINDS["BUSY"]) & (mine >= 0)
        first, last = np.full(layers, self.cycles), np.zeros(layers, np.int64)
        np.minimum.at(first, mine[kept], starts[kept])
        np.maximum.at(last, mine[kept], ends[kept])
        return first, np.where(last > 0, last, self.cycles)

    @cached_property
    def ramps(self) -> Runs:
        """1 in the cycles before a layer's first micro-op and after its last one, else 0."""
        starts, values = [0], [1]
        for span in self.spans:
            starts += [span.fill, max(span.fill, span.drain), span.end]
            values += [0, 1, 1]
        cycles = np.array(starts)
        kept = np.append(cycles[1:] != cycles[:-1], cycles[-1] < self.cycles)  # of equal cycles the last counts
        return Runs(cycles[kept], np.array(values)[kept], self.cycles)

    def causes_between(self, edges: Integers) -> Integers:
        """Cycles between consecutive ``edges`` by :class:`Cause`, ramps told apart, shape ``(edges - 1, Cause)``.

        A cycle of a ramp in which the array worked for another layer counts as work.
        """
        counts = totals(edges, [self.ramps, self.causes], [2, len(Cause)])
        result: Integers = counts.sum(axis=1)
        ramp = counts[:, 1, 1:]
        result[:, 1:] -= ramp
        result[:, Cause.RAMP] += ramp.sum(axis=1)
        return result

    def layer_causes(self) -> Integers:
        """Cycles of each of :attr:`spans` by :class:`Cause`; a row sums to the span's cycles."""
        return self.causes_between(np.array([0, *(span.end for span in self.spans)]))

    def layer_activity(self, engine: Engine) -> Integers:
        """Cycles of each of :attr:`spans` by what ``engine`` did in them, shape ``(spans, CycleClass)``."""
        edges = np.array([0, *(span.end for span in self.spans)])
        return totals(edges, [self.activity[engine]], [CLASSES])

    def work(self, engine: Engine, layers: int) -> Integers:
        """Busy cycles of gemm or vector with the micro-ops of each layer, shape ``(layers,)``.

        Whenever that was: in the layer's own cycles or ahead of them.
        """
        step_functions = [self.issuing_for[engine], self.activity[engine]]
        counts = totals(np.array([0, self.cycles]), step_functions, [layers + 1, CLASSES])
        result: Integers = counts[0, 1:, KINDS["BUSY"]]
        return result


def _cause_table() -> Integers:
    """Cause by (engine, class) of the engine at the end of a chain of waits."""
    table = np.full((len(Engine), CLASSES), int(Cause.TOKENS), np.int64)
    own = {
        Engine.LOAD: Cause.INPUTS,
        Engine.LOADW: Cause.WEIGHTS,
        Engine.VECTOR: Cause.VECTOR,
        Engine.STORE: Cause.STORES,
    }
    for engine, cause in own.items():
        for kind in ("BUSY", "MEMORY", "CONFLICT"):
            table[engine, KINDS[kind]] = cause
    table[:, KINDS["INSTRUCTION"]] = Cause.INSTRUCTIONS
    table[Engine.GEMM, KINDS["BUSY"]] = Cause.ARRAY
    return table


_CAUSE_OF = _cause_table()
