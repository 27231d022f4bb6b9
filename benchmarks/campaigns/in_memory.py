"""Faults planted in modules that are imported already: functions get the code of the changed source.

A process that has imported everything forks for each fault, which takes milliseconds; to import the package anew takes
seconds. What a module does while it is imported cannot be changed afterwards: then nothing is planted.
"""

from __future__ import annotations

import gc
import inspect
from collections.abc import Iterator
from types import CodeType, FunctionType

Pair = tuple[CodeType, CodeType]


def planted(path: str, before: str, after: str) -> bool:
    """Give the functions of the module of a file, whose source is ``before``, the code of ``after``. False, and nothing
    is changed, where more than functions would change."""
    pairs = _changed(*(compile(text, path, "exec", dont_inherit=True) for text in (before, after)))
    if not pairs:
        return False
    nested = {old: new for pair in pairs.items() for old, new in _nested(*pair)}
    functions = [each for each in gc.get_objects() if isinstance(each, FunctionType)]
    changed = [each for each in functions if each.__code__ in pairs or each.__code__ in nested]
    if not {each.__code__ for each in changed} >= pairs.keys():
        return False
    codes = [(each, pairs.get(each.__code__) or nested[each.__code__]) for each in changed]
    if any(code is None for _, code in codes):
        return False
    for function, code in codes:
        if code is not None:
            function.__code__ = code
    return True


def _changed(before: CodeType, after: CodeType) -> dict[CodeType, CodeType] | None:
    """Functions of a module, or of a class, by their former code; None where more than their code changes."""
    olds, news = list(_inner(before)), list(_inner(after))
    if _without_inner(before) != _without_inner(after) or len(olds) != len(news):
        return None
    found: dict[CodeType, CodeType] = {}
    for old, new in zip(olds, news, strict=True):
        if old == new:
            continue
        if old.co_flags & inspect.CO_OPTIMIZED:
            if old.co_freevars != new.co_freevars or old.co_name != new.co_name:
                return None
            found[old] = new
            continue
        inside = _changed(old, new)
        if inside is None:
            return None
        found |= inside
    return found


def _nested(before: CodeType, after: CodeType) -> Iterator[tuple[CodeType, CodeType | None]]:
    """Functions inside of a function, with their new code: some may be there already. None: they have no new one."""
    olds, news = list(_inner(before)), list(_inner(after))
    fit = len(olds) == len(news)
    for place, old in enumerate(olds):
        new = news[place] if fit else None
        if new is not None and (old.co_freevars != new.co_freevars or old.co_name != new.co_name):
            new = None
        if old != new:
            yield old, new
            yield from _nested(old, old if new is None else new)


def _inner(code: CodeType) -> Iterator[CodeType]:
    return (each for each in code.co_consts if isinstance(each, CodeType))


def _without_inner(code: CodeType) -> tuple[object, ...]:
    rest = [each for each in code.co_consts if not isinstance(each, CodeType)]
    return code.co_code, code.co_names, repr(rest)
