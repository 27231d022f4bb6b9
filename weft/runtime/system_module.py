"""A compiled model on all cores of a system: an item (a picture) on each, all at once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..compiler.model import CompiledModel, CorePart, CoreStep, HostStep
from ..hw.bus import PAGE_BYTES
from ..hw.isa import Load, Store
from ..hw.programs import assemble, disassemble, moved
from ..hw.system_config import SystemConfig
from ..imports import IMPORTS
from ..sim.dram import DramModel
from ..sim.system_run import NOTHING, SystemResult
from ..sim.timing import predict
from .device import Progress, memory_of
from .errors import CoreFaultError, DeviceError, InputError
from .item_window import Array, Inputs
from .module import LoadedModule
from .run_lock import PICKLE_THE_MODEL, RunLock, stays_here
from .system_device import CoreOfSystem, open_system

if TYPE_CHECKING:
    from ..sim.relay_run import RelayResult
    from .profile_system import SystemProfile


@dataclass(frozen=True)
class CoreUse:
    """What a core did in a run: items, cycles in programs, those of them that the same programs take on a core that has
    its memory alone, and bytes on the bus."""

    items: int
    cycles: int
    alone: int
    bytes_read: int
    bytes_written: int

    @property
    def waited(self) -> int:
        """Cycles that the other cores on its port cost it."""
        return self.cycles - self.alone


def core_uses(results: Sequence[SystemResult], programs: Sequence[int], alone: Sequence[int]) -> tuple[CoreUse, ...]:
    """What each core did in ``results``. ``programs`` of an item are on it, which take it so many cycles ``alone``."""
    uses = []
    for core, (count, cycles) in enumerate(zip(programs, alone, strict=True)):
        done = [ran for result in results if (ran := result.cores[core]) is not None]
        items = len(done) // count if count else 0  # a stage may be all the host's
        uses.append(
            CoreUse(
                items=items,
                cycles=sum(result.cycles or 0 for result in done),
                alone=items * cycles,
                bytes_read=sum(result.bytes_read for result in done),
                bytes_written=sum(result.bytes_written for result in done),
            )
        )
    return tuple(uses)


def relayed_use(done: RelayResult, core: int, alone: int) -> CoreUse:
    """What a core did in runs that others started: of all its runs, the last one's bytes, and where the device does not
    know when each began and ended, the last one's cycles."""
    runs, last = done.ended[core], done.last[core]
    of_last = (last.cycles or 0) if last else 0
    return CoreUse(
        items=runs,
        cycles=sum(map(len, done.spans[core])) if done.spans else runs * of_last,
        alone=runs * alone,
        bytes_read=runs * last.bytes_read if last else 0,
        bytes_written=runs * last.bytes_written if last else 0,
    )


def total_cycles(results: Sequence[SystemResult]) -> int:
    """Of results one after the other."""
    return sum(result.cycles or 0 for result in results)


def check_cores(model: CompiledModel, config: SystemConfig) -> CorePart:
    """The model's part on a core; :class:`DeviceError` if there is none, or it is for another core than these."""
    if model.core is None:
        raise DeviceError(f"nothing of {model.name!r} runs on a core", hint="compile it with target 'accel'")
    wanted = model.core.cores or (model.core.config,) * len(config.cores)
    for number, (core, own) in enumerate(zip(config.cores, wanted, strict=False)):
        if core.hash64 != own.hash64:
            what = f"stage {number} of the model" if model.core.cores else "the model"
            raise DeviceError(
                f"{what} is compiled for {own.name!r}, but core {number} is a {core.name!r}", at=f"cores[{number}]",
                hint="all cores of its system have to be those that a model is compiled for; unlike ones have stages: "
                "compile with cores=system.cores",
            )  # fmt: skip
    return model.core


def constant_pages(core: CorePart) -> range:
    """The pages of a window in which constants lie."""
    first = min((each.offset for each in core.constants), default=0)
    stop = max((each.offset + each.data.nbytes for each in core.constants), default=0)
    return range(first // PAGE_BYTES * PAGE_BYTES, -(-stop // PAGE_BYTES) * PAGE_BYTES)


def in_part(model: CompiledModel, start: int) -> CompiledModel:
    """The model with programs for a core whose part of the memory begins at byte ``start`` of its window: they read
    constants in the first part, and have all else in their own."""
    core = model.on_core
    config, granule = core.config, core.config.granule_bytes
    starts = np.array(sorted(each.offset for each in core.constants), np.int64)
    ends = np.array(sorted(each.offset + each.data.nbytes for each in core.constants), np.int64)

    def is_own(transfer: Load | Store) -> bool:
        byte = transfer.offset * granule
        return int(np.searchsorted(starts, byte, "right")) == int(np.searchsorted(ends, byte, "right"))

    def step_of(step: CoreStep | HostStep) -> CoreStep | HostStep:
        if isinstance(step, HostStep):
            return step
        instructions = moved(disassemble(config, step.program), start // granule, is_own)
        return replace(step, program=assemble(config, instructions))

    return replace(model, steps=tuple(map(step_of, model.steps)))


class SystemModule:
    """One model, loaded once for each core of a system, each with a window of its own.

    Items are run a round at a time: as many as there are cores. Where the model has several programs, the cores of a
    round begin each together.
    """

    __reduce__ = stays_here(PICKLE_THE_MODEL)

    def __init__(
        self, model: CompiledModel, config: SystemConfig, kind: str,
        load_core: Callable[[CompiledModel, CoreOfSystem], LoadedModule], *, dram: DramModel | None = None,
        progress: Progress | None = None,
    ) -> None:  # fmt: skip
        core = check_cores(model, config)
        self.model = model
        self.config = config
        memory = dram or memory_of(model)
        shared = constant_pages(core) if config.shared_reads else NOTHING
        self.device = open_system(kind, config, core.window_bytes, shared=shared, dram=memory, progress=progress)
        self.results: tuple[SystemResult, ...] = ()
        """Of the last run: each program of each round."""
        self._modules = [
            load_core(in_part(model, number * self.device.pitch) if shared else model, device)
            for number, device in enumerate(self.device.cores)
        ]
        self._lock = RunLock()

    def run(self, items: Sequence[Inputs]) -> list[dict[str, Array]]:
        """The outputs for each of ``items``, which are as for :meth:`LoadedModule.run`, in their order.

        Raises what that does; :class:`CoreFaultError` names the core whose program faulted.
        """
        if isinstance(items, Mapping) or not isinstance(items, Sequence) or not items:
            raise InputError("items must be a list of inputs, at least one", hint="give an item for each core")
        outputs: list[dict[str, Array]] = []
        results: list[SystemResult] = []
        with self._lock:
            for first in range(0, len(items), len(self._modules)):
                outputs += self._round(items[first : first + len(self._modules)])
                results += self.device.results
            self.results = tuple(results)
        return outputs

    def _round(self, items: Sequence[Inputs]) -> list[dict[str, Array]]:
        """An item on each core, from the first; a thread each, which meet at every program."""
        outputs: list[dict[str, Array]] = [{} for _ in items]
        errors: list[tuple[int, BaseException]] = []

        def run(core: int) -> None:
            try:
                outputs[core] = self._modules[core].run(items[core])
            except BaseException as error:
                errors.append((core, error))
                self.device.abandon()

        self.device.begin(len(items))
        threads = [threading.Thread(target=run, args=(core,)) for core in range(len(items))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        own = [each for each in errors if not isinstance(each[1], threading.BrokenBarrierError)]
        for core, error in sorted(own, key=lambda each: each[0]):
            if isinstance(error, CoreFaultError):
                error.add_note(f"core {core} of the system")
                error.message = f"core {core}: {error.message}"
            raise error
        return outputs

    @property
    def cycles(self) -> int:
        """Of the last run, from first start to last end, program after program; without time of the host."""
        return total_cycles(self.results)

    def alone(self) -> int:
        """Cycles of one item on a core that has its memory alone, by the timing model."""
        config = self.model.on_core.config
        runs = [
            predict(config, each.program, self.device.dram, offset=each.program_offset) for each in self.model.programs
        ]
        return sum(run.cycles or 0 for run in runs)

    def use(self) -> tuple[CoreUse, ...]:
        """What each core did in the last run."""
        cores = len(self.config.cores)
        return core_uses(self.results, [len(self.model.programs)] * cores, [self.alone()] * cores)

    def profile(self) -> SystemProfile:
        """Why it is slow: an item on each core by the timing model, whose cycles are those of the system's RTL."""
        with IMPORTS:
            from .profile_system import profile_system

        return profile_system(self.model, self.config, self.device.dram)

    def write_trace(self, path: str | Path) -> int:
        """Write the timeline of an item on each core, by the timing model, with the buses that cores share; number of
        slices written."""
        with IMPORTS:
            from .trace_system import write_system

        return write_system(self.model, self.profile(), path)

    def close(self) -> None:
        """Wait for the run in progress; later runs are refused."""
        with self._lock:
            for module in self._modules:
                module.close()
            self.device.close()

    def __enter__(self) -> SystemModule:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
