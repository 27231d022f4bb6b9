"""States of sessions in a core's memory: what one run left there, the next one need not write again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ..compiler.model import CompiledModel, HostStep, Resident, TensorSlot

if TYPE_CHECKING:
    from .device import Device

Array = npt.NDArray[Any]

GAP = 256
"""Bytes between two changes, up to which one write takes both: a write to a board costs more than they do."""


@dataclass(frozen=True)
class Kept:
    """What a session says of its states. ``owner``: stands for their content up to ``position``, whatever is added
    behind; ``axes``: by input, the axis of positions."""

    owner: object
    position: int
    axes: Mapping[str, int]


class Residents:
    """All states of a model that may stay in its window, and what of them is there. ``written``: bytes of them that
    went to the device."""

    def __init__(self, model: CompiledModel) -> None:
        slots = model.core.slots if model.core is not None else {}
        self._places = {
            step.outputs[0]: _Place(step.resident, slots[step.outputs[0]])
            for step in model.steps if isinstance(step, HostStep) and step.resident is not None
        }  # fmt: skip
        self.written = 0

    def forget(self, *names: str) -> None:
        """What is in these slots, or in all, is no session's any more."""
        for name in names or tuple(self._places):
            if name in self._places:
                self._places[name].owner = None

    def takes(self, name: str, kept: Kept | None) -> bool:
        """Whether a session's state can be brought up to date in a slot."""
        place = self._places.get(name)
        return kept is not None and place is not None and kept.axes.get(place.resident.state) == place.resident.axis

    def update(self, device: Device, name: str, values: Mapping[str, Array], kept: Kept) -> None:
        """Let a slot hold the session's state up to its position, and the rows of this run behind the whole state."""
        place = self._places[name]
        changes = list(place.changed(values[place.resident.state], values[place.resident.rows], kept))
        place.owner = None  # until all is there
        for offset, data in changes:
            device.write(offset, data)
            self.written += data.size
        place.owner = kept.owner


class _Place:
    """A slot, what the host thinks that it holds, and up to which position of which session."""

    def __init__(self, resident: Resident, slot: TensorSlot) -> None:
        self.resident, self.slot = resident, slot
        self.owner: object = None
        self._position = 0
        self._image = np.zeros(0, np.int8)
        self._tables = [np.array(table, np.int64) for table in resident.places]

    def changed(self, state: Array, rows: Array, kept: Kept) -> Iterator[tuple[int, Array]]:
        """Offsets in the window, and the bytes that have to be there."""
        axis, room = self.resident.axis, state.shape[self.resident.axis]
        whole = self.owner is not kept.owner
        if whole:
            self._image = np.zeros(self.slot.nbytes, np.int8)
        first = 0 if whole else min(self._position, kept.position)
        lead = (slice(None),) * axis
        there = self._put(state[(*lead, slice(first, kept.position))], first)
        behind = self._put(rows, room)
        self._position = kept.position
        if whole:
            yield self.slot.offset, self._image
            return
        places = np.unique(np.concatenate([there, behind]))
        for run in np.split(places, np.flatnonzero(np.diff(places) > GAP) + 1):
            if run.size:
                yield self.slot.offset + int(run[0]), self._image[run[0] : run[-1] + 1]

    def _put(self, values: Array, first: int) -> npt.NDArray[np.int64]:
        """Write rows, of which ``first`` is the first one's position, into the image; the bytes that they are."""
        total = np.zeros((), np.int64)
        for axis, (table, size) in enumerate(zip(self._tables, values.shape, strict=True)):
            start = first if axis == self.resident.axis else 0
            own = table[start : start + size]
            total = total + own.reshape([-1 if each == axis else 1 for each in range(values.ndim)])
        self._image[total] = values
        return np.asarray(total.reshape(-1))
