"""``weft compile`` and ``weft passes``: from a model to an artifact, and what is done on the way."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ..api import certify
from ..compiler.model import CompiledModel, OpenModel
from ..compiler.targets.errors import CompileError
from ..compiler.targets.registry import target_names
from ..kept_models import Wish, compile_kept
from ..progress import progress
from ..runtime.report import placement_records, placement_table
from .added_passes import PassOption, pass_options, pass_records, print_passes
from .app import app
from .output import (
    CacheOption,
    CalibrateOption,
    JsonOption,
    KernelsOption,
    ShapeOption,
    SignatureOption,
    beside,
    check_places,
    err,
    out,
    output_file,
    output_folder,
    parse_shapes,
    print_json,
    table,
    wide_console,
)
from .source import Given, check_kernels, given_file
from .target_options import Chosen, options_of, with_target_options

if TYPE_CHECKING:  # a model that was compiled before needs no compiler: what a command needs is imported in it
    from ..compiler.graph import Module
    from ..compiler.passes import PassRecord
    from ..verify import Certificate

Ranges = Literal["minmax", "percentile", "mse"]
"""As `quantise.ranges.Method`, which takes a compiler to import."""

TargetOption = Annotated[str, typer.Option("--target", help=f"What to compile for: {', '.join(target_names())}.")]
CheckOption = Annotated[
    bool, typer.Option("--check", help="Run the model before and after each pass; name the first one that differs.")
]
DiffOption = Annotated[Path | None, output_file(help="Write a web page with the graph before and after each pass.")]
RangesOption = Annotated[
    Ranges, typer.Option("--ranges", help="With --calibrate: what of the values that were seen 8 bits cover.")
]
EqualiseOption = Annotated[
    bool, typer.Option("--equalise", help="With --calibrate: give channels that share a scale like ranges.")
]
BiasOption = Annotated[
    bool, typer.Option("--correct-bias", help="With --calibrate: take the mean error off the offsets of each layer.")
]
RoundingOption = Annotated[
    bool, typer.Option("--adaround", help="With --calibrate: round each weight up or down by what its layer loses.")
]


@app.command("compile")
@with_target_options
def compile_command(
    model: Annotated[Path, typer.Argument(help="ONNX model; for the accelerator in QDQ, QLinear or Integer form.")],
    target: TargetOption = "accel",
    output: Annotated[Path | None, output_file("--output", "-o", help="Artifact; default: MODEL.weft.")] = None,
    shape: ShapeOption = None,
    strict: Annotated[bool, typer.Option(help="Refuse a model that the target cannot compile as a whole.")] = False,
    calibrate_with: CalibrateOption = None,
    ranges: Annotated[
        Ranges | None,
        typer.Option(
            "--ranges", help="With --calibrate: what of the values that were seen 8 bits cover. Default: minmax."
        ),
    ] = None,
    equalise: EqualiseOption = False,
    correct_bias: BiasOption = False,
    adaround: RoundingOption = False,
    kernels: KernelsOption = None,
    signature: SignatureOption = None,
    dump: Annotated[Path | None, output_folder(help="Folder for the loop IR of every kernel, as text.")] = None,
    objects: Annotated[
        Path | None, output_folder(help="Also a folder of object files for the processor (target cpu): docs/cpu.md.")
    ] = None,
    added: PassOption = None,
    check: CheckOption = False,
    diff: DiffOption = None,
    certify_it: Annotated[
        bool, typer.Option("--certify", help="Also prove that the core's programs compute the model, for all inputs.")
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="Every layer and every reason, however many.")] = False,
    cache: CacheOption = True,
    as_json: JsonOption = False,
    *,
    chosen: Chosen,
) -> None:
    """Compile a model into one artifact file and report where each part of it will run."""
    path = output or beside(model, ".weft")
    check_places(path)
    options = options_of(target, chosen)
    if calibrate_with is None and (ranges is not None or equalise or correct_bias or adaround):
        raise CompileError("--ranges, --equalise, --correct-bias and --adaround need examples",
                           hint="give them with --calibrate")  # fmt: skip
    own: list[PassRecord] = []
    with progress("compiling", err) as status:
        folder = None
        if dump is not None:
            from ..compiler.compile import folder_dump

            folder = folder_dump(dump)
        shapes = parse_shapes(shape)
        given = given_file(model, kernels, signature)
        whole: Given | Module = given
        if calibrate_with is not None:
            check_kernels(given)
            from .calibrated import Improvements, quantised_module

            improvements = Improvements(equalise, correct_bias, adaround)
            whole = quantised_module(given, shapes, calibrate_with, ranges or "minmax", improvements, status.update)
        compiled = compile_kept(
            whole, target, options, shapes=shapes, passes=pass_options(added, own, check, diff),
            wish=Wish(strict), progress=status.update, dump=folder, cache=cache,
        )  # fmt: skip
        if isinstance(compiled, OpenModel):
            raise CompileError(f"an artifact is one compiled model, but {compiled.openness}",
                               hint=compiled.way_out("with --shape NAME=1x3x224x224"))  # fmt: skip
        if objects is not None:
            from ..compiler.targets.cpu.export import export_objects
            from ..compiler.targets.cpu.processor import named_target

            status.update("writing object files")
            export_objects(compiled, objects, named_target(options.get("processor", "host")))
        certificate = None
        if certify_it:
            status.update("proving the programs")
            certificate = certify(compiled, whole)
        from ..runtime.artifact import save

        save(compiled, path)
    proof = {} if certificate is None else {"certificate": certificate.record()}
    if as_json:
        print_json({**artifact_record(compiled, path), "passes": pass_records(own), **proof})
    else:
        _print_compiled(compiled, path, own, certificate, verbose=verbose)
    if certificate is not None and not certificate.proved:
        raise typer.Exit(1)


def _print_compiled(
    compiled: CompiledModel, path: Path, own: Sequence[PassRecord], certificate: Certificate | None, *, verbose: bool
) -> None:
    print_passes(own)
    out.print(placement_table(compiled, verbose=verbose))
    out.print(_summary(compiled))
    out.print(f"wrote {path} ({path.stat().st_size:,} bytes)", markup=False)
    if certificate is not None:
        from .verify import print_certificate

        print_certificate(certificate)


def artifact_record(model: CompiledModel, path: Path) -> dict[str, Any]:
    """What ``--json`` prints."""
    return {
        "artifact": str(path), "bytes": path.stat().st_size, "target": model.target, **model.statistics,
        "layers": placement_records(model),
    }  # fmt: skip


def _summary(model: CompiledModel) -> str:
    items = model.statistics.items()
    values = {name: f"{value:,.2f}" if isinstance(value, float) else f"{value:,}" for name, value in items}
    return ", ".join(f"{name.replace('_', ' ')}: {value}" for name, value in values.items())


@app.command("passes")
@with_target_options
def passes_command(target: TargetOption = "accel", as_json: JsonOption = False, *, chosen: Chosen) -> None:
    """List the passes of a target in their order, and those that installed packages add."""
    from ..compiler.passes import installed_passes
    from ..compiler.targets.registry import find_target
    from ..compiler.targets.target import Job, target_options
    from ..sim.timing import program_cycles

    owner = find_target(target)
    options = target_options(owner, options_of(target, chosen))
    job = Job(measure=program_cycles)  # as weft compile has it
    kinds = {"quantised": True} if owner.require_quantised else {"quantised": True, "float": False}
    lists = {kind: owner.passes(options, quantised=quantised, job=job) for kind, quantised in kinds.items()}
    points = installed_passes()
    if as_json:
        records = [
            {"models": kind, "pass": each.name, "needs": list(each.needs), "stage": each.stage,
             "tolerance": each.tolerance, "about": each.summary} for kind, passes in lists.items() for each in passes
        ]  # fmt: skip
        installed = {name: point.value for name, point in points.items()}
        print_json({"target": target, "passes": records, "installed": installed})
        return
    for kind, passes in lists.items():
        rows = [
            [each.name, each.summary, ", ".join(each.needs), each.stage,
             f"{each.tolerance:g}" if each.tolerance else ""] for each in passes
        ]  # fmt: skip
        columns = ["pass", "what it does", "needs", "then at stage", "may differ by"]
        wide_console().print(table(f"{target}: {kind} models", columns, rows, named=1))
    for name, point in sorted(points.items()):
        out.print(f"{name}: {point.value}", highlight=False, markup=False)
    if not points:
        out.print("no installed package adds a pass (entry point group weft.passes)")
