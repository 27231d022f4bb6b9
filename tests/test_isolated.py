"""Cases in processes of their own, for campaigns."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.waiting import wait_until

PROGRAM = """
import os, sys, time
from benchmarks.campaigns.isolated import Broken, Isolated
def work(case):
    if case == "crash":
        os._exit(3)
    if case == "hang":
        time.sleep(600)
    while case == "compute":
        pass
    if case == "whose":
        return os.getpid()
    time.sleep(0.1)
    return case
"""


def start(lines: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", PROGRAM + lines], stdout=subprocess.PIPE, text=True)


def test_a_crash_and_a_hang_cost_one_case_each() -> None:
    process = start("""
for case, result in Isolated(work, 1).run([1, "crash", 2, "hang", 3, "compute", 4]):
    print(case, result.state if isinstance(result, Broken) else result)
""")
    found = process.communicate()[0].splitlines()
    assert found == ["1 1", "crash crash", "2 2", "hang timeout", "3 3", "compute timeout", "4 4"]


def test_only_the_processors_time_is_limited() -> None:
    process = start("""
for case, result in Isolated(work, 0.05).run([1, 2, 3]):
    print(case, result.state if isinstance(result, Broken) else result)
""")  # each sleeps for 0.1 s
    assert process.communicate()[0].splitlines() == ["1 1", "2 2", "3 3"]


def test_the_process_ends_when_its_parent_is_killed() -> None:
    process = start("""
for _, result in Isolated(work, 60).run(["whose", *range(600)]):
    print(result, flush=True)
""")
    assert process.stdout is not None
    worker = int(process.stdout.readline())
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    wait_until(lambda: not Path(f"/proc/{worker}").exists())
