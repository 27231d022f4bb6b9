"""Space in the scratchpads: a ring each, so that consecutive tiles and layers take different entries by themselves."""

from __future__ import annotations

from ..errors import ScratchpadFullError


class Ring:
    """Hands out the next free range after the one handed out last; wraps around at the end of the scratchpad.

    Taking always new entries is what lets a load run ahead of the work on the tile before it.
    """

    def __init__(self, scope: str, depth: int) -> None:
        self.scope = scope
        self.depth = depth
        self.head = 0
        self._live: dict[int, int] = {}  # start -> stop
        self.most_live = 0

    def take(self, entries: int, name: str) -> int:
        """First entry of a range of ``entries`` for buffer ``name``; ScratchpadFullError if there is none."""
        start = self._find(self.head, entries)
        if start is None:
            start = self._find(0, entries)
        if start is None:
            used = sum(stop - begin for begin, stop in self._live.items())
            raise ScratchpadFullError(
                f"buffer {name!r} needs {entries} entries in one piece in scratchpad {self.scope!r}, which has "
                f"{self.depth}, {used} of them in use",
                hint="use smaller tiles or fewer virtual threads",
            )
        self._live[start] = start + entries
        self.head = start + entries
        self.most_live = max(self.most_live, sum(stop - begin for begin, stop in self._live.items()))
        return start

    def release(self, start: int) -> None:
        """Give back the range that begins at ``start``."""
        del self._live[start]

    def _find(self, start: int, entries: int) -> int | None:
        for begin, stop in sorted(self._live.items()):
            if begin < start + entries and start < stop:
                start = stop
        return start if start + entries <= self.depth else None
