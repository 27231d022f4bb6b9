"""Python's collector of cycles waits while a compilation goes on."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_waits() -> Iterator[None]:
    """No collection starts by itself in this block; afterwards the collector is on or off as it was.

    A compilation makes very many objects that live until its end, hardly any of them in a cycle, and looking through
    them again and again takes a sixth of its time. Blocks of several threads may overlap: a collection then starts
    early at worst.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            if not gc.get_freeze_count():  # what a program has frozen itself stays so
                gc.freeze()
                gc.unfreeze()
            gc.enable()
