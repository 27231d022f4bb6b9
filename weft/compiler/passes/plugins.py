"""Passes from outside the package, found through the entry point group ``weft.passes``.

A package that wants to add a pass names it in its ``pyproject.toml``:

    [project.entry-points."weft.passes"]
    conv-relu = "my_package.my_module:conv_relu"
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import EntryPoint

from ...plugins import load_plugin, plugins
from ...shown import with_article
from .manager import Pass, PassError

GROUP = "weft.passes"


def installed_passes() -> dict[str, EntryPoint]:
    """The entry points of all installed passes by name; nothing is imported."""
    return plugins(GROUP)


def load_pass(name: str) -> Pass:
    """The installed pass called ``name``. Raises `PassError` when there is none or it cannot be imported."""
    points = installed_passes()
    if name not in points:
        names = ", ".join(sorted(points)) or "none is installed"
        raise PassError(f"there is no pass {name!r}", hint=f"passes of the entry point group {GROUP!r}: {names}")
    point = points[name]
    loaded = load_plugin(point, "pass", PassError)
    if not isinstance(loaded, Pass):
        raise PassError(f"pass {name!r} ({point.value}) is {with_article(type(loaded).__name__)}, not a Pass",
                        hint="decorate it with @graph_pass(...)")  # fmt: skip
    return loaded


def insert_passes(passes: Sequence[Pass], added: Sequence[Pass]) -> list[Pass]:
    """``passes`` with each of ``added`` right behind the passes that it needs; one that needs none comes first.

    Raises `PassError` when a needed pass is not there.
    """
    result = list(passes)
    for item in added:
        names = [other.name for other in result]
        missing = [need for need in item.needs if need not in names]
        if missing:
            raise PassError(f"pass {item.name!r} needs {missing[0]!r}, which does not run", hint=", ".join(names))
        place = max((names.index(need) + 1 for need in item.needs), default=0)
        result.insert(place, item)
    return result
