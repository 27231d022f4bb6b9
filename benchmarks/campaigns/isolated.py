"""Runs cases in another process, which is replaced when it crashes or takes too long.

What counts is the processor's time: what else a machine has to do makes no case late.
"""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Generic, TypeVar

Case = TypeVar("Case")
Result = TypeVar("Result")

PATIENCE = 10.0
"""Seconds that pass for each second of the processor's time that a case may take: then it waits for something."""


@dataclass(frozen=True)
class Broken:
    """A case that gave no result. ``state``: "timeout" or "crash"."""

    state: str
    message: str
    seconds: float = 0.0


@dataclass
class Isolated(Generic[Case, Result]):
    """Runs ``work`` on cases, each with at most ``seconds_at_most`` of the processor's time, and of all time
    `PATIENCE` times as much. The process is forked: what is loaded stays."""

    work: Callable[[Case], Result]
    seconds_at_most: float

    def run(self, cases: Sequence[Case]) -> Iterator[tuple[Case, Result | Broken]]:
        """Every case with its result, in order."""
        waiting = list(cases)
        while waiting:
            yield from self._run_until_it_breaks(waiting)

    def _run_until_it_breaks(self, waiting: list[Case]) -> Iterator[tuple[Case, Result | Broken]]:
        """Takes from ``waiting`` what has a result."""
        context = multiprocessing.get_context("fork")
        ours, theirs = context.Pipe(duplex=False)
        worker = context.Process(target=self._loop, args=(list(waiting), ours, theirs), daemon=True)
        worker.start()
        theirs.close()
        try:
            while waiting:
                late = Broken("timeout", f"over {self.seconds_at_most:g} s", self.seconds_at_most)
                if not ours.poll(PATIENCE * self.seconds_at_most):
                    yield waiting.pop(0), late
                    return
                try:
                    result: Result = ours.recv()
                except EOFError:
                    worker.join()
                    crash = Broken("crash", f"exit code {worker.exitcode}")
                    yield waiting.pop(0), late if worker.exitcode == -signal.SIGPROF else crash
                    return
                yield waiting.pop(0), result
        finally:
            worker.kill()
            worker.join()

    def _loop(self, cases: list[Case], unused: Connection, results: Connection) -> None:
        """In the process. It ends after the case at hand when nobody reads results any more: the parent was killed."""
        gc.freeze()  # what the parent has left lying is not ours to end: it may wait for threads that are not here
        unused.close()
        signal.signal(signal.SIGPROF, signal.SIG_DFL)
        with contextlib.suppress(BrokenPipeError):
            for case in cases:
                signal.setitimer(signal.ITIMER_PROF, self.seconds_at_most)  # ends the process when it is over
                results.send(self.work(case))
