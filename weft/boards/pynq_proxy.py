"""Lends this process's pynq to one program under QEMU, which has :mod:`.proxied_pynq` in its place.

    python virtual.py SPEC.json pynq_proxy.py SOCKET

It ends when that program does.
"""

from __future__ import annotations

import sys
import warnings
from multiprocessing.connection import Listener
from typing import Any

import numpy as np


class Lender:
    """A method for each verb; ``pynq`` is the module."""

    def __init__(self, pynq: Any) -> None:
        self._pynq = pynq
        self._overlay: Any = None
        self._buffers: dict[int, Any] = {}

    def overlay(self, path: str) -> dict[str, dict[str, Any]]:
        self._overlay = self._pynq.Overlay(path)
        keys = ("type", "phys_addr")
        return {name: {key: cell.get(key) for key in keys} for name, cell in self._overlay.ip_dict.items()}

    def read(self, name: str, offset: int) -> int:
        return int(getattr(self._overlay, name).read(offset))

    def write(self, name: str, offset: int, value: int) -> None:
        getattr(self._overlay, name).write(offset, value)

    def allocate(self, size: int) -> tuple[int, int]:
        buffer = self._pynq.allocate((size,), dtype="u1", target=self._overlay.device, cacheable=1)
        number = len(self._buffers)
        self._buffers[number] = buffer
        return number, int(buffer.device_address)

    def to_device(self, number: int, data: bytes) -> None:
        self._buffers[number][:] = np.frombuffer(data, np.uint8)
        self._buffers[number].sync_to_device()

    def from_device(self, number: int) -> bytes:
        self._buffers[number].sync_from_device()
        return bytes(self._buffers[number].tobytes())

    def free(self, number: int) -> None:
        self._buffers[number].freebuffer()
        self._buffers[number] = None

    def clock(self) -> float:
        return float(self._pynq.Clocks.fclk0_mhz)

    def set_clock(self, value: float) -> None:
        self._pynq.Clocks.fclk0_mhz = value


def main() -> None:
    """Serve one program until it ends."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import pynq

    lender = Lender(pynq)
    with Listener(sys.argv[1], "AF_UNIX") as listener, listener.accept() as near:
        while True:
            try:
                verb, arguments = near.recv()
            except EOFError:
                return
            try:
                near.send((True, getattr(lender, verb)(*arguments)))
            except Exception as error:
                near.send((False, f"{type(error).__name__}: {error}"))


if __name__ == "__main__":
    main()
