"""Worker processes: results, refusals, exceptions, deaths and jobs without end."""

from __future__ import annotations

import importlib
import os
import signal
from collections import deque
from pathlib import Path
from typing import Any

import pytest
from weft.explore.errors import ExploreError
from weft.explore.workers import Failure, Workers


@pytest.fixture
def functions(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(Path(__file__).parent / "functions")
    return importlib.import_module("worker_functions")


def test_everything_ends_and_nothing_is_lost(functions: Any) -> None:
    jobs = [("square", 3), ("die", 0), ("refuse", 0), ("break", 0), ("leave", 0), ("hang", 0), *(
        ("square", number) for number in range(10)
    )]  # fmt: skip
    with Workers(functions.work, 2, seconds=8.0) as workers:
        done = {each.number: each.result for each in workers.run(jobs)}
        assert sorted(done) == list(range(len(jobs)))
        assert done[0] == 9
        assert done[1] == Failure("the worker process ended by signal SIGKILL", refused=False)
        assert done[2] == Failure("no room; hint: more", refused=True)
        assert done[3].reason.startswith("KeyError: 'missing' (worker_functions.py:")
        assert done[4] == Failure("the worker process ended with status 3", refused=False)
        assert done[5] == Failure("stopped after 8 s", refused=False)
        assert [done[6 + number] for number in range(10)] == [number**2 for number in range(10)]
        assert [each.result for each in workers.run([("square", 5)])] == [25]  # and they still work


def test_a_worker_that_dies_is_given_another_chance(functions: Any, tmp_path: Path) -> None:
    with Workers(functions.die_once, 1) as workers:
        assert [each.result for each in workers.run([(str(tmp_path / "mark"), 7)])] == [7]


def test_without_processes(functions: Any) -> None:
    with Workers(functions.work, 0) as workers:
        assert [each.result for each in workers.run([("square", 2), ("square", 4)])] == [4, 16]
        (broken,) = workers.run([("break", 0)])
        assert not broken.result.refused


def test_a_negative_number_is_refused() -> None:
    with pytest.raises(ExploreError, match="-1 workers are not possible"):
        Workers(abs, -1)


def test_a_worker_that_begins_takes_no_interruption(functions: Any, capfd: pytest.CaptureFixture[str]) -> None:
    with Workers(functions.work, 1) as workers:
        workers._begin(deque([(0, ("square", 3))]), {})
        os.kill(workers._workers[0].process.pid or 0, signal.SIGINT)  # as Ctrl-C does, while it still imports
        assert [each.result for each in workers.run([])] == [9]
    assert "Traceback" not in capfd.readouterr().err
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())
