"""What decides the speed of kernels for NVIDIA's GPUs, counted without one.

    python benchmarks/gpu/static.py                      # all networks for sm_80
    python benchmarks/gpu/static.py digits --gpu sm_75 --json digits.json
    python benchmarks/gpu/static.py product --gpu sm_90  # one product of bytes, 256 x 256 x 1024
    python benchmarks/gpu/static.py --ptxas PATH         # of NVIDIA's assembler: registers and spills, too

Networks: digits, resnet18 and mobilenet_v2 at 64x64 (``--width``: of their channels), a block of a vision transformer;
and ``product``. Each is compiled for the target ``cuda`` and runs in the interpreter of PTX, which refuses what a GPU
would get wrong. ptxas comes with the extra ``bench``
(nvidia-cuda-nvcc-cu12); where there is none, its columns are empty.

Kernels are those of tensor cores (mma), others with tiles in shared memory, and plain ones. Exits with 1 where a kernel
misses a target: no spills; of products by tensor cores no more than 2 % of all wavefronts beyond the fewest; the fewest
sectors at least 0.95 of those moved; mma at least 0.38 of the instructions of the loop over the depth, where there is
one (shallow products are written out; machine code of loops: `gpu/loops.py`). That there is one barrier a step of the
depth is a test (`tests/compiler/targets/gpu/test_pipeline.py`).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import weft
from onnx import TensorProto, helper, numpy_helper
from weft.compiler.model import CompiledModel
from weft.compiler.targets.gpu.devices import NVIDIA
from weft.runtime.gpu.predicted import PEAKS, predicted_seconds
from weft.sim.ptx import Counts
from weft.sim.ptx.parser import parse

from benchmarks.common import Record, print_table, write_json
from benchmarks.gpu.loops import ptx_loop
from benchmarks.gpu.tools import counted_steps, installed_tool, ptxas_figures
from benchmarks.zoo.quantised_networks import network
from examples.models.build import build

NETWORKS = ("digits", "resnet18", "mobilenet_v2", "transformer", "product")
DIGITS = Path(weft.__file__).parents[1] / "examples" / "digits" / "digits.onnx"

FEWEST_SECTORS, CONFLICTS, MMA_SHARE = 0.95, 0.02, 0.38


def model_of(name: str, width: float, size: int) -> Path | bytes:
    """A network as ONNX, quantised but for the transformer."""
    match name:
        case "digits":
            return DIGITS
        case "transformer":
            model, _ = network("vit-block")
            return bytes(model.SerializeToString())
        case "product":
            return product(256, 256, 1024)
    return build(name, form="qdq", size=size, width=width)


def product(rows: int, columns: int, depth: int) -> bytes:
    """int8 matrices, the second one constant and with the depth as its first axis."""
    weights = np.random.default_rng(0).integers(-128, 128, (depth, columns)).astype(np.int8)
    constants = {"w": weights, "zero": np.int8(0), "xs": np.float32(0.02), "ws": np.float32(0.003),
                 "ys": np.float32(0.05)}  # fmt: skip
    names = ["x", "xs", "zero", "w", "ws", "zero", "ys", "zero"]
    graph = helper.make_graph(
        [helper.make_node("QLinearMatMul", names, ["y"])], "product",
        [helper.make_tensor_value_info("x", TensorProto.INT8, [rows, depth])],
        [helper.make_tensor_value_info("y", TensorProto.INT8, [rows, columns])],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )  # fmt: skip
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)])
    made.ir_version = min(made.ir_version, 9)
    onnx.checker.check_model(made)
    return bytes(made.SerializeToString())


def ratio(counts: Counts, kind: str) -> tuple[int, int]:
    """What was needed, and the fewest."""
    traffic = list(getattr(counts, kind).values())
    return sum(each.needed for each in traffic), sum(each.fewest for each in traffic)


def measure(name: str, arguments: argparse.Namespace, ptxas: str | None) -> tuple[list[Record], list[str]]:
    """The figures of a network's kernels, and which targets they miss."""
    model = weft.compile(model_of(name, arguments.width, arguments.size), target="cuda", gpu=arguments.gpu, strict=True)
    assert isinstance(model, CompiledModel)
    records: list[Record] = []
    missed: list[str] = []
    rows = []
    for program, code, launches in counted_steps(model):
        kernels = parse(code.text)
        used = ptxas_figures(code.text, arguments.gpu, ptxas) if ptxas else {}
        for launch in launches:
            counts, call = launch.counts, launch.call
            layer = program.layers[launch.layer]
            waves, fewest_waves = ratio(counts, "wavefronts")
            sectors, fewest_sectors = ratio(counts, "sectors")
            share = {key: counts.instructions[key] / max(1, counts.warp_instructions) for key in ("mma", "fma")}
            seconds, bound = predicted_seconds(counts, call, PEAKS[arguments.gpu])
            loop = ptx_loop(kernels[call.function]) if share["mma"] else None
            count, spilled = used.get(call.function, (None, None))
            figures = {
                "warp instructions": counts.warp_instructions, "mma share": round(share["mma"], 3),
                "mma share of the loop": round(loop.share, 3) if loop else None, "fma share": round(share["fma"], 3),
                "wavefronts": waves, "fewest wavefronts": fewest_waves,
                "sectors": sectors, "fewest sectors": fewest_sectors, "barriers": counts.barriers,
                "divergent branches": counts.divergent, "predicted us": round(seconds * 1e6, 2), "bound by": bound,
                "registers": count, "spilled bytes": spilled,
            }  # fmt: skip
            where = f"{name}/{layer.name}/{call.function[-10:]}"
            records += [Record(arguments.gpu, where, figure, value) for figure, value in figures.items()
                        if value is not None]  # fmt: skip
            beyond = (waves - fewest_waves) / waves if waves else 0.0
            moved = fewest_sectors / sectors if sectors else 1.0
            wrong = []
            if spilled:
                wrong.append(f"{spilled} bytes spilled")
            if share["mma"] and beyond > CONFLICTS:
                wrong.append(f"{beyond:.1%} of wavefronts are conflicts")
            if loop and loop.share < MMA_SHARE:
                wrong.append(f"mma share of the loop {loop.share:.2f}")
            if moved < FEWEST_SECTORS:
                wrong.append(f"fewest sectors {moved:.2f} of those moved")
            missed += [f"{where}: {each}" for each in wrong]
            rows.append((where, layer.kind, f"{counts.warp_instructions:,}", f"{share['mma']:.3f}",
                         f"{loop.share:.3f}" if loop else "",
                         f"{share['fma']:.3f}", f"{waves:,}", f"{beyond:.1%}", f"{sectors:,}", f"{moved:.2f}",
                         str(counts.barriers), f"{seconds * 1e6:.1f}", bound, str(count or ""),
                         "" if spilled is None else str(spilled)))  # fmt: skip
    columns = ("kernel", "kind", "instructions", "mma", "of the loop", "fma", "wavefronts", "conflicts", "sectors",
               "fewest", "barriers", "predicted us", "bound by", "registers", "spilled")  # fmt: skip
    print_table(f"{name}, {arguments.gpu}", columns, rows)
    return records, missed


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("networks", nargs="*", default=list(NETWORKS), help=f"of {', '.join(NETWORKS)}")
    parser.add_argument("--gpu", default="sm_80", choices=NVIDIA)
    parser.add_argument("--width", type=float, default=0.25, help="part of the channels of the networks of images")
    parser.add_argument("--size", type=int, default=64, help="of images")
    parser.add_argument("--ptxas", help="path of NVIDIA's assembler; or WEFT_PTXAS, or on PATH")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args(given)
    unknown = [name for name in arguments.networks if name not in NETWORKS]
    if unknown:
        parser.error(f"there is no network {unknown[0]!r}; choose of {', '.join(NETWORKS)}")
    ptxas = installed_tool("ptxas") if arguments.ptxas is None else arguments.ptxas
    records: list[Record] = []
    missed: list[str] = []
    for name in arguments.networks:
        found, wrong = measure(name, arguments, ptxas)
        records += found
        missed += wrong
    if arguments.json:
        write_json(arguments.json, records)
    print(f"{len(missed)} targets missed" + ("" if ptxas else "; without ptxas, spills are not known"))
    print("\n".join(missed))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
