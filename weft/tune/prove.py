"""How far the compiler's choice for a kernel or chain is at most above the best of its space: branch and bound.

The space of a task is cut into regions: tiles in all orders, with all threads, epilogues and portions. A region has a
lower bound (`accel/cost/least_tiles.py`), and so has each of its points. What is lowest is looked at next: a region is
cut, a point is measured as a program of its own, in the timing model. What is not below the best so far is left out. So
no point of the space is below the lowest bound that is left, nor below the best that was measured.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from ..compiler.targets.accel.link.tuned import Setting
from ..compiler.tune.database import Database, point_text
from ..errors import what_broke
from .search import BROKE
from .task import Bounded, RefusedError, Region, Task

CLOSE = 0.01
"""Share of its cycles that a task may gain at most for the proof of it to end."""

Measure = Callable[[Task, Setting], int]
"""Cycles of a task alone with a setting. Raises RefusedError."""


@dataclass
class Proof:
    """What is known of a task. ``default``: cycles of what the compiler takes for a program of it alone, None if it was
    not measured. ``best``: the fewest that were measured, with ``setting``; infinite before anything was."""

    task: Task
    default: int | None = None
    best: float = float("inf")
    setting: Setting | None = None
    measured: int = 0
    refused: int = 0
    _tried: set[Setting] = field(default_factory=set)
    _left: list[tuple[float, int, Region | Setting]] = field(default_factory=list)
    _number: int = 0

    def __post_init__(self) -> None:
        self._add([(self.task.bound, Region(self.task.regions))])

    @property
    def least(self) -> float:
        """Cycles below which no point of the space gets."""
        return max(self.task.bound, min([self.best, *(bound for bound, _, _ in self._left[:1])]))

    @property
    def gap(self) -> float:
        """Share by which the compiler's choice is at most above the best of the space."""
        return (self.default or float("inf")) / self.least - 1

    @property
    def room(self) -> float:
        """Cycles that the best may still be above another point."""
        return self.best - self.least

    def is_open(self, share: float) -> bool:
        """Whether more than a share of the cycles may be gained: beyond what the compiler takes or, where the best that
        was measured gains as much already, beyond that. Not where nothing could be measured."""
        if self.default is None:
            return False
        judged = self.default if self.default <= (1 + share) * self.best else self.best
        return judged > (1 + share) * self.least

    def measure_default(self, measure: Measure) -> None:
        for setting in self.task.alone():
            self.default = self._measured(setting, measure)
            if self.default is not None:
                return

    def look(self, measure: Measure) -> None:
        """At what is lowest."""
        _, _, lowest = heapq.heappop(self._left)
        if isinstance(lowest, Region):
            self._add(lowest.parts())
        elif lowest not in self._tried:
            self._measured(lowest, measure)

    def _add(self, parts: Iterable[Bounded]) -> None:
        for bound, part in parts:
            if bound < self.best:
                heapq.heappush(self._left, (bound, self._number, part))
                self._number += 1

    def _measured(self, setting: Setting, measure: Measure) -> int | None:
        self._tried.add(setting)
        try:
            cycles = measure(self.task, setting)
        except RefusedError:
            self.refused += 1
            return None
        self.measured += 1
        if cycles < self.best:
            self.best, self.setting = cycles, setting
        return cycles


def prove(
    tasks: Sequence[Task], seconds: float, *, measure: Measure = lambda task, setting: task.cycles(setting),
    close: float = CLOSE, report: Callable[[Sequence[Proof]], None] = lambda _: None,
) -> list[Proof]:  # fmt: skip
    """A proof of each task, as far as it comes within these seconds of the processor. What the compiler takes is
    measured in any case. Then time goes to the task whose layers may still gain the most cycles in sum; one that can
    gain no more than ``close`` is done. ``report`` is called after each look."""
    stop = time.process_time() + seconds
    proofs = [Proof(task) for task in tasks]
    for proof in sorted(proofs, key=lambda each: not each.task.in_sum):
        proof.measure_default(measure)
        if proof.is_open(close) and time.process_time() < stop:
            proof.look(measure)  # the bounds of its regions are closer than that of the whole
        report(proofs)
    while time.process_time() < stop:
        waiting = [proof for proof in proofs if proof.is_open(close)]
        if not waiting:
            break
        proof = max(waiting, key=lambda each: each.task.count * each.room / (1 + each.measured + each.refused))
        proof.look(measure)
        report(proofs)
    return proofs


def close_share(proofs: Sequence[Proof]) -> float:
    """Of the cycles of all kernels, those of kernels that are close."""
    cycles = [(proof.task.count * (proof.default or 0), proof.gap <= CLOSE) for proof in proofs if proof.task.in_sum]
    return sum(count for count, close in cycles if close) / max(1, sum(count for count, _ in cycles))


def kept_in(database: Database) -> Measure:
    """Measures what the database does not know, and keeps it there. A setting that breaks the compiler is refused."""
    known: dict[str, dict[str, float | None]] = {}

    def measure(task: Task, setting: Setting) -> int:
        text = point_text(setting.point)
        if task.text not in known:
            known[task.text] = {point_text(each.point): each.cost for each in database.results(task.key)}
        if text not in known[task.text]:
            cost, refusal = None, ""
            try:
                cost = task.cycles(setting)
            except RefusedError as error:
                refusal = str(error)
            except Exception as error:
                refusal = f"{BROKE}{what_broke(error)}"
            database.add(task.key, setting.point, cost, refusal=refusal)
            known[task.text][text] = cost
        cycles = known[task.text][text]
        if cycles is None:
            raise RefusedError("it was refused when it was measured")
        return int(cycles)

    return measure
