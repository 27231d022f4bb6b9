"""Boards by name: all files of one kind in a folder, and the folder of the user's own."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol, TypeVar

from .errors import BoardError
from .table import read_fields, read_toml

FOLDER_VARIABLE = "WEFT_BOARDS"
"""Environment variable that names a folder with a user's own boards; they come before those of weft."""


class Named(Protocol):
    @property
    def name(self) -> str: ...


T = TypeVar("T")
B = TypeVar("B", bound=Named)


def own_folder() -> Path | None:
    """The folder that ``WEFT_BOARDS`` names, if it is set; :class:`BoardError` if it is none."""
    own = os.environ.get(FOLDER_VARIABLE)
    if own and not Path(own).is_dir():
        raise BoardError(f"{FOLDER_VARIABLE} names no folder: {own}")
    return Path(own) if own else None


def boards_in(folder: Path, kind: type[B], of_kind: Callable[[dict[str, Any]], bool]) -> dict[str, B]:
    """The boards of one kind that a folder's ``.toml`` files describe, by name."""
    boards: dict[str, B] = {}
    for path in sorted(folder.glob("*.toml")):
        values = read_toml(path)
        if not of_kind(values):
            continue
        board = read_fields(kind, values, path)
        if board.name in boards:
            raise BoardError(f"a second board is called {board.name!r}", at=f"{path}: name")
        boards[board.name] = board
    return boards


def named_board(name: str, boards: Mapping[str, T]) -> T:
    """One of them; :class:`BoardError` lists the known names."""
    if name not in boards:
        hint = f"known: {', '.join(boards)}; or a .toml file (docs/boards.md)"
        raise BoardError(f"unknown board {name!r}", hint=hint)
    return boards[name]
