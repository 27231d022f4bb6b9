"""Why is it slow on several cores: each core's profile beside that of a core alone, and who had the bus when.

The timing model runs an item on each core, with traces. What a core loses to the others is the difference of two
profiles of one program: by cause, and by layer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..compiler.model import CompiledModel
from ..hw.system_config import SystemConfig
from ..sim.dram import DramModel
from ..sim.dram_interface import DramUse
from ..sim.result import BUS_USE
from ..sim.system_run import NOTHING, BusUse, SystemResult
from ..sim.system_timing import predict_system
from ..sim.timing_ports import TimedProgram
from .errors import DeviceError
from .module import StepRun
from .profile import Profile, profile, refuse_split
from .profile_cycles import Cause, Integers
from .profile_whatif import predict_runs
from .system_device import window_pitch
from .system_module import constant_pages, in_part

MODEL = "model"


@dataclass(frozen=True)
class CoreProfile:
    """One core of a system. ``together``: with all others at work; ``runs``: its traced programs; ``bursts_shared``: of
    ``bursts_read``, those that one read of the memory answered with other cores'; None on a port of its own."""

    core: int
    port: int
    together: Profile
    alone: Profile
    runs: Sequence[StepRun]
    bursts_read: int | None
    bursts_shared: int | None

    @property
    def waited(self) -> int:
        """Cycles that the others cost it."""
        return self.together.cycles - self.alone.cycles

    @property
    def lost(self) -> Mapping[Cause, int]:
        """Those cycles by what the array then waited for. They sum to ``waited``; a cause may have lost some."""
        both = self._causes(self.together), self._causes(self.alone)
        return {cause: both[0][cause] - both[1][cause] for cause in Cause}

    def _causes(self, of: Profile) -> Mapping[Cause, int]:
        return {cause: sum(layer.causes[cause] for layer in of.layers) for cause in Cause}


@dataclass(frozen=True)
class PortProfile:
    """The data bus of a port that cores share. ``uses``: runs of cycles with a word, in cycles of the whole run;
    ``cycles``: of the run."""

    port: int
    cores: tuple[int, ...]
    uses: BusUse
    cycles: int

    def words(self, core: int | None, *, writes: bool) -> int:
        """Cycles with a word for (or of) this core alone; for None, with one for several."""
        return int(self.uses["cycles"][self._chosen(core, writes)].sum())

    def binned(self, edges: Integers, core: int | None, *, writes: bool) -> Integers:
        """As :meth:`words`, between each two of ``edges``."""
        chosen = self.uses[self._chosen(core, writes)]
        if not len(chosen):
            return np.zeros(len(edges) - 1, np.int64)
        starts, cycles = chosen["start"].astype(np.int64), chosen["cycles"].astype(np.int64)
        before = np.append(0, np.cumsum(cycles))
        place = np.searchsorted(starts, edges, "right") - 1  # the last run that begins at an edge or before it
        inside = np.clip(edges - starts[place], 0, cycles[place])
        done = np.where(place >= 0, before[place] + inside, 0)
        return np.diff(done)

    def _chosen(self, core: int | None, writes: bool) -> npt.NDArray[np.bool_]:
        masks = self.uses["cores"]
        several = (masks & (masks - 1)) != 0
        mine = several if core is None else masks == 1 << core
        chosen: npt.NDArray[np.bool_] = mine & (self.uses["writes"] == writes)
        return chosen


@dataclass(frozen=True)
class SystemProfile:
    """An item on each core of ``config``, accounted for."""

    name: str
    config: SystemConfig
    dram: DramModel
    cycles: int
    cores: tuple[CoreProfile, ...]
    ports: tuple[PortProfile, ...]
    dram_use: DramUse | None = None
    """Of a DRAM with banks."""

    @property
    def throughput(self) -> float:
        """Items a cycle, against one core that has its memory alone."""
        return len(self.cores) * self.cores[0].alone.cycles / self.cycles


def timed_rounds(model: CompiledModel, config: SystemConfig) -> tuple[list[list[TimedProgram]], range]:
    """Of each program of the model the copies that the cores run, as a loaded model has them, and what they share."""
    shared = constant_pages(model.on_core) if config.shared_reads else NOTHING
    pitch = window_pitch(model.on_core.window_bytes)
    parts = [core * pitch for core in range(len(config.cores))]
    placed = [in_part(model, part) if shared else model for part in parts]
    rounds = [
        [
            TimedProgram(code=step.program, offset=step.program_offset + (part if shared else 0),
                         window_start=0 if shared else part)
            for part, step in zip(parts, steps, strict=True)
        ]
        for steps in zip(*(each.programs for each in placed), strict=True)
    ]  # fmt: skip
    return rounds, shared


def profile_system(model: CompiledModel, config: SystemConfig, dram: DramModel) -> SystemProfile:
    """Run an item on each core by the timing model, whose cycles are those of the system's RTL.

    Where the model has several programs, the cores begin each of them together. :class:`DeviceError` for a model
    without one, or whose programs are stages or split.
    """
    if model.stages > 1:
        raise DeviceError(f"{model.name} is in stages, of which a system runs one on each core, not an item",
                          hint="see weft.runtime.profile_shared, or compile it without stages")  # fmt: skip
    refuse_split(model)
    if not model.programs:
        raise DeviceError(f"{model.name} has no program on the core, so there are no cycles to account for")
    results: list[SystemResult] = []
    starts: list[int] = []
    rounds, shared = timed_rounds(model, config)
    for programs in rounds:
        starts.append(sum(each.cycles or 0 for each in results))
        results.append(predict_system(config, programs, dram, shared=shared, trace=True))
    alone = profile(model, predict_runs(model, dram), MODEL, dram)
    cycles = sum(each.cycles or 0 for each in results)
    cores = tuple(
        _core_profile(core, config.ports[core], model, results, starts, alone, dram)
        for core in range(len(config.cores))
    )
    ports = tuple(
        PortProfile(port, config.cores_of(port), joined_uses([each.bus[port] for each in results], starts), cycles)
        for port in range(config.port_count)
        if len(config.cores_of(port)) > 1
    )
    uses = [use for result in results if (use := result.dram) is not None]
    return SystemProfile(model.name, config, dram, cycles, cores, ports, sum(uses, DramUse()) if uses else None)


def _core_profile(
    core: int, port: int, model: CompiledModel, results: Sequence[SystemResult], starts: Sequence[int], alone: Profile,
    dram: DramModel,
) -> CoreProfile:  # fmt: skip
    runs = []
    for step, result in zip(model.programs, results, strict=True):
        own = result.cores[core]
        assert own is not None
        runs.append(StepRun(step, own))
    together = profile(model, runs, MODEL, dram, starts=starts)
    uses = [use for result in results if (use := result.port_use[core]) is not None]
    asked, joined = (sum(each.bursts_read for each in uses), sum(each.bursts_shared for each in uses))
    return CoreProfile(core, port, together, alone, runs, asked if uses else None, joined if uses else None)


def joined_uses(parts: Sequence[BusUse | None], starts: Sequence[int]) -> BusUse:
    """The uses of one bus by program after program, which begin in these cycles, by kind and in order of time."""
    moved = [np.zeros(0, BUS_USE)]
    for part, start in zip(parts, starts, strict=True):
        assert part is not None
        own = part.copy()
        own["start"] += np.uint64(start)
        moved.append(own)
    joined: BusUse = np.concatenate(moved)
    return joined[np.argsort(joined["start"], kind="stable")]
