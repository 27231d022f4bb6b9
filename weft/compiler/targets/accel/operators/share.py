"""A share of a kernel: the part of its result that one core computes, where several cores compute it together."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Share:
    """The result is cut into ``rows`` parts along the rows of the picture, or of a matrix, and ``groups`` parts along
    its channel groups; all but the last ones are of a size. This is the part with the numbers ``row`` and ``group``.
    There may be no such part: three rows are no four parts.
    """

    rows: int = 1
    groups: int = 1
    row: int = 0
    group: int = 0

    @property
    def parts(self) -> tuple[int, int]:
        """How often each axis is cut."""
        return self.rows, self.groups

    @property
    def is_whole(self) -> bool:
        """Whether there is one part, the whole result."""
        return self.parts == (1, 1)

    @property
    def extents(self) -> tuple[tuple[str, int, int], ...]:
        """Axes that are cut, outermost first, as `schedule.tiling.AXES` names them: into how many parts, and which."""
        axes = ("y", self.rows, self.row), ("cd", self.groups, self.group)
        return tuple((axis, count, number) for axis, count, number in axes if count > 1 or number)

    def of_core(self, core: int) -> Share:
        """The part of a core, of as many as there are parts."""
        return Share(self.rows, self.groups, core // self.groups, core % self.groups)


WHOLE = Share()
