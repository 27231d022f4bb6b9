"""Whole networks on the CPU beside onnxruntime and OpenVINO: batch 1, one process, engines taking turns.

In every round each engine runs the same image a few times, and the fastest of these counts; the ratio of two engines is
the median over the rounds of the ratio within a round. So what else the machine does meets all engines alike. Floats
must agree with onnxruntime within 1e-4 of the largest output; integers are those of the integer contract
(docs/integers.md), which the tests compare to the bit; here their difference from onnxruntime is printed.

    pip install -e .[bench,demo]
    python benchmarks/cpu_peers.py                       # all networks, 1 and 2 threads
    python benchmarks/cpu_peers.py resnet18 --form float --threads 1
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import openvino
import weft
from common import Record, print_table, processor, write_json
from weft.compiler.targets.cpu.processor import host_target
from weft.examples.models.build import build
from weft.examples.models.images import images

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "examples" / "digits"))

NETWORKS = ("resnet18", "resnet50", "mobilenet_v2", "digits")
FORMS = ("float", "qdq")
ENGINES = ("weft", "onnxruntime", "openvino")
FLOAT_TOLERANCE = 1e-4
GEOMETRIC_MEAN_ALLOWED, RATIO_ALLOWED = 1.0, 1.3

Run = Callable[[], Any]
Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Measured:
    """One network.

    ``milliseconds``: median by engine. ``ratios``: of weft's time to each peer's. ``difference``: from onnxruntime,
    as a part of the largest output. ``compile_seconds``: of weft, kernels from the cache where they are there.
    """

    network: str
    form: str
    threads: int
    milliseconds: dict[str, float]
    ratios: dict[str, float]
    difference: float
    compile_seconds: float
    numpy_steps: int


def model_path(network: str, form: str, folder: Path) -> Path:
    """The ONNX file of a network; the digits in floats have random weights, which no time depends on."""
    if network != "digits":
        return build(network, form=form)
    if form == "qdq":
        return ROOT / "examples" / "digits" / "digits.onnx"
    from export import float_model
    from network import initial_parameters

    path = folder / "digits.onnx"
    onnx.save(float_model(initial_parameters(np.random.default_rng(0))), path)
    return path


def engines(path: Path, threads: int, inputs: dict[str, Array]) -> tuple[dict[str, Run], weft.CompiledModel, float]:
    """For each engine a function that runs the network once and gives its first output; the model of weft, and the
    seconds until it was ready."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    core = openvino.Core()
    # Without the last, OpenVINO computes float networks in bfloat16 where the processor has it.
    settings = {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32"}
    request = core.compile_model(core.read_model(path), "CPU", settings).create_infer_request()
    arrays = list(inputs.values())
    started = time.perf_counter()
    module = weft.load(weft.compile(path, target="cpu", threads=threads))
    seconds = time.perf_counter() - started
    output = module.model.outputs[0].name
    runs: dict[str, Run] = {
        "weft": lambda: module.run(inputs)[output],
        "onnxruntime": lambda: session.run(None, inputs)[0],
        "openvino": lambda: request.infer(arrays)[0],
    }
    return runs, module.model, seconds


def measure(network: str, form: str, threads: int, rounds: int, repeats: int, folder: Path) -> Measured:
    """Run all engines in turns."""
    path = model_path(network, form, folder)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    (argument,) = session.get_inputs()
    shape = tuple(argument.shape)
    image = images(1, shape[2], 7)[:, : shape[1]] if network != "digits" else np.random.default_rng(7).random(shape)
    inputs = {argument.name: np.ascontiguousarray(image, np.float32).reshape(shape)}
    runs, compiled, seconds = engines(path, threads, inputs)
    results = {name: np.asarray(run(), np.float64) for name, run in runs.items()}
    scale = float(np.abs(results["onnxruntime"]).max())
    difference = float(np.abs(results["weft"] - results["onnxruntime"]).max()) / scale
    best: dict[str, list[float]] = {name: [] for name in runs}
    for number in range(rounds):
        order = [ENGINES[(number + place) % len(ENGINES)] for place in range(len(ENGINES))]
        for name in order:
            best[name].append(min(timed(runs[name]) for _ in range(repeats)))
    ratios = {
        peer: statistics.median(mine / other for mine, other in zip(best["weft"], best[peer], strict=True))
        for peer in ENGINES[1:]
    }
    return Measured(
        network, form, threads, {name: statistics.median(values) * 1e3 for name, values in best.items()}, ratios,
        difference, seconds, sum(layer.device == "numpy" for layer in compiled.layers),
    )  # fmt: skip


def timed(run: Run) -> float:
    """Seconds of one run."""
    started = time.perf_counter()
    run()
    return time.perf_counter() - started


def records(measured: list[Measured]) -> list[Record]:
    figures = []
    for item in measured:
        name = f"{item.network} {item.form} {item.threads} thread{'s' if item.threads > 1 else ''}"
        for engine, value in item.milliseconds.items():
            figures.append(Record("cpu", name, f"{engine} ms", round(value, 4)))
        for peer, value in item.ratios.items():
            figures.append(Record("cpu", name, f"time relative to {peer}", round(value, 4), 1.0))
    return figures


def faults(measured: list[Measured]) -> list[str]:
    """Which targets are missed."""
    missed = [
        f"{item.network} {item.form}, {item.threads} thread(s): {item.ratios['onnxruntime']:.2f} x onnxruntime"
        for item in measured if item.ratios["onnxruntime"] > RATIO_ALLOWED
    ]  # fmt: skip
    missed += [
        f"{item.network}: floats differ by {item.difference:.1e}"
        for item in measured if item.form == "float" and item.difference > FLOAT_TOLERANCE
    ]  # fmt: skip
    mean = statistics.geometric_mean(item.ratios["onnxruntime"] for item in measured)
    if mean > GEOMETRIC_MEAN_ALLOWED:
        missed.append(f"the geometric mean is {mean:.2f} x onnxruntime")
    return missed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("networks", nargs="*", default=list(NETWORKS), help=f"of {', '.join(NETWORKS)}")
    parser.add_argument("--form", choices=FORMS, action="append", help="float or qdq; default: both")
    parser.add_argument("--threads", type=int, action="append", help="default: 1 and 2")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--repeats", type=int, default=3, help="runs of an engine in a round")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.networks if name not in NETWORKS]
    if unknown:
        parser.error(f"there is no network {unknown[0]!r}; choose from {', '.join(NETWORKS)}")
    measured: list[Measured] = []
    with tempfile.TemporaryDirectory() as folder:
        for network in arguments.networks:
            for form in arguments.form or FORMS:
                for threads in arguments.threads or [1, 2]:
                    measured.append(measure(network, form, threads, arguments.rounds, arguments.repeats, Path(folder)))
                    item = measured[-1]
                    print(f"{network} {form} {threads}: {item.milliseconds} {item.ratios}", file=sys.stderr, flush=True)
    versions = f"onnxruntime {onnxruntime.__version__}, OpenVINO {openvino.__version__.partition('-')[0]}"
    print(f"{processor()} ({host_target().cpu}), load {os.getloadavg()[0]:.1f}; {versions}")
    rows = [
        (
            item.network, item.form, str(item.threads), *(f"{item.milliseconds[name]:.3f}" for name in ENGINES),
            *(f"{item.ratios[peer]:.2f}" for peer in ENGINES[1:]), f"{item.difference:.1e}", str(item.numpy_steps),
            f"{item.compile_seconds:.1f}",
        )
        for item in measured
    ]  # fmt: skip
    columns = ["network", "form", "threads", *(f"{name} ms" for name in ENGINES), "/ onnxruntime", "/ openvino",
               "difference", "NumPy steps", "compile s"]  # fmt: skip
    print_table("time of one image", columns, rows)
    for peer in ENGINES[1:]:
        mean = statistics.geometric_mean(item.ratios[peer] for item in measured)
        print(f"geometric mean of the times relative to {peer}: {mean:.3f}")
    if arguments.json:
        write_json(arguments.json, records(measured))
    missed = faults(measured)
    for text in missed:
        print(f"missed: {text}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
