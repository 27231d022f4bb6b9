"""A model whose layers are shared by the cores of a system: all work on one item (a picture), for a short latency.

All cores have one window. In a turn each runs its program, which computes its part of some layers; the next turn begins
once all have ended. In a turn no core touches what another one writes (`check_turn` of the compiler). The host starts
each turn, or, where cores start each other, each stretch of turns between which it has nothing to do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from ..compiler.model import CompiledModel, CorePart, CoreStep, HostStep
from ..hw.relay_plan import MOST_TURNS, RelayPlan
from ..hw.system_config import SystemConfig
from ..imports import IMPORTS
from ..sim.dram import DramModel
from ..sim.relay_run import RelayResult
from ..sim.relay_waits import by_core, waits_to_end
from ..sim.result import RunResult
from ..sim.system_run import NOTHING, SystemResult
from ..sim.timing import predict
from .device import Progress, memory_of
from .errors import CoreFaultError, DeviceError, InputError
from .item_window import Array, Inputs, checked_item, core_program, read_outputs, write_inputs, write_model
from .module import HostRun, LoadHost
from .run_lock import PICKLE_THE_MODEL, RunLock, stays_here
from .system_device import open_system
from .system_module import CoreUse, check_cores, constant_pages, core_uses, total_cycles

if TYPE_CHECKING:
    from .profile_shared import SharedProfile


@dataclass(frozen=True)
class Stretch:
    """What the host does, and then turns that follow each other without it: of each the programs of all cores."""

    host: tuple[HostStep, ...]
    turns: list[tuple[CoreStep, ...]]


def stretches_of(model: CompiledModel, *, relay: bool) -> tuple[list[Stretch], tuple[HostStep, ...]]:
    """The stretches of a model that is split, each as long as it can be (without ``relay``: of one turn), and what the
    host does at the end."""
    stretches: list[Stretch] = []
    host: list[HostStep] = []
    for step in model.steps:
        if not isinstance(step, CoreStep):
            host.append(step)
        elif step.core == 0:
            is_full = not relay or not stretches or len(stretches[-1].turns) == MOST_TURNS
            if host or is_full or needs_host_before(model, step.turn):
                stretches.append(Stretch(tuple(host), []))
            stretches[-1].turns.append(tuple(each for each in model.programs if each.turn == step.turn))
            host = []
    return stretches, tuple(host)


def needs_host_before(model: CompiledModel, turn: int) -> bool:
    """Whether the host takes what the turn before has made, or gives what this one needs, beside its own steps."""
    made = {name for step in model.programs for name in step.outputs}
    given = {name for step in model.programs if step.turn == turn for name in step.inputs} - made
    taken = {name for step in model.programs if step.turn == turn - 1 for name in step.outputs} & model.wanted_on_host
    return bool(given or taken)


def check_split(model: CompiledModel, config: SystemConfig) -> CorePart:
    """The part on a core of a model that is split; :class:`DeviceError` for a system that cannot run it."""
    core = check_cores(model, config)
    if model.shared_by != len(config.cores):
        raise DeviceError(f"{model.name!r} is split over {model.shared_by} cores, but the system has "
                          f"{len(config.cores)}", hint="compile it for as many as there are")  # fmt: skip
    return core


def _busy(done: RelayResult, core: int) -> int:
    """Cycles of a core in programs, or of all where the device does not know them."""
    return sum(map(len, done.spans[core])) if done.spans else done.cycles or 0


class SplitModule:
    """A model in memory, ready to run as often as wanted, from any thread; one run at a time.

    Items run one after the other, each on all cores. Cycles are those of programs: time of the host is not counted.
    """

    __reduce__ = stays_here(PICKLE_THE_MODEL)

    def __init__(
        self, model: CompiledModel, config: SystemConfig, kind: str, load_host: LoadHost, *,
        dram: DramModel | None = None, progress: Progress | None = None,
    ) -> None:  # fmt: skip
        core = check_split(model, config)
        self.model = model
        self.config = config
        self.results: tuple[SystemResult, ...] = ()
        """Of the last run: each turn of each item."""
        self.relayed: tuple[RelayResult, ...] = ()
        """Of the last run, where the cores started each other: each stretch of turns of each item."""
        self._core = core
        self._stretches, last = stretches_of(model, relay=config.relay)
        *self._host, self._last = [
            tuple(HostRun.of(step, load_host(step.program)) for step in steps)
            for steps in (*(stretch.host for stretch in self._stretches), last)
        ]
        self._wanted = model.wanted_on_host
        self._items = 0
        shared = constant_pages(core) if config.shared_reads else NOTHING
        self.device = open_system(kind, config, core.window_bytes, shared=shared, dram=dram or memory_of(model),
                                  progress=progress, windows=1)  # fmt: skip
        self._lock = RunLock()
        self._closed = False
        write_model(model, self.device.window(0))

    def run(self, items: Sequence[Inputs]) -> list[dict[str, Array]]:
        """The outputs for each of ``items``, which are as for :meth:`LoadedModule.run`, in their order.

        Raises :class:`InputError` for data that does not fit, :class:`CoreFaultError`, with the core's number, for a
        program that faulted, :class:`DeviceError` if the module is closed.
        """
        if isinstance(items, Mapping) or not isinstance(items, Sequence) or not items:
            raise InputError("items must be a list of inputs, at least one", hint="one after the other has all cores")
        values = [checked_item(self.model, item) for item in items]
        with self._lock:
            if self._closed:
                raise DeviceError(f"{self.model.name!r} was closed", hint="load it again")
            results: list[SystemResult] = []
            relayed: list[RelayResult] = []
            try:
                for item in values:
                    self._run(item, results, relayed)
            except BaseException:
                write_model(self.model, self.device.window(0))
                raise
            self.results, self.relayed, self._items = tuple(results), tuple(relayed), len(items)
        return [{tensor.name: each[tensor.name] for tensor in self.model.outputs} for each in values]

    def _run(self, values: dict[str, Array], results: list[SystemResult], relayed: list[RelayResult]) -> None:
        """One item, stretch by stretch."""
        window = self.device.window(0)
        for stretch, steps in zip(self._stretches, self._host, strict=True):
            for host in steps:
                host.run(values, {}, [])
            for step in stretch.turns[0]:
                write_inputs(self._core, step, values, window)
            turns = [[core_program(self._core, step) for step in turn] for turn in stretch.turns]
            done: SystemResult | RelayResult
            if self.config.relay:
                done = self.device.relay(self._plan, list(zip(*turns, strict=True)), len(turns))
                relayed.append(done)
            else:
                done = self.device.run(turns[0])
                results.append(done)
            for core, result in done.faults.items():
                raise CoreFaultError(f"core {core}: {result.fault}", result)
            for step in stretch.turns[-1]:
                read_outputs(self._core, step, self._wanted, values, window)
        for host in self._last:
            host.run(values, {}, [])

    @property
    def _plan(self) -> RelayPlan:
        return RelayPlan.barrier(len(self.config.cores))

    @property
    def turns(self) -> int:
        """Turns of an item."""
        return sum(len(stretch.turns) for stretch in self._stretches)

    @property
    def starts(self) -> int:
        """Starts of an item by the host."""
        return len(self._stretches)

    @property
    def cycles(self) -> int:
        """Of the last run, from the first start to the last end, turn after turn; without time of the host."""
        return total_cycles(self.results) + sum(done.cycles or 0 for done in self.relayed)

    @property
    def latency(self) -> int:
        """Cycles of one item in the last run."""
        return self.cycles // self._items if self._items else 0

    def waits(self) -> tuple[dict[int, int], ...]:
        """In the last run, of each core the cycles without a program, by the core whose end it waited for; its own
        number stands for what starts take. Empty where the host starts turns, and where the device does not know when
        programs begin."""
        if not all(done.spans for done in self.relayed):
            return ()
        stretches = [waits_to_end(self._plan, done.spans) for done in self.relayed]
        return tuple(by_core(chain.from_iterable(own)) for own in zip(*stretches, strict=True))

    def _alone(self) -> list[list[RunResult]]:
        """Of each core an item's programs, on one that has its memory alone, by the timing model."""
        alone: list[list[RunResult]] = [[] for _ in self.config.cores]
        for step in self.model.programs:
            alone[step.core].append(
                predict(self._core.config, step.program, self.device.dram, offset=step.program_offset)
            )
        return alone

    def core_cycles(self) -> tuple[int, ...]:
        """Cycles of an item's programs on each core, on one that has its memory alone, by the timing model."""
        return tuple(sum(run.cycles or 0 for run in own) for own in self._alone())

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
        """What each core did in the last run. Where the device does not know when the programs of turns begin and end,
        cycles are those from the first to the last, waits for other cores among them."""
        if not self.relayed:
            return core_uses(self.results, [self.turns] * len(self.config.cores), self.core_cycles())
        return tuple(
            CoreUse(
                items=self._items,
                cycles=sum(_busy(done, core) for done in self.relayed),
                alone=self._items * sum(run.cycles or 0 for run in own),
                bytes_read=self._items * sum(run.bytes_read for run in own),
                bytes_written=self._items * sum(run.bytes_written for run in own),
            )
            for core, own in enumerate(self._alone())
        )

    def close(self) -> None:
        """Wait for the run in progress; later runs are refused."""
        with self._lock:
            self._closed = True
            self.device.close()

    def __enter__(self) -> SplitModule:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
