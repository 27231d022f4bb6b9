"""The memory of a model between its kernels: what is allocated while steps are collected, and its plan in the end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ...compiled_cpu import ArenaTensor
from ..cpu.llvm.step_function import Slot
from ..memory_plan import Lifetime, aligned, most_alive, plan_memory


@dataclass
class _Allocation:
    """Bytes in the arena, and the first and last step that uses them.

    ``over``: allocations in whose place they may be, if step ``made``, which fills them, is the last that uses those.
    """

    name: str
    nbytes: int
    first: int
    last: int
    over: tuple[int, ...] = ()
    made: int = 0


@dataclass
class Arena:
    """Collects allocations; steps are numbered by the caller."""

    allocations: list[_Allocation] = field(default_factory=list)

    def allocate(self, name: str, nbytes: int, step: int) -> Slot:
        """Bytes that ``step`` is the first to use."""
        self.allocations.append(_Allocation(name, nbytes, step, step))
        return Slot("arena", len(self.allocations) - 1)

    def use(self, slot: Slot, step: int) -> None:
        """``step`` uses a slot, which may be elsewhere."""
        if slot.kind == "arena":
            self.allocations[slot.where].last = step

    def offer(self, slot: Slot, inputs: Sequence[tuple[Slot, bool]], step: int) -> None:
        """``step`` fills ``slot``, in the place of an input that dies there, if there is one that may be overwritten.

        ``inputs``: what the step reads, and whether it may be overwritten; the same memory may be there twice.
        """
        made = self.allocations[slot.where]
        refused = {each for each, fits in inputs if not fits}
        made.made = step
        made.over = tuple(
            each.where for each, _ in dict.fromkeys(inputs)
            if each.kind == "arena" and each not in refused and self.allocations[each.where].nbytes == made.nbytes
        )  # fmt: skip

    def plan(self) -> tuple[tuple[ArenaTensor, ...], dict[str, int]]:
        """Where everything is, and figures: bytes to allocate, bytes alive at the worst step, bytes without sharing."""
        over = [
            next((other for other in each.over if self.allocations[other].last == each.made), None)
            for each in self.allocations
        ]
        lifetimes = [
            Lifetime(str(number), each.nbytes, each.first, each.last, "" if below is None else str(below))
            for number, (each, below) in enumerate(zip(self.allocations, over, strict=True))
        ]
        places, end = plan_memory(lifetimes, 0)
        memory = tuple(
            ArenaTensor(each.name, places[str(number)], each.nbytes, each.first, each.last, below)
            for number, (each, below) in enumerate(zip(self.allocations, over, strict=True))
        )
        return memory, {
            "arena_bytes": end,
            "arena_bytes_alive": most_alive(lifetimes),
            "arena_bytes_unshared": sum(aligned(each.nbytes) for each in self.allocations),
            "in_place": sum(below is not None for below in over),
        }
