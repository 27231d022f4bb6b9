"""Parts of weft that installed packages add, found through entry points (docs/extending.md)."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import lru_cache
from importlib.machinery import PathFinder
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .errors import WeftError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


OPERATORS, FRONT_ENDS = "weft.operators", "weft.frontends"
"""Groups of entry points: modules that register operators (`compiler.graph.registry`), and functions that open models
(`compiler.frontends.source`)."""

OF_OURS = b"[weft."
"""Begins the groups in the files of packages."""


def plugins(group: str) -> dict[str, EntryPoint]:
    """The entry points of a group, by name; nothing is imported."""
    return dict(_entry_points(group, tuple(map(_changed, sys.path))))


@lru_cache(maxsize=64)
def _entry_points(group: str, folders: tuple[tuple[str, int], ...]) -> dict[str, EntryPoint]:
    """The same, looked for once as long as ``folders``, in which packages are installed, stay as they are: each look
    reads the files of all packages."""
    if not _may_add_parts(folders):
        return {}
    from importlib.metadata import entry_points  # takes long, and few have a plug-in

    return {point.name: point for point in entry_points(group=group)}


@lru_cache(maxsize=8)
def _may_add_parts(folders: tuple[tuple[str, int], ...]) -> bool:
    """Whether a package in ``folders`` has entry points of weft's; true as well where packages may be elsewhere."""
    if any(hasattr(finder, "find_distributions") and finder is not PathFinder for finder in sys.meta_path):
        return True
    for folder, _ in folders:
        try:
            names = os.listdir(folder or ".")
        except NotADirectoryError:  # an archive
            return True
        except OSError:
            continue
        if folder.endswith(".egg"):
            return True
        for name in names:
            if not name.lower().endswith((".dist-info", ".egg-info")):
                continue
            try:
                content = Path(folder, name, "entry_points.txt").read_bytes()
            except OSError:
                continue
            if OF_OURS in content:
                return True
    return False


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
