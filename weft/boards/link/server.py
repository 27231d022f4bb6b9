"""The server: requests on stdin, answers on stdout, one after the other, until the link ends.

It owns the board from its first ``load`` on: a lock on a file says so to other servers, and goes with the process. An
error in a request is an answer; an error in the stream itself ends the server.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from .constants import Constants, own_constants
from .driver import Core, Driver, Window, contiguous_memory
from .errors import LinkError
from .frames import Header, Stream, pieces
from .messages import LARGEST_WINDOW, PROTOCOL, check_request, failure
from .model import BoardModel, load_library
from .overlay import LoadedDesign, Wanted, device_name, digest, import_pynq, load_design, version_of
from .plan import read_plan
from .system import Program, SystemDriver, settings_in

LOCK_VARIABLE = "WEFT_BOARD_LOCK"
LOCK_FILE = "/run/weft-board.lock"
"""Whoever holds a lock on it has the board; :data:`LOCK_VARIABLE` names another file."""

OWN_SECONDS = 3.0
"""How long a server waits for the one before it, whose link may just have ended."""

WINDOWS = 64
"""Most windows at a time."""

MODELS = 64
"""Most whole models at a time."""

LIBRARIES = 1024
"""Most libraries; they stay until the server ends, and equal ones are loaded once."""

Answer = tuple[Header, "bytes | memoryview"]
OK: Header = {"ok": True}


class Server:
    """One host's use of the board. ``folder`` is an empty one for the design's files."""

    def __init__(self, constants: Constants, folder: Path, lock: Path, code: str = "") -> None:
        self._constants, self._folder, self._lock_path, self._code = constants, folder, lock, code
        self._lock: int | None = None
        self._greeted = False
        self._design: LoadedDesign | None = None
        self._driver: Driver | None = None
        self._system_driver: SystemDriver | None = None
        self._windows: dict[int, Window] = {}
        self._next_window = 1
        self._libraries: dict[int, tuple[str, ctypes.CDLL]] = {}  # with the digest of each
        self._models: dict[int, tuple[BoardModel, int]] = {}  # with the window of each
        self._next_model = 1
        self._gone: Callable[[], bool] = lambda: False

    def serve(self, stream: Stream) -> None:
        """Answer requests until the other end closes the link or breaks the protocol."""
        self._gone = stream.ended
        try:
            while True:
                try:
                    header, payload = stream.receive()
                    name, fields = check_request(header, payload)
                except LinkError as error:
                    if error.kind != "closed":
                        stream.send(failure(error))
                    return
                if not self._answer(stream, name, fields, payload):
                    return
        finally:
            self.close()

    def close(self) -> None:
        """Give back all memory, and the board."""
        for model, _ in self._models.values():
            model.close()
        self._models.clear()
        for window in self._windows.values():
            window.free()
        self._windows.clear()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _answer(self, stream: Stream, name: str, fields: dict[str, Any], payload: bytes) -> bool:
        """Carry out a request and answer it; whether to go on."""
        try:
            if not self._greeted and name != "hello":
                raise LinkError("protocol", f"{name} comes before hello")
            if name == "close":
                stream.send(OK)
                return False
            if name in ("read", "infer"):
                frames = self._read(**fields) if name == "read" else self._infer(**fields, payload=payload)
                for answer in frames:
                    stream.send(*answer)
                return True
            action: Callable[..., Header] = getattr(self, f"_{name}")
            extra = {"payload": payload} if name in ("file", "write", "feed", "relay") else {}
            stream.send({**OK, **action(**fields, **extra)})
        except LinkError as error:
            if error.kind == "closed":
                return False
            stream.send(failure(error))
        except Exception as error:
            stream.send(failure(LinkError("internal", f"{name}: {type(error).__name__}: {error}")))
        return True

    # Each request, by its name

    def _hello(self, protocols: list[int]) -> Header:
        if PROTOCOL not in protocols:
            raise LinkError("version", f"the board speaks protocol {PROTOCOL}, the host {protocols}")
        self._greeted = True
        return {
            "protocol": PROTOCOL,
            "python": platform.python_version(),
            "numpy": version_of("numpy"),
            "pynq": version_of("pynq"),
            "machine": machine(),
            "user": os.geteuid(),
            "code": self._code,
        }

    def _file(self, name: str, offset: int, size: int, payload: bytes) -> Header:
        path = self._folder / f"weft.{name}"
        there = path.stat().st_size if offset and path.exists() else 0
        if offset != there or offset + len(payload) > size:
            raise LinkError("range", f"bytes {offset}..{offset + len(payload)} of {size} of a file after {there}")
        with path.open("ab" if offset else "wb") as file:
            file.write(payload)
        return {}

    def _load(
        self, bit: str, hwh: str, ip: str | None, clock_mhz: float | None, version: int,
        cores: list[dict[str, Any]], system: bool,
    ) -> Header:  # fmt: skip
        self._own()
        if self._windows:
            raise LinkError("range", f"{len(self._windows)} windows are in use: free them before another design")
        self._driver = self._system_driver = self._design = None
        for name, expected in (("bit", bit), ("hwh", hwh)):
            path = self._folder / f"weft.{name}"
            if not path.exists() or digest(path) != expected:
                raise LinkError("overlay", f"the design's .{name} is not here, or not the one that was meant")
        expected_cores = [Core(**{**core, "hash": int(core["hash"], 16)}, version=version) for core in cores]
        design = load_design(import_pynq(), self._folder / "weft.bit", self._wanted(system), ip, clock_mhz)
        if system:
            self._system_driver = SystemDriver(self._constants, expected_cores, design.block, design.allocate)
        else:
            self._driver = Driver(
                self._constants, expected_cores[0], design.block, design.allocate, design.line, design.no_interrupt
            )
        self._design = design
        return {
            "address": design.address,
            "clock_mhz": design.clock_mhz(),
            "device": design.device,
            "no_interrupt": design.no_interrupt[:200],
        }

    def _wanted(self, system: bool) -> Wanted:
        one, several = self._constants.core_types, self._constants.system_types
        if system:
            return Wanted(several, one, "the design holds one core, not a system of several: load the system's overlay")
        return Wanted(one, several, "the design holds a system of several cores, not one: run with it, as by --system")

    def _system(self) -> Header:
        pynq = import_pynq()
        memory = contiguous_memory()
        return {
            "pynq": version_of("pynq"),
            "device": device_name(pynq)[:200],
            "cma_total": memory.get("CmaTotal"),
            "cma_free": memory.get("CmaFree"),
        }

    def _settings(self, values: list[list[int]]) -> Header:
        return {"values": self._loaded().try_settings([(address, value) for address, value in values])}

    def _allocate(self, size: int) -> Header:
        if len(self._windows) >= WINDOWS:
            raise LinkError("memory", f"{WINDOWS} windows are in use already")
        window = (self._system_driver or self._loaded()).allocate(min(size, LARGEST_WINDOW))
        number, self._next_window = self._next_window, self._next_window + 1
        self._windows[number] = window
        return {"window": number, "address": window.address}

    def _free(self, window: int) -> Header:
        self._window(window).free()
        del self._windows[window]
        for number in [number for number, each in self._models.items() if each[1] == window]:
            self._models.pop(number)[0].close()
        return {}

    def _write(self, window: int, offset: int, payload: bytes) -> Header:
        self._window(window).write(offset, payload)
        return {}

    def _read(self, window: int, offset: int, size: int) -> Iterator[Answer]:
        """The bytes, in as many frames as they take; at least one."""
        memory = self._window(window)
        memory.check(offset, size)  # before the first frame
        parts = pieces(size) or [(0, 0)]
        for number, (start, length) in enumerate(parts, start=1):
            yield {**OK, "more": number < len(parts)}, memory.read(offset + start, length)

    def _run(self, window: int, offset: int, count: int, seconds: float, watchdog: int, wait: str) -> Header:
        run = self._loaded().run(
            self._window(window), offset, count, seconds=seconds, watchdog=watchdog, wait=wait, gone=self._gone
        )
        return asdict(run)

    def _together(self, window: int, programs: list[dict[str, int] | None], shared: list[int], **how: Any) -> Header:
        runs = self._several().run(
            self._window(window),
            _programs(programs),
            range(*shared),
            gone=self._gone,
            **how,
        )
        return {"runs": [run and asdict(run) for run in runs]}

    def _relay(
        self, window: int, programs: list[dict[str, int] | None], shared: list[int], runs: int, payload: bytes,
        **how: Any,
    ) -> Header:  # fmt: skip
        done = self._several().relay(
            self._window(window), _programs(programs), range(*shared), settings_in(payload),
            runs, gone=self._gone, **how,
        )  # fmt: skip
        return asdict(done)

    def _several(self) -> SystemDriver:
        if self._system_driver is None:
            raise LinkError("overlay", "no design with a system of cores is loaded")
        return self._system_driver

    def _library(self, digest: str) -> Header:
        if not self._constants.takes_code:
            raise LinkError("code", "this board takes no machine code: its program was made so")
        path = self._sent("code", digest)
        for number, (known, _) in self._libraries.items():
            if known == digest:
                return {"library": number}
        if len(self._libraries) >= LIBRARIES:
            raise LinkError("memory", f"{LIBRARIES} libraries are loaded already")
        number = len(self._libraries) + 1
        own = path.rename(path.with_name(f"library-{number}.so"))  # the loader tells libraries apart by name
        self._libraries[number] = (digest, load_library(own))
        return {"library": number}

    def _model(self, plan: str, constants: str | None, libraries: list[int], window: int) -> Header:
        if len(self._models) >= MODELS:
            raise LinkError("memory", f"{MODELS} models are loaded already")
        for number in libraries:
            if number not in self._libraries:
                raise LinkError("range", f"there is no library {number}")
        raw = b"" if constants is None else self._sent("constants", constants).read_bytes()
        memory = self._window(window)
        steps = read_plan(self._sent("plan", plan).read_bytes(), len(libraries), len(raw), memory.data.size)
        model = BoardModel(steps, [self._libraries[number][1] for number in libraries], raw, memory)
        number, self._next_model = self._next_model, self._next_model + 1
        self._models[number] = (model, window)
        return {"model": number}

    def _feed(self, model: int, offset: int, payload: bytes) -> Header:
        self._whole(model).feed(offset, payload)
        return {}

    def _infer(
        self, model: int, count: int, seconds: float, watchdog: int, wait: str, payload: bytes
    ) -> Iterator[Answer]:
        """The programs of the last item, one in a frame, the last one with the first of the outputs."""
        whole = self._whole(model)
        if payload:
            whole.feed(0, payload)
        batch = whole.run(self._loaded(), count, seconds=seconds, watchdog=watchdog, wait=wait, gone=self._gone)
        common = {**OK, "done": batch.done, "cycles": batch.cycles, "seconds": batch.seconds}
        parts = pieces(len(whole.outputs)) or [(0, 0)]
        runs: list[Header | None] = [asdict(run) for run in batch.runs] or [None]
        for run in runs[:-1]:
            yield {**common, "run": run, "more": True}, b""
        outputs = memoryview(whole.outputs)
        for number, (start, length) in enumerate(parts, start=1):
            run = runs[-1] if number == 1 else None
            yield {**common, "run": run, "more": number < len(parts)}, outputs[start : start + length]

    def _whole(self, number: int) -> BoardModel:
        if number not in self._models:
            raise LinkError("range", f"there is no model {number}")
        return self._models[number][0]

    def _sent(self, name: str, expected: str) -> Path:
        """A file that was sent; LinkError if it is not the one that was meant."""
        path = self._folder / f"weft.{name}"
        if not path.exists() or digest(path) != expected:
            raise LinkError("range", f"the file {name!r} is not here, or not the one that was meant")
        return path

    def _state(self) -> Header:
        status, cycles = self._loaded().state()
        return {"status": status, "cycles": cycles, "clock_mhz": self._design.clock_mhz() if self._design else None}

    def _loaded(self) -> Driver:
        if self._driver is None:
            several = "the design has several cores" if self._system_driver is not None else "no design is loaded"
            raise LinkError("overlay", several)
        return self._driver

    def _window(self, number: int) -> Window:
        if number not in self._windows:
            raise LinkError("range", f"there is no window {number}")
        return self._windows[number]

    def _own(self) -> None:
        """Take the board; LinkError if another server has it, and does not end within a moment."""
        if self._lock is not None:
            return
        try:
            descriptor = os.open(self._lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
        except OSError as error:
            raise LinkError("permission", f"{self._lock_path}: {error.strerror}: the board is root's alone") from None
        end = time.monotonic() + OWN_SECONDS
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError:
                if time.monotonic() < end:
                    time.sleep(0.05)
                    continue
                holder = os.read(descriptor, 100).decode("ascii", "replace").strip()
                os.close(descriptor)
                raise LinkError("busy", f"the board is in use by {holder or 'another process'}") from None
        os.truncate(descriptor, 0)
        os.write(descriptor, f"process {os.getpid()}".encode())
        self._lock = descriptor


def _programs(said: list[dict[str, int] | None]) -> list[Program | None]:
    return [None if each is None else Program(**each) for each in said]


def main() -> None:
    """Serve stdin and stdout. What else this process prints goes to stderr, so that it cannot spoil the stream."""
    source, sink = os.dup(0), os.dup(1)
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    sys.stdout.flush()
    with tempfile.TemporaryDirectory(prefix="weft-") as folder:
        lock = Path(os.environ.get(LOCK_VARIABLE) or LOCK_FILE)
        Server(own_constants(), Path(folder), lock, own_digest()).serve(Stream(source, sink))


def machine() -> str:
    """The processor's name as the kernel has it; that of 32 bits where this Python has 32."""
    name = platform.machine()
    return "armv7l" if name == "aarch64" and sys.maxsize < 1 << 32 else name


def own_digest() -> str:
    """SHA-256 of the zip file that this runs from; empty if there is none."""
    archive = getattr(globals().get("__loader__"), "archive", None)
    return "" if archive is None else digest(Path(archive))
