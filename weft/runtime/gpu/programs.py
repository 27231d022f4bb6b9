"""Programs that the users of a device share, by what they are made from."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar
from weakref import WeakValueDictionary

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

KEPT = 8
"""Programs that stay although nobody has them any more, so that who loads a model again does not wait."""


class SharedPrograms(Generic[K, V]):
    """One program for each key: made where nobody has it, kept as long as somebody has it, and the last ``KEPT``."""

    def __init__(self, make: Callable[[K], V]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._all: WeakValueDictionary[K, V] = WeakValueDictionary()
        self._last: dict[K, V] = {}

    def get(self, key: K) -> V:
        """The program; whatever ``make`` raises."""
        with self._lock:
            found = self._all.get(key)
            if found is None:
                found = self._all[key] = self._make(key)
            self._last.pop(key, None)
            self._last[key] = found
            if len(self._last) > KEPT:
                del self._last[next(iter(self._last))]
            return found
