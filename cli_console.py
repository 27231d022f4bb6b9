"""Consoles that show names as they are: no markup, no emoji codes, no control characters that a terminal would obey."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.status import Status
from rich.text import Text

LONGEST = 2000
"""Characters of a message that are shown."""


def escaped(text: str, keep: str = "") -> str:
    """``text`` with what does not print as its escape sequence, except the characters of ``keep``."""
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() or each in keep else each.encode("unicode_escape").decode() for each in text
    )


def one_line(text: str) -> str:
    """``text`` as one line of at most :data:`LONGEST` characters; lines are joined by a bar."""
    lines = (line.strip(" \t") for line in text.split("\n"))
    joined = escaped(" | ".join(line for line in lines if line))
    if len(joined) <= LONGEST:
        return joined
    head, tail = LONGEST * 3 // 4, LONGEST // 4
    return f"{joined[:head]} ... ({len(joined) - head - tail:,} characters) ... {joined[-tail:]}"


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
