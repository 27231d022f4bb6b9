"""Several cores as one Verilog module in Verilator, with a memory behind each port: exact bytes and exact cycles."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

from ..hw.bus import PAGE_BYTES
from ..hw.mac_array_packed import Multipliers
from ..hw.register_windows import GROUP_MEMBERS, GROUP_WINDOW, SHARED_START, SHARED_STOP, WINDOW_BYTES
from ..hw.registers import Control, Register, Status
from ..hw.relay_plan import (
    RelayControl,
    RelayPlan,
    RelayRegister,
    RelayStatus,
    mask_of,
    settings_of_plan,
    settings_of_turns,
)
from ..hw.system_config import SystemConfig
from . import harness
from .build import Progress
from .dram import DramModel
from .errors import SimulationError
from .harness import Outcome
from .relay_run import Host, RelayResult, check_relay, check_turns
from .result import EVENT, RunResult
from .rtl import (
    BASE_ADDRESS,
    CYCLE_LIMIT,
    READS,
    WATCHDOG_CYCLES,
    RtlMachine,
    check_window,
    result_of,
    settings_of,
    simulator_library,
)
from .system_run import NOTHING, CoreProgram, SystemResult, check_programs, check_shared
from .waves import WaveRequest, Waves

START_CYCLES = 21
"""From the begin of the write that starts cores to the first cycle that their own counters count."""


class RtlSystem(RtlMachine):
    """The cores of a system with their memory: one array of bytes, which each port reads and writes at its own rate.

    The simulator is built on first use and kept, as :class:`~weft.sim.rtl.RtlSimulator`'s; ``quick`` and ``waves`` as
    there. Cycle 0 of a run's waveform is that of the core that starts first. A fault of one core stops that core alone:
    the others go on to their ends, and the next run finds all cores as after a reset.
    """

    def __init__(
        self,
        config: SystemConfig,
        memory_bytes: int,
        *,
        dram: DramModel | None = None,
        watchdog: int = WATCHDOG_CYCLES,
        progress: Progress | None = None,
        quick: bool = False,
        waves: WaveRequest | None = None,
    ) -> None:
        self.config = config
        self.watchdog = watchdog
        kind = Waves.NONE if waves is None else waves.format
        built = simulator_library(config, Multipliers.PLAIN, quick, progress, kind)
        super().__init__(config.cores[0], *built, memory_bytes, dram)
        if waves is not None:
            self._open_waves(waves)

    def run(
        self, programs: Sequence[CoreProgram | None], *, shared: range = NOTHING, cycle_limit: int = CYCLE_LIMIT
    ) -> SystemResult:
        """Run a program on each core that has one, and wait for all of them.

        Cores that start in one cycle are started by one write to the group's window; others each by a write of its
        own, which takes some cycles: ``starts`` of the result says when each did start. ``shared``: bytes of the
        memory, whole pages, in which cores that have a port together share their reads of weights; only where the
        system can. :class:`SimulationError` for a window that is not in the memory, a core that breaks the bus
        protocol, or cores that have not all ended after ``cycle_limit`` cycles.
        """
        ran = [(core, program) for core, program in enumerate(programs) if program is not None]
        writes = self._settings_of(programs, shared)
        groups: dict[int, list[int]] = {}
        for core, program in sorted(ran, key=lambda each: each[1].start):
            groups.setdefault(program.start, []).append(core)
        if len(groups) == 1:
            writes.append((GROUP_MEMBERS, sum(1 << core for core, _ in ran)))
            starts = [harness.Start(GROUP_WINDOW + Register.CONTROL, Control.START, 0)]
        else:
            first = min(groups)
            starts = [
                harness.Start(core * WINDOW_BYTES + Register.CONTROL, Control.START, cycle - first)
                for cycle, cores in groups.items()
                for core in cores
            ]
        in_turn = [core for cores in groups.values() for core in cores]
        results, begun = self._run(in_turn, writes, starts, sum(1 << core for core in in_turn), cycle_limit)
        return SystemResult(results, begun, dram=self.dram_use())

    def relay(
        self, plan: RelayPlan, programs: Sequence[Sequence[CoreProgram]], runs: int, *, host: Host | None = None,
        shared: range = NOTHING, cycle_limit: int = CYCLE_LIMIT,
    ) -> RelayResult:  # fmt: skip
        """``runs`` runs of each core, in turn of its programs, all by one start: the cores start each other as ``plan``
        says, and the ``start`` of a program says nothing. After a fault no more begin. Errors as of :meth:`run` and
        :func:`~weft.sim.relay_run.check_relay`.

        With ``host``, only the runs whose windows are free are released at first. It is called once all cores have
        ended a run, while others go on; then the next run in that window is released.
        """
        check_relay(self.config, plan, programs, runs)
        check_turns(self.config, programs)
        reach = (min(plan.slots, runs) - 1) * plan.pitch
        first_turn = [own[0] for own in programs]
        for program in first_turn:
            check_window(program.window_start, program.window_bytes + reach, len(self.dram))
        cores = list(range(len(programs)))
        writes = [*self._settings_of(first_turn, shared), (GROUP_MEMBERS, mask_of(frozenset(cores)))]
        writes += settings_of_plan(plan, runs)
        writes += settings_of_turns([[(each.offset, each.count) for each in own] for own in programs])
        starts = [harness.Start(RelayRegister.RELAY_CONTROL, RelayControl.START, 0)]
        if host is not None:
            writes += _served(plan, runs, 0)
            for number in range(runs):
                more = number < runs - 1
                outcome = self._wait(writes, starts, (harness.Access * 0)(), 1 << len(cores), cycle_limit, more=more)
                writes, starts = [], []
                status = RelayStatus(self.read_register(RelayRegister.RELAY_STATUS))
                if outcome != Outcome.FINISHED or RelayStatus.HALTED in status:
                    break
                host(number)
                for write in _served(plan, runs, number + 1):
                    self.write_register(*write)
        results, _ = self._run(cores, writes, starts, 1 << len(cores), cycle_limit)
        ended = tuple(self.read_register(RelayRegister.ENDED + 4 * core) for core in cores)
        cycles = [self.read_register(RelayRegister.RELAY_CYCLES_LO + 4 * half) for half in (0, 1)]
        self.write_register(RelayRegister.RELAY_CONTROL, RelayControl.STOP)
        recorded = self._records("weft_spans", EVENT)
        first = int(min(recorded["start"], default=0))
        spans = tuple(
            tuple(
                range(int(each["start"]) - first, int(each["retire"]) - first)
                for each in recorded[recorded["engine"] == core]
            )
            for core in cores
        )
        last = tuple(result if own else None for result, own in zip(results, spans, strict=True))
        return RelayResult(ended, last, spans, cycles[0] | cycles[1] << 32, self.dram_use())

    def _settings_of(self, programs: Sequence[CoreProgram | None], shared: range) -> list[tuple[int, int]]:
        """Addresses and values of the registers that the cores need before their starts."""
        check_shared(self.config, shared)
        check_programs(self.config, programs)
        writes = []
        for core, program in enumerate(programs):
            if program is None:
                continue
            check_window(program.window_start, program.window_bytes, len(self.dram))
            settings = settings_of(
                program.offset, program.count, program.window_start, program.window_bytes, self.watchdog
            )
            writes += [(core * WINDOW_BYTES + address, value) for address, value in settings]
        if self.config.shared_reads:
            first = BASE_ADDRESS + shared.start
            writes += [(SHARED_START, first // PAGE_BYTES), (SHARED_STOP, (first + len(shared)) // PAGE_BYTES)]
        return writes

    def _run(
        self, cores: list[int], writes: list[tuple[int, int]], starts: list[harness.Start], interrupts: int,
        cycle_limit: int,
    ) -> tuple[tuple[RunResult | None, ...], tuple[int, ...]]:  # fmt: skip
        """``cores`` in the order of their starts, of which there is one each, or one for all, until all of
        ``interrupts`` are high. The results, and the starts."""
        places = [(core, address) for core in cores for address in READS]
        reads = (harness.Access * len(places))(
            *(harness.Access(core * WINDOW_BYTES + address, 0) for core, address in places)
        )
        outcome = self._wait(writes, starts, reads, interrupts, cycle_limit)
        values: dict[int, dict[int, int]] = {core: {} for core in cores}
        for (core, address), access in zip(places, reads, strict=True):
            values[core][address] = access.value
        stati = {core: Status(values[core][Register.STATUS]) for core in cores}
        for core, status in stati.items():
            if outcome != Outcome.FINISHED or Status.FAULT in status:
                self.write_register(core * WINDOW_BYTES + Register.CONTROL, Control.RESET)
        if any(Status.BUS_BUSY in status for status in stati.values()):
            self._library.weft_reset(self._machine, ctypes.byref(self._settings))
        if outcome == Outcome.PROTOCOL_ERROR:
            problem = self._library.weft_protocol_error(self._machine).decode()
            raise SimulationError(f"the system broke the bus protocol: {problem}")
        if outcome == Outcome.CYCLE_LIMIT:
            waiting = ", ".join(str(core) for core in sorted(cores) if Status.RUNNING in stati[core])
            raise SimulationError(f"after {cycle_limit} cycles these cores have not finished: {waiting}")
        results: list[RunResult | None] = [None] * len(self.config.cores)
        begun = [0] * len(self.config.cores)
        for place, core in enumerate(cores):
            results[core] = result_of(self.config.cores[core], values[core])
            begun[core] = starts[place].cycle if len(starts) > 1 else 0
        return tuple(results), tuple(begun)

    def _wait(
        self, writes: list[tuple[int, int]], starts: list[harness.Start], reads: ctypes.Array[harness.Access],
        interrupts: int, cycle_limit: int, *, more: bool = False,
    ) -> int:  # fmt: skip
        """Writes and starts, whose cycles are filled in; then until all of ``interrupts`` are high; then ``reads``,
        whose values are filled in. With neither writes nor starts, what runs goes on; with ``more`` it will after this.
        The outcome."""
        before = (harness.Access * len(writes))(*(harness.Access(*write) for write in writes))
        first = (harness.Start * len(starts))(*starts)
        request = harness.Run(
            before=ctypes.addressof(before),
            before_count=len(before),
            starts=ctypes.addressof(first),
            starts_count=len(first),
            reads=ctypes.addressof(reads),
            reads_count=len(reads),
            status_address=Register.STATUS,
            status_busy=Status.BUS_BUSY,
            interrupts=interrupts,
            core_bytes=WINDOW_BYTES,
            cycle_limit=cycle_limit,
            uncounted=START_CYCLES,
            more=more,
        )
        outcome: int = self._library.weft_run(self._machine, ctypes.byref(request))
        starts[:] = first
        return outcome


def _served(plan: RelayPlan, runs: int, count: int) -> list[tuple[int, int]]:
    """Addresses and values of the registers once the host has served so many runs of ``runs``."""
    return [
        (RelayRegister.RELEASED, min(count + plan.slots, runs)),
        (RelayRegister.NOTIFY, min(count + 1, runs)),
    ]
