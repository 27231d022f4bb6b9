"""The tasks of a network, each shape once: kernels, depthwise layers in their forms, layers that may be chains."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np

from ..compiler.graph.ir import Call, Module
from ..compiler.targets.accel.cost.chain_tiling import chain_estimates, chain_space, chain_tiles, ways_of, with_rolled
from ..compiler.targets.accel.cost.first_layer import first_tilings
from ..compiler.targets.accel.cost.least_tiles import least_of, least_of_chains
from ..compiler.targets.accel.cost.space import (
    THREADS,
    Base,
    Candidate,
    bases,
    bus_cycles,
    features,
    lower_bound,
    needs,
    shared_bound,
    space,
    tilings_of,
)
from ..compiler.targets.accel.cost.tile_costs import estimate, fills, tilings
from ..compiler.targets.accel.cost.tiles import ChainTiles, Tiles
from ..compiler.targets.accel.link import forms
from ..compiler.targets.accel.link.alone import Program, form_program, kernel_program
from ..compiler.targets.accel.link.compile_kernel import attempts
from ..compiler.targets.accel.link.depthwise_split import cycles_by_groups
from ..compiler.targets.accel.link.phases import function_of, split_phases
from ..compiler.targets.accel.link.slices import KernelSlice, form_of, form_slices, slices_of
from ..compiler.targets.accel.link.tuned import Setting, chain_text, layer_text
from ..compiler.targets.accel.operators.lower import Kernel, lower_function
from ..compiler.targets.accel.passes.chain import Promising, forms_of, merged, promising_chains
from ..compiler.targets.accel.schedule.tiling import ChainTiling, Problem, Tiling
from ..hw.config import CoreConfig
from ..hw.dram_rate import DramRate
from .task import Bounded, Point, Region, Task

AT_ONCE = 64
"""Tiles of a region: their bounds are found together."""


def _tiling(setting: Setting) -> Tiling:
    if setting.tiling is None:
        raise ValueError(f"{setting} has no tiling")
    return setting.tiling


def _estimate(problem: Problem, tiling: Tiling) -> float:
    cost = estimate(replace(problem, threads=tiling.threads), tiling)
    return math.inf if cost is None else cost


def _regions(problem: Problem, form: str = "") -> Iterator[Bounded]:
    """The tilings of a kernel: tiles of which some may fit, those with near bounds together."""
    listed = list(bases(replace(problem, threads=1)))
    tiles = Tiles.of(Tiling(group, row, column, part, "cyx", 1, 1, 1) for group, row, column, part in listed)
    least = least_of(problem, tiles, relaxed=True)
    fitting = np.flatnonzero(fills(problem, tiles) <= 1)
    order = fitting[np.argsort(least[fitting], kind="stable")].tolist()
    for start in range(0, len(order), AT_ONCE):
        part = [listed[place] for place in order[start : start + AT_ONCE]]
        yield float(least[order[start]]), Region(partial(_points, problem, form, part))


def _points(problem: Problem, form: str, part: Sequence[Base]) -> Iterator[Bounded]:
    for threads in THREADS:
        threaded = replace(problem, threads=threads)
        tiles = Tiles.of(tiling for base in part for tiling in tilings_of(threaded, base))
        if len(tiles):
            tiles = tiles.take(fills(threaded, tiles) <= 1)
            bounds = least_of(threaded, tiles).tolist()
            yield from ((bound, Setting(tiles[place], form)) for place, bound in enumerate(bounds))


def _with_bound(bound: float, problem: Problem, form: str) -> Iterator[Bounded]:
    """The tilings of a layer that has several parts, which come one after the other."""
    yield from ((bound, Setting(each.tiling, form)) for each in space(problem))


@dataclass(frozen=True)
class KernelTask(Task):
    """A kernel that has one form."""

    kernel: Kernel

    @property
    def problem(self) -> Problem:
        return Problem(self.config, self.kernel, self.vthreads, rate=self.rate)

    @property
    def text(self) -> str:
        return self.kernel.signature

    def settings(self) -> Iterator[Setting]:
        return map(Setting, attempts(self.problem, tilings(self.problem)))

    def alone(self) -> Iterator[Setting]:
        return map(Setting, attempts(self.problem, first_tilings(self.problem)))

    def space(self) -> Iterator[Point]:
        return (Point(Setting(each.tiling), each.estimate) for each in space(self.problem))

    def regions(self) -> Iterator[Bounded]:
        return _regions(self.problem)

    def estimate(self, setting: Setting) -> float:
        return _estimate(self.problem, _tiling(setting))

    def features_of(self, point: Point) -> Mapping[str, float]:
        return features(self.problem, Candidate(_tiling(point.setting), point.estimate))

    @cached_property
    def bound(self) -> float:
        return lower_bound(self.problem)

    def program(self, setting: Setting) -> Program:
        return kernel_program(self.kernel, self.config, self.rate, _tiling(setting))


@dataclass(frozen=True)
class LayerTask(Task):
    """A depthwise layer in all forms that the core has: each tiling of each, and each share that the array may take."""

    node: Call

    @cached_property
    def plain(self) -> Kernel:
        """On the vector engine."""
        return lower_function(function_of(self.node))

    @cached_property
    def problems(self) -> Mapping[str, Problem]:
        """Of one part of each form that has tilings of its own."""
        found = {form: self._parts(Setting(None, form)) for form in (forms.VECTOR, forms.MODE, forms.ARRAY)}
        return {form: Problem(self.config, parts[0].kernel, self.vthreads, rate=self.rate)
                for form, parts in found.items() if parts}  # fmt: skip

    def _parts(self, setting: Setting) -> list[KernelSlice]:
        return form_slices(self.node, self.plain, self.config, setting) or []

    def _times(self, form: str) -> int:
        """Parts of a form."""
        return self.plain.output.shape[0] if form == forms.ARRAY else 1

    @property
    def text(self) -> str:
        return layer_text(self.plain)

    @cached_property
    def _chosen(self) -> tuple[str, int]:
        """The form that the compiler takes."""
        return form_of(slices_of(self.node, self.config, self.rate, self.vthreads))

    def settings(self) -> Iterator[Setting]:
        form, on_array = self._chosen
        if on_array:
            yield Setting(None, form, on_array)
            form = forms.VECTOR  # where the two do not fit side by side
        problem = self.problems[form]
        yield from (Setting(tiling, form) for tiling in attempts(problem, tilings(problem)))

    @cached_property
    def _shared(self) -> list[float]:
        """Estimates for each number of channel groups on the array."""
        function = function_of(self.node)
        if forms.ARRAY not in self.problems:
            return []
        return cycles_by_groups(self.config, self.rate, function, self.plain, self.vthreads)

    def space(self) -> Iterator[Point]:
        for form, problem in self.problems.items():
            for each in space(problem):
                yield Point(Setting(each.tiling, form), self._times(form) * each.estimate)
        for on_array, cycles in enumerate(self._shared):
            if 0 < on_array < self.plain.output.shape[1]:
                yield Point(Setting(None, forms.SHARED, on_array), cycles)

    def regions(self) -> Iterator[Bounded]:
        for form, problem in self.problems.items():
            if self._times(form) == 1:
                yield from _regions(problem, form)
            else:
                bound = self._times(form) * lower_bound(problem)
                yield bound, Region(partial(_with_bound, bound, problem, form))
        if self._shared:
            yield from self._of_shares()

    def _of_shares(self) -> Iterator[Bounded]:
        """Each number of channel groups on the array, with what the engines share of the work so."""
        problem, groups = self.problems[forms.VECTOR], self.plain.output.shape[1]
        alone, of_array = needs(problem), needs(self.problems[forms.ARRAY])
        moved = bus_cycles(problem, alone)
        for on_array in range(1, groups):
            share = on_array / groups
            vector = (1 - share) * alone.vector + share * self.plain.output.shape[0] * of_array.vector
            array = share * self.plain.output.shape[0] * of_array.array
            yield 2 * self.rate.latency + max(vector, array, moved), Setting(None, forms.SHARED, on_array)

    def estimate(self, setting: Setting) -> float:
        if setting.tiling is None:
            return self._shared[setting.on_array]
        return self._times(setting.form) * _estimate(self.problems[setting.form], setting.tiling)

    def features_of(self, point: Point) -> Mapping[str, float]:
        """Those of the form's kernel; estimates of all forms are comparable."""
        ranked = {"estimate": math.log2(point.estimate / self.bound)}
        form, tiling = point.setting.form, point.setting.tiling
        if tiling is None:
            return ranked
        own = features(self.problems[form], Candidate(tiling, point.estimate / self._times(form)))
        return {**own, **ranked}

    @cached_property
    def bound(self) -> float:
        bounds = [self._times(form) * lower_bound(problem) for form, problem in self.problems.items()]
        return min([*bounds, shared_bound(self.problems[forms.VECTOR])] if self._shared else bounds)

    def program(self, setting: Setting) -> Program:
        return form_program(self._parts(setting), self.config, self.rate, setting.tiling)


@dataclass(frozen=True)
class ChainTask(Task):
    """Layers in a row as one function, with their depthwise layers in each form."""

    promising: Promising

    in_sum = False

    @cached_property
    def problems(self) -> Mapping[str, Problem]:
        """By the form of the depthwise layers."""
        part = self.promising.part
        return {form: Problem(self.config, lower_function(merged(part, made)), 1, rate=self.rate)
                for form, made in forms_of(self.config, part).items()}  # fmt: skip

    @cached_property
    def text(self) -> str:
        return chain_text(next(iter(self.problems.values())).kernel)

    def settings(self) -> Iterator[Setting]:
        return (Setting(tiling, form) for form, tiling, _ in self.promising.candidates)

    def space(self) -> Iterable[Point]:
        return (Point(Setting(tiling, form), cost)
                for form, problem in self.problems.items() for tiling, cost in chain_space(problem))  # fmt: skip

    def regions(self) -> Iterator[Bounded]:
        for form, problem in self.problems.items():
            tiles = with_rolled(problem, chain_tiles(problem))
            plain = np.flatnonzero(~tiles.rolling)  # behind each stands the same with rows that stay, if they do
            bounds = np.minimum.reduceat(least_of_chains(problem, tiles, relaxed=True), plain)
            for bound, tile in zip(bounds.tolist(), tiles.take(plain), strict=True):
                yield bound, Region(partial(self._points, form, problem, tile))

    def _points(self, form: str, problem: Problem, tile: ChainTiling) -> Iterator[Bounded]:
        tilings = ChainTiles.of(dict.fromkeys(ways_of(problem, tile)))
        fitting = tilings.take(chain_estimates(problem, tilings) < math.inf)
        for tiling, bound in zip(fitting, least_of_chains(problem, fitting).tolist(), strict=True):
            yield bound, Setting(tiling, form)

    def estimate(self, setting: Setting) -> float:
        tiling = _tiling(setting)
        if not isinstance(tiling, ChainTiling):
            return math.inf
        return float(chain_estimates(self.problems[setting.form], [tiling])[0])

    def features_of(self, point: Point) -> Mapping[str, float]:
        tiling = _tiling(point.setting)
        _, groups, height, width = self.plain_output
        return {
            "estimate": math.log2(point.estimate / self.bound),
            "layers": float(len(self.promising.part)),
            "tiles": math.log2(math.ceil(groups / tiling.groups) * math.ceil(height / tiling.rows)
                               * math.ceil(width / tiling.columns)),
            "chained": 1.0,
        }  # fmt: skip

    @property
    def plain_output(self) -> tuple[int, int, int, int]:
        return next(iter(self.problems.values())).output

    @cached_property
    def bound(self) -> float:
        return min(lower_bound(problem) for problem in self.problems.values())

    def program(self, setting: Setting) -> Program:
        return kernel_program(self.problems[setting.form].kernel, self.config, self.rate, _tiling(setting))


def tasks_of(module: Module, config: CoreConfig, rate: DramRate, vthreads: int, *, chains: bool = True) -> list[Task]:
    """What can be tuned of a packed module: its kernels, its depthwise layers and, with ``chains``, layers in a row."""
    tasks: dict[str, Task] = {}

    def add(task: Task) -> None:
        known = tasks.get(task.text)
        tasks[task.text] = task if known is None else replace(known, count=known.count + 1)

    for phase in split_phases(module):
        for node in phase.calls if phase.on_core else []:
            parts = slices_of(node, config, rate, vthreads)
            if parts[0].kind == forms.DEPTHWISE:
                add(LayerTask(function_of(node).name, config, rate, vthreads, 1, node))
                continue
            for part in parts:
                if part.move is None:  # it has no tilings
                    add(KernelTask(part.kernel.name, config, rate, vthreads, 1, part.kernel))
    for each in promising_chains(module, config, rate, vthreads) if chains else ():
        name = "+".join(function_of(node).name for node in each.part)
        add(ChainTask(name, config, rate, vthreads, 1, each))
    return list(tasks.values())
