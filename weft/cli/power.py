"""``weft power``: what a network costs in power on a core's cells."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ..compiler.model import OpenModel
from ..files import write_atomically
from ..power.errors import PowerError
from ..power.estimate import WIRES
from ..power.measure import SAMPLES, WINDOW, measure_power
from ..power.report import checked, layer_power_records, layer_power_table, module_power_records, module_power_table
from ..progress import progress
from ..runtime.index_inputs import index_inputs
from ..runtime.inputs import in_batches, read_inputs
from .app import app
from .output import (
    CacheOption,
    CalibrateOption,
    InputOption,
    JsonOption,
    KernelsOption,
    SeedOption,
    ShapeOption,
    SignatureOption,
    err,
    input_file,
    json_text,
    out,
    output_folder,
    print_json,
    print_report,
    wide_console,
)
from .run import compiled_source
from .target_options import Chosen, with_target_options


@app.command("power")
@with_target_options
def power_command(
    source: Annotated[Path, typer.Argument(help="What 'weft compile' wrote, or a model.")],
    liberty: Annotated[
        Path, input_file("--liberty", help="Cells with power tables, as Debian's qflow-tech-osu018 has them.")
    ],
    inputs: InputOption = None,
    mhz: Annotated[
        float, typer.Option("--mhz", help="Clock, MHz. But for leakage an energy is the same at any.")
    ] = 100,
    samples: Annotated[
        int, typer.Option(min=WINDOW, help="Cycles of each layer that are looked at, if it has more.")
    ] = SAMPLES,
    wires: Annotated[
        float, typer.Option(min=0, help="Capacitance of wires, in units of that of the pins that they reach.")
    ] = WIRES,
    depth: Annotated[int, typer.Option(min=1, help="Levels of modules to show.")] = 1,
    output: Annotated[
        Path | None, output_folder("--output", "-o", help="Folder for the tables and for all figures, as JSON.")
    ] = None,
    seed: SeedOption = 0,
    shape: ShapeOption = None,
    calibrate_with: CalibrateOption = None,
    kernels: KernelsOption = None,
    signature: SignatureOption = None,
    cache: CacheOption = True,
    as_json: JsonOption = False,
    *,
    chosen: Chosen,
) -> None:
    """Say what power a core takes that runs a network, by layer and by module.

    The RTL runs it, and each change in the core's cells is counted with the energy that a liberty file gives it.
    """
    if mhz <= 0:
        raise PowerError(f"a clock of {mhz:g} MHz does not run", hint="--mhz 100")
    with progress("reading", err) as status:
        compiled = compiled_source(
            source, None, shape, None, [], chosen, status, cache=cache, calibrate=calibrate_with, inputs=inputs,
            kernels=kernels, signature=signature,
        )  # fmt: skip
        if isinstance(compiled, OpenModel):
            raise PowerError(compiled.openness, hint=compiled.way_out("by --shape NAME=SIZES"))
        given = read_inputs(compiled.inputs, inputs, seed, index_inputs(compiled))
        *_, values = in_batches(given, compiled.inputs)
        power = measure_power(compiled, values, liberty, samples=samples, wires=wires, progress=status.update)
    tables = [layer_power_table(power, mhz), module_power_table(power, mhz, depth)]
    records: dict[str, Any] = {
        "model": power.model.name, "config": power.model.config.name, "library": power.library, "volts": power.volts,
        "mhz": mhz, "wires": wires, "layers": layer_power_records(power, mhz),
        "modules": module_power_records(power, mhz, depth), "wrong": power.wrong, "compared": power.compared,
    }  # fmt: skip
    if output is not None:
        output.mkdir(parents=True, exist_ok=True)
        print_report(tables, output / "report.txt")
        write_atomically(output / "power.json", json_text(records).encode())
    if as_json:
        print_json(records)
        return
    wide_console().print(*tables)
    out.print(checked(power), soft_wrap=True)
    if inputs is None:
        out.print(f"inputs: random, seed {seed}")
    if output is not None:
        out.print(f"wrote {output}")
