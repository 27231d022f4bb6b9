"""Progress of long work on stderr, with the seconds that have passed.

On a terminal it is one line that moves. In a pipe or a file it is plain lines: the first text and the last always, no
more than one a second in between, and now and then a sign of life while a text stays.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from rich import progress as rich_progress
from rich.console import Console
from rich.text import Text

LINES_APART = 1.0
"""Least seconds between two plain lines."""

SIGN_OF_LIFE = 30.0
"""Seconds after which a text that stays is printed again."""


class Updates(Protocol):
    """What the work reports to."""

    def update(self, text: str) -> None:
        """The work goes on to what ``text`` says; any thread may call."""

    def count(self, text: str, done: int, total: int) -> None:
        """As :meth:`update`, of work with so many parts, of which so many are done: on a terminal, a bar."""


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
        _BarOfCounted(bar_width=30),
        rich_progress.TimeElapsedColumn(),
        _TimeLeft(),
    )
    with rich_progress.Progress(*columns, console=console, transient=True) as bar:
        yield _Bar(bar, bar.add_task(text, total=None))


class _Bar:
    def __init__(self, bar: rich_progress.Progress, task: rich_progress.TaskID) -> None:
        self._bar = bar
        self._task = task

    def update(self, text: str) -> None:
        task = self._bar.tasks[0]
        task.total, task.completed = None, 0
        self._bar.update(self._task, description=text)

    def count(self, text: str, done: int, total: int) -> None:
        if self._bar.tasks[0].total != total or done < self._bar.tasks[0].completed:
            self._bar.reset(self._task, total=total)
        self._bar.update(self._task, description=_counted(text, done, total), completed=done)


class _BarOfCounted(rich_progress.BarColumn):
    """A bar for work whose parts are counted; nothing for other work."""

    def render(self, task: rich_progress.Task) -> Any:
        return Text() if task.total is None else super().render(task)


class _TimeLeft(rich_progress.TimeRemainingColumn):
    """The time that counted work will still take."""

    def render(self, task: rich_progress.Task) -> Text:
        return Text() if task.total is None or task.finished else Text("left ") + super().render(task)


def _counted(text: str, done: int, total: int) -> str:
    return f"{text}: {done:,} of {total:,} ({done / total if total else 1:.0%})"


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

    def count(self, text: str, done: int, total: int) -> None:
        self._text = _counted(text, done, total)

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
