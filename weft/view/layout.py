"""Where the boxes of a graph are drawn: rows by the longest way from the inputs, few crossings, short bends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

WIDTH, HEIGHT = 200.0, 46.0
"""Of a box, in pixels."""

ACROSS, DOWN = 26.0, 24.0
"""Between boxes of a row, and between rows."""

LANE = 22.0
"""Room for an edge that passes a row."""

SWEEPS = 8

BOX_WEIGHT = 20
"""How much more than an edge that passes it a box has its way, where they meet in a row."""


@dataclass(frozen=True)
class Layout:
    """``places``: left upper corners of the boxes. ``routes``: of each edge, the points between its two boxes through
    which it goes. ``size``: of the whole."""

    places: tuple[tuple[float, float], ...]
    routes: tuple[tuple[tuple[float, float], ...], ...]
    size: tuple[float, float]


def layout(count: int, edges: Sequence[tuple[int, int]]) -> Layout:
    """Of ``count`` boxes, of which each edge leads from an earlier one to a later one."""
    rows = _rows(count, edges)
    chains, lanes = _chains(count, edges, rows)
    order = _ordered(chains, lanes)
    across = _placed(order, chains, count)
    left = min((across[each] - _width(each, count) / 2 for each in range(len(lanes))), default=0.0)
    right = max((across[each] + _width(each, count) / 2 for each in range(len(lanes))), default=0.0)
    step = HEIGHT + DOWN
    places = tuple((round(across[each] - left - WIDTH / 2, 1), rows[each] * step) for each in range(count))
    routes = tuple(
        tuple((round(across[each] - left, 1), lanes[each] * step + HEIGHT / 2) for each in chain[1:-1])
        for chain in chains
    )
    return Layout(places, routes, (right - left, max(len(order) * step - DOWN, 0.0)))


def _rows(count: int, edges: Sequence[tuple[int, int]]) -> list[int]:
    """By the longest way from the inputs; what reads nothing stands one row above its first reader."""
    rows = [0] * count
    for source, target in sorted(edges):
        rows[target] = max(rows[target], rows[source] + 1)
    read = {target for _, target in edges}
    for box in range(count):
        if box not in read:
            rows[box] = max(0, min((rows[target] - 1 for source, target in edges if source == box), default=rows[box]))
    return rows


def _chains(count: int, edges: Sequence[tuple[int, int]], rows: Sequence[int]) -> tuple[list[list[int]], list[int]]:
    """Each edge as a chain from row to row, through points that are numbered after the boxes; the row of each."""
    lanes = list(rows)
    chains = []
    for source, target in edges:
        between = list(range(len(lanes), len(lanes) + rows[target] - rows[source] - 1))
        lanes += range(rows[source] + 1, rows[target])
        chains.append([source, *between, target])
    return chains, lanes


def _ordered(chains: Sequence[Sequence[int]], lanes: Sequence[int]) -> list[list[int]]:
    """The boxes and points of each row, from left to right: each near the middle of its neighbours."""
    order: list[list[int]] = [[] for _ in range(max(lanes, default=-1) + 1)]
    for each, number in enumerate(lanes):
        order[number].append(each)
    above, below = _neighbours(chains, len(lanes))
    for sweep in range(SWEEPS):
        down = sweep % 2 == 0
        place = {each: float(at) for row in order for at, each in enumerate(row)}
        for row in order if down else reversed(order):
            near = above if down else below
            middle = {each: _mean([place[other] for other in near[each]], place[each]) for each in row}
            row.sort(key=lambda each: middle[each])
            place.update({each: float(at) for at, each in enumerate(row)})
    return order


def _placed(order: Sequence[Sequence[int]], chains: Sequence[Sequence[int]], count: int) -> dict[int, float]:
    """The middle of each box and point: as near to its neighbours as those beside it allow."""
    above, below = _neighbours(chains, 1 + max((each for row in order for each in row), default=-1))
    at: dict[int, float] = {}
    for row in order:
        _spread(row, dict.fromkeys(row, 0.0), at, count)
    for sweep in range(SWEEPS):
        near = above if sweep % 2 == 0 else below
        for row in order if sweep % 2 == 0 else reversed(order):
            _spread(row, {each: _wanted(each, near[each], at, count) for each in row}, at, count)
    return at


def _wanted(each: int, near: Sequence[int], at: Mapping[int, float], count: int) -> float:
    """Where a box or point is straight under or above its neighbours: boxes, if there are any, for that is the way of
    most of the graph."""
    chosen = [other for other in near if other < count] or near
    return _mean([at[other] for other in chosen], at[each])


def _spread(row: Sequence[int], wanted: Mapping[int, float], at: dict[int, float], count: int) -> None:
    """Place a row where it is wanted, without overlaps: groups that meet are moved together."""
    groups: list[tuple[list[int], list[float], float]] = []  # members, their distances from the first, its place
    for each in row:
        members, offsets, start = [each], [0.0], wanted[each]
        while groups:
            others, before, other_start = groups[-1]
            gap = (_width(others[-1], count) + _width(members[0], count)) / 2 + ACROSS / 2
            if other_start + before[-1] + gap <= start:
                break
            groups.pop()
            members, offsets = [*others, *members], [*before, *(before[-1] + gap + offset for offset in offsets)]
            weights = [BOX_WEIGHT if one < count else 1 for one in members]
            places = [wanted[one] - offset for one, offset in zip(members, offsets, strict=True)]
            start = sum(place * weight for place, weight in zip(places, weights, strict=True)) / sum(weights)
        groups.append((members, offsets, start))
    for members, offsets, start in groups:
        for one, offset in zip(members, offsets, strict=True):
            at[one] = start + offset


def _neighbours(chains: Sequence[Sequence[int]], count: int) -> tuple[list[list[int]], list[list[int]]]:
    above: list[list[int]] = [[] for _ in range(count)]
    below: list[list[int]] = [[] for _ in range(count)]
    for chain in chains:
        for one, other in pairwise(chain):
            below[one].append(other)
            above[other].append(one)
    return above, below


def _mean(values: Sequence[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise


def _width(each: int, count: int) -> float:
    return WIDTH if each < count else LANE
