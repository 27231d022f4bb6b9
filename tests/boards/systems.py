"""A system of cores on a board, in this process: its RTL, with memory of its own on each side, as a board has it."""

from __future__ import annotations

import os
import threading
from typing import Any

import numpy as np
import pytest
from weft.boards.device import Board
from weft.boards.hosts import Host
from weft.boards.link import server
from weft.boards.link.driver import Core
from weft.boards.link.frames import Stream
from weft.boards.link.server import Server
from weft.boards.remote import Link
from weft.boards.zipapp import core_constants
from weft.hw.config import ISA_VERSION
from weft.hw.register_windows import GROUP_WINDOW, WINDOW_BYTES
from weft.hw.registers import Register
from weft.hw.system_config import SystemConfig
from weft.sim.rtl import BASE_ADDRESS
from weft.sim.system_rtl import RtlSystem


def cores_of(system: SystemConfig) -> list[Core]:
    return [
        Core(core.hash64, ISA_VERSION, core.address_bits, core.bus_bytes, core.instruction_bytes)
        for core in system.cores
    ]


class Block:
    """The registers of all cores; a look at a STATUS takes cycles."""

    def __init__(self, simulator: RtlSystem) -> None:
        self.simulator = simulator

    def read(self, address: int) -> int:
        if address < GROUP_WINDOW and address % WINDOW_BYTES == Register.STATUS:
            for _ in range(20):
                self.simulator.read_register(address)
        return self.simulator.read_register(address)

    def write(self, address: int, value: int) -> None:
        assert type(value) is int
        self.simulator.write_register(address, value)


class Buffer(np.ndarray[Any, Any]):
    """The processor's copy of a part of the cores' memory; a sync covers the whole of it."""

    device_address: int
    there: Any

    def sync_to_device(self) -> None:
        self.there[:] = np.asarray(self)

    def sync_from_device(self) -> None:
        self[:] = self.there

    def freebuffer(self) -> None: ...


def buffer(simulator: RtlSystem, size: int) -> Buffer:
    made = np.full(size, 0xEE, np.uint8).view(Buffer)
    made.device_address, made.there = BASE_ADDRESS, simulator.dram[:size]
    return made


class Design:
    """A design with a system, as the server sees it once it is loaded."""

    address, device, no_interrupt = 0x43C0_0000, "here", ""

    def __init__(self, simulator: RtlSystem) -> None:
        self.simulator = simulator
        self.block = Block(simulator)

    def allocate(self, size: int) -> Buffer:
        return buffer(self.simulator, size)

    def clock_mhz(self) -> float:
        return 100.0


class _Thread:
    """The other end of a link: a server in a thread."""

    usable_here = True

    def __init__(self, served: Server) -> None:
        (ours, self.sink), (self.source, theirs) = os.pipe(), os.pipe()
        self._thread = threading.Thread(target=lambda: served.serve(Stream(ours, theirs)), daemon=True)
        self._thread.start()

    def end(self) -> None: ...

    def last_words(self) -> str:
        return ""


def serve_here(monkeypatch: pytest.MonkeyPatch, tmp_path: Any, simulator: RtlSystem) -> Design:
    """From now on all boards are this system, behind a server in this process."""
    design = Design(simulator)
    monkeypatch.setattr(server, "import_pynq", lambda: None)
    monkeypatch.setattr(server, "load_design", lambda *_: design)
    folder = tmp_path / "server"
    folder.mkdir()

    def opened(self: Board, progress: Any) -> Link:
        return Link(self.host, progress, _Thread(Server(core_constants(), folder, tmp_path / "lock")))

    monkeypatch.setattr(Board, "_open", opened)
    return design


def host_of(overlay: Any, **settings: Any) -> Host:
    return Host("pair", overlay=overlay, installed="there", connect_seconds=60, run_seconds=60, **settings)
