"""Which core waited for which, where cores start each other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..hw.pipelines import HANDOVER_CYCLES
from ..hw.relay_plan import RelayPlan


@dataclass(frozen=True)
class Wait:
    """Cycles of a core without a program, until the end of ``core``; its own number stands for what a start takes."""

    core: int
    start: int
    stop: int


def waits_between(plan: RelayPlan, spans: Sequence[Sequence[range]]) -> tuple[list[Wait], ...]:
    """Of each core, its waits between two of its runs, and before its first one: for the last end that it needed, and
    for a start, which takes :data:`HANDOVER_CYCLES`."""
    waits: list[list[Wait]] = [[] for _ in spans]
    for core, runs in enumerate(spans):
        ready = 0
        for number, run in enumerate(runs):
            needed = {other: spans[other][number].stop for other in plan.after[core]}
            for other in plan.room[core] if number >= plan.slots else ():
                needed[other] = max(needed.get(other, 0), spans[other][number - plan.slots].stop)
            last = max(needed, key=needed.__getitem__, default=core)
            begun = run.start - (HANDOVER_CYCLES if needed or number else 0)
            waits[core] += [Wait(last, ready, begun)] if begun > ready else []
            waits[core] += [Wait(core, begun, run.start)] if run.start > begun else []
            ready = run.stop
    return tuple(waits)


def waits_to_end(plan: RelayPlan, spans: Sequence[Sequence[range]]) -> tuple[list[Wait], ...]:
    """As :func:`waits_between`, and from a core's last run to the end of all runs, for the core that ends last. With
    its runs they are all cycles."""
    waits = waits_between(plan, spans)
    ends = [own[-1].stop for own in spans]
    last = max(range(len(ends)), key=ends.__getitem__)
    for core, end in enumerate(ends):
        if end < ends[last]:
            waits[core].append(Wait(last, end, ends[last]))
    return waits


def by_core(waits: Iterable[Wait]) -> dict[int, int]:
    """Cycles of waits by the core whose end was waited for, or by the core's own number."""
    cycles: Counter[int] = Counter()
    for wait in waits:
        cycles[wait.core] += wait.stop - wait.start
    return dict(cycles)
