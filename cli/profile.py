"""``weft profile``: why a model is slow."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import RenderableType

from ..api import load
from ..compiler.compile import compile_model
from ..compiler.model import CompiledModel, OpenModel
from ..compiler.targets.errors import CompileError
from ..compiler.targets.target import Job
from ..hw.config import CoreConfig
from ..progress import Updates, progress
from ..runtime.artifact import load as load_artifact
from ..runtime.device import RtlDevice
from ..runtime.errors import DeviceError
from ..runtime.index_inputs import index_inputs
from ..runtime.inputs import read_inputs
from ..runtime.module import StepRun
from ..runtime.plots import write_plots
from ..runtime.profile import profile, write_json
from ..runtime.profile_report import (
    bound_records,
    bound_table,
    cause_records,
    cause_table,
    gemm_records,
    gemm_table,
    outcome_records,
    outcome_table,
)
from ..runtime.profile_whatif import Recompile, predict_runs, what_if
from ..runtime.trace import write_runs
from ..sim.dram import DramModel
from .app import app
from .output import JsonOption, ShapeOption, err, out, parse_shapes, print_json, print_report, wide_console
from .run import is_artifact
from .target_options import Chosen, options_of, refuse_options, with_target_options


class TimedDevice(StrEnum):
    """What knows the cycles of a program."""

    rtl = "rtl"
    model = "model"


@app.command("profile")
@with_target_options
def profile_command(
    source: Annotated[Path, typer.Argument(help="Artifact, or quantised ONNX model.")],
    device: Annotated[
        TimedDevice, typer.Option("--device", "-d", help="The RTL, or the timing model (fast; runs nothing).")
    ] = TimedDevice.model,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Folder for all results. Default: SOURCE.profile.")
    ] = None,
    latency: Annotated[int, typer.Option(min=1, help="DRAM latency in cycles.")] = 100,
    bandwidth: Annotated[int, typer.Option(min=1, help="DRAM bytes a cycle.")] = 8,
    others: Annotated[bool, typer.Option("--what-if/--no-what-if", help="Predict cycles on other hardware.")] = True,
    shape: ShapeOption = None,
    as_json: JsonOption = False,
    *,
    chosen: Chosen,
) -> None:
    """Say why a model is slow on the core: cycles by layer and cause, bounds, other hardware; roofline, timeline and
    trace."""
    dram = DramModel(latency=latency, bytes_per_cycle=bandwidth)
    folder = output or source.with_suffix(".profile")
    recompile: Recompile | None = None
    with progress("reading", err) as status:
        if is_artifact(source):
            refuse_options(chosen, f"{source} is compiled already")
            compiled = load_artifact(source)
        else:
            sizes, options = parse_shapes(shape), options_of("accel", chosen)

            def recompile(core: CoreConfig) -> CompiledModel:
                job = Job(progress=status.update)
                model = compile_model(source, "accel", {**options, "config": core}, shapes=sizes, job=job)
                if isinstance(model, OpenModel):
                    raise CompileError("a model with open sizes cannot be profiled", hint="fix its sizes by --shape")
                return model

            compiled = recompile(options.get("config", "pynq"))
        status.update(f"running on {device.value}")
        runs = _timed_runs(compiled, device, dram, status)
        measured = profile(compiled, runs, device.value, dram)
        tables: list[RenderableType] = [cause_table(measured), bound_table(measured), gemm_table(measured)]
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
        print_json({"causes": cause_records(measured), "bounds": bound_records(measured),
                    "gemm": gemm_records(measured), "what_if": outcome_records(outcomes)})  # fmt: skip
        return
    wide_console().print(*tables)
    out.print(f"wrote {folder}; its trace ({slices:,} slices) opens at https://ui.perfetto.dev", markup=False)


def _timed_runs(model: CompiledModel, device: TimedDevice, dram: DramModel, status: Updates) -> Sequence[StepRun]:
    """Traced runs of the model's programs; on the RTL with random inputs, which no cycle depends on."""
    if device is TimedDevice.model:
        return predict_runs(model, dram)
    module = load(model, RtlDevice(model.config, dram=dram, progress=status.update))
    module.run(read_inputs(model.inputs, None, 0, index_inputs(model)), trace=True)
    return module.runs
