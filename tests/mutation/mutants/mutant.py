"""What a fault is."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutant:
    """``old``, which stands exactly once in the file ``path`` of the package, becomes ``new``.

    ``tests``: the files that are run, in this order; if there are none, those that :func:`..runner.suite_of` finds.
    """

    name: str
    path: str
    kind: str
    old: str
    new: str
    tests: tuple[str, ...] = ()
