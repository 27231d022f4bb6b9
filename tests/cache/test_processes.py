"""The cache, asked by several processes and threads at once, some of which are killed."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from pathlib import Path

import pytest
from weft import cache
from weft.cache import kept, locked, look_up

from tests.threads import in_threads

from .entries import CONTENT, KEY, entry, files


def _make_slowly(log: Path) -> None:
    def make() -> bytes:
        with log.open("a") as file:
            file.write("made\n")
        time.sleep(0.1)
        return CONTENT

    assert kept("cpu", KEY, make) == CONTENT


def test_processes_that_ask_at_once_make_it_once(folder: Path, tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=_make_slowly, args=(tmp_path / "log",)) for _ in range(6)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * 6
    assert (tmp_path / "log").read_text() == "made\n"
    assert files(folder) == {f"cpu/weft-{KEY}"}


def test_threads_that_ask_at_once_make_it_once(tmp_path: Path) -> None:
    in_threads(lambda _: _make_slowly(tmp_path / "log"), 6)
    assert (tmp_path / "log").read_text() == "made\n"


def test_a_process_that_is_killed_while_it_makes_something_holds_nobody_up(folder: Path, tmp_path: Path) -> None:
    def hang() -> None:
        def make() -> bytes:
            (tmp_path / "inside").touch()
            time.sleep(60)
            return b""

        kept("cpu", KEY, make)

    process = multiprocessing.get_context("fork").Process(target=hang)
    process.start()
    while not (tmp_path / "inside").exists():
        time.sleep(0.01)
    os.kill(process.pid or 0, signal.SIGKILL)
    process.join()
    assert kept("cpu", KEY, lambda: CONTENT) == CONTENT
    assert files(folder) == {f"cpu/weft-{KEY}"}


def test_a_lock_whose_file_is_replaced_still_lets_in_one_at_a_time(tmp_path: Path) -> None:
    inside: list[int] = []
    most = 0

    def work(_number: int) -> None:
        nonlocal most
        for _ in range(50):
            with locked(tmp_path / "file"):  # each leaving removes the lock's file under those that wait
                inside.append(1)
                most = max(most, len(inside))
                time.sleep(0.0005)
                inside.pop()

    in_threads(work)
    assert most == 1
    assert list(tmp_path.iterdir()) == []


def _read_for_ever(until: Path) -> None:
    while not until.exists():
        assert look_up("cpu", KEY) in (None, CONTENT, CONTENT[::-1])


def test_readers_never_see_half_an_entry(folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    process = multiprocessing.get_context("fork").Process(target=_read_for_ever, args=(tmp_path / "stop",))
    process.start()
    (folder / "cpu").mkdir(parents=True, exist_ok=True)
    stored = [cache._store(entry(folder), CONTENT[:: 1 if number % 2 else -1]) for number in range(300)]
    (tmp_path / "stop").touch()
    process.join()
    assert all(stored)
    assert process.exitcode == 0
    assert "damaged" not in capfd.readouterr().err
