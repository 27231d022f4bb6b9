"""Runs of cores that start each other, and what they report."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from ..hw.relay_plan import RelayPlan, settings_of_plan, settings_of_turns
from ..hw.system_config import SystemConfig
from .dram_interface import DramUse
from .errors import SimulationError
from .result import RunResult, Trace
from .system_run import BusUse, CoreProgram, check_programs

Host = Callable[[int], None]
"""Called with the number of a run that all cores have ended."""


@dataclass(frozen=True)
class RelayResult:
    """Outcome of runs that cores started themselves.

    ended
        Of each core, its runs that ended without a fault.
    last
        Of each core, the result of its last run; ``None`` if there was none.
    spans
        Of each core, the cycles of its runs, counted from the first one's begin; empty without time, and of a device
        that counts no single runs.
    cycles
        From the first begin to the last end; ``None`` where the simulator does not model time.
    traces
        Of each core, those of its runs, where they were recorded.
    bus
        As of :class:`~weft.sim.system_run.SystemResult`.
    """

    ended: tuple[int, ...]
    last: tuple[RunResult | None, ...]
    spans: tuple[tuple[range, ...], ...] = ()
    cycles: int | None = None
    dram: DramUse | None = None
    traces: tuple[tuple[Trace | None, ...], ...] = field(default=(), compare=False, repr=False)
    bus: tuple[BusUse | None, ...] = field(default=(), compare=False, repr=False)

    @property
    def faults(self) -> dict[int, RunResult]:
        """Results of the cores that ended in a fault, by the core's number."""
        return {core: last for core, last in enumerate(self.last) if last is not None and last.fault is not None}


def one_after_the_other(results: Sequence[RelayResult]) -> RelayResult:
    """Results of several relays as one, without spans if there are several."""
    if len(results) == 1:
        return results[0]
    ended = tuple(map(sum, zip(*(each.ended for each in results), strict=True)))
    return RelayResult(ended, results[-1].last, cycles=sum(each.cycles or 0 for each in results))


OfTurn = TypeVar("OfTurn")


def of_run(turns: Sequence[OfTurn], number: int) -> OfTurn:
    """What a core has for each of its turns, for its run of that number."""
    return turns[number % len(turns)]


def check_relay(config: SystemConfig, plan: RelayPlan, programs: Sequence[Sequence[object]], runs: int) -> None:
    """:class:`SimulationError` if the system cannot, or the plan is for another; :class:`PlanError` for a plan that
    does not end or in which cores meet, or for cores with more programs than others. ``programs``: of each core, one
    for each turn."""
    if not config.relay:
        raise SimulationError(f"the cores of {config.name!r} do not start each other",
                              hint="give its SystemConfig relay=True")  # fmt: skip
    if len(plan.after) != len(config.cores) or len(programs) != len(config.cores):
        raise SimulationError(f"a plan for {len(plan.after)} cores and programs of {len(programs)} for a system of "
                              f"{len(config.cores)}")  # fmt: skip
    plan.check()
    settings_of_plan(plan, runs)
    settings_of_turns([[(0, 0)] * len(own) for own in programs])


def check_turns(config: SystemConfig, programs: Sequence[Sequence[CoreProgram]]) -> None:
    """:class:`SimulationError` for programs that do not fit the cores, or that have unlike windows in two turns."""
    for programs_at_once in zip(*programs, strict=True):
        check_programs(config, programs_at_once)
    for core, own in enumerate(programs):
        for turn, program in enumerate(own):
            if (program.window_start, program.window_bytes) != (own[0].window_start, own[0].window_bytes):
                raise SimulationError(f"core {core}: the program of turn {turn} has another window than the first one",
                                      hint="all programs of a core have one window")  # fmt: skip
