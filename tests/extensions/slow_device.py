"""A device from outside of weft: the functional simulator, with time that is easy to predict."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import weft
from weft.hw.cycle_class import CycleClass
from weft.hw.isa import Engine, Finish
from weft.hw.programs import disassemble
from weft.sim.fsim import FunctionalSimulator
from weft.sim.result import ACTIVITY, EVENT, RunResult, Trace

CYCLES = 1000
"""Of every instruction. One runs at a time, in the order of the program."""


class SlowDevice(weft.LocalDevice):
    """A core that works on one instruction at a time."""

    name = "slow"
    has_time = True

    def __init__(self, config: weft.CoreConfig, *, progress: Callable[[str], None] | None = None) -> None:
        super().__init__(config, progress=progress)
        self._simulator = FunctionalSimulator(config, 0)

    def allocate(self, window_bytes: int) -> None:
        self._simulator = FunctionalSimulator(self.config, window_bytes)

    def memory(self) -> np.ndarray:
        return self._simulator.dram

    def execute(self, offset: int, count: int, trace: bool) -> RunResult:
        code = self.read(offset, count * self.config.instruction_bytes)
        result = self._simulator.run(offset, count)
        if result.fault is not None:
            return result
        instructions = disassemble(self.config, code)
        engines = np.array([each.engine for each in instructions if not isinstance(each, Finish)], np.int64)
        busy = {engine: int((engines == engine).sum()) * CYCLES for engine in Engine}
        total = len(engines) * CYCLES
        return replace(
            result,
            cycles=total,
            counters={
                engine: {CycleClass.BUSY: cycles, CycleClass.INSTRUCTION: total - cycles}
                for engine, cycles in busy.items()
            },
            trace=timeline(engines) if trace else None,
        )


def timeline(engines: np.ndarray) -> Trace:
    """When each instruction ran, and what each engine did in every cycle. ``engines``: of all instructions."""
    starts = np.arange(len(engines)) * CYCLES
    events = np.zeros(len(engines), EVENT)
    events["engine"], events["number"] = engines, np.arange(len(engines))
    events["start"], events["retire"] = starts, starts + CYCLES
    activity = np.zeros(len(engines) * len(Engine), ACTIVITY)
    for engine, part in zip(Engine, np.split(activity, len(Engine)), strict=True):
        part["engine"], part["start"], part["cycles"] = engine, starts, CYCLES
        part["kind"] = np.where(engines == engine, CycleClass.BUSY.value, CycleClass.INSTRUCTION.value)
    return Trace(events, activity)
