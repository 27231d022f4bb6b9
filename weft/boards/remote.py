"""The host's end of a link: a child process, usually ssh, that runs :mod:`.link.server` on a board.

The program travels over the link itself; nothing is installed on the board and nothing listens there. Every answer has
a deadline. A link that has failed once is dead; whoever wants to go on opens another.
"""

from __future__ import annotations

import hashlib
import shlex
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from ..runtime.errors import DeviceError
from ..shown import one_line
from .child import Child
from .hosts import Host, no_overlay
from .link.errors import LinkError
from .link.frames import Stream, pieces
from .link.messages import PROTOCOL, check_answer
from .zipapp import OLDEST_PYTHON, PACKAGE, zipapp

SSH = (
    "ssh", "-T",
    "-o", "BatchMode=yes",  # never asks for a password
    "-o", "ConnectTimeout=10",
    "-o", "ServerAliveInterval=5",
    "-o", "ServerAliveCountMax=3",
)  # fmt: skip

BOOT = "exec(open(0,'rb',0,closefd=False).readline())"
"""Python that runs the first line of its input. It is always the same, so that ``sudo`` can be told to allow it."""

SLACK_SECONDS = 10.0
"""What the link may add to a deadline on the board."""

LOAD_SECONDS = 120.0
"""What programming the logic may take."""

HINTS: Mapping[str, str] = {
    "closed": "ssh itself must work without a password, and so must sudo on the board: docs/boards-running.md",
    "deadline": "run_seconds and connect_seconds in the file of boards are the deadlines",
    "busy": "end the other use of the board, or wait for it",
    "memory": "raise the board's contiguous memory (CMA), or compile a smaller model",
    "identity": "the overlay and the model must be made for the same core",
    "version": "use the same version of weft on both ends",
    "code": 'kernels = "host" in the file of boards runs these steps on this machine',
    "permission": "the program must run as root: docs/boards-running.md has the line for sudo",
    "interrupt": 'wait = "poll" in the file of boards does without it; weft board doctor looks into it',
    "clock": "the design's clock is off, or another than its .hwh says: load the overlay again, or build it again",
    "pynq": "the setting `python` must name the Python of the board's image",
}

_LOADER = f"""{OLDEST_PYTHON}import hashlib, os
size, digest = {{size}}, {{digest!r}}
data = b""
while len(data) < size:
    part = os.read(0, size - len(data))
    if not part:
        sys.exit("the program did not arrive")
    data += part
if hashlib.sha256(data).hexdigest() != digest:
    sys.exit("the program was damaged on its way")
memory = os.memfd_create("weft")
file = open(memory, "wb", closefd=False)
file.write(data)
file.close()
sys.path.insert(0, "/proc/self/fd/%d" % memory)
from {PACKAGE}.server import main
main()
"""


def remote_command(host: Host) -> str:
    """What the board's shell is asked to run."""
    program = [host.installed] if host.installed else ["-c", BOOT]
    return shlex.join([*host.sudo, *host.python, *program])


def command_line(host: Host) -> list[str]:
    """The child process of a link."""
    if host.command is not None:
        return [*host.command, remote_command(host)]
    return [*SSH, *host.ssh_options, "--", host.ssh or host.name, remote_command(host)]


def program_text() -> bytes:
    """What is sent first: a line for :data:`BOOT`, and the program."""
    content = zipapp()
    loader = _LOADER.format(size=len(content), digest=hashlib.sha256(content).hexdigest())
    return f"exec({loader!r})\n".encode() + content


@dataclass(frozen=True)
class Peer:
    """What the board says of itself."""

    python: str
    numpy: str
    pynq: str
    machine: str
    user: int
    code: str


class Far(Protocol):
    """The other end: two descriptors, and what is known of it."""

    source: int
    sink: int

    @property
    def usable_here(self) -> bool: ...
    def end(self) -> None: ...
    def last_words(self) -> str: ...


class Link:
    """An open link. All that goes wrong is a :class:`DeviceError`; ``dead`` links refuse everything.

    ``far`` is the other end; by default the child process that the host's settings ask for.
    """

    def __init__(self, host: Host, progress: Callable[[str], None] = lambda _: None, far: Far | None = None) -> None:
        self.host = host
        self.dead = False
        self.last_error: LinkError | None = None
        self._lock = threading.Lock()
        progress(f"{host.name}: connecting")
        self._far = far or Child(command_line(host))
        self._stream = Stream(
            self._far.source, self._far.sink, frame_seconds=host.connect_seconds, why_closed=self._far.last_words
        )
        try:
            if not host.installed:
                self._stream.send_bytes(program_text())
        except LinkError as error:
            raise self._failed(error) from None
        answer, _ = self.ask("hello", host.connect_seconds, protocols=[PROTOCOL])
        self.peer = Peer(**{key: value for key, value in answer.items() if key != "protocol"})

    def ask(
        self, name: str, seconds: float, payload: bytes | memoryview = b"", /, **fields: Any
    ) -> tuple[dict[str, Any], bytes]:
        """One request and its answer, which must begin within ``seconds``."""
        with self._lock:
            return self._ask(name, seconds, payload, fields)

    def read(self, window: int, offset: int, size: int) -> bytes:
        """Bytes of a window, which come in several frames."""
        parts: list[bytes] = []
        left = size
        with self._lock:
            answer, part = self._ask(
                "read", self.host.connect_seconds, b"", {"window": window, "offset": offset, "size": size}
            )
            while True:
                left -= len(part)
                parts.append(part)
                if left < 0 or answer["more"] != (left > 0):
                    raise self._failed(LinkError("protocol", f"read: {size - left} bytes came, not {size}"))
                if not left:
                    return b"".join(parts)
                answer, part = self._answer("read", self.host.connect_seconds)

    def ask_many(
        self, name: str, seconds: float, payload: bytes | memoryview, most: int, /, **fields: Any
    ) -> list[tuple[dict[str, Any], bytes]]:
        """One request that at most so many frames answer, each with ``more``: the fields and bytes of all."""
        with self._lock:
            frames = [self._ask(name, seconds, payload, fields)]
            while frames[-1][0]["more"]:
                if len(frames) == most:
                    raise self._failed(LinkError("protocol", f"{name}: more than {most} frames came"))
                frames.append(self._answer(name, self.host.connect_seconds))
            return frames

    def wrong(self, message: str) -> DeviceError:
        """The error for an answer that cannot be; nothing more is to be had from this link."""
        return self._failed(LinkError("protocol", message))

    def send_file(self, name: str, content: bytes) -> str:
        """Put a file of the design onto the board; its SHA-256."""
        for start, length in pieces(len(content)):
            part = memoryview(content)[start : start + length]
            self.ask("file", self.host.connect_seconds, part, name=name, offset=start, size=len(content))
        return hashlib.sha256(content).hexdigest()

    def close(self) -> None:
        """End the link, politely if that is possible."""
        if not self.dead and self.usable_here:
            with suppress(DeviceError):
                self.ask("close", 2.0)
        self._end()

    @property
    def usable_here(self) -> bool:
        """Whether this is the process that opened it: a forked child has none of its own."""
        return self._far.usable_here

    def _ask(
        self, name: str, seconds: float, payload: bytes | memoryview, fields: dict[str, Any]
    ) -> tuple[dict[str, Any], bytes]:
        if not self.usable_here:
            raise DeviceError(
                f"the link to board {self.host.name!r} belongs to the process that this one was forked from",
                hint="load the model in this process",
            )
        if self.dead:
            raise DeviceError(f"the link to board {self.host.name!r} is gone: {self.last_error}")
        try:
            self._stream.send({"do": name, **fields}, payload)
        except LinkError as error:
            raise self._failed(error) from None
        except BaseException:
            self._end()
            raise
        return self._answer(name, seconds)

    def _answer(self, name: str, seconds: float) -> tuple[dict[str, Any], bytes]:
        try:
            header, payload = self._stream.receive(seconds=seconds)
        except LinkError as error:
            raise self._failed(error) from None
        except BaseException:  # such as Ctrl-C: the answer may still come, and would be taken for another's
            self._end()
            raise
        try:
            return check_answer(name, header, payload), payload
        except LinkError as error:
            if header.get("ok") is False and error.kind not in ("protocol", "stuck", "clock", "deadline"):
                raise self._error(error) from None  # the board refuses this one thing
            raise self._failed(error) from None

    def _failed(self, error: LinkError) -> DeviceError:
        """Nothing more is to be had from this link."""
        self.last_error = error
        self._end()
        return self._error(error)

    def _error(self, error: LinkError) -> DeviceError:
        hint = HINTS.get(error.kind, "")
        return BoardLinkError(self.host.name, one_line(error.message), error.kind, hint=hint)

    def _end(self) -> None:
        self.dead = True
        self._far.end()


class BoardLinkError(DeviceError):
    """A board that cannot be reached or does not do what is asked; ``kind`` is one of :data:`.link.errors.KINDS`,
    ``reason`` the message without the board's name."""

    def __init__(self, board: str, reason: str, kind: str, *, hint: str = "") -> None:
        super().__init__(f"board {board!r}: {reason}", hint=hint)
        self.reason = reason
        self.kind = kind


def design_files(host: Host) -> tuple[bytes, bytes]:
    """The ``.bit`` and the ``.hwh`` of a board's overlay; :class:`DeviceError` if there are none."""
    if host.overlay is None:
        raise no_overlay(host)
    files = []
    for path in (host.overlay, host.overlay.with_suffix(".hwh")):
        try:
            files.append(Path(path).read_bytes())
        except OSError as error:
            raise DeviceError(f"the overlay of board {host.name!r} cannot be read: {error.strerror}", at=path) from None
    return files[0], files[1]
