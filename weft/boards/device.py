"""``pynq://NAME``: a core on a PYNQ board as a device of the runtime."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from ..compiler.model import CompiledModel
from ..hw.config import ISA_VERSION, CoreConfig
from ..hw.cycle_class import CycleClass
from ..hw.isa import ENGINE_NAMES, Engine, Fault
from ..hw.system_config import SystemConfig
from ..imports import IMPORTS
from ..runtime.device import Bytes, Device, HostCodes, Progress, WholeModel, register_device
from ..runtime.errors import DeviceError
from ..sim.result import FaultRecord, RunResult
from .board_model import BoardModel
from .hosts import KERNELS, Host, find_host
from .link.frames import pieces
from .remote import LOAD_SECONDS, SLACK_SECONDS, Link, design_files

if TYPE_CHECKING:
    from ..sim.dram import DramModel
    from .system_device import PynqSystem

CLASSES: dict[int, CycleClass] = {int(kind.value): kind for kind in CycleClass.__members__.values()}


class Board:
    """The one link of this process to a board, and the design that is loaded there; devices share it."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.clock_mhz: float | None = None
        """The clock that the core has in fact."""
        self._lock = threading.Lock()
        self._link: Link | None = None
        self._loaded: CoreConfig | SystemConfig | None = None
        self._users = 0

    def link(self, config: CoreConfig | SystemConfig, progress: Progress) -> Link:
        """An open link to a board that holds this core or system; :class:`DeviceError` if that cannot be had."""
        with self._lock:
            if self._link is not None and self._link.dead and self._link.usable_here:
                self._link = None
            if self._link is None:
                files = design_files(self.host)
                self._link, self._loaded = self._open(progress), None
                progress(f"{self.host.name}: sending the design")
                self._digests = [
                    self._link.send_file(name, content) for name, content in zip(("bit", "hwh"), files, strict=True)
                ]
            if self._loaded is None or load_fields(self._loaded) != load_fields(config):
                self._load(self._link, config, progress)
            return self._link

    def _open(self, progress: Progress) -> Link:
        return Link(self.host, progress)

    def _load(self, link: Link, config: CoreConfig | SystemConfig, progress: Progress) -> None:
        progress(f"{self.host.name}: programming the design")
        self._loaded = None
        bit, hwh = self._digests
        answer, _ = link.ask(
            "load", LOAD_SECONDS,
            bit=bit, hwh=hwh, ip=self.host.ip, clock_mhz=self.host.clock_mhz, **load_fields(config),
        )  # fmt: skip
        self.clock_mhz, self._loaded = answer["clock_mhz"], config

    def enter(self) -> None:
        """One more window of this board is in use."""
        with self._lock:
            self._users += 1

    def leave(self) -> None:
        """One less; the last one closes the link."""
        with self._lock:
            self._users -= 1
            if self._users == 0 and self._link is not None:
                self._link.close()
                self._link = None


def load_fields(config: CoreConfig | SystemConfig) -> dict[str, Any]:
    """What a request to load a design says of the cores in it."""
    cores = (config,) if isinstance(config, CoreConfig) else config.cores
    fields = [
        {
            "hash": f"{core.hash64:016x}",
            "address_bits": core.address_bits,
            "bus_bytes": core.bus_bytes,
            "instruction_bytes": core.instruction_bytes,
        }
        for core in cores
    ]
    return {"version": ISA_VERSION, "cores": fields, "system": isinstance(config, SystemConfig)}


_boards: dict[Host, Board] = {}


def board_of(host: Host) -> Board:
    """The same object for the same board."""
    return _boards.setdefault(host, Board(host))


class BoardMemory:
    """A window on a board: what the host has written to it is kept here as well, so that it can be made anew on another
    link. ``config``: the core or the system that the board holds."""

    def __init__(self, board: Board, config: CoreConfig | SystemConfig, progress: Progress) -> None:
        self.board = board
        self._config, self._progress = config, progress
        self._written: Bytes = np.zeros(0, np.uint8)
        self._link: Link | None = None
        self._window = 0

    @property
    def size(self) -> int:
        return self._written.size

    def allocate(self, size: int) -> None:
        """Make it zeros of this size; 0 gives it back."""
        used = self._written.size
        self._written = np.zeros(size, np.uint8)
        if size and not used:
            self.board.enter()
        try:
            if (link := self.connected) is not None:
                link.ask("free", self.board.host.connect_seconds, window=self._window)
        finally:
            self._link = None
            if used and not size:
                self.board.leave()
        if size:
            try:
                self.there()
            except BaseException:
                self._written = np.zeros(0, np.uint8)
                self.board.leave()
                raise

    def write(self, offset: int, raw: Bytes) -> None:
        """Copy bytes in."""
        self.check(offset, raw.size)
        self._written[offset : offset + raw.size] = raw
        if (link := self.connected) is not None:
            self._send(link, offset, raw.size)

    def read(self, offset: int, size: int) -> Bytes:
        """Copy bytes out: what was written last, by the host or by the last run."""
        self.check(offset, size)
        if (link := self.connected) is None:
            raise DeviceError(f"the board {self.board.host.name!r} was lost after the last run", hint="run again")
        return np.frombuffer(bytearray(link.read(self._window, offset, size)), np.uint8)

    def run(self, name: str, payload: bytes = b"", /, **fields: Any) -> dict[str, Any]:
        """The answer to a request that runs programs in this window."""
        host = self.board.host
        link, window = self.there()
        answer, _ = link.ask(
            name, host.run_seconds + host.connect_seconds + SLACK_SECONDS, payload,
            window=window, seconds=host.run_seconds, watchdog=host.watchdog, wait=host.wait, **fields,
        )  # fmt: skip
        return answer

    def there(self) -> tuple[Link, int]:
        """A link on which the window exists, and the window's number."""
        if (link := self.connected) is not None:
            return link, self._window
        link = self.board.link(self._config, self._progress)
        answer, _ = link.ask("allocate", self.board.host.connect_seconds, size=self._written.size)
        self._link, self._window = link, answer["window"]
        for start, length in pieces(self._written.size):
            if self._written[start : start + length].any():
                self._send(link, start, length)
        return link, self._window

    @property
    def connected(self) -> Link | None:
        """The link on which the window exists; None if it is gone."""
        return None if self._link is None or self._link.dead else self._link

    def check(self, offset: int, size: int) -> None:
        """:class:`DeviceError` unless these bytes are inside."""
        window = self._written.size
        if offset < 0 or offset + size > window:
            raise DeviceError(f"bytes {offset}..{offset + size} are outside the window of {window} bytes")

    def _send(self, link: Link, offset: int, size: int) -> None:
        data = self._written.data
        for start, length in pieces(size):
            first = offset + start
            link.ask("write", self.board.host.connect_seconds, data[first : first + length],
                     window=self._window, offset=first)  # fmt: skip


class PynqDevice(Device):
    """A core on a board behind ssh. Runs have cycles and counters, as the core counts them, but no trace.

    All that was written to the window is kept here as well: if the board vanishes, the run in progress ends in a
    :class:`DeviceError`, and the next one connects again and writes the window anew.
    """

    name: ClassVar[str] = "pynq"

    def __init__(self, config: CoreConfig, *, host: Host, progress: Progress | None = None) -> None:
        super().__init__(config, progress=progress)
        self.board = board_of(replace(host, kernels=KERNELS[0]))  # one link, wherever kernels run
        self._kernels = host.kernels
        self._memory = BoardMemory(self.board, config, self.progress)

    @classmethod
    def at(cls, place: str, config: CoreConfig, *, progress: Progress | None = None) -> Self:
        """The device ``pynq://place``."""
        return cls(config, host=find_host(place), progress=progress)

    @classmethod
    def system_at(
        cls, place: str, config: SystemConfig, window_bytes: int, *, shared: range, dram: DramModel | None,
        progress: Progress | None, windows: int | None,
    ) -> PynqSystem:  # fmt: skip
        """All cores of the system at ``pynq://place``."""
        with IMPORTS:
            from .system_device import PynqSystem

        return PynqSystem(config, window_bytes, host=find_host(place), shared=shared, dram=dram, progress=progress,
                          windows=windows)  # fmt: skip

    @property
    def has_time(self) -> bool:
        return True

    @property
    def has_trace(self) -> bool:
        return False

    @property
    def clock_mhz(self) -> float | None:
        """The clock of the core in MHz, read back from the board; None before the first use."""
        return self.board.clock_mhz

    def allocate(self, window_bytes: int) -> None:
        self._memory.allocate(window_bytes)

    def write(self, offset: int, data: npt.NDArray[np.generic]) -> None:
        self._memory.write(offset, np.ascontiguousarray(data).reshape(-1).view(np.uint8))

    def read(self, offset: int, size: int) -> Bytes:
        return self._memory.read(offset, size)

    def execute(self, offset: int, count: int, trace: bool) -> RunResult:
        self._memory.check(offset, count * self.config.instruction_bytes)
        answer = self._memory.run("run", offset=offset, count=count)
        return run_result(self.config, self.board.host.name, answer)

    def whole_model(self, model: CompiledModel, code: HostCodes) -> WholeModel | None:
        if self._kernels != "board":
            return None
        return BoardModel(model, code, self._memory.there, self._counted)

    def _counted(self, answer: dict[str, Any]) -> RunResult:
        result = run_result(self.config, self.board.host.name, answer)
        self._counters = result.counters
        return result


def run_result(config: CoreConfig, name: str, answer: dict[str, Any]) -> RunResult:
    """What board ``name`` answered to a run, in the words of the simulators."""
    counters: dict[Engine, dict[CycleClass, int]] = {engine: {} for engine in Engine}
    fault = None
    try:
        for engine, kind, cycles in answer["counters"]:
            counters[Engine(engine)][CLASSES[kind]] = cycles
        if answer["fault"] is not None:
            cause, engine, number = answer["fault"]
            fault = FaultRecord(Fault(cause), range(len(ENGINE_NAMES))[engine], number)
    except (ValueError, KeyError, IndexError) as error:
        raise DeviceError(f"board {name!r} counts what does not exist: {error}") from None
    return RunResult(
        cycles=answer["cycles"],
        fault=fault,
        bytes_read=answer["read_beats"] * config.bus_bytes,
        bytes_written=answer["write_beats"] * config.bus_bytes,
        counters=counters,
    )


register_device(PynqDevice, at_places=True)
