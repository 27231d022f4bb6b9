"""Kernels and networks on NVIDIA's GPU beside cuBLAS (through PyTorch), `torch.compile` and onnxruntime, taking turns.

    pip install -e .[bench,demo]                    # torch and onnxruntime-gpu, built for this machine's CUDA
    python benchmarks/gpu_peers.py                  # products and networks, on GPU 0
    python benchmarks/gpu_peers.py products --gpu sm_90 --device 1 --json products.json

Products: int8 (`torch._int_mm`) and float32 (`torch.matmul`, without TF32), of sizes that networks have. Networks:
resnet18 and mobilenet_v2 in float32 (`torch.compile` of the same graph is not compared: the model comes from ONNX).
In every round each engine runs the same data, and the fastest of a few runs counts; a ratio is the median over the
rounds. Results must agree: integers to the bit, floats within 1e-4 of the largest.

Wanted: 0.9 of cuBLAS in float32, 0.85 in int8. Exits with 1 where that is missed, with 2 where there is no GPU or no
peer. **It has not run on a GPU yet.**
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import weft
from common import Record, print_table, write_json
from weft.compiler.graph import Attrs, Constant, Expr, Function, Module, TensorType, Var, call
from weft.compiler.model import CompiledModel, GpuCode, HostStep
from weft.compiler.targets.gpu.devices import NVIDIA
from weft.compiler.targets.loops.prepare import prepare
from weft.compiler.targets.registry import find_target
from weft.examples.models.build import build
from weft.runtime.errors import DeviceError
from weft.runtime.gpu.cuda import cuda_devices
from weft.runtime.gpu.executor import GpuExecutor
from weft.runtime.gpu.open import open_gpu

Array = np.ndarray[Any, Any]
Seconds = Callable[[], float]

PRODUCTS = ((256, 256, 1024), (1024, 1024, 1024), (4096, 4096, 4096), (512, 3072, 768), (784, 512, 4608))
"""Rows, columns, depth."""

WANTED = {"int8": 0.85, "float32": 0.9}
ROUNDS, RUNS = 9, 20
FLOAT_TOLERANCE = 1e-4


class NoPeerError(Exception):
    """What is missing to compare with."""


def peers() -> tuple[Any, Any]:
    """The modules of PyTorch and onnxruntime, both with a GPU."""
    try:
        import onnxruntime
        import torch
    except ImportError as error:
        raise NoPeerError(f"{error.name} is not installed; pip install -e .[bench]") from error
    if not torch.cuda.is_available():
        raise NoPeerError(f"PyTorch {torch.__version__} sees no GPU: it needs a build for CUDA")
    if "CUDAExecutionProvider" not in onnxruntime.get_available_providers():
        raise NoPeerError("this onnxruntime has no CUDA: install onnxruntime-gpu")
    return torch, onnxruntime


def product_module(left: Array, right: Array) -> Module:
    """The product of ``left`` and ``right``, which is constant: bytes as the integer contract has them, in int32."""
    if left.dtype == np.int8:
        a = Var("a", TensorType((*left.shape, 1, 1), "int8"))
        body: Expr = call("conv2d", a, Constant(np.ascontiguousarray(right.T)[:, :, None, None]))
    else:
        a = Var("a", TensorType(left.shape, left.dtype.name))
        body = call("nn.matmul", a, Constant(right))
    return prepare(Module(Function((a,), body, Attrs({"name": "main", "outputs": ("y",)}))))


def ours(model: CompiledModel, device: str, inputs: Sequence[Array]) -> tuple[Seconds, list[Array]]:
    """Seconds of a model's kernels as the device counts them, and the results."""
    (step,) = model.steps
    assert isinstance(step, HostStep)
    code = find_target("cuda").host_code(step.program, trusted=True)
    assert isinstance(code, GpuCode)
    executor = GpuExecutor(step.program, code, open_gpu(code, device))
    outputs = [np.empty(each.shape, each.dtype) for each in step.program.outputs]
    executor.run(inputs, outputs)
    return lambda: sum(executor.execute_timed(inputs, outputs)), outputs


def by_events(torch: Any, run: Callable[[], Any]) -> Seconds:
    """Seconds between two events around a run."""

    def timed() -> float:
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        first.record()
        run()
        last.record()
        torch.cuda.synchronize()
        return float(first.elapsed_time(last)) * 1e-3

    return timed


def in_turns(engines: dict[str, Seconds]) -> dict[str, list[float]]:
    """The fastest of some runs of each engine, in every round."""
    for run in engines.values():
        run()
    rounds = [[min(run() for _ in range(RUNS)) for run in engines.values()] for _ in range(ROUNDS)]
    return {name: list(times) for name, times in zip(engines, zip(*rounds, strict=True), strict=True)}


def compared(title: str, times: dict[str, list[float]], peer: str) -> tuple[float, tuple[str, ...]]:
    ratio = statistics.median(theirs / own for own, theirs in zip(times["weft"], times[peer], strict=True))
    fastest = {name: min(rounds) for name, rounds in times.items()}
    return ratio, (title, f"{fastest['weft'] * 1e6:,.1f}", peer, f"{fastest[peer] * 1e6:,.1f}", f"{ratio:.2f}")


def check(title: str, found: Array, wanted: Array) -> None:
    if wanted.dtype.kind in "iu":
        same = np.array_equal(found, wanted)
    else:
        same = bool(np.abs(found - wanted).max() <= FLOAT_TOLERANCE * np.abs(wanted).max())
    if not same:
        sys.exit(f"{title}: the results differ")


def products(torch: Any, arguments: argparse.Namespace) -> tuple[list[tuple[str, ...]], list[Record], bool]:
    rows_of, records, missed = [], [], False
    torch.backends.cuda.matmul.allow_tf32 = False
    generator = np.random.default_rng(0)
    for dtype, wanted in WANTED.items():
        for rows, columns, depth in PRODUCTS:
            title = f"{dtype} {rows}x{columns}x{depth}"
            shapes = ((rows, depth), (depth, columns))
            data = [generator.integers(-128, 128, shape).astype(np.int8) if dtype == "int8" else
                    generator.normal(size=shape).astype(np.float32) for shape in shapes]  # fmt: skip
            model = weft.compile(product_module(*data), target="cuda", gpu=arguments.gpu)
            assert isinstance(model, CompiledModel)
            run, (result,) = ours(model, arguments.device, [data[0].reshape(model.inputs[0].shape)])
            a, b = (torch.from_numpy(each).to(f"cuda:{arguments.device}") for each in data)
            multiply = torch._int_mm if dtype == "int8" else torch.matmul
            check(title, result.reshape(rows, columns), multiply(a, b).cpu().numpy())
            times = in_turns({"weft": run, "cuBLAS": by_events(torch, lambda f=multiply, x=a, y=b: f(x, y))})
            ratio, row = compared(title, times, "cuBLAS")
            rows_of.append(row)
            records.append(Record(arguments.gpu, title, "of cuBLAS", round(ratio, 3), wanted))
            missed |= ratio < wanted
    return rows_of, records, missed


def networks(onnxruntime: Any, arguments: argparse.Namespace) -> tuple[list[tuple[str, ...]], list[Record]]:
    rows, records = [], []
    for name in ("resnet18", "mobilenet_v2"):
        model = build(name, form="float", size=224, width=1.0)
        compiled = weft.compile(model, target="cuda", gpu=arguments.gpu)
        assert isinstance(compiled, CompiledModel)
        inputs = [np.random.default_rng(0).normal(size=each.shape).astype(each.dtype) for each in compiled.inputs]
        run, results = ours(compiled, arguments.device, inputs)
        provider = ("CUDAExecutionProvider", {"device_id": int(arguments.device)})
        session = onnxruntime.InferenceSession(model, providers=[provider])
        feed = {each.name: data for each, data in zip(session.get_inputs(), inputs, strict=True)}
        check(name, results[0], session.run(None, feed)[0])

        def theirs(session: Any = session, feed: dict[str, Array] = feed) -> float:
            started = time.perf_counter()
            session.run(None, feed)
            return time.perf_counter() - started

        ratio, row = compared(name, in_turns({"weft": run, "onnxruntime": theirs}), "onnxruntime")
        rows.append(row)
        records.append(Record(arguments.gpu, name, "of onnxruntime", round(ratio, 3)))
    return rows, records


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[[], "products", "networks"], help="by default both")
    parser.add_argument("--gpu", default="sm_80", choices=NVIDIA, help="architecture of the kernels")
    parser.add_argument("--device", default="0", help="number of the GPU")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args(given)
    try:
        found = [str(each) for each in cuda_devices()]
        torch, onnxruntime = peers()
    except (DeviceError, NoPeerError) as error:
        print(f"nothing is measured: {error}", file=sys.stderr)
        return 2
    if not arguments.device.isdecimal() or int(arguments.device) >= len(found):
        parser.error(f"there is no GPU {arguments.device!r}; there are: {', '.join(found)}")
    parts = arguments.parts or ["products", "networks"]
    rows: list[tuple[str, ...]] = []
    records: list[Record] = []
    missed = False
    if "products" in parts:
        rows, records, missed = products(torch, arguments)
    if "networks" in parts:
        more, figures = networks(onnxruntime, arguments)
        rows, records = [*rows, *more], [*records, *figures]
    print_table(found[int(arguments.device)], ("work", "weft us", "peer", "us", "peer / weft"), rows)
    if arguments.json:
        write_json(arguments.json, records)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
