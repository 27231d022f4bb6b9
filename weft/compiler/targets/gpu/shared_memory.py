"""Where the buffers of a group lie in its shared memory: those that are never needed at once share a place."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ...tensor.evaluate import ITEM_BYTES
from ...tensor.ir import Buffer
from ..memory_plan import Lifetime, plan_tightly

ALIGNMENT = 16
"""Bytes that all places are multiples of."""


@dataclass(frozen=True)
class Placed:
    """A buffer, and the byte where it begins."""

    buffer: Buffer
    offset: int

    @property
    def end(self) -> int:
        return self.offset + _nbytes(self.buffer)


def placed(buffers: Sequence[Buffer], used: Sequence[Iterable[str]], *, apart: bool) -> tuple[Placed, ...]:
    """Places for buffers. ``used``: the names that each of the statements uses that a group does one after the other; a
    buffer is needed from the first of its statements to the last one. ``apart``: each has a place of its own."""
    lives: dict[str, tuple[int, int]] = {}
    for number, names in enumerate(used):
        for name in names:
            lives[name] = lives.get(name, (number, number))[0], number
    always = 0, len(used)
    lifetimes = [
        Lifetime(each.name, _nbytes(each), *(always if apart else lives.get(each.name, always))) for each in buffers
    ]
    offsets, _ = plan_tightly(lifetimes, 0, alignment=ALIGNMENT)
    return tuple(Placed(each, offsets[each.name]) for each in buffers)


def _nbytes(buffer: Buffer) -> int:
    return buffer.size * ITEM_BYTES[buffer.dtype]


def one_memory(places: Sequence[Placed]) -> Mapping[str, frozenset[str]]:
    """By the name of each buffer, those of all that have a byte of its place, and its own."""
    return {
        each.buffer.name: frozenset(
            other.buffer.name for other in places if other.offset < each.end and each.offset < other.end
        )
        for each in places
    }
