"""The file of measured schedules: what goes in comes out, from several processes, and damage is set aside."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from weft.compiler.tune import database as module
from weft.compiler.tune.database import Database, Key
from weft.compiler.tune.errors import TuningError

KEY = Key("kernel", "machine", "memory", "compiler")


def test_the_cheapest_point_of_each_kernel_is_found(tmp_path: Path) -> None:
    other = Key("other", "machine", "memory", "compiler")
    with Database(tmp_path / "t.sqlite") as database:
        database.add(KEY, {"rows": 2}, 30.0)
        database.add(KEY, {"rows": 1}, 20.0, features={"estimate": 1.5})
        database.add(KEY, {"rows": 3}, 20.0)
        database.add(KEY, {"rows": 4}, None, refusal="no room")
        database.add(other, {"rows": 9}, 5.0)
        database.add(Key("kernel", "machine", "slower", "compiler"), {"rows": 7}, 1.0)
        database.add(Key("kernel", "machine", "memory", "older"), {"rows": 8}, 1.0)
        best = database.best("machine", "memory", "compiler")
        assert {kernel: (dict(result.point), result.cost) for kernel, result in best.items()} == {
            "kernel": ({"rows": 1}, 20.0), "other": ({"rows": 9}, 5.0)
        }  # fmt: skip
        assert dict(best["kernel"].features) == {"estimate": 1.5}
        assert [(dict(each.point), each.cost, each.refusal) for each in database.results(KEY)] == [
            ({"rows": 1}, 20.0, ""), ({"rows": 2}, 30.0, ""), ({"rows": 3}, 20.0, ""), ({"rows": 4}, None, "no room")
        ]  # fmt: skip


def test_a_point_is_the_same_in_any_order_of_its_knobs(tmp_path: Path) -> None:
    with Database(tmp_path / "t.sqlite") as database:
        database.add(KEY, {"rows": 1, "columns": 2}, 9.0)
        database.add(KEY, {"columns": 2, "rows": 1}, 8.0)
        assert [each.cost for each in database.results(KEY)] == [8.0]


def test_elsewhere_is_what_this_compiler_measured_of_others(tmp_path: Path) -> None:
    with Database(tmp_path / "t.sqlite") as database:
        database.add(KEY, {"rows": 1}, 1.0)
        database.add(Key("other", "machine", "memory", "compiler"), {"rows": 1}, 2.0)
        database.add(Key("kernel", "wide", "memory", "compiler"), {"rows": 1}, 3.0)
        database.add(Key("kernel", "wide", "memory", "older"), {"rows": 1}, 4.0)
        found = database.elsewhere(KEY)
    assert [[each.cost for each in group] for group in found.values()] == [[3.0], [2.0]]


WRITER = """
import sys
from weft.compiler.tune.database import Database, Key
with Database(sys.argv[1]) as database:
    for number in range(40):
        database.add(Key("kernel", "machine", "memory", "compiler"), {"writer": int(sys.argv[2]), "rows": number}, 1.0)
"""


def test_several_processes_write_at_once(tmp_path: Path) -> None:
    """From the first moment: the file is made by one of them."""
    path = tmp_path / "t.sqlite"
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, str(path), str(number)]) for number in range(4)]
    assert [writer.wait(timeout=120) for writer in writers] == [0] * 4
    with Database(path) as database:
        assert len(database.results(KEY)) == 160


def test_a_writer_that_is_killed_loses_nothing_that_was_added(tmp_path: Path) -> None:
    path = tmp_path / "t.sqlite"
    program = WRITER.replace("1.0)", "1.0)\n        print(number, flush=True)").replace("range(40)", "range(10**6)")
    with subprocess.Popen([sys.executable, "-c", program, str(path), "0"], stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        printed = [int(writer.stdout.readline()) for _ in range(20)]
        writer.kill()
    with Database(path) as database:
        assert {each.point["rows"] for each in database.results(KEY)} >= set(printed)


def test_a_file_that_is_no_database_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_text("this is no database " * 500)
    with pytest.raises(TuningError, match=r"model\.onnx' is no tuning database; hint: give another path"):
        Database(path)
    assert list(tmp_path.iterdir()) == [path]
    assert path.read_text() == "this is no database " * 500


def test_a_damaged_database_is_set_aside(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "t.sqlite"
    with Database(path) as database:
        for number in range(500):
            database.add(KEY, {"rows": number}, 1.0)
    content = bytearray(path.read_bytes())
    content[4096:12288] = b"\xff" * 8192
    path.write_bytes(content)
    before = path.read_bytes()
    with pytest.raises(TuningError, match=r"t\.sqlite"):
        Database(path, read_only=True)
    with Database(path) as database:
        assert database.results(KEY) == []
        database.add(KEY, {"rows": 1}, 2.0)
    (aside,) = tmp_path.glob("t.sqlite.damaged-*")
    assert aside.read_bytes() == before
    assert f"the tuning database {path} is damaged" in capsys.readouterr().err
    with Database(path, read_only=True) as database:
        assert len(database.results(KEY)) == 1


@pytest.mark.parametrize("column", ["cost = 0.5", "point = '{}'", "refusal = 'x'", "features = '[]'", "kernel = 'k'"])
def test_a_record_that_was_changed_is_passed_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], column: str
) -> None:
    path = tmp_path / "t.sqlite"
    with Database(path) as database:
        for number in range(3):
            database.add(KEY, {"tile": number}, 1.0 + number)
        database.add(KEY, {"tile": 3}, None, refusal="too large")
    with sqlite3.connect(path) as connection:
        connection.execute(f"UPDATE results SET {column} WHERE point = '{{\"tile\":1}}'")
    with Database(path) as database:
        everything = [*database.results(KEY), *(each for group in database.elsewhere(KEY).values() for each in group)]
        assert [each.point for each in everything] == [{"tile": 0}, {"tile": 2}, {"tile": 3}]
        assert database.best(KEY.machine, KEY.memory, KEY.compiler)[KEY.kernel].cost == 1.0
        database.add(KEY, {"tile": 1}, 2.0)
        assert sum(each.cost == 2.0 for each in database.results(KEY)) == 1
    assert capsys.readouterr().err.count("records of the tuning database") == 1


def test_a_database_of_another_program_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "bookmarks.sqlite"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE results (x)")
    before = path.read_bytes()
    with pytest.raises(TuningError, match="is a database of another program"):
        Database(path)
    assert path.read_bytes() == before


def test_another_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.sqlite"
    Database(path).close()
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 99")
    with pytest.raises(TuningError, match="has version 99, but this weft knows 2"):
        Database(path)


def test_a_database_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(TuningError, match=r"there is no tuning database '.*t\.sqlite'"):
        Database(tmp_path / "t.sqlite", read_only=True)
    assert not (tmp_path / "t.sqlite").exists()
    with pytest.raises(TuningError, match="unable to open database file"):
        Database(tmp_path / "nowhere" / "t.sqlite")


def test_a_lock_that_stays_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PATIENCE_SECONDS", 0.1)
    path = tmp_path / "t.sqlite"
    with Database(path) as database:
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(TuningError, match="database is locked"):
            database.add(KEY, {"rows": 1}, 1.0)
        other.execute("ROLLBACK")
        other.close()
        database.add(KEY, {"rows": 1}, 1.0)


def test_a_full_disk_is_named(tmp_path: Path) -> None:
    with Database(tmp_path / "t.sqlite") as database:
        database._connection.execute("PRAGMA max_page_count = 4")  # what a full disk does to it

        def fill() -> None:
            for number in range(2000):
                database.add(KEY, {"rows": number}, 1.0)

        with pytest.raises(TuningError, match="database or disk is full"):
            fill()
        assert database.results(KEY)


IN_A_FULL_DISK = """
import resource, sys
from weft.compiler.tune.database import Database
from weft.compiler.tune.errors import TuningError
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
try:
    Database(sys.argv[1])
except TuningError as error:
    print(error)
"""


def test_a_disk_too_full_for_a_database_leaves_none_behind(tmp_path: Path) -> None:
    path = tmp_path / "tuning.sqlite"
    run = subprocess.run([sys.executable, "-c", IN_A_FULL_DISK, str(path)], capture_output=True, text=True, check=True)
    assert "the disk may be full, or damaged: make room, or give another path" in run.stdout
    assert not list(tmp_path.iterdir())
