"""Frozen dataclasses of which a compilation makes very many, made in half of the time.

The ``__init__`` of a frozen dataclass sets every field through ``object.__setattr__``, which looks each name up and is
most of the cost of a small record. :func:`quick_init` writes one that puts the fields where they are kept. All else is
the dataclass's own: its fields stay frozen, its defaults, equality, hash and text are as they were.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, fields
from typing import Any, TypeVar

Record = TypeVar("Record")


def quick_init(record: type[Record]) -> type[Record]:
    """The dataclass with an ``__init__`` that means the same. TypeError where a field has a ``default_factory`` or is
    not given to ``__init__``: such classes are better left alone."""
    own = fields(record)  # type: ignore[arg-type]
    for each in own:
        if not each.init or each.default_factory is not MISSING:
            raise TypeError(f"field {each.name!r} of {record.__name__} is made by the dataclass: leave its __init__")
    parameters = [each.name for each in own if not each.kw_only]
    keywords = [each.name for each in own if each.kw_only]
    places: dict[str, Any] = {}
    lines = []
    if all(_is_slot(record, each.name) for each in own):
        places = {f"_set_{each.name}": getattr(record, each.name).__set__ for each in own}
        lines = [f"_set_{each.name}(self, {each.name})" for each in own]
    else:
        lines = ["places = self.__dict__", *(f"places[{each.name!r}] = {each.name}" for each in own)]
    if hasattr(record, "__post_init__"):
        lines.append("self.__post_init__()")
    declared = ", ".join(["self", *parameters, *(["*", *keywords] if keywords else [])])
    exec("\n    ".join([f"def __init__({declared}):", *lines]), places)
    _take_over(record, places["__init__"])
    return record


def _is_slot(record: type, name: str) -> bool:
    return hasattr(record.__dict__.get(name), "__set__")


def _take_over(record: type, quick: Callable[..., None]) -> None:
    """Put a function in the place of the ``__init__``, with its defaults and annotations."""
    made: Any = record.__init__  # type: ignore[misc]
    function: Any = quick
    function.__defaults__, function.__kwdefaults__ = made.__defaults__, made.__kwdefaults__
    function.__annotations__, function.__qualname__ = made.__annotations__, made.__qualname__
    function.__module__ = record.__module__
    record.__init__ = function  # type: ignore[misc]
