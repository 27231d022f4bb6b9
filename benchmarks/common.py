"""What all benchmarks share: a readable table, flat records in a JSON file, and how far long work has come."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar

from rich.console import Console
from rich.table import Table
from weft.progress import progress

Case = TypeVar("Case")


@dataclass(frozen=True)
class Record:
    """One measured figure. ``reference`` is what it is to be compared with, where there is such a thing."""

    config: str
    workload: str
    figure: str
    value: float | int | str
    reference: float | int | str | None = None


def machine() -> str:
    """The machine in one line."""
    return f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"


def processor() -> str:
    """The processor's name as the system gives it."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor()


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print rows of text under a title that also names the machine."""
    table = Table(title=f"{title} - {machine()}")
    for place, column in enumerate(columns):
        table.add_column(column, justify="left" if place == 0 else "right", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    width = None if os.isatty(1) else 200
    Console(width=width).print(table)


def each_of(cases: Iterable[Case], name: Callable[[Case], str] = str) -> Iterator[Case]:
    """The cases one after the other; on stderr stands which one is at work, and how many there are."""
    waiting = list(cases)
    if not waiting:
        return
    with progress(f"{len(waiting)} cases") as shown:
        for number, case in enumerate(waiting):
            shown.count(name(case), number, len(waiting))
            yield case


def write_json(path: Path, records: Iterable[Record]) -> None:
    """Write the records as a list of flat objects."""
    path.write_text(json.dumps([asdict(record) for record in records], indent=1) + "\n")
