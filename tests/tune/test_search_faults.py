"""The search when something fails: settings that break the compiler, a full disk, a database that another process
holds, a process that is killed. And when there is little to gain: it ends."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from weft.compiler.targets.accel.link.alone import Program
from weft.compiler.targets.accel.link.tuned import Setting
from weft.compiler.targets.accel.schedule.tiling import Tiling
from weft.compiler.tune.database import Database
from weft.compiler.tune.errors import TuningError
from weft.hw.config import TINY
from weft.hw.dram_rate import USUAL_RATE
from weft.tune.ranking import choose_ranking
from weft.tune.search import BATCH, BROKE, Outcome, search
from weft.tune.task import Bounded, Point, RefusedError, Task

POINTS = 60
KILLED_AFTER = 13


def tiling(rows: int) -> Tiling:
    return Tiling(1, rows, 1, 1, "cyx", 1, 1, 1)


@dataclass(frozen=True)
class Fake(Task):
    """Settings by rows: 1 is the default and takes 1000 cycles, of the others the ``best`` takes ``least`` and 7 breaks
    the compiler where ``breaks`` says so. ``least``: also the bound."""

    best: int = 50
    least: float = 900.0
    breaks: bool = False
    killed_after: int = 0

    in_sum = True

    @property
    def text(self) -> str:
        return self.name

    def settings(self) -> Iterator[Setting]:
        yield Setting(tiling(1))

    def space(self) -> Iterator[Point]:
        return (Point(Setting(tiling(rows)), float(rows)) for rows in range(1, POINTS + 1))

    def regions(self) -> Iterator[Bounded]:
        return ((0.0, point.setting) for point in self.space())

    def estimate(self, setting: Setting) -> float:
        return 1.0

    def program(self, setting: Setting) -> Program:
        raise NotImplementedError

    def features_of(self, point: Point) -> Mapping[str, float]:
        return {"estimate": point.estimate}

    @property
    def bound(self) -> float:
        return self.least * 0.5

    def cycles(self, setting: Setting) -> int:
        assert setting.tiling is not None
        rows = setting.tiling.rows
        calls.append((self.name, rows))
        if len(calls) == self.killed_after:
            os.kill(os.getpid(), signal.SIGKILL)
        if self.breaks and rows == 7:
            return [1000][rows]
        if rows == 9:
            raise RefusedError("no room")
        return int(self.least) if rows == self.best else 1000 + rows % 3 if rows > 1 else 1000


calls: list[tuple[str, int]] = []


@pytest.fixture(autouse=True)
def _no_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """And nothing is learned, which would take most of the time."""
    calls.clear()
    by_estimate = choose_ranking([], 0)
    monkeypatch.setattr("weft.tune.search.choose_ranking", lambda groups, seed: by_estimate)


def fakes(**how: object) -> list[Fake]:
    return [replace(Fake(name, TINY, USUAL_RATE, 2, 1), **how) for name in ("a", "b", "c", "d")]  # type: ignore[arg-type]


def costs(outcome: Outcome) -> list[tuple[dict[str, float], dict[str, str]]]:
    return [(dict(state.costs), dict(state.refused)) for state in outcome.states]


def test_a_setting_that_breaks_the_compiler_is_kept_and_passed_over(tmp_path: Path) -> None:
    """Found by measuring all; the best is found all the same, and the next run does not ask again."""
    with Database(tmp_path / "t.sqlite") as database:
        found = search(fakes(breaks=True), database, trials=POINTS, thorough=True)
        for state in found.states:
            assert state.best == 900
            assert len(state.costs) + len(state.refused) == POINTS
            (reason,) = state.broke.values()
            assert reason.startswith(f"{BROKE}IndexError: list index out of range (test_search_faults.py:")
            assert sorted(state.refused.values()) == ["no room", reason]
        count = len(calls)
        again = search(fakes(breaks=True), database, trials=POINTS, thorough=True)
    assert len(calls) == count
    assert [state.broke for state in again.states] == [state.broke for state in found.states]


def test_a_search_without_prospects_ends_and_says_so(tmp_path: Path) -> None:
    """After the kernels that make up half of what is above the bounds: none of them gained anything."""
    with Database(tmp_path / "t.sqlite") as database:
        found = search(fakes(best=0), database, trials=POINTS)
    assert found.little
    assert sum(state.measured for state in found.states) <= len(found.states) + 2 * BATCH
    with Database(tmp_path / "t.sqlite") as database:
        whole = search(fakes(best=0), database, trials=POINTS, thorough=True)
    assert not whole.little
    assert all(state.finished == "every point is measured" for state in whole.states)


@pytest.mark.parametrize(("least", "ends"), [(500, False), (980, False), (999, True)])
def test_a_search_that_gains_goes_on(least: float, ends: bool, tmp_path: Path) -> None:
    """The best is what the estimate likes most; at least one per cent is worth going on for."""
    with Database(tmp_path / "t.sqlite") as database:
        found = search(fakes(best=2, least=least), database, trials=20)
    assert found.little == ends
    assert (sum(state.measured for state in found.states) == 80) != ends


@pytest.mark.parametrize("fault", ["full", "locked"])
def test_a_database_that_cannot_be_written_loses_nothing(
    fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was measured before is there, and the same search goes on as if nothing had been. Locked: by a process of
    its own."""
    monkeypatch.setattr("weft.compiler.tune.database.PATIENCE_SECONDS", 0.2)
    path, measured = tmp_path / "cut.sqlite", Fake.cycles
    holder: list[subprocess.Popen[str]] = []

    def spoiled(task: Fake, setting: Setting) -> int:
        if len(calls) == KILLED_AFTER and fault == "full":
            database._connection.execute("PRAGMA max_page_count = 1")  # what a full disk does to it
        if len(calls) == KILLED_AFTER and fault == "locked":
            code = ("import sqlite3, sys; c = sqlite3.connect(sys.argv[1], isolation_level=None); "
                    "c.execute('BEGIN IMMEDIATE'); print('held', flush=True); sys.stdin.read()")  # fmt: skip
            holder.append(subprocess.Popen([sys.executable, "-c", code, str(path)], stdin=subprocess.PIPE,
                                           stdout=subprocess.PIPE, text=True))  # fmt: skip
            assert holder[0].stdout is not None
            assert holder[0].stdout.readline() == "held\n"
        return measured(task, setting)

    monkeypatch.setattr(Fake, "cycles", spoiled)
    try:
        with Database(path) as database, pytest.raises(TuningError, match=rf"database (or disk )?is {fault}; hint"):
            search(fakes(), database, trials=12, thorough=True)
    finally:
        for process in holder:
            process.communicate()
    monkeypatch.setattr(Fake, "cycles", measured)
    known, total = set(calls[:KILLED_AFTER]), len(calls)
    with Database(path) as database:
        kept = sum(len(database.results(task.key)) for task in fakes())
        rest = search(fakes(), database, trials=12, thorough=True)
    assert kept >= KILLED_AFTER
    assert not known & set(calls[total:])
    assert sum(state.measured for state in rest.states) == 12 * 4


def test_a_killed_process_loses_nothing(tmp_path: Path) -> None:
    """By a signal that cannot be caught, in the middle of a measurement."""
    path = tmp_path / "t.sqlite"
    code = (
        "import sys, importlib.util as u; s = u.spec_from_file_location('weft_faults', sys.argv[1]); "
        "m = u.module_from_spec(s); sys.modules['weft_faults'] = m; s.loader.exec_module(m); "
        "m.search(m.fakes(killed_after=m.KILLED_AFTER), m.Database(sys.argv[2]), trials=12, thorough=True)"
    )
    done = subprocess.run([sys.executable, "-c", code, __file__, str(path)], check=False, timeout=300)
    assert done.returncode == -signal.SIGKILL
    with sqlite3.connect(path) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    with Database(path) as database:
        assert sum(len(database.results(task.key)) for task in fakes()) == KILLED_AFTER - 1
        rest = search(fakes(), database, trials=12, thorough=True)
    assert sum(state.measured for state in rest.states) == 12 * 4
