"""Places in one memory by liveness: what is not alive at the same time may share bytes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate, chain

import numpy as np

ALIGNMENT = 64
"""Bytes to which everything is aligned: a burst of the widest bus, a line of a cache."""

TRIES = 4
"""Orders that a tight plan makes of each order that it begins with: a plan of thousands takes a second."""


@dataclass(frozen=True)
class Lifetime:
    """A tensor of ``nbytes`` that is written at time ``first`` and read for the last time at ``last``.

    ``reuses``: a tensor of equal size whose bytes this one reuses; both are alive only at the time that writes it.
    Empty if it has a place of its own.
    """

    name: str
    nbytes: int
    first: int
    last: int
    reuses: str = ""


def aligned(nbytes: int, alignment: int = ALIGNMENT) -> int:
    """``nbytes`` rounded up to whole alignment units."""
    return -(-nbytes // alignment) * alignment


def plan_memory(lifetimes: Iterable[Lifetime], start: int, alignment: int = ALIGNMENT) -> tuple[dict[str, int], int]:
    """First-fit places from byte ``start`` on, the largest tensors first; and the end of the region. All of them are
    multiples of ``alignment`` from ``start``."""
    tensors = list(lifetimes)
    owners = place_owners(tensors)
    offsets, end = _first_fit(_largest_first(_places(tensors, owners)), start, alignment)
    return {name: offsets[owner] for name, owner in owners.items()}, end


def plan_tightly(
    lifetimes: Iterable[Lifetime], start: int, tries: int = TRIES, alignment: int = ALIGNMENT
) -> tuple[dict[str, int], int]:
    """As `plan_memory`, in other orders too: what is the largest, takes the most bytes for the longest time, or lives
    the longest comes first, and from each of these on, so many ``tries``, what ended last in the one before."""
    tensors = list(lifetimes)
    owners = place_owners(tensors)
    places = _largest_first(_places(tensors, owners))
    least = start + most_alive(tensors)
    best: tuple[dict[str, int], float] = {}, math.inf
    orders = (sorted(places, key=weight, reverse=True) for weight in (_nbytes, _byte_times, _length))
    for offsets, end in chain.from_iterable(_from_order(order, start, tries, alignment) for order in orders):
        best = min(best, (offsets, end), key=lambda each: each[1])
        if end <= least:
            break
    return {name: best[0][owner] for name, owner in owners.items()}, int(best[1])


def _from_order(order: list[Lifetime], start: int, tries: int, alignment: int) -> Iterator[tuple[dict[str, int], int]]:
    """Places by first fit in this order, and then so often where what ended last comes first."""
    for _ in range(1 + tries):
        offsets, end = _first_fit(order, start, alignment)
        yield offsets, end
        ends = {each.name: offsets[each.name] + aligned(each.nbytes, alignment) for each in order}
        order.sort(key=lambda each: ends[each.name] < end)


def _nbytes(tensor: Lifetime) -> int:
    return tensor.nbytes


def _length(tensor: Lifetime) -> int:
    return tensor.last - tensor.first + 1


def _byte_times(tensor: Lifetime) -> int:
    return tensor.nbytes * _length(tensor)


def _largest_first(places: Iterable[Lifetime]) -> list[Lifetime]:
    return sorted(places, key=lambda each: (-each.nbytes, each.first, each.name))


def _first_fit(tensors: Iterable[Lifetime], start: int, alignment: int) -> tuple[dict[str, int], int]:
    """The lowest place that is free, for one after the other; and the end of the region."""
    order = list(tensors)
    begins, ends, firsts, lasts = np.zeros((4, len(order)), np.int64)  # of what is placed, by its first byte
    offsets: dict[str, int] = {}
    end = start
    for count, tensor in enumerate(order):
        met = (lasts[:count] >= tensor.first) & (firsts[:count] <= tensor.last)
        taken = np.maximum.accumulate(np.append(start, ends[:count][met]))  # up to here, before each that is met
        fits = np.append(taken[:-1] + tensor.nbytes <= begins[:count][met], True)
        offset = int(taken[fits.argmax()])
        behind = offset + aligned(tensor.nbytes, alignment)
        at = int(begins[:count].searchsorted(offset, side="right"))
        for column, value in ((begins, offset), (ends, behind), (firsts, tensor.first), (lasts, tensor.last)):
            column[at + 1 : count + 1] = column[at:count]
            column[at] = value
        offsets[tensor.name] = offset
        end = max(end, behind)
    return offsets, end


def most_alive(lifetimes: Iterable[Lifetime]) -> int:
    """Bytes, in whole alignment units, of what is alive at the worst time: no plan can do with fewer."""
    tensors = list(lifetimes)
    changes: dict[int, int] = {}
    for place in _places(tensors, place_owners(tensors)):
        size = aligned(place.nbytes)
        changes[place.first] = changes.get(place.first, 0) + size
        changes[place.last + 1] = changes.get(place.last + 1, 0) - size
    return max(accumulate(changes[time] for time in sorted(changes)), default=0)


def place_owners(lifetimes: Iterable[Lifetime]) -> dict[str, str]:
    """For each tensor the one that its place was made for: itself, or the first of those written over each other."""
    reused = {tensor.name: tensor.reuses for tensor in lifetimes}
    owners: dict[str, str] = {}
    for name in reused:
        line = [name]
        while (owner := line[-1]) not in owners and reused[owner]:
            line.append(reused[owner])
        owners |= dict.fromkeys(line, owners.get(owner, owner))  # all of the line: each is looked at once
    return owners


def _places(lifetimes: list[Lifetime], owners: dict[str, str]) -> list[Lifetime]:
    """One lifetime for each place: from the first tensor's writing to the last one's end."""
    places: dict[str, Lifetime] = {}
    for tensor in lifetimes:
        owner = owners[tensor.name]
        place = places.get(owner, tensor)
        places[owner] = Lifetime(
            owner, max(place.nbytes, tensor.nbytes), min(place.first, tensor.first), max(place.last, tensor.last)
        )
    return list(places.values())
