"""Which settings to measure: in batches, by a ranking, with some at random; more for what gains.

The first batch of a task is what the compiler takes by itself and the best by the estimate. Every result goes to the
database at once, so that an interrupted search loses nothing and one that is begun again does not measure twice.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from ..compiler.tune.database import Database, point_text
from ..errors import what_broke
from .ranking import Choice, Measured, choose_ranking
from .task import RefusedError, Task

BATCH = 8
"""Points measured before the ranking is asked again."""

NEARBY, AT_RANDOM = 2, 2
"""Of a batch, those that differ least from the best so far, and those that are drawn from all that is left."""

LOOKED_AT = 2000
"""Candidates, the best by the estimate, among which the ranking chooses."""

CLOSE_ENOUGH = 0.01
"""Share above the bound from which on a kernel is left alone: there is not more to gain."""

LITTLE = 0.01
"""Share of the network's cycles: a search that is expected to take off less ends."""

SEEN = 0.5
"""Share of all cycles above the bounds that has to be of kernels that were tried before anything is expected."""

BROKE = "the compiler broke: "
"""What the reason of a setting begins with at which something was raised that is no refusal."""


@dataclass
class Progress:
    """What is known of a task: costs by tiling, in the order of measurement (``curve``: the best so far)."""

    task: Task
    costs: dict[str, float] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    curve: list[float] = field(default_factory=list)
    measured: int = 0  # in this search
    default: float | None = None
    gained: float = 0.0  # share of the cost that the last batch took off
    finished: str = ""  # why no more is measured

    @property
    def best(self) -> float | None:
        return min(self.costs.values(), default=None)

    @property
    def broke(self) -> dict[str, str]:
        """Of those that are refused, the settings that broke the compiler."""
        return {text: reason for text, reason in self.refused.items() if reason.startswith(BROKE)}

    @property
    def tried(self) -> bool:
        """Whether more than what the compiler takes by itself is known."""
        return bool(self.finished) or len(self.costs) + len(self.refused) > BATCH

    @property
    def form(self) -> str:
        """Of the depthwise layers, in the best that was measured; empty if there are none."""
        best = min(self.costs, key=self.costs.__getitem__, default="")
        return str(json.loads(best).get("form", "")) if best else ""

    @property
    def worth(self) -> float:
        """What another batch may bring, in cycles of the network: what the last one brought, fading, or a little."""
        best = self.best
        if best is None:
            return float("inf")
        room = best - self.task.bound
        return self.task.count * max(self.gained * best, 0.1 * room / (1 + self.measured / BATCH))


@dataclass(frozen=True)
class Outcome:
    """A finished, interrupted or exhausted search. ``little``: it ended since little more was expected."""

    states: Sequence[Progress]
    choice: Choice
    seconds: float
    interrupted: bool = False
    little: bool = False

    @property
    def untouched(self) -> int:
        """Tasks of which nothing is known: the time was over before their turn."""
        return sum(state.best is None and not state.refused for state in self.states)


Report = Callable[[Sequence[Progress]], None]


def search(
    tasks: Sequence[Task], database: Database, *, trials: int, seed: int = 0, minutes: float | None = None,
    thorough: bool = False, report: Report = lambda _: None,
) -> Outcome:  # fmt: skip
    """Measure up to ``trials`` tilings a kernel on average, or for ``minutes``; ``report`` is called after each batch.

    After ``minutes`` no program is begun, not even of what the compiler takes by itself.

    It ends before that when less than :data:`LITTLE` of the network's cycles is expected to go, unless ``thorough``. A
    setting that breaks the compiler is kept with its reason, as one that is refused, and the search goes on.
    The same tasks, database and seed give the same search, unless time ends it. An interruption (KeyboardInterrupt)
    ends it as if the budget were used up.
    """
    started = time.monotonic()
    draw = random.Random(seed)
    states = [_known(task, database) for task in tasks]
    groups = [[Measured(each.features, each.cost) for each in group if each.cost is not None and each.features]
              for group in (database.elsewhere(tasks[0].key).values() if tasks else ())]  # fmt: skip
    budget = trials * len(tasks)
    choice = choose_ranking([], seed)
    interrupted = little = False

    def in_time() -> bool:
        return minutes is None or time.monotonic() - started <= 60 * minutes

    try:
        for state in states:
            for own in state.task.defaults:
                _measure(state, [own], database, in_time)
                state.default = state.costs.get(own)
                if own not in state.refused:
                    break
            if in_time():
                _finish(state)
            report(states)
        while budget - sum(state.measured for state in states) > 0:
            open_states = [state for state in states if not state.finished]
            if not open_states or not in_time():
                break
            if little := not thorough and _little_to_gain(states):
                break
            state = max(open_states, key=lambda each: each.worth)
            choice = choose_ranking([*groups, *_groups(states)], seed)
            before = state.best
            batch = _batch(state, choice, draw, budget - sum(each.measured for each in states))
            _measure(state, batch, database, in_time)
            after = state.best
            state.gained = 0.5 * state.gained if before is None or after is None else 1 - after / before
            _finish(state)
            report(states)
    except KeyboardInterrupt:
        interrupted = True
    return Outcome(states, choice, time.monotonic() - started, interrupted, little)


def _known(task: Task, database: Database) -> Progress:
    """What the database has of a task."""
    state = Progress(task)
    for result in database.results(task.key):
        text = point_text(result.point)
        if result.cost is None:
            state.refused[text] = result.refusal
        else:
            state.costs[text] = result.cost
    if state.best is not None:
        state.curve.append(state.best)
    return state


def _little_to_gain(states: Sequence[Progress]) -> bool:
    """Whether kernels that were tried have gained so little that all together are expected to stay below
    :data:`LITTLE`: the others gain the same share of what they are above their bounds."""
    total = expected = tried_room = tried_gain = room_left = 0.0
    for state in states:
        if state.default is None or state.best is None:
            continue
        count = state.task.count
        room, gain = count * (state.default - state.task.bound), count * (state.default - state.best)
        total += count * state.default if state.task.in_sum else 0
        if state.tried:
            tried_room, tried_gain = tried_room + room, tried_gain + gain
        else:
            room_left += room
        expected += gain
    if tried_room < SEEN * (tried_room + room_left) or not tried_room:
        return False
    return expected + tried_gain / tried_room * room_left < LITTLE * total


def _finish(state: Progress) -> None:
    best, task = state.best, state.task
    if best is not None and best <= (1 + CLOSE_ENOUGH) * task.bound:
        state.finished = f"within {CLOSE_ENOUGH:.0%} of the bound"
    elif len(state.costs) + len(state.refused) >= len(task.points):
        state.finished = "every point is measured"


def _groups(states: Sequence[Progress]) -> list[list[Measured]]:
    """What is measured of the tasks, with features."""
    return [
        [
            Measured(found, cost)
            for text, cost in state.costs.items()
            if text in state.task.points and (found := state.task.features(text))
        ]
        for state in states
    ]


def _batch(state: Progress, choice: Choice, draw: random.Random, room: int) -> list[str]:
    """The best by the ranking, no two with the same tile, some that are near the best so far, and some at random."""
    task = state.task
    left = [text for text in task.points if text not in state.costs and text not in state.refused]
    front = [text for text in left[:LOOKED_AT] if task.features(text)]
    values = choice.ranking.values([task.features(text) for text in front]) if front else np.zeros(0)
    order = np.argsort(values, kind="stable").tolist()
    chosen: dict[tuple[object, ...], str] = {}
    for place in order:
        chosen.setdefault(task.points[front[place]].setting.tile, front[place])
        if len(chosen) == BATCH - NEARBY - AT_RANDOM:
            break
    picked = list(chosen.values())
    picked += _nearest(state, [front[place] for place in order if front[place] not in picked])
    rest = [text for text in left if text not in picked]
    picked += draw.sample(rest, min(AT_RANDOM, len(rest)))
    return picked[:room]


def _nearest(state: Progress, texts: Sequence[str]) -> list[str]:
    """Of these, in the order of the ranking, those that differ in the fewest knobs from the best so far."""
    points = state.task.points
    known = [text for text in state.costs if text in points]
    if not known:
        return []
    best = points[min(known, key=state.costs.__getitem__)].setting.point

    def apart(text: str) -> int:
        point = points[text].setting.point
        return sum(point.get(name) != best.get(name) for name in {**best, **point})

    return sorted(texts, key=apart)[:NEARBY]


def _measure(state: Progress, texts: Sequence[str], database: Database, in_time: Callable[[], bool]) -> None:
    """Measure what is not known of these points, as long as there is time."""
    task = state.task
    for text in texts:
        if text in state.costs or text in state.refused:
            continue
        if not in_time():
            return
        setting, known = task.points[text].setting, task.features(text)
        state.measured += 1
        try:
            cost = task.cycles(setting)
        except Exception as error:
            reason = str(error) if isinstance(error, RefusedError) else f"{BROKE}{what_broke(error)}"
            state.refused[text] = reason
            database.add(task.key, setting.point, None, refusal=reason, features=known)
            continue
        state.costs[text] = float(cost)
        database.add(task.key, setting.point, float(cost), features=known)
        state.curve.append(min(state.costs.values()))
