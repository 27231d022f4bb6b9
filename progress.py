"""Progress of long work on stderr, with the seconds that have passed.

On a terminal it is one line that moves. In a pipe or a file it is plain lines: the first text and the last always, no
more than one a second in between, and now and then a sign of life while a text stays.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from rich import progress as rich_progress
from rich.console import Console

LINES_APART = 1.0
"""Least seconds between two plain lines."""

SIGN_OF_LIFE = 30.0
"""Seconds after which a text that stays is printed again."""


class Updates(Protocol):
    """What the work reports to."""

    def update(self, text: str) -> None:
        """The work goes on to what ``text`` says; any thread may call."""


@contextmanager
def progress(
    text: str, console: Console | None = None, *, apart: float = LINES_APART, sign_of_life: float = SIGN_OF_LIFE
) -> Iterator[Updates]:
    """Show ``text`` until the work reports another or the context ends. ``console``: stderr by default."""
    console = console or Console(stderr=True)
    shown = _terminal(text, console) if console.is_terminal else _plain(text, console, apart, sign_of_life)
    with shown as updates:
        yield updates


@contextmanager
def _terminal(text: str, console: Console) -> Iterator[Updates]:
    columns = (
        rich_progress.SpinnerColumn(),
        rich_progress.TextColumn("{task.description}", markup=False),
        rich_progress.TimeElapsedColumn(),
    )
    with rich_progress.Progress(*columns, console=console, transient=True) as bar:
        yield _Bar(bar, bar.add_task(text, total=None))


class _Bar:
    def __init__(self, bar: rich_progress.Progress, task: rich_progress.TaskID) -> None:
        self._bar = bar
        self._task = task

    def update(self, text: str) -> None:
        self._bar.update(self._task, description=text)


@contextmanager
def _plain(text: str, console: Console, apart: float, sign_of_life: float) -> Iterator[Updates]:
    lines = _Lines(text, console, sign_of_life)
    over = threading.Event()

    def serve() -> None:
        while not over.wait(apart):
            lines.tick()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield lines
    finally:
        over.set()
        thread.join()
        lines.finish()


class _Lines:
    """Plain lines. The work sets the text at any time; :meth:`tick` prints it if it is new."""

    def __init__(self, text: str, console: Console, sign_of_life: float) -> None:
        self._console = console
        self._sign_of_life = sign_of_life
        self._started = time.monotonic()
        self._text = text
        self._print(text)

    def update(self, text: str) -> None:
        self._text = text

    def tick(self) -> None:
        text = self._text
        if text != self._printed or time.monotonic() - self._printed_at >= self._sign_of_life:
            self._print(text)

    def finish(self) -> None:
        if self._text != self._printed:
            self._print(self._text)

    def _print(self, text: str) -> None:
        self._printed, self._printed_at = text, time.monotonic()
        seconds = self._printed_at - self._started
        line = f"{text} ({seconds:.0f} s)" if seconds >= 1 else text
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)
