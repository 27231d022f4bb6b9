"""A learned ranking of candidates: gradient-boosted trees over features of tilings, trained on what was measured.

Costs of different kernels are made comparable as Chen et al. do (Learning to Optimize Tensor Programs, 2018): relative
to the best of their kernel. Whether it beats the estimate is asked of each kernel by a model that has not seen it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

LEAST_KERNELS = 3
LEAST_RESULTS = 24
"""Measured kernels and points below which nothing is learned."""

ESTIMATE = "estimate"
"""The feature that is the estimate itself."""

TREES = {"max_depth": 5, "eta": 0.15, "subsample": 0.8, "nthread": 1, "objective": "reg:squarederror"}
ROUNDS = 80


@dataclass(frozen=True)
class Measured:
    """A point of some kernel: its features and what it costs."""

    features: Mapping[str, float]
    cost: float


class Ranking(Protocol):
    """The lower the value, the better a point is expected to be; values of one kernel are compared."""

    name: str

    def values(self, features: Sequence[Mapping[str, float]]) -> npt.NDArray[np.float64]: ...


class ByEstimate:
    """The compiler's own estimate."""

    name = "estimate"

    def values(self, features: Sequence[Mapping[str, float]]) -> npt.NDArray[np.float64]:
        return np.array([each[ESTIMATE] for each in features])


class ByTrees:
    """XGBoost over all features. Points of other kinds may lack some."""

    name = "learned"

    def __init__(self, groups: Sequence[Sequence[Measured]], seed: int) -> None:
        import xgboost

        self._xgboost = xgboost
        self._names = sorted({name for group in groups for each in group for name in each.features})
        rows = [self._row(each.features) for group in groups for each in group]
        targets = np.concatenate([_relative(group) for group in groups])
        data = xgboost.DMatrix(np.array(rows), label=targets)
        self._model: Any = xgboost.train({**TREES, "seed": seed}, data, ROUNDS)

    def _row(self, features: Mapping[str, float]) -> list[float]:
        return [features.get(name, math.nan) for name in self._names]

    def values(self, features: Sequence[Mapping[str, float]]) -> npt.NDArray[np.float64]:
        found = self._model.predict(self._xgboost.DMatrix(np.array([self._row(each) for each in features])))
        return np.asarray(found, np.float64)


def _relative(group: Sequence[Measured]) -> npt.NDArray[np.float64]:
    best = min(each.cost for each in group)
    return np.array([math.log2(each.cost / best) for each in group])


def rank_correlation(first: Sequence[float], second: Sequence[float]) -> float:
    """Spearman's; 0 where one of them is constant. Equal values share their rank."""
    ranks = [_ranks(np.asarray(values, np.float64)) for values in (first, second)]
    spread = np.std(ranks[0]) * np.std(ranks[1])
    if not spread:
        return 0.0
    return float(np.mean((ranks[0] - ranks[0].mean()) * (ranks[1] - ranks[1].mean())) / spread)


def _ranks(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    ranks: npt.NDArray[np.float64] = (ends - (counts - 1) / 2)[inverse]
    return ranks


@dataclass(frozen=True)
class Choice:
    """The ranking to go by, and how well both ranked kernels that they had not seen (mean rank correlation)."""

    ranking: Ranking
    learned: float | None
    estimate: float | None
    why: str


def choose_ranking(groups: Sequence[Sequence[Measured]], seed: int) -> Choice:
    """The learned ranking where it beats the estimate on kernels held out, else the estimate; ``why`` says it."""
    groups = [group for group in groups if len(group) >= LEAST_KERNELS]
    if len(groups) < LEAST_KERNELS or sum(map(len, groups)) < LEAST_RESULTS:
        return Choice(ByEstimate(), None, None, "too little is measured to learn from")
    try:
        import xgboost  # noqa: F401
    except ImportError:
        return Choice(ByEstimate(), None, None, "xgboost is not installed: pip install 'weft[tune]'")
    folds = np.array_split(np.random.default_rng(seed).permutation(len(groups)), min(4, len(groups)))
    scores: dict[str, list[float]] = {"learned": [], "estimate": []}
    for fold in folds:
        held_out = set(fold.tolist())
        trained = ByTrees([group for number, group in enumerate(groups) if number not in held_out], seed)
        for number in sorted(held_out):
            costs = [each.cost for each in groups[number]]
            for ranking in (trained, ByEstimate()):
                values = ranking.values([each.features for each in groups[number]])
                scores[ranking.name].append(rank_correlation(list(values), costs))
    learned, estimate = (float(np.mean(scores[name])) for name in ("learned", "estimate"))
    if learned <= estimate:
        why = f"the learned ranking does not beat the estimate on kernels held out ({learned:.2f}, {estimate:.2f})"
        return Choice(ByEstimate(), learned, estimate, why)
    why = f"rank correlation on kernels held out: {learned:.2f} learned, {estimate:.2f} by the estimate"
    return Choice(ByTrees(groups, seed), learned, estimate, why)
