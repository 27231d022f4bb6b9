"""Whole networks on the CPU beside onnxruntime and OpenVINO, each in the form that suits it: batch 1, taking turns.

In 8 bits each engine first runs every form that it may be best at (`peer_forms`), and goes on with its fastest, which
is printed. In every round each engine runs the same data a few times, and the fastest of these counts; the ratio of two
engines is the median over the rounds of the ratio within a round. So what else the machine does meets all of them.
Floats must agree with onnxruntime within 1e-4 of the largest output; integers are those of the integer contract
(docs/integers.md), which the tests compare to the bit, so differences in 8 bits are printed only. Values are judged by
onnxruntime where it is exact, on weft's form; its time is that of its fastest session, which may saturate.

Time to the first result (from a file, nothing kept on disk, imports apart) and the most memory that is ever held are
measured in a process of its own for each engine.

With ``--level`` weft is compiled for a level of x86, and OpenVINO is held to it (oneDNN's ``ONEDNN_MAX_CPU_ISA``).
onnxruntime cannot be told: its time is that of the whole processor, so it is printed and not judged by. Without an
instruction for dot products both peers' kernels of bytes add up pairs in 16 bits, which saturates: where they are
faster than weft they may also be wrong, and weft is exact.

    pip install -e .[bench,demo] nncf
    python benchmarks/cpu/peers.py                       # all networks, float and 8 bits, 1 and 2 threads
    python benchmarks/cpu/peers.py resnet18 vit --bits 32 --threads 1 --no-first
    python benchmarks/cpu/peers.py resnet18 --level x86-64-v3 --threads 1 --processor-time --no-first
    python benchmarks/cpu/peers.py timm:regnety_004 own.onnx --bits 32 --threads 1    # any network
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import openvino
import weft
from weft.compiler.targets.cpu.processor import PRETENDED, host_target

from benchmarks.campaigns.isolated import Broken, Isolated
from benchmarks.common import Record, print_table, processor, write_json
from benchmarks.zoo.peer_forms import EIGHT_BIT_FORMS, NETWORKS, TIMM, Subject, subject
from examples.precise import fastest_session, precise_session

ENGINES = ("weft", "onnxruntime", "openvino")
PEERS = ENGINES[1:]
FLOAT_TOLERANCE = 1e-4
MEANS_ALLOWED = {"onnxruntime": 0.85, "openvino": 0.95}
RATIO_ALLOWED = 1.15
"""Of weft's time to that of the better peer, with one thread."""

SECONDS_AT_MOST = 1800.0
"""Of the processor's time, for a network in a format: models are made and quantised when they are first asked for."""

HEAT_SECONDS = 0.6
"""How long an engine runs a form before it is judged."""

LEVELS = {"x86-64-v2": "SSE41", "x86-64-v3": "AVX2", "x86-64-v4": "AVX512_CORE"}
"""What oneDNN, and so OpenVINO, calls each level."""

TOLD = ("openvino",)
"""Peers that can be held to a level."""

Run = Callable[[], Any]
Clock = Callable[[], float]
Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class First:
    """Seconds from a file to the first result, and the most memory of the process, in bytes."""

    seconds: float
    peak_bytes: int


@dataclass(frozen=True)
class Measured:
    """One network.

    ``milliseconds``: median by engine; ``forms``: the form that it ran. ``ratios``: of weft's time to each peer's, and
    to the ``best`` in each round of those that are ``judged`` by. ``difference``: from what onnxruntime computes of
    weft's form where it is exact, as a part of the largest output.
    """

    network: str
    bits: int
    threads: int
    milliseconds: Mapping[str, float]
    forms: Mapping[str, str]
    ratios: Mapping[str, float]
    difference: float
    numpy_steps: int
    judged: tuple[str, ...] = PEERS
    first: Mapping[str, First] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"{self.network} {'float32' if self.bits == 32 else '8 bits'}, {self.threads} thread(s)"

    @property
    def better(self) -> str:
        """The peer that takes less time."""
        return min(self.judged, key=lambda peer: self.milliseconds[peer])


def runner(engine: str, path: Path, threads: int, inputs: Mapping[str, Array]) -> tuple[Run, int]:
    """A function that runs a file once and gives its first output; how many operators weft leaves to NumPy."""
    if engine == "weft":
        module = weft.load(weft.compile(path, target="cpu", threads=threads))
        output = module.model.outputs[0].name
        left = sum(layer.device == "numpy" for layer in module.model.layers)
        return lambda: module.run(dict(inputs))[output], left
    if engine == "onnxruntime":
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        session = fastest_session(path, options)
        return lambda: session.run(None, dict(inputs))[0], 0
    core = openvino.Core()
    # Without the last, OpenVINO computes float networks in bfloat16 where the processor has it.
    settings = {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32"}
    request = core.compile_model(core.read_model(path), "CPU", settings).create_infer_request()
    named = dict(inputs)
    return lambda: request.infer(named)[0], 0


def best_form(engine: str, item: Subject, bits: int, threads: int) -> tuple[str, Run, int]:
    """The form in which an engine is fastest, and how it runs that."""
    forms = ["float"] if bits == 32 else [form for form in EIGHT_BIT_FORMS[engine] if form in item.files]
    rated: list[tuple[float, str, Run, int]] = []
    for form in forms:
        try:
            run, left = runner(engine, item.files[form], threads, item.inputs)
        except RuntimeError as error:  # OpenVINO cannot compile every form: of LSTM with weights in bytes, say
            if engine == "weft" or (form == forms[-1] and not rated):
                raise
            print(f"{engine} refuses {item.files[form].name}: {str(error).splitlines()[0]}", file=sys.stderr)
            continue
        run()
        times = [time_of(run)]
        while len(forms) > 1 and sum(times) < HEAT_SECONDS:
            times.append(time_of(run))
        rated.append((min(times), form, run, left))
    _, form, run, left = min(rated, key=lambda each: each[0])
    return form, run, left


def measure(
    name: str, bits: int, threads: int, rounds: int, seconds: float, *, first: bool, judged: tuple[str, ...] = PEERS,
    clock: Clock = time.perf_counter,
) -> Measured:  # fmt: skip
    """Run all engines in turns, for ``rounds``, in each of which an engine runs for about ``seconds``."""

    def timed(run: Run) -> float:
        return time_of(run, clock)

    item = subject(name, bits)
    runs: dict[str, Run] = {}
    forms: dict[str, str] = {}
    left = 0
    for engine in ENGINES:
        forms[engine], runs[engine], in_numpy = best_form(engine, item, bits, threads)
        left += in_numpy
    elsewhere = [engine for engine, run in runs.items() if clock is time.thread_time and not in_this_thread(run)]
    if elsewhere:
        raise RuntimeError(f"{elsewhere[0]} computes in another thread, whose time is not seen")
    found = np.asarray(runs["weft"](), np.float64)
    wanted = np.asarray(precise_session(item.files[forms["weft"]]).run(None, dict(item.inputs))[0], np.float64)
    difference = float(np.abs(found - wanted).max() / np.abs(wanted).max())
    repeats = {engine: max(3, min(200, int(seconds / max(timed(run), 1e-6)))) for engine, run in runs.items()}
    best: dict[str, list[float]] = {engine: [] for engine in runs}
    for number in range(rounds):
        for place in range(len(ENGINES)):
            engine = ENGINES[(number + place) % len(ENGINES)]
            runs[engine]()  # whoever ran before had the caches
            best[engine].append(min(timed(runs[engine]) for _ in range(repeats[engine])))
    others = {
        **{peer: best[peer] for peer in PEERS},
        "best": [min(each) for each in zip(*(best[peer] for peer in judged), strict=True)],
    }
    ratios = {peer: statistics.median(a / b for a, b in zip(best["weft"], times, strict=True))
              for peer, times in others.items()}  # fmt: skip
    firsts = {engine: first_result(engine, item.files[forms[engine]], threads, item.inputs)
              for engine in ENGINES} if first else {}  # fmt: skip
    milliseconds = {engine: statistics.median(times) * 1e3 for engine, times in best.items()}
    return Measured(name, bits, threads, milliseconds, forms, ratios, difference, left, judged, firsts)


def time_of(run: Run, clock: Clock = time.perf_counter) -> float:
    """Seconds of one run."""
    started = clock()
    run()
    return clock() - started


def in_this_thread(run: Run) -> bool:
    """Whether most of what a run computes is computed in the thread that asks for it."""
    own, every = time.thread_time(), time.process_time()
    for _ in range(10):
        run()
    return time.thread_time() - own > 0.8 * (time.process_time() - every)


CHILD = """
import json, sys, time
from pathlib import Path
import numpy as np
if sys.argv[1] == "weft":
    import weft
elif sys.argv[1] == "onnxruntime":
    import onnxruntime
else:
    import openvino
from benchmarks.cpu.peers import runner
inputs = dict(np.load(sys.argv[4]))
started = time.perf_counter()
run, _ = runner(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), inputs)
run()
seconds = time.perf_counter() - started
# Not getrusage: its peak begins with that of the process that started this one.
(peak,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
print(json.dumps([seconds, int(peak.split()[1]) * 1024]))
"""


def first_result(engine: str, path: Path, threads: int, inputs: Mapping[str, Array]) -> First:
    """Measured in a new process, with an empty cache."""
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "inputs.npz"
        np.savez(data, **inputs)
        command = [sys.executable, "-c", CHILD, engine, str(path), str(threads), str(data)]
        environment = {**os.environ, "WEFT_CACHE": str(Path(folder) / "cache")}
        done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    seconds, peak = json.loads(done.stdout.strip().splitlines()[-1])
    return First(seconds, peak)


def records(measured: list[Measured]) -> list[Record]:
    figures = []
    for item in measured:
        for engine, value in item.milliseconds.items():
            figures.append(Record("cpu", item.name, f"{engine} ({item.forms[engine]}) ms", round(value, 4)))
        for peer, value in item.ratios.items():
            figures.append(Record("cpu", item.name, f"time relative to {peer}", round(value, 4), 1.0))
        for engine, each in item.first.items():
            figures.append(Record("cpu", item.name, f"{engine} first result s", round(each.seconds, 3)))
            figures.append(Record("cpu", item.name, f"{engine} peak MB", round(each.peak_bytes / 1e6, 1)))
    return figures


def mean(measured: list[Measured], peer: str) -> float:
    return statistics.geometric_mean(item.ratios[peer] for item in measured)


def faults(measured: list[Measured], judged: tuple[str, ...] = PEERS) -> list[str]:
    """Which targets are missed."""
    missed = [
        f"{item.name}: {item.ratios['best']:.2f} x the better peer, {item.better}"
        for item in measured if item.threads == 1 and item.ratios["best"] > RATIO_ALLOWED
    ]  # fmt: skip
    missed += [
        f"{item.name}: floats differ by {item.difference:.1e}"
        for item in measured if item.bits == 32 and not item.difference <= FLOAT_TOLERANCE
    ]  # fmt: skip
    for peer, allowed in MEANS_ALLOWED.items():
        if peer in judged and mean(measured, peer) > allowed:
            missed.append(f"the geometric mean is {mean(measured, peer):.2f} x {peer}, not {allowed}")
    return missed


def report(measured: list[Measured]) -> None:
    versions = f"onnxruntime {onnxruntime.__version__}, OpenVINO {openvino.__version__.partition('-')[0]}"
    print(f"{processor()} ({host_target().cpu}), load {os.getloadavg()[0]:.1f}; {versions}")
    rows = []
    for item in measured:
        peers = [f"{item.milliseconds[peer]:.3f} {item.forms[peer]}" for peer in PEERS]
        ratios = [f"{item.ratios[peer]:.2f}" for peer in (*PEERS, "best")]
        firsts = [f"{item.first[engine].seconds:.1f} / {item.first[engine].peak_bytes / 1e6:.0f}" if item.first else ""
                  for engine in ENGINES]  # fmt: skip
        own = f"{item.milliseconds['weft']:.3f}"
        rows.append([item.network, str(item.bits), str(item.threads), own, *peers, *ratios, f"{item.difference:.0e}",
                     str(item.numpy_steps), *firsts])  # fmt: skip
    columns = ["network", "bits", "thr", "weft ms", "onnxruntime ms", "OpenVINO ms", "/ ort", "/ ov", "/ best", "diff",
               "NumPy", "weft s / MB", "ort", "ov"]  # fmt: skip
    print_table("time of one run; first result and peak memory", columns, rows)
    for title, part in (("all", measured), ("float32", [each for each in measured if each.bits == 32]),
                        ("8 bits", [each for each in measured if each.bits == 8])):  # fmt: skip
        if part:
            figures = ", ".join(f"{mean(part, peer):.3f} x {peer}" for peer in (*PEERS, "best"))
            print(f"geometric mean of {title} ({len(part)}): {figures}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    known = f"{', '.join(NETWORKS)}; or an ONNX file, or {TIMM}NAME"
    parser.add_argument("networks", nargs="*", default=list(NETWORKS), help=f"of {known}")
    parser.add_argument("--bits", type=int, choices=(32, 8), action="append", help="default: both")
    parser.add_argument("--threads", type=int, action="append", help="default: 1 and 2")
    parser.add_argument("--level", choices=LEVELS, help="hold weft and OpenVINO to a level of x86")
    parser.add_argument("--processor-time", action="store_true", help="of one thread: other work does not count")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=0.08, help="of an engine in a round, about")
    parser.add_argument("--no-first", action="store_true", help="leave out first results and memory")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    arguments = parser.parse_args()
    for name in arguments.networks:
        if not (name in NETWORKS or name.startswith(TIMM) or Path(name).is_file()):
            parser.error(f"there is no network {name!r}; choose from {known}")
    threads = arguments.threads or ([1] if arguments.processor_time else [1, 2])
    if arguments.processor_time and threads != [1]:
        parser.error("--processor-time adds up the time of all threads: it takes --threads 1 alone")
    if arguments.level:  # both look when they are first asked for code
        os.environ[PRETENDED], os.environ["ONEDNN_MAX_CPU_ISA"] = arguments.level, LEVELS[arguments.level]
    judged = TOLD if arguments.level else PEERS
    clock = time.thread_time if arguments.processor_time else time.perf_counter
    measured: list[Measured] = []
    missed: list[str] = []
    cases = [*itertools.product(arguments.networks, arguments.bits or [32, 8], threads)]

    def work(case: tuple[str, int, int]) -> Measured:
        return measure(*case, arguments.rounds, arguments.seconds, first=not arguments.no_first, judged=judged,
                       clock=clock)  # fmt: skip

    for (name, bits, threads), item in Isolated(work, SECONDS_AT_MOST).run(cases):
        if isinstance(item, Broken):  # OpenVINO 2026.4.1 crashes when it compiles DenseNet in 8 bits
            missed.append(f"{name}, {bits} bits, {threads} thread(s): {item.state} of an engine, {item.message}")
            print(missed[-1], file=sys.stderr, flush=True)
            continue
        measured.append(item)
        ratios = " ".join(f"{peer} {ratio:.2f}" for peer, ratio in item.ratios.items())
        print(f"{item.name}: {item.milliseconds['weft']:.3f} ms; {ratios}", file=sys.stderr, flush=True)
    report(measured)
    if arguments.level:
        told = ", ".join(TOLD)
        print(f"'/ best' is of {told}, held to {arguments.level}; onnxruntime cannot be, and runs as on the whole")
        print("processor. At that level 8 bits of both peers saturate in 16 bits; weft's are exact.")
    if arguments.json:
        write_json(arguments.json, records(measured))
    missed += faults(measured, judged)
    for text in missed:
        print(f"missed: {text}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
