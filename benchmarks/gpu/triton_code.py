"""Kernels for NVIDIA's GPUs beside what Triton's compiler gives for the same work, counted without a GPU.

    python benchmarks/gpu/triton_code.py
    python benchmarks/gpu/triton_code.py softmax --json counts.json

Weft's side is compiled and runs in the interpreter of PTX, Triton's figures are on record in
``triton_counts.json``; `triton_counts.py` made them in the same interpreter, of the best of several forms for each
work. Products have the same tile and type on both sides. Registers, spills and the loop over the depth are of machine
code, where ptxas and nvdisasm are (on PATH, or of NVIDIA's packages).

Exits with 1 where weft takes more warp instructions than Triton.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import weft
from onnx import TensorProto, helper
from weft.compiler.graph import Module
from weft.compiler.model import CompiledModel
from weft.compiler.targets.gpu import tensor_cores
from weft.compiler.targets.gpu.devices import DEVICES
from weft.compiler.targets.gpu.tiles import Plan, Shape, tiles_of
from weft.sim.ptx import Counts

from benchmarks.common import Record, print_table, write_json
from benchmarks.gpu.loops import machine_loop, product_text, shapes_of, wanted
from benchmarks.gpu.tools import counted_steps, installed_tool, ptxas_figures
from benchmarks.gpu.work import attention_module, attention_operands, product_module, random

GPU = "sm_80"
COUNTS = Path(__file__).with_name("triton_counts.json")
DEEP = 12288
"""Deep enough for ptxas to leave the loop over the depth a loop."""

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Work:
    """What is done, by ONNX's operators. ``sizes``: of a product its rows, columns and depth, of an attention heads,
    queries, keys and their elements, else rows and columns. ``tile``: rows and columns of a product that a group of
    threads makes."""

    kind: str
    sizes: tuple[int, ...]
    dtype: str = "float32"
    tile: tuple[int, int] | None = None

    @property
    def name(self) -> str:
        sizes = "x".join(map(str, self.sizes))
        return f"{self.kind} {self.dtype} {sizes}" + ("" if self.tile is None else f" by {self.tile[0]}x{self.tile[1]}")

    def inputs(self) -> tuple[Array, ...]:
        match self.kind:
            case "product":
                rows, columns, depth = self.sizes
                return random(self.dtype, rows, depth), random(self.dtype, depth, columns)
            case "layer norm":
                columns = self.sizes[1]
                return random(self.dtype, *self.sizes), random(self.dtype, columns), random(self.dtype, columns)[::-1]
            case "relu of a sum":
                return random(self.dtype, *self.sizes), random(self.dtype, *self.sizes)[::-1].copy()
            case "attention":
                return attention_operands(self.dtype, *self.sizes)
        return (random(self.dtype, *self.sizes),)

    def result(self) -> Array:
        """In the type that it is wanted in, computed in a wider one."""
        inputs = self.inputs()
        wide = [each.astype(np.int64 if self.dtype == "int8" else np.float64) for each in inputs]
        match self.kind:
            case "product":
                found = wide[0] @ wide[1]
            case "attention":
                scores = wide[0] @ wide[1].transpose(0, 2, 1)
                powers = np.exp(scores - scores.max(2, keepdims=True))
                found = powers / powers.sum(2, keepdims=True) @ wide[2]
            case "softmax":
                powers = np.exp(wide[0] - wide[0].max(1, keepdims=True))
                found = powers / powers.sum(1, keepdims=True)
            case "layer norm":
                centred = wide[0] - wide[0].mean(1, keepdims=True)
                found = centred / np.sqrt((centred**2).mean(1, keepdims=True) + 1e-5) * wide[1] + wide[2]
            case "relu of a sum":
                found = np.maximum(wide[0] + wide[1], 0)
            case "mean of rows":
                found = wide[0].mean(1)
            case _:
                found = wide[0].T
        return np.ascontiguousarray(found.astype(np.int32 if self.dtype == "int8" else self.dtype))

    def model(self) -> bytes | Module:
        inputs = self.inputs()
        if self.kind == "product":
            return product_module(*inputs)
        if self.kind == "attention":
            return attention_module(*inputs)
        name, given = OPERATORS[self.kind]
        names = [f"x{place}" for place in range(len(inputs))]
        nodes = [helper.make_node("Add", names, ["sum"]), helper.make_node(name, ["sum"], ["y"])]
        graph = helper.make_graph(
            nodes if self.kind == "relu of a sum" else [helper.make_node(name, names, ["y"], **given)], "work",
            [helper.make_tensor_value_info(each, TensorProto.FLOAT, array.shape)
             for each, array in zip(names, inputs, strict=True)],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        )  # fmt: skip
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9).SerializeToString()


OPERATORS: dict[str, tuple[str, dict[str, Any]]] = {
    "softmax": ("Softmax", {"axis": 1}), "layer norm": ("LayerNormalization", {"axis": 1}),
    "relu of a sum": ("Relu", {}), "mean of rows": ("ReduceMean", {"axes": [1], "keepdims": 0}),
    "transposition": ("Transpose", {"perm": [1, 0]}),
}  # fmt: skip

WORKS = (
    *(Work("product", (512, 512, 512), dtype, tile) for dtype in ("float32", "float16", "int8")
      for tile in ((128, 128), (64, 64))),
    Work("attention", (8, 512, 512, 64), "float16"), Work("attention", (12, 128, 128, 64), "float16"),
    Work("attention", (12, 128, 128, 64)),
    Work("softmax", (256, 1024)), Work("softmax", (256, 1000)), Work("layer norm", (256, 768)),
    Work("relu of a sum", (512, 1024)), Work("mean of rows", (512, 4096)), Work("transposition", (512, 512)),
)  # fmt: skip


@dataclass(frozen=True)
class Figures:
    """Of all launches of a work. ``registers`` and ``spilled`` bytes: the most of a kernel, by ptxas; ``share`` of the
    loop over the depth that is products, and cycles to issue it over those of its products (`gpu/loops.py`)."""

    form: str
    instructions: int
    wavefronts: int
    conflicts: int
    sectors: int
    fewest_sectors: int
    barriers: int
    registers: int
    spilled: int
    share: float
    cycles: float


def figures_of(counts: Sequence[Counts], text: str, loop: str, work: Work, form: str) -> Figures:
    """``text``: its kernels in PTX; ``loop``: a product of which the depth is `DEEP`."""
    ptxas, nvdisasm = installed_tool("ptxas"), installed_tool("nvdisasm")
    used = list(ptxas_figures(text, GPU, ptxas).values()) if ptxas else []
    share = cycles = 0.0
    if loop and ptxas and nvdisasm:
        goal = wanted(shape_of(work), DEVICES[GPU])
        with tempfile.TemporaryDirectory() as folder:
            cubin = Path(folder) / "loop.cubin"
            ptxas_figures(loop, GPU, ptxas, cubin)
            found = machine_loop(cubin, nvdisasm, goal.machine)
        if found is not None:
            share, cycles = found.share, found.cycles / (goal.cycles * found.products)
    traffic = [each for one in counts for each in one.sectors.values()]
    return Figures(
        form, sum(each.warp_instructions for each in counts),
        sum(each.needed for one in counts for each in one.wavefronts.values()), sum(each.conflicts for each in counts),
        sum(each.needed for each in traffic), sum(each.fewest for each in traffic),
        sum(each.barriers for each in counts), max((count for count, _ in used), default=0),
        max((spilled for _, spilled in used), default=0), round(share, 3), round(cycles, 2),
    )  # fmt: skip


def ours(work: Work) -> Figures:
    """What weft's kernels count."""
    chosen = None
    if work.tile is not None:
        shape = shape_of(work)
        chosen = Plan(next(each for each in tiles_of(shape) if (each.rows, each.columns) == work.tile))
    with patch.object(tensor_cores, "choose_plan", lambda *_: chosen) if chosen else nullcontext():
        model = weft.compile(work.model(), target="cuda", gpu=GPU, strict=True)
    assert isinstance(model, CompiledModel)
    counts, text = [], ""
    for _, code, launches in counted_steps(model):
        counts += [each.counts for each in launches]
        text += code.text
    loop = product_text(chosen.tile, shape, DEVICES[GPU]) if chosen else ""
    return figures_of(counts, text, loop, work, "")


def shape_of(work: Work) -> Shape:
    """What multiplies in a product."""
    return next(each for each in shapes_of(DEVICES[GPU]) if each.dtype == work.dtype)


COLUMNS = ("work", "", "instructions", "weft / Triton", "wavefronts", "conflicts", "sectors", "fewest", "barriers",
           "registers", "spilled", "products of loop", "cycles / fewest")  # fmt: skip


def row(name: str, who: str, figures: Figures, ratio: str) -> tuple[str, ...]:
    return (name, who, f"{figures.instructions:,}", ratio, f"{figures.wavefronts:,}", f"{figures.conflicts:,}",
            f"{figures.sectors:,}", f"{figures.fewest_sectors / max(1, figures.sectors):.2f}", str(figures.barriers),
            str(figures.registers or ""), str(figures.spilled) if figures.registers else "",
            f"{figures.share:.3f}" if figures.share else "",
            f"{figures.cycles:.2f}" if figures.cycles else "")  # fmt: skip


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="*", help=f"of {', '.join(sorted({each.kind for each in WORKS}))}; default: all")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args(given)
    unknown = [kind for kind in arguments.kinds if kind not in {each.kind for each in WORKS}]
    if unknown:
        parser.error(f"there is no work {unknown[0]!r}")
    record = json.loads(COUNTS.read_text())
    records, rows, missed = [], [], []
    for work in WORKS:
        if arguments.kinds and work.kind not in arguments.kinds:
            continue
        mine, theirs = ours(work), Figures(**record["kernels"][work.name])
        ratio = mine.instructions / theirs.instructions
        if ratio > 1:
            missed.append(f"{work.name}: {ratio:.2f} x Triton's warp instructions")
        rows += [row(work.name, "weft", mine, f"{ratio:.2f}"), row("", "Triton", theirs, "")]
        records += [Record(GPU, work.name, figure, value, getattr(theirs, figure))
                    for figure, value in asdict(mine).items() if figure != "form"]  # fmt: skip
    print_table(f"{GPU}, beside Triton {record['triton']}", COLUMNS, rows)
    if arguments.json:
        write_json(arguments.json, records)
    print(f"{len(missed)} targets missed")
    print("\n".join(missed))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
