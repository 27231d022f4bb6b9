"""What is wrong with a board, and the checks that find it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .patient import Patient


class FindingError(Exception):
    """Something is wrong: ``text`` says what, ``remedy`` what to do."""

    def __init__(self, text: str, remedy: str = "", figures: Mapping[str, Any] | None = None) -> None:
        super().__init__(text)
        self.text, self.remedy, self.figures = text, remedy, dict(figures or {})


@dataclass(frozen=True)
class Check:
    """``run`` says what is well, with figures, or raises :class:`FindingError`. After an ``essential`` check that fails
    no other makes sense."""

    name: str
    run: Callable[[Patient], str | tuple[str, dict[str, Any]]]
    essential: bool = True
