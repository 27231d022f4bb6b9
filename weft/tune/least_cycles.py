"""The cycles that no program for a packed network can get below, whatever its tilings, orders, threads and chains are.

Every program of the compiler's space runs the layers one after another on each engine, in an order of the dataflow; the
layers of a chain take turns, tile by tile. A *cut* is a layer that reads one result, to which all layers before it lead
and from which all behind it come. When the first operation behind a cut begins, the array has done all that stands
before it, and so has the vector engine, but for the layer (or chain) whose result is read. So between two cuts each
engine, the bus among them, has all the work of the layers there, and a program's time is the sum over such stretches.

What an engine may do outside the stretch is taken off: the bus loads ahead what the scratchpads hold; the vector engine
and the stores finish the last layer, of which ``acc`` holds no more than its entries if the array computed it. Layers
that a chain may share with what stands behind a cut count nothing before it. The longest sum over all choices of cuts
is the bound.

Where a layer has several forms, a stretch takes at least any weighted mean of its engines' work, each layer in its
cheapest form at these weights. The bound takes the best of a grid of weights.

What the graph says is given: which operators run on the core, their layouts, tables, unfolded inputs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product

import numpy as np
import numpy.typing as npt

from ..compiler.graph.ir import Call, Constant, Module
from ..compiler.targets.accel.cost.space import Wanted, all_of, needs, wanted_of
from ..compiler.targets.accel.link import forms
from ..compiler.targets.accel.link.phases import function_of, is_packed_concat, is_packed_renaming, split_phases
from ..compiler.targets.accel.link.slices import KernelSlice, form_slices, slices_of
from ..compiler.targets.accel.link.tuned import Setting
from ..compiler.targets.accel.operators.lower import lower_function
from ..compiler.targets.accel.operators.moves import entries_of
from ..compiler.targets.accel.passes.chain import MOST_LAYERS, chainable
from ..compiler.targets.accel.schedule.tiling import Problem
from ..hw.config import CoreConfig
from ..hw.dram_rate import DramRate
from ..hw.isa import VectorOp
from ..hw.memories import Memory

ENGINES = ("array", "vector", "bus")

FORMS = (forms.VECTOR, forms.MODE, forms.ARRAY)
"""Of depthwise layers. What the engines share of one is a mean of these."""

Floats = npt.NDArray[np.float64]

STEPS = 8
"""Of the grid of weights: each is a multiple of 1/8, and they sum to 1."""


FARTHEST = 32
"""Cuts inside of a stretch at most, unless it begins with the program: so thousands of layers take seconds."""


@dataclass(frozen=True)
class Stretch:
    """Layers in a row, by name, and the cycles that every program takes for them. ``limit``: of :data:`ENGINES`, those
    whose work says so."""

    layers: tuple[str, ...]
    cycles: float
    limit: str


@dataclass(frozen=True)
class LeastCycles:
    """A bound of a whole network: of each of its programs in turn, the stretches."""

    programs: tuple[tuple[Stretch, ...], ...]

    @property
    def cycles(self) -> int:
        return math.ceil(sum(each.cycles for program in self.programs for each in program))


def least_cycles(module: Module, config: CoreConfig, rate: DramRate, vthreads: int) -> LeastCycles:
    """The bound of a packed module before its chains are chosen (what ``prepared`` gives). Exact for no network: cycles
    in which engines wait for each other at the ends of tiles are left out."""
    joined = chainable(module, config)
    phases = [phase.calls for phase in split_phases(module) if phase.on_core]
    return LeastCycles(tuple(_Program(calls, joined, config, rate, vthreads).stretches() for calls in phases))


@dataclass(frozen=True)
class _Way:
    """What a layer needs in one of its forms: cycles of the array and of the vector engine; bytes read for the weights'
    scratchpad, as int32 for the accumulators, and of anything else, and bytes written."""

    array: float = 0
    vector: float = 0
    weights: float = 0
    wide: float = 0
    data: float = 0
    written: float = 0

    def times(self, bytes_per_cycle: int) -> tuple[float, float, float]:
        """Cycles of each engine."""
        nbytes = self.weights + self.wide + self.data + self.written
        return self.array, self.vector, nbytes / bytes_per_cycle


@dataclass(frozen=True)
class _Program:
    """The layers of one program, in an order of the dataflow. ``joined``: layers whose results a chain may keep."""

    calls: Sequence[Call]
    joined: frozenset[Call]
    config: CoreConfig
    rate: DramRate
    vthreads: int

    def stretches(self) -> tuple[Stretch, ...]:
        cuts = self.cuts
        best: list[tuple[float, int, int]] = [(0.0, 0, 0)]  # cycles, cut before, number of weights
        for at in range(1, len(cuts)):
            near = dict.fromkeys([0, *range(max(0, at - FARTHEST), at)])
            ways = ((before, *self._cycles(cuts[before], cuts[at])) for before in near)
            best.append(max((best[before][0] + cycles, before, which) for before, cycles, which in ways))
        found, at = [], len(cuts) - 1
        while at:
            cycles, before, which = best[at]
            names = tuple(function_of(node).name for node in self.calls[cuts[before] : cuts[at]])
            limit = " and ".join(np.array(ENGINES)[self.weights[which] > 0].tolist())
            found.append(Stretch(names, cycles - best[before][0], limit))
            at = before
        return tuple(reversed(found))

    @property
    def bytes_per_cycle(self) -> int:
        """Of the memory, or of the two buses, of which one reads and one writes."""
        return min(self.rate.bytes_per_cycle, 2 * self.config.bus_bytes)

    @cached_property
    def weights(self) -> Floats:
        """Of the engines: (number of weights, engines)."""
        grid = product(range(STEPS + 1), repeat=len(ENGINES))
        return np.array([each for each in grid if sum(each) == STEPS]) / STEPS

    @cached_property
    def cuts(self) -> list[int]:
        """Numbers of layers before which a program may be cut, its two ends included."""
        count = len(self.calls)
        places = {node: number for number, node in enumerate(self.calls)}
        makers = [[places[arg] for arg in node.args if isinstance(arg, Call) and arg in places] for node in self.calls]
        before, behind = [0] * count, [0] * count  # sets of layers, a bit each
        for number, of in enumerate(makers):
            for maker in of:
                before[number] |= before[maker] | 1 << maker
        for number in reversed(range(count)):
            for maker in makers[number]:
                behind[maker] |= behind[number] | 1 << number
        whole = (1 << count) - 1
        single = [
            before[at] == (1 << at) - 1 and behind[at] == whole >> (at + 1) << (at + 1) and self._reads_the_last(at)
            for at in range(count)
        ]
        inner = [at for at in range(1, count) if all(single[at - self._reach(at) : at + 1])]
        return [0, *inner, count]

    def _reads_the_last(self, at: int) -> bool:
        """Whether nothing of a layer can begin before the layer before it has results."""
        read = [arg for arg in self.calls[at].args if not isinstance(arg, Constant)]
        return at > 0 and read == [self.calls[at - 1]] and not is_placed(self.calls[at - 1])

    def _reach(self, at: int) -> int:
        """Layers before a cut that a chain may compute together with those behind it."""
        reach = 0
        while reach < min(MOST_LAYERS - 1, at) and self.calls[at - reach - 1] in self.joined:
            reach += 1
        return reach

    @cached_property
    def ways(self) -> list[list[_Way]]:
        """The forms of each layer."""
        return [self._ways(node) for node in self.calls]

    @cached_property
    def _wanted(self) -> dict[Call, Wanted]:
        """Of layers that a chain may hold, what the layer reads that it may share the chain with: no more is computed
        there."""
        found: dict[Call, Wanted] = {}
        for node in reversed(self.calls):
            for arg in node.args:
                if isinstance(arg, Call) and arg in self.joined:
                    kernel = lower_function(function_of(node))
                    found[arg] = wanted_of(kernel, found.get(node) or all_of(kernel), arg.shape)
        return found

    @cached_property
    def _work(self) -> Floats:
        """For each weights the least work of all layers before each: (number of weights, layers + 1)."""
        sums = np.zeros((len(self.weights), len(self.calls) + 1))
        for number, ways in enumerate(self.ways):
            times = np.array([each.times(self.bytes_per_cycle) for each in ways])
            sums[:, number + 1] = sums[:, number] + (self.weights @ times.T).min(axis=1)
        return sums

    @cached_property
    def _bytes(self) -> Floats:
        """The most that all layers before each read for weights, int32, and anything else: (3, layers + 1)."""
        most = [[max(getattr(way, name) for way in ways) for name in ("weights", "wide", "data")] for ways in self.ways]
        return np.concatenate([np.zeros((1, 3)), np.cumsum(np.array(most).reshape(-1, 3), axis=0)]).T

    def _cycles(self, first: int, last: int) -> tuple[float, int]:
        """What every program takes for these layers, and which weights say so."""
        ends = last == len(self.calls)
        stop = last if ends else max(first, last - self._reach(last))
        outside = np.zeros(len(ENGINES))
        if first:
            outside[ENGINES.index("bus")] += self._ahead(self._bytes[:, stop] - self._bytes[:, first])
        if not ends:
            outside += self._behind(first, stop)
        cycles = self._work[:, stop] - self._work[:, first] - self.weights @ outside
        which = int(np.argmax(cycles))
        return max(0.0, float(cycles[which])), which

    def _ahead(self, nbytes: Floats) -> float:
        """Cycles of the bus for what the scratchpads may hold of this before the first operation on it."""
        config = self.config
        room = {memory: config.depth(memory) * config.entry_bytes(memory) for memory in config.scratchpads}
        narrow = config.acc_depth * config.out_bytes  # int8 that a load has widened
        rooms = room[Memory.WGT], room[Memory.ACC], room[Memory.INP] + room.get(Memory.TAB, 0) + narrow
        return float(np.minimum(nbytes, rooms).sum()) / self.bytes_per_cycle

    def _behind(self, first: int, stop: int) -> Floats:
        """Work of each engine for the last layers before ``stop`` that may be left when later ones begin: all of the
        vector engine's and its operands and results, in a chain of each layer; behind the array, that of as many
        entries as there are accumulators."""
        if stop == first:
            return np.zeros(len(ENGINES))
        begin = stop - 1
        while begin > max(first, stop - MOST_LAYERS) and self.calls[begin - 1] in self.joined:
            begin -= 1
        vector = nbytes = 0.0
        for ways in self.ways[begin:stop]:
            vector += max(way.vector for way in ways)
            nbytes += max(way.wide + way.data + way.written for way in ways)
        if begin == stop - 1 and all(way.array for way in self.ways[begin]):
            config, pixels = self.config, math.prod(self.calls[begin].shape) / self.config.out_bytes
            operands = VectorOp.REQUANTISE.b_entries * config.acc_bytes + 2 * config.out_bytes
            vector = min(vector, config.acc_depth * math.ceil(vector / pixels))
            nbytes = min(nbytes, config.acc_depth * operands + config.out_depth * config.out_bytes)
        return np.array([0, vector, nbytes / self.bytes_per_cycle])

    def _ways(self, node: Call) -> list[_Way]:
        if is_placed(node):
            return [_Way()]
        parts = slices_of(node, self.config, self.rate, self.vthreads)
        if parts[0].kind != forms.DEPTHWISE:
            return [self._needed(node, parts)]
        plain = lower_function(function_of(node))
        made = (form_slices(node, plain, self.config, Setting(None, form)) for form in FORMS)
        return [self._needed(node, each) for each in made if each]

    def _needed(self, node: Call, parts: Sequence[KernelSlice]) -> _Way:
        sums = dict.fromkeys(("array", "vector", "weights", "wide", "data", "written"), 0.0)
        for part in parts:
            kernel = part.kernel
            least = needs(Problem(self.config, kernel, self.vthreads, rate=self.rate), self._wanted.get(node))
            sums["array"] += least.array
            sums["vector"] += least.vector
            sums["written"] += 0 if node in self.joined else least.written
            for tensor in kernel.inputs:
                operand = node.args[part.inputs[tensor.name][0]] if tensor.name in part.inputs else None
                if operand in self.joined:
                    continue
                matrices = any(section.matrix_weights == tensor.name for section in kernel.sections)
                kind = "weights" if matrices else "wide" if tensor.dtype == "int32" else "data"
                sums[kind] += least.read[tensor.name]
        return _Way(**sums)


def is_placed(node: Call) -> bool:
    """Whether a layer may be no work at all: a matter of placement, or one that its readers' loads do."""
    return is_packed_concat(node) or is_packed_renaming(node) or entries_of(function_of(node)) is not None
