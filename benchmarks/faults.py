"""Faults of the memory while the whole core runs a convolution (ResNet-18's C9): what the core makes of them.

Each kind of fault is injected at random moments of the run. It must be reported with the right cause, or leave the
result as it was; the core must stop within the watchdog's time, and the next run must be correct.

The good run is simulated once: at every moment the process forks, and the child goes on with the fault in it.

    python benchmarks/faults.py --moments 200
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from common import Record, print_table, write_json
from conv_layers import SHAPES, Shape, layer, lowered
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from weft.compiler.compile import compile_model
from weft.hw.config import CoreConfig, named_config
from weft.hw.isa import Fault
from weft.runtime.device import Bytes, RtlDevice
from weft.runtime.module import load
from weft.sim.dram import BusFault, DramModel
from weft.sim.errors import SimulationError
from weft.sim.result import RunResult
from weft.sim.verilated import RtlSimulator

WATCHDOG_CYCLES = 3_000
"""More than the longest wait of the good run for anything."""

REPORT_CYCLES = 1_000
"""Between a fault's detection and the end of the run; the drain of the bus is in it."""

SMALL = Shape(8, 16, 16, 3, 1)
"""The layer of most second runs; every ``--full-each``-th is the same layer again."""


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


class RecordingDevice(RtlDevice):
    """Keeps what the window held before and after the program."""

    def execute(self, offset: int, count: int, trace: bool) -> RunResult:
        before = self.memory().copy()
        result = super().execute(offset, count, trace)
        self.workload = Workload(offset, count, before, self.memory().copy(), result.cycles or 0)
        return result


def good_run(name: str, shape: Shape, config: CoreConfig) -> Workload:
    """Compile a layer and run it without faults; its integers must be those of the functional simulator."""
    module = lowered(layer(name, shape, 0), config)
    model = compile_model(module, config, vthreads=2)
    x = np.random.default_rng(1).integers(-128, 128, module.main.params[0].shape).astype(np.int8)
    device = RecordingDevice(config)
    result = load(model, device).run({"x": x})["y"]
    if not np.array_equal(result, load(model, "fsim").run({"x": x})["y"]):
        raise SystemExit(f"{name}: the good run is not good")
    return device.workload


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
    """Runs one kind at a number of moments, each in a child process."""

    def __init__(self, config: CoreConfig, workload: Workload, following: Workload, full_each: int) -> None:
        self.workload = workload
        self.following = following
        self.full_each = full_each
        size = max(len(workload.before), len(following.before))
        self.simulator = RtlSimulator(config, size, watchdog=WATCHDOG_CYCLES)
        self.injected_at: int | None = None
        self.child_pipe = -1
        self.number = 0

    def run(self, kind: Kind, moments: list[int], seed: int, advance: Callable[[], None]) -> Counter[tuple[str, str]]:
        """Count (outcome, cause)."""
        found = Counter[tuple[str, str]]()
        numbers = iter(range(len(moments)))

        def visit(cycle: int) -> None:
            if self.injected_at is not None:
                return  # this is a child: its fault is in it
            number = next(numbers)
            reading, writing = os.pipe()
            if child := os.fork():
                os.close(writing)
                with os.fdopen(reading) as pipe:
                    text = pipe.read()
                os.waitpid(child, 0)
                outcome, cause = json.loads(text) if text else ("the simulator died", "")
                found[outcome, cause] += 1
                advance()
                return
            self.injected_at, self.child_pipe, self.number = cycle, writing, number
            kind.inject(self.simulator, self.workload, random.Random(f"{seed} {kind.name} {number}"))

        start(self.simulator, self.workload)
        result: RunResult | None = None
        try:
            result = self.simulator.run(
                self.workload.offset, self.workload.count, moments=sorted(moments), visit=visit,
                cycle_limit=3 * self.workload.cycles + 10 * WATCHDOG_CYCLES,
            )  # fmt: skip
        except SimulationError as error:
            if self.injected_at is None:
                raise
            self.leave("never ends", str(error)[:40])
        if self.injected_at is not None:
            self.leave(*self.outcome(kind, result))
        assert result is not None
        if not is_right(self.simulator, self.workload, result) or found.total() != len(moments):
            raise SystemExit("the run without a fault is not right, or ended before all moments")
        return found

    def outcome(self, kind: Kind, result: RunResult | None) -> tuple[str, str]:
        """What came of the fault, and the cause reported."""
        assert result is not None
        assert self.injected_at is not None
        happened = self.simulator.injected or kind.stored
        cause = result.fault.cause.name if result.fault else ""
        if result.fault is None and not np.array_equal(
            self._data(self.simulator.dram), self._data(self.workload.after)
        ):
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

    def leave(self, outcome: str, cause: str) -> None:
        """End of a child."""
        os.write(self.child_pipe, json.dumps([outcome, cause]).encode())
        os._exit(0)


def print_outcomes(outcomes: dict[str, Counter[tuple[str, str]]]) -> None:
    """A row for each kind, a column for each outcome."""
    columns = list(dict.fromkeys([*GOOD, *(outcome for found in outcomes.values() for outcome, _ in found)]))
    rows = []
    for name, found in outcomes.items():
        causes = ", ".join(sorted({cause for _, cause in found if cause}))
        counts = (sum(count for (outcome, _), count in found.items() if outcome == column) for column in columns)
        rows.append([name, str(found.total()), *map(str, counts), causes])
    print_table("Faults of the memory during C9", ["kind", "runs", *columns, "causes reported"], rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--moments", type=int, default=200, help="of each kind of fault")
    parser.add_argument("--config", default="pynq")
    parser.add_argument("--layer", default="C9", choices=sorted(SHAPES))
    parser.add_argument("--full-each", type=int, default=20, help="every so many runs the next one is the layer again")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="write flat records to this file")
    arguments = parser.parse_args()
    config = named_config(arguments.config)
    workload = good_run(arguments.layer, SHAPES[arguments.layer], config)
    following = good_run("small", SMALL, config)
    print(f"{arguments.layer}: {workload.count} instructions, {workload.cycles:,} cycles", flush=True)
    campaign = Campaign(config, workload, following, arguments.full_each)
    outcomes: dict[str, Counter[tuple[str, str]]] = {}
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns) as progress:
        for kind in KINDS:
            choice = random.Random(f"{arguments.seed} {kind.name}")
            moments = [choice.randrange(workload.cycles) for _ in range(arguments.moments)]
            task = progress.add_task(kind.name, total=len(moments))
            outcomes[kind.name] = campaign.run(kind, moments, arguments.seed, lambda task=task: progress.advance(task))
    print_outcomes(outcomes)
    records = [
        Record(config.name, f"{arguments.layer}, {name}", " ".join(filter(None, key)), count)
        for name, found in outcomes.items() for key, count in found.items()
    ]  # fmt: skip
    if arguments.json:
        write_json(arguments.json, records)
    bad = sum(count for found in outcomes.values() for (outcome, _), count in found.items() if outcome not in GOOD)
    print(f"{sum(found.total() for found in outcomes.values())} runs, {bad} bad")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
