"""What cores that start each other do to the memory: their runs one after the other, in an order of the plan."""

from __future__ import annotations

from collections.abc import Sequence

from ..hw.footprint import Footprint
from ..hw.relay_plan import RelayPlan
from .relay_run import Host, RelayResult, check_relay, check_turns, of_run
from .result import RunResult
from .system_fsim import FunctionalSystem, check_apart
from .system_run import CoreProgram

Run = tuple[int, int]
"""A core, and the number of its run."""


def run_relay(
    system: FunctionalSystem, plan: RelayPlan, programs: Sequence[Sequence[CoreProgram]], runs: int,
    host: Host | None = None,
) -> RelayResult:  # fmt: skip
    """``runs`` runs of each core, in turn of its programs, of which a fault ends all. ``host``: as for
    :meth:`~weft.sim.system_rtl.RtlSystem.relay`.

    Which runs of other cores were under way then is a matter of time: here none is. Errors as of
    :func:`~weft.sim.relay_run.check_relay`; :class:`SharedBytesError`, as of :meth:`FunctionalSystem.run`, for runs
    that may be under way at once.
    """
    check_relay(system.config, plan, programs, runs)
    check_turns(system.config, programs)
    apart = windows_apart(plan, [own[0] for own in programs], runs)
    last: list[RunResult | None] = [None] * len(programs)
    ended = [0] * len(programs)
    footprints: dict[Run, Footprint] = {}
    for core, number in (plan if host is None else plan.with_host()).order(runs):
        simulator, program = system.cores[core], of_run(programs[core], number)
        simulator.footprint = None if apart else footprints.setdefault((core, number), Footprint())
        start = program.window_start + number % plan.slots * plan.pitch
        result = simulator.run(program.offset, program.count, window_start=start, window_bytes=program.window_bytes)
        last[core] = result
        if result.fault is not None:
            break
        ended[core] += 1
        if host is not None and all(count > number for count in ended):
            host(number)
    _check_at_once(plan, footprints)
    return RelayResult(tuple(ended), tuple(last))


def windows_apart(plan: RelayPlan, programs: Sequence[CoreProgram], runs: int) -> bool:
    """Whether no two runs that may be under way at once can have a byte in common, since a core cannot leave its
    window."""
    first = programs[0]
    if plan.pitch and all(each.window_start == first.window_start for each in programs):
        return all(each.window_bytes <= plan.pitch for each in programs)  # the plan is checked: one core a window
    reach = (min(plan.slots, runs) - 1) * plan.pitch
    ends = sorted((each.window_start, each.window_start + reach + each.window_bytes) for each in programs)
    return all(ends[place][1] <= ends[place + 1][0] for place in range(len(ends) - 1))


def _check_at_once(plan: RelayPlan, footprints: dict[Run, Footprint]) -> None:
    """:class:`SharedBytesError` for two runs that touch each other's bytes though neither waits for the other."""
    distances = plan.distances()

    def waits(run: Run, other: Run) -> bool:
        distance = distances[other[0]][run[0]]
        return distance is not None and other[1] <= run[1] - distance

    done = list(footprints)
    for place, run in enumerate(done):
        for other in done[:place]:
            if run[0] != other[0] and not waits(run, other) and not waits(other, run):
                check_apart({run[0]: footprints[run], other[0]: footprints[other]})
