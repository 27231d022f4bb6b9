"""Worker processes that survive their work: one that dies, or takes too long, is a failure of its job alone."""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import signal
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import resource_tracker
from typing import Any, Protocol

from ..errors import WeftError, what_broke
from .errors import ExploreError

ATTEMPTS = 2
"""How often a job is begun whose worker dies: memory may only have been short for a moment."""


@dataclass(frozen=True)
class Failure:
    """Why a job has no result. ``refused``: weft says no; otherwise something broke."""

    reason: str
    refused: bool


@dataclass(frozen=True)
class Done:
    """The end of a job: its number, and what came of it."""

    number: int
    result: Any | Failure
    seconds: float


class Pool(Protocol):
    """What runs jobs, here or elsewhere."""

    def run(self, jobs: Iterable[tuple[Any, ...]]) -> Iterator[Done]:
        """What comes of each tuple of arguments, in the order in which they end."""


def attempt(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any | Failure:
    """What a function gives, or why it does not."""
    try:
        return function(*arguments)
    except WeftError as error:
        return Failure(str(error), refused=True)
    except Exception as error:
        return Failure(what_broke(error), refused=False)


def _serve(function: Callable[..., Any], connection: multiprocessing.connection.Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what an interruption means
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    connection.send(None)  # all is imported: the job's time begins
    while True:
        try:
            arguments = connection.recv()
        except EOFError:
            return
        connection.send(attempt(function, arguments))


@contextmanager
def _no_interruption() -> Iterator[None]:
    """Ctrl-C goes to all processes of a terminal. One that is begun here does not take it as long as it imports: it
    would die with a traceback. Here it waits until the end."""
    resource_tracker.ensure_running()  # it is begun with the first process, and then unblocks
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class _Worker:
    """A process with a pipe. ``job`` is the number of the one that it works on, ``ready`` that it has started."""

    def __init__(self, function: Callable[..., Any]) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(function, theirs), daemon=True)
        with _no_interruption():
            self.process.start()
        theirs.close()
        self.job: int | None = None
        self.since = 0.0
        self.ready = False

    def end(self) -> None:
        self.process.kill()
        self.process.join()
        self.connection.close()


class Workers:
    """``count`` processes that run ``function``; with none, jobs run in this one.

    ``seconds``: a job that takes longer fails. Arguments and results are pickled; ``function`` is one of a module.
    """

    def __init__(self, function: Callable[..., Any], count: int, seconds: float | None = None) -> None:
        if count < 0:
            raise ExploreError(f"{count} workers are not possible", hint="0 runs everything in one process")
        self._function = function
        self._seconds = seconds
        self._count = count
        self._workers: list[_Worker] = []

    def run(self, jobs: Iterable[tuple[Any, ...]]) -> Iterator[Done]:
        """What comes of each tuple of arguments, in the order in which they end."""
        waiting = deque(enumerate(jobs))
        if not self._count:
            for place, arguments in waiting:
                started = time.monotonic()
                yield Done(place, attempt(self._function, arguments), time.monotonic() - started)
            return
        everything = dict(waiting)
        begun: dict[int, int] = {}
        while waiting or any(worker.job is not None for worker in self._workers):
            self._begin(waiting, begun)
            for worker in self._ended():
                assert worker.job is not None  # only those at work are waited for
                number, seconds = worker.job, time.monotonic() - worker.since
                result = self._result(worker, seconds)
                if isinstance(result, _Died):
                    if begun[number] < ATTEMPTS and not result.too_long:
                        waiting.append((number, everything[number]))
                        continue
                    result = Failure(result.reason, refused=False)
                yield Done(number, result, seconds)

    def _begin(self, waiting: deque[tuple[int, tuple[Any, ...]]], begun: dict[int, int]) -> None:
        while waiting:
            free = next((worker for worker in self._workers if worker.job is None), None)
            if free is None:
                if len(self._workers) == self._count:
                    return
                free = _Worker(self._function)
                self._workers.append(free)
            number, arguments = waiting.popleft()
            begun[number] = begun.get(number, 0) + 1
            free.job, free.since = number, time.monotonic()
            try:
                free.connection.send(arguments)
            except OSError:  # it died while it had nothing to do: `_result` finds that
                continue

    def _ended(self) -> list[_Worker]:
        """Workers with a result, that died, or that have worked for too long; it waits until there is one."""
        busy = [worker for worker in self._workers if worker.job is not None]
        limits = [worker.since + self._seconds for worker in busy if worker.ready and self._seconds is not None]
        left = max(0.0, min(limits) - time.monotonic()) if limits else None
        multiprocessing.connection.wait([each for w in busy for each in (w.connection, w.process.sentinel)], left)
        for worker in busy:
            if not worker.ready and worker.connection.poll():
                with suppress(EOFError, OSError):  # it died at once: its sentinel says so
                    worker.connection.recv()
                    worker.ready, worker.since = True, time.monotonic()
        return [
            worker
            for worker in busy
            if (worker.ready and worker.connection.poll()) or not worker.process.is_alive() or self._too_long(worker)
        ]

    def _too_long(self, worker: _Worker) -> bool:
        return worker.ready and self._seconds is not None and time.monotonic() - worker.since >= self._seconds

    def _result(self, worker: _Worker, seconds: float) -> Any:
        try:
            if worker.ready and worker.connection.poll():
                result = worker.connection.recv()
                worker.job = None
                return result
        except (EOFError, OSError):
            pass
        too_long = worker.process.is_alive() and self._too_long(worker)
        worker.end()
        self._workers.remove(worker)
        if too_long:
            return _Died(f"stopped after {seconds:.0f} s", too_long=True)
        code = worker.process.exitcode or 0
        how = f"by signal {signal.Signals(-code).name}" if code < 0 else f"with status {code}"
        return _Died(f"the worker process ended {how}", too_long=False)

    def close(self) -> None:
        for worker in self._workers:
            worker.end()
        self._workers.clear()

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass(frozen=True)
class _Died:
    reason: str
    too_long: bool
