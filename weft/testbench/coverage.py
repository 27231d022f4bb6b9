"""Functional coverage: named points, how often each was hit, kept as JSON and added up over tests."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rich.table import Table

from ..cache import locked

Points = Mapping[str, Sequence[str]]
"""Names of the points of each group."""


@dataclass(frozen=True)
class Unreachable:
    """Points that no program reaches: those of ``group`` whose name contains ``part``."""

    group: str
    part: str
    reason: str

    def covers(self, group: str, point: str) -> bool:
        return group == self.group and self.part in point


@dataclass
class Coverage:
    """Hits of each point."""

    points: Points
    hits: Counter[tuple[str, str]] = field(default_factory=Counter)

    def hit(self, group: str, point: str) -> None:
        """Count a hit; a point that is not declared is a mistake of the test."""
        if point not in self.points[group]:
            raise KeyError(f"coverage group {group!r} has no point {point!r}")
        self.hits[group, point] += 1

    def open_points(self, unreachable: Sequence[Unreachable] = ()) -> list[tuple[str, str]]:
        """Points never hit, without those declared unreachable."""
        return [
            (group, point)
            for group, points in self.points.items()
            for point in points
            if not self.hits[group, point] and not any(item.covers(group, point) for item in unreachable)
        ]

    def hit_though_unreachable(self, unreachable: Sequence[Unreachable]) -> list[tuple[str, str]]:
        """Points that were hit and should not have been: the reason given is wrong."""
        return [key for key in self.hits if any(item.covers(*key) for item in unreachable)]

    def merge_into(self, path: Path) -> None:
        """Add the hits to those in a file."""
        with locked(path):
            total = read_hits(path)
            total.update(self.hits)
            groups: dict[str, dict[str, int]] = {}
            for (group, point), count in sorted(total.items()):
                groups.setdefault(group, {})[point] = count
            path.write_text(json.dumps(groups, indent=1))

    def table(self, unreachable: Sequence[Unreachable] = (), *, names: bool = True) -> Table:
        """One line a group: points, hit, unreachable, open and, with ``names``, which points are open."""
        table = Table(title="functional coverage")
        table.add_column("group")
        for column in ("points", "hit", "unreachable", "open", "hits"):
            table.add_column(column, justify="right")
        if names:
            table.add_column("open points", overflow="fold")
        missing = self.open_points(unreachable)
        for group, points in self.points.items():
            left = [point for other, point in missing if other == group]
            hit = sum(1 for point in points if self.hits[group, point])
            excused = len(points) - hit - len(left)
            total = sum(self.hits[group, point] for point in points)
            numbers = (len(points), hit, excused, len(left), total)
            table.add_row(group, *(f"{number:,}" for number in numbers), *([", ".join(left)] if names else []))
        return table


def read_hits(path: Path) -> Counter[tuple[str, str]]:
    """Hits that :meth:`Coverage.merge_into` wrote; none where there is no file."""
    if not path.exists():
        return Counter()
    groups = json.loads(path.read_text())
    return Counter({(group, point): count for group, points in groups.items() for point, count in points.items()})
