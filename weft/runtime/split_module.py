"""A model whose layers are shared by the cores of a system: all work on one item (a picture), for a short latency.

All cores have one window. In a turn each runs its program, which computes its part of some layers; the next turn begins
once all have ended. In a turn no core touches what another one writes (`check_turn` of the compiler).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..compiler.model import CompiledModel, CoreStep
from ..hw.system_config import SystemConfig
from ..sim.dram import DramModel
from ..sim.system_run import NOTHING, SystemResult
from ..sim.timing import predict
from .device import Progress, memory_of
from .errors import CoreFaultError, DeviceError, InputError
from .item_window import Array, Inputs, checked_item, core_program, read_outputs, write_inputs, write_model
from .module import HostRun, LoadHost
from .run_lock import RunLock
from .system_device import SystemDevice
from .system_module import CoreUse, check_cores, constant_pages, core_uses, total_cycles


@dataclass(frozen=True)
class _Turn:
    """The programs of all cores, and what the host does before them."""

    host: tuple[HostRun, ...]
    programs: tuple[CoreStep, ...]


class SplitModule:
    """A model in memory, ready to run as often as wanted, from any thread; one run at a time.

    Items run one after the other, each on all cores. Cycles are those of programs: time of the host is not counted.
    """

    def __init__(
        self, model: CompiledModel, config: SystemConfig, kind: str, load_host: LoadHost, *,
        dram: DramModel | None = None, progress: Progress | None = None,
    ) -> None:  # fmt: skip
        core = check_cores(model, config)
        if model.shared_by != len(config.cores):
            raise DeviceError(f"{model.name!r} is split over {model.shared_by} cores, but the system has "
                              f"{len(config.cores)}", hint="compile it for as many as there are")  # fmt: skip
        self.model = model
        self.config = config
        self.results: tuple[SystemResult, ...] = ()
        """Of the last run: each turn of each item."""
        self._core = core
        self._turns: list[_Turn] = []
        host: list[HostRun] = []
        for step in model.steps:
            if not isinstance(step, CoreStep):
                host.append(HostRun.of(step, load_host(step.program)))
            elif step.core == 0:
                own = tuple(each for each in model.programs if each.turn == step.turn)
                self._turns.append(_Turn(tuple(host), own))
                host = []
        self._last = tuple(host)
        self._wanted = model.wanted_on_host
        self._items = 0
        shared = constant_pages(core) if config.shared_reads else NOTHING
        self.device = SystemDevice(config, kind, core.window_bytes, shared=shared, dram=dram or memory_of(model),
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
            try:
                for item in values:
                    self._run(item, results)
            except BaseException:
                write_model(self.model, self.device.window(0))
                raise
            self.results, self._items = tuple(results), len(items)
        return [{tensor.name: each[tensor.name] for tensor in self.model.outputs} for each in values]

    def _run(self, values: dict[str, Array], results: list[SystemResult]) -> None:
        """One item, turn by turn."""
        window = self.device.window(0)
        for turn in self._turns:
            for host in turn.host:
                host.run(values, {}, [])
            for step in turn.programs:
                write_inputs(self._core, step, values, window)
            done = self.device.run([core_program(self._core, step) for step in turn.programs])
            for core, result in done.faults.items():
                raise CoreFaultError(f"core {core}: {result.fault}", result)
            results.append(done)
            for step in turn.programs:
                read_outputs(self._core, step, self._wanted, values, window)
        for host in self._last:
            host.run(values, {}, [])

    @property
    def turns(self) -> int:
        """Turns of an item."""
        return len(self._turns)

    @property
    def cycles(self) -> int:
        """Of the last run, from the first start to the last end, turn after turn; without time of the host."""
        return total_cycles(self.results)

    @property
    def latency(self) -> int:
        """Cycles of one item in the last run."""
        return self.cycles // self._items if self._items else 0

    def core_cycles(self) -> tuple[int, ...]:
        """Cycles of an item's programs on each core, on one that has its memory alone, by the timing model."""
        cycles = [0] * len(self.config.cores)
        for step in self.model.programs:
            run = predict(self._core.config, step.program, self.device.dram, offset=step.program_offset)
            cycles[step.core] += run.cycles or 0
        return tuple(cycles)

    def use(self) -> tuple[CoreUse, ...]:
        """What each core did in the last run."""
        return core_uses(self.results, [len(self._turns)] * len(self.config.cores), self.core_cycles())

    def close(self) -> None:
        """Wait for the run in progress; later runs are refused."""
        with self._lock:
            self._closed = True

    def __enter__(self) -> SplitModule:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
