"""What Triton's compiler makes of the work of `gpu/triton_code.py`, counted; written to ``triton_counts.json``.

    pip install triton
    python benchmarks/gpu/triton_counts.py

No GPU is needed: Triton compiles for sm_80, the interpreter of PTX runs the text and checks its results. Triton gets
what serves it best: sizes and strides as constants, pointers that are multiples of 16 bytes, operands with their depth
innermost, and of the warps, stages and depths of a step that it is tried with those with the fewest warp instructions.
The tiles of products are weft's. Run it again after a change of `gpu_triton.WORKS`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from weft.sim.ptx import DeviceMemory, Program

from benchmarks.gpu.triton_code import COUNTS, DEEP, GPU, WORKS, Figures, Work, figures_of

try:
    import triton
    import triton.language as tl
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource
except ImportError:
    sys.exit("Triton is missing: pip install triton")

POINTERS = {"float32": "*fp32", "float16": "*fp16", "int8": "*i8", "int32": "*i32"}


@triton.jit  # type: ignore[untyped-decorator]
def product(
    a, b, c, width: tl.constexpr, length: tl.constexpr, tile_rows: tl.constexpr, tile_columns: tl.constexpr,
    step: tl.constexpr, kind: tl.constexpr
):  # fmt: skip
    rows = tl.program_id(0) * tile_rows + tl.arange(0, tile_rows)
    columns = tl.program_id(1) * tile_columns + tl.arange(0, tile_columns)
    depth = tl.arange(0, step)
    left = a + rows[:, None] * length + depth[None, :]
    right = b + depth[:, None] + columns[None, :] * length
    sums = tl.zeros((tile_rows, tile_columns), dtype=kind)
    for _ in range(0, length, step):
        sums = tl.dot(tl.load(left), tl.load(right), sums, input_precision="ieee", out_dtype=kind)
        left += step
        right += step
    tl.store(c + rows[:, None] * width + columns[None, :], sums)


@triton.jit  # type: ignore[untyped-decorator]
def attention(
    q, k, v, y, queries: tl.constexpr, keys: tl.constexpr, depth: tl.constexpr, tile_rows: tl.constexpr,
    tile_columns: tl.constexpr, kind: tl.constexpr
):  # fmt: skip
    """Flash attention: largest scores and sums of rows are brought up to date panel by panel."""
    rows = tl.program_id(1) * queries + tl.program_id(0) * tile_rows + tl.arange(0, tile_rows)
    columns = tl.program_id(1) * keys + tl.arange(0, tile_columns)
    deep = tl.arange(0, depth)
    left = tl.load(q + rows[:, None] * depth + deep[None, :])
    largest = tl.full((tile_rows,), float("-inf"), tl.float32)
    total = tl.zeros((tile_rows,), tl.float32)
    sums = tl.zeros((tile_rows, depth), tl.float32)
    for start in range(0, keys, tile_columns):
        right = tl.load(k + (start + columns)[None, :] * depth + deep[:, None])
        scores = tl.dot(left, right, input_precision="ieee") * 1.4426950408889634
        new = tl.maximum(largest, tl.max(scores, 1))
        powers = tl.exp2(scores - new[:, None])
        factor = tl.exp2(largest - new)
        total = total * factor + tl.sum(powers, 1)
        values = tl.load(v + (start + columns)[:, None] * depth + deep[None, :])
        sums = tl.dot(powers.to(kind), values, sums * factor[:, None], input_precision="ieee")
        largest = new
    tl.store(y + rows[:, None] * depth + deep[None, :], (sums / total[:, None]).to(kind))


@triton.jit  # type: ignore[untyped-decorator]
def softmax(x, y, width: tl.constexpr, tile_columns: tl.constexpr):
    places = tl.arange(0, tile_columns)
    row = tl.program_id(0) * width
    values = tl.load(x + row + places, mask=places < width, other=float("-inf"))
    powers = tl.exp(values - tl.max(values, axis=0))
    tl.store(y + row + places, powers / tl.sum(powers, axis=0), mask=places < width)


@triton.jit  # type: ignore[untyped-decorator]
def layer_norm(x, scale, bias, y, width: tl.constexpr, tile_columns: tl.constexpr):
    places = tl.arange(0, tile_columns)
    row = tl.program_id(0) * width
    values = tl.load(x + row + places, mask=places < width, other=0.0)
    mean = tl.sum(values, axis=0) / width
    centred = tl.where(places < width, values - mean, 0.0)
    factor = 1 / tl.sqrt(tl.sum(centred * centred, axis=0) / width + 1e-5)
    scales = tl.load(scale + places, mask=places < width, other=0.0)
    offsets = tl.load(bias + places, mask=places < width, other=0.0)
    tl.store(y + row + places, centred * factor * scales + offsets, mask=places < width)


@triton.jit  # type: ignore[untyped-decorator]
def relu_of_sum(x, z, y, tile_columns: tl.constexpr):
    places = tl.program_id(0) * tile_columns + tl.arange(0, tile_columns)
    tl.store(y + places, tl.maximum(tl.load(x + places) + tl.load(z + places), 0.0))


@triton.jit  # type: ignore[untyped-decorator]
def mean_of_rows(x, y, width: tl.constexpr, tile_columns: tl.constexpr):
    row = tl.program_id(0) * width
    sums = tl.zeros((tile_columns,), dtype=tl.float32)
    for start in range(0, width, tile_columns):
        sums += tl.load(x + row + start + tl.arange(0, tile_columns))
    tl.store(y + tl.program_id(0), tl.sum(sums, axis=0) / width)


@triton.jit  # type: ignore[untyped-decorator]
def transposition(x, y, height: tl.constexpr, width: tl.constexpr, tile_rows: tl.constexpr, tile_columns: tl.constexpr):
    rows = tl.program_id(0) * tile_rows + tl.arange(0, tile_rows)
    columns = tl.program_id(1) * tile_columns + tl.arange(0, tile_columns)
    values = tl.load(x + rows[:, None] * width + columns[None, :])
    tl.store(y + columns[:, None] * height + rows[None, :], tl.trans(values))


@dataclass(frozen=True)
class Tried:
    """A kernel with its constants, the grid it is launched with, and how it is compiled."""

    kernel: Any
    constants: Mapping[str, Any]
    grid: tuple[int, ...]
    warps: int
    stages: int = 3

    def compiled(self, arguments: Mapping[str, str]) -> Any:
        """``arguments``: types of the pointers, in their order."""
        signature = {**{name: POINTERS[dtype] for name, dtype in arguments.items()},
                     **dict.fromkeys(self.constants, "constexpr")}  # fmt: skip
        source = ASTSource(self.kernel, signature=signature, constexprs=dict(self.constants),
                           attrs={(place,): [["tt.divisibility", 16]] for place in range(len(arguments))})  # fmt: skip
        target = GPUTarget("cuda", int(GPU.removeprefix("sm_")), 32)
        return triton.compile(source, target=target, options={"num_warps": self.warps, "num_stages": self.stages})


def products(work: Work, depth: int) -> Iterator[Tried]:
    assert work.tile is not None
    rows, columns, _ = work.sizes
    sums = tl.int32 if work.dtype == "int8" else tl.float32
    for step in (16, 32, 64) if work.dtype != "int8" else (32, 64, 128):
        for warps in (4, 8):
            for stages in (3, 4):
                constants = {"width": columns, "length": depth, "tile_rows": work.tile[0],
                             "tile_columns": work.tile[1], "step": step, "kind": sums}  # fmt: skip
                yield Tried(product, constants, (rows // work.tile[0], columns // work.tile[1]), warps, stages)


def attempts(work: Work) -> Iterator[Tried]:
    """Forms of a work in Triton."""
    rows, columns = work.sizes[0], work.sizes[-1]
    match work.kind:
        case "product":
            yield from products(work, work.sizes[2])
        case "attention":
            heads, queries, keys, depth = work.sizes
            for tile in ((128, 64), (64, 64), (64, 32), (32, 64), (128, 128)):
                for warps in (4, 8):
                    constants = {"queries": queries, "keys": keys, "depth": depth, "tile_rows": tile[0],
                                 "tile_columns": tile[1],
                                 "kind": tl.float16 if work.dtype == "float16" else tl.float32}  # fmt: skip
                    yield Tried(attention, constants, (queries // tile[0], heads), warps)
        case "softmax" | "layer norm":
            kernel = softmax if work.kind == "softmax" else layer_norm
            for warps in (1, 2, 4, 8):
                block = triton.next_power_of_2(columns)
                yield Tried(kernel, {"width": columns, "tile_columns": block}, (rows,), warps)
        case "relu of a sum":
            for block in (512, 1024, 2048, 4096):
                for warps in (4, 8):
                    yield Tried(relu_of_sum, {"tile_columns": block}, (rows * columns // block,), warps)
        case "mean of rows":
            for block in (512, 1024):
                for warps in (1, 2, 4):
                    yield Tried(mean_of_rows, {"width": columns, "tile_columns": block}, (rows,), warps)
        case "transposition":
            for tile in ((32, 32), (64, 32), (64, 64), (128, 32)):
                for warps in (4, 8):
                    constants = {"height": rows, "width": columns, "tile_rows": tile[0], "tile_columns": tile[1]}
                    yield Tried(transposition, constants, (rows // tile[0], columns // tile[1]), warps)


def counted(work: Work, tried: Tried) -> Figures | None:
    """What it counts; None where Triton or the GPU has no room for it."""
    inputs, wanted = work.inputs(), work.result()
    names = [name for name in tried.kernel.arg_names if name not in tried.constants]
    types = [*(each.dtype.name for each in inputs), wanted.dtype.name]
    arguments = dict(zip(names, types, strict=True))
    made = tried.compiled(arguments)
    text, shared = made.asm["ptx"], made.metadata.shared
    if shared > 163 << 10:
        return None
    memory, found = DeviceMemory(), np.zeros_like(wanted)
    if work.kind == "product":
        inputs = (inputs[0], np.ascontiguousarray(inputs[1].T))
    addresses = [memory.put(each) for each in (*inputs, found)]
    counts = Program(text, memory).launch(made.metadata.name, tried.grid, (32 * tried.warps,), [*addresses, 0, 0],
                                          dynamic_shared=shared, watched=False)  # fmt: skip
    memory.read(addresses[-1], found)  # several threads may write the same number: races are not looked for
    if not np.allclose(found, wanted, rtol=1e-4, atol=1e-3 * float(np.abs(wanted).max())):
        raise AssertionError(f"{work.name}: Triton's kernel is wrong in the interpreter")
    loop = ""
    if work.kind == "product":
        deep = Tried(tried.kernel, {**tried.constants, "length": DEEP}, tried.grid, tried.warps, tried.stages)
        loop = deep.compiled(arguments).asm["ptx"]
    return figures_of([counts], text, loop, work, f"{tried.warps} warps, {tried.stages} stages, {tried.constants}")


def main() -> int:
    found = {}
    for work in WORKS:
        forms = [figures for each in attempts(work) if (figures := counted(work, each)) is not None]
        best = min(forms, key=lambda each: (bool(each.spilled), each.instructions))
        print(f"{work.name}: {best}", flush=True)
        found[work.name] = asdict(best)
    COUNTS.write_text(json.dumps({"triton": triton.__version__, "gpu": GPU, "kernels": found}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
