"""``weft compare``: one model in two places."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..compare import check_compared, compare, compared_names, model_inputs, rounded_apart
from ..hw.config import load_config
from ..progress import progress
from ..runtime.index_inputs import module_indices
from ..runtime.inputs import check_inputs, read_inputs
from .app import app
from .output import (
    CalibrateOption,
    ConfigOption,
    InputOption,
    JsonOption,
    KernelsOption,
    SeedOption,
    ShapeOption,
    SignatureOption,
    err,
    out,
    parse_shapes,
    print_json,
    table,
    wide_console,
)
from .source import Given, given_file, given_model


@app.command("compare")
def compare_command(
    first: Annotated[str, typer.Argument(help=f"One of {', '.join(compared_names())}.")],
    second: Annotated[str, typer.Argument(help="Another of these.")],
    model: Annotated[Path, typer.Argument(help="ONNX model.")],
    inputs: InputOption = None,
    config: ConfigOption = "pynq",
    threads: Annotated[int, typer.Option(min=1, help="Threads of the CPU.")] = 1,
    tolerance: Annotated[float, typer.Option(help="For floats, as a part of the tensor's largest magnitude.")] = 1e-4,
    seed: SeedOption = 0,
    shape: ShapeOption = None,
    calibrate_with: CalibrateOption = None,
    kernels: KernelsOption = None,
    signature: SignatureOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run a model in two places; print the error of each tensor that both make, and the first that differs."""
    check_compared(first, second)
    core = load_config(config)
    with progress("reading the model", err) as status:
        from ..compiler.frontends import module_and_tail, read

        given = given_file(model, kernels, signature)
        module, tail = given_model(given, shape, calibrate_with, status.update), None
        if isinstance(module, Given):
            module, tail = module_and_tail(read(module), parse_shapes(shape), require_quantised=False)
        values = read_inputs(model_inputs(module), inputs, seed, module_indices(module))
        check_inputs(values, model_inputs(module), batches=False)
        status.update(f"running on {first} and {second}")
        found = compare(module, first, second, values, config=core, threads=threads, tolerance=tolerance)
    wrong, apart = found.first_difference, rounded_apart(module, first, second, core)
    if as_json:
        print_json({"first": first, "second": second, "tensors": [vars(item) for item in found.differences],
                    "first_difference": wrong.tensor if wrong else None, "only_first": found.only_first,
                    "only_second": found.only_second, "rounded_apart": apart})  # fmt: skip
        raise typer.Exit(wrong is not None)
    rows = [
        [item.tensor, item.dtype, "x".join(map(str, item.shape)), f"{item.largest:.4g}", f"{item.relative:.2e}",
         f"{item.differing:,}"] for item in found.differences
    ]  # fmt: skip
    columns = ["tensor", "type", "shape", "largest difference", "relative", "elements that differ"]
    wide_console().print(table(f"{first} and {second}", columns, rows))
    for place, names in ((first, found.only_first), (second, found.only_second)):
        if names:
            out.print(f"unpaired, made by {place} alone: {', '.join(names)}", highlight=False, markup=False)
    if apart:
        out.print(f"{apart} values ask for sums rounded otherwise than this core does, which may differ by 1",
                  highlight=False, markup=False, soft_wrap=True)  # fmt: skip
    if tail is not None:
        kinds = ", ".join(dict.fromkeys(kind for _, kind in tail.operators))
        text = f"the same in both, by NumPy, and not run here: {kinds} ({tail.reason})"
        out.print(text, highlight=False, markup=False, soft_wrap=True)
    if wrong is not None:
        out.print(f"the first tensor that differs is {wrong.tensor!r}", highlight=False, markup=False)
        raise typer.Exit(1)
    out.print(f"all {len(found.differences)} tensors agree")
