"""The driver: one core in a loaded design, its windows, its runs, over ``pynq``.

In this order, before a core is asked for anything: the design is programmed, the core's magic number, instruction set
and configuration are compared with what the host expects. Memory is cached on the processor's side and is synced
explicitly: a window is one buffer, written back whole before a run and read back whole after it (since pynq 3.1 a sync
covers the whole buffer anyway).

The end of a run is seen by looking at the status again and again, or told by the core's interrupt; every wait has a
deadline. The interrupt only says when to look: if it comes without cause or not at all, the status still tells.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from .constants import Constants
from .errors import LinkError
from .interrupt import InterruptLine

STOP_SECONDS = 2.0
"""What a core may take to stop after a reset, and its bus to drain."""

LONGEST_SLEEP = 0.005
"""Seconds between two looks at the core, at most."""

BUSY_SECONDS = 2e-3
"""What a program may take before the interrupt is asked for: setting that up and being woken takes about as long."""

LONGEST_WAIT = 0.1
"""Seconds without an interrupt after which the driver looks at the core, and whether anybody wants its result."""

GRACE_SECONDS = 0.25
"""How much later than the core's end its interrupt may come."""

VAIN_WAKES = 4
"""So often the interrupt may come while the core runs: the controller tells once more of the run before."""

LOW = (1 << 32) - 1

Seen = TypeVar("Seen")

MEMORY_VARIABLE = "WEFT_BOARD_MEMORY"
MEMORY_FILE = "/proc/meminfo"
"""Where the kernel says how much contiguous memory there is; :data:`MEMORY_VARIABLE` names another file."""


@dataclass(frozen=True)
class Core:
    """What the host expects of the core."""

    hash: int
    version: int
    address_bits: int
    bus_bytes: int
    instruction_bytes: int


@dataclass(frozen=True)
class Run:
    """What a run came to. ``fault``: cause, engine and number of the instruction; ``counters``: engine, class and
    cycles; ``polls`` and ``wakes``: how often the driver looked at the core, and how often its interrupt came."""

    cycles: int
    fault: tuple[int, int, int] | None
    read_beats: int
    write_beats: int
    counters: list[tuple[int, int, int]]
    seconds: float
    polls: int
    wakes: int


class Window:
    """Memory that both sides see, with its address on the bus; ``data`` is the processor's view."""

    def __init__(self, buffer: Any) -> None:
        self._buffer = buffer
        self.address = int(buffer.device_address)
        self.data: npt.NDArray[np.uint8] = np.asarray(buffer).view(np.ndarray)
        self.dirty = True

    def write(self, offset: int, payload: bytes) -> None:
        """Copy bytes in; the core sees them from its next run on."""
        self.check(offset, len(payload))
        self.data[offset : offset + len(payload)] = np.frombuffer(payload, np.uint8)
        self.dirty = True

    def read(self, offset: int, size: int) -> bytes:
        """Copy bytes out: what was written last, by the host or by the core's last run."""
        self.check(offset, size)
        return self.data[offset : offset + size].tobytes()

    def to_core(self) -> None:
        """Make what the host wrote visible to the core."""
        if self.dirty:
            self._buffer.sync_to_device()
            self.dirty = False

    def from_core(self) -> None:
        """Make what the core wrote visible to the host."""
        self._buffer.sync_from_device()

    def free(self) -> None:
        """Give the memory back; the window is of no more use."""
        self.data = np.zeros(0, np.uint8)
        buffer, self._buffer = self._buffer, None
        if buffer is not None:
            buffer.freebuffer()

    def check(self, offset: int, size: int) -> None:
        """LinkError unless these bytes are inside."""
        if offset < 0 or size < 0 or offset + size > self.data.size:
            raise LinkError("range", f"bytes {offset}..{offset + size} are outside a window of {self.data.size} bytes")


class Driver:
    """A core whose registers ``block`` reads and writes (``read(offset)``, ``write(offset, value)``, as pynq's
    ``DefaultIP`` does); ``allocate(size)`` makes buffers as ``pynq.allocate`` does. ``line`` is the core's interrupt;
    without one, ``no_interrupt`` says why.

    LinkError if it is not the core that is expected.
    """

    def __init__(
        self, constants: Constants, core: Core, block: Any, allocate: Callable[[int], Any],
        line: InterruptLine | None = None, no_interrupt: str = "",
    ) -> None:  # fmt: skip
        self._constants, self._core, self._block, self._allocate = constants, core, block, allocate
        self._line, self._no_interrupt = line, no_interrupt
        self._registers, self._status = constants.registers, constants.status
        self._ended = self._status["DONE"] | self._status["FAULT"]
        self._busy = self._status["RUNNING"] | self._status["BUS_BUSY"]
        self._stuck = False
        self._check_identity()
        self._stop()

    def allocate(self, size: int) -> Window:
        """A window of zeros that the core can reach."""
        try:
            window = Window(self._allocate(size))
        except (MemoryError, RuntimeError, OSError) as error:
            raise LinkError("memory", f"no {size} bytes of memory for the core: {error}{free_memory()}") from None
        end = window.address + size
        if end > 1 << self._core.address_bits or window.address % self._constants.window_alignment:
            address = window.address
            window.free()
            raise LinkError(
                "address",
                f"the memory at {address:#x}..{end:#x} is out of the core's reach: it has {self._core.address_bits} "
                f"address bits, and a window begins at a multiple of {self._constants.window_alignment}",
            )
        window.data[:] = 0
        return window

    def run(
        self, window: Window, offset: int, count: int, *, seconds: float, watchdog: int,
        wait: str = "auto", gone: Callable[[], bool] = lambda: False,
    ) -> Run:  # fmt: skip
        """Run ``count`` instructions at byte ``offset`` of a window, and wait at most ``seconds``.

        ``wait``: ``poll``, ``interrupt`` (LinkError of that kind if it is not there, does not come or comes without
        cause), or ``auto``: by interrupt if it is of use and the program is not over at once.

        ``gone`` is asked now and then: if nobody wants the result any more, the core is stopped (LinkError ``closed``).

        A fault is a result; the core has been reset then. LinkError of kind ``deadline`` or ``stuck`` if it does not
        end: it has been reset, and if that did not help, nothing but loading the design again does.
        """
        if wait == "interrupt" and self._line is None:
            raise LinkError("interrupt", f"the core has no interrupt: {self._no_interrupt}")
        self.check_program(offset, count, window.data.size)
        window.to_core()
        self.set_up(window.address, window.data.size, offset, count, watchdog)
        started = time.monotonic()
        self._write("CONTROL", self._constants.control["START"])
        status, polls, wakes = self._wait(seconds, wait, gone)
        took = time.monotonic() - started
        if not self.is_over(status):
            raise self.gave_up(status, took)
        window.from_core()
        return self.ended(status, took, polls, wakes)

    # What a run consists of: cores of a system share it

    def check_program(self, offset: int, count: int, size: int) -> None:
        """LinkError unless these instructions are a program inside a window of so many bytes, and the core stands
        still."""
        if self._stuck:
            raise LinkError("stuck", "the core has not stopped since an earlier run: load the design again")
        if offset % self._constants.program_alignment or offset + count * self._core.instruction_bytes > size:
            raise LinkError("range", f"{count} instructions at byte {offset} are not a program inside the window")

    def set_up(self, address: int, size: int, offset: int, count: int, watchdog: int) -> None:
        """Tell the core its window and its program; it does not begin yet."""
        self._set("WINDOW_BASE_LO", address)
        self._set("WINDOW_SIZE_LO", size)
        self._write("PROGRAM_OFFSET", offset)
        self._write("PROGRAM_COUNT", count)
        self._write("WATCHDOG", watchdog)
        self._write("INTERRUPT_ENABLE", 0)
        self._write("CONTROL", self._constants.control["CLEAR_INTERRUPT"])

    def status(self) -> int:
        """The bits of STATUS."""
        return self._read("STATUS")

    def is_over(self, status: int) -> bool:
        """Whether a run has ended, and the bus is at rest."""
        return bool(status & self._ended) and not self.is_busy(status)

    def is_busy(self, status: int) -> bool:
        """Whether the core is at work, or its bus is."""
        return bool(status & self._busy)

    def has_fault(self, status: int) -> bool:
        """Whether a run has ended in a fault."""
        return bool(status & self._status["FAULT"])

    def ended(self, status: int, seconds: float, polls: int, wakes: int) -> Run:
        """What a run that is over came to; a core that has faulted is reset."""
        fault = None
        if self.has_fault(status):
            fault = (self._read("FAULT_CAUSE"), self._read("FAULT_ENGINE"), self._read("FAULT_NUMBER"))
        result = self._result(fault, seconds, polls, wakes)
        if fault is not None:
            self._stop()
        return result

    def try_settings(self, values: Sequence[tuple[int, int]]) -> list[int]:
        """Write settings (address and value) in this order, then read all of them back; they do not make the core do
        anything. LinkError for an address that is no setting, and while the core runs."""
        if odd := [address for address, _ in values if address not in self._constants.settings]:
            raise LinkError("range", f"register {odd[0]:#x} is no setting")
        if self._read("STATUS") & self._busy:
            raise LinkError("range", "the core is running")
        for address, value in values:
            self._block.write(address, value)
        return [self._block_read(address) for address, _ in values]

    def state(self) -> tuple[int, int]:
        """The status bits, and the cycles of the run so far."""
        return self._read("STATUS"), self._wide(self._registers["CYCLES_LO"])

    def _check_identity(self) -> None:
        core = self._core
        found = self._read("MAGIC")
        if found != self._constants.magic:
            raise LinkError(
                "identity", f"no core answers: its first register is {found:#x}, not {self._constants.magic:#x}"
            )
        found = self._read("VERSION")
        if found != core.version:
            raise LinkError("identity", f"the core has instruction set {found}, the model's program {core.version}")
        found = self._wide(self._registers["HASH_LO"])
        if found != core.hash:
            raise LinkError(
                "identity",
                f"the design holds the core {found:016x}, but the model is compiled for {core.hash:016x}: "
                "load the overlay that was built for it, or compile for the overlay's core",
            )

    def _stop(self) -> None:
        """Bring the core to rest, whatever it does."""
        self._write("CONTROL", self._constants.control["RESET"])
        busy = self._busy | self._status["FAULT"]
        status, _ = self._poll(lambda now: not now & busy, STOP_SECONDS)
        if status & busy:
            self._stuck = True
            raise LinkError("stuck", f"the core does not stop: its status is {status:#x} ({self._names(status)})")

    def gave_up(self, status: int, seconds: float) -> LinkError:
        """Reset a core that has not ended in time; what to tell the host."""
        message = f"the core has not ended after {seconds:.3g} s: its status is {status:#x} ({self._names(status)})"
        dead = status & self._status["RUNNING"] and not status & self._status["BUS_BUSY"] and not self._counts()
        try:
            self._stop()
        except LinkError as error:
            message, kind = f"{message}; {error.message}", error.kind
        else:
            kind = "deadline"
        if dead:
            return LinkError("clock", f"{message}; its counter of cycles stands still")
        return LinkError(kind, message)

    def _counts(self) -> bool:
        """Whether a running core counts cycles: in a millisecond it makes thousands."""
        before = self._wide(self._registers["CYCLES_LO"])
        time.sleep(1e-3)
        return self._wide(self._registers["CYCLES_LO"]) != before

    def _wait(self, seconds: float, wait: str, gone: Callable[[], bool]) -> tuple[int, int, int]:
        """Wait for the end of the run, at most so long; the last status, looks and wakes."""
        end = time.monotonic() + seconds
        line = None if wait == "poll" or (wait == "auto" and self._no_interrupt) else self._line
        if line is None:
            return (*self._poll(self.is_over, seconds, gone), 0)
        status, polls = self._poll(self.is_over, min(seconds, BUSY_SECONDS if wait == "auto" else 0.0), gone)
        if self.is_over(status):
            return status, polls, 0
        wakes = self._wait_for_interrupt(line, end, wait, gone)
        status, more = self._poll(self.is_over, max(0.0, end - time.monotonic()), gone)
        return status, polls + more, wakes

    def _wait_for_interrupt(self, line: InterruptLine, end: float, wait: str, gone: Callable[[], bool]) -> int:
        """Wait until the interrupt says that the run has ended, or the deadline has passed, or nobody waits any more;
        how often it came. If it is of no use the rest of this run, and later ones, are polled; LinkError instead if
        ``wait`` asks for it."""
        wakes = 0
        self._write("INTERRUPT_ENABLE", 1)
        try:
            while (left := end - time.monotonic()) > 0 and not gone():
                woken = line.wait(min(LONGEST_WAIT, left))
                wakes += woken
                if self._read("STATUS") & self._ended:
                    if not woken:
                        if not line.wait(GRACE_SECONDS):
                            raise LinkError("interrupt", "a program has ended, but its interrupt does not come")
                        wakes += 1
                    break
                if wakes > VAIN_WAKES:
                    raise LinkError("interrupt", f"the interrupt has come {wakes} times while the core ran")
        except LinkError as error:
            self._no_interrupt = error.message
            if wait == "interrupt":
                self._stop()
                raise
        finally:
            self._write("INTERRUPT_ENABLE", 0)
        return wakes

    def _poll(
        self, over: Callable[[int], object], seconds: float, gone: Callable[[], bool] = lambda: False
    ) -> tuple[int, int]:
        """Look at STATUS until ``over`` says so, as :func:`watch` does; the last status, and how many looks."""
        return watch(self.status, over, seconds, gone)

    def _result(self, fault: tuple[int, int, int] | None, seconds: float, polls: int, wakes: int) -> Run:
        cycles = self._wide(self._registers["CYCLES_LO"])
        counters: list[tuple[int, int, int]] = []
        found: dict[int, int] = {}
        for engine, kind, address in self._constants.counters:
            if found.get(engine, 0) < cycles:  # the classes of an engine sum to the cycles: no need for the rest
                count = self._wide(address) if cycles > LOW else self._block_read(address)
                found[engine] = found.get(engine, 0) + count
                if count:
                    counters.append((engine, kind, count))
        read_beats = sum(self._wide(address) for address in self._constants.read_beats)
        write_beats = self._wide(self._registers["WRITE_BEATS_LO"])
        return Run(cycles, fault, read_beats, write_beats, counters, seconds, polls, wakes)

    def _names(self, status: int) -> str:
        return " ".join(name for name, bit in self._status.items() if status & bit) or "nothing set"

    # Registers

    def _block_read(self, address: int) -> int:
        return int(self._block.read(address)) & LOW

    def _read(self, name: str) -> int:
        return self._block_read(self._registers[name])

    def _wide(self, address: int) -> int:
        return self._block_read(address) | self._block_read(address + 4) << 32

    def _write(self, name: str, value: int) -> None:
        self._block.write(self._registers[name], int(value))  # pynq takes no integers of NumPy

    def _set(self, low: str, value: int) -> None:
        """A setting in two registers."""
        address = self._registers[low]
        self._block.write(address, value & LOW)
        self._block.write(address + 4, value >> 32)


def watch(
    look: Callable[[], Seen], over: Callable[[Seen], object], seconds: float, gone: Callable[[], bool]
) -> tuple[Seen, int]:
    """Look again and again until what is seen is ``over``, the deadline has passed or nobody waits any more; what was
    seen last, and how many looks.

    The time between two looks is a sixteenth of the time waited so far: that much the answer may come late.
    """
    start = time.monotonic()
    looks = 0
    while True:
        waited = time.monotonic() - start
        seen = look()  # after the clock, so that the last look is at or behind the deadline
        looks += 1
        if over(seen) or waited >= seconds:
            return seen, looks
        if waited > 1e-3:
            if gone():
                return seen, looks
            time.sleep(min(LONGEST_SLEEP, waited / 16, max(0.0, seconds - waited)))


def contiguous_memory(path: Path | None = None) -> dict[str, int]:
    """What the kernel says of its contiguous memory: ``CmaTotal`` and ``CmaFree`` in bytes; nothing if it has none."""
    try:
        lines = (path or Path(os.environ.get(MEMORY_VARIABLE) or MEMORY_FILE)).read_text().splitlines()
    except OSError:
        return {}
    words = [line.replace(":", " ").split() for line in lines if line.startswith("Cma")]
    return {each[0]: int(each[1]) << 10 for each in words if len(each) == 3 and each[1].isdigit()}


def free_memory(path: Path | None = None) -> str:
    """The same as the end of a sentence."""
    found = [f"{name}: {size >> 10} kB" for name, size in contiguous_memory(path).items()]
    return f" ({', '.join(found)})" if found else ""
