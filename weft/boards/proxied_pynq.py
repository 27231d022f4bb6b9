"""What a program under QEMU imports as ``pynq``: the real one, of a process that is not emulated, behind a socket.

It has what :mod:`.link.overlay` asks for; :mod:`.pynq_proxy` is the other end. They are for tests and trust each other.
"""

from __future__ import annotations

import os
from functools import cache
from multiprocessing.connection import Client
from typing import Any

import numpy as np

SOCKET_VARIABLE = "WEFT_PROXIED_PYNQ"


@cache
def _far() -> Any:
    return Client(os.environ[SOCKET_VARIABLE], "AF_UNIX")


def _ask(verb: str, *arguments: Any) -> Any:
    _far().send((verb, arguments))
    good, value = _far().recv()
    if not good:
        raise RuntimeError(value)
    return value


class _Block:
    def __init__(self, name: str) -> None:
        self._name = name

    def read(self, offset: int) -> int:
        return int(_ask("read", self._name, offset))

    def write(self, offset: int, value: int) -> None:
        if type(value) is not int:  # as pynq, which takes no integers of NumPy
            raise TypeError(f"{type(value).__name__} cannot be written to a register")
        _ask("write", self._name, offset, value)


class _Device:
    name = "proxied"


class Overlay:
    """A design, loaded where the real pynq is."""

    def __init__(self, bitfile_name: str) -> None:
        self.ip_dict = _ask("overlay", bitfile_name)
        self.device = _Device()

    def __getattr__(self, name: str) -> _Block:
        if name.startswith("_") or name not in self.ip_dict:
            raise AttributeError(name)
        return _Block(name)


class _Buffer(np.ndarray):  # type: ignore[type-arg, unused-ignore]
    """A copy of its own, as the processor's caches make one; syncs carry the bytes."""

    number: int
    device_address: int

    def sync_to_device(self) -> None:
        _ask("to_device", self.number, self.tobytes())

    def sync_from_device(self) -> None:
        self[:] = np.frombuffer(_ask("from_device", self.number), np.uint8)

    def freebuffer(self) -> None:
        _ask("free", self.number)


def allocate(shape: tuple[int, ...], dtype: Any = "u4", **_: Any) -> _Buffer:
    buffer = np.zeros(shape, dtype).view(_Buffer)
    buffer.number, buffer.device_address = _ask("allocate", buffer.nbytes)
    return buffer


class _Clocks:
    @property
    def fclk0_mhz(self) -> float:
        return float(_ask("clock"))

    @fclk0_mhz.setter
    def fclk0_mhz(self, value: float) -> None:
        _ask("set_clock", float(value))


Clocks = _Clocks()
