"""Where the buffers of a group lie in its shared memory: those that are never needed at once share a place."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ...tensor.evaluate import ITEM_BYTES
from ...tensor.ir import Buffer

ALIGNMENT = 16
"""Bytes that all places are multiples of."""


@dataclass(frozen=True)
class Placed:
    """A buffer, and the byte where it begins."""

    buffer: Buffer
    offset: int

    @property
    def end(self) -> int:
        return self.offset + self.buffer.size * ITEM_BYTES[self.buffer.dtype]


def placed(buffers: Sequence[Buffer], used: Sequence[Iterable[str]], *, apart: bool) -> tuple[Placed, ...]:
    """Places for buffers. ``used``: the names that each of the statements uses that a group does one after the other; a
    buffer is needed from the first of its statements to the last one. ``apart``: each has a place of its own."""
    lives: dict[str, tuple[int, int]] = {}
    for number, names in enumerate(used):
        for name in names:
            lives[name] = lives.get(name, (number, number))[0], number

    def meet(one: Buffer, other: Buffer) -> bool:
        if apart or one.name not in lives or other.name not in lives:
            return True
        (first, last), (begin, end) = lives[one.name], lives[other.name]
        return first <= end and begin <= last

    done: dict[Buffer, Placed] = {}
    for buffer in sorted(buffers, key=lambda each: -each.size * ITEM_BYTES[each.dtype]):
        nbytes = buffer.size * ITEM_BYTES[buffer.dtype]
        offset = 0
        for other in sorted(done.values(), key=lambda each: each.offset):
            if meet(buffer, other.buffer) and offset + nbytes > other.offset and other.end > offset:
                offset = -(-other.end // ALIGNMENT) * ALIGNMENT
        done[buffer] = Placed(buffer, offset)
    return tuple(done[buffer] for buffer in buffers)


def one_memory(places: Sequence[Placed]) -> Mapping[str, frozenset[str]]:
    """By the name of each buffer, those of all that have a byte of its place, and its own."""
    return {
        each.buffer.name: frozenset(
            other.buffer.name for other in places if other.offset < each.end and each.offset < other.end
        )
        for each in places
    }
