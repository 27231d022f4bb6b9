"""Space in the scratchpads: a ring each, so that consecutive tiles and layers take different entries by themselves."""

from __future__ import annotations

from bisect import bisect_left, insort

from .....hw.config import CoreConfig
from .....hw.memories import Memory
from ...errors import ScratchpadFullError

Zone = tuple[int, int]
"""Entries ``start .. stop-1`` of a scratchpad."""


class Ring:
    """Hands out the next free range after the one handed out last; wraps around at the end of the scratchpad.

    Taking always new entries is what lets a load run ahead of the work on the tile before it. A zone of the scratchpad
    goes round by itself. ``turns``: otherwise the first free range is taken, so that consecutive tiles have the same.
    """

    def __init__(self, memory: Memory, depth: int, *, turns: bool = True) -> None:
        self.memory = memory
        self.depth = depth
        self.turns = turns
        self._heads: dict[Zone, int] = {}
        self._live: list[tuple[int, int]] = []  # start and stop, in their order
        self._used = 0
        self.most_live = 0

    def take(self, entries: int, name: str, zones: tuple[Zone, ...] = (), *, leaving: int = 0) -> int:
        """First entry of a range of ``entries`` for buffer ``name``; ScratchpadFullError if there is none.

        The first of the ``zones`` with room is taken, or else the first place anywhere. ``leaving``: entries that will
        be asked for while this range is in use. It leaves a piece of so many free, if it can: else what is asked for
        then finds no room in the zone.
        """
        for zone in (*zones, (0, self.depth)):
            start = self._place(zone, entries, leaving)
            if start is not None:
                break
        else:
            raise ScratchpadFullError(
                f"buffer {name!r} needs {entries} entries in one piece in scratchpad {self.memory!r}, which has "
                f"{self.depth}, {self._used} of them in use",
                hint="use smaller tiles or fewer virtual threads",
            )
        insort(self._live, (start, start + entries))
        if self.turns:
            self._heads[zone] = start + entries
        self._used += entries
        self.most_live = max(self.most_live, self._used)
        return start

    def release(self, start: int) -> None:
        """Give back the range that begins at ``start``."""
        place = bisect_left(self._live, (start, 0))
        begin, stop = self._live.pop(place)
        assert begin == start
        self._used -= stop - begin

    def copy(self) -> Ring:
        """A ring in the same state."""
        ring = Ring(self.memory, self.depth, turns=self.turns)
        ring._heads, ring._live = dict(self._heads), list(self._live)
        ring._used, ring.most_live = self._used, self.most_live
        return ring

    def _place(self, zone: Zone, entries: int, leaving: int) -> int | None:
        """Where in a zone a range goes: None if it has no room."""
        following = self._find(self._heads.get(zone, zone[0]), zone[1], entries)
        if following is None:
            following = self._find(*zone, entries)
        if following is None or not leaving or self._left(zone, following, entries) >= leaving:
            return following
        ends = self._find(*zone, entries), self._find_last(*zone, entries)
        good = (end for end in ends if end is not None and self._left(zone, end, entries) >= leaving)
        return next(good, following)

    def _left(self, zone: Zone, start: int, entries: int) -> int:
        """Entries of the largest piece of a zone that is free beside a range."""
        most, free_from = 0, zone[0]
        for begin, stop in sorted([*self._live, (start, start + entries)]):
            most = max(most, min(begin, zone[1]) - free_from)
            free_from = max(free_from, stop)
        return max(most, zone[1] - free_from)

    def _find_last(self, start: int, end: int, entries: int) -> int | None:
        """The last free place in a zone."""
        for begin, stop in reversed(self._live):
            if begin < end and end - entries < stop:
                end = begin
        return end - entries if end - entries >= start else None

    def _find(self, start: int, end: int, entries: int) -> int | None:
        """The first free place from ``start`` on."""
        for begin, stop in self._live:
            if begin < start + entries and start < stop:
                start = stop
        return start if start + entries <= end else None


def accumulator_zones(config: CoreConfig, *, in_turn: bool = False, array: bool = True) -> dict[str, tuple[Zone, ...]]:
    """Where buffers of the accumulator should lie, by what fills them: matrix, load, parameters or vector instructions.

    A bank serves one read and one write a cycle, and matrix products write in every cycle. So their tiles have banks
    of their own; what streams in has others, and parameters lie apart from the data that is read together with them.
    ``in_turn``: for a kernel of the array and one of the vector engine at the same time. ``array``: whether it has
    products at all; else what streams in has the banks of their tiles, too.
    """
    if config.acc_banks == 1:
        return {}
    bank = config.acc_depth // config.acc_banks
    last = config.acc_depth - bank
    half = config.acc_depth // 2
    rest: Zone = (0, last)
    if in_turn and has_zones_in_turn(config):
        # Results of the array are narrowed at once; it is the vector engine that needs room for data.
        behind: Zone = (bank, last)
        return {
            "matrix": ((0, bank), rest),
            "load": (behind, rest),
            "parameters": ((last, config.acc_depth),),
            "vector": ((last, config.acc_depth), behind),
        }
    return {
        "matrix": ((0, half), rest),
        "load": ((half, last), rest) if array else (rest,),
        "parameters": ((last, config.acc_depth),),
        "vector": ((last, config.acc_depth), (half, config.acc_depth)),
    }


def has_zones_in_turn(config: CoreConfig) -> bool:
    """Whether the accumulator has banks enough for two kernels at the same time to keep out of each other's way."""
    return config.acc_banks >= 4
