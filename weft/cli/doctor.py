"""``weft board doctor``: whether a board can run models, and if not, why."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.text import Text

from ..api import load
from ..boards.doctor import State, TryModel, Verdict, core_of, examine
from ..boards.finding import FindingError
from ..boards.hosts import find_host
from ..compiler.model import CompiledModel
from ..compiler.targets.errors import CompileError
from ..hw.config import CoreConfig, load_config
from ..progress import Updates, progress
from ..runtime.device import Device
from ..runtime.index_inputs import index_inputs
from ..runtime.inputs import read_inputs
from .app import board_app
from .output import CalibrateOption, JsonOption, SignatureOption, err, input_file, out, print_json
from .source import Given, given_file, given_model

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx"
"""A small quantised network; it is beside the package in a checkout, and not installed with it."""

RUNS = 3
STYLES = {State.OK: "green", State.FAILED: "bold red", State.SKIPPED: "yellow"}

HostArgument = Annotated[str, typer.Argument(help="A board of the file of boards, or what ssh is called with.")]
CoreOption = Annotated[
    str | None,
    typer.Option("--config", "-c", help="Core: a name, or a JSON file. Default: as beside the overlay."),
]
ModelOption = Annotated[
    Path | None, input_file("--model", help="A quantised ONNX model to try. Default: the digits example.")
]


@board_app.command()
def doctor(
    host: HostArgument,
    config: CoreOption = None,
    model: ModelOption = None,
    calibrate_with: CalibrateOption = None,
    signature: SignatureOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check a board, from the link to the core's engines: what is well, what is not, and what to do about it.

    The exit status is 1 if anything is not well.
    """
    chosen = find_host(host.removeprefix("pynq://"))
    core = core_of(chosen) if config is None else load_config(config)
    verdicts = []
    with progress(f"{chosen.name}: compiling", err) as status:
        given = None if model is None else given_file(model, None, signature)
        network = compiled_network(given, core, calibrate_with, status)
        for verdict in examine(
            chosen, core, None if network is None else try_network(network),
            least_memory=0 if network is None else network.on_core.window_bytes, progress=status.update,
        ):  # fmt: skip
            verdicts.append(verdict)
            if not as_json:
                _print(verdict)
    ill = [each.check for each in verdicts if each.state is State.FAILED]
    if as_json:
        print_json({"board": chosen.name, "well": not ill, "checks": [_record(each) for each in verdicts]})
    elif ill:
        out.print(f"{chosen.name} is not well: {', '.join(ill)}", highlight=False, markup=False)
    else:
        out.print(f"{chosen.name} is well", highlight=False, markup=False)
    raise typer.Exit(bool(ill))


def compiled_network(
    path: Given | None, core: CoreConfig, calibrate: Path | None, status: Updates
) -> CompiledModel | None:
    """A network for the core: by default the digits example, and none where that is not there."""
    if path is None and not DIGITS.exists():
        return None
    if path is None and calibrate is not None:
        raise CompileError("--calibrate is for the model of --model", hint="name that, too")
    from ..compiler.compile import compile_model

    whole = given_model(path or DIGITS, None, calibrate, status.update)
    compiled = compile_model(whole, "accel", {"config": core})
    if not isinstance(compiled, CompiledModel):
        raise CompileError("a model with open sizes cannot be tried", at=str(path), hint="fix its sizes")
    if compiled.core is None:
        raise CompileError("nothing of this model runs on the core", at=str(path))
    return compiled


def try_network(model: CompiledModel) -> TryModel:
    """Runs a network on a device and compares with the functional simulator."""

    def attempt(device: Device) -> str:
        expected = load(model, "fsim")
        cycles = None
        with load(model, device) as module:
            for seed in range(RUNS):
                inputs = read_inputs(model.inputs, None, seed, index_inputs(model))
                found, wanted = module.run(inputs), expected.run(inputs)
                cycles = module.cycles
                for name, value in wanted.items():
                    if not np.array_equal(found[name], value):
                        raise FindingError(
                            f"result {name!r} of {model.name!r} differs from the simulator's in "
                            f"{int((found[name] != value).sum()):,} of {value.size:,} elements",
                            "weft run --record FILE, then weft replay FILE --device rtl, names the first difference",
                        )
        return f"{RUNS} runs of {model.name!r} give the simulator's results" + (
            f", {cycles:,} cycles" if cycles else ""
        )

    return attempt


def _print(verdict: Verdict) -> None:
    line = Text.assemble(f"{verdict.check:12}", (f"{verdict.state:8}", STYLES[verdict.state]), verdict.text)
    out.print(line, highlight=False, soft_wrap=True)
    if verdict.remedy:
        out.print(f"{'':12}{'':8}{verdict.remedy}", highlight=False, soft_wrap=True, markup=False)


def _record(verdict: Verdict) -> dict[str, Any]:
    return {
        "check": verdict.check,
        "state": verdict.state.value,
        "text": verdict.text,
        "remedy": verdict.remedy,
        "figures": dict(verdict.figures),
    }
