"""``weft tune``: measure tilings of a network's kernels and keep what they cost."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..compiler.targets.errors import CompileError
from ..compiler.targets.registry import find_target
from ..compiler.targets.target import target_options
from .app import app
from .output import (
    CalibrateOption,
    JsonOption,
    KernelsOption,
    ShapeOption,
    SignatureOption,
    output_file,
)
from .source import given_file
from .target_options import Chosen, options_of, with_target_options
from .tools import Budget, TuneRequest, targets_with, tool_of


@app.command("tune")
@with_target_options
def tune_command(
    model: Annotated[Path, typer.Argument(help="ONNX model; for the accelerator a quantised one.")],
    target: Annotated[str, typer.Option("--target", help="What to tune for.")] = "accel",
    database: Annotated[Path, output_file("--database", "-o", help="File of results; it grows.")] = Path(
        "tuning.sqlite"
    ),
    trials: Annotated[int, typer.Option(min=1, help="Points to measure, for each kernel on average.")] = 32,
    minutes: Annotated[float | None, typer.Option(min=0, help="Stop after so many minutes.")] = None,
    seed: Annotated[int, typer.Option(help="Of what is drawn at random.")] = 0,
    thorough: Annotated[
        bool, typer.Option(help="On the core: use the whole budget, even where little is to be gained.")
    ] = False,
    prove: Annotated[
        bool, typer.Option(help="On the core: how far the compiler's own choices are at most above the best there is.")
    ] = False,
    shape: ShapeOption = None,
    calibrate_with: CalibrateOption = None,
    kernels: KernelsOption = None,
    signature: SignatureOption = None,
    as_json: JsonOption = False,
    *,
    chosen: Chosen,
) -> None:
    """Measure schedules of each kernel, for the accelerator in the timing model, for a processor on this machine; `weft
    compile --tuned FILE` uses the best of them."""
    found = find_target(target)
    if "tuned" in chosen:
        raise CompileError("--tuned is an option of compilation", hint="the file of results is --database")
    options = target_options(found, options_of(target, chosen))
    tune = tool_of(target, "tune")
    if tune is None:
        raise CompileError(f"target {target!r} has no schedules to choose from that can be measured here",
                           hint=f"tune for {targets_with('tune')}")  # fmt: skip
    budget = Budget(trials, minutes, seed, thorough, prove)
    tune(TuneRequest(given_file(model, kernels, signature), found, options, database, budget, shape, calibrate_with,
                     as_json))  # fmt: skip
