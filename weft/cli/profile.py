"""``weft profile``: why a model is slow."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..compiler.model import CompiledModel
from ..compiler.targets.errors import CompileError
from ..hw.system_config import load_system
from ..sim.dram_kinds import parse_dram_kind
from .app import app
from .memory import MemoryOption
from .output import (
    CacheOption,
    CalibrateOption,
    JsonOption,
    KernelsOption,
    ShapeOption,
    SignatureOption,
    beside,
    input_file,
    output_folder,
)
from .run import check_device
from .source import given_file, is_artifact, opened_artifact
from .target_options import Chosen, with_target_options
from .tools import ProfileRequest, targets_with, tool_of

ACCEL, CPU = "accel", "cpu"

MODEL = "model"
"""The device that predicts."""


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
        typer.Option("--target", "-t", help=f"What to compile a model for. Default: {ACCEL}."),
    ] = None,
    output: Annotated[
        Path | None, output_folder("--output", "-o", help="Folder for all results. Default: SOURCE.profile.")
    ] = None,
    latency: Annotated[int, typer.Option(min=1, help="DRAM latency in cycles.")] = 100,
    bandwidth: Annotated[
        int | None, typer.Option(min=1, help="DRAM bytes a cycle. Default: as many as the core's bus takes.")
    ] = None,
    memory: MemoryOption = None,
    system: Annotated[
        Path | None,
        input_file("--system", help="Several cores on one memory, as JSON: an item on each, and who had the bus."),
    ] = None,
    others: Annotated[bool, typer.Option("--what-if/--no-what-if", help="Predict cycles on other hardware.")] = True,
    shape: ShapeOption = None,
    calibrate_with: CalibrateOption = None,
    kernels: KernelsOption = None,
    signature: SignatureOption = None,
    cache: CacheOption = True,
    as_json: JsonOption = False,
    *,
    chosen: Chosen,
) -> None:
    """Say why a model is slow. On the core: cycles by layer and cause, bounds, other hardware; roofline, timeline and
    trace. On a processor (--target cpu): time, traffic, arithmetic and bound of each kernel, and the roofline of this
    machine. On a GPU (--target cuda): time by kernel, or what is predicted of it."""
    if device != MODEL:
        check_device(device, None if is_artifact(source) else target or ACCEL)
    if memory is not None:
        parse_dram_kind(memory)
    opened = None
    if is_artifact(source):
        opened = opened_artifact(source, chosen, shape=shape, calibrate=calibrate_with, kernels=kernels,
                                 signature=signature)  # fmt: skip
    target = target or _usual_target(opened)
    if system is not None and target != ACCEL:
        raise CompileError(f"--system is of cores, but the target is {target!r}", hint="leave one of them out")
    if memory is not None and target != ACCEL:
        raise CompileError(f"--memory is of a core, but the target is {target!r}", hint="leave one of them out")
    if system is not None:
        from .system_options import for_system

        chosen = for_system(source, chosen, load_system(system))
    run = tool_of(target, "profile")
    if run is None:
        raise CompileError(f"there is no profile for target {target!r}", hint=f"--target {targets_with('profile')}")
    folder = output or beside(source, ".profile")
    given = given_file(source, kernels, signature)
    run(ProfileRequest(given, target, device, folder, latency, bandwidth, others, shape, calibrate_with, cache,
                       as_json, chosen, opened, system, memory))  # fmt: skip


def _usual_target(opened: CompiledModel | None) -> str:
    """What an artifact was compiled for; a core for a model."""
    if (model := opened) is None:
        return ACCEL
    return CPU if model.target == ACCEL and model.core is None else model.target
