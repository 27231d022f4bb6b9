"""From scores to the next token: the best one, or one that is drawn."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
import numpy.typing as npt

from ..whole import whole
from .errors import InputError, SessionError
from .session import Session

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Sampling:
    """How tokens are chosen. ``temperature``: 0 for the token with the highest score, the first of equal ones; else it
    is drawn by the softmax of scores over the temperature. ``top_k``: among the best so many; None: among all.

    Raises InputError for values that have no meaning.
    """

    temperature: float = 0.0
    top_k: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.temperature, Real) or not 0 <= self.temperature < np.inf:
            raise InputError(f"temperature is {self.temperature!r:.80}, but must be 0 or a finite number above")
        if self.top_k is not None:
            object.__setattr__(self, "top_k", _at_least(1, "top_k", self.top_k))
        object.__setattr__(self, "seed", _at_least(0, "seed", self.seed))

    def chooser(self) -> Callable[[Array], int]:
        """A function from scores ``(vocabulary,)`` to a token, with random numbers of its own from the seed on."""
        generator = np.random.default_rng(self.seed)

        def choose(scores: Array) -> int:
            exact = np.asarray(scores, np.float64)
            if not np.isfinite(exact).any() or np.isnan(exact).any() or np.isposinf(exact).any():
                raise InputError("the scores are not finite, so no token follows",
                                 hint="compare the model with another target: weft compare")  # fmt: skip
            if self.temperature == 0:
                return int(exact.argmax())
            order = np.argsort(-exact, kind="stable")[: self.top_k]
            with np.errstate(over="ignore"):  # of a temperature near 0, at which the others have no share
                weights = np.exp((exact[order] - exact[order[0]]) / self.temperature)
            return int(order[generator.choice(len(order), p=weights / weights.sum())])

        return choose


def _at_least(least: int, name: str, value: object) -> int:
    number = whole(value)
    if number is None or number < least:
        raise InputError(f"{name} is {value!r:.80}, but must be a whole number of at least {least}")
    return number


@dataclass(frozen=True)
class Generated:
    """A token, and the core's cycles of the runs that gave its scores: None where no device models time."""

    token: int
    cycles: int | None


def generate(
    session: Session, prompt: Sequence[int], count: int, sampling: Sampling | None = None, *,
    stop: Collection[int] = (), vocabulary: int | None = None,
) -> Iterator[Generated]:  # fmt: skip
    """Take a prompt and go on for up to ``count`` tokens; fewer where one of ``stop`` comes, which is the last, and
    where the session is full.

    ``vocabulary``: tokens that are chosen among, the first so many; by default all that have scores. The last token is
    not taken by the session. Raises :class:`SessionError` for a prompt that does not fit, InputError for a ``count``
    below 1 and for scores that are not finite.
    """
    count = _at_least(1, "count", count)
    if not len(prompt):
        raise SessionError("the prompt has no token", hint="give at least one: a model continues a text")
    choose = (sampling or Sampling()).chooser()
    scores = session.prefill(prompt)
    for number in range(count):
        token = choose(scores[:vocabulary])
        yield Generated(token, session.cycles)
        if token in stop or number + 1 == count or session.position == session.positions:
            return
        scores = session.step(token)
