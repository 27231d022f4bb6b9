"""What a board costs from this machine: connecting, a launch, a byte each way, a network's result."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ..hw.config import CoreConfig
from ..hw.isa import Finish
from ..hw.programs import assemble
from .device import PynqDevice
from .hosts import Host

Progress = Callable[[str], None]
PROGRAM_BYTES = 4096


@dataclass(frozen=True)
class Costs:
    """Seconds until a window is there (link, design, memory), of the median launch of an empty program and of the
    slowest one; bytes a second up and down; cycles of the empty program, and MHz."""

    connect_seconds: float
    launch_seconds: float
    longest_launch_seconds: float
    up_bytes_per_second: float
    down_bytes_per_second: float
    launch_cycles: int | None
    clock_mhz: float | None


def measure_board(
    host: Host, config: CoreConfig, *, launches: int = 100, megabytes: int = 8, progress: Progress = lambda _: None
) -> Costs:
    """Connect, launch and copy. :class:`~weft.runtime.errors.DeviceError` if the board does not do that."""
    device = PynqDevice(config, host=host, progress=progress)
    size = megabytes << 20
    started = time.perf_counter()
    device.allocate(PROGRAM_BYTES + size)
    connected = time.perf_counter() - started
    try:
        device.write(0, assemble(config, [Finish()]))
        device.launch(0, 1)
        progress(f"{host.name}: {launches} launches")
        seconds = []
        for _ in range(launches):
            started = time.perf_counter()
            result = device.launch(0, 1)
            seconds.append(time.perf_counter() - started)
        content = np.random.default_rng(0).integers(0, 256, size, np.uint8)
        progress(f"{host.name}: {megabytes} MiB up")
        started = time.perf_counter()
        device.write(PROGRAM_BYTES, content)
        up = time.perf_counter() - started
        progress(f"{host.name}: {megabytes} MiB down")
        started = time.perf_counter()
        device.read(PROGRAM_BYTES, size)
        down = time.perf_counter() - started
        clock = device.clock_mhz
    finally:
        device.allocate(0)
    return Costs(
        connect_seconds=connected,
        launch_seconds=statistics.median(seconds),
        longest_launch_seconds=max(seconds),
        up_bytes_per_second=size / up,
        down_bytes_per_second=size / down,
        launch_cycles=result.cycles,
        clock_mhz=clock,
    )
