"""The DMA window of a model: constants at its beginning, tensors by liveness, programs at its end."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ...graph.ir import Array, Constant, Expr, TensorType
from ...model import ConstantSegment, TensorSlot
from ..memory_plan import Lifetime, aligned, plan_memory
from .phases import Phase


@dataclass
class DmaWindow:
    """Grows while a model is linked; ``end`` is its size so far, in bytes."""

    slots: dict[str, TensorSlot] = field(default_factory=dict)
    constants: dict[str, ConstantSegment] = field(default_factory=dict)  # by digest of the bytes
    end: int = 0

    def constant(self, value: Array) -> ConstantSegment:
        """The place of a constant; equal bytes are stored once."""
        data = np.frombuffer(np.ascontiguousarray(value).tobytes(), np.uint8)
        digest = hashlib.sha256(data.tobytes()).hexdigest()
        if digest not in self.constants:
            self.constants[digest] = ConstantSegment(f"constant{len(self.constants)}", self.allocate(data.nbytes), data)
        return self.constants[digest]

    def allocate(self, nbytes: int) -> int:
        """The offset of bytes of their own."""
        offset = self.end
        self.end += aligned(nbytes)
        return offset

    def plan_tensors(self, phases: Sequence[Phase], names: Mapping[Expr, str], *, reuse: bool) -> None:
        """Give every tensor that the core reads or writes its place. With ``reuse`` those that are not alive at the
        same time share bytes."""
        start_of_phase: list[int] = []
        on_core: dict[str, tuple[int, TensorType]] = {}  # when first used by the core, and its type
        made_on_core: set[str] = set()
        last_use: dict[str, int] = {}
        time = 0
        for phase in phases:
            start_of_phase.append(time)
            for node in phase.calls:
                for value in (node, *node.args):
                    if isinstance(value, Constant) or not (phase.on_core or value is not node):
                        continue
                    name = names[value]
                    if phase.on_core:
                        on_core.setdefault(name, (time, value.tensor_type))
                    last_use[name] = time
                if phase.on_core:
                    made_on_core.add(names[node])
                    time += 1
            time += 1
        lifetimes = []
        for name, (first_use, kind) in on_core.items():
            # What the host makes is written into the window right before the program starts.
            begin = first_use if name in made_on_core else max(each for each in start_of_phase if each <= first_use)
            nbytes = kind.size * np.dtype(kind.dtype).itemsize
            first, last = (begin, last_use[name]) if reuse else (0, time)
            lifetimes.append(Lifetime(name, nbytes, first, last))
        offsets, self.end = plan_memory(lifetimes, self.end)
        for name, (_, kind) in on_core.items():
            self.slots[name] = TensorSlot(name, offsets[name], kind.shape, kind.dtype)
