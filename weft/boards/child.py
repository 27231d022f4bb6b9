"""A child process at the other end of two pipes: how a link reaches a board."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import IO

from ..runtime.errors import DeviceError
from ..shown import one_line

STDERR_BYTES = 4000


class Child:
    """A running command; :class:`DeviceError` if it cannot run. ``source`` and ``sink``: its output and its input."""

    def __init__(self, command: Sequence[str]) -> None:
        self._process_id = os.getpid()
        self._said: deque[bytes] = deque(maxlen=64)
        try:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0,
                start_new_session=True,  # Ctrl-C is for this process alone
            )  # fmt: skip
        except OSError as error:
            raise DeviceError(f"{command[0]} cannot be run: {error.strerror}") from None
        assert self._process.stdout is not None
        assert self._process.stdin is not None
        assert self._process.stderr is not None
        self.source, self.sink = self._process.stdout.fileno(), self._process.stdin.fileno()
        self._listener = threading.Thread(target=self._listen, args=(self._process.stderr,), daemon=True)
        self._listener.start()

    @property
    def usable_here(self) -> bool:
        """Whether this is the process that started it: a fork of that one has none of its own."""
        return os.getpid() == self._process_id

    def end(self) -> None:
        """Close the pipes; a child that does not take that as the end is killed, with what it started."""
        if not self.usable_here:
            return
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()
        try:
            self._process.wait(0.5)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def last_words(self) -> str:
        """The last line that it wrote to stderr, if it ends; else what there is so far."""
        self._listener.join(0.5)
        lines = b"".join(self._said)[-STDERR_BYTES:].decode("utf-8", "replace").strip().splitlines()
        return one_line(lines[-1]) if lines else ""

    def _listen(self, pipe: IO[bytes]) -> None:
        with suppress(OSError, ValueError):
            while part := pipe.read(STDERR_BYTES):
                self._said.append(part)
