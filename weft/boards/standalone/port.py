"""A serial port of this machine, by what the system itself has (POSIX, and the rates of Linux)."""

from __future__ import annotations

import array
import errno
import fcntl
import os
import select
import termios
import time
from contextlib import suppress

from ...runtime.errors import DeviceError

RATES = {int(name[1:]): value for name, value in vars(termios).items() if name.startswith("B") and name[1:].isdigit()}
"""Bits a second that the system knows, and its number for each."""

LOW_LATENCY = 1 << 13
FLAGS = 4  # place of the flags, in words, in the structure of these two requests
GET_SERIAL, SET_SERIAL = 0x541E, 0x541F

WRITE_SECONDS = 10.0
"""What the line may take to take a frame."""


class SerialPort:
    """An open port: eight bits, no parity, no flow control; nobody else can open it here.

    ``timeout`` is what :meth:`read` waits at most, in seconds. :class:`DeviceError` if it cannot be opened; OSError if
    it goes while it is in use.
    """

    def __init__(self, path: str, baud: int) -> None:
        self.timeout = 1.0
        if baud not in RATES or baud == 0:
            known = ", ".join(str(rate) for rate in sorted(RATES) if rate >= 9600)
            raise DeviceError(f"this system has no serial line of {baud} bits a second", hint=f"known: {known}")
        try:
            self._descriptor = os.open(path, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            hint = "the group dialout may use it on most systems" if error.errno == errno.EACCES else ""
            raise DeviceError(f"the serial port cannot be opened: {error.strerror}", at=path, hint=hint) from None
        try:
            self._set_up(path, RATES[baud])
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Give it back."""
        os.close(self._descriptor)

    def read(self, size: int) -> bytes:
        """``size`` bytes, or those that have come when the time is over."""
        end = time.monotonic() + self.timeout
        found = b""
        while len(found) < size and self._ready(select.POLLIN, end):
            with suppress(BlockingIOError):
                part = os.read(self._descriptor, size - len(found))
                if not part:
                    raise OSError(errno.EIO, "the other end has gone")
                found += part
        return found

    def write(self, content: bytes) -> None:
        """All bytes; OSError if the line does not take them."""
        end = time.monotonic() + WRITE_SECONDS
        rest = memoryview(content)
        while rest:
            if not self._ready(select.POLLOUT, end):
                raise OSError(errno.ETIMEDOUT, "the line takes no bytes")
            with suppress(BlockingIOError):
                rest = rest[os.write(self._descriptor, rest) :]

    def forget_input(self) -> None:
        """Drop what has come and was not read."""
        try:
            termios.tcflush(self._descriptor, termios.TCIFLUSH)
        except termios.error as error:
            raise OSError(*error.args) from None

    def _set_up(self, path: str, rate: int) -> None:
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _, _, control, _, _, _, special = termios.tcgetattr(self._descriptor)
            control &= ~(termios.CSIZE | termios.PARENB | termios.CSTOPB | termios.CRTSCTS)
            control |= termios.CS8 | termios.CREAD | termios.CLOCAL
            special[termios.VMIN], special[termios.VTIME] = 1, 0
            termios.tcsetattr(self._descriptor, termios.TCSANOW, [0, 0, control, 0, rate, rate, special])
        except BlockingIOError:
            raise DeviceError("the serial port is in use by another program", at=path) from None
        except (OSError, termios.error) as error:
            raise DeviceError(f"it is no serial port: {error.args[-1]}", at=path) from None
        with suppress(OSError):  # not all kinds have it: an FTDI chip else keeps an answer for 16 ms
            settings = array.array("i", [0] * 32)
            fcntl.ioctl(self._descriptor, GET_SERIAL, settings)
            settings[FLAGS] |= LOW_LATENCY
            fcntl.ioctl(self._descriptor, SET_SERIAL, settings)

    def _ready(self, event: int, end: float) -> bool:
        """Whether the port is ready before ``end``; OSError if it is gone."""
        poll = select.poll()
        poll.register(self._descriptor, event)
        for _, found in poll.poll(max(0.0, end - time.monotonic()) * 1e3):
            if found & event:
                return True
            raise OSError(errno.EIO, "the other end has gone")
        return False
