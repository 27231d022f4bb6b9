"""Long and rough use: threads in several processes run modules on every device while their surroundings are spoiled.

Each worker process has threads that share modules, load and close their own, compile, save and load artifacts, make
mistakes on purpose and meet faults of the core. Meanwhile the cache is deleted and damaged, the disk is filled, and
half of the workers are killed at random and replaced; the other half lives to the end and shows what leaks. Every
result must equal, bit by bit, one from a quiet moment that was held against a reference. No process may hang or say
anything but notices; memory, open files and threads stay flat; nothing is left over.

    python benchmarks/campaigns/soak.py --minutes 120
    python benchmarks/campaigns/soak.py --minutes 0.2 --workers 2 --threads 4 --form digits-fsim1 --form digits-cpu2
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from weft.cache import cache_folder

from benchmarks.campaigns.soak_disk import Disk, mounted
from benchmarks.campaigns.soak_models import FORMS, write_models, write_references
from benchmarks.campaigns.soak_worker import Orders
from benchmarks.common import Record, machine, print_table, processor, write_json

FLAT = {"allocated": 0.02, "resident": 0.02, "own": 0.02, "files": 0.0, "threads": 0.0}
"""What must be flat, and how much it may grow from the second quarter of the run to the last."""

FEWEST_SAMPLES = 5
"""In a quarter; with fewer there is no verdict on memory."""

MOST_FAILURES = 50
"""After these a run ends."""

CLEAN = """
from weft.cache import cache_key, kept, kept_file
kept("cpu", cache_key("soak"), lambda: b"")
kept_file("cpu", cache_key("soak", "file"), lambda path: path.touch())
"""
"""What makes room and removes what killed processes have left."""


@dataclass(frozen=True)
class Options:
    """The size of a run."""

    minutes: float = 120.0
    seed: int = 0
    workers: int = 4
    threads: int = 8
    forms: tuple[str, ...] = tuple(FORMS)
    disk_megabytes: int = 128
    mount: bool = True
    disk_gap: float = 8.0
    process_gap: float = 60.0
    sample_seconds: float = 30.0
    deadline_seconds: float = 2400.0

    @property
    def seconds(self) -> float:
        """How long the workers work."""
        return self.minutes * 60


@dataclass
class Life:
    """A worker process from its start to its end. ``immortal``: it is never killed."""

    number: int
    immortal: bool
    process: subprocess.Popen[str]
    heard: float
    counts: Counter[str] = field(default_factory=Counter)
    samples: list[dict[str, Any]] = field(default_factory=list)
    notices: Counter[str] = field(default_factory=Counter)
    listeners: list[threading.Thread] = field(default_factory=list)
    ready: bool = False
    killed: bool = False
    ended: bool = False


class Soak:
    """A run: the workers, and what happens to them."""

    def __init__(self, options: Options, folder: Path, disk: Disk, say: Callable[[str], None]) -> None:
        self.options, self.folder, self.disk, self.say = options, folder, disk, say
        self.lives: list[Life] = []
        self.events: Counter[str] = Counter()
        self.failures: list[str] = []
        self.ends = threading.Event()
        self.minutes = 0.0
        """For which it has run; a signal may end it early."""
        self._names = iter(range(1_000_000))

    @property
    def running(self) -> list[Life]:
        """Workers that have not ended."""
        return [life for life in self.lives if life.process.poll() is None]

    def fail(self, text: str) -> None:
        """Note what must not happen."""
        self.failures.append(text)
        self.say(f"FAILURE {text}")

    # Workers

    def start(self, number: int) -> None:
        """Start worker ``number``, or its successor."""
        name, options = next(self._names), self.options
        work = self.disk.work / str(name)
        work.mkdir()
        orders = Orders(
            models=str(self.folder / "models"), work=str(work), full=str(self.disk.full), seed=f"{options.seed}/{name}",
            threads=options.threads, forms=list(options.forms), sample_seconds=options.sample_seconds,
            deadline_seconds=options.deadline_seconds,
        )  # fmt: skip
        path = self.folder / f"{name}.json"
        path.write_text(json.dumps(asdict(orders)))
        process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("soak_worker.py")), str(path)], env=self.environment(),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip
        life = Life(number, number < (options.workers + 1) // 2, process, time.monotonic())
        for listen in (self._hear, self._read_notices):
            life.listeners.append(threading.Thread(target=listen, args=(life, name), daemon=True))
            life.listeners[-1].start()
        self.lives.append(life)

    def environment(self) -> dict[str, str]:
        """Of workers: everything that weft writes lies on the disk; what is freed is given back, not kept for each
        thread or in Python's pools of 1 MiB, which a single object holds whole."""
        own = {"WEFT_CACHE": str(self.disk.cache), "TMPDIR": str(self.disk.temporary), "MALLOC_ARENA_MAX": "2"}
        return os.environ | own | {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONMALLOC": "malloc"}

    def _hear(self, life: Life, name: int) -> None:
        """Take in what a worker says."""
        assert life.process.stdout is not None
        for line in life.process.stdout:
            life.heard = time.monotonic()
            try:
                message = json.loads(line)
            except ValueError:  # killed in the middle of a line
                if not life.killed:
                    self.fail(f"worker {name} said {line!r}")
                continue
            match message.pop("kind"):
                case "sample":
                    life.samples.append(message)
                case "failure":
                    self.fail(f"worker {name}: {message['what']}: {message['text']}")
                case "beat":
                    life.counts, life.ready = Counter(message["counts"]), True
                case "end":
                    life.counts, life.ended = Counter(message["counts"]), True

    def _read_notices(self, life: Life, name: int) -> None:
        """A worker may give each notice once, and say nothing else on stderr."""
        assert life.process.stderr is not None
        other = []
        for line in life.process.stderr:
            if not line.startswith("weft: "):
                other.append(line)
            elif line in life.notices:
                self.fail(f"worker {name} gave a notice twice: {line}")
            life.notices[line] += 1
        if other:
            self.fail(f"worker {name} wrote to stderr:\n{''.join(other)[-20_000:]}")

    # Trouble

    def spoil(self, how: Callable[[], None]) -> None:
        """Make trouble until the end; an error here must not go unseen."""
        try:
            how()
        except Exception:
            self.fail(f"the soak itself: {traceback.format_exc()}")

    def spoil_disk(self) -> None:
        """At random moments: the cache is deleted, damaged, or without room."""
        chance = random.Random(f"{self.options.seed}/disk")
        spoil: dict[Callable[[random.Random], str], float] = {
            self.disk.delete_kind: 30, self.disk.delete_file: 20, self.disk.delete_all: 3, self.disk.damage: 30,
            self.disk.restore: 6,
            lambda chance: self.disk.fill(chance, chance.uniform(0.3, 1.0) * self.options.disk_gap, self.ends): 12,
        }  # fmt: skip
        while not self.ends.wait(chance.expovariate(1 / self.options.disk_gap)):
            self.events[chance.choices(list(spoil), list(spoil.values()))[0](chance)] += 1

    def spoil_processes(self) -> None:
        """At random moments: a worker is stopped for a while, or killed and replaced."""
        chance = random.Random(f"{self.options.seed}/processes")
        while not self.ends.wait(chance.expovariate(1 / self.options.process_gap)):
            if chance.random() < 0.4:
                life = chance.choice(self.running)
                life.process.send_signal(signal.SIGSTOP)
                self.ends.wait(chance.uniform(0.05, 0.3) * self.options.process_gap)
                life.process.send_signal(signal.SIGCONT)
                self.events["worker stopped for a while"] += 1
            elif mortal := [life for life in self.running if not life.immortal]:
                life = chance.choice(mortal)
                life.killed = True
                life.process.kill()
                self.finish(life)
                self.events["worker killed"] += 1
                self.start(life.number)

    def finish(self, life: Life) -> None:
        """Wait for a process that ends, and remove what a user would: its unfinished artifacts."""
        status = life.process.wait()
        for thread in life.listeners:
            thread.join()
        name = Path(life.process.args[-1]).stem  # type: ignore[index, arg-type]
        work = self.disk.work / name
        if life.killed:
            self.events["files of killed workers removed"] += len(list(work.iterdir()))
            shutil.rmtree(work)
        else:
            if status or not life.ended:
                self.fail(f"worker {name} ended with status {status}")
            if not any(work.iterdir()):
                work.rmdir()  # else it is reported as left over

    # The whole

    def run(self) -> None:
        """Start the workers, spoil what is around them, and end them."""
        self.disk.restore(random.Random())
        for number in range(self.options.workers):
            self.start(number)
        spoilers = [threading.Thread(target=self.spoil, args=(how,)) for how in (self.spoil_disk, self.spoil_processes)]
        for thread in spoilers:
            thread.start()
        while not all(life.ready or not life.immortal for life in self.lives) and not self.failures:
            if self.ends.wait(0.1):
                break
            self.look_after_workers()
        began, told = time.monotonic(), 0
        while (passed := time.monotonic() - began) < self.options.seconds and len(self.failures) < MOST_FAILURES:
            if self.ends.wait(min(0.5, self.options.seconds - passed)):
                break
            self.minutes = passed / 60
            self.look_after_workers()
            if passed // 60 > told:
                told = passed // 60
                self.say(f"{told:.0f} min: {self.line()}")
        self.ends.set()
        for thread in spoilers:
            thread.join()
        self.end_workers()
        self.look_for_rests()

    def look_after_workers(self) -> None:
        """Nobody may end by itself or be silent."""
        for life in list(self.lives):
            if life.process.poll() is not None and not life.killed:
                life.killed = True
                self.fail(f"worker {life.process.args[-1]} ended with status {life.process.returncode}")  # type: ignore[index]
            elif life.process.poll() is None and time.monotonic() - life.heard > self.options.deadline_seconds:
                life.heard = time.monotonic()
                self.fail(f"worker {life.process.args[-1]} is silent")  # type: ignore[index]
                life.process.send_signal(signal.SIGABRT)  # prints where its threads are

    def end_workers(self) -> None:
        """Let all end by themselves."""
        for life in self.running:
            assert life.process.stdin is not None
            life.process.stdin.close()
        until = time.monotonic() + self.options.deadline_seconds
        for life in self.lives:
            if life.killed:
                continue
            try:
                life.process.wait(max(0.0, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                self.fail(f"worker {life.process.args[-1]} does not end")  # type: ignore[index]
                life.process.send_signal(signal.SIGABRT)
            self.finish(life)

    def look_for_rests(self) -> None:
        """Processes, shared memory and files that are left."""
        sessions = {life.process.pid for life in self.lives}
        until = time.monotonic() + self.options.deadline_seconds
        while (rest := processes_of(sessions)) and time.monotonic() < until:
            time.sleep(0.2)  # a compiler that a killed worker has started ends by itself
        if rest:
            self.fail(f"processes left: {rest}")
        shared = {name for life in self.lives for sample in life.samples for name in sample["shared"]}
        if left := [name for name in shared if Path(name).exists()]:
            self.fail(f"shared memory left: {left}")
        self.events["unfinished files of killed workers"] = len(self.disk.left())
        self.disk.age()
        cleaning = subprocess.run([sys.executable, "-c", CLEAN], env=self.environment(), capture_output=True, text=True)
        if cleaning.returncode or cleaning.stderr:
            self.fail(f"cleaning up: {cleaning.stderr}")
        if left := self.disk.left():
            self.fail(f"files left: {left}")

    # Figures

    def totals(self) -> Counter[str]:
        """What all workers have done, as far as they could tell."""
        return sum((life.counts for life in self.lives), Counter())

    def line(self) -> str:
        """All counts in a line."""
        memory = {
            f"KiB of worker {life.number}": life.samples[-1]["resident"]
            for life in self.lives
            if life.immortal and life.samples
        }
        together = {**self.totals(), **self.events, **memory}
        return ", ".join(f"{name}: {number:,}" for name, number in sorted(together.items()))

    def judge(self) -> list[tuple[int, str, float, float, int]]:
        """For each worker that lives to the end: figure, medians of the second and of the last quarter, samples.
        Growth of what must be flat is a failure."""
        found = []
        for life in (life for life in self.lives if life.immortal and life.samples):
            first, last = life.samples[0]["seconds"], life.samples[-1]["seconds"]
            quarter = (last - first) / 4
            second = [each for each in life.samples if first + quarter <= each["seconds"] < first + 2 * quarter]
            fourth = [each for each in life.samples if each["seconds"] >= first + 3 * quarter]
            if min(len(second), len(fourth)) < FEWEST_SAMPLES:
                continue
            for figure in (name for name in (*FLAT, "llvmlite") if name in life.samples[0]):
                before, after = (statistics.median(each[figure] for each in part) for part in (second, fourth))
                found.append((life.number, figure, before, after, len(life.samples)))
                if figure in FLAT and after > before * (1 + FLAT[figure]):
                    self.fail(f"worker {life.number}: {figure} grew from {before:,} to {after:,}")
        return found


def processes_of(sessions: set[int]) -> list[str]:
    """Processes, zombies too, of these sessions."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, _, rest = path.read_text().rpartition(")")
        except OSError:
            continue  # it has just ended
        if int(rest.split()[3]) in sessions:
            found.append(name + ")")
    return found


def soak(options: Options, say: Callable[[str], None] = print) -> tuple[Soak, list[Record]]:
    """A whole run and its figures; ``failures`` says what went wrong."""
    with tempfile.TemporaryDirectory(prefix="weft-soak-") as name:
        folder = Path(name)
        for each in ("models", "simulators", "disk"):
            (folder / each).mkdir()
        prepare(folder, options)
        with mounted(folder / "disk", options.disk_megabytes if options.mount else 0) as is_mounted:
            run: Soak
            disk = Disk(folder / "disk", folder / "full", folder / "simulators", mounted=is_mounted,
                        pids=lambda: [life.process.pid for life in run.running])  # fmt: skip
            how = f"a tmpfs of {options.disk_megabytes} MiB" if is_mounted else "a limit on the workers' files"
            say(f"disk full by {how}; {processor()}; {options}")
            run = Soak(options, folder, disk, say)
            default = signal.signal(signal.SIGTERM, lambda *_: run.ends.set())
            try:
                run.run()
            finally:
                signal.signal(signal.SIGTERM, default)
                for life in run.running:
                    life.process.kill()
                    life.process.wait()
            workload = f"{run.minutes:.1f} min, {options.workers} x {options.threads} threads, {how}"
            records = [Record("tiny", workload, *each) for each in sorted({**run.totals(), **run.events}.items())]
            for number, figure, before, after, count in run.judge():
                records.append(Record("tiny", f"{workload}, worker {number}, {count} samples", figure, after, before))
            records.append(Record("tiny", workload, "failures", len(run.failures), 0))
    return run, records


def prepare(folder: Path, options: Options) -> None:
    """The models, what they must give, and the simulators that this has used, from the user's own cache."""
    began = time.time()
    write_models(folder / "models")
    write_references(folder / "models", [FORMS[form] for form in options.forms], options.seed)
    for path in cache_folder("rtl").glob("weft-*"):
        if path.stat().st_mtime >= began - 1:
            shutil.copy2(path, folder / "simulators")


def main() -> int:
    defaults = Options()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=defaults.minutes)
    parser.add_argument("--seed", type=int, default=defaults.seed)
    parser.add_argument("--workers", type=int, default=defaults.workers, help="processes; every other is never killed")
    parser.add_argument("--threads", type=int, default=defaults.threads, help="of each worker")
    parser.add_argument("--form", action="append", choices=sorted(FORMS), help="only these")
    parser.add_argument("--disk-megabytes", type=int, default=defaults.disk_megabytes)
    parser.add_argument("--no-mount", action="store_true", help="a limit stands for the full disk, as without root")
    parser.add_argument("--disk-gap", type=float, default=defaults.disk_gap, help="mean seconds between troubles")
    parser.add_argument("--process-gap", type=float, default=defaults.process_gap, help="the same for processes")
    parser.add_argument("--sample", type=float, default=defaults.sample_seconds, help="seconds between measurements")
    parser.add_argument("--deadline", type=float, default=defaults.deadline_seconds, help="seconds a job may take")
    parser.add_argument("--json", type=Path, help="write flat records to this file")
    arguments = parser.parse_args()
    options = Options(
        arguments.minutes, arguments.seed, arguments.workers, arguments.threads,
        tuple(arguments.form or FORMS), arguments.disk_megabytes, not arguments.no_mount, arguments.disk_gap,
        arguments.process_gap, arguments.sample, arguments.deadline,
    )  # fmt: skip
    run, records = soak(options, lambda text: print(text, flush=True))
    print_table(
        "Soak",
        ["workload", "figure", "value", "before"],
        [[each.workload, each.figure, f"{each.value:,}", f"{each.reference or 0:,}"] for each in records],
    )
    if arguments.json:
        write_json(arguments.json, records)
    print(f"{machine()}: {len(run.failures)} failures")
    return 1 if run.failures else 0


if __name__ == "__main__":
    sys.exit(main())
