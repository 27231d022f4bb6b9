"""``weft run --system``: a model on all cores of a system at once, an item on each."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..api import load
from ..compiler.graph.dtypes import dtype_name
from ..compiler.model import CompiledModel, OpenModel
from ..progress import Updates
from ..runtime.array_files import write_arrays
from ..runtime.errors import DeviceError
from ..runtime.index_inputs import index_inputs
from ..runtime.inputs import check_inputs, read_inputs
from ..runtime.pipeline_module import PipelineModule
from ..runtime.split_module import SplitModule
from ..runtime.system_module import SystemModule
from ..sim.dram import DramModel
from .output import out, print_json, table
from .waves import finished_waves, write_waves

if TYPE_CHECKING:  # imported where one is asked for: it knows the hardware
    from ..sim.waves import WaveRequest

Module = SystemModule | PipelineModule | SplitModule

COLUMNS = ("core", "port", "items", "cycles", "alone", "waited", "MB read", "MB written")


def run_on_system(
    compiled: CompiledModel | OpenModel, system: Path, device: str | None, dram: DramModel | None,
    inputs: Path | None, seed: int, output: Path | None, waves: WaveRequest | None, trace: Path | None,
    status: Updates, *, as_json: bool,
) -> None:  # fmt: skip
    """Run an item on each core, or of a model in stages as many items as cores through all of them, or of one that is
    split an item on all, and print results, cycles and who waited for the bus.

    Random items differ from core to core; those of a file are the same on all. ``waves``: a waveform of the run;
    ``trace``: its timeline by the timing model, with all cores and the buses that they share.
    """
    if isinstance(compiled, OpenModel):
        raise DeviceError(compiled.openness, hint=compiled.way_out("by --shape NAME=1x3x224x224"))
    if inputs is not None:
        check_inputs(read_inputs(compiled.inputs, inputs, seed), compiled.inputs, batches=False)
    status.update("loading")
    module = load(compiled, device, system=system, dram=dram, progress=status.update)
    cores = range(len(module.config.cores))
    indices = index_inputs(compiled)
    split = isinstance(module, SplitModule)
    items = [read_inputs(compiled.inputs, inputs, seed + core, indices) for core in (cores[:1] if split else cores)]
    status.update("running")
    if waves is not None:
        write_waves(module.device, waves)
    try:
        results = module.run(items)
    finally:  # what failed is what one wants to look at
        looked = finished_waves(module.device)
    if trace is not None:
        status.update(f"writing {trace}")
        slices = module.write_trace(trace)
    if output is not None:
        write_arrays(
            output, {f"{name}_{number}": value for number, each in enumerate(results) for name, value in each.items()}
        )
    if as_json:
        print_json(system_record(module, results))
        return
    rows = [tuple(_cell(value) for value in record.values()) for record in core_records(module)]
    out.print(table(f"{module.model.name} on {module.config.name}", COLUMNS, rows))
    out.print(_speed(module, len(items)))
    if not isinstance(module, SystemModule) and (waits := _waits(module)):
        out.print(waits)
    kind = "core" if isinstance(module, SystemModule) else "item"
    for number, each in enumerate(results):
        for name, value in each.items():
            text = np.array2string(value, threshold=24, precision=5)
            shape = f"{dtype_name(value.dtype)}{list(value.shape)}"
            out.print(f"{kind} {number}, {name}: {shape}\n{text}", highlight=False, markup=False)
    if trace is not None:
        out.print(f"wrote {trace} ({slices:,} slices); open it at https://ui.perfetto.dev", markup=False)
    for line in ([f"wrote {output}"] if output is not None else []) + ([looked] if looked else []):
        out.print(line, markup=False, soft_wrap=True)


def _speed(module: Module, items: int) -> str:
    if isinstance(module, SplitModule):
        starts = "1 start" if module.starts == 1 else f"{module.starts} starts"
        return (f"{module.latency:,} cycles for an item, in {module.turns} turns of {len(module.config.cores)} cores, "
                f"by {starts} of the host")  # fmt: skip
    if isinstance(module, PipelineModule):
        times = module.alone() / module.interval
        other = "the stages one after the other" if module.model.on_core.cores else "one core"
        return (f"{items} items in {module.cycles:,} cycles; where all cores are busy, one every {module.interval:,}: "
                f"{times:.2f} x the throughput of {other}")  # fmt: skip
    times = items * module.alone() / module.cycles
    return f"{items} items in {module.cycles:,} cycles: {times:.2f} x the throughput of one core"


def _waits(module: PipelineModule | SplitModule) -> str:
    """A line for each core that waited for others."""
    lines = []
    for core, waits in enumerate(module.waits()):
        others = [f"{cycles:,} for core {other}" for other, cycles in sorted(waits.items()) if other != core and cycles]
        if others:
            lines.append(f"core {core} waited {', '.join(others)}; its starts took {waits.get(core, 0):,} cycles")
    return "\n".join(lines)


def core_records(module: Module) -> list[dict[str, int | float]]:
    """A record for each core: its cycles, those that it would have taken alone, and the difference."""
    return [
        {
            "core": core,
            "port": module.config.ports[core],
            "items": use.items,
            "cycles": use.cycles,
            "alone": use.alone,
            "waited": use.waited,
            "mb_read": use.bytes_read / 1e6,
            "mb_written": use.bytes_written / 1e6,
        }
        for core, use in enumerate(module.use())
    ]


def system_record(module: Module, results: list[dict[str, Any]]) -> dict[str, Any]:
    """What ``--json`` prints."""
    return {
        "model": module.model.name,
        "system": module.config.name,
        "device": module.device.kind,
        "cycles": module.cycles,
        **_cycle_record(module),
        "cores": core_records(module),
        "results": [{name: value.tolist() for name, value in each.items()} for each in results],
    }


def _cycle_record(module: Module) -> dict[str, Any]:
    """What is said of the way in which the cores have the model."""
    if isinstance(module, SplitModule):
        turns = {"turns": module.turns, "starts": module.starts}
        return {**turns, "latency": module.latency, "waits": module.waits()}
    if isinstance(module, PipelineModule):
        return {"cycles_alone": module.alone(), "interval": module.interval, "waits": module.waits()}
    return {"cycles_alone": module.alone()}


def _cell(value: float) -> str:
    return f"{value:,.2f}" if isinstance(value, float) else f"{value:,}"
