"""What a network takes beside the cycles that no program for it can get below, stretch by stretch."""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import RenderableType

from ..runtime.profile import Profile
from ..runtime.tables import Column, Record, count, records_table, words
from .least_cycles import LeastCycles, Stretch


@dataclass(frozen=True)
class _Row:
    """Stretches with a measured layer in common, and the numbers of the measured layers in them."""

    stretches: tuple[Stretch, ...]
    items: tuple[int, ...]
    cycles: int

    @property
    def least(self) -> float:
        return sum(each.cycles for each in self.stretches)

    @property
    def times_the_least(self) -> float | None:
        return self.cycles / self.least if self.least else None


def least_records(least: LeastCycles, measured: Profile) -> list[Record]:
    """For each stretch its layers, the cycles that every program takes for them, and those of this one. Stretches with
    a layer in common, as chains are of their parts, are one record."""
    return [
        {
            "first": row.stretches[0].layers[0], "last": row.stretches[-1].layers[-1],
            "layers": sum(len(each.layers) for each in row.stretches),
            "limits": list(dict.fromkeys(each.limit for each in row.stretches)), "least": round(row.least),
            "cycles": row.cycles, "times_the_least": row.times_the_least,
        }
        for row in _rows(least, measured)
    ]  # fmt: skip


def layer_records(least: LeastCycles, measured: Profile) -> list[Record]:
    """For each measured layer how its stretch stands to what no program gets below, and the layers of that stretch."""
    names = [item.layer.name for item in measured.layers]
    found: list[Record] = [{}] * len(names)
    for row in _rows(least, measured):
        for item in row.items:
            found[item] = {"least": round(row.least), "times_the_least": row.times_the_least,
                           "least_of": [names[each] for each in row.items]}  # fmt: skip
    return found


def _rows(least: LeastCycles, measured: Profile) -> list[_Row]:
    stretches = [each for program in least.programs for each in program]
    number_of = {name: number for number, each in enumerate(stretches) for name in each.layers}
    items: list[list[int]] = [[] for _ in stretches]
    follows = [False] * len(stretches)  # the row of the stretch before
    last = 0
    for place, item in enumerate(measured.layers):
        found = [number_of[name] for name in _parts(item.layer.name, number_of)]
        last = found[-1] if found else last  # what only moves bytes counts to the stretch before
        items[last].append(place)
        for number in range(min(found, default=last), last):
            follows[number + 1] = True
    rows: list[_Row] = []
    for stretch, places, joined in zip(stretches, items, follows, strict=True):
        before = rows.pop() if joined else _Row((), (), 0)
        cycles = before.cycles + sum(measured.layers[each].cycles for each in places)
        rows.append(_Row((*before.stretches, stretch), (*before.items, *places), cycles))
    return rows


def _parts(name: str, known: dict[str, int]) -> list[str]:
    """The layers that a layer of a program is made of; the name of a chain joins theirs."""
    if name in known:
        return [name]
    words = name.split("+")
    for stop in range(len(words) - 1, 0, -1):
        if (first := "+".join(words[:stop])) in known:
            return [first, *_parts("+".join(words[stop:]), known)]
    return []


def least_table(least: LeastCycles, measured: Profile) -> RenderableType:
    """:func:`least_records`, and their sum."""
    records = least_records(least, measured)
    columns = [
        words("first", "from"), words("last", "to"), count("layers"), words("limits", "limit", fold=True),
        count("least", "at least"), count("cycles"),
        Column("times_the_least", "of the least", "{:.3f}x".format, number=True),
    ]  # fmt: skip
    total = {
        "first": "whole network", "layers": sum(each["layers"] for each in records), "least": least.cycles,
        "cycles": measured.cycles, "times_the_least": measured.cycles / least.cycles if least.cycles else None,
    }  # fmt: skip
    return records_table("what no tiling, order or chain gets below (cycles)", columns, records, [total])


def least_line(least: LeastCycles, cycles: int) -> str:
    """One sentence on the whole network."""
    return (f"no tiling, order or chain brings this network below {least.cycles:,} cycles: "
            f"the best there is could be at most {1 - least.cycles / cycles:.1%} faster")  # fmt: skip
