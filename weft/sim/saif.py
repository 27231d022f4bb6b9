"""Switching activity (SAIF 2.0) of a waveform: for every bit of every net how long it was 0 and 1, and how often it
changed. Power tools of ASIC flows (OpenSTA's ``read_saif``, PrimePower, Joules) read it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from ..files import write_atomically

_INDEX = re.compile(r" *\[\d+(?::\d+)?\]$")
_SPECIAL = re.compile(r"([^\w])")


@dataclass
class Activity:
    """A net of ``width`` bits, as far as its waveform has been read. Times are in units of the waveform."""

    width: int
    value: int = 0
    known: bool = False
    since: list[int] = field(default_factory=list)
    high: list[int] = field(default_factory=list)
    changes: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.since, self.high, self.changes = ([0] * self.width for _ in range(3))

    def becomes(self, value: int, now: int) -> None:
        """The first value of all is no change."""
        changed = self.value ^ value
        while changed:
            bit = changed.bit_length() - 1
            changed ^= 1 << bit
            if value >> bit & 1:
                self.since[bit] = now
            else:
                self.high[bit] += now - self.since[bit]
            self.changes[bit] += self.known
        self.value, self.known = value, True

    def times_high(self, end: int) -> list[int]:
        """Of each bit, up to the end of the waveform."""
        return [high + (end - since if self.value >> bit & 1 else 0)
                for bit, (high, since) in enumerate(zip(self.high, self.since, strict=True))]  # fmt: skip


@dataclass
class Scope:
    """An instance: its nets by name, each with the waveform's code for it, and the instances in it."""

    name: str
    nets: dict[str, str] = field(default_factory=dict)
    inside: list[Scope] = field(default_factory=list)


def write_saif(waveform: Path, target: Path) -> None:
    """Write the activity over all of a VCD file that Verilator made (two states: nothing is ever unknown)."""
    with waveform.open() as lines:
        top, activities, scale = _head(lines)
        first, last = _values(lines, activities)
    text = [
        '(SAIFILE\n(SAIFVERSION "2.0")\n(DIRECTION "backward")\n(DESIGN )\n(PROGRAM_NAME "weft")\n(DIVIDER / )',
        f"(TIMESCALE {scale})\n(DURATION {last - first})",
        *(line for scope in top.inside for line in _instance(scope, activities, first, last)),
        ")\n",
    ]
    write_atomically(target, "\n".join(text).encode())


def _head(lines: Iterable[str]) -> tuple[Scope, dict[str, Activity], str]:
    path, activities, scale = [Scope("")], dict[str, Activity](), "1 ns"
    for line in lines:
        words = line.split()
        if not words:
            continue
        if words[0] == "$timescale":
            scale = " ".join(re.findall(r"\d+|[munpf]?s", words[1]))
        elif words[0] == "$scope":
            path[-1].inside.append(Scope(words[2]))
            path.append(path[-1].inside[-1])
        elif words[0] == "$upscope":
            path.pop()
        elif words[0] == "$var":
            width, code = int(words[2]), words[3]
            path[-1].nets[_INDEX.sub("", " ".join(words[4:-1]) if width > 1 else words[4])] = code
            activities.setdefault(code, Activity(width))
        elif words[0] == "$enddefinitions":
            break
    return path[0], activities, scale


def _values(lines: Iterable[str], activities: dict[str, Activity]) -> tuple[int, int]:
    """Read all changes; the first and the last time."""
    now, first = 0, None
    for line in lines:
        if line[0] == "#":
            now = int(line[1:])
            first = now if first is None else first
        elif line[0] == "b":
            value, code = line[1:].split()
            activities[code].becomes(int(value, 2), now)
        elif line[0] in "01":
            activities[line[1:].rstrip("\n")].becomes(int(line[0]), now)
    return first or 0, now


def _instance(scope: Scope, activities: dict[str, Activity], first: int, last: int) -> Iterator[str]:
    yield f"(INSTANCE {_escaped(scope.name)}"
    if scope.nets:
        yield "(NET"
        for name, code in scope.nets.items():
            activity = activities[code]
            for bit, high in enumerate(activity.times_high(last)):
                bit_name = _escaped(name if activity.width == 1 else f"{name}[{bit}]")
                yield f"({bit_name} (T0 {last - first - high}) (T1 {high}) (TX 0) (TC {activity.changes[bit]}) (IG 0))"
        yield ")"
    for each in scope.inside:
        yield from _instance(each, activities, first, last)
    yield ")"


def _escaped(name: str) -> str:
    return _SPECIAL.sub(r"\\\1", name)
