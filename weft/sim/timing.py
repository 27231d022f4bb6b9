"""The timing model: predicts the cycles of a program without running the RTL, in the RTL's own cycle classes.

It repeats the control of the core (queues, tokens, bursts, micro-ops, ports, the DRAM model) and leaves out all data;
``docs/timing.md`` says how, and how far it can be trusted. The work is done in ``timing.cpp``; everything that it knows
of the core is derived in :mod:`.timing_interface` from ``hw/``.
"""

from __future__ import annotations

import ctypes
import hashlib
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from ..hw.config import CoreConfig
from ..hw.dram_rate import DramRate
from ..hw.programs import disassemble
from ..hw.system_config import SystemConfig
from .dram import DramModel
from .errors import SimulationError
from .result import ACTIVITY, EVENT, RunResult, Trace
from .timing_interface import Result, describe_core
from .timing_library import timing_library
from .timing_ports import CYCLE_LIMIT, TimedProgram, check_program, in_order, predict_together, records, result_of

PREDICTIONS_KEPT = 64
"""Programs that a :class:`Predictor` remembers: those of one network."""


@dataclass(frozen=True)
class Prediction:
    """What a program will do: ``result`` as a run reports it, and the cycles that had to be looked at one by one."""

    result: RunResult
    evaluated: int


def predict(
    config: CoreConfig,
    program: npt.NDArray[np.uint8],
    dram: DramModel | None = None,
    *,
    offset: int = 0,
    window_start: int = 0,
    trace: bool = False,
) -> RunResult:
    """Predict a run of ``program`` (instruction bytes, as :func:`weft.hw.programs.assemble` makes them).

    The program must be legal: run it on the functional simulator first if that is not known. Indices and addresses are
    not checked; errors of the bus (``dram.errors``) are left out. ``offset`` is the program's place in the window,
    ``window_start`` the window's in the memory, which counts only where that has banks.
    :class:`SimulationError` says that the program does not end, or asks for too much work; :class:`InstructionError`
    names an instruction that exists in no form.
    """
    return predict_details(config, program, dram, offset=offset, window_start=window_start, trace=trace).result


def predict_details(
    config: CoreConfig,
    program: npt.NDArray[np.uint8],
    dram: DramModel | None = None,
    *,
    offset: int = 0,
    window_start: int = 0,
    trace: bool = False,
    every_cycle: bool = False,
) -> Prediction:
    """:func:`predict`; ``every_cycle`` looks at every part in every cycle (slow; to test that nothing is missed)."""
    if dram is not None and dram.banks is not None:
        return _with_banks(config, TimedProgram(code=program, offset=offset, window_start=window_start), dram,
                           trace, every_cycle)  # fmt: skip
    code = np.ascontiguousarray(program, np.uint8)
    size = config.instruction_bytes
    count = len(code) // size
    check_program(config, code, offset)
    library = timing_library()
    core, result = describe_core(config, dram or DramModel.of(config)), Result()
    machine = library.weft_timing_predict(
        ctypes.byref(core), code.ctypes.data, count, offset, CYCLE_LIMIT, trace, every_cycle, ctypes.byref(result)
    )
    if not machine:
        disassemble(config, code)  # raises, and says why
    try:
        if result.cycles < 0:
            raise SimulationError(
                "the program does not end: its engines wait for each other",
                hint="run it on the functional simulator, which names them",
            )
        recorded = _trace(library, machine) if trace else None
    finally:
        library.weft_timing_delete(machine)
    return Prediction(replace(result_of(config, result), trace=recorded), int(result.evaluated))


def _with_banks(
    config: CoreConfig, program: TimedProgram, dram: DramModel, trace: bool, every_cycle: bool
) -> Prediction:
    """A core alone, as a system of one."""
    done = predict_together(SystemConfig(cores=(config,)), (0,), (program,), dram, trace=trace, every_cycle=every_cycle)
    return Prediction(replace(done.results[0], dram=done.dram), done.evaluated)


def program_cycles(config: CoreConfig, rate: DramRate, program: npt.NDArray[np.uint8], offset: int) -> int:
    """Cycles of a program with DRAM of this rate: what a compilation may ask for, as ``Job.measure``."""
    dram = DramModel(latency=rate.latency, bytes_per_cycle=rate.bytes_per_cycle)
    cycles = predict(config, program, dram, offset=offset).cycles
    assert cycles is not None  # the timing model always counts
    return cycles


class Predictor:
    """:func:`predict` for one core and memory; a program that comes again is not worked out again."""

    def __init__(self, config: CoreConfig, dram: DramModel) -> None:
        self.config = config
        self.dram = dram
        self._known: dict[tuple[bytes, int, bool], RunResult] = {}

    def predict(self, program: npt.NDArray[np.uint8], *, offset: int = 0, trace: bool = False) -> RunResult:
        """As :func:`predict`."""
        key = (hashlib.sha256(program.tobytes()).digest(), offset, trace)
        if key not in self._known:
            if len(self._known) == PREDICTIONS_KEPT:
                self._known.pop(next(iter(self._known)))
            self._known[key] = predict(self.config, program, self.dram, offset=offset, trace=trace)
        return self._known[key]


def _trace(library: ctypes.CDLL, machine: int) -> Trace:
    """The recorded trace."""
    return in_order(
        records(library, machine, "timing_events", EVENT), records(library, machine, "timing_activity", ACTIVITY)
    )
