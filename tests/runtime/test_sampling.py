"""Tokens are chosen as softmax and the best few say, and a text ends where it should."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from weft.runtime.errors import InputError, SessionError
from weft.runtime.sampling import Generated, Sampling, generate

SCORES = np.array([0.5, 2.0, -1.0, 2.0, 1.0], np.float32)


class Counting:
    """A session whose scores say that a token is followed by the next number."""

    def __init__(self, positions: int | None = None) -> None:
        self.positions, self.position, self.cycles = positions, 0, 0
        self.taken: list[int] = []

    def prefill(self, tokens: list[int]) -> np.ndarray:
        self.taken += tokens
        self.position += len(tokens)
        self.cycles = 10 * len(tokens)
        return np.eye(8)[(tokens[-1] + 1) % 8]

    def step(self, token: int) -> np.ndarray:
        return self.prefill([token])


def test_without_temperature_the_first_best_token_comes() -> None:
    assert Sampling().chooser()(SCORES) == 1
    assert Sampling(top_k=1, temperature=3.0).chooser()(SCORES) == 1


@pytest.mark.parametrize(("temperature", "top_k"), [(1.0, None), (0.5, 3), (2.0, 4)])
def test_shares_are_those_of_softmax_over_the_best(temperature: float, top_k: int | None) -> None:
    choose = Sampling(temperature, top_k, seed=1).chooser()
    drawn = np.bincount([choose(SCORES) for _ in range(4000)], minlength=5) / 4000
    weights = np.exp(SCORES.astype(np.float64) / temperature)
    weights[np.argsort(-SCORES, kind="stable")[top_k or 5 :]] = 0
    np.testing.assert_allclose(drawn, weights / weights.sum(), atol=0.03)
    assert not drawn[weights == 0].any()


def test_a_seed_repeats_what_is_drawn() -> None:
    rows = np.random.default_rng(0).normal(size=(30, 20))

    def drawn(seed: int) -> list[int]:
        choose = Sampling(1.0, None, seed).chooser()
        return [choose(row) for row in rows]

    assert drawn(1) == drawn(1)
    assert drawn(1) != drawn(2)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_scores_that_are_not_finite_are_refused(bad: float) -> None:
    with pytest.raises(InputError, match="not finite"):
        Sampling().chooser()(np.array([0.0, bad]))
    assert Sampling(1.0).chooser()(np.array([-np.inf, 0.0])) == 1  # of a token that is never meant


@pytest.mark.parametrize("options", [{"temperature": -1.0}, {"temperature": np.nan}, {"top_k": 0}], ids=str)
def test_ways_of_choosing_that_have_no_meaning(options: dict[str, float]) -> None:
    with pytest.raises(InputError, match="must be"):
        Sampling(**options)  # type: ignore[arg-type]


def test_a_text_goes_on_and_its_last_token_is_not_taken() -> None:
    session = Counting()
    assert list(generate(session, [1, 2], 4)) == [Generated(3, 20), *(Generated(token, 10) for token in (4, 5, 6))]  # type: ignore[arg-type]
    assert session.taken == [1, 2, 3, 4, 5]


def test_a_text_ends_at_a_stop_and_where_the_session_is_full() -> None:
    assert [each.token for each in generate(Counting(), [1], 9, stop=(3,))] == [2, 3]  # type: ignore[arg-type]
    assert [each.token for each in generate(Counting(4), [1, 2], 9)] == [3, 4, 5]  # type: ignore[arg-type]
    assert [each.token for each in generate(Counting(), [1], 3, vocabulary=3)] == [2, 0, 1]  # type: ignore[arg-type]


def test_no_prompt_and_no_tokens_are_refused() -> None:
    with pytest.raises(SessionError, match="the prompt has no token"):
        next(generate(Counting(), [], 1))  # type: ignore[arg-type]
    with pytest.raises(InputError, match="count is 0"):
        next(generate(Counting(), [1], 0))  # type: ignore[arg-type]


@pytest.mark.parametrize(("settings", "message"), [
    ({"temperature": "hot"}, "temperature is 'hot', but must be 0 or a finite number above"),
    ({"top_k": 1.5}, "top_k is 1.5, but must be a whole number of at least 1"),
    ({"top_k": 0}, "top_k is 0, but must be a whole number of at least 1"),
    ({"seed": -1}, "seed is -1, but must be a whole number of at least 0"),
    ({"seed": 0.5}, "seed is 0.5, but must be"),
])  # fmt: skip
def test_settings_without_a_meaning_are_refused(settings: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Sampling(**settings)


@pytest.mark.parametrize("count", [2.5, "x", True, None])
def test_a_count_that_is_none_is_refused(count: Any) -> None:
    with pytest.raises(InputError, match=r"count is .*, but must be a whole number of at least 1"):
        next(generate(Counting(), [1], count))  # type: ignore[arg-type]


@pytest.mark.filterwarnings("error")
def test_the_lowest_temperature_draws_the_best_token() -> None:
    assert Sampling(1e-320).chooser()(np.array([0.5, 2.0, -1e300])) == 1
