"""A board under examination: its link, and programs that are tried on its core."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..hw.config import CoreConfig
from ..sim.result import RunResult
from .device import run_result
from .doctor_programs import Bytes, Trial
from .hosts import Host
from .link.frames import pieces
from .remote import SLACK_SECONDS, Link

WATCHDOG_CYCLES = 1_000_000
"""After so many cycles without progress a tried program is given up; none of them waits that long."""


@dataclass(frozen=True)
class Run:
    """A run on the board, the seconds that it took there, and how often the core's interrupt came."""

    result: RunResult
    seconds: float
    wakes: int


class Patient:
    """What the checks have learnt so far: ``system`` is the board's answer of that name, ``loaded`` the one to the
    design. The window is as large as the largest trial; ``least_memory`` bytes are wanted besides."""

    def __init__(self, host: Host, config: CoreConfig, progress: Callable[[str], None], least_memory: int = 0) -> None:
        self.host, self.config, self.progress, self.least_memory = host, config, progress, least_memory
        self.link: Link | None = None
        self.trouble: Exception | None = None
        """Why the program on the board could not be reached."""
        self.system: dict[str, Any] = {}
        self.loaded: dict[str, Any] = {}
        self._window = 0
        self.window_bytes = 0

    @property
    def is_lost(self) -> bool:
        """Whether nothing more can be asked of the board."""
        return self.link is not None and self.link.dead

    @property
    def is_virtual(self) -> bool:
        """Whether it is a virtual board, on which cycles take as long as they take."""
        return bool(self.loaded.get("device") == "virtual")

    def ask(
        self, name: str, seconds: float | None = None, payload: bytes | memoryview = b"", /, **fields: Any
    ) -> dict[str, Any]:
        """A request to the program on the board, and its answer's fields."""
        assert self.link is not None  # by the order of the checks
        answer, _ = self.link.ask(name, seconds or self.host.connect_seconds, payload, **fields)
        return answer

    def allocate(self, size: int) -> int:
        """Make the window; its address on the bus."""
        answer = self.ask("allocate", size=size)
        self._window, self.window_bytes = answer["window"], size
        return int(answer["address"])

    def write(self, content: Bytes) -> None:
        """Fill the window from its start."""
        data = np.ascontiguousarray(content).data
        for start, length in pieces(content.size):
            self.ask("write", None, data[start : start + length], window=self._window, offset=start)

    def read(self, size: int) -> Bytes:
        """Bytes from the window's start."""
        assert self.link is not None
        return np.frombuffer(self.link.read(self._window, 0, size), np.uint8)

    def run(self, trial: Trial, watchdog: int = WATCHDOG_CYCLES, wait: str = "poll") -> Run:
        """Run a trial, as a fault is a result, too; ``wait``: how its end is awaited."""
        self.write(trial.window)
        seconds = self.host.run_seconds
        answer = self.ask(
            "run", seconds + self.host.connect_seconds + SLACK_SECONDS,
            window=self._window, offset=0, count=trial.count, seconds=seconds, watchdog=watchdog,
            wait=wait,
        )  # fmt: skip
        return Run(run_result(self.config, self.host.name, answer), answer["seconds"], answer["wakes"])

    def close(self) -> None:
        """Give the board back."""
        if self.link is not None:
            self.link.close()
