"""Attributes that are records: a decision of a pass with named, typed fields, for whoever comes after it.

A record is a frozen dataclass that derives from `Record`; its fields are numbers, texts, truth values and records. In
the text of a graph it stands as ``ChainTiling(groups=2, order="yxc")``, with fields at their default left out, and
`record_of` makes it from that text again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, fields
from importlib import import_module
from typing import Any, ClassVar, get_type_hints

from ...imports import IMPORTS

OWN = ("weft.compiler.targets.accel.link.chain_plan",)
"""Modules that define this package's records, by name, since they import this one. They are imported when a record is
looked for, as modules of operators are."""


class Record:
    """The base of records. A class of this kind is known by its name as soon as it is defined."""

    known: ClassVar[dict[str, type[Record]]] = {}

    def __init_subclass__(cls) -> None:
        other = Record.known.get(cls.__name__)
        if other is not None and (other.__module__, other.__qualname__) != (cls.__module__, cls.__qualname__):
            raise TypeError(f"{other.__module__} and {cls.__module__} have records of one name, {cls.__name__!r}")
        Record.known[cls.__name__] = cls

    @property
    def shown_fields(self) -> Iterator[tuple[str, Any]]:
        """The fields that are not at their default, with their values."""
        for name, each in _fields(type(self)).items():
            value = getattr(self, name)
            if each.default is MISSING or value != each.default:
                yield name, value


def why_no_attribute(value: Record) -> str:
    """Why a record cannot be an attribute: it may change, or a field is not what it is declared as; empty if it can."""
    kind = type(value)
    if "__dataclass_params__" not in vars(kind) or not vars(kind)["__dataclass_params__"].frozen:
        return f"{kind.__name__} is no frozen dataclass"
    return _why_not(kind, {name: getattr(value, name) for name in _fields(kind)})


def record_of(name: str, values: Mapping[str, Any]) -> Record:
    """The record of the class called ``name`` with these fields. Raises ValueError for a class that is not known, and
    for fields that it does not have, that are missing, or of another type; and what the class itself raises."""
    if name not in Record.known:
        with IMPORTS:
            for module in OWN:
                import_module(module)
    kind = Record.known.get(name)
    if kind is None:
        raise ValueError(f"{name!r} is no record that is known here")
    own = _fields(kind)
    unknown = next((field for field in values if field not in own), None)
    if unknown is not None:
        raise ValueError(f"{name} has no field {unknown!r}; its fields are {', '.join(own)}")
    missing = next((field for field, each in own.items() if each.default is MISSING and field not in values), None)
    if missing is not None:
        raise ValueError(f"{name} needs its field {missing!r}")
    reason = _why_not(kind, values)
    if reason:
        raise ValueError(reason)
    return kind(**values)


def _why_not(kind: type[Record], values: Mapping[str, Any]) -> str:
    """The first of these fields whose value is not exactly of the class that it is declared as; empty if all are."""
    declared = _declared(kind)
    for name, value in values.items():
        wanted = declared[name]
        if type(value) is not wanted and not (issubclass(wanted, Record) and isinstance(value, wanted)):
            return f"field {name!r} of {kind.__name__} is {value!r:.80}, but must be of class {wanted.__name__}"
    return ""


def _fields(kind: type[Record]) -> dict[str, Field[Any]]:
    return {each.name: each for each in fields(kind)}  # type: ignore[arg-type]  # every record is a dataclass


def _declared(kind: type[Record]) -> dict[str, type[Any]]:
    hints = get_type_hints(kind)
    return {name: hints[name] for name in _fields(kind)}
