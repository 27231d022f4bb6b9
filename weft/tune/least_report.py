"""What a network takes beside the cycles that no program for it can get below, stretch by stretch."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import RenderableType

from ..runtime.profile import Profile
from ..runtime.tables import Column, Record, count, records_table, words
from .least_cycles import LeastCycles


def least_records(least: LeastCycles, measured: Profile) -> list[Record]:
    """For each stretch its layers, the cycles that every program takes for them, and those of this one. Stretches with
    a layer in common, as chains are of their parts, are one record."""
    stretches = [each for program in least.programs for each in program]
    number_of = {name: number for number, each in enumerate(stretches) for name in each.layers}
    cycles = [0] * len(stretches)
    follows = [False] * len(stretches)  # the record of the stretch before
    last = 0
    for item in measured.layers:
        found = [number_of[name] for name in _parts(item.layer.name, number_of)]
        last = found[-1] if found else last  # what only moves bytes counts to the stretch before
        cycles[last] += item.cycles
        for number in range(min(found, default=last), last):
            follows[number + 1] = True
    records: list[Record] = []
    for stretch, taken, joined in zip(stretches, cycles, follows, strict=True):
        if joined:
            before = records.pop()
            layers, limits = before["layers"] + len(stretch.layers), [*before["limits"], stretch.limit]
            records.append(_record(before["first"], stretch.layers[-1], layers, before["least"] + stretch.cycles,
                                   before["cycles"] + taken, limits))  # fmt: skip
        else:
            records.append(_record(stretch.layers[0], stretch.layers[-1], len(stretch.layers), stretch.cycles, taken,
                                   [stretch.limit]))  # fmt: skip
    return records


def _record(first: str, last: str, layers: int, least: float, cycles: int, limits: Sequence[str]) -> Record:
    return {
        "first": first, "last": last, "layers": layers, "limits": list(dict.fromkeys(limits)), "least": round(least),
        "cycles": cycles, "times_the_least": cycles / least if least else None,
    }  # fmt: skip


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
