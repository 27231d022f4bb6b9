"""What kernels would take on a GPU, predicted from what the interpreter of PTX counted.

A launch takes as long as the slowest of its parts: issuing instructions, products of tensor cores, shared memory, and
memory. Each part goes at its peak, on as many multiprocessors as there are groups. Latency is left out but for a
launch's own, and so are caches. No GPU has confirmed it: it says what a kernel is bound by, and roughly how far.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass

import numpy as np

from ...compiler.graph.dtypes import numpy_dtype
from ...compiler.model import GpuCode, GridCall, HostProgram, LaunchStep, TensorSpec
from ...sim.ptx import Counts
from ..errors import DeviceError
from ..machine_roof import MachineRoof
from .emulated import EmulatedGpu
from .executor import GpuExecutor
from .gpu import Array

LAUNCH_SECONDS = 2e-6
"""From one launch of a graph to the next."""

SCHEDULERS, SECTOR_BYTES = 4, 32


@dataclass(frozen=True)
class Peaks:
    """A GPU by its data sheet. ``float_lanes``: single-precision multiply-adds that a multiprocessor does in a cycle;
    ``mma_cycles``: cycles of a multiprocessor for one product of bytes; ``bandwidth``: bytes a second."""

    name: str
    multiprocessors: int
    hertz: float
    float_lanes: int
    mma_cycles: float
    bandwidth: float


PEAKS: Mapping[str, Peaks] = {
    "sm_75": Peaks("T4", 40, 1.59e9, 64, 1, 320e9), "sm_80": Peaks("A100", 108, 1.41e9, 64, 2, 1555e9),
    "sm_89": Peaks("RTX 4090", 128, 2.52e9, 128, 4, 1008e9), "sm_90": Peaks("H100", 132, 1.83e9, 128, 1.6, 3352e9),
    "sm_120": Peaks("RTX 5090", 170, 2.41e9, 128, 4, 1792e9),
}  # fmt: skip
"""One GPU for each architecture."""


def sheet_roof(architecture: str, products: int) -> MachineRoof:
    """The roof by the data sheet in `PEAKS`, without caches: floats by lanes, bytes by tensor cores, which do so many
    ``products`` at once."""
    peaks = PEAKS[architecture]
    giga = peaks.multiprocessors * peaks.hertz / 1e9
    everything = (sys.maxsize, peaks.bandwidth / 1e9)
    return MachineRoof(
        peaks.name,
        peaks.multiprocessors,
        2 * peaks.float_lanes * giga,
        2 * products / peaks.mma_cycles * giga,
        (everything,),
    )


@dataclass(frozen=True)
class CountedLaunch:
    """A launch of a program's layer, and what it did."""

    layer: int
    call: GridCall
    counts: Counts


def counted_launches(program: HostProgram, code: GpuCode, seed: int = 0) -> list[CountedLaunch]:
    """All launches of a run on random inputs, in the interpreter; integers that may be indices are 0. DeviceError
    where the interpreter refuses one, and for code that is not PTX."""
    if code.language != "ptx":
        raise DeviceError(f"the model is compiled to {code.language}, but only PTX is counted",
                          hint="compile it with target 'cuda'")  # fmt: skip
    gpu = EmulatedGpu(counted=True)
    inputs = random_inputs(program, seed)
    outputs = [np.empty(each.shape, numpy_dtype(each.dtype)) for each in program.outputs]
    GpuExecutor(program, code, gpu).run(inputs, outputs)
    steps = [step for step in program.steps if isinstance(step, LaunchStep)]
    runs: dict[str, int] = {}
    for step in steps:
        runs[step.symbol] = runs.get(step.symbol, 0) + 1
    return [
        CountedLaunch(step.layer, call, _part(gpu.counts[call.function], runs[step.symbol]))
        for step in steps
        for call in code.calls[step.symbol]
    ]


def random_inputs(program: HostProgram, seed: int = 0) -> list[Array]:
    """An array for each input; integers that may be indices are 0."""
    generator = np.random.default_rng(seed)
    return [_values(each, generator) for each in program.inputs]


def _values(tensor: TensorSpec, generator: np.random.Generator) -> Array:
    dtype = numpy_dtype(tensor.dtype)
    if dtype.kind in "iub" and dtype.itemsize > 1:
        return np.zeros(tensor.shape, dtype)
    data: Array = generator.normal(size=tensor.shape) * (1 if dtype.kind not in "iub" else 40)
    return data.astype(dtype)


def _part(counts: Counts, runs: int) -> Counts:
    """A launch's share of what several launches of one function did."""
    if runs == 1:
        return counts
    part = deepcopy(counts)
    for name in part.instructions:
        part.instructions[name] //= runs
    for traffic in (*part.wavefronts.values(), *part.sectors.values()):
        traffic.needed //= runs
        traffic.fewest //= runs
    part.barriers //= runs
    part.divergent //= runs
    part.bytes_read //= runs
    part.bytes_written //= runs
    return part


def predicted_parts(counts: Counts, call: GridCall, peaks: Peaks) -> dict[str, float]:
    """Seconds of each part of a launch."""
    groups = max(1, call.groups[0] * call.groups[1] * call.groups[2])
    turns = -(-groups // peaks.multiprocessors)  # the last turn may have few groups, but takes as long
    cycle = turns / groups / peaks.hertz
    wavefronts = sum(each.needed for each in counts.wavefronts.values())
    sectors = sum(each.needed for each in counts.sectors.values())
    fma = sum(number for name, number in counts.instructions.items() if name in ("fma", "mad"))
    return {
        "instructions": max(counts.warp_instructions / SCHEDULERS, fma * 32 / peaks.float_lanes) * cycle,
        "tensor cores": counts.instructions["mma"] * peaks.mma_cycles * cycle,
        "shared memory": wavefronts * cycle,
        "memory": sectors * SECTOR_BYTES / peaks.bandwidth,
    }


def predicted_seconds(counts: Counts, call: GridCall, peaks: Peaks) -> tuple[float, str]:
    """Seconds of a launch, and what it is bound by."""
    parts = predicted_parts(counts, call, peaks)
    bound = max(parts, key=parts.__getitem__)
    if parts[bound] < LAUNCH_SECONDS:
        return LAUNCH_SECONDS, "launch"
    return LAUNCH_SECONDS + parts[bound], bound
