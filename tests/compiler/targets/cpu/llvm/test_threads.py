"""The thread pool alone, with jobs that are Python functions: nobody waits for a wake-up that was lost."""

from __future__ import annotations

import ctypes
import random
import threading
import time
from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
from weft.compiler.targets.cpu.llvm.object_code import object_code
from weft.compiler.targets.cpu.llvm.threads import SLEEPERS, TEAM_BYTES, pool_text
from weft.compiler.targets.cpu.processor import PROCESSORS, host_target, named_target
from weft.runtime.machine_code import MachineCode

from tests.waiting import wait_until

LONG_AFTER = 60
STOP, BELL = 24, 192
"""Where in a team's memory it stands that the workers are to end, and how often they were woken."""

SYMBOLS = ["weft_work", "weft_run", "weft_stop"]
JOB = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)


@cache
def pool(seconds: int) -> MachineCode:
    """The pool's code, whose workers look around every so many seconds."""
    target = host_target()
    text = pool_text(target.triple)
    patient = text.replace("{ i64 1, i64 0 }", f"{{ i64 {seconds}, i64 0 }}")
    assert (patient == text) == (seconds == 1)
    return MachineCode([object_code(patient, target)], SYMBOLS)


class Team:
    """Threads in the pool's code."""

    def __init__(self, code: MachineCode, threads: int) -> None:
        self.threads = threads
        space = np.zeros(TEAM_BYTES + 64, np.uint8)
        start = -space.ctypes.data % 64
        self.memory = space[start : start + TEAM_BYTES]
        self.sleepers = self.memory[SLEEPERS : SLEEPERS + 8].view(np.int64)
        work = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(code.address("weft_work"))
        self._run = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 4, ctypes.c_int64)(code.address("weft_run"))
        self._stop = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(code.address("weft_stop"))
        at = self.memory.ctypes.data
        self.workers = [
            threading.Thread(target=lambda number=number: work(at, number), daemon=True) for number in range(1, threads)
        ]
        for worker in self.workers:
            worker.start()

    def run(self, job: Callable[[int], None]) -> None:
        def called(argument: int, thread: int) -> None:
            job(thread)

        self._run(self.memory.ctypes.data, ctypes.cast(JOB(called), ctypes.c_void_p), None, None, 0)

    def stop(self) -> None:
        self._stop(self.memory.ctypes.data)

    def fall_asleep(self) -> None:
        """Return when all workers sleep."""
        wait_until(lambda: bool(self.sleepers[0] == self.threads - 1), LONG_AFTER)

    def join(self) -> None:
        for worker in self.workers:
            worker.join(LONG_AFTER)
            assert not worker.is_alive(), "a worker does not end"
        assert self.sleepers[0] == 0


@pytest.mark.parametrize("threads", [2, 3, 6])
def test_all_sleepers_hear_of_a_job_and_of_the_end(threads: int) -> None:
    team = Team(pool(1000), threads)
    for _ in range(30):
        team.fall_asleep()
        met = threading.Barrier(threads, timeout=LONG_AFTER)
        missed = []

        def meet(thread: int, met: threading.Barrier = met, missed: list[int] = missed) -> None:
            try:
                met.wait()
            except threading.BrokenBarrierError:
                missed.append(thread)

        rung = team.memory[BELL]
        team.run(meet)
        assert not missed
        assert team.memory[BELL] == rung + 1  # what was about to sleep sees that it has changed
    team.fall_asleep()
    team.stop()
    team.join()


def test_a_worker_that_nobody_wakes_looks_around() -> None:
    team = Team(pool(1), 3)
    team.fall_asleep()
    team.memory[STOP : STOP + 8].view(np.int64)[0] = 1  # the end, without a word to the sleepers
    team.join()


@pytest.mark.parametrize("threads", [2, 3, 6])
def test_jobs_and_the_end_come_while_workers_fall_asleep(threads: int) -> None:
    chance = random.Random(threads)
    for _ in range(60):
        team = Team(pool(1000), threads)
        for _ in range(chance.randint(0, 8)):
            time.sleep(chance.choice([0, 5e-5, 1e-4, 2e-4, 5e-4]))
            ran: list[int] = []
            team.run(ran.append)
            assert len(ran) == len(set(ran))
            assert 0 in ran
        time.sleep(chance.choice([0, 5e-5, 1e-4, 2e-4, 5e-4]))
        team.stop()
        team.join()


@pytest.mark.parametrize("name", PROCESSORS)
def test_the_pool_is_compiled_for_boards(name: str) -> None:
    assert b"syscall" in object_code(pool_text(named_target(name).triple), named_target(name))


@pytest.mark.parametrize("triple", ["riscv64-unknown-linux-gnu", "x86_64-apple-darwin"])
def test_workers_nap_where_no_futex_is_known(triple: str) -> None:
    text = pool_text(triple)
    assert "syscall" not in text
    code = MachineCode([object_code(text, host_target())], SYMBOLS)  # held until the threads have left it
    team = Team(code, 4)
    met = threading.Barrier(4, timeout=LONG_AFTER)
    team.fall_asleep()
    team.run(lambda thread: met.wait() and None)
    assert not met.broken
    team.fall_asleep()
    team.stop()
    team.join()
