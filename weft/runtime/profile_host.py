"""Why a model is slow on a processor: time, traffic and arithmetic of each kernel, under the roof of this machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from rich.console import Group, RenderableType
from rich.text import Text

from ..compiler.graph.registry import Fusion, operator
from ..compiler.model import CompiledModel, HostProgram, HostStep, LaunchStep, Layer, NumpyStep
from .errors import DeviceError
from .machine_roof import MachineRoof
from .module import LoadedModule
from .tables import Column, Record, count, records_table, share, total_of, words

NEAR_BOUND = 1.5
"""A kernel that takes at most this many times its bound is called bound by it."""

CALL_SECONDS = 2e-6
"""Of a launch on its own, as a layer is timed: a kernel that takes less is not told from it."""


@dataclass(frozen=True)
class KernelProfile:
    """A layer on the host.

    ``seconds``: its best time of several runs, without those of other layers. ``nbytes``: of the tensors that its
    kernels read and write, each of them once a launch. ``operations``: a multiply-add is two, and each element of
    another operator what its entry says. ``on_bytes``: whether its products are of 8-bit integers.
    """

    layer: Layer
    seconds: float
    nbytes: int
    operations: int
    on_bytes: bool
    launches: int

    @property
    def gops(self) -> float:
        """10^9 operations a second."""
        return self.operations / self.seconds / 1e9 if self.seconds else 0.0

    @property
    def intensity(self) -> float:
        """Operations for each byte of traffic."""
        return self.operations / self.nbytes if self.nbytes else 0.0

    def compute_seconds(self, roof: MachineRoof) -> float:
        return self.operations / (roof.byte_gops if self.on_bytes else roof.float_gops) / 1e9

    def memory_seconds(self, roof: MachineRoof) -> float:
        """With all of its traffic through the smallest cache that holds what one launch touches."""
        return self.nbytes / roof.bandwidth(self.nbytes // max(1, self.launches)) / 1e9

    def bound(self, roof: MachineRoof) -> str:
        """What keeps it from being faster: "compute", "memory", "call", or "" where it is far from all of these."""
        if self.layer.device == "numpy":
            return "NumPy"
        if self.seconds < CALL_SECONDS * self.launches:
            return "call"
        compute, memory = self.compute_seconds(roof), self.memory_seconds(roof)
        if self.seconds > NEAR_BOUND * max(compute, memory):
            return ""
        return "compute" if compute >= memory else "memory"


def profile_host(
    module: LoadedModule, inputs: Mapping[str, npt.NDArray[np.generic]], runs: int = 20
) -> tuple[KernelProfile, ...]:
    """The model's layers on the host, in their order, in the best of so many timed runs each.

    Raises `DeviceError` for a model with programs for a core, and for one that does nothing on the host.
    """
    model = module.model
    if model.core is not None:
        raise DeviceError(f"{model.name!r} has programs for a core", hint="profile it with target accel")
    module.run(inputs)  # code and memory are warm then
    best = [float("inf")] * len(model.layers)
    for _ in range(runs):
        module.run(inputs, trace=True)
        best = [min(pair) for pair in zip(best, module.seconds, strict=True)]
    kernels = kernels_of(model, best)
    if not kernels:
        raise DeviceError(f"{model.name!r} has no kernel, so there is no time to account for")
    return kernels


def kernels_of(model: CompiledModel, seconds: Sequence[float] | None = None) -> tuple[KernelProfile, ...]:
    """The layers of a model that has no programs for a core, in their order, with their traffic and arithmetic.
    ``seconds``: of each; 0 where they were not measured."""
    traffic = [layer for step in model.steps if isinstance(step, HostStep) for layer in _traffic(step.program)]
    return tuple(
        KernelProfile(layer, took, nbytes, _operations(layer, elements), on_bytes, launches)
        for layer, took, (nbytes, elements, on_bytes, launches) in zip(
            model.layers, seconds or [0.0] * len(traffic), traffic, strict=True
        )
    )


def _traffic(program: HostProgram) -> list[tuple[int, int, bool, int]]:
    """For each layer: bytes read and written, elements of its results, whether it multiplies bytes, launches."""
    found = [(0, 0, False, 0)] * len(program.layers)
    for loop, numbers in program.rounds():
        for number in numbers:
            step = program.steps[number]
            if not isinstance(step, LaunchStep | NumpyStep):
                continue
            nbytes, elements, on_bytes, launches = found[step.layer]
            places = step.arguments if isinstance(step, LaunchStep) else (*step.inputs, *step.outputs)
            results = places[-1:] if isinstance(step, LaunchStep) else step.outputs
            nbytes += loop.count * sum(place.nbytes for place in dict.fromkeys(places))
            elements += loop.count * sum(int(np.prod(place.shape)) for place in results)
            on_bytes |= any(place.dtype in ("int8", "uint8") for place in places[:-1])
            found[step.layer] = nbytes, elements, on_bytes, launches + loop.count
    return found


def _operations(layer: Layer, elements: int) -> int:
    """Moves compute nothing, and an anchor's arithmetic is its multiply-adds."""
    entries = [operator(name) for name in layer.operators]
    counted = (each.cost for each in entries if each.anchor is None and each.fusion is not Fusion.LAYOUT)
    return 2 * layer.macs + elements * sum(counted)


# Records and tables


def kernel_records(kernels: Sequence[KernelProfile], roof: MachineRoof) -> list[Record]:
    """A flat record for each kernel."""
    total = sum(each.seconds for each in kernels)
    return [
        {
            "kernel": each.layer.name, "kind": each.layer.kind, "operators": list(each.layer.operators),
            "seconds": each.seconds, "share": each.seconds / total if total else 0.0, "bytes": each.nbytes,
            "operations": each.operations, "gops": each.gops, "gbytes": each.nbytes / each.seconds / 1e9
            if each.seconds else 0.0, "intensity": each.intensity, "launches": each.launches,
            "compute_seconds": each.compute_seconds(roof), "memory_seconds": each.memory_seconds(roof),
            "bound": each.bound(roof), "form": each.layer.form,
        }
        for each in kernels
    ]  # fmt: skip


def roof_record(roof: MachineRoof) -> Record:
    """What the probe found."""
    return {
        "processor": roof.processor, "threads": roof.threads, "float_gops": roof.float_gops,
        "byte_gops": roof.byte_gops, "gbytes": {str(size): rate for size, rate in roof.gbytes},
    }  # fmt: skip


def kernel_table(model: CompiledModel, kernels: Sequence[KernelProfile], roof: MachineRoof) -> RenderableType:
    """The kernels, the longest first, and the roof that they are under."""
    records = sorted(kernel_records(kernels, roof), key=lambda record: -record["seconds"])
    rows = [
        {**each, "us": each["seconds"] * 1e6, "reached": _reached(each), "bound": each["bound"] or "-"}
        for each in records
    ]
    columns = [
        words("kernel", fold=True), words("kind"), words("operators", fold=True), _decimal("us"), share("share"),
        count("bytes"), _decimal("gops", "Gop/s"), _decimal("gbytes", "GB/s"), _decimal("intensity", "op/byte"),
        words("bound"), share("reached", "of its roof"),
        *([words("form", "bytes by", fold=True)] if any(each["form"] for each in records) else []),
    ]  # fmt: skip
    total = total_of(rows, "us", "bytes")
    title = f"{model.name} on {roof.processor}, {roof.threads} thread{'s' * (roof.threads > 1)}: kernels"
    rates = ", ".join(f"{rate:.0f} at {_size(size)}" for size, rate in roof.gbytes)
    text = (
        f"this machine, measured just now: {roof.float_gops:.0f} Gop/s on float32, {roof.byte_gops:.0f} on bytes; "
        f"copies in GB/s, read and written: {rates}"
    )
    return Group(records_table(title, columns, rows, [{"kernel": "total", **total}]), Text(text))


def _reached(record: Record) -> float:
    bound = max(record["compute_seconds"], record["memory_seconds"])
    return bound / record["seconds"] if record["seconds"] else 0.0


def _decimal(key: str, heading: str = "") -> Column:
    return Column(key, heading or key, lambda value: f"{value:,.1f}", number=True)


def _size(nbytes: int) -> str:
    return f"{nbytes >> 20} MiB" if nbytes >= 1 << 20 else f"{nbytes >> 10} KiB"
