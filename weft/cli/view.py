"""``weft view``: compilations as one web page, from the graph to single cycles."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..compiler.targets.registry import target_names
from ..files import LitertFile, write_atomically
from ..hw.system_config import load_system
from ..progress import Updates, progress
from ..runtime.array_files import arrays_in
from ..runtime.device import memory_of
from ..runtime.errors import ArtifactError, InputError
from .app import app
from .output import (
    CalibrateOption,
    KernelsOption,
    ShapeOption,
    SignatureOption,
    beside,
    check_places,
    err,
    input_file,
    out,
    output_file,
    parse_shapes,
)
from .run import check_inputs_of
from .source import Given, compiled_with_fixed_sizes, given_file, given_model, is_artifact, opened_artifact, path_of
from .target_options import Chosen, options_of, with_target_options

ACCEL = "accel"

if TYPE_CHECKING:
    from ..compiler.model import CompiledModel


@app.command()
@with_target_options
def view(
    source: Annotated[Path, typer.Argument(help="What 'weft compile' wrote, or an ONNX model.")],
    other: Annotated[Path | None, typer.Argument(help="A second one, which is shown beside the first.")] = None,
    output: Annotated[Path | None, output_file("--output", "-o", help="The page; default: SOURCE.html.")] = None,
    target: Annotated[
        str | None, typer.Option("--target", help=f"What to compile a model for: {', '.join(target_names())}.")
    ] = None,
    shape: ShapeOption = None,
    calibrate_with: CalibrateOption = None,
    kernels: KernelsOption = None,
    signature: SignatureOption = None,
    live_page: Annotated[
        bool, typer.Option("--live", help="A page in which the core's simulators run, with knobs for its memory.")
    ] = False,
    system: Annotated[
        Path | None,
        input_file(
            "--system", help="Several cores on one memory, as JSON: what each does with a model that they share."
        ),
    ] = None,
    inputs: Annotated[
        Path | None,
        input_file("--input", "-i", help="With --live: inputs for the page to run, one example behind the other."),
    ] = None,
    *,
    chosen: Chosen,
) -> None:
    """Write a web page of a compilation, from the graph to the wire: each layer's loops, instructions and cycles, what
    memories hold, and why it waits; of a processor its kernels' assembly and time under the roof of this machine. With
    two, both side by side.

    Of a model that cores share (--stages, --split) it has a lane for each core of --system.

    With --live the page runs the programs for the core: its memory's latency and rate can be turned, and cycles follow.
    """
    if inputs is not None:
        if not live_page:
            raise InputError("--input is for pages that run a model", hint="add --live")
        arrays_in(inputs)  # a file that is none is told before a model is compiled
    path = output or beside(source, ".html")
    check_places(path)
    for each in (source, *([other] if other is not None else [])):  # both are looked at before one is compiled
        try:
            each.open("rb").close()
        except OSError as error:
            raise ArtifactError(f"cannot read {each}: {error.strerror}") from error
    cores = None
    if system is not None:
        from .system_options import for_system

        if live_page or (target or ACCEL) != ACCEL:
            raise InputError("--system is of cores whose programs are looked at",
                             hint="leave out --live" if live_page else "leave out --target")  # fmt: skip
        cores = load_system(system)
        chosen = for_system(source, chosen, cores)
    if live_page and (target or ACCEL) != ACCEL:
        raise InputError(
            f"--live runs programs of the core, but target {target!r} makes none", hint="leave out --target"
        )
    if inputs is not None and not is_artifact(source):
        check_inputs_of(inputs, given_file(source, kernels, signature), parse_shapes(shape))
    if live_page:
        from ..sim.wasm import zig_version

        zig_version()
    from ..view.lanes import is_shared
    from ..view.live import live_page as page_that_runs  # after all that may be wrong with what was given
    from ..view.page import view_page
    from ..view.side import side
    from .view_kernels import host_codes
    from .view_live import live

    sides: list[dict[str, Any]] = []
    with progress("reading", err) as status:
        for each in (source, *([other] if other is not None else [])):
            given = given_file(each, kernels, signature)
            model, loops = _opened(given, target, shape, calibrate_with, chosen, status)
            if live_page:
                status.update(f"running {model.name}")
                found = live(model, inputs)
                sides.append(found | ({} if other is None else {"name": each.name}))
                continue
            status.update(f"following {model.name}")
            codes = host_codes(model, status.update)
            if cores is not None and not is_shared(model):
                raise InputError(f"each core of {cores.name!r} would have {model.name!r} whole, as one core has it",
                                 at="--system", hint="--stages or --split, or leave out --system")  # fmt: skip
            found = side(model, None if model.core is None else memory_of(model), loops, codes, cores)
            alone = model.core is not None and cores is None and not model.core.cores
            waves = _waves(given, target, shape, calibrate_with, chosen) if alone else ""
            named = {} if other is None else {"name": each.name}  # what tells them apart
            sides.append(found | {"waves": waves} | named)
        page = page_that_runs(sides) if live_page else view_page(sides)
        write_atomically(path, page.encode())
    out.print(f"wrote {path} ({path.stat().st_size:,} bytes); open it in a browser", markup=False)


def _waves(given: Given, target: str | None, shape: list[str] | None, calibrate: Path | None, chosen: Chosen) -> str:
    """The command that writes a waveform of the run that the page shows, but for its cycles."""
    from ..sim.waves import wave_format

    source = path_of(given)
    words = ["weft", "run", str(source)]
    if not is_artifact(source):
        words += [] if target is None else ["--target", target]
        words += [word for each in shape or () for word in ("--shape", each)]
        words += [] if calibrate is None else ["--calibrate", str(calibrate)]
        if isinstance(given, LitertFile):
            for flag, choice in (("--kernels", given.kernels), ("--signature", given.signature)):
                words += [] if choice is None else [flag, choice]
        for name, value in chosen.items():
            flag = name.replace("_", "-")
            words += (
                [f"--{flag}" if value else f"--no-{flag}"] if isinstance(value, bool) else [f"--{flag}", str(value)]
            )
    return shlex.join([*words, "--device", "rtl", "--waves", f"{source.stem}.{wave_format()}"])


def _opened(
    given: Given, target: str | None, shape: list[str] | None, calibrate: Path | None, chosen: Chosen, status: Updates
) -> tuple[CompiledModel, dict[str, str]]:
    """The compiled model, and the loop nests of its layers on the core by their names, which artifacts do not hold."""
    if is_artifact(path_of(given)):
        choices = {} if isinstance(given, Path) else {"kernels": given.kernels, "signature": given.signature}
        return opened_artifact(path_of(given), chosen, target=target, shape=shape, calibrate=calibrate, **choices), {}
    texts: dict[str, str] = {}
    name = target or "accel"
    # Measured, as `weft profile` does: the page shows the cycles that it shows.
    model = compiled_with_fixed_sizes(
        given_model(given, shape, calibrate, status.update), name, options_of(name, chosen), shape, status.update,
        measured=True, dump=texts.__setitem__,
    )  # fmt: skip
    names = {each.name.replace("+", "_"): each.name for each in model.layers}
    loops = {each.removesuffix(".loops"): text for each, text in texts.items() if each.endswith(".loops")}
    return model, {names[each]: text for each, text in loops.items() if each in names}
