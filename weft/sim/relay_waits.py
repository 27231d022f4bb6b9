"""Which core waited for which, where cores start each other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ..hw.pipelines import HANDOVER_CYCLES
from ..hw.relay_plan import RelayPlan


def relay_waits(plan: RelayPlan, spans: Sequence[Sequence[range]]) -> tuple[Counter[int], ...]:
    """Of each core, the cycles between two of its runs, and before its first one, by the core whose end it waited for:
    the last that it needed. Its own number stands for what a start takes, :data:`HANDOVER_CYCLES`."""
    waits: list[Counter[int]] = [Counter() for _ in spans]
    for core, runs in enumerate(spans):
        ready = 0
        for number, run in enumerate(runs):
            needed = {other: spans[other][number].stop for other in plan.after[core]}
            for other in plan.room[core] if number >= plan.slots else ():
                needed[other] = max(needed.get(other, 0), spans[other][number - plan.slots].stop)
            last = max(needed, key=needed.__getitem__, default=core)
            handover = HANDOVER_CYCLES if needed or number else 0
            waits[core][core] += handover
            if (idle := run.start - handover - ready) > 0:
                waits[core][last] += idle
            ready = run.stop
    return tuple(waits)


def waits_to_end(plan: RelayPlan, spans: Sequence[Sequence[range]]) -> tuple[Counter[int], ...]:
    """As :func:`relay_waits`, and from a core's last run to the end of all runs, by the core that ends last. With its
    runs they sum to all cycles."""
    waits = relay_waits(plan, spans)
    ends = [own[-1].stop for own in spans]
    last = max(range(len(ends)), key=ends.__getitem__)
    for core, end in enumerate(ends):
        if end < ends[last]:
            waits[core][last] += ends[last] - end
    return waits
