"""Parts of weft that installed packages add, found through entry points (docs/extending.md)."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from .errors import WeftError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


OPERATORS, FRONT_ENDS = "weft.operators", "weft.frontends"
"""Groups of entry points: modules that register operators (`compiler.graph.registry`), and functions that open models
(`compiler.frontends.source`)."""


def plugins(group: str) -> dict[str, EntryPoint]:
    """The entry points of a group, by name; nothing is imported."""
    return dict(_entry_points(group, tuple(map(_changed, sys.path))))


@lru_cache(maxsize=64)
def _entry_points(group: str, folders: tuple[tuple[str, int], ...]) -> dict[str, EntryPoint]:
    """The same, looked for once as long as ``folders``, in which packages are installed, stay as they are: each look
    reads the files of all packages."""
    from importlib.metadata import entry_points  # takes long, and a model in a file needs no plug-in

    return {point.name: point for point in entry_points(group=group)}


def _changed(folder: str) -> tuple[str, int]:
    """A folder of the path, and when a package came to it or left it last."""
    try:
        return folder, os.stat(folder or ".").st_mtime_ns
    except OSError:
        return folder, 0


def load_plugin(
    point: EntryPoint, what: str, raises: type[WeftError], make: Callable[[Any], Any] = lambda part: part
) -> Any:
    """Import what an entry point names and make a part of it. ``raises`` says which one failed, and how: a plug-in may
    fail in any way."""
    try:
        return make(point.load())
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise raises(
            f"{what} {point.name!r} ({point.value}) cannot be loaded: {reason}",
            hint=f"repair or uninstall the package that has this entry point of the group {point.group!r}",
        ) from error
