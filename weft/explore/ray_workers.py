"""The processors of a Ray cluster as workers: a node that goes away takes its jobs with it, which others do again.

Each processor of the cluster holds one actor, and each actor one process of :class:`Workers`, so that a job that breaks
its process or takes too long ends as it does on one machine. Networks travel as bytes: nodes need weft, not the files.
"""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from .errors import ExploreError
from .measure import Network, measured_by
from .workers import ATTEMPTS, Done, Failure, Workers

POLL_SECONDS = 1.0
"""How often the cluster is asked whether it has grown."""


class Host:
    """What runs on a processor of the cluster: a process for jobs, and the networks' files.

    ``files``: by digest the name of each, by which a front end may know it, and its bytes.
    """

    def __init__(
        self, function: Callable[..., Any], files: Mapping[str, tuple[str, bytes]], seconds: float | None
    ) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="weft-explore-"))
        self._paths: dict[str, Path] = {}
        for digest, (name, content) in files.items():
            self._paths[digest] = path = self._folder / digest / name
            path.parent.mkdir()
            path.write_bytes(content)
        self._workers = Workers(function, 1, seconds)

    def begin(self) -> str:
        """Which weft this is."""
        return measured_by()

    def run(self, arguments: tuple[Any, ...]) -> Done:
        here = tuple(self._here(each) for each in arguments)
        (done,) = self._workers.run([here])
        return done

    def _here(self, value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(self._here(each) for each in value)
        return replace(value, path=str(self._paths[value.digest])) if isinstance(value, Network) else value

    def close(self) -> None:
        self._workers.close()
        shutil.rmtree(self._folder, ignore_errors=True)


class RayWorkers:
    """``function`` on every processor of the cluster at ``address`` (``host:port``, or ``auto`` for this machine's).

    ``networks`` are those that jobs name. ``seconds``: a job that takes longer fails. Processors that join while jobs
    run are used. Raises ExploreError where Ray or the cluster is missing, and where a node has another weft.
    """

    def __init__(
        self, function: Callable[..., Any], address: str, networks: Sequence[Network], seconds: float | None = None
    ) -> None:
        try:
            import ray
        except ImportError:
            raise ExploreError("a cluster needs Ray", hint="pip install 'weft[ray]'") from None
        self._ray: Any = ray
        paths = {network.digest: Path(network.path) for network in networks}
        files = {digest: (path.name, path.read_bytes()) for digest, path in paths.items()}
        try:
            self._ray.init(address=address, log_to_driver=False, logging_level="ERROR")
        except (ConnectionError, RuntimeError, ValueError, OSError) as error:
            raise ExploreError(f"no Ray cluster at {address!r}: {str(error).splitlines()[0]}",
                               hint="start one: `ray start --head`, and `ray start --address HOST:PORT` on the others",
                               ) from error  # fmt: skip
        self._arguments = (function, ray.put(files), seconds)
        self._hosts: list[Any] = []
        self._free: list[Any] = []
        self._pending: dict[Any, tuple[Any, int | None]] = {}  # a future: its host and its job, None while it begins

    def run(self, jobs: Iterable[tuple[Any, ...]]) -> Iterator[Done]:
        """What comes of each tuple of arguments, in the order in which they end."""
        everything = dict(enumerate(jobs))
        waiting = deque(everything)
        lost: Counter[int] = Counter()
        left = len(everything)
        while left:
            self._grow(left)
            while waiting and self._free:
                host, number = self._free.pop(), waiting.popleft()
                self._pending[host.run.remote(everything[number])] = host, number
            ready, _ = self._ray.wait(list(self._pending), timeout=POLL_SECONDS)
            for future in ready:
                host, job = self._pending.pop(future)
                try:
                    result = self._ray.get(future)
                except self._ray.exceptions.RayError as error:  # its node is gone, or cannot be reached
                    self._drop(host)
                    if job is None:
                        continue
                    lost[job] += 1
                    if lost[job] <= ATTEMPTS:
                        waiting.appendleft(job)
                        continue
                    result = Done(job, Failure(f"{lost[job]} nodes were lost with it: {_first(error)}", False), 0.0)
                else:
                    self._free.append(host)
                if job is None:
                    self._check(result)
                else:
                    left -= 1
                    yield replace(result, number=job)

    def _grow(self, wanted: int) -> None:
        """A host for each processor of the cluster, as long as there are jobs for them."""
        processors = int(self._ray.cluster_resources().get("CPU", 0))
        if not processors and not self._hosts:
            raise ExploreError("the Ray cluster has no processor left",
                               hint="add nodes; the same command goes on from what was measured")  # fmt: skip
        for _ in range(min(processors, wanted) - len(self._hosts)):
            host = self._ray.remote(num_cpus=1)(Host).remote(*self._arguments)
            self._hosts.append(host)
            self._pending[host.begin.remote()] = host, None

    def _check(self, theirs: str) -> None:
        if theirs != measured_by():
            raise ExploreError("a node of the Ray cluster has another weft",
                               hint="what it measures would not be comparable: install the same on all")  # fmt: skip

    def _drop(self, host: Any) -> None:
        self._hosts.remove(host)
        self._ray.kill(host)

    def close(self) -> None:
        """Leave the cluster, which goes on."""
        if self._free:
            self._ray.wait([host.close.remote() for host in self._free], num_returns=len(self._free), timeout=5)
        self._hosts.clear()
        self._ray.shutdown()

    def __enter__(self) -> RayWorkers:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _first(error: Exception) -> str:
    return str(error).strip().splitlines()[0]
