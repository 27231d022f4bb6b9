"""A serial line without a system in between: what is sent goes to the simulated board at once, and time is cycles."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from weft.boards.standalone.simulated import SimulatedBoard

Change = Callable[[bytes], bytes]

SILENT_CYCLES = 100_000
"""More than the board waits for the rest of a question."""


@dataclass
class Line:
    """A port of a SerialLink. ``on_the_way`` and ``on_the_way_back`` may change what passes."""

    board: SimulatedBoard
    on_the_way: Change = bytes
    on_the_way_back: Change = bytes
    timeout: float = 1.0
    frames: int = 0
    _back: bytes = field(default=b"")

    def write(self, content: bytes) -> None:
        self.frames += 1
        self._back += self.on_the_way_back(self.board.run(SILENT_CYCLES, self.on_the_way(content)))

    def read(self, size: int) -> bytes:
        found, self._back = self._back[:size], self._back[size:]
        return found

    def forget_input(self) -> None:
        self._back = b""
