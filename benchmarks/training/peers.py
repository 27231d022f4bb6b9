"""A step of training (forward, backward, SGD with momentum) beside PyTorch, torch.compile and JAX, taking turns.

Same network, same values, same batch; the first losses must agree to 1e-4. Each number of threads has a process of its
own. In every round each engine runs a few steps, and the fastest counts; the ratio of two engines is the median over
the rounds of the ratio within a round. With one thread time is that of the processor (all threads of the process,
so what else the machine does is left out), with more that of the clock. ``best`` is the fastest peer of each round.

Peak memory is what a process of its own grows by, from after a small step to the highest point of two steps, after two
steps to warm up and with freed memory given back: parameters, their velocities, gradients, all between kernels, and
code. Weft loads a compiled step, the others compile in that process; all replace their state in place. "planned" is
what weft allocates between kernels. "recomputed" is weft's step in 0.6 of that (`weft.train.within`), if that can be
met, with its time relative to that of weft's own.

    pip install -e .[bench,demo]
    python benchmarks/training/peers.py                  # all networks, 1 and 2 threads
    python benchmarks/training/peers.py --no-recomputed  # the same without what takes most of the time to compile
    python benchmarks/training/peers.py --no-times       # memory alone, on a busy machine, too
    python benchmarks/training/peers.py resnet18 --threads 1 --no-memory --engine torch
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from weft.compiler.targets.cpu.processor import host_target

from benchmarks.common import Record, print_table, processor, write_json
from benchmarks.training import engines as train_engines
from benchmarks.training.engines import ENGINES, RECOMPUTED, NotInstalledError, Run, limit_threads, runner
from benchmarks.zoo.train_networks import WORKLOADS, Workload, digits

LOSS_TOLERANCE = 1e-4
MEAN_ALLOWED, RATIO_ALLOWED = 0.85, 1.1
"""Of weft's time to that of the best peer: the geometric mean, and each."""

MEMORY_ALLOWED, RECOMPUTED_ALLOWED, SLOWER_ALLOWED = 0.7, 0.5, 1.3
"""Of weft's peak to PyTorch's, as it is and with forward values computed again; and of the time that this may take."""

SMALL = Workload(digits, (2, 1, 8, 8), 10)
"""What an engine runs before its memory is measured, so that what it loads for its first step is left out."""

NOT_INSTALLED = 77
"""How a process says that its engine is not there."""


@dataclass(frozen=True)
class Measured:
    """One workload. ``milliseconds``: medians, by engine; ``missing``: engines that are not there, with the reason.
    ``ratios``: of weft's time to each peer's, and to the ``best``. ``losses``: before the first step."""

    workload: str
    threads: int
    milliseconds: Mapping[str, float]
    missing: Mapping[str, str]
    ratios: Mapping[str, float]
    losses: Mapping[str, float]

    @property
    def name(self) -> str:
        return f"{self.workload}, {self.threads} thread(s)"


def measure(workload: str, engines: list[str], threads: int, rounds: int, seconds: float) -> Measured:
    """Run all engines in turns, each for about ``seconds`` in a round."""
    runs: dict[str, Run] = {}
    missing: dict[str, str] = {}
    losses: dict[str, float] = {}
    repeats: dict[str, int] = {}
    for engine in engines:
        try:
            runs[engine] = runner(engine, WORKLOADS[workload], threads)
        except NotInstalledError as error:
            missing[engine] = str(error)
            continue
        losses[engine] = runs[engine]()
        runs[engine]()
        repeats[engine] = max(2, min(50, int(seconds / max(timed(runs[engine], threads), 1e-5))))
    found: dict[str, list[float]] = {engine: [] for engine in runs}
    order = list(runs)
    for number in range(rounds):
        for place in range(len(order)):
            engine = order[(number + place) % len(order)]
            runs[engine]()  # whoever ran before had the caches
            found[engine].append(min(timed(runs[engine], threads) for _ in range(repeats[engine])))
    peers = {peer: times for peer, times in found.items() if peer not in ("weft", RECOMPUTED)}
    if peers:
        peers["best"] = [*map(min, zip(*peers.values(), strict=True))]
    ratios = {peer: statistics.median(a / b for a, b in zip(found["weft"], times, strict=True))
              for peer, times in peers.items()}  # fmt: skip
    if RECOMPUTED in found:
        times = zip(found[RECOMPUTED], found["weft"], strict=True)
        ratios[RECOMPUTED] = statistics.median(a / b for a, b in times)
    milliseconds = {engine: statistics.median(times) * 1e3 for engine, times in found.items()}
    return Measured(workload, threads, milliseconds, missing, ratios, losses)


def timed(run: Run, threads: int) -> float:
    """Seconds of one step."""
    clock = time.process_time if threads == 1 else time.perf_counter
    started = clock()
    run()
    return clock() - started


def grown(engine: str, workload: str, threads: int, folder: Path) -> int:
    """Bytes by which this process grows for steps of training."""
    small = runner(engine, SMALL, threads, folder / "small.weft")
    small()
    small()
    del small
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    before = _status("VmRSS")
    run = runner(engine, WORKLOADS[workload], threads, folder / "step.weft")
    run()
    run()
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")  # the highest point is from now on
    run()
    run()
    return _status("VmHWM") - before


def _status(field: str) -> int:
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(field))
    return int(line.split()[1]) * 1024


def memory(workload: str, engines: list[str], threads: int) -> dict[str, int]:
    """Peak memory of engines that are installed, in bytes, and what weft plans between kernels."""
    found: dict[str, int] = {}
    for engine in engines:
        with tempfile.TemporaryDirectory() as folder:
            if engine in ("weft", RECOMPUTED):
                planned = _child("artifact", engine, workload, str(threads), folder)
                found[f"{engine}, planned"] = int(planned or 0)
            said = _child("memory", engine, workload, str(threads), folder)
        if said is not None:
            found[engine] = int(said)
    return found


def _child(*arguments: str) -> str | None:
    """What a process of this benchmark says in its last line; None where an engine is not installed."""
    command = [sys.executable, __file__, "--child", *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode == NOT_INSTALLED:
        return None
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}\n{done.stderr}")
    return (done.stdout.strip().splitlines() or [""])[-1]


def child(kind: str, *arguments: str) -> int:
    """The part of a process that limits its threads before it imports an engine."""
    warnings.simplefilter("ignore")
    if kind == "times":
        workload, engines, threads, rounds, seconds = arguments
        limit_threads(int(threads))
        found = measure(workload, engines.split(";"), int(threads), int(rounds), float(seconds))
        print(json.dumps(asdict(found)))
        return 0
    if kind == "artifact":
        engine, workload, threads, folder = arguments
        train_engines.weft_artifact(SMALL, int(threads), Path(folder) / "small.weft")
        step = Path(folder) / "step.weft"
        print(train_engines.weft_artifact(WORKLOADS[workload], int(threads), step, engine == RECOMPUTED))
        return 0
    engine, workload, threads, folder = arguments
    limit_threads(int(threads))
    try:
        print(grown(engine, workload, int(threads), Path(folder)))
    except (ImportError, NotInstalledError):
        return NOT_INSTALLED
    return 0


def records(measured: list[Measured], peaks: Mapping[str, Mapping[str, int]]) -> list[Record]:
    figures = []
    for item in measured:
        for engine, value in item.milliseconds.items():
            figures.append(Record("train", item.name, f"{engine} ms", round(value, 3)))
        for peer, value in item.ratios.items():
            figures.append(Record("train", item.name, f"time relative to {peer}", round(value, 4), 1.0))
    for workload, by_engine in peaks.items():
        for engine, peak in by_engine.items():
            figures.append(Record("train", workload, f"{engine} peak MB", round(peak / 1e6, 1)))
    return figures


def faults(measured: list[Measured], peaks: Mapping[str, Mapping[str, int]]) -> list[str]:
    """Which targets are missed."""
    missed = []
    for item in measured:
        own = item.losses["weft"]
        wrong = {engine: loss for engine, loss in item.losses.items() if not abs(loss - own) <= LOSS_TOLERANCE * own}
        missed += [f"{item.name}: the loss of {engine} is {loss:.6f}, not {own:.6f}" for engine, loss in wrong.items()]
        if item.ratios.get("best", 0) > RATIO_ALLOWED:
            missed.append(f"{item.name}: {item.ratios['best']:.2f} x the best peer")
        if item.ratios.get(RECOMPUTED, 0) > SLOWER_ALLOWED:
            missed.append(f"{item.name}: {item.ratios[RECOMPUTED]:.2f} x the time where values are computed again")
    compared = [item.ratios["best"] for item in measured if "best" in item.ratios]
    if compared and statistics.geometric_mean(compared) > MEAN_ALLOWED:
        missed.append(f"the geometric mean is {statistics.geometric_mean(compared):.2f} x the best peer")
    for workload, each in peaks.items():
        for engine, allowed in (("weft", MEMORY_ALLOWED), (RECOMPUTED, RECOMPUTED_ALLOWED)):
            if engine in each and "torch" in each and each[engine] > allowed * each["torch"]:
                missed.append(f"{workload}: peak memory of {engine} is {each[engine] / each['torch']:.2f} x PyTorch's")
    return missed


def report(measured: list[Measured], peaks: Mapping[str, Mapping[str, int]], engines: list[str]) -> None:
    print(f"{processor()} ({host_target().cpu}), load {os.getloadavg()[0]:.1f}")
    peers = [engine for engine in engines if engine not in ("weft", RECOMPUTED)]
    compared = [*peers, "best", *([RECOMPUTED] if RECOMPUTED in engines else [])]
    rows = []
    for item in measured:
        times = [f"{item.milliseconds[engine]:.1f}" if engine in item.milliseconds else "-" for engine in engines]
        ratios = [f"{item.ratios[each]:.2f}" if each in item.ratios else "-" for each in compared]
        rows.append([item.workload, str(item.threads), *times, *ratios])
    if rows:
        ratio_names = [f"/ {each}" if each != RECOMPUTED else "recomputed / weft" for each in compared]
        columns = ["workload", "thr", *(f"{engine} ms" for engine in engines), *ratio_names]
        print_table("a step of training", columns, rows)
    for engine, reason in {engine: why for item in measured for engine, why in item.missing.items()}.items():
        print(f"not measured: {engine} ({reason})")
    for peer in (*peers, "best"):
        values = [item.ratios[peer] for item in measured if peer in item.ratios]
        if values:
            print(f"geometric mean ({len(values)}): {statistics.geometric_mean(values):.3f} x {peer}")
    if peaks:
        kinds = list(dict.fromkeys(kind for each in peaks.values() for kind in each))
        rows = []
        for workload, each in peaks.items():
            shares = [f"{each[engine] / each['torch']:.2f}" if engine in each and "torch" in each else "-"
                      for engine in ("weft", RECOMPUTED)]  # fmt: skip
            rows.append([workload, *(f"{each[kind] / 1e6:.1f}" if kind in each else "-" for kind in kinds), *shares])
        columns = ["workload", *(f"{kind} MB" for kind in kinds), "weft / torch", "recomputed / torch"]
        print_table("peak memory of a step, one thread", columns, rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("networks", nargs="*", help=f"beginnings of: {'; '.join(WORKLOADS)}. All by default")
    parser.add_argument("--engine", action="append", choices=ENGINES[1:], help="a peer; all by default")
    parser.add_argument("--threads", type=int, action="append", help="default: 1 and 2")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.5, help="of an engine in a round, about")
    parser.add_argument("--no-memory", action="store_true")
    parser.add_argument("--no-times", action="store_true")
    parser.add_argument("--no-recomputed", action="store_true", help="leave out weft's step in half of its memory")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    arguments = parser.parse_args()
    wanted = tuple(arguments.networks) or ("",)
    workloads = [name for name in WORKLOADS if name.startswith(wanted)]
    if not workloads:
        parser.error(f"no workload begins so; there are: {'; '.join(WORKLOADS)}")
    engines = ["weft", *(arguments.engine or ENGINES[1:]), *([] if arguments.no_recomputed else [RECOMPUTED])]
    measured: list[Measured] = []
    peaks: dict[str, dict[str, int]] = {}
    for workload in workloads:
        for threads in [] if arguments.no_times else arguments.threads or [1, 2]:
            said = _child("times", workload, ";".join(engines), str(threads), str(arguments.rounds),
                          str(arguments.seconds)) or ""  # fmt: skip
            measured.append(Measured(**json.loads(said)))
            ratios = " ".join(f"{peer} {ratio:.2f}" for peer, ratio in measured[-1].ratios.items())
            print(
                f"{measured[-1].name}: {measured[-1].milliseconds['weft']:.1f} ms; {ratios}",
                file=sys.stderr,
                flush=True,
            )
        if not arguments.no_memory:
            peaks[workload] = memory(workload, engines, 1)
            held = ", ".join(f"{kind} {peak / 1e6:.1f} MB" for kind, peak in peaks[workload].items())
            print(f"{workload}: {held}", file=sys.stderr, flush=True)
    report(measured, peaks, engines)
    if arguments.json:
        write_json(arguments.json, records(measured, peaks))
    missed = faults(measured, peaks)
    for text in missed:
        print(f"missed: {text}")
    return 1 if missed else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        sys.exit(child(*sys.argv[2:]))
    sys.exit(main())
