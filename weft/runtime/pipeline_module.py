"""A model in stages on a system: core ``i`` runs stage ``i`` of one item (a picture) after the other.

An item has a window of its own, which goes from core to core: what a stage leaves in it is there for the next one. So
no two cores that run at once have a byte in common, and nothing is copied between them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from ..compiler.model import CompiledModel, CorePart, CoreStep
from ..hw.relay_plan import RelayPlan
from ..hw.system_config import SystemConfig
from ..imports import IMPORTS
from ..sim.dram import DramModel
from ..sim.relay_run import RelayResult, one_after_the_other
from ..sim.relay_waits import by_core, waits_between
from ..sim.system_run import CoreProgram, SystemResult
from ..sim.timing import predict
from .device import Progress, memory_of
from .errors import CoreFaultError, DeviceError, InputError
from .item_window import Array, Inputs, checked_item, core_program, read_outputs, write_inputs, write_model
from .module import HostRun, LoadHost
from .run_lock import PICKLE_THE_MODEL, RunLock, stays_here
from .system_device import Window, open_system, window_pitch
from .system_module import CoreUse, check_cores, core_uses, relayed_use, total_cycles

if TYPE_CHECKING:
    from .profile_shared import SharedProfile

WINDOWS_A_CORE = 2
"""Windows where cores start each other: while an item is in one of each core, the host has time to fill others."""


@dataclass(frozen=True)
class _Part:
    """A program of a stage, and what the host does before it."""

    host: tuple[HostRun, ...]
    program: CoreStep


def needs_no_host(model: CompiledModel) -> bool:
    """Whether an item can go through all stages without the host: a stage is one program, and only the first one takes,
    and the last one gives, what the host has to do with."""
    programs = list(model.programs)
    if [step.stage for step in programs] != list(range(model.stages)):
        return False
    places = [place for place, step in enumerate(model.steps) if isinstance(step, CoreStep)]
    made: set[str] = set()
    for step in programs[:-1]:
        made |= set(step.outputs)
    return (
        places == list(range(places[0], places[0] + len(programs)))
        and not made & model.wanted_on_host
        and all(made.issuperset(step.inputs) for step in programs[1:])
    )


def check_stages(model: CompiledModel, config: SystemConfig) -> CorePart:
    """The part on a core of a model in stages; :class:`DeviceError` for a system that cannot run them."""
    core = check_cores(model, config)
    if model.stages != len(config.cores):
        raise DeviceError(f"{model.name!r} has {model.stages} stages, but the system has {len(config.cores)} cores",
                          hint="compile it with as many stages as there are cores")  # fmt: skip
    if config.shared_reads:
        raise DeviceError("cores that run stages have no weights in common", at="shared_reads",
                          hint="give a system without shared_reads")  # fmt: skip
    return core


def relays_stages(model: CompiledModel, config: SystemConfig) -> bool:
    """Whether the cores of the system start each other where they run this model."""
    return config.relay and needs_no_host(model)


def window_count(model: CompiledModel, config: SystemConfig) -> int:
    """Windows of a model in stages."""
    return model.stages * (WINDOWS_A_CORE if relays_stages(model, config) else 1)


def pipeline_plan(model: CompiledModel, config: SystemConfig, items: int) -> RelayPlan:
    """What the cores of the system wait for, where they start each other, for so many items."""
    windows = min(window_count(model, config), items)
    return RelayPlan.pipeline(model.stages, windows, window_pitch(model.on_core.window_bytes))


class PipelineModule:
    """A model in memory, ready to run as often as wanted, from any thread; one run at a time.

    In a round core ``i`` runs the programs of its stage for one item, and in the next round core ``i + 1`` has that
    item. A round takes as long as its longest stage. Cycles are those of programs: time of the host is not counted.

    Where the cores of the system start each other, there are no rounds: the host starts once, and gives a window the
    next item when the last core has left it (:func:`needs_no_host` says of which models). A device that does not serve
    gets as many items a start as there are windows.
    """

    __reduce__ = stays_here(PICKLE_THE_MODEL)

    def __init__(
        self, model: CompiledModel, config: SystemConfig, kind: str, load_host: LoadHost, *,
        dram: DramModel | None = None, progress: Progress | None = None,
    ) -> None:  # fmt: skip
        core = check_stages(model, config)
        self.model = model
        self.config = config
        self.rounds: tuple[tuple[SystemResult, ...], ...] = ()
        """Of the last run: of each round the programs that run at once, one after the other."""
        self._items = 0
        self.relayed: RelayResult | None = None
        """Of the last run, where the cores started each other."""
        self._core = core
        self._stages: list[list[_Part]] = [[] for _ in config.cores]
        host: list[HostRun] = []
        for step in model.steps:
            if isinstance(step, CoreStep):
                self._stages[step.stage].append(_Part(tuple(host), step))
                host = []
            else:
                host.append(HostRun.of(step, load_host(step.program)))
        self._last = tuple(host)
        self._wanted = model.wanted_on_host
        self.relays = relays_stages(model, config)
        """Whether the cores start each other."""
        self._windows = window_count(model, config)
        self.device = open_system(kind, config, core.window_bytes, dram=dram or memory_of(model), progress=progress,
                                  windows=self._windows)  # fmt: skip
        self._lock = RunLock()
        self._closed = False
        self._write_model()

    def run(self, items: Sequence[Inputs]) -> list[dict[str, Array]]:
        """The outputs for each of ``items``, which are as for :meth:`LoadedModule.run`, in their order.

        Raises :class:`InputError` for data that does not fit, :class:`CoreFaultError`, with the core's number, for a
        program that faulted, :class:`DeviceError` if the module is closed.
        """
        if isinstance(items, Mapping) or not isinstance(items, Sequence) or not items:
            raise InputError("items must be a list of inputs, at least one", hint="such as one for each core")
        values = [checked_item(self.model, item) for item in items]
        rounds = range(len(items) + len(self._stages) - 1)
        with self._lock:
            if self._closed:
                raise DeviceError(f"{self.model.name!r} was closed", hint="load it again")
            try:
                if self.relays:
                    self.relayed = self._relayed(values)
                else:
                    self.rounds = tuple(self._round(values, number) for number in rounds)
            except BaseException:
                self._write_model()
                raise
            self._items = len(items)
        return [{tensor.name: each[tensor.name] for tensor in self.model.outputs} for each in values]

    def _relayed(self, values: list[dict[str, Array]]) -> RelayResult:
        """All items, by as few starts of the host as the device allows."""
        if self.device.serves:
            return self._relay(values)
        batches = range(0, len(values), self._windows)
        return one_after_the_other([self._relay(values[first : first + self._windows]) for first in batches])

    def _relay(self, values: list[dict[str, Array]]) -> RelayResult:
        """Items by one start of the host; where the device does not serve, no more than there are windows."""
        (first,), windows = self._stages[0], min(self._windows, len(values))
        for item in range(windows):
            self._begun(first, values[item], item)

        def ended(item: int) -> None:
            self._read(self._stages[-1][0].program, values[item], item)
            for step in self._last:
                step.run(values[item], {}, [])

        def served(item: int) -> None:
            ended(item)
            if item + windows < len(values):
                self._begun(first, values[item + windows], item + windows)

        programs = [[self._program(part, 0)] for (part,) in self._stages]
        host = served if self.device.serves else None
        done = self.device.relay(self._plan(len(values)), programs, len(values), host)
        for core, result in done.faults.items():
            raise CoreFaultError(f"core {core}: {result.fault}", result)
        for item in range(0 if self.device.serves else len(values)):
            ended(item)
        return done

    def _round(self, values: list[dict[str, Array]], number: int) -> tuple[SystemResult, ...]:
        """Item ``number`` on core 0, the one before it on core 1, and so on."""
        there = [core for core in range(len(self._stages)) if 0 <= number - core < len(values)]
        results = []
        for turn in range(max(len(self._stages[core]) for core in there)):
            running = [core for core in there if turn < len(self._stages[core])]
            programs: list[CoreProgram | None] = [None] * len(self._stages)
            for core in running:
                programs[core] = self._begun(self._stages[core][turn], values[number - core], number - core)
            done = self.device.run(programs)
            for core, result in done.faults.items():
                raise CoreFaultError(f"core {core}: {result.fault}", result)
            results.append(done)
            for core in running:
                self._read(self._stages[core][turn].program, values[number - core], number - core)
        if there[-1] == len(self._stages) - 1:
            item = values[number - there[-1]]
            for host in self._last:
                host.run(item, {}, [])
        return tuple(results)

    def _begun(self, part: _Part, values: dict[str, Array], item: int) -> CoreProgram:
        """The program of a part, once the host has done what comes before it."""
        for host in part.host:
            host.run(values, {}, [])
        write_inputs(self._core, part.program, values, self._window(item))
        return self._program(part, item)

    def _program(self, part: _Part, item: int) -> CoreProgram:
        return core_program(self._core, part.program, item % self._windows * self.device.pitch)

    def _read(self, step: CoreStep, values: dict[str, Array], item: int) -> None:
        read_outputs(self._core, step, self._wanted, values, self._window(item))

    def _window(self, item: int) -> Window:
        """Of an item; no more items are under way than there are windows."""
        return self.device.window(item % self._windows)

    def _write_model(self) -> None:
        for number in range(self._windows):
            write_model(self.model, self.device.window(number))

    @property
    def results(self) -> tuple[SystemResult, ...]:
        """Of the last run, those of all rounds."""
        return tuple(chain.from_iterable(self.rounds))

    @property
    def cycles(self) -> int:
        """Of the last run, from the first start to the last end, round after round; without time of the host."""
        return total_cycles(self.results) if self.relayed is None else self.relayed.cycles or 0

    @property
    def interval(self) -> int:
        """Cycles from one item to the next in the last run: of the longest round, or the longest between two ends. Of a
        device that does not know the ends, an item's share of all cycles."""
        if self.relayed is not None and not self.relayed.spans:
            return self.cycles // max(1, self.relayed.ended[-1])
        if self.relayed is not None:
            ends = [span.stop for span in self.relayed.spans[-1]]
            return max((after - before for before, after in pairwise(ends)), default=self.cycles)
        return max(map(total_cycles, self.rounds), default=0)

    def stage_cycles(self) -> tuple[int, ...]:
        """Of each stage, on a core that has its memory alone, by the timing model."""
        cycles = [0] * len(self._stages)
        for step in self.model.programs:
            run = predict(self._core.config_of(step), step.program, self.device.dram, offset=step.program_offset)
            cycles[step.stage] += run.cycles or 0
        return tuple(cycles)

    def alone(self) -> int:
        """Cycles of all stages of one item, one after the other, on cores that have their memory alone."""
        return sum(self.stage_cycles())

    def waits(self) -> tuple[dict[int, int], ...]:
        """In the last run, of each core the cycles without an item, by the core whose end it waited for; its own
        number stands for what starts take. Empty where the host starts rounds, and where the device does not know when
        runs begin."""
        if self.relayed is None or not self.relayed.spans:
            return ()
        return tuple(map(by_core, waits_between(self._plan(len(self.relayed.spans[0])), self.relayed.spans)))

    def _plan(self, items: int) -> RelayPlan:
        return pipeline_plan(self.model, self.config, items)

    def profile(self) -> SharedProfile:
        """Which core waits for which, by the timing model, whose cycles are those of the system's RTL."""
        with IMPORTS:
            from .profile_shared import profile_shared

        return profile_shared(self.model, self.config, self.device.dram)

    def write_trace(self, path: str | Path) -> int:
        """Write the timeline of as many items as the last run had, by the timing model, with all cores, their waits and
        the buses that they share; number of slices written. :class:`DeviceError` if nothing ran."""
        with IMPORTS:
            from .trace_system import write_shared_run

        return write_shared_run(self.model, self.config, self.device.dram, self._items, path)

    def use(self) -> tuple[CoreUse, ...]:
        """What each core did in the last run."""
        if self.relayed is not None:
            return tuple(relayed_use(self.relayed, core, alone) for core, alone in enumerate(self.stage_cycles()))
        return core_uses(self.results, [len(parts) for parts in self._stages], self.stage_cycles())

    def close(self) -> None:
        """Wait for the run in progress; later runs are refused."""
        with self._lock:
            self._closed = True
            self.device.close()

    def __enter__(self) -> PipelineModule:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
