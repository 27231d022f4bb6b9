"""Threads that share the work of a model's functions on the board's processor.

The model's libraries hold the code of the workers (``weft_work``), of whoever gives them a job (``weft_run``) and of
their end (``weft_stop``): ``compiler/targets/cpu/llvm/threads.py``. Python only makes the threads; while they are in
that code they do not hold its lock.
"""

from __future__ import annotations

import ctypes
import os
import threading
import weakref
from typing import Any

import numpy as np
import numpy.typing as npt

from .errors import LinkError

Bytes = npt.NDArray[np.uint8]


def address_of(library: ctypes.CDLL, symbol: str) -> int:
    """Where a function is; LinkError if the library has none of this name."""
    try:
        return ctypes.cast(getattr(library, symbol), ctypes.c_void_p).value or 0
    except AttributeError:
        raise LinkError("code", f"the model's machine code has no function {symbol!r}") from None


class Team:
    """So many threads, the caller's among them; ``memory`` is zeroed bytes for their use. The others end with it."""

    def __init__(self, library: ctypes.CDLL, threads: int, memory: Bytes) -> None:
        self._memory = memory
        self._run = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 4, ctypes.c_int64)(address_of(library, "weft_run"))
        work = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(address_of(library, "weft_work"))
        stop = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(address_of(library, "weft_stop"))

        def serve(thread: int) -> None:
            work(memory.ctypes.data, thread)

        workers = [threading.Thread(target=serve, args=(number,), daemon=True) for number in range(1, threads)]
        for worker in workers:
            worker.start()
        self.end = weakref.finalize(self, _end, os.getpid(), stop, memory, workers)

    def run(self, function: int, table: int, counters: Bytes) -> None:
        """Run a function on all threads; its counters are zeroed first."""
        self._run(self._memory.ctypes.data, function, table, counters.ctypes.data, counters.nbytes)


def _end(process: int, stop: Any, memory: Bytes, workers: list[threading.Thread]) -> None:
    """Not in a child that was forked: it has none of the workers, and what one had locked stays locked."""
    if os.getpid() != process:
        return
    stop(memory.ctypes.data)
    for worker in workers:
        worker.join()
