"""One run at a time, also in a process that was forked; what is loaded stays in its process."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from typing import Any

from .errors import DeviceError

PICKLE_THE_MODEL = "copy or pickle its model, and load that: weft.load(loaded.model)"


def stays_here(hint: str) -> Callable[[object], Any]:
    """The ``__reduce__`` of what is in use in one process: a copy of it, or a pickle, is refused in words."""

    def refuse(loaded: object) -> Any:
        raise DeviceError(f"a {type(loaded).__name__} cannot be copied or pickled: it holds memory and code of this "
                          "process", hint=hint)  # fmt: skip

    return refuse


class RunLock:
    """Held during a run. Other threads wait; a run inside a run of the same thread is refused.

    After a fork, a lock that another thread held refuses for ever: that thread is not in the child, and what it was
    writing stays half written. :class:`DeviceError` says so.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owner = 0
        self._torn = False
        _all.add(self)

    def __enter__(self) -> None:
        thread = threading.get_ident()
        if self._owner == thread:
            raise DeviceError("this thread is in a run of the module already", hint="load the model once more")
        self._lock.acquire()
        if self._torn:
            self._lock.release()
            raise DeviceError(
                "the module was running in another thread when this process was forked",
                hint="load the model in this process, or fork between runs",
            )
        self._owner = thread

    def __exit__(self, *_: object) -> None:
        self._owner = 0
        self._lock.release()

    def _after_fork(self) -> None:
        if self._lock.locked() and self._owner != threading.get_ident():
            self._torn = True
            self._lock = threading.Lock()


_all: weakref.WeakSet[RunLock] = weakref.WeakSet()


def _after_fork() -> None:
    for lock in list(_all):
        lock._after_fork()


os.register_at_fork(after_in_child=_after_fork)
