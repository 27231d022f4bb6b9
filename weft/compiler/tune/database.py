"""Measured schedules: what each point of a kernel's space costs, in one SQLite file.

A record belongs to a kernel, a machine, a memory and a compiler, each as a text; its point and its features are JSON.
Several processes may write at once. A database that is damaged is set aside under another name, with one line on
stderr: it is neither trusted nor lost. A file that never was one is left alone. A record has a checksum: one that was
changed is passed over, with one line, and measured anew.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...cache import notice
from .errors import TuningError

APPLICATION = 0x77656674
"""SQLite's application id: the letters "weft"."""

MAGIC = b"SQLite format 3\0"
"""How every file of SQLite begins."""

VERSION = 2
"""Of the table."""

PATIENCE_SECONDS = 30.0
"""How long to wait for another process that is writing."""

TABLE = """
CREATE TABLE results (
    kernel TEXT NOT NULL, machine TEXT NOT NULL, memory TEXT NOT NULL, compiler TEXT NOT NULL, point TEXT NOT NULL,
    cost REAL, refusal TEXT NOT NULL, features TEXT NOT NULL, checksum TEXT NOT NULL,
    PRIMARY KEY (kernel, machine, memory, compiler, point)
) STRICT
"""

COLUMNS = "kernel, machine, memory, compiler, point, cost, refusal, features, checksum"

Point = Mapping[str, Any]
"""Values of knobs, by name."""


@dataclass(frozen=True)
class Key:
    """What a cost belongs to: the kernel, the machine that runs it, its memory, and the compiler."""

    kernel: str
    machine: str
    memory: str
    compiler: str


@dataclass(frozen=True)
class Result:
    """A point that was measured. ``cost`` is None where it was refused, for the reason ``refusal``."""

    point: Point
    cost: float | None
    refusal: str
    features: Mapping[str, Any]
    number: int


def point_text(point: Point) -> str:
    """The same text for the same values."""
    return json.dumps(dict(point), sort_keys=True, separators=(",", ":"))


class Database:
    """The file at ``path``, which is made if it is not there; with ``read_only`` it has to be there, and be whole.

    Raises TuningError for a file of another kind or version, and for one that cannot be opened or written.
    """

    def __init__(self, path: str | Path, *, read_only: bool = False) -> None:
        self.path = Path(path)
        self._read_only = read_only
        if read_only and not self.path.exists():
            raise TuningError(f"there is no tuning database {str(self.path)!r}", hint="make it with `weft tune`")
        self._connection = self._open()

    def _open(self) -> sqlite3.Connection:
        was_there = self.path.exists()
        try:
            return self._connect()
        except sqlite3.OperationalError as error:
            if not was_there:
                self._drop_empty()
            raise self._error(error) from error
        except sqlite3.DatabaseError as error:
            if self._read_only:
                raise self._error(error) from error
            with self.path.open("rb") as file:
                if file.read(len(MAGIC)) != MAGIC:
                    raise TuningError(f"{str(self.path)!r} is no tuning database", hint="give another path") from error
            aside = self.path.with_name(f"{self.path.name}.damaged-{time.time_ns():x}")
            self.path.rename(aside)
            notice(f"the tuning database {self.path} is damaged ({error}); "
                   f"it is {aside.name} now, and a new one is begun")  # fmt: skip
        with self._errors():
            return self._connect()

    def _drop_empty(self) -> None:
        """SQLite makes the file before it finds that there is no room for a table in it."""
        with suppress(OSError):
            if self.path.stat().st_size == 0:
                self.path.unlink()

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, timeout=PATIENCE_SECONDS, isolation_level=None)
        try:
            ((found,),) = connection.execute("PRAGMA quick_check(1)")
            if found != "ok":
                raise sqlite3.DatabaseError(found)
            connection.execute("BEGIN" if self._read_only else "BEGIN IMMEDIATE")
            ((application,),) = connection.execute("PRAGMA application_id")
            ((version,),) = connection.execute("PRAGMA user_version")
            ((tables,),) = connection.execute("SELECT count(*) FROM sqlite_master")
            if not tables and not self._read_only:
                connection.execute(f"PRAGMA application_id = {APPLICATION}")
                connection.execute(f"PRAGMA user_version = {VERSION}")
                connection.execute(TABLE)
            elif application != APPLICATION:
                raise TuningError(f"{str(self.path)!r} is a database of another program", hint="give another path")
            elif version != VERSION:
                raise TuningError(
                    f"the tuning database {str(self.path)!r} has version {version}, but this weft knows {VERSION}",
                    hint="give another path: what it holds is measured anew",
                )
            connection.execute("COMMIT")
        except BaseException:
            connection.close()
            raise
        return connection

    def _error(self, error: sqlite3.Error) -> TuningError:
        hints = {
            "database is locked": f"another process holds it for longer than {PATIENCE_SECONDS:.0f} s",
            "database or disk is full": "make room, or give another path",
            "disk I/O error": "the disk may be full, or damaged: make room, or give another path",
            "unable to open database file": "its folder must be there and writable",
        }
        hint = hints.get(str(error), "try another path")
        return TuningError(f"tuning database {str(self.path)!r}: {error}", hint=hint)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise self._error(error) from error

    def add(self, key: Key, point: Point, cost: float | None, *, refusal: str = "",
            features: Mapping[str, Any] | None = None) -> None:  # fmt: skip
        """Keep what a point costs; what was known of it is replaced."""
        number = None if cost is None else float(cost)
        row = (key.kernel, key.machine, key.memory, key.compiler, point_text(point), number, refusal,
               point_text(features or {}))  # fmt: skip
        with self._errors():
            self._connection.execute("INSERT OR REPLACE INTO results VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                                     (*row, _checksum(row)))  # fmt: skip

    def results(self, key: Key) -> list[Result]:
        """All that is known of a key, in the order of the points' texts."""
        rows = self._select("kernel = ? AND machine = ? AND memory = ? AND compiler = ?",
                            (key.kernel, key.machine, key.memory, key.compiler), order="point")  # fmt: skip
        return [result for _, result in rows]

    def best(self, machine: str, memory: str, compiler: str) -> dict[str, Result]:
        """The cheapest point of every kernel that was measured there; of equal ones the first by its text."""
        rows = self._select("cost IS NOT NULL AND machine = ? AND memory = ? AND compiler = ?",
                            (machine, memory, compiler), order="kernel, cost DESC, point DESC")  # fmt: skip
        return {key.kernel: result for key, result in rows}

    def elsewhere(self, key: Key) -> dict[str, list[Result]]:
        """What this compiler's kernels cost other than under ``key``: lists of results, one for each other key."""
        found: dict[str, list[Result]] = {}
        for other, result in self._select("compiler = ?", (key.compiler,), order="kernel, machine, memory, point"):
            if other != key:
                found.setdefault("\n".join((other.kernel, other.machine, other.memory)), []).append(result)
        return found

    def _select(self, condition: str, values: tuple[str, ...], order: str) -> list[tuple[Key, Result]]:
        """Whole records alone."""
        with self._errors():
            rows = self._connection.execute(
                f"SELECT rowid, {COLUMNS} FROM results WHERE {condition} ORDER BY {order}", values
            ).fetchall()
        whole = [row for row in rows if row[-1] == _checksum(row[1:-1])]
        if len(whole) < len(rows):
            notice(f"records of the tuning database {self.path} were changed: {len(rows) - len(whole)} are passed over")
        return [(Key(*row[1:5]), Result(json.loads(row[5]), row[6], row[7], json.loads(row[8]), row[0]))
                for row in whole]  # fmt: skip

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> Database:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _checksum(row: Sequence[Any]) -> str:
    """Of a record's columns but its checksum. A damaged file may hold bytes where texts should be."""
    return hashlib.sha256(json.dumps(row, default=repr).encode()).hexdigest()[:16]
