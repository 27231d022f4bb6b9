"""Caches of a processor's core, and those that the system says this machine has."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

SYSTEM_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
"""Where Linux has a folder for each cache of the first core."""

UNITS = {"K": 1 << 10, "M": 1 << 20}


@dataclass(frozen=True)
class Cache:
    """A level of caches, as large as one core sees it. ``ways``: lines that rows a multiple of `way_bytes` apart share.
    ``line``: bytes."""

    nbytes: int
    ways: int
    line: int = 64

    @property
    def way_bytes(self) -> int:
        return self.nbytes // self.ways


def system_caches(folder: Path = SYSTEM_CACHES) -> tuple[Cache, Cache] | None:
    """The two levels of data that the system tells of; None where it does not tell all of both, as some virtual
    machines and boards, or tells what no caches are."""
    found: dict[str, Cache] = {}
    for each in sorted(folder.glob("index*")):
        try:
            level, kind = ((each / name).read_text().strip() for name in ("level", "type"))
            if kind != "Instruction":
                found.setdefault(level, _described(each))
        except (OSError, ValueError, KeyError):
            continue
    nearest, second = found.get("1"), found.get("2")
    return (nearest, second) if nearest and second and nearest.nbytes <= second.nbytes else None


def _described(folder: Path) -> Cache:
    """OSError, ValueError or KeyError for what is no cache."""
    size, *others = ((folder / name).read_text().strip() for name in
                     ("size", "ways_of_associativity", "coherency_line_size"))  # fmt: skip
    nbytes, (ways, line) = int(size[:-1]) * UNITS[size[-1:]], map(int, others)
    if min(nbytes, ways, line) < 1 or nbytes % (ways * line):
        raise ValueError(f"{folder} describes no cache")
    return Cache(nbytes, ways, line)
