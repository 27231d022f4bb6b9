"""Records and the tables that are made of them: a report is a list of flat dictionaries, printed or written as JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from ..shown import escaped

Record = dict[str, Any]
"""Values that JSON has: text, numbers, None, and lists of these."""


@dataclass(frozen=True)
class Column:
    """A column of a table: the record's ``key``, the heading, and the text of a value. None is shown as "-".

    ``number``: aligned right and never wrapped. ``fold``: words that may need more than one line.
    """

    key: str
    heading: str
    text: Callable[[Any], str] = str
    number: bool = False
    fold: bool = False


def words(key: str, heading: str = "", *, fold: bool = False) -> Column:
    """Text, or a list of texts."""
    return Column(key, heading or key, _listed, fold=fold)


def count(key: str, heading: str = "", *, zero: str = "0") -> Column:
    """A whole number; ``zero`` is what 0 is shown as."""
    return Column(key, heading or key, lambda value: f"{value:,}" if value else zero, number=True)


def share(key: str, heading: str = "") -> Column:
    """A part of 1, shown in percent."""
    return Column(key, heading or key, lambda value: f"{value:.1%}", number=True)


def shape(key: str, heading: str = "") -> Column:
    """Sizes, such as 1x64x56x56."""
    return Column(key, heading or key, lambda value: "x".join(map(str, value)), fold=True)


def records_table(
    title: str, columns: Sequence[Column], records: Iterable[Mapping[str, Any]], totals: Sequence[Record] = ()
) -> Table:
    """A table with a row for each record and, after a line, one for each of ``totals``, in which keys may be absent."""
    table = Table(title=Text(escaped(title)), box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for column in columns:
        table.add_column(
            column.heading, justify="right" if column.number else "left", no_wrap=not column.fold,
            overflow="fold" if column.fold else "ellipsis",
        )  # fmt: skip
    for record in records:
        table.add_row(*(_text(column, record[column.key]) for column in columns))
    if totals:
        table.add_section()
    for total in totals:
        table.add_row(*(_text(column, total[column.key]) if column.key in total else "" for column in columns))
    return table


def total_of(records: Sequence[Mapping[str, Any]], *keys: str) -> Record:
    """The sums of these values; None counts as 0."""
    return {key: sum(record[key] or 0 for record in records) for key in keys}


def _text(column: Column, value: Any) -> Text:
    text = "-" if value is None else value if isinstance(value, str) else column.text(value)
    return Text(escaped(text, keep="\n"))


def _listed(value: Any) -> str:
    return " + ".join(value) if isinstance(value, (list, tuple)) else str(value)
