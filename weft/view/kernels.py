"""Kernels of a processor or a GPU as the page's data: each once, with its loops and its code; what they take."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from ..compiler.model import CompiledModel, HostStep, LaunchStep
from ..runtime.machine_roof import MachineRoof
from ..runtime.plot_host_roofline import COLOURS, LABELS
from ..runtime.profile_host import KernelProfile, roof_record
from .assembly import KINDS, Listing, listing
from .gpu_code import ptx_listing, source_listing


@dataclass(frozen=True)
class HostCodes:
    """Code of a model's kernels. ``texts``: by a kernel's symbol. ``processor``: what it is for.

    ``profiles``: of the model's layers, in their order; empty where that says nothing. ``why``: why they were not
    measured; empty where they were. ``roof``: of this machine, or by a data sheet: then seconds are what they take at
    least. Without one they are counted only.
    """

    language: Literal["assembly", "opencl", "ptx"]
    processor: str
    texts: Mapping[str, str] = field(repr=False)
    profiles: Sequence[KernelProfile] = ()
    roof: MachineRoof | None = None
    why: str = ""


def kernel_records(model: CompiledModel, codes: HostCodes | None) -> dict[str, dict[str, Any]]:
    """By a kernel's symbol, what the page shows of it."""
    kernels = {kernel.symbol: kernel.text for step in model.steps if isinstance(step, HostStep)
               for kernel in step.program.kernels}  # fmt: skip
    return {
        symbol: {"symbol": symbol, "loops": loops, **({} if codes is None else _code(codes, symbol))}
        for symbol, loops in kernels.items()
    }


def kernels_of_layers(model: CompiledModel) -> list[list[str]]:
    """For each layer, the symbols of the kernels that it runs, in the order of their first run."""
    result: list[dict[str, None]] = [{} for _ in model.layers]
    for step in model.steps:
        if isinstance(step, HostStep):
            for launch in step.program.steps:
                if isinstance(launch, LaunchStep):
                    result[step.first_layer + launch.layer][launch.symbol] = None
    return [list(each) for each in result]


_LISTINGS: Mapping[str, Callable[[str, str], Listing]] = {
    "assembly": listing,
    "ptx": lambda text, _: ptx_listing(text),
    "opencl": lambda text, _: source_listing(text),
}


def _code(codes: HostCodes, symbol: str) -> dict[str, Any]:
    if symbol not in codes.texts:
        return {}
    found = _LISTINGS[codes.language](codes.texts[symbol], symbol)
    every = range(len(found.lines))
    return {
        "lines": found.lines,
        "kinds": found.kinds,
        "loops_of_code": [[loop.depth, loop.lines[0], loop.lines[-1]] for loop in found.loops],
        "hottest": found.hottest,
        "looped": bool(found.loops),
        "counts": [found.counts(found.hottest), found.counts(every)],
        "readers": [found.readers(found.hottest), found.readers(every)],
        "forms": found.forms(found.hottest) or found.forms(every),
    }


def machine_record(codes: HostCodes | None) -> dict[str, Any] | None:
    """What the page says of the processor, and its roof."""
    if codes is None:
        return None
    roof = None if codes.roof is None else roof_record(codes.roof) | {"gbytes": codes.roof.gbytes}
    return {"language": codes.language, "processor": codes.processor, "why": codes.why, "roof": roof}


def work_records(codes: HostCodes | None) -> list[dict[str, Any]]:
    """What each layer does and, under a roof, how long it takes; empty where that is not known."""
    if codes is None:
        return []
    return [_work(each, codes.roof, measured=not codes.why) for each in codes.profiles]


def _work(kernel: KernelProfile, roof: MachineRoof | None, *, measured: bool) -> dict[str, Any]:
    record: dict[str, Any] = {
        "bytes": kernel.nbytes, "operations": kernel.operations, "launches": kernel.launches,
        "intensity": kernel.intensity, "form": kernel.layer.form, "on_bytes": kernel.on_bytes,
    }  # fmt: skip
    if roof is not None:
        compute, memory = least = [kernel.compute_seconds(roof), kernel.memory_seconds(roof)]
        bound = kernel.bound(roof) if measured else "compute" if compute >= memory else "memory"
        record |= {"seconds": kernel.seconds, "gops": kernel.gops, "bound": bound, "least": least}
    return record


def words() -> dict[str, Any]:
    """Names of kinds and bounds, the same for all sides."""
    return {
        "kinds": KINDS,
        "bounds": {name: {"label": LABELS[name], "colour": COLOURS[name]} for name in LABELS},
    }
