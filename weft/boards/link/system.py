"""The driver of a system: several cores in a loaded design, which one buffer of memory and one start serve.

Each core has registers and a driver of its own (:mod:`.driver`). What is here begins all of them in one cycle, waits
until all have ended, and names the core that something is wrong with. A fault ends its core alone: the others go on to
their ends, so that after each run all stand still.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from .constants import Constants
from .driver import Core, Driver, Run, Window, watch
from .errors import LinkError


@dataclass(frozen=True)
class Program:
    """What one core runs: ``count`` instructions at byte ``offset`` of its part of the buffer, which begins at byte
    ``start`` and has ``size``."""

    start: int
    size: int
    offset: int
    count: int


@dataclass(frozen=True)
class Relayed:
    """What runs of cores that start each other came to. ``runs``: the last one of each core, None if there was none;
    ``ended``: how many each has ended without a fault; ``cycles``: from the first begin to the last end."""

    runs: list[Run | None]
    ended: list[int]
    cycles: int


class CoreRegisters:
    """The registers of one core in those of a system."""

    def __init__(self, block: Any, base: int) -> None:
        self._block, self._base = block, base

    def read(self, address: int) -> Any:
        return self._block.read(self._base + address)

    def write(self, address: int, value: int) -> None:
        self._block.write(self._base + address, value)


class SystemDriver:
    """Cores whose registers ``block`` reads and writes; ``allocate(size)`` makes buffers, as for
    :class:`~.driver.Driver`. Ends are seen by looking.

    LinkError if they are not the cores that are expected.
    """

    def __init__(self, constants: Constants, cores: Sequence[Core], block: Any, allocate: Callable[[int], Any]) -> None:
        self._constants, self._block = constants, block
        self._registers = constants.system_registers
        found = self._read("GROUP_MEMBERS")  # of a design that was just loaded: all of its cores
        if found != (1 << len(cores)) - 1:
            raise LinkError("identity", f"the design has {found.bit_count()} cores, but the system has {len(cores)}")
        self._cores: list[Driver] = []
        for number, core in enumerate(cores):
            registers = CoreRegisters(block, number * constants.core_space)
            with _named(number):
                self._cores.append(Driver(constants, core, registers, allocate))

    def allocate(self, size: int) -> Window:
        """A buffer of zeros that all cores can reach; their addresses have one width."""
        return self._cores[0].allocate(size)

    def run(
        self, window: Window, programs: Sequence[Program | None], shared: range, *, seconds: float, watchdog: int,
        wait: str = "auto", gone: Callable[[], bool] = lambda: False,
    ) -> list[Run | None]:  # fmt: skip
        """A program on each core that has one, all by one start; wait at most ``seconds`` for all of them. ``shared``:
        bytes of the buffer, whole pages, in which cores share their reads of weights.

        A fault is a result, and its core has been reset. LinkError, with the core's number, of one that does not end:
        all that run have been reset.
        """
        self._set_up(window, programs, shared, watchdog, wait)
        running = {number: self._cores[number] for number, program in enumerate(programs) if program is not None}
        started = time.monotonic()
        self._write("GROUP", self._constants.control["START"], self._constants.registers["CONTROL"])
        stati, polls = watch(
            lambda: {number: core.status() for number, core in running.items()},
            lambda seen: all(core.is_over(seen[number]) for number, core in running.items()),
            seconds, gone,
        )  # fmt: skip
        took = time.monotonic() - started
        late = [number for number, core in running.items() if not core.is_over(stati[number])]
        if late:
            raise self._gave_up(stati, late, took)
        window.from_core()
        runs: list[Run | None] = [None] * len(self._cores)
        for number, core in running.items():
            with _named(number):
                runs[number] = core.ended(stati[number], took, polls, 0)
        return runs

    def relay(
        self, window: Window, programs: Sequence[Program | None], shared: range, settings: Sequence[tuple[int, int]],
        runs: int, *, seconds: float, watchdog: int, wait: str = "auto", gone: Callable[[], bool] = lambda: False,
    ) -> Relayed:  # fmt: skip
        """``runs`` runs of each core, by one start: the cores start each other as ``settings`` say, addresses and
        values of registers of the relay. ``programs``: the first one of each core.

        After a fault no more runs begin, and its core has been reset. LinkError as of :meth:`run`.
        """
        if None in programs:
            raise LinkError("range", "cores that start each other have a program each")
        if odd := [address for address, _ in settings if address not in self._constants.relay_settings]:
            raise LinkError("range", f"register {odd[0]:#x} is no setting of a relay")
        values = dict(settings)
        slots, pitch = (values.get(self._registers[name], 0) for name in ("SLOTS", "PITCH"))
        reach = max(0, slots - 1) * pitch * self._constants.page_bytes
        self._set_up(window, programs, shared, watchdog, wait, reach)
        for address, value in settings:
            self._block.write(address, value)
        started = time.monotonic()
        self._write("RELAY_CONTROL", self._constants.relay_control["START"])
        (status, ended, stati), polls = watch(self._seen, lambda seen: self._relay_is_over(seen, runs), seconds, gone)
        took = time.monotonic() - started
        cycles = self._read("RELAY_CYCLES_LO") | self._read("RELAY_CYCLES_LO", 4) << 32
        self._write("RELAY_CONTROL", self._constants.relay_control["STOP"])
        if not self._relay_is_over((status, ended, stati), runs):
            late = [number for number, core in enumerate(self._cores) if core.is_busy(stati[number])]
            raise self._gave_up(dict(enumerate(stati)), late or [ended.index(min(ended))], took)
        window.from_core()
        last: list[Run | None] = []
        for number, core in enumerate(self._cores):
            with _named(number):
                ran = ended[number] or core.has_fault(stati[number])
                last.append(core.ended(stati[number], took, polls, 0) if ran else None)
        return Relayed(last, ended, cycles)

    def _set_up(
        self,
        window: Window,
        programs: Sequence[Program | None],
        shared: range,
        watchdog: int,
        wait: str,
        reach: int = 0,
    ) -> None:
        """All that the cores have to know before their start. ``reach``: how far windows go on behind these."""
        if wait == "interrupt":
            raise LinkError("interrupt", "the end of a system's programs is seen by looking, not by an interrupt")
        if len(programs) != len(self._cores) or not any(programs):
            raise LinkError("range", f"{len(programs)} programs for {len(self._cores)} cores")
        pages = self._constants.page_bytes
        if shared.start % pages or shared.stop % pages:
            raise LinkError("range", f"bytes {shared.start}..{shared.stop} are not whole pages")
        window.check(shared.start, max(0, shared.stop - shared.start))
        for number, (core, program) in enumerate(zip(self._cores, programs, strict=True)):
            if program is not None:
                with _named(number):
                    window.check(program.start, program.size + reach)
                    if program.start % self._constants.window_alignment:
                        raise LinkError("range", f"a window cannot begin at byte {program.start}")
                    core.check_program(program.offset, program.count, program.size)
        window.to_core()
        members = 0
        for number, (core, program) in enumerate(zip(self._cores, programs, strict=True)):
            if program is not None:
                members |= 1 << number
                start = window.address + program.start
                core.set_up(start, program.size, program.offset, program.count, watchdog)
        self._write("GROUP_MEMBERS", members)
        if shared:
            self._write("SHARED_START", (window.address + shared.start) // pages)
            self._write("SHARED_STOP", (window.address + shared.stop) // pages)

    def _seen(self) -> tuple[int, list[int], list[int]]:
        """The relay's status, the runs that each core has ended, and the status of each core."""
        status = self._read("RELAY_STATUS")
        ended = [self._read("ENDED", 4 * number) for number in range(len(self._cores))]
        return status, ended, [core.status() for core in self._cores]

    def _relay_is_over(self, seen: tuple[int, list[int], list[int]], runs: int) -> bool:
        """Whether all cores stand still and none will begin another run."""
        status, ended, stati = seen
        bits = self._constants.relay_status
        if status & bits["RUNNING"] or any(core.is_busy(each) for core, each in zip(self._cores, stati, strict=True)):
            return False
        return bool(status & bits["HALTED"]) or min(ended) >= runs

    def _gave_up(self, stati: dict[int, int], late: Sequence[int], took: float) -> LinkError:
        """Reset the cores that have not ended in time; what to tell the host of the first one that is worst off."""
        errors = [(number, self._cores[number].gave_up(stati[number], took)) for number in late]
        number, error = next((each for each in errors if each[1].kind == "stuck"), errors[0])
        return LinkError(error.kind, f"core {number}: {error.message}")

    def _read(self, name: str, behind: int = 0) -> int:
        return int(self._block.read(self._registers[name] + behind)) & 0xFFFF_FFFF

    def _write(self, name: str, value: int, behind: int = 0) -> None:
        self._block.write(self._registers[name] + behind, int(value))


@contextmanager
def _named(number: int) -> Iterator[None]:
    """Errors in here are of one core."""
    try:
        yield
    except LinkError as error:
        raise LinkError(error.kind, f"core {number}: {error.message}") from None


def settings_in(payload: bytes) -> list[tuple[int, int]]:
    """Addresses and values of registers, 32 bits each, one pair after the other; LinkError for half a pair."""
    if len(payload) % 8:
        raise LinkError("protocol", f"{len(payload)} bytes are no addresses and values of registers")
    return list(struct.iter_unpack("<II", payload))
