"""The memory of a model between its kernels: what is allocated while steps are collected, and its plan in the end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from ...model import ArenaTensor
from ..memory_plan import Lifetime, aligned, most_alive, plan_tightly


@dataclass(frozen=True)
class ArenaSlot:
    """Memory of a tensor in the arena: the number of its allocation."""

    number: int


@dataclass(frozen=True)
class ConstantAt:
    """Memory of a constant: its first byte among all constants."""

    offset: int


@dataclass(frozen=True)
class InputAt:
    """An input of the program."""

    index: int


@dataclass(frozen=True)
class OutputAt:
    """An output of the program."""

    index: int


@dataclass(frozen=True)
class StringsAt:
    """Strings, which are in no memory that kernels know: a number that tells them apart."""

    number: int


@dataclass(frozen=True)
class PartOf:
    """A part of other memory, from this byte on; in a loop it moves as a `Place` does."""

    whole: ArenaSlot | ConstantAt | InputAt | OutputAt | StringsAt
    offset: int
    stride: int = 0
    period: int = 0


Slot = ArenaSlot | PartOf | ConstantAt | InputAt | OutputAt | StringsAt
"""The memory of one tensor."""


@dataclass
class _Allocation:
    """Bytes in the arena, and the first and last step that uses them.

    ``reusable``: allocations whose bytes they may reuse, if step ``filled``, which fills these, is the last to use
    those.
    """

    name: str
    nbytes: int
    first: int
    last: int
    reusable: tuple[int, ...] = ()
    filled: int = 0


@dataclass
class Arena:
    """Collects allocations; steps are numbered by the caller."""

    allocations: list[_Allocation] = field(default_factory=list)

    def allocate(self, name: str, nbytes: int, step: int) -> ArenaSlot:
        """Bytes that ``step`` is the first to use."""
        self.allocations.append(_Allocation(name, nbytes, step, step))
        return ArenaSlot(len(self.allocations) - 1)

    def use(self, slot: Slot, step: int) -> None:
        """``step`` uses a slot, which may be elsewhere."""
        if isinstance(slot, PartOf):
            slot = slot.whole
        if isinstance(slot, ArenaSlot):
            self.allocations[slot.number].last = step

    def offer(self, slot: ArenaSlot, inputs: Sequence[tuple[Slot, bool]], step: int) -> None:
        """``step`` fills ``slot``, in the place of an input that dies there, if there is one that may be overwritten.

        ``inputs``: what the step reads, and whether it may be overwritten; the same memory may be there twice.
        """
        allocation = self.allocations[slot.number]
        refused = {each for each, fits in inputs if not fits}
        allocation.filled = step
        allocation.reusable = tuple(
            each.number for each, _ in dict.fromkeys(inputs)
            if isinstance(each, ArenaSlot) and each not in refused
            and self.allocations[each.number].nbytes == allocation.nbytes
        )  # fmt: skip

    def plan(self) -> tuple[tuple[ArenaTensor, ...], int]:
        """Where everything is, and the bytes of the arena."""
        reused = [
            next((other for other in each.reusable if self.allocations[other].last == each.filled), None)
            for each in self.allocations
        ]
        unplaced = [
            ArenaTensor(each.name, 0, each.nbytes, each.first, each.last, other)
            for each, other in zip(self.allocations, reused, strict=True)
        ]
        offsets, end = plan_tightly(_lifetimes(unplaced), 0)
        return tuple(replace(each, offset=offsets[str(number)]) for number, each in enumerate(unplaced)), end


def memory_figures(memory: Sequence[ArenaTensor]) -> dict[str, int]:
    """Bytes alive at the worst step, bytes without sharing, and how many tensors are written over an operand."""
    return {
        "arena_bytes_alive": most_alive(_lifetimes(memory)),
        "arena_bytes_unshared": sum(aligned(each.nbytes) for each in memory),
        "in_place": sum(each.reuses is not None for each in memory),
    }


def _lifetimes(memory: Sequence[ArenaTensor]) -> list[Lifetime]:
    return [
        Lifetime(str(number), each.nbytes, each.first, each.last, "" if each.reuses is None else str(each.reuses))
        for number, each in enumerate(memory)
    ]
