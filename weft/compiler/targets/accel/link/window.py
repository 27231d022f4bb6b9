"""The DMA window of a model: constants at its beginning, tensors by liveness, programs at its end."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import numpy as np

from ....graph.ir import Array, Call, Constant, Expr, TensorType
from ....model import ConstantSegment, TensorSlot
from ...memory_plan import Lifetime, aligned, plan_memory
from .phases import Phase, is_packed_concat, is_packed_renaming


@dataclass
class DmaWindow:
    """Grows while a model is linked; ``end`` is its size so far, in bytes."""

    slots: dict[str, TensorSlot] = field(default_factory=dict)
    constants: dict[str, ConstantSegment] = field(default_factory=dict)  # by digest of the bytes
    end: int = 0
    _placed: dict[int, tuple[Array, ConstantSegment]] = field(default_factory=dict, repr=False)  # by identity

    def constant(self, value: Array) -> ConstantSegment:
        """The place of a constant; equal bytes are stored once."""
        if id(value) in self._placed:
            return self._placed[id(value)][1]
        whole = np.ascontiguousarray(value)
        digest = hashlib.sha256(whole.reshape(-1).view(np.uint8).data).hexdigest()
        if digest not in self.constants:
            data = np.frombuffer(whole.tobytes(), np.uint8)
            self.constants[digest] = ConstantSegment(f"constant{len(self.constants)}", self.allocate(data.nbytes), data)
        segment = self.constants[digest]
        if not value.flags.writeable:  # a kernel's constants are asked for again and again
            self._placed[id(value)] = value, segment
        return segment

    def allocate(self, nbytes: int) -> int:
        """The offset of bytes of their own."""
        offset = self.end
        self.end += aligned(nbytes)
        return offset

    def plan_tensors(
        self, phases: Sequence[Phase], names: Mapping[Expr, str], read_by: Callable[[Call], Sequence[Expr]], *,
        reuse: bool, at_once: Mapping[Call, int] = MappingProxyType({}),
    ) -> None:  # fmt: skip
        """Give every tensor that the core reads or writes its place. With ``reuse`` those that are not alive at the
        same time share bytes, but for states, which stay. ``read_by``: what a call reads in memory. ``at_once``: of
        calls that run at the same time, one after the other in their phase, a number of theirs."""
        states = {names[phase.calls[-1]] for phase in phases if phase.state is not None}
        start_of_phase: list[int] = []
        on_core: dict[str, tuple[int, TensorType]] = {}  # when first used by the core, and its type
        made_on_core: set[str] = set()
        last_use: dict[str, int] = {}
        time = 0
        for phase in phases:
            start_of_phase.append(time)
            for node, after in zip(phase.calls, [*phase.calls[1:], None], strict=True):
                for value in (node, *read_by(node)):
                    if isinstance(value, Constant) or not (phase.on_core or value is not node):
                        continue
                    name = names[value]
                    if phase.on_core:
                        on_core.setdefault(name, (time, value.tensor_type))
                    last_use[name] = time
                if phase.on_core:
                    made_on_core.add(names[node])
                    time += after is None or at_once.get(node, node) != at_once.get(after, after)
            time += 1
        places = _places_in_results(phases, names, on_core)
        lifetimes: dict[str, Lifetime] = {}
        for name, (first_use, _) in on_core.items():
            # What the host makes is written into the window right before the program starts.
            begin = first_use if name in made_on_core else max(each for each in start_of_phase if each <= first_use)
            first, last = (begin, last_use[name]) if reuse and name not in states else (0, time)
            whole, _ = places[name]
            kind = on_core[whole][1]
            known = lifetimes.get(whole, Lifetime(whole, kind.size * np.dtype(kind.dtype).itemsize, first, last))
            lifetimes[whole] = replace(known, first=min(first, known.first), last=max(last, known.last))
        offsets, self.end = plan_memory(lifetimes.values(), self.end)
        for name, (_, kind) in on_core.items():
            whole, shift = places[name]
            self.slots[name] = TensorSlot(name, offsets[whole] + shift, kind.shape, kind.dtype)


def _places_in_results(
    phases: Sequence[Phase], names: Mapping[Expr, str], on_core: Mapping[str, tuple[int, TensorType]]
) -> dict[str, tuple[str, int]]:
    """For each tensor the one in whose bytes it lies, and at which of them: operands of a concatenation of one batch
    group lie in its result, all others in themselves."""
    places: dict[str, tuple[str, int]] = {}
    concats = [node for phase in phases if phase.on_core for node in phase.calls if is_packed_concat(node)]
    moves = [node for phase in phases if phase.on_core for node in phase.calls if is_packed_renaming(node)]
    for node in moves:
        if not isinstance(node.args[0], Constant):
            places.setdefault(names[node.args[0]], (names[node], 0))
    for node in concats:
        shift = 0
        for arg in node.args:
            if node.shape[0] == 1 and not isinstance(arg, Constant):
                places.setdefault(names[arg], (names[node], shift))
            shift += arg.tensor_type.size

    def place(name: str) -> tuple[str, int]:
        if name not in places:
            return name, 0
        around, shift = places[name]
        whole, more = place(around)
        return whole, shift + more

    return {name: place(name) for name in on_core}
