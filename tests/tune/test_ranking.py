"""The learned ranking: it is used where it beats the estimate on kernels that it has not seen, and says why not."""

from __future__ import annotations

import builtins
from typing import Any

import numpy as np
import pytest
from weft.tune.ranking import ByEstimate, Measured, choose_ranking, rank_correlation


def groups(count: int, points: int, *, estimate_is_right: bool) -> list[list[Measured]]:
    """Kernels whose cost depends on features ``x`` and ``y``; the estimate knows all of it, or nothing."""
    random = np.random.default_rng(0)
    found = []
    for _ in range(count):
        scale = random.uniform(1, 100)
        group = []
        for _ in range(points):
            x, y = random.uniform(0, 1, 2)
            cost = 2 ** (2 * x - y)
            estimate = cost if estimate_is_right else float(random.uniform())
            group.append(Measured({"x": x, "y": y, "estimate": estimate}, scale * cost))
        found.append(group)
    return found


def test_rank_correlation_is_spearmans() -> None:
    assert rank_correlation([1, 2, 3, 4], [10, 20, 30, 40]) == pytest.approx(1)
    assert rank_correlation([1, 2, 3, 4], [9, 3, 2, 1]) == pytest.approx(-1)
    assert rank_correlation([1, 2, 3], [5, 5, 5]) == 0
    # by scipy.stats.spearmanr
    assert rank_correlation([1, 2, 2, 4, 5], [3, 1, 2, 2, 9]) == pytest.approx(0.2894737)


def test_what_the_estimate_does_not_know_is_learned() -> None:
    pytest.importorskip("xgboost")
    choice = choose_ranking(groups(6, 20, estimate_is_right=False), seed=0)
    assert choice.ranking.name == "learned"
    assert (choice.learned or 0) > 0.8
    unseen = groups(7, 20, estimate_is_right=False)[-1]
    values = choice.ranking.values([each.features for each in unseen])
    assert rank_correlation(list(values), [each.cost for each in unseen]) > 0.8


def test_an_estimate_that_is_right_stays() -> None:
    pytest.importorskip("xgboost")
    choice = choose_ranking(groups(6, 20, estimate_is_right=True), seed=0)
    assert choice.ranking.name == "estimate"
    assert "does not beat the estimate on kernels held out" in choice.why


def test_the_same_seed_ranks_the_same() -> None:
    pytest.importorskip("xgboost")
    measured = groups(6, 20, estimate_is_right=False)
    features = [each.features for each in measured[0]]
    first, second = (choose_ranking(measured, seed=3).ranking.values(features) for _ in range(2))
    assert np.array_equal(first, second)


def test_little_is_no_ground_to_learn_from() -> None:
    choice = choose_ranking(groups(2, 4, estimate_is_right=False), seed=0)
    assert isinstance(choice.ranking, ByEstimate)
    assert choice.why == "too little is measured to learn from"


def test_without_xgboost_the_estimate_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *others: Any, **more: Any) -> Any:
        if name == "xgboost":
            raise ImportError(name)
        return real(name, *others, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    choice = choose_ranking(groups(6, 20, estimate_is_right=False), seed=0)
    assert isinstance(choice.ranking, ByEstimate)
    assert "xgboost is not installed" in choice.why
