"""Which schedules of a processor's kernels to measure, in turns with the default one, and which of them to believe.

A candidate's figure is its share of the default's time, the median of ratios within rounds, so that what else the
machine does meets both alike. The best of a search lies: it is measured again in a fresh round, and only what is faster
there, too, is kept for the compiler.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from ..compiler.targets.cpu.knobs import answer_point
from ..compiler.targets.cpu.tuned import confirmed_key, searched_key
from ..compiler.targets.errors import CompileError
from ..compiler.tensor.errors import TensorError
from ..compiler.tune.database import Database, Key, point_text
from .cpu_kernels import Array, CpuTask, KernelRun, in_turns, made_up
from .ranking import Choice, Measured, choose_ranking

BATCH, NEARBY, AT_RANDOM = 8, 2, 2
"""Points measured together with the default; of them, those that differ least from the best so far, and those that are
drawn from all that is left."""

PLACES = 3
"""Sets of arrays that are measured with."""

ROUNDS, SECONDS = 6, 0.005
"""Of a batch, and of each point in a round, about."""

FRESH_ROUNDS, FRESH_SECONDS = 15, 0.01
CONFIRMED = 4
"""Points that are measured again: the best of the search."""

WORTH = 0.97
"""Share of the default's time that a point must take to be used: what is nearer is within what measurements differ."""

TOLERANCE = 1e-4
"""By how much results of two schedules may differ, of the largest: sums may be added up in another order."""


@dataclass
class CpuProgress:
    """What is known of a kernel: shares of the default's time, by point. ``confirmed``: the ``winner``'s, afresh."""

    task: CpuTask
    shares: dict[str, float] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    curve: list[float] = field(default_factory=list)
    measured: int = 0
    seconds: float = 0.0  # of the default, as last measured
    confirmed: float | None = None
    winner: str = ""

    @property
    def left(self) -> list[str]:
        return [text for text in self.task.points if text not in self.shares and text not in self.refused]


@dataclass(frozen=True)
class CpuOutcome:
    """A finished, interrupted or exhausted search."""

    states: Sequence[CpuProgress]
    choice: Choice
    seconds: float
    interrupted: bool = False


Report = Callable[[Sequence[CpuProgress]], None]


def search_cpu(
    tasks: Sequence[CpuTask], database: Database, *, trials: int, seed: int = 0, minutes: float | None = None,
    report: Report = lambda _: None,
) -> CpuOutcome:  # fmt: skip
    """Measure up to ``trials`` schedules of each kernel, then confirm its winner.

    Times are of the processor, with several threads of the clock. After ``minutes`` what is left is not measured. An
    interruption (KeyboardInterrupt) ends it as if the budget were used up: what was measured is kept.
    """
    started = time.monotonic()
    draw = random.Random(seed)
    states = [_known(task, database) for task in tasks]
    choice = choose_ranking([], seed)
    interrupted = False
    try:
        for state in states:
            while state.measured < trials and state.left:
                if minutes is not None and time.monotonic() - started > 60 * minutes:
                    break
                choice = choose_ranking([*_elsewhere(state.task, database), *map(_measured, states)], seed)
                _measure(state, _batch(state, choice, draw, trials - state.measured), database)
                report(states)
            if state.measured:
                _confirm(state, database)
                report(states)
    except KeyboardInterrupt:
        interrupted = True
    return CpuOutcome(states, choice, time.monotonic() - started, interrupted)


def _keys(task: CpuTask) -> tuple[Key, Key]:
    """Of what is searched, and of what is confirmed."""
    of = task.signature, task.target, task.threads
    return searched_key(*of), confirmed_key(*of)


def _known(task: CpuTask, database: Database) -> CpuProgress:
    """What the database has of a kernel."""
    state = CpuProgress(task)
    searched, confirmed = _keys(task)
    for result in database.results(searched):
        text = point_text(result.point)
        if result.cost is None:
            state.refused[text] = result.refusal
        elif text in task.points:
            state.shares[text] = result.cost
    state.shares.setdefault(task.default, 1.0)
    for result in database.results(confirmed):
        if result.cost is not None and (state.confirmed is None or result.cost < state.confirmed):
            state.confirmed, state.winner = result.cost, point_text(result.point)
    return state


def _measured(state: CpuProgress) -> list[Measured]:
    return [Measured(state.task.features(text), share) for text, share in state.shares.items()]


def _elsewhere(task: CpuTask, database: Database) -> list[list[Measured]]:
    """What was measured of other kernels, here and on other processors."""
    names = task.features(task.default).keys()
    return [
        [Measured(each.features, each.cost) for each in group
         if each.cost is not None and each.features.keys() == names]
        for group in database.elsewhere(_keys(task)[0]).values()
    ]  # fmt: skip


def _batch(state: CpuProgress, choice: Choice, draw: random.Random, room: int) -> list[str]:
    """The best by the ranking, some that are near the best so far, some at random."""
    left = state.left
    values = choice.ranking.values([state.task.features(text) for text in left])
    ordered = [left[place] for place in np.argsort(values, kind="stable").tolist()]
    best = answer_point(state.task.points[min(state.shares, key=state.shares.__getitem__)].answer)

    def apart(text: str) -> int:
        point = answer_point(state.task.points[text].answer)
        return sum(point[name] != value for name, value in best.items())

    picked = ordered[: BATCH - NEARBY - AT_RANDOM]
    picked += sorted((text for text in ordered if text not in picked), key=apart)[:NEARBY]
    rest = [text for text in ordered if text not in picked]
    return [*picked, *draw.sample(rest, min(AT_RANDOM, len(rest)))][:room]


def _ready(state: CpuProgress, texts: Sequence[str], database: Database) -> dict[str, KernelRun]:
    """The kernels of points that can be compiled and give what the default gives; the default's first."""
    task = state.task
    runs = {task.default: task.run(task.default)}
    expected = runs[task.default]().copy()
    for text in texts:
        try:
            run = task.run(text)
            reason = _difference(expected, run())
        except (CompileError, TensorError) as error:
            reason = error.message
        if not reason:
            runs[text] = run
            continue
        state.refused[text] = reason
        state.shares.pop(text, None)
        point = answer_point(task.points[text].answer)
        database.add(_keys(task)[0], point, None, refusal=reason, features=task.features(text))
    return runs


def _difference(expected: Array, found: Array) -> str:
    """How a result differs from the default schedule's; empty if it does not."""
    if expected.dtype.kind != "f":
        return "" if np.array_equal(expected, found) else "its result is another"
    largest = float(np.max(np.abs(expected), initial=0.0))
    off = float(np.max(np.abs(expected - found), initial=0.0))
    return "" if off <= TOLERANCE * max(largest, 1e-30) else f"its result differs by {off:.1e}"


def _shares(runs: Sequence[KernelRun], rounds: int, seconds: float, task: CpuTask) -> tuple[Array, float]:
    """Shares of the first one's time, (rounds, runs), and its seconds.

    All run on the same arrays, which are others in each third of the rounds: with the pages that an array happens to
    have, one schedule may be half as fast again as with others.
    """
    clock = time.thread_time if task.threads == 1 else time.perf_counter
    kept, parts = [], []
    for _ in range(PLACES):
        kept.append(made_up(runs[0].program))
        for run in runs:
            run.use(*kept[-1])
        parts.append(in_turns(runs, rounds // PLACES, seconds, clock))
    times = np.concatenate(parts)
    return times / times[:, :1], float(np.median(times[:, 0]))


def _measure(state: CpuProgress, texts: Sequence[str], database: Database) -> None:
    task = state.task
    state.measured += len(texts)
    runs = _ready(state, texts, database)
    shares, state.seconds = _shares(list(runs.values()), ROUNDS, SECONDS, task)
    for text, share in zip(runs, np.median(shares, axis=0).tolist(), strict=True):
        state.shares[text] = 1.0 if text == task.default else share
        point = answer_point(task.points[text].answer)
        database.add(_keys(task)[0], point, state.shares[text], features=task.features(text))
        state.curve.append(min(state.shares.values()))


def _confirm(state: CpuProgress, database: Database) -> None:
    """Measure the best again, and keep what is faster than the default there, too; else the default itself."""
    task = state.task
    best = sorted((share, text) for text, share in state.shares.items() if share < WORTH)[:CONFIRMED]
    candidates = dict.fromkeys([text for _, text in best])
    if state.winner in task.points and state.winner != task.default:
        candidates.setdefault(state.winner)  # of an earlier search
    runs = _ready(state, list(candidates), database)
    chosen, share = task.default, 1.0
    if len(runs) > 1:
        shares, state.seconds = _shares(list(runs.values()), FRESH_ROUNDS, FRESH_SECONDS, task)
        medians, worse = np.median(shares, axis=0).tolist(), np.quantile(shares, 0.75, axis=0).tolist()
        for text, median, three_quarters in zip(runs, medians, worse, strict=True):
            if median < min(share, WORTH) and three_quarters < 1:
                chosen, share = text, median
    key = _keys(task)[1]
    if state.winner in task.points and state.winner != chosen:  # what was believed before no longer is
        database.add(key, answer_point(task.points[state.winner].answer), 1.0, features=task.features(state.winner))
    state.winner, state.confirmed = chosen, share
    database.add(key, answer_point(task.points[chosen].answer), share, features=task.features(chosen))
