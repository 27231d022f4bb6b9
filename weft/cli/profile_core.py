"""``weft profile --target accel``: cycles by layer and cause, bounds, and what other hardware would take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from ..api import load
from ..compiler.compile import prepared
from ..compiler.frontends import module_and_tail, read
from ..compiler.graph.ir import Module
from ..compiler.model import CompiledModel
from ..compiler.targets.accel.target import AccelOptions
from ..compiler.targets.errors import CompileError
from ..compiler.targets.registry import find_target
from ..compiler.targets.target import target_options
from ..hw.config import CoreConfig
from ..progress import Updates, progress
from ..runtime.device import RtlDevice, open_device
from ..runtime.errors import DeviceError
from ..runtime.index_inputs import index_inputs
from ..runtime.inputs import read_inputs
from ..runtime.module import StepRun
from ..runtime.plots import write_plots
from ..runtime.profile import profile, write_json
from ..runtime.profile_dram import dram_record, dram_table
from ..runtime.profile_measured import class_records, measured_tables, program_records
from ..runtime.profile_report import (
    bound_records,
    bound_table,
    cause_records,
    cause_table,
    gemm_records,
    gemm_table,
    memory_note,
    outcome_records,
    outcome_table,
)
from ..runtime.profile_whatif import predict_runs, what_if
from ..runtime.tables import Record
from ..runtime.trace import write_runs
from ..sim.dram import DramModel
from ..tune.least_cycles import LeastCycles, least_cycles
from ..tune.least_report import layer_records, least_line, least_records, least_table
from .memory import with_banks
from .output import (
    check_folders,
    err,
    out,
    parse_shapes,
    print_json,
    print_report,
    wide_console,
)
from .source import Given
from .tools import ProfileRequest

MODEL, RTL = "model", "rtl"


def profile_on_core(request: ProfileRequest) -> None:
    """Profile a model or an artifact; writes tables, records, pictures and the trace into the request's folder."""
    if request.system is not None:
        from .profile_system import profile_on_system

        profile_on_system(request)
        return
    folder, device = request.folder, request.device
    check_folders(folder)
    with progress("reading", err) as status:
        compiled, dram, again = opened(request, status)
        status.update(f"running on {device}")
        runs, counted = _timed_runs(compiled, device, dram, status)
        measured = profile(compiled, runs, device if counted is None else MODEL, dram)
        least, by_layer = None, []
        if again is not None:
            status.update("counting what every program takes")
            least = again.least()
            by_layer = layer_records(least, measured)
        bounds = bound_table(measured, by_layer, least.cycles if least else 0)
        tables: list[RenderableType] = [cause_table(measured), bounds, gemm_table(measured)]
        if counted is not None:
            tables = [*measured_tables(counted.programs, counted.classes, counted.clock_mhz), Text(ONLY_WHOLE), *tables]
        rows = dram_record(dram, [run.result.dram for run in runs], sum(run.result.cycles or 0 for run in runs))
        if rows is not None:
            tables.append(dram_table(rows))
        if note := memory_note(compiled, dram):
            tables.append(Text(note))
        outcomes = []
        if request.others:
            status.update("predicting other hardware")
            outcomes = what_if(compiled, dram, again.recompiled if again is not None else None)
            tables.append(outcome_table(outcomes))
        if least is not None:
            tables.append(least_table(least, measured))
        status.update(f"writing {folder}")
        folder.mkdir(parents=True, exist_ok=True)
        print_report(tables, folder / "report.txt")
        write_json(measured, folder / "layers.json", by_layer)
        slices = write_runs(compiled, runs, folder / "trace.perfetto.json.gz")
        try:
            write_plots(measured, folder)
        except DeviceError as error:
            err.print(f"no pictures: {error}", markup=False)
    if request.as_json:
        board = {} if counted is None else {"measured": {"programs": counted.programs, "engines": counted.classes,
                                                         "clock_mhz": counted.clock_mhz}}  # fmt: skip
        memory = {} if rows is None else {"dram": rows}
        print_json({**board, **memory, "causes": cause_records(measured), "bounds": bound_records(measured, by_layer),
                    "gemm": gemm_records(measured), "what_if": outcome_records(outcomes),
                    **({"least": least_records(least, measured)} if least is not None else {})})  # fmt: skip
        return
    wide_console().print(*tables)
    if least is not None:
        out.print(least_line(least, measured.cycles))
    out.print(f"wrote {folder}; its trace ({slices:,} slices) opens at https://ui.perfetto.dev", markup=False)


@dataclass(frozen=True)
class Again:
    """A model that is there to be compiled once more: for another core, or as far as its layers. ``options``: those of
    its compilation for the memory ``dram``."""

    request: ProfileRequest
    given: Given | Module
    options: Mapping[str, Any]
    status: Updates

    def recompiled(self, core: CoreConfig | str) -> CompiledModel:
        """For another core; cores of stages that the user named stay."""
        on = {} if self.options.get("cores") else {"config": core}
        return self.request.compiled(self.given, {**self.options, **on}, self.status, measured=True)

    def least(self) -> LeastCycles:
        """The cycles that no program for it gets below."""
        target = find_target(self.request.target)
        options = target_options(target, self.options)
        whole = self.given
        if isinstance(whole, Given):
            shapes = parse_shapes(self.request.shape)
            whole, _ = module_and_tail(read(whole), shapes, require_quantised=target.require_quantised)
        layers = prepared(whole, target, options)
        return least_cycles(layers, options.core, options.rate, options.vthreads)


def opened(request: ProfileRequest, status: Updates) -> tuple[CompiledModel, DramModel, Again | None]:
    """The model, the memory that the request describes, and how to compile it again (not an artifact)."""
    if request.is_artifact:
        compiled = request.artifact()
        if compiled.core is None:
            raise CompileError(f"nothing of {request.source} runs on a core", hint="leave out --target")
        return compiled, _memory(compiled.core.config, request), None
    # What runs on this memory is scheduled for it, unless something else was asked for.
    asked = request.options()
    config = asked.get("config", "pynq")
    dram = _memory(AccelOptions(config=config, cores=asked.get("cores", "")).core, request)
    again = Again(request, request.given(status), {"dram": replace(dram, banks=None), **asked}, status)
    return again.recompiled(config), dram, again


@dataclass(frozen=True)
class Counted:
    """What a device without a trace counted: `program_records` and `class_records`."""

    programs: list[Record]
    classes: list[Record]
    clock_mhz: float | None


ONLY_WHOLE = (
    "The core counts cycles by engine, not by layer: what follows is by the timing model, for the memory that "
    "--latency and --bandwidth describe."
)


def _memory(core: CoreConfig, request: ProfileRequest) -> DramModel:
    rate = core.bus_bytes if request.bandwidth is None else request.bandwidth
    return with_banks(DramModel(latency=request.latency, bytes_per_cycle=rate), request.memory)


def _timed_runs(
    model: CompiledModel, name: str, dram: DramModel, status: Updates
) -> tuple[Sequence[StepRun], Counted | None]:
    """Traced runs of the model's programs; on devices with random inputs, which no cycle depends on. Where a device has
    no trace, those of the timing model, and what the device counted."""
    if name == MODEL:
        return predict_runs(model, dram), None
    device = (
        RtlDevice(model.config, dram=dram, progress=status.update)
        if name == RTL
        else open_device(name, model.config, progress=status.update)
    )
    if not device.has_time:
        raise DeviceError(f"device {name!r} knows no cycles", hint=f"{MODEL}, {RTL}, or a board: pynq://NAME")
    inputs = read_inputs(model.inputs, None, 0, index_inputs(model))
    with load(model, device) as module:
        module.run(inputs, trace=device.has_trace)
        if device.has_trace:
            return module.runs, None
        predicted = predict_runs(model, dram)
        clock = getattr(device, "clock_mhz", None)
        counted = program_records(model, module.runs, predicted), class_records(module.runs, predicted)
    return predicted, Counted(*counted, clock)
