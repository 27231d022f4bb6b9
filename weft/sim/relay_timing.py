"""The timing model of cores that start each other: the cycles of every run."""

from __future__ import annotations

from collections.abc import Sequence

from ..hw.pipelines import HANDOVER_CYCLES
from ..hw.relay_plan import RelayPlan
from ..hw.system_config import SystemConfig
from .dram import DramModel
from .errors import SimulationError
from .relay_run import RelayResult, check_relay, of_run
from .timing import predict
from .timing_ports import TimedProgram, predict_relayed


def predict_relay(
    config: SystemConfig, plan: RelayPlan, programs: Sequence[Sequence[TimedProgram]], runs: int,
    dram: DramModel | None = None, *, shared: range = range(0), trace: bool = False, every_cycle: bool = False,
) -> RelayResult:  # fmt: skip
    """Predict ``runs`` runs of each core, in turn of its programs; their ``start`` says nothing. Errors as of
    :func:`~weft.sim.system_timing.predict_system` and :func:`~weft.sim.relay_run.check_relay`. ``trace``: of each run,
    of the bus of each port that cores share, and of a DRAM with banks."""
    check_relay(config, plan, programs, runs)
    memory = dram or DramModel.of(config.cores[0])
    if memory.jitter or memory.reorder:
        raise SimulationError("the timing model of cores that start each other knows no jitter and no reordering",
                              hint="use a memory without them, or RtlSystem")  # fmt: skip
    if memory.banks is not None or config.port_count < len(config.cores):
        return predict_relayed(
            config, plan, programs, runs, memory, shared=shared, trace=trace, every_cycle=every_cycle
        )
    alone = [
        [predict(core, program.code, memory, offset=program.offset, trace=trace) for program in own]
        for core, own in zip(config.cores, programs, strict=True)
    ]
    spans = spans_of(plan, [[result.cycles or 0 for result in own] for own in alone], runs)
    cycles = max(each[-1].stop for each in spans)
    last = tuple(of_run(own, runs - 1) for own in alone)
    traces = tuple(tuple(of_run(own, run).trace for run in range(runs)) for own in alone) if trace else ()
    return RelayResult((runs,) * len(spans), last, spans, cycles, traces=traces)


def spans_of(plan: RelayPlan, cycles: Sequence[Sequence[int]], runs: int) -> tuple[tuple[range, ...], ...]:
    """The cycles of each core's runs. Its programs, in turn, take so many, whatever the others do."""
    spans: list[list[range]] = [[] for _ in cycles]
    for core, number in plan.order(runs):
        waited = [spans[core][-1].stop] if number else []
        waited += [spans[other][number].stop for other in plan.after[core]]
        waited += [spans[other][number - plan.slots].stop for other in plan.room[core] if number >= plan.slots]
        start = max(waited) + HANDOVER_CYCLES if waited else 0
        spans[core].append(range(start, start + of_run(cycles[core], number)))
    return tuple(map(tuple, spans))
