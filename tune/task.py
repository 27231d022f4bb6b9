"""The kernels of a network that can be tuned, each shape once."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from ..compiler.graph.ir import Module
from ..compiler.targets.accel.compile_kernel import attempts
from ..compiler.targets.accel.lower import Kernel
from ..compiler.targets.accel.phases import split_phases
from ..compiler.targets.accel.slices import slices_of
from ..compiler.targets.accel.space import Candidate, features, lower_bound, space
from ..compiler.targets.accel.tile_costs import estimate, tilings
from ..compiler.targets.accel.tiling import Problem
from ..compiler.targets.accel.tuned import point_tiling, tiling_point, tuning_key
from ..compiler.tune.database import Key, point_text
from ..hw.config import CoreConfig
from ..hw.dram_rate import DramRate


@dataclass(frozen=True)
class Task:
    """A kernel to tune, and how often the network has it. ``name``: of the first function with it."""

    name: str
    kernel: Kernel
    config: CoreConfig
    rate: DramRate
    count: int
    vthreads: int

    @property
    def problem(self) -> Problem:
        return Problem(self.config, self.kernel, self.vthreads, rate=self.rate)

    @property
    def key(self) -> Key:
        return tuning_key(self.kernel, self.config, self.rate)

    @cached_property
    def defaults(self) -> Sequence[str]:
        """The points that the compiler tries without a database, in its order: it takes the first that finds room."""
        tried = attempts(self.problem, tilings(self.problem))
        return [point_text(tiling_point(tiling)) for tiling in tried]

    @cached_property
    def points(self) -> dict[str, Candidate]:
        """The space by the texts of its points, the cheapest by the estimate first; then :attr:`defaults`."""
        found = {point_text(tiling_point(each.tiling)): each for each in space(self.problem)}
        for text in self.defaults:
            tiling = point_tiling(json.loads(text))
            cost = estimate(replace(self.problem, threads=tiling.threads), tiling)
            found.setdefault(text, Candidate(tiling, float("inf") if cost is None else cost))
        return found

    def features(self, text: str) -> Mapping[str, float]:
        """What a ranking sees of a point; nothing of one that the estimate does not take."""
        if text not in self._features:
            candidate = self.points[text]
            known = candidate.estimate < float("inf")
            self._features[text] = features(self.problem, candidate) if known else {}
        return self._features[text]

    @cached_property
    def _features(self) -> dict[str, Mapping[str, float]]:
        return {}

    @cached_property
    def bound(self) -> float:
        """Cycles below which no tiling can get."""
        return lower_bound(self.problem)


def tasks_of(module: Module, config: CoreConfig, rate: DramRate, vthreads: int) -> tuple[list[Task], int]:
    """The kernels of a packed module, and the number of calls that are not tuned because two engines share them."""
    kernels: dict[str, list[Kernel]] = {}
    shared = 0
    for phase in split_phases(module):
        for node in phase.calls if phase.on_core else []:
            for part in slices_of(node, config, rate, vthreads):
                if part.turns:
                    shared += 1
                else:
                    kernels.setdefault(part.kernel.signature, []).append(part.kernel)
    tasks = [Task(found[0].name, found[0], config, rate, len(found), vthreads) for found in kernels.values()]
    return tasks, shared
