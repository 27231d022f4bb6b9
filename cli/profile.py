"""``weft profile``: why a model is slow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.console import RenderableType
from rich.text import Text

from ..api import load
from ..compiler.model import CompiledModel
from ..compiler.targets.accel.target import AccelOptions
from ..compiler.targets.errors import CompileError
from ..hw.config import CoreConfig
from ..progress import Updates, progress
from ..runtime.artifact import load as load_artifact
from ..runtime.device import RtlDevice, open_device
from ..runtime.errors import DeviceError
from ..runtime.index_inputs import index_inputs
from ..runtime.inputs import read_inputs
from ..runtime.module import StepRun
from ..runtime.plots import write_plots
from ..runtime.profile import profile, write_json
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
from ..runtime.profile_whatif import Recompile, predict_runs, what_if
from ..runtime.tables import Record
from ..runtime.trace import write_runs
from ..sim.dram import DramModel
from .app import app
from .output import (
    CacheOption,
    CalibrateOption,
    JsonOption,
    ShapeOption,
    beside,
    check_folders,
    err,
    out,
    output_folder,
    print_json,
    print_report,
    wide_console,
)
from .profile_cpu import profile_on_cpu
from .profile_gpu import CUDA, profile_gpu, show_gpu_profile
from .source import compiled_with_fixed_sizes, given_model, is_artifact, opened_artifact
from .target_options import Chosen, options_of, with_target_options

MODEL, RTL = "model", "rtl"
ACCEL, CPU = "accel", "cpu"


@app.command("profile")
@with_target_options
def profile_command(
    source: Annotated[Path, typer.Argument(help="Artifact, or quantised ONNX model.")],
    device: Annotated[
        str,
        typer.Option(
            "--device",
            "-d",
            help="model (fast, runs nothing on a device), rtl, or a board: pynq://NAME; for cuda model, or the number "
            "of a GPU.",
        ),
    ] = MODEL,
    target: Annotated[
        str | None,
        typer.Option("--target", "-t", help=f"What to compile a model for: {ACCEL} (default), {CPU} or {CUDA}."),
    ] = None,
    output: Annotated[
        Path | None, output_folder("--output", "-o", help="Folder for all results. Default: SOURCE.profile.")
    ] = None,
    latency: Annotated[int, typer.Option(min=1, help="DRAM latency in cycles.")] = 100,
    bandwidth: Annotated[
        int | None, typer.Option(min=1, help="DRAM bytes a cycle. Default: as many as the core's bus takes.")
    ] = None,
    others: Annotated[bool, typer.Option("--what-if/--no-what-if", help="Predict cycles on other hardware.")] = True,
    shape: ShapeOption = None,
    calibrate_with: CalibrateOption = None,
    cache: CacheOption = True,
    as_json: JsonOption = False,
    *,
    chosen: Chosen,
) -> None:
    """Say why a model is slow. On the core: cycles by layer and cause, bounds, other hardware; roofline, timeline and
    trace. On a processor (--target cpu): time, traffic, arithmetic and bound of each kernel, and the roofline of this
    machine. On a GPU (--target cuda): time by kernel, or what is predicted of it."""
    target = target or _usual_target(source)
    if target == CUDA:
        _profile_cuda(source, device, shape, calibrate_with, chosen, cache=cache, as_json=as_json)
        return
    if target == CPU:
        folder = output or beside(source, ".profile")
        profile_on_cpu(source, folder, shape, calibrate_with, chosen, cache=cache, as_json=as_json)
        return
    if target != ACCEL:
        raise CompileError(f"there is no profile for target {target!r}", hint=f"--target {ACCEL}, {CPU} or {CUDA}")
    folder = output or beside(source, ".profile")
    check_folders(folder)
    recompile: Recompile | None = None
    with progress("reading", err) as status:
        if is_artifact(source):
            compiled = opened_artifact(source, chosen, shape=shape, calibrate=calibrate_with)
            if compiled.core is None:
                raise CompileError(f"nothing of {source} runs on a core", hint="leave out --target")
            dram = _memory(compiled.config, latency, bandwidth)
        else:
            # What runs on this memory is scheduled for it, unless something else was asked for.
            asked = options_of("accel", chosen)
            dram = _memory(AccelOptions(config=asked.get("config", "pynq")).core, latency, bandwidth)
            options = {"dram": dram, **asked}
            whole = given_model(source, shape, calibrate_with, status.update)

            def recompile(core: CoreConfig) -> CompiledModel:
                own = {**options, "config": core}
                return compiled_with_fixed_sizes(whole, "accel", own, shape, status.update, measured=True, cache=cache)

            compiled = recompile(options.get("config", "pynq"))
        status.update(f"running on {device}")
        runs, counted = _timed_runs(compiled, device, dram, status)
        measured = profile(compiled, runs, device if counted is None else MODEL, dram)
        tables: list[RenderableType] = [cause_table(measured), bound_table(measured), gemm_table(measured)]
        if counted is not None:
            tables = [*measured_tables(counted.programs, counted.classes, counted.clock_mhz), Text(ONLY_WHOLE), *tables]
        if note := memory_note(compiled, dram):
            tables.append(Text(note))
        outcomes = []
        if others:
            status.update("predicting other hardware")
            outcomes = what_if(compiled, dram, recompile)
            tables.append(outcome_table(outcomes))
        status.update(f"writing {folder}")
        folder.mkdir(parents=True, exist_ok=True)
        print_report(tables, folder / "report.txt")
        write_json(measured, folder / "layers.json")
        slices = write_runs(compiled, runs, folder / "trace.perfetto.json.gz")
        try:
            write_plots(measured, folder)
        except DeviceError as error:
            err.print(f"no pictures: {error}", markup=False)
    if as_json:
        board = {} if counted is None else {"measured": {"programs": counted.programs, "engines": counted.classes,
                                                         "clock_mhz": counted.clock_mhz}}  # fmt: skip
        print_json({**board, "causes": cause_records(measured), "bounds": bound_records(measured),
                    "gemm": gemm_records(measured), "what_if": outcome_records(outcomes)})  # fmt: skip
        return
    wide_console().print(*tables)
    out.print(f"wrote {folder}; its trace ({slices:,} slices) opens at https://ui.perfetto.dev", markup=False)


def _usual_target(source: Path) -> str:
    """What an artifact was compiled for; a core for a model."""
    if not is_artifact(source):
        return ACCEL
    model = load_artifact(source)
    return CPU if model.target == ACCEL and model.core is None else model.target


def _profile_cuda(
    source: Path, device: str, shape: ShapeOption, calibrate: Path | None, chosen: Chosen, *, cache: bool, as_json: bool
) -> None:
    with progress("reading", err) as status:
        if is_artifact(source):
            model = opened_artifact(source, chosen, shape=shape, calibrate=calibrate)
        else:
            options = options_of(CUDA, chosen)
            whole = given_model(source, shape, calibrate, status.update)
            model = compiled_with_fixed_sizes(whole, CUDA, options, shape, status.update, cache=cache)
        found = None if device == MODEL else device
        records, note = profile_gpu(model, found, status.update)
    show_gpu_profile(model, records, note, as_json=as_json)


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


def _memory(core: CoreConfig, latency: int, bandwidth: int | None) -> DramModel:
    return DramModel(latency=latency, bytes_per_cycle=core.bus_bytes if bandwidth is None else bandwidth)


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
