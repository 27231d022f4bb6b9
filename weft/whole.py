"""Numbers, truth values and names as users hand them in: NumPy's are as good as Python's, but are no `int` or `bool`.

They compare equal to an `int`, so nothing notices them at first; later they become text of another form, or reach code
that asks what they are. So whatever takes counts and sizes from a user makes them Python's at its door.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from numbers import Real
from typing import SupportsIndex

from .errors import WeftError


def whole(value: object) -> int | None:
    """Python's integer for an integer of any kind; None for all else, truth values among it."""
    if type(value) is int:
        return value
    if isinstance(value, bool) or not isinstance(value, SupportsIndex):
        return None
    try:
        return value.__index__()
    except TypeError:  # an array of NumPy has the method, but only one of a single integer has the number
        return None


def truth(value: object) -> bool | None:
    """Python's truth value for one of any kind; None for all else: a text such as "no" would count as true."""
    if type(value) is bool:
        return value
    kind = type(value)
    return bool(value) if kind.__module__ == "numpy" and kind.__name__ in ("bool", "bool_") else None


def whole_tuple(values: object) -> tuple[int, ...] | None:
    """A tuple of Python's integers for any iterable of integers but text; None for all else."""
    if type(values) is tuple and all(type(value) is int for value in values):
        return values
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
        return None
    numbers = [whole(value) for value in values]
    return None if None in numbers else tuple(number for number in numbers if number is not None)


def require_number(value: object, name: str, error: type[WeftError]) -> None:
    """An ``error`` that names what is no number, or is a truth value. NaN is one."""
    if not isinstance(value, Real) or truth(value) is not None:
        raise error(f"{name} is {value!r:.80}, but must be a number")


def require_mapping(value: object, name: str, error: type[WeftError]) -> None:
    """An ``error`` that names what holds no values by name."""
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise error(f"{name} is {value!r:.80}, but must be values by name, such as a dict")


def require_names(value: object, name: str, error: type[WeftError]) -> None:
    """An ``error`` that names what holds no names; a single one, too."""
    if isinstance(value, str) or not isinstance(value, Collection) or not all(isinstance(each, str) for each in value):
        raise error(f"{name} is {value!r:.80}, but must be a list of names")
