"""Main loops of products, on tensor cores and by threads: how much is products, and how long they take to issue.

    python benchmarks/gpu/loops.py                               # all tiles for sm_80, int8, float16 and float32
    python benchmarks/gpu/loops.py --gpu sm_75 --type int8 --json loops.json
    python benchmarks/gpu/loops.py --ptxas PATH --nvdisasm PATH  # of NVIDIA's assembler and disassembler

Nothing runs. Each tile makes a dense product of 512 x 512 x 12,288, deep enough for ptxas to leave the loop a loop. Of
PTX: instructions and products of the innermost loop. Of machine code, where ptxas is (the extra ``bench``) and
nvdisasm (NVIDIA's package nvidia-cuda-nvdisasm): the same, and the cycles that ptxas lets a warp wait in it, over 8 for
each product: what ptxas takes a product of m16n8k16 (float16) or m16n8k32 (int8) to keep sm_80's tensor cores busy. A
product of float32 by threads is one instruction, of one cycle, or two on sm_75 and sm_80.

Exits with 1 where a kernel spills, or where the first tile of a type that the device has room for misses a target:
products at least 0.38 of the loop of machine code (or PTX), 0.90 by threads; cycles at most 1.04, 1.12 by threads.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from weft.compiler import tensor as te
from weft.compiler.targets.gpu.devices import DEVICES, NVIDIA, GpuDescription
from weft.compiler.targets.gpu.mma_shapes import MmaShape
from weft.compiler.targets.gpu.nvptx import ptx_text
from weft.compiler.targets.gpu.phases import grids_of
from weft.compiler.targets.gpu.products import Product
from weft.compiler.targets.gpu.tensor_cores import tensor_sums
from weft.compiler.targets.gpu.tensor_schedule import schedule_tensor_cores
from weft.compiler.targets.gpu.thread_products import THREAD_SHAPES
from weft.compiler.targets.gpu.tiles import Plan, Shape, TensorTile, tiles_of
from weft.compiler.tensor.evaluate import ITEM_BYTES
from weft.compiler.tensor.view import View
from weft.sim.ptx.parser import Kernel, parse

from benchmarks.common import Record, print_table, write_json
from benchmarks.gpu.tools import installed_tool, ptxas_figures

ROWS, COLUMNS, DEPTH = 512, 512, 12288
MMA_CYCLES = 8


@dataclass(frozen=True)
class Wanted:
    """Of a loop: the instructions that are products, in PTX and machine code, cycles of one, the least share of them,
    and the most cycles over the fewest."""

    ptx: str
    machine: tuple[str, ...]
    cycles: int
    share: float
    most: float


def wanted(shape: Shape, device: GpuDescription) -> Wanted:
    if isinstance(shape, MmaShape):
        return Wanted("mma", ("HMMA", "IMMA"), MMA_CYCLES, 0.38, 1.04)
    return Wanted("fma", ("FFMA",), 128 // device.lanes, 0.9, 1.12)


def shapes_of(device: GpuDescription) -> list[Shape]:
    """What multiplies operands as they are: tensor cores first, then threads."""
    return [*(each for each in device.mma if not each.is_rounded), *THREAD_SHAPES]


@dataclass(frozen=True)
class Loop:
    """Instructions of a loop, those that are products, and cycles to issue it; 0 where they are not known."""

    instructions: int
    products: int
    cycles: int = 0

    @property
    def share(self) -> float:
        return self.products / self.instructions


def product_text(tile: TensorTile, shape: Shape, device: GpuDescription) -> str:
    """A dense product as PTX."""
    a, b = (te.placeholder((size, DEPTH), shape.dtype, name) for size, name in ((ROWS, "a"), (COLUMNS, "b")))
    left = View(a.shape, shape.dtype, lambda index: a[index])
    right = View((DEPTH, COLUMNS), shape.dtype, lambda index: b[index[::-1]])
    sums = tensor_sums(Product(left, right, (ROWS, COLUMNS)), Plan(tile), shape)
    out = te.compute((ROWS, COLUMNS), lambda i, j: sums.read((i, j)), "out")
    schedule = te.create_schedule(out, [a, b])
    schedule_tensor_cores(schedule, Plan(tile), shape, device)
    return ptx_text("product", schedule.func, grids_of(schedule.func, device), {}, device, (16, 16, 16))


def ptx_loop(kernel: Kernel, product: str = "mma") -> Loop | None:
    """The innermost loop with products of a kernel; the one with most of them, where there are several."""
    found = []
    for number, block in enumerate(kernel.blocks):
        last = block[-1] if block else None
        start = kernel.labels.get(last.operands[0]) if last is not None and last.operation == "bra" else None
        if start is not None and start <= number:
            inside = [each for part in kernel.blocks[start : number + 1] for each in part]
            found.append((number - start, Loop(len(inside), sum(each.operation == product for each in inside))))
    loops = [loop for size, loop in found if loop.products and size == min(
        other for other, each in found if each.products)]  # fmt: skip
    return max(loops, key=lambda loop: loop.products, default=None)


def machine_loop(cubin: Path, nvdisasm: str, products: Sequence[str]) -> Loop | None:
    """The loop with products of machine code. ptxas writes into each instruction how long its warp waits after it: bits
    105 to 108."""
    done = subprocess.run([nvdisasm, "-hex", "-c", cubin], capture_output=True, text=True, check=True)
    words = re.findall(
        r"^\s*(\.L_x_\d+):|^\s*/\*[0-9a-f]{4,}\*/\s+(.*?);\s*/\* 0x[0-9a-f]+ \*/\s*/\* 0x([0-9a-f]+) \*/",
        done.stdout, re.MULTILINE,
    )  # fmt: skip
    labels: dict[str, int] = {}
    code: list[tuple[str, int]] = []
    loops = []
    for label, text, high in words:
        if label:
            labels[label] = len(code)
            continue
        code.append((text, max(1, int(high, 16) >> 41 & 15)))
        jump = re.search(r"\bBRA\b.*?(\.L_x_\d+)", text)
        if jump and jump[1] in labels:
            body = code[labels[jump[1]] :]
            kinds = Counter(re.sub(r"^@!?U?P\d+\s+", "", each).split()[0].split(".")[0] for each, _ in body)
            loops.append(Loop(len(body), sum(kinds[each] for each in products), sum(wait for _, wait in body)))
    return max((loop for loop in loops if loop.products), key=lambda loop: loop.products, default=None)


def _shown(loop: Loop | None) -> tuple[str, ...]:
    return (str(loop.instructions), str(loop.products), f"{loop.share:.3f}") if loop else ("", "", "")


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpu", default="sm_80", choices=NVIDIA)
    parser.add_argument("--type", action="append", choices=("int8", "float16", "bfloat16", "float32"))
    parser.add_argument("--ptxas", help="path of NVIDIA's assembler")
    parser.add_argument("--nvdisasm", help="path of NVIDIA's disassembler")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args(given)
    device = DEVICES[arguments.gpu]
    ptxas = installed_tool("ptxas") if arguments.ptxas is None else arguments.ptxas
    nvdisasm = installed_tool("nvdisasm") if arguments.nvdisasm is None else arguments.nvdisasm
    rows: list[tuple[str, ...]] = []
    records: list[Record] = []
    missed: list[str] = []
    for shape in shapes_of(device):
        if shape.dtype not in (arguments.type or ("int8", "float16", "float32")):
            continue
        size, goal = ITEM_BYTES[shape.dtype], wanted(shape, device)
        room = max(device.shared_bytes, device.shared_most)
        for number, tile in enumerate(each for each in tiles_of(shape) if each.shared_bytes(size, device) <= room):
            text = product_text(tile, shape, device)
            (kernel,) = parse(text).values()
            loop, count, spilled, machine = ptx_loop(kernel, goal.ptx), 0, 0, None
            with tempfile.TemporaryDirectory() as folder:
                cubin = Path(folder) / "product.cubin"
                if ptxas:
                    ((count, spilled),) = ptxas_figures(text, arguments.gpu, ptxas, cubin).values()
                if ptxas and nvdisasm:
                    machine = machine_loop(cubin, nvdisasm, goal.machine)
            name = f"{shape.dtype} {tile.rows}x{tile.columns}, warps of {tile.warp_rows}x{tile.warp_columns}"
            best = machine or loop
            cycles = machine.cycles / (goal.cycles * machine.products) if machine else 0.0
            if spilled:
                missed.append(f"{name}: {spilled} bytes spilled")
            if number == 0 and (best is None or best.share < goal.share):
                missed.append(f"{name}: {0 if best is None else best.share:.2f} of the loop are products")
            if number == 0 and cycles > goal.most:
                missed.append(f"{name}: {cycles:.2f} cycles over the fewest")
            figures = {
                "ptx loop": loop.instructions if loop else 0, "ptx products": loop.products if loop else 0,
                "machine loop": machine.instructions if machine else 0,
                "machine products": machine.products if machine else 0, "cycles": machine.cycles if machine else 0,
                "registers": count, "spilled bytes": spilled,
            }  # fmt: skip
            records += [Record(arguments.gpu, name, figure, value) for figure, value in figures.items()]
            rows.append((name, *_shown(loop), *_shown(machine), f"{cycles:.2f}" if machine else "", str(count or ""),
                         str(spilled if ptxas else "")))  # fmt: skip
    columns = (
        "product",
        "PTX",
        "products",
        "share",
        "machine",
        "products",
        "share",
        "cycles / fewest",
        "registers",
        "spilled",
    )
    print_table(f"loops, {arguments.gpu}", columns, rows)
    if arguments.json:
        write_json(arguments.json, records)
    print(f"{len(missed)} targets missed" + ("" if ptxas and nvdisasm else "; machine code was not looked at"))
    print("\n".join(missed))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
