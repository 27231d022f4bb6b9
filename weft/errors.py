"""The base of all errors that weft raises: what is wrong, where, and what to change."""

from __future__ import annotations

import copyreg
import os
import traceback
from typing import Any


class WeftError(Exception):
    """What a user can cause and cure. Its text is ``at: message; hint: hint``; a part that is empty is left out.

    ``message`` says what was expected and what came; ``at`` names the place; ``hint`` says what to change. ``at`` may
    be anything whose text names a place, such as a graph's span; it is kept as that text. Copies and pickles are equal
    to the original, with the attributes of subclasses and with notes.
    """

    def __init__(self, message: str, *, at: object = "", hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.at = str(at) if at else ""
        self.hint = hint

    def __str__(self) -> str:
        place = f"{self.at}: " if self.at else ""
        return f"{place}{self.message}" + (f"; hint: {self.hint}" if self.hint else "")

    def __reduce__(self) -> tuple[Any, ...]:
        # Exception's own calls the class with ``args`` alone; a subclass may ask for more.
        return copyreg.__newobj__, (type(self), *self.args), self.__dict__  # type: ignore[attr-defined]


def what_broke(error: Exception) -> str:
    """For people, of an error that is a mistake in weft: its kind, its text and where it was raised."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({os.path.basename(frames[-1].filename)}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {error}{place}"
