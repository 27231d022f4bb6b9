"""Reads frozen dataclasses from TOML; every mistake is named with its file and field."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from ..hw.errors import ConfigError
from .errors import BoardError

T = TypeVar("T")

FAMILY = "family"
"""The field that only the files of boards without a processor have."""

_WORDS = {bool: "true or false", int: "an integer", float: "a number", str: "a text"}


def read_toml(path: Path) -> dict[str, Any]:
    """The tables of a file; :class:`BoardError` if it is no TOML, OSError if it cannot be read."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BoardError(f"not TOML: {error}", at=path) from error


def read_fields(kind: type[T], values: object, path: Path, table: str = "") -> T:
    """An object of a dataclass from a table whose keys are the fields' names.

    Fields may be int, float, str, bool, another such dataclass, a dict of integers, a tuple of one of these, or one of
    these or None. What ``__post_init__`` refuses with a :class:`BoardError` or a :class:`~weft.hw.errors.ConfigError`
    comes back with the file and the table as its place.
    """
    if not isinstance(values, Mapping):
        raise BoardError(f"must be a table, not {values!r}", at=_place(path, table))
    assert is_dataclass(kind)
    known = {field.name: field for field in fields(kind)}
    if unknown := sorted(set(values) - set(known)):
        place = _place(path, table, unknown[0])
        raise BoardError("unknown field", at=place, hint=f"known: {', '.join(sorted(known))}")
    hints = get_type_hints(kind)
    found: dict[str, Any] = {}
    for name, field in known.items():
        if name in values:
            found[name] = _value(hints[name], values[name], path, f"{table}.{name}" if table else name)
        elif field.default is MISSING and field.default_factory is MISSING:
            raise BoardError("field is missing", at=_place(path, table, name))
    try:
        return kind(**found)
    except (BoardError, ConfigError) as error:
        raise BoardError(error.message, at=_place(path, table, error.at), hint=error.hint) from None


def _value(kind: Any, value: object, path: Path, name: str) -> Any:
    if isinstance(kind, UnionType):
        (kind,) = (each for each in get_args(kind) if each is not NoneType)
    if is_dataclass(kind):
        return read_fields(kind, value, path, name)  # type: ignore[arg-type]
    if get_origin(kind) is tuple:
        if not isinstance(value, list):
            raise BoardError(f"must be a list, not {value!r}", at=_place(path, name))
        inner = get_args(kind)[0]
        return tuple(_value(inner, each, path, f"{name}[{place}]") for place, each in enumerate(value))
    if get_origin(kind) is dict:
        if not isinstance(value, dict):
            raise BoardError(f"must be a table, not {value!r}", at=_place(path, name))
        inner = get_args(kind)[1]
        return {key: _value(inner, each, path, f"{name}.{key}") for key, each in value.items()}
    whole_number = kind is float and isinstance(value, int)
    if isinstance(value, bool) != (kind is bool) or not (isinstance(value, kind) or whole_number):
        raise BoardError(f"must be {_WORDS[kind]}, not {value!r}", at=_place(path, name))
    return kind(value)


def _place(path: Path, *names: str) -> str:
    return f"{path}: {'.'.join(name for name in names if name)}" if any(names) else str(path)
