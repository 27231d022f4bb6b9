"""Progress: plain lines in a pipe, one moving line on a terminal."""

from __future__ import annotations

import io
import re
import time
from itertools import pairwise

import pytest
from rich.console import Console
from weft.progress import progress

APART = 0.1


class TimedText(io.StringIO):
    """Remembers when each line was written."""

    def __init__(self) -> None:
        super().__init__()
        self.times: list[float] = []

    def write(self, text: str) -> int:
        if text.strip():
            self.times.append(time.monotonic())
        return super().write(text)


def test_a_pipe_gets_the_first_and_the_last_text_and_few_between() -> None:
    file = TimedText()
    started = time.monotonic()
    with progress("reading", Console(file=file), apart=APART) as shown:
        for number in range(20):
            shown.update(f"compiling layer {number}")
            time.sleep(APART / 5)
        shown.update("linking")
    lines = file.getvalue().splitlines()
    assert lines[0] == "reading"
    assert lines[-1] == "linking"
    assert 3 <= len(lines) <= 2 + (time.monotonic() - started) / APART
    assert all(later - earlier > 0.8 * APART for earlier, later in pairwise(file.times[:-1]))


def test_the_text_of_a_long_step_is_printed_while_the_step_lasts() -> None:
    """Although it came right after another line."""
    file = TimedText()
    with progress("reading", Console(file=file), apart=APART) as shown:
        shown.update("compiling the RTL model")
        time.sleep(4 * APART)
        assert file.getvalue().splitlines() == ["reading", "compiling the RTL model"]


def test_a_text_that_stays_is_repeated_with_the_seconds_so_far() -> None:
    file = io.StringIO()
    with progress("compiling", Console(file=file), apart=0.1, sign_of_life=1.2):
        time.sleep(1.6)
    assert file.getvalue().splitlines() == ["compiling", "compiling (1 s)"]


def test_text_is_not_markup() -> None:
    file = io.StringIO()
    with progress("input [1, 3] [bold]x", Console(file=file)):
        pass
    assert file.getvalue() == "input [1, 3] [bold]x\n"


def test_a_terminal_shows_text_and_time_and_is_left_clean() -> None:
    file = io.StringIO()
    with progress("reading", Console(file=file, force_terminal=True, width=80)) as shown:
        time.sleep(0.2)
        shown.update("compiling [3]")
        time.sleep(0.2)
    text = file.getvalue()
    assert re.search(r"compiling \[3\].*0:00:00", text)
    assert text.endswith("\x1b[2K")  # the line is erased


def test_counted_work_has_a_bar_on_a_terminal_and_figures_in_a_pipe() -> None:
    shown_on = {}
    for kind in (True, False):
        file = io.StringIO()
        with progress("reading", Console(file=file, force_terminal=kind, width=100), apart=APART) as shown:
            time.sleep(2 * APART)
            assert "\u2501" not in file.getvalue()  # no bar where nothing is counted
            shown.count("running", 1, 4)
            time.sleep(2 * APART)
            counted = file.getvalue()
            shown.update("writing")
            time.sleep(2 * APART)
        shown_on[kind] = counted, file.getvalue()[len(counted) :]
    counted, behind = shown_on[True]
    assert re.search(r"running: 1 of 4 \(25%\).*\u2501{5}.*0:00:00.*left", counted)
    assert "\u2501" not in behind.rsplit("writing", 1)[1]
    assert "running: 1 of 4 (25%)\n" in shown_on[False][0]


def test_an_error_of_the_work_passes_and_ends_the_lines() -> None:
    file = io.StringIO()

    def work() -> None:
        with progress("writing", Console(file=file)) as shown:
            shown.update("writing the report")
            raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        work()
    assert file.getvalue().splitlines() == ["writing", "writing the report"]
