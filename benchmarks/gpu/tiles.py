"""Tiles of products on tensor cores beside NVIDIA's own model of its GPUs, without one.

    python benchmarks/gpu/tiles.py                              # float16 and int8 on A100, H100 and RTX 4090
    python benchmarks/gpu/tiles.py --gpu sm_80 --type int8 --json tiles.json

nvMatmulHeuristics (NVIDIA's package nvidia-matmul-heuristics, which the extra ``bench`` has) proposes kernels for a
product and predicts their times. Weft's tile and parts are given to it, too: the ratio is the time that it predicts for
these over that of the best of the kernels that it proposes. On an H100 both are kernels of ``mma.sync``, which is what
weft's are; wgmma is faster there.

It is a model: a product in parts costs it some 40 us more on an A100, whatever its size (1024^3 in three parts 62 us,
in one 29), and of some tiles it knows nothing on an H100. What weft chooses by was fitted to kernels that ran on an
H100 (`compiler.targets.gpu.tile_choice`), where parts paid. So the ratio with the same choice among undivided tiles
stands beside it.

Exits with 1 where a ratio is above 1.10.
"""

from __future__ import annotations

import argparse
import ctypes
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from weft.compiler.targets.gpu.devices import DEVICES, GpuDescription
from weft.compiler.targets.gpu.mma_shapes import MmaShape
from weft.compiler.targets.gpu.tile_choice import PARTS, estimated_cycles, plans_of
from weft.compiler.targets.gpu.tiles import Plan

from benchmarks.common import Record, print_table, write_json

MOST = 1.10

SHAPES = (
    (4096, 4096, 4096), (2048, 2048, 2048), (1024, 1024, 1024), (512, 512, 512),
    (8192, 1024, 1024), (1024, 8192, 1024), (512, 4096, 1024), (128, 4096, 4096), (64, 1024, 4096), (16, 4096, 4096),
    (3136, 64, 576), (784, 128, 1152), (196, 256, 2304), (49, 512, 4608), (784, 512, 4608), (12544, 64, 160),
    (197, 768, 768), (197, 3072, 768), (256, 256, 1024), (1000, 1000, 1000),
)  # fmt: skip
"""(rows, columns, depth): squares, layers of language models, convolutions of ResNet-18, a vision transformer."""

GPUS = {"sm_80": ("A100_SXM_80GB", "GENERIC"), "sm_89": ("RTX_4090", "GENERIC"), "sm_90": ("H100_SXM", "CUTLASS")}
"""By architecture: NVIDIA's names of a GPU, and of those who make kernels. CUTLASS (2) has none of wgmma."""

PRECISIONS = {"float16": "HSS", "int8": "BSS"}
"""NVIDIA's letters for operands, sums and results."""

COLUMNS = ("product", "weft", "parts", "us", "NVIDIA's best", "parts", "us", "ratio", "in one part")

PROPOSED = 64
"""Kernels that are asked for."""


@dataclass(frozen=True)
class Model:
    """NVIDIA's model of a GPU for operands of one type."""

    heuristics: Any
    interface: Any
    precision: str

    @staticmethod
    def of(gpu: str, dtype: str) -> Model:
        try:
            import nvMatmulHeuristics
        except ImportError:
            sys.exit("nvMatmulHeuristics is missing: pip install nvidia-matmul-heuristics")
        name, maker = GPUS[gpu]
        interface = nvMatmulHeuristics.NvMatmulHeuristicsInterfaceEx(
            getattr(nvMatmulHeuristics.NvMatmulHeuristicsTarget, maker),
            gpu=getattr(nvMatmulHeuristics.NvMatmulHeuristicsNvidiaGpu, name),
        )
        return Model(nvMatmulHeuristics, interface, PRECISIONS[dtype])

    def problem(self, sizes: tuple[int, int, int]) -> Any:
        """A product of which both operands have their depths innermost."""
        return self.interface.makeNvMatmulHeuristicsProblem(
            *sizes, self.heuristics.NvMatmulHeuristicsMatmulLayout.TN_ROW_MAJOR
        )

    def best(self, problem: Any) -> Any:
        """The fastest of the kernels that are proposed."""
        found = self.interface.get(problem, PROPOSED, precision=self.precision)
        return min(found, key=lambda each: each["runtime"])

    def seconds(self, problem: Any, plan: Plan, device: GpuDescription) -> float:
        """What it predicts for a tile and parts; 0 where it knows nothing of such kernels."""
        tile, kernel = plan.tile, self.interface.nvmmhKernelConfiguration()
        kernel.cta[:] = tile.rows, tile.columns, tile.depth
        kernel.warp[:] = tile.warp_rows, tile.warp_columns, tile.depth
        kernel.instr[:] = 16, 8, 16  # as in the kernels that it proposes, whatever the type
        kernel.splitK, kernel.loadStages = plan.parts, tile.copies(device)
        kernel.gridSwizzle, kernel.ctaOrder = 1, 0
        kernel.cluster[:] = 1, 1
        return float(self.interface.nvMatmulHeuristicsEstimateRuntime(
            self.interface.handle, self.precision.encode(), ctypes.c_int(self.interface.target),
            ctypes.byref(problem), ctypes.byref(kernel), self.interface.hardware_descriptor,
        ))  # fmt: skip


def chosen(sizes: tuple[int, int, int], shape: MmaShape, device: GpuDescription, parts: Sequence[int]) -> Plan:
    """The tile and parts that weft takes, of such numbers of parts."""
    plans = [plan for plan in plans_of(sizes[2], shape, device) if plan.parts in parts]
    return min(plans, key=lambda plan: estimated_cycles(plan, (1, *sizes), shape, device))


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpu", action="append", choices=list(GPUS))
    parser.add_argument("--type", action="append", choices=list(PRECISIONS))
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args(given)
    records: list[Record] = []
    missed = 0
    for gpu in arguments.gpu or GPUS:
        device = DEVICES[gpu]
        for dtype in arguments.type or PRECISIONS:
            model = Model.of(gpu, dtype)
            shape = next(each for each in device.mma if each.dtype == dtype)
            rows, ratios = [], []
            for sizes in SHAPES:
                plan, undivided = (chosen(sizes, shape, device, parts) for parts in (PARTS, (1,)))
                problem = model.problem(sizes)
                best = model.best(problem)
                own, alone = (model.seconds(problem, each, device) for each in (plan, undivided))
                least, kernel, tile = best["runtime"], best["kernel"], plan.tile
                name = "x".join(map(str, sizes))
                if own:
                    ratios.append(own / least)
                    records.append(Record(gpu, f"{dtype} {name}", "predicted us", own * 1e6, least * 1e6))
                rows.append((name, f"{tile.rows}x{tile.columns}x{tile.depth}", str(plan.parts), f"{own * 1e6:.1f}",
                             f"{kernel.cta_tile_m}x{kernel.cta_tile_n}x{kernel.cta_tile_k}", str(kernel.split_k),
                             f"{least * 1e6:.1f}", f"{own / least:.2f}" if own else "unknown",
                             f"{alone / least:.2f}" if alone else "unknown"))  # fmt: skip
            name = GPUS[gpu][0]
            print_table(f"{dtype} on {name}", COLUMNS, rows)
            above = sum(ratio > MOST for ratio in ratios)
            missed += above
            print(f"{dtype} on {name}: geometric mean {math.prod(ratios) ** (1 / len(ratios)):.2f}, "
                  f"{above} of {len(ratios)} above {MOST}")  # fmt: skip
    if arguments.json:
        write_json(arguments.json, records)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
