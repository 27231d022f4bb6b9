"""Consoles that show names as they are: no markup, no emoji codes, no control characters that a terminal would obey."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.status import Status
from rich.text import Text

from ..shown import escaped


class PlainConsole(Console):
    """A console that interprets nothing in strings; what it may style comes as :class:`rich.text.Text`."""

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, **options)

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(escaped(text, keep="\n\t"), **options)

    def status(self, status: Any, **options: Any) -> Status:
        return _PlainStatus(_plain(status), console=self, **options)


class _PlainStatus(Status):
    def update(self, status: Any = None, **options: Any) -> None:
        super().update(_plain(status), **options)


def _plain(status: Any) -> Any:
    return Text(escaped(status)) if isinstance(status, str) else status
