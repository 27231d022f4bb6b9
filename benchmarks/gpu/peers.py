"""Kernels and networks on NVIDIA's GPU beside cuBLAS and cuDNN (through PyTorch), `torch.compile` and onnxruntime.

    pip install -e .[bench,demo]    # torch and onnxruntime-gpu, built for this machine's CUDA
    python benchmarks/gpu/peers.py  # all parts, on GPU 0, compiled for its architecture
    python benchmarks/gpu/peers.py products memory --gpu sm_80 --device 1 --json products.json

- products of int8, float16, bfloat16, float32 and TF32, of sizes that networks have, beside cuBLAS. Wanted: 0.9 of it
  in float32, 0.85 in 8 and 16 bits on Ampere (cuBLAS on Hopper uses wgmma, which weft does not);
- convolutions: layers of ResNet-50 in float32, float16 and TF32, beside cuDNN in its best layout and fastest kernel;
- attention: of several heads, in float32 and float16, beside PyTorch's fused attention;
- memory: sums, softmax, reductions, a transposition, beside `torch.compile`. Wanted: 0.85 of a copy's bandwidth;
- launch: what a launch takes of the host's time, and of the device's in a graph. Wanted: below 5 us;
- networks of torchvision in float32 with and without TF32, one picture, beside PyTorch with images plain and channels
  last, `torch.compile` with the order that is faster, and, where it has CUDA, onnxruntime.

Everybody's kernels are captured in a CUDA graph that repeats the work, so that nobody waits for a host; the device's
clock counts. Engines take turns: in each round everybody runs the same data, a ratio is the median over the rounds.
Results must agree: integers to the bit, floats within a tolerance of the largest. Exits with 1 where a target is missed
or a result differs, with 2 where there is no GPU or no PyTorch.
"""

from __future__ import annotations

import argparse
import copy
import importlib.util
import itertools
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import weft
from weft.compiler.model import CompiledModel, GpuCode, HostStep
from weft.compiler.targets.errors import CompileError
from weft.compiler.targets.gpu.devices import NVIDIA
from weft.compiler.targets.registry import find_target
from weft.runtime.errors import DeviceError
from weft.runtime.gpu.cuda import cuda_devices
from weft.runtime.gpu.executor import GpuExecutor
from weft.runtime.gpu.open import open_gpu

from benchmarks.common import Record, print_table, write_json
from benchmarks.gpu import work as gpu_work
from benchmarks.gpu.work import Work

Array = np.ndarray[Any, Any]
Seconds = Callable[[], float]

ROUNDS, REPEATS = 7, 20
PARTS = ("products", "convolutions", "attention", "memory", "launch", "networks")
NETWORKS = ("resnet18", "resnet50", "mobilenet_v2", "vit_b_16")
LAUNCH_WANTED = 5e-6


class NoPeerError(Exception):
    """What is missing to compare with."""


def pytorch() -> Any:
    """The module of PyTorch, with a GPU."""
    if importlib.util.find_spec("torch") is None:
        raise NoPeerError("torch is not installed; pip install -e .[bench]")
    import torch

    if not torch.cuda.is_available():
        raise NoPeerError(f"PyTorch {torch.__version__} sees no GPU: it needs a build for CUDA")
    return torch


def executor_of(model: CompiledModel, device: str) -> GpuExecutor:
    """What runs a model that is one program."""
    (step,) = model.steps
    assert isinstance(step, HostStep)
    code = find_target("cuda").host_code(step.program, trusted=True)
    assert isinstance(code, GpuCode)
    return GpuExecutor(step.program, code, open_gpu(code, device))


def ours(
    model: CompiledModel, device: str, inputs: Sequence[Array], repeats: int = REPEATS
) -> tuple[Seconds, list[Array]]:
    """Seconds of a model's kernels as the device counts them, and the results."""
    executor = executor_of(model, device)
    outputs = [np.empty(each.shape, each.dtype) for each in model.outputs]
    executor.run(inputs, outputs)
    return executor.kernel_timer(repeats), outputs


def captured(torch: Any, run: Callable[[], Any], repeats: int = REPEATS) -> Seconds:
    """Seconds of a run between two events, around a graph of some. The graph knows tensors by their addresses: what
    ``run`` holds has to live as long as the result."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(repeats):
            run()

    def timed(_held: Callable[[], Any] = run) -> float:
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        first.record()
        graph.replay()
        last.record()
        torch.cuda.synchronize()
        return float(first.elapsed_time(last)) * 1e-3 / repeats

    return timed


def in_turns(engines: dict[str, Seconds]) -> dict[str, list[float]]:
    """The faster of two runs of each engine, in every round."""
    for run in engines.values():
        run()
    rounds = [[min(run() for _ in range(2)) for run in engines.values()] for _ in range(ROUNDS)]
    return {name: list(times) for name, times in zip(engines, zip(*rounds, strict=True), strict=True)}


def ratio_to(times: dict[str, list[float]], peer: str) -> float:
    """A peer's time over ours, the median of the rounds."""
    return statistics.median(theirs / own for own, theirs in zip(times["weft"], times[peer], strict=True))


def difference(found: Array, wanted: Array, tolerance: float) -> str:
    """How results differ; nothing where they agree."""
    if found.shape != wanted.shape:
        return f"shape {found.shape} for {wanted.shape}"
    if wanted.dtype.kind in "iu":
        wrong = int((found != wanted).sum())
        return f"{wrong:,} of {wanted.size:,} differ" if wrong else ""
    largest = float(np.abs(wanted.astype(np.float64)).max())
    error = float(np.abs(found.astype(np.float64) - wanted.astype(np.float64)).max())
    return "" if error <= tolerance * largest else f"{error:.3g} for {largest:.3g}"


class Comparison:
    """Rows of the table, records and what was missed."""

    def __init__(self, torch: Any, arguments: argparse.Namespace, gpu: str) -> None:
        self.torch, self.device, self.gpu = torch, arguments.device, gpu
        self.rows: list[tuple[str, ...]] = []
        self.records: list[Record] = []
        self.failures: list[str] = []

    def add(self, title: str, times: dict[str, list[float]], wanted: float | None, rate: str = "") -> None:
        """A line for each peer; ``wanted``: of the first one's speed."""
        own = min(times["weft"])
        for number, peer in enumerate(name for name in times if name != "weft"):
            ratio = ratio_to(times, peer)
            self.rows.append((title, f"{own * 1e6:,.1f}", rate, peer, f"{min(times[peer]) * 1e6:,.1f}", f"{ratio:.2f}"))
            self.records.append(Record(self.gpu, title, f"of {peer}", round(ratio, 3), wanted if not number else None))
            if wanted is not None and not number and ratio < wanted:
                self.failures.append(f"{title}: {ratio:.2f} of {peer}, wanted {wanted}")

    def agree(self, title: str, found: Array, wanted: Array, tolerance: float) -> None:
        if differs := difference(found, wanted, tolerance):
            self.failures.append(f"{title}: results differ: {differs}")

    @contextmanager
    def noted(self, title: str) -> Iterator[None]:
        """What does not run is a failure, and no reason to measure nothing else."""
        try:
            yield
        except (DeviceError, CompileError, RuntimeError) as error:
            self.failures.append(f"{title} does not run: {error}")

    def work(self, work: Work) -> None:
        """Measure one."""
        options = {"tf32": True} if work.tf32 else {}
        model = weft.compile(work.module, target="cuda", gpu=self.gpu, strict=True, **options)
        assert isinstance(model, CompiledModel)
        inputs = [array.reshape(spec.shape) for array, spec in zip(work.inputs, model.inputs, strict=True)]
        run, results = ours(model, self.device, inputs)
        peer = work.peer(self.torch, f"cuda:{self.device}")
        wanted = gpu_work.as_numpy(self.torch, peer())
        self.agree(work.title, results[0].reshape(wanted.shape), wanted, work.tolerance)
        times = in_turns({"weft": run, work.peer_name: captured(self.torch, peer)})
        per_second = work.amount / min(times["weft"])
        rate = f"{per_second / 1e12:.1f} T/s" if work.bound == "arithmetic" else f"{per_second / 1e9:,.0f} GB/s"
        self.add(work.title, times, work.wanted, rate)

    def memory(self) -> None:
        """Kernels that memory bounds, and their share of a copy's bandwidth."""
        torch = self.torch
        data = torch.empty(1 << 28, dtype=torch.uint8, device=f"cuda:{self.device}")
        target = torch.empty_like(data)
        both = captured(torch, lambda: target.copy_(data))
        bandwidth = 2 * data.numel() / min(both() for _ in range(ROUNDS))
        self.rows.append(("copy of 256 MiB", "", "", "PyTorch", "", f"{bandwidth / 1e9:,.0f} GB/s"))
        self.records.append(Record(self.gpu, "copy", "GB/s", round(bandwidth / 1e9, 1)))
        for work in gpu_work.memory_bound():
            before = len(self.rows)
            with self.noted(work.title):
                self.work(work)
            if len(self.rows) == before:
                continue
            share = work.amount / (float(self.rows[before][1].replace(",", "")) * 1e-6) / bandwidth
            self.records.append(Record(self.gpu, work.title, "of a copy's bandwidth", round(share, 3), gpu_work.SHARE))
            self.rows.append((work.title, "", "", "copy's bandwidth", "", f"{share:.2f}"))
            if share < gpu_work.SHARE:
                self.failures.append(f"{work.title}: {share:.2f} of a copy's bandwidth, wanted {gpu_work.SHARE}")

    def launches(self) -> None:
        """What a launch takes of the host's time, and what one of a graph takes of the device's."""
        work = gpu_work.small_sum()
        model = weft.compile(work.module, target="cuda", gpu=self.gpu)
        assert isinstance(model, CompiledModel)
        executor = executor_of(model, self.device)
        (launch,) = executor.kernels()
        gpu, count = executor.gpu, 1000
        gpu.launch(launch)
        gpu.synchronise()
        found = []
        for _ in range(ROUNDS):
            started = time.perf_counter()
            for _ in range(count):
                gpu.launch(launch)
            found.append((time.perf_counter() - started) / count)
            gpu.synchronise()
        timer = executor.kernel_timer(count)
        host, device = min(found), min(timer() for _ in range(ROUNDS))
        for title, seconds in (("launch, of the host's time", host), ("launch in a graph", device)):
            self.rows.append((title, f"{seconds * 1e6:.2f}", "", "", "", ""))
            self.records.append(Record(self.gpu, title, "us", round(seconds * 1e6, 2), LAUNCH_WANTED * 1e6))
            if seconds > LAUNCH_WANTED:
                self.failures.append(f"{title}: {seconds * 1e6:.1f} us")

    def network(self, name: str, *, tf32: bool) -> None:
        """A network of torchvision, exported to ONNX by PyTorch, beside PyTorch in both orders of its images."""
        torch, title = self.torch, f"{name}, TF32" if tf32 else name
        network, exported = gpu_work.exported(torch, name)
        compiled = weft.compile(exported, target="cuda", gpu=self.gpu, strict=True, tf32=tf32)
        assert isinstance(compiled, CompiledModel)
        data = np.random.default_rng(0).normal(size=compiled.inputs[0].shape).astype(np.float32)
        run, results = ours(compiled, self.device, [data], 3)
        x = torch.from_numpy(data).to(f"cuda:{self.device}")
        orders = {"": torch.contiguous_format, ", channels last": torch.channels_last}
        engines: dict[str, Seconds] = {"weft": run}
        with torch.no_grad():
            for order, form in orders.items():
                module = copy.deepcopy(network).to(f"cuda:{self.device}").eval().to(memory_format=form)
                images = x.to(memory_format=form)
                if not order and not tf32:
                    self.agree(name, results[0], module(x).cpu().numpy(), gpu_work.NETWORK_TOLERANCE)
                if bool(order) == tf32:  # the order that its kernels are faster in
                    fused = torch.compile(module)
                    engines[f"torch.compile{order}"] = captured(torch, lambda f=fused, x=images: f(x), 3)
                engines[f"PyTorch{order}"] = captured(torch, lambda f=module, x=images: f(x), 3)
        if session := gpu_work.onnxruntime_session(exported, self.device):
            feed = {session.get_inputs()[0].name: data}

            def theirs() -> float:
                started = time.perf_counter()
                session.run(None, feed)
                return time.perf_counter() - started

            engines["onnxruntime, with copies"] = theirs
        self.add(title, in_turns(engines), None)


def measured(comparison: Comparison, parts: Sequence[str]) -> Iterator[None]:
    """Measure one thing after the other."""
    torch = comparison.torch
    # Products of float32 are done in float32 by everybody, but where TF32 is asked for.
    torch.backends.cudnn.benchmark = True
    gpu_work.set_tf32(torch, False)
    for work in (*(gpu_work.products() if "products" in parts else ()),
                 *(gpu_work.convolutions() if "convolutions" in parts else ()),
                 *(gpu_work.attentions() if "attention" in parts else ())):  # fmt: skip
        gpu_work.set_tf32(torch, work.tf32)
        with comparison.noted(work.title):
            comparison.work(work)
        yield
    gpu_work.set_tf32(torch, False)
    if "memory" in parts:
        comparison.memory()
        yield
    if "launch" in parts:
        comparison.launches()
        yield
    for name, tf32 in itertools.product(NETWORKS if "networks" in parts else (), (False, True)):
        gpu_work.set_tf32(torch, tf32)
        with comparison.noted(name):
            comparison.network(name, tf32=tf32)
        yield


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[[], *PARTS], help="by default all")
    parser.add_argument("--gpu", choices=NVIDIA, help="architecture of the kernels; the GPU's own by default")
    parser.add_argument("--device", default="0", help="number of the GPU")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin nothing after so long")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args(given)
    try:
        found = cuda_devices()
        torch = pytorch()
    except (DeviceError, NoPeerError) as error:
        print(f"nothing is measured: {error}", file=sys.stderr)
        return 2
    if not arguments.device.isdecimal() or int(arguments.device) >= len(found):
        parser.error(f"there is no GPU {arguments.device!r}; there are: {', '.join(map(str, found))}")
    device = found[int(arguments.device)]
    gpu = arguments.gpu or [name for name in NVIDIA if int(name.removeprefix("sm_")) <= device.capability][-1]
    comparison = Comparison(torch, arguments, gpu)
    started = time.monotonic()
    for _ in measured(comparison, arguments.parts or PARTS):
        last = comparison.rows[-1:] or comparison.failures[-1:]
        print(f"{time.monotonic() - started:6.1f} s: {last[0]}", file=sys.stderr, flush=True)
        if time.monotonic() - started > arguments.seconds:
            comparison.failures.append(f"not all was measured in {arguments.seconds:g} s")
            break
    print_table(f"{device}, kernels for {gpu}, PyTorch {torch.__version__}",
                ("work", "weft us", "rate", "peer", "us", "peer / weft"), comparison.rows)  # fmt: skip
    print("\n".join(comparison.failures))
    if arguments.json:
        write_json(arguments.json, comparison.records)
    return 1 if comparison.failures else 0


if __name__ == "__main__":
    sys.exit(main())
