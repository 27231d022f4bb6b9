"""Which points come next: the whole grid, random ones, or what Optuna's samplers propose from what is known."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, Protocol

from .errors import ExploreError
from .outcome import Outcome
from .space import Algorithm, Space, assignment_text

LISTED = 1 << 20
"""Points that a grid, or a random order without repetition, may have."""

ASKED_AGAIN = 20
"""How often a sampler may propose what is known already, or refused, for each point that is measured."""


class Proposer(Protocol):
    """Proposes points, and is told what came of each."""

    def propose(self, count: int) -> list[dict[str, Any]]:
        """Up to ``count`` points that were not proposed before; none where there are no more."""

    def tell(self, outcomes: Sequence[Outcome]) -> None:
        """What came of the points of the last proposal, in its order."""


class InOrder:
    """All points in the order of the grid, or in a random one."""

    def __init__(self, space: Space, *, shuffled: bool) -> None:
        if space.size > LISTED:
            raise ExploreError(f"the space has {space.size:,} points, too many to list",
                               hint='fewer values, or search.algorithm = "tpe"')  # fmt: skip
        self._left = list(space.assignments())
        if shuffled:
            random.Random(space.search.seed).shuffle(self._left)
        self._left.reverse()

    def propose(self, count: int) -> list[dict[str, Any]]:
        return [self._left.pop() for _ in range(min(count, len(self._left)))]

    def tell(self, outcomes: Sequence[Outcome]) -> None:
        pass


class BySampler:
    """Optuna's TPE or NSGA-II, in memory. Points that were refused break a constraint of the sampler."""

    def __init__(self, space: Space, algorithm: Algorithm) -> None:
        try:
            import optuna
        except ImportError:
            raise ExploreError(f"search.algorithm = {algorithm!r} needs Optuna",
                               hint="pip install 'weft[explore]'") from None  # fmt: skip
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._optuna, self._space = optuna, space
        self._objectives = space.search.objectives
        seed = space.search.seed
        if algorithm == "tpe":
            sampler: Any = optuna.samplers.TPESampler(multivariate=True, constant_liar=True, seed=seed)
        else:
            sampler = optuna.samplers.NSGAIISampler(population_size=max(8, 2 * space.search.batch), seed=seed)
        self._study = optuna.create_study(directions=["minimize"] * len(self._objectives), sampler=sampler)
        self._choices = {name: values for name, values in space.axes.items() if len(values) > 1}
        self._fixed = {name: values[0] for name, values in space.axes.items() if len(values) == 1}
        self._known: dict[str, tuple[tuple[float, ...], float]] = {}
        self._trials: list[Any] = []
        self._worst = [1.0] * len(self._objectives)

    def propose(self, count: int) -> list[dict[str, Any]]:
        found: dict[str, dict[str, Any]] = {}
        self._trials = []
        for _ in range(ASKED_AGAIN * count):
            if len(found) == count or len(self._known) + len(found) == self._space.size:
                break
            trial = self._study.ask()
            point = self._fixed | {
                name: values[trial.suggest_int(name, 0, len(values) - 1)] for name, values in self._choices.items()
            }
            text = assignment_text(point)
            if text in self._known:
                self._finish(trial, *self._known[text])
            elif text in found:
                self._study.tell(trial, state=self._optuna.trial.TrialState.FAIL)
            else:
                found[text] = point
                self._trials.append(trial)
        return list(found.values())

    def _finish(self, trial: Any, values: tuple[float, ...], broken: float) -> None:
        trial.set_constraint("refused", broken)
        self._study.tell(trial, list(values))

    def tell(self, outcomes: Sequence[Outcome]) -> None:
        for trial, outcome in zip(self._trials, outcomes, strict=True):
            good = outcome.status == "measured"
            if good:
                values = outcome.cost(self._objectives)
                self._worst = [max(pair) for pair in zip(self._worst, values, strict=True)]
            else:  # a sampler wants values: none is worse than those that were seen
                values = tuple(self._worst)
            self._known[assignment_text(outcome.assignment)] = values, 0.0 if good else 1.0
            self._finish(trial, values, 0.0 if good else 1.0)


def proposer_for(space: Space) -> Proposer:
    """What the space's search asks for."""
    algorithm = space.search.algorithm
    if algorithm in ("grid", "random"):
        return InOrder(space, shuffled=algorithm == "random")
    return BySampler(space, algorithm)
