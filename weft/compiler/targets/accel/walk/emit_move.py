"""Instructions that move entries: loads of what a part of the result holds, a copy into its order, and a store.

The loads read entries in the order in which they lie in DRAM, as rows and columns; the vector engine, which narrows
them anyway, brings them into the order of the result; the store is one row.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from .....hw.config import CoreConfig
from .....hw.isa import Load, Scratchpad, Store, VectorOp, VectorTarget
from .....hw.memories import Memory
from ..operators.intrinsics import EmitVector
from ..operators.moves import fill_of_entry
from ..stream.rows import Rows
from ..stream.scratchpads import accumulator_zones
from ..stream.stream import Access, dram_access
from .emit import Emitter
from .emit_nest import Context, NestEmitter
from .fold import NestLoop
from .moved_loads import rectangles

Places = npt.NDArray[np.int64]

_NARROW = EmitVector(VectorOp.ADD, VectorTarget.OUT, immediate=True)


@dataclass(frozen=True)
class Move:
    """``entries``: int32 numbers as in `moves`, as bytes. ``firsts``: of `moves.first_entries`."""

    entries: bytes
    firsts: tuple[int, ...]

    @property
    def digest(self) -> str:
        """The same for equal moves."""
        return hashlib.sha256(self.entries + repr(self.firsts).encode()).hexdigest()

    @property
    def numbers(self) -> Places:
        return np.frombuffer(self.entries, np.int32).astype(np.int64)


@dataclass(frozen=True)
class Walk:
    """A part of a list of places: ``count`` of them from ``first`` on are ``start`` + multiples of the strides.
    ``loops``: extents and strides, outermost first."""

    first: int
    start: int
    loops: tuple[tuple[int, int], ...]

    @property
    def count(self) -> int:
        total = 1
        for extent, _ in self.loops:
            total *= extent
        return total


def walks(places: Places) -> list[Walk]:
    """A list of places, in its order, as few nested walks with strides of 0 or more."""
    found = [Walk(number, start, ()) for number, start in enumerate(places.tolist())]
    while True:
        joined = list(_joined(found))
        if len(joined) == len(found):
            return found
        found = joined


def _joined(found: Sequence[Walk]) -> Iterator[Walk]:
    """Neighbours with equal loops, at equal distances, as one walk with one more loop."""
    place = 0
    while place < len(found):
        first, last = found[place], place + 1
        stride = found[last].start - first.start if last < len(found) else -1
        while (
            stride >= 0 and last < len(found) and found[last].loops == first.loops
            and found[last].start - found[last - 1].start == stride
        ):  # fmt: skip
            last += 1
        if last - place > 1:
            yield Walk(first.first, first.start, ((last - place, stride), *first.loops))
        else:
            yield first
        place = last


def instructions_of(numbers: Places, config: CoreConfig) -> int:
    """About how many instructions a move takes: loads, copies and stores."""
    parts = [numbers[part] for part in parts_of(numbers, config)]
    return sum(2 + len(walks(np.unique(part))) + len(walks(np.unique(part, return_inverse=True)[1])) for part in parts)


def parts_of(numbers: Places, config: CoreConfig) -> list[slice]:
    """Parts of a result, so small that one is loaded while the one before it is stored; their ends are where walks end,
    if they can."""
    zone = accumulator_zones(config).get("load", ((0, config.acc_depth),))[0]
    most = max(1, min(config.out_depth // 4, (zone[1] - zone[0]) // 2))
    whole = 1
    for extent, _ in reversed(walks(numbers[:most])[0].loops):
        if whole * extent > most:
            break
        whole *= extent
    size = most // whole * whole
    return [slice(start, min(start + size, len(numbers))) for start in range(0, len(numbers), size)]


class MoveEmitter(NestEmitter):
    """Appends moves to a stream."""

    def __init__(self, stream: Emitter, layer: int) -> None:
        super().__init__(stream.config, [], stream.levels, {}, layer)
        self._stream = stream
        self._load_zones = accumulator_zones(stream.config).get("load", ())

    def move(self, move: Move, sources: Sequence[int], result: int) -> None:
        """``sources``, ``result``: bytes of the window at which the operands and the result lie."""
        numbers = move.numbers
        for part in parts_of(numbers, self._config):
            context = Context({}, {}, self._stream.tiles, is_thread=False)
            self._move_part(numbers[part], move.firsts, sources, result + part.start * self._config.out_bytes, context)
            self._stream.tiles += 1
        self._stream.add(Rows.of(self._issues))
        self._issues.clear()

    def _move_part(
        self, numbers: Places, firsts: Sequence[int], sources: Sequence[int], result: int, context: Context
    ) -> None:
        wanted, places = np.unique(numbers, return_inverse=True)
        accumulator, out = self._stream.rings[Memory.ACC], self._stream.rings[Memory.OUT]
        loaded = accumulator.take(len(wanted), "moved", self._load_zones)
        narrowed = out.take(len(numbers), "moved")
        fills = int(np.searchsorted(wanted, 0))
        for place, number in enumerate(wanted[:fills].tolist()):
            self._load(loaded + place, context, rows=0, columns=1, pad_top=1, pad_value=fill_of_entry(number))
        index = loaded + fills
        for operand, source in enumerate(sources):
            own = wanted[(wanted >= max(firsts[operand], 0)) & (wanted < firsts[operand + 1])] - firsts[operand]
            for piece in rectangles(own) if len(own) else ():
                self._load(index, context, rows=piece.rows, columns=piece.columns, stride=piece.stride,
                           offset=source + piece.dram * self._config.out_bytes)  # fmt: skip
                index += piece.entries
        for walk in walks(places.astype(np.int64)):
            steps = [1]
            for extent, _ in reversed(walk.loops[1:]):
                steps.insert(0, steps[0] * extent)
            loops = tuple(
                NestLoop(extent, (step, stride, 0)) for (extent, stride), step in zip(walk.loops, steps, strict=False)
            )
            levels = self._fold(loops, False)
            self._emit_vector_nest(
                [narrowed + walk.first, loaded + walk.start], levels, False, 0, {}, context, _NARROW, 0
            )
        offset = self._offset(result)
        store = Store(index=narrowed, offset=offset, rows=1, columns=len(numbers), stride=0)
        self._add(
            store, context, (Access(Memory.OUT, narrowed, (len(numbers),), (1,)),),
            (dram_access(self._config, offset, 1, len(numbers), 0, self._config.out_bytes),),
        )  # fmt: skip
        accumulator.release(loaded)
        out.release(narrowed)

    def _load(self, index: int, context: Context, *, rows: int, columns: int, **fields: Any) -> None:
        fields["offset"] = self._offset(fields.get("offset", 0))
        load = Load(scratchpad=Scratchpad.ACC8, index=index, rows=rows, columns=columns, **fields)
        place = (load.offset, rows, columns, load.stride, self._config.out_bytes)
        read = (dram_access(self._config, *place),) if rows else ()
        self._add(load, context, read, (Access(Memory.ACC, index, (max(rows, 1) * columns,), (1,)),))
