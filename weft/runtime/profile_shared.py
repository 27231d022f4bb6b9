"""Where the cycles go of a model that the cores of a system share: split over them, or in stages.

The timing model says when each program begins and ends. What a core has none of its own, it waits: for another core's
end, or for a start.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ..compiler.model import CompiledModel, CoreStep
from ..hw.relay_plan import RelayPlan
from ..hw.system_config import SystemConfig
from ..sim.dram import DramModel
from ..sim.dram_interface import DramUse
from ..sim.relay_timing import predict_relay
from ..sim.relay_waits import Wait, by_core, waits_to_end
from ..sim.result import RunResult, Trace
from ..sim.system_run import NOTHING, BusUse
from ..sim.system_timing import predict_system
from ..sim.timing import predict
from ..sim.timing_ports import TimedProgram
from .module import StepRun
from .pipeline_module import check_stages, pipeline_plan, relays_stages, window_count
from .profile_system import PortProfile, joined_uses
from .split_module import check_split, stretches_of
from .system_device import window_pitch
from .system_module import constant_pages

ITEMS_A_STAGE = 3
"""Items of a profile for each stage: the first fill the stages, and the last leave them."""


@dataclass(frozen=True)
class Work:
    """A run of a program by a core, in cycles of the whole run. ``turn``: which of its core's programs of an item.
    ``trace``: where one was asked for, in cycles of the program."""

    step: CoreStep
    turn: int
    item: int
    start: int
    stop: int
    trace: Trace | None = field(default=None, compare=False, repr=False)

    @property
    def cycles(self) -> int:
        """From its begin to its end."""
        return self.stop - self.start

    @property
    def run(self) -> StepRun:
        """As a program on one core, with its trace."""
        return StepRun(self.step, RunResult(self.cycles, None, 0, 0, trace=self.trace))


@dataclass(frozen=True)
class SharedProfile:
    """A model on all cores of ``config``, accounted for.

    cycles
        Of all items, without time of the host.
    work
        Of each core its runs, in their order.
    waiting
        Of each core, its cycles without a program, in their order.
    alone
        Of each core, the cycles of its programs of an item, on one that has its memory alone.
    starts
        By the host.
    ports
        The bus of each port that several cores share, where traces were asked for.
    dram_use
        Of a DRAM with banks.
    """

    model: CompiledModel
    config: SystemConfig
    items: int
    cycles: int
    work: tuple[tuple[Work, ...], ...]
    waiting: tuple[tuple[Wait, ...], ...]
    alone: tuple[int, ...]
    starts: int
    ports: tuple[PortProfile, ...] = ()
    dram_use: DramUse | None = None

    @property
    def waits(self) -> tuple[Mapping[int, int], ...]:
        """Of each core, the cycles without a program by the core whose end it waited for; its own number stands for
        what starts take."""
        return tuple(map(by_core, self.waiting))

    def busy(self, core: int) -> int:
        """Cycles in programs."""
        return sum(each.cycles for each in self.work[core])

    def waited(self, core: int) -> int:
        """Cycles that the other cores on its port cost it."""
        return self.busy(core) - self.items * self.alone[core]


def profile_shared(
    model: CompiledModel, config: SystemConfig, dram: DramModel, *, items: int | None = None, trace: bool = False
) -> SharedProfile:
    """Run ``items`` (one of a model that is split, or :data:`ITEMS_A_STAGE` a stage of one in stages) by the timing
    model, whose cycles are those of the system's RTL. :class:`DeviceError` for a system that cannot. ``trace``: of each
    run of a program, and of the bus of ports that cores share."""
    run = _Run(model, config, dram, trace)
    if model.shared_by > 1:
        check_split(model, config)
        count = 1 if items is None else items
        starts = sum(_split(run, item) for item in range(count))
    else:
        check_stages(model, config)
        count = ITEMS_A_STAGE * model.stages if items is None else items
        starts = _stages(run, count)
    alone = [0] * len(config.cores)
    for step in model.programs:
        cycles = predict(model.on_core.config_of(step), step.program, dram, offset=step.program_offset).cycles or 0
        alone[step.core if model.shared_by > 1 else step.stage] += cycles
    ports = tuple(
        PortProfile(port, config.cores_of(port), joined_uses(*zip(*run.bus[port], strict=True)), run.now)
        for port in range(config.port_count)
        if trace and len(config.cores_of(port)) > 1
    )
    work, waiting = tuple(map(tuple, run.work)), tuple(map(tuple, run.waiting))
    return SharedProfile(model, config, count, run.now, work, waiting, tuple(alone), starts, ports, run.dram_use)


@dataclass
class _Run:
    """What was run up to cycle ``now``."""

    model: CompiledModel
    config: SystemConfig
    dram: DramModel
    trace: bool
    now: int = 0
    work: list[list[Work]] = field(default_factory=list)
    waiting: list[list[Wait]] = field(default_factory=list)
    bus: list[list[tuple[BusUse | None, int]]] = field(default_factory=list)
    """Of each port, what its bus did from which cycle on."""
    dram_use: DramUse | None = None

    def __post_init__(self) -> None:
        self.work = [[] for _ in self.config.cores]
        self.waiting = [[] for _ in self.config.cores]
        self.bus = [[] for _ in range(self.config.port_count)]
        split = self.model.shared_by > 1 and self.config.shared_reads
        self.shared = constant_pages(self.model.on_core) if split else NOTHING

    def together(self, steps: Mapping[int, tuple[CoreStep, int, int]]) -> None:
        """Programs that the host starts at once: by core the program, its turn and its item."""
        programs: list[TimedProgram | None] = [None] * len(self.config.cores)
        for core, (step, _, item) in steps.items():
            programs[core] = replace(timed(step), window_start=window_start(self.model, self.config, item))
        done = predict_system(self.config, programs, self.dram, shared=self.shared, trace=self.trace)
        self._use(done.bus, done.dram)
        ends = {core: own.cycles or 0 for core, own in enumerate(done.cores) if own is not None}
        last = max(ends, key=ends.__getitem__)
        for core in range(len(self.config.cores)):
            if core in steps:
                (step, turn, item), own = steps[core], done.cores[core]
                trace = None if own is None else own.trace
                self.work[core].append(Work(step, turn, item, self.now, self.now + ends[core], trace))
            if ends.get(core, 0) < ends[last]:
                self.waiting[core].append(Wait(last, self.now + ends.get(core, 0), self.now + ends[last]))
        self.now += ends[last]

    def relayed(
        self, plan: RelayPlan, steps: Sequence[Sequence[CoreStep]], runs: int, first: tuple[int, int] | None
    ) -> None:
        """Programs that the cores start themselves. ``first``: turn and item of the first of ``steps``; None for
        stages, where a run is an item."""
        programs = [[timed(step) for step in own] for own in steps]
        done = predict_relay(self.config, plan, programs, runs, self.dram, shared=self.shared, trace=self.trace)
        self._use(done.bus, done.dram)
        for core, (own, spans, waits) in enumerate(zip(steps, done.spans, waits_to_end(plan, done.spans), strict=True)):
            for number, span in enumerate(spans):
                turn, item = (0, number) if first is None else (first[0] + number, first[1])
                trace = done.traces[core][number] if done.traces else None
                begin, end = self.now + span.start, self.now + span.stop
                self.work[core].append(Work(own[number % len(own)], turn, item, begin, end, trace))
            self.waiting[core] += [Wait(wait.core, self.now + wait.start, self.now + wait.stop) for wait in waits]
        self.now += done.cycles or 0

    def _use(self, bus: Sequence[BusUse | None], dram: DramUse | None) -> None:
        """What the buses and the DRAM did from cycle ``now`` on."""
        if dram is not None:
            self.dram_use = (self.dram_use or DramUse()) + dram
        for port, uses in enumerate(bus):
            self.bus[port].append((uses, self.now))


def window_start(model: CompiledModel, config: SystemConfig, item: int) -> int:
    """Where the window of an item begins in the memory."""
    if model.shared_by > 1:
        return 0
    return item % window_count(model, config) * window_pitch(model.on_core.window_bytes)


def timed(step: CoreStep) -> TimedProgram:
    """A program in the first window."""
    return TimedProgram(code=step.program, offset=step.program_offset)


def _split(run: _Run, item: int) -> int:
    """An item of a model that is split; how often the host starts."""
    stretches, _ = stretches_of(run.model, relay=run.config.relay)
    for stretch in stretches:
        first = stretch.turns[0][0].turn
        if run.config.relay:
            plan = RelayPlan.barrier(len(run.config.cores))
            run.relayed(plan, list(zip(*stretch.turns, strict=True)), len(stretch.turns), (first, item))
        else:
            run.together({step.core: (step, first, item) for step in stretch.turns[0]})
    return len(stretches)


def _stages(run: _Run, items: int) -> int:
    """Items through the stages; how often the host starts."""
    stages = [[step for step in run.model.programs if step.stage == stage] for stage in range(run.model.stages)]
    if relays_stages(run.model, run.config):
        run.relayed(pipeline_plan(run.model, run.config, items), stages, items, None)
        return 1
    starts = 0
    for steps in _rounds(stages, items):
        run.together(steps)
        starts += 1
    return starts


def _rounds(stages: list[list[CoreStep]], items: int) -> Iterator[dict[int, tuple[CoreStep, int, int]]]:
    """What the host starts at once, as :class:`~weft.runtime.pipeline_module.PipelineModule` does."""
    for number in range(items + len(stages) - 1):
        there = [core for core in range(len(stages)) if 0 <= number - core < items]
        for turn in range(max(len(stages[core]) for core in there)):
            yield {core: (stages[core][turn], turn, number - core) for core in there if turn < len(stages[core])}
