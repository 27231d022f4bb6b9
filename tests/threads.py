"""Work in several threads at once, whose errors are a test's own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor


def in_threads(work: Callable[[int], None], threads: int = 4) -> None:
    """Run ``work(number)`` in threads that start together; the first error is raised."""
    start = threading.Barrier(threads)

    def begin(number: int) -> None:
        start.wait()
        work(number)

    with ThreadPoolExecutor(threads) as pool:
        for job in [pool.submit(begin, number) for number in range(threads)]:
            job.result()
