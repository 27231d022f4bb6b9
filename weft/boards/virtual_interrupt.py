"""How the interrupt of a virtual board's core reaches pynq: an interrupt controller in the logic, and Linux's UIO.

The core's pin drives an AXI interrupt controller (PG099), whose output is an interrupt of the processor. Linux gives
that to whoever opens a UIO device: :class:`KernelFiles` stands for the files of the kernel that pynq opens. As
:mod:`.virtual` this needs nothing of weft.
"""

from __future__ import annotations

import builtins
import io
import os
import select
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

NAME = "fabric"
"""What the device trees of PYNQ's images call the interrupt."""

BUSY_PAUSE, IDLE_PAUSE = 1e-4, 5e-3
"""Seconds between two steps of a core that runs, and between two looks at one that does not."""

MASTER, HARDWARE = 1, 2
"""Bits of the controller's register MER."""


class Controller:
    """An AXI interrupt controller with one input, which is level-sensitive: what was acknowledged comes again while
    the input is high, and what has come stays until it is acknowledged."""

    ISR, IPR, IER, IAR, SIE, CIE, _, MER = range(0, 32, 4)
    SPACE = 64 << 10

    def __init__(self) -> None:
        self._latched = self._enabled = self._master = 0
        self._input = 0

    def drive(self, level: bool) -> None:
        """The input has a level."""
        self._input = int(level)
        if self._master & HARDWARE:
            self._latched |= self._input

    @property
    def output(self) -> bool:
        """Level of the wire to the processor."""
        return bool(self._master & MASTER and self._latched & self._enabled)

    def read(self, offset: int) -> int:
        return {
            self.ISR: self._latched,
            self.IPR: self._latched & self._enabled,
            self.IER: self._enabled,
            self.MER: self._master,
        }.get(offset, 0)

    def write(self, offset: int, value: int) -> None:
        if offset == self.IER:
            self._enabled = value & 1
        elif offset == self.SIE:
            self._enabled |= value & 1
        elif offset == self.CIE:
            self._enabled &= ~value
        elif offset == self.IAR:
            self._latched &= ~value
        elif offset == self.MER:
            self._master = value & MASTER | (value | self._master) & HARDWARE  # the second bit stays
        self.drive(bool(self._input))


class UioDevice:
    """A UIO device of an interrupt: a number can be read after each one, and then it is masked until one is written."""

    def __init__(self) -> None:
        self._near, self._far = socket.socketpair()
        self._count = 0
        self._unmasked = True

    def open(self) -> Any:
        """What ``open`` gives without a buffer."""
        return self._near.makefile("rwb", buffering=0)

    def wait(self) -> None:
        """Until the interrupt may come, or something was written."""
        if not self._unmasked:
            select.select([self._far], [], [])

    def take_orders(self) -> bool:
        """See what was written; whether the interrupt may come. One thread at a time."""
        while select.select([self._far], [], [], 0)[0]:
            self._unmasked = bool(int.from_bytes(self._far.recv(4), "little"))
        return self._unmasked

    def interrupt(self) -> None:
        """The processor has got the interrupt."""
        self._unmasked = False
        self._count += 1
        self._far.send(self._count.to_bytes(4, "little"))


class InterruptPath:
    """From the pin to the UIO device. ``advance`` lets a little time pass for the core; it gives the level of its pin,
    and whether the core runs. A thread does that while somebody waits for the interrupt; ``lock`` is held whenever the
    core is used. ``wire``: the level of a broken wire, in place of the pin's."""

    def __init__(self, advance: Callable[[], tuple[bool, bool]], wire: bool | None = None) -> None:
        self.lock = threading.RLock()
        self.uio = UioDevice()
        self.controller = Controller()
        self._advance, self._wire = advance, wire
        threading.Thread(target=self._run, daemon=True).start()

    def settle(self, pin: bool) -> None:
        """Let the pin's level take effect; with ``lock``."""
        self.controller.drive(pin if self._wire is None else self._wire)
        if self.controller.output and self.uio.take_orders():
            self.uio.interrupt()

    def _run(self) -> None:
        while True:
            self.uio.wait()
            runs = False
            with self.lock:
                if self.uio.take_orders():
                    pin, runs = self._advance()
                    self.settle(pin)
            time.sleep(BUSY_PAUSE if runs else IDLE_PAUSE)


class KernelFiles:
    """In place of the kernel's files about interrupts. ``driver``: who has the interrupt ``number``: ``"uio"``,
    ``"other"`` for a kernel that has no UIO, or ``"none"``."""

    PROCESSORS = "           CPU0       CPU1\n"
    DEVICE = "/dev/uio0"
    DEVICES = "/sys/class/uio"

    def __init__(self, number: int, driver: str, uio: UioDevice) -> None:
        self._uio = uio
        line = f" 46:          0          0     GIC-0 {number:3} Level     {NAME}\n"
        self._texts = {"/proc/interrupts": self.PROCESSORS + line * (driver != "none")}
        self._has_uio = driver == "uio"
        if self._has_uio:
            self._texts[f"{self.DEVICES}/{os.path.basename(self.DEVICE)}/name"] = f"{NAME}\n"

    def install(self) -> None:
        """From now on this process finds these files, not those of the machine."""
        open_file, list_folder = builtins.open, os.listdir

        def opened(file: Any, *arguments: Any, **options: Any) -> Any:
            if file in self._texts:
                return io.StringIO(self._texts[file])
            if file == self.DEVICE:
                return self._uio.open()
            return open_file(file, *arguments, **options)

        def listed(folder: Any = ".") -> Any:
            if folder == self.DEVICES:
                if not self._has_uio:
                    raise FileNotFoundError(2, "No such file or directory", folder)
                return [os.path.basename(self.DEVICE)]
            return list_folder(folder)

        builtins.open = opened
        os.listdir = listed  # type: ignore[assignment]
