"""A device that is not in this process: its window can only be reached by messages, as that of a board on a network."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import weft
from weft.runtime.errors import DeviceError
from weft.sim.result import RunResult


class FarDevice(weft.Device):
    """Sends what is asked of it to another process, and waits for the answer."""

    name = "far"

    def __init__(self, config: weft.CoreConfig, *, progress: Callable[[str], None] | None = None) -> None:
        super().__init__(config, progress=progress)
        self._board = subprocess.Popen([sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        weakref.finalize(self, _end, os.getpid(), self._board)
        self._ask("board", config)

    def allocate(self, window_bytes: int) -> None:
        self._ask("allocate", window_bytes)

    def write(self, offset: int, data: np.ndarray) -> None:
        self._ask("write", offset, np.ascontiguousarray(data))

    def read(self, offset: int, size: int) -> np.ndarray:
        window: np.ndarray = self._ask("read", offset, size)
        return window

    def execute(self, offset: int, count: int, trace: bool) -> RunResult:
        result: RunResult = self._ask("execute", offset, count, trace)
        return result

    def _ask(self, *words: object) -> Any:
        try:
            pickle.dump(words, self._board.stdin)
            self._board.stdin.flush()
            answer = pickle.load(self._board.stdout)
        except (OSError, EOFError) as error:
            raise DeviceError("device 'far' does not answer any more", hint="open it again") from error
        if isinstance(answer, Exception):
            raise answer
        return answer


def _end(process: int, board: subprocess.Popen[bytes]) -> None:
    """The end of its input is the end of the board. A forked child would wait for ever: its parent holds the input."""
    if os.getpid() == process:
        board.communicate()


def serve() -> None:
    """The other side: a functional simulator that does what the messages say until there are no more."""
    messages, answers = sys.stdin.buffer, sys.stdout.buffer
    device: weft.Device | None = None
    while messages.peek(1):
        word, *arguments = pickle.load(messages)
        answer: object = None
        try:
            if word == "board":
                device = weft.FsimDevice(*arguments, timing=False)
            else:
                answer = getattr(device, word)(*arguments)
        except weft.WeftError as error:
            answer = error
        pickle.dump(answer, answers)
        answers.flush()


if __name__ == "__main__":
    serve()
