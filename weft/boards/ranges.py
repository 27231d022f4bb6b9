"""Ranges of addresses."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, order=True)
class Range:
    """``bytes`` addresses from ``base`` on."""

    base: int
    bytes: int

    @property
    def last(self) -> int:
        """The highest address."""
        return self.base + self.bytes - 1

    def holds(self, other: Range) -> bool:
        return self.base <= other.base and other.last <= self.last

    def overlaps(self, other: Range) -> bool:
        return self.base <= other.last and other.base <= self.last

    def __str__(self) -> str:
        return f"{self.base:#x}..{self.last:#x}"
