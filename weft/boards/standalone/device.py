"""``serial://PORT``: a board without a processor, at a serial port of this machine, as a device of the runtime.

The driver is that of all boards, :mod:`..link.driver`; what it reads and writes goes over the line.
"""

from __future__ import annotations

import re
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from ...hw.config import ISA_VERSION, CoreConfig
from ...runtime.device import Bytes, Device, Progress, register_device
from ...runtime.errors import DeviceError
from ...shown import one_line
from ...sim.result import RunResult
from ..device import run_result
from ..link.driver import Core, Driver, Window
from ..link.errors import LinkError
from ..remote import BoardLinkError
from ..zipapp import core_constants
from .port import SerialPort
from .serial_link import ANSWER_SECONDS, SerialLink

BAUD = 1_000_000
RUN_SECONDS = 30.0
WATCHDOG_CYCLES = 100_000_000

PLACE = re.compile(r"(?P<path>[^?]+)(\?baud=(?P<baud>[1-9]\d{2,7}))?([?&]seconds=(?P<seconds>[1-9]\d{0,3}))?")

HINTS = {
    "closed": "is the board on, and programmed? PORT?baud=N names another rate than 1000000",
    "protocol": "is it the board's port? weft board build makes the design that answers there",
    "identity": "compile for the core that the bitstream was built with: --config core.json of its folder",
    "memory": "a smaller model, or a board's file with more memory_bytes",
}


class _Registers:
    """The core's registers, as the driver asks for them."""

    def __init__(self, link: SerialLink) -> None:
        self._link = link

    def read(self, address: int) -> int:
        return self._link.read_register(address)

    def write(self, address: int, value: int) -> None:
        self._link.write_register(address, value)


class _Memory:
    """The window's bytes on the board, as the driver asks for a buffer: nothing is kept here, so nothing is synced."""

    def __init__(self, size: int) -> None:
        self.device_address = 0
        self._there = np.zeros(size, np.uint8)  # for its size

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[np.uint8]:
        return self._there

    def sync_to_device(self) -> None: ...
    def sync_from_device(self) -> None: ...
    def freebuffer(self) -> None: ...


class SerialDevice(Device):
    """A core on a board at a serial port. Runs have cycles and counters, as the core counts them, but no trace.

    The port is held from the first window until it is given back (``allocate(0)``).
    """

    name: ClassVar[str] = "serial"

    def __init__(
        self, config: CoreConfig, *, path: str, baud: int = BAUD, answer_seconds: float = ANSWER_SECONDS,
        progress: Progress | None = None,
    ) -> None:  # fmt: skip
        super().__init__(config, progress=progress)
        self.path, self.baud, self._answer_seconds = path, baud, answer_seconds
        self._port: SerialPort | None = None
        self._link: SerialLink | None = None
        self._driver: Driver | None = None
        self._window: Window | None = None
        self._unwritten: npt.NDArray[np.bool_] = np.zeros(0, np.bool_)

    @classmethod
    def at(cls, place: str, config: CoreConfig, *, progress: Progress | None = None) -> Self:
        """The device ``serial://PORT``, with ``?baud=N`` and ``&seconds=N`` (what an answer may take) behind it."""
        match = PLACE.fullmatch(place)
        if match is None:
            raise DeviceError(
                f"{place!r} is no serial port", hint="serial:///dev/ttyUSB0 or with ?baud=115200 behind it"
            )
        baud, seconds = int(match["baud"] or BAUD), float(match["seconds"] or ANSWER_SECONDS)
        return cls(config, path=match["path"], baud=baud, answer_seconds=seconds, progress=progress)

    @property
    def has_time(self) -> bool:
        return True

    @property
    def has_trace(self) -> bool:
        return False

    @property
    def clock_mhz(self) -> float | None:
        """The clock of the core in MHz, as the design says; None before the first use."""
        return None if self._link is None else self._link.clock_hz / 1e6

    def allocate(self, window_bytes: int) -> None:
        self._window = None
        if not window_bytes:
            self._close()
            return
        try:
            link, driver = self._connected()
            if window_bytes > link.memory_bytes:
                raise LinkError("memory", f"the window takes {window_bytes} bytes, the board has {link.memory_bytes}")
            self._window = driver.allocate(window_bytes)
        except LinkError as error:
            raise self._failed(error) from None
        self._unwritten = np.ones(window_bytes, np.bool_)

    def write(self, offset: int, data: npt.NDArray[np.generic]) -> None:
        raw = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
        link, _, _ = self._checked(offset, raw.size)
        try:
            link.write_memory(offset, raw.tobytes())
            self._unwritten[offset : offset + raw.size] = False
        except LinkError as error:
            raise self._failed(error) from None

    def read(self, offset: int, size: int) -> Bytes:
        link, _, _ = self._checked(offset, size)
        try:
            self._write_zeros(link)
            return np.frombuffer(bytearray(link.read_memory(offset, size)), np.uint8)
        except LinkError as error:
            raise self._failed(error) from None

    def execute(self, offset: int, count: int, trace: bool) -> RunResult:
        link, driver, window = self._checked(offset, count * self.config.instruction_bytes)
        try:
            self._write_zeros(link)
            run = driver.run(window, offset, count, seconds=RUN_SECONDS, watchdog=WATCHDOG_CYCLES, wait="poll")
        except LinkError as error:
            raise self._failed(error) from None
        return run_result(self.config, self.path, vars(run))

    def _write_zeros(self, link: SerialLink) -> None:
        """Zeros to all of the window that was not written since it was made; most of it is by now, over a slow line."""
        edges = np.flatnonzero(np.diff(self._unwritten, prepend=False, append=False))
        for start, end in edges.reshape(-1, 2).tolist():
            link.write_memory(start, bytes(end - start))
        self._unwritten[:] = False

    def _connected(self) -> tuple[SerialLink, Driver]:
        """The line, and the core at its other end."""
        if self._link is None or self._driver is None:
            self.progress(f"{self.path}: connecting")
            self._port = SerialPort(self.path, self.baud)
            self._link = SerialLink(self._port, self.baud, answer_seconds=self._answer_seconds)
            config = self.config
            core = Core(config.hash64, ISA_VERSION, config.address_bits, config.bus_bytes, config.instruction_bytes)
            self._driver = Driver(core_constants(), core, _Registers(self._link), _Memory)
        return self._link, self._driver

    def _checked(self, offset: int, size: int) -> tuple[SerialLink, Driver, Window]:
        """What a window needs, with these bytes in it."""
        if self._link is None or self._driver is None or self._window is None:
            raise DeviceError(f"the board at {self.path} has no window", hint="allocate one; after an error, again")
        window = self._window.data.size
        if offset < 0 or offset + size > window:
            raise DeviceError(f"bytes {offset}..{offset + size} are outside the window of {window} bytes")
        return self._link, self._driver, self._window

    def _failed(self, error: LinkError) -> DeviceError:
        """The port is given back: the next window opens it again."""
        self._close()
        return BoardLinkError(self.path, one_line(error.message), error.kind, hint=HINTS.get(error.kind, ""))

    def _close(self) -> None:
        self._link = self._driver = self._window = None
        if self._port is not None:
            self._port.close()
            self._port = None


register_device(SerialDevice, at_places=True)
