"""A whole model on the board: its plan, carried out once for each item of a batch.

What the host's processor would do between programs of the core is done here, by functions of shared libraries that the
host has made for this processor. They get a table of five pointers: tables of pointers to the inputs and outputs, the
constants, the arena, and counters.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from .driver import Driver, Run, Window
from .errors import LinkError
from .plan import CONSTANT, INPUT, OUTPUT, Call, Check, Copy, CoreStep, HostStep, Place, Plan
from .team import Team, address_of

ALIGNMENT = 64
BATCH_BYTES = 1 << 28
"""Most bytes of the inputs, and of the outputs, of one batch."""

C_LIBRARIES = ("libm.so.6", "libgcc_s.so.1")
"""What the functions call besides the C library; the second divides long integers on 32-bit processors."""

Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Batch:
    """What a batch came to. ``runs``: the programs of the last item; ``cycles``: of the core, all items together."""

    done: int
    runs: tuple[Run, ...]
    cycles: int
    seconds: float


def load_library(path: Path) -> ctypes.CDLL:
    """A shared library; LinkError if this processor or its C library does not take it."""
    try:
        for name in C_LIBRARIES:
            ctypes.CDLL(name, mode=ctypes.RTLD_GLOBAL)
        return ctypes.CDLL(str(path), mode=ctypes.RTLD_LOCAL)
    except OSError as error:
        raise LinkError("code", f"the model's machine code cannot be loaded: {str(error)[:500]}") from None


def aligned(nbytes: int) -> Bytes:
    """Zeroed bytes that start at a multiple of :data:`ALIGNMENT`; LinkError if there are not so many."""
    try:
        memory = np.zeros(nbytes + ALIGNMENT, np.uint8)
    except (MemoryError, ValueError):
        raise LinkError("memory", f"no {nbytes} bytes of the processor's memory for the model") from None
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + nbytes]


class _HostPart:
    """One step on the processor, with the addresses that its functions get."""

    def __init__(
        self, step: HostStep, library: ctypes.CDLL, values: Sequence[Bytes], constants: Bytes, team: Team | None
    ) -> None:
        offset, size = step.constants
        self._arena = aligned(step.arena_bytes)
        self._constants = aligned(size)
        self._constants[:] = constants[offset : offset + size]
        self._values = {
            INPUT: [values[number] for number in step.inputs],
            OUTPUT: [values[number] for number in step.outputs],
        }
        self._counters = aligned(
            max((action.counter_bytes for action in step.actions if isinstance(action, Call)), default=0)
        )
        tables = [
            (ctypes.c_void_p * max(1, len(each)))(*(array.ctypes.data for array in each))
            for each in (self._values[INPUT], self._values[OUTPUT])
        ]
        addresses = [ctypes.addressof(table) for table in tables]
        addresses += [array.ctypes.data for array in (self._constants, self._arena, self._counters)]
        self._table = (ctypes.c_void_p * len(addresses))(*addresses)
        self._kept = tables
        self._team = team
        self.actions: list[Callable[[], object]] = [self._action(action, library) for action in step.actions]

    def _action(self, action: Call | Copy | Check, library: ctypes.CDLL) -> Callable[[], object]:
        if isinstance(action, Call):
            address = address_of(library, action.symbol)
            table, counters = ctypes.addressof(self._table), self._counters[: action.counter_bytes]
            if (team := self._team) is not None:
                return lambda: team.run(address, table, counters)
            call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(address)

            def run() -> None:
                counters[:] = 0
                call(table, 0)

            return run if action.counter_bytes else lambda: call(table, 0)
        if isinstance(action, Copy):
            source, target = self._place(action.source), self._place(action.target)

            def copy() -> None:
                target[:] = source

            return copy
        indices = self._place(action.indices).view(action.dtype)
        sizes = np.tile(np.array(action.sizes, np.int64), indices.size // len(action.sizes))
        return lambda: _check_indices(indices, sizes, action.node)

    def _place(self, place: Place) -> Bytes:
        if place.kind in self._values:
            memory = self._values[place.kind][place.number]
        else:
            memory = self._constants if place.kind == CONSTANT else self._arena
        return memory[place.offset : place.offset + place.nbytes]


def _check_indices(indices: npt.NDArray[Any], sizes: npt.NDArray[np.int64], node: str) -> None:
    outside = (indices < -sizes) | (indices >= sizes)
    if outside.any():
        index, size = int(indices[outside][0]), int(sizes[outside][0])
        raise LinkError("input", f"{node}: index {index} is outside of an axis of {size} elements")


class BoardModel:
    """A model with its memory. ``libraries``: those of the plan; ``window``: the core's memory with its programs."""

    def __init__(self, plan: Plan, libraries: Sequence[ctypes.CDLL], constants: bytes, window: Window) -> None:
        self.plan, self._window = plan, window
        self._values = [aligned(size) for size in plan.values]
        raw = np.frombuffer(constants, np.uint8)
        self._team = None
        if plan.threads > 1 and libraries:
            self._team = Team(libraries[0], plan.threads, aligned(plan.team_bytes))
        self._steps: list[CoreStep | _HostPart] = [
            step
            if isinstance(step, CoreStep)
            else _HostPart(step, libraries[step.library], self._values, raw, self._team)
            for step in plan.steps
        ]
        self._inputs = bytearray()
        self.outputs = b""

    def close(self) -> None:
        """End the model's threads."""
        if self._team is not None:
            self._team.end()

    def feed(self, offset: int, payload: bytes) -> None:
        """A part of the next batch's inputs; the first begins at 0, others where the last ended."""
        if offset == 0:
            self._inputs = bytearray()
        if offset != len(self._inputs) or offset + len(payload) > BATCH_BYTES:
            raise LinkError("range", f"bytes {offset}.. of inputs come after {len(self._inputs)}; most: {BATCH_BYTES}")
        self._inputs += payload

    def run(
        self, driver: Driver, count: int, *, seconds: float, watchdog: int, wait: str = "auto",
        gone: Callable[[], bool] = lambda: False,
    ) -> Batch:  # fmt: skip
        """Run a batch of ``count`` items, whose inputs were fed; ``outputs`` are its results then, item after item.

        The batch ends with the first program that ends in a fault. ``seconds`` is each program's deadline, ``wait``
        how its end is awaited.
        """
        plan = self.plan
        inputs, self._inputs, self.outputs = bytes(self._inputs), bytearray(), b""
        if len(inputs) != count * plan.input_bytes:
            raise LinkError("range", f"{len(inputs)} bytes of inputs came, not {count} x {plan.input_bytes}")
        if count * plan.output_bytes > BATCH_BYTES:
            raise LinkError("range", f"{count} x {plan.output_bytes} bytes of outputs are over {BATCH_BYTES}")
        results: list[bytes] = []
        runs: list[Run] = []
        cycles, started, place = 0, time.monotonic(), 0
        for number in range(count):
            for value in plan.inputs:
                memory = self._values[value]
                memory[:] = np.frombuffer(inputs, np.uint8, memory.size, place)
                place += memory.size
            runs = []
            for step in self._steps:
                if not isinstance(step, CoreStep):
                    for action in step.actions:
                        action()
                    continue
                run = self._program(driver, step, seconds=seconds, watchdog=watchdog, wait=wait, gone=gone)
                runs.append(run)
                cycles += run.cycles
                if run.fault is not None:
                    return Batch(number, tuple(runs), cycles, time.monotonic() - started)
            results += [self._values[value].tobytes() for value in plan.outputs]
            if gone():
                raise LinkError("closed", "nobody waits for the results any more")
        self.outputs = b"".join(results)
        return Batch(count, tuple(runs), cycles, time.monotonic() - started)

    def _program(self, driver: Driver, step: CoreStep, **options: Any) -> Run:
        window = self._window
        for value, offset in step.writes:
            window.check(offset, self._values[value].size)
            window.data[offset : offset + self._values[value].size] = self._values[value]
            window.dirty = True
        run = driver.run(window, step.offset, step.count, **options)
        if run.fault is None:
            for value, offset in step.reads:
                window.check(offset, self._values[value].size)
                self._values[value][:] = window.data[offset : offset + self._values[value].size]
        return run
