"""Faults of the memory at random moments of a run, and what the core makes of them.

The good run is simulated once: at every moment the process forks, and the child goes on with the fault in it.
"""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

import numpy as np

from ..hw.isa import Fault
from .dram import BusFault, DramModel
from .errors import SimulationError
from .result import RunResult
from .rtl import RtlSimulator
from .state import Bytes

WATCHDOG_CYCLES = 3_000
"""More than the longest wait of a good run for anything."""

REPORT_CYCLES = 1_000
"""Between a fault's detection and the end of the run."""


@dataclass(frozen=True)
class Workload:
    """A program with the window's bytes before and after its good run."""

    offset: int
    count: int
    before: Bytes
    after: Bytes
    cycles: int


@dataclass(frozen=True)
class Kind:
    """A kind of fault: how it is injected, and as what it may be reported."""

    name: str
    inject: Callable[[RtlSimulator, Workload, random.Random], None]
    causes: frozenset[Fault]
    stored: bool = False  # it has happened as soon as it is injected


def bus(fault: BusFault) -> Callable[[RtlSimulator, Workload, random.Random], None]:
    """The memory does this wrong once."""

    def inject(simulator: RtlSimulator, workload: Workload, choice: random.Random) -> None:
        simulator.inject(fault, bit=choice.randrange(simulator.config.bus_bits))

    return inject


def flip_stored(bits: int) -> Callable[[RtlSimulator, Workload, random.Random], None]:
    """Bits of one instruction flip in DRAM."""

    def inject(simulator: RtlSimulator, workload: Workload, choice: random.Random) -> None:
        size = simulator.config.instruction_bytes
        start = workload.offset + choice.randrange(workload.count) * size
        for bit in choice.sample(range(8 * size), bits):
            simulator.dram[start + bit // 8] ^= 1 << bit % 8

    return inject


KINDS = (
    Kind("error on a read", bus(BusFault.READ_ERROR), frozenset({Fault.BUS_READ})),
    Kind("error on a write", bus(BusFault.WRITE_ERROR), frozenset({Fault.BUS_WRITE})),
    Kind("read never answered", bus(BusFault.LOST_READ), frozenset({Fault.WATCHDOG})),
    Kind("write never answered", bus(BusFault.LOST_WRITE), frozenset({Fault.WATCHDOG})),
    Kind("memory hangs", bus(BusFault.HUNG), frozenset({Fault.WATCHDOG})),
    Kind("instruction bit flips in DRAM", flip_stored(1), frozenset({Fault.CORRUPT}), stored=True),
    Kind("two bits of an instruction flip in DRAM", flip_stored(2), frozenset({Fault.CORRUPT}), stored=True),
    Kind("instruction bit flips on the bus", bus(BusFault.FLIPPED_READ), frozenset({Fault.CORRUPT})),
)

GOOD = ("reported", "no effect", "nothing to spoil")
"""Outcomes that may be. The last: nothing of the kind came after the moment, as a write after the last."""


def start(simulator: RtlSimulator, workload: Workload) -> None:
    """Memory as it was before the good run, without faults."""
    simulator.set_dram(DramModel())
    simulator.dram[:] = 0
    simulator.dram[: len(workload.before)] = workload.before


def is_right(simulator: RtlSimulator, workload: Workload, result: RunResult) -> bool:
    """Every byte of the window as the good run left it."""
    same = np.array_equal(simulator.dram[: len(workload.after)], workload.after)
    return result.fault is None and same and result.cycles == workload.cycles


class Campaign:
    """Runs one kind at a number of moments, each in a child process.

    simulator
        Large enough for both workloads; its watchdog is ``WATCHDOG_CYCLES``.
    following
        The next run after a fault; every ``full_each``-th time it is ``workload`` again.
    """

    def __init__(self, simulator: RtlSimulator, workload: Workload, following: Workload, *, full_each: int) -> None:
        self.workload = workload
        self.following = following
        self.full_each = full_each
        self.simulator = simulator
        self.report_to: int | None = None  # in a child: the pipe to its parent
        self.number = 0  # of the moment

    def run(self, kind: Kind, moments: list[int], seed: int, advance: Callable[[], None]) -> Counter[tuple[str, str]]:
        """Count (outcome, cause)."""
        outcomes = Counter[tuple[str, str]]()

        def visit(cycle: int) -> None:
            if self.report_to is not None:
                return  # a child has its fault
            reading, writing = os.pipe()
            if child := os.fork():
                os.close(writing)
                outcomes[_outcome_of(child, reading)] += 1
                self.number += 1
                advance()
            else:
                self.report_to = writing
                kind.inject(self.simulator, self.workload, random.Random(f"{seed} {kind.name} {self.number}"))

        self.number = 0
        start(self.simulator, self.workload)
        try:
            result = self.simulator.run(
                self.workload.offset, self.workload.count, moments=sorted(moments), visit=visit,
                cycle_limit=3 * self.workload.cycles + 10 * WATCHDOG_CYCLES,
            )  # fmt: skip
        except SimulationError as error:
            if self.report_to is None:
                raise
            _leave(self.report_to, "never ends", error.message)
        if self.report_to is not None:
            _leave(self.report_to, *self.outcome(kind, result))
        if not is_right(self.simulator, self.workload, result) or outcomes.total() != len(moments):
            raise SimulationError("the run without a fault is not right, or ended before all moments")
        return outcomes

    def outcome(self, kind: Kind, result: RunResult) -> tuple[str, str]:
        """What came of the fault, and the cause reported."""
        happened = self.simulator.injected or kind.stored
        cause = result.fault.cause.name if result.fault else ""
        same = np.array_equal(self._data(self.simulator.dram), self._data(self.workload.after))
        if result.fault is None and not same:
            return "wrong result called good", cause
        if result.fault is not None and result.fault.cause not in kind.causes:
            return "wrong cause", cause
        if (result.cycles or 0) > self.workload.cycles + WATCHDOG_CYCLES + REPORT_CYCLES:
            return "too late", cause
        again = self.workload if self.number % self.full_each == 0 else self.following
        start(self.simulator, again)
        try:
            if not is_right(self.simulator, again, self.simulator.run(again.offset, again.count)):
                return "next run wrong", cause
        except SimulationError:
            return "next run never ends", cause
        if result.fault is not None:
            return "reported", cause
        return ("no effect" if happened else "nothing to spoil"), cause

    def _data(self, dram: Bytes) -> Bytes:
        """The window without the program, in which a flipped bit stays."""
        code = self.workload.count * self.simulator.config.instruction_bytes
        data = dram[: len(self.workload.after)].copy()
        data[self.workload.offset : self.workload.offset + code] = 0
        return data


def _leave(pipe: int, outcome: str, cause: str) -> NoReturn:
    """End of a child."""
    os.write(pipe, json.dumps([outcome, cause]).encode())
    os._exit(0)


def _outcome_of(child: int, pipe: int) -> tuple[str, str]:
    """Wait for a child, and for what it has found."""
    with os.fdopen(pipe) as file:
        text = file.read()
    os.waitpid(child, 0)
    outcome, cause = json.loads(text) if text else ("the simulator died", "")
    return str(outcome), str(cause)
