"""``weft explore``: cores, memories and compiler knobs searched together, for cycles that equal the RTL's."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..explore.errors import ExploreError
from ..explore.space import load_space
from ..files import write_atomically
from ..progress import progress
from .app import app
from .output import (
    JsonOption,
    KernelsOption,
    SignatureOption,
    check_places,
    err,
    input_file,
    out,
    output_file,
    print_json,
)
from .source import Given, given_file, given_model, path_of

if TYPE_CHECKING:  # what is wrong with a command is told before what measures is imported
    from ..explore.study import Study


@app.command("explore")
def explore_command(
    space_file: Annotated[Path, typer.Argument(metavar="SPACE", help="TOML file with axes, constraints, search.")],
    networks: Annotated[list[Path], typer.Option("--networks", "-n", help="Quantised ONNX model; repeat for more.")],
    more: Annotated[list[Path] | None, typer.Argument(metavar="[NETWORK]...", help="More networks.")] = None,
    database: Annotated[Path, output_file("--database", help="File of results; it grows.")] = Path("explore.sqlite"),
    workers: Annotated[
        int | None, typer.Option(min=0, help="Processes; 0: this one alone. Default: one for each processor.")
    ] = None,
    cluster: Annotated[
        str | None,
        typer.Option("--ray", metavar="ADDRESS", help="Processors of a Ray cluster, host:port or auto, instead."),
    ] = None,
    trials: Annotated[int | None, typer.Option(min=1, help="Points to measure, instead of the file's.")] = None,
    minutes: Annotated[float | None, typer.Option(min=0, help="Stop after so many minutes.")] = None,
    seconds: Annotated[
        float | None, typer.Option("--point-seconds", min=1, help="A network that takes longer fails at the point.")
    ] = None,
    retry: Annotated[bool, typer.Option(help="Measure points again that have failed.")] = False,
    page: Annotated[Path | None, output_file(help="Write a web page with all points.")] = None,
    results: Annotated[
        Path | None, output_file("--results", "-o", help="Write all points: a .json or .csv file.")
    ] = None,
    serve: Annotated[
        int | None, typer.Option(min=0, max=65535, metavar="PORT", help="Show the page of the run at this local port.")
    ] = None,
    validated: Annotated[
        Path | None, input_file("--validate", metavar="NETWORK", help="Run it on the RTL of each core of the front.")
    ] = None,
    calibrate_with: Annotated[
        list[Path] | None,
        input_file(
            "--calibrate",
            metavar="FILE",
            help="Quantise a float network by examples in FILE, which is "
            "written beside it as NAME-8bit.onnx; repeat, one for each network in order.",
        ),
    ] = None,
    kernels: KernelsOption = None,
    signature: SignatureOption = None,
    as_json: JsonOption = False,
) -> None:
    """Measure points of a space of cores, memories and compiler knobs; print those that no other one beats."""
    if results is not None and results.suffix not in (".json", ".csv"):
        raise ExploreError("results are written as .json or .csv", at=results)
    check_places(results, page)
    space = load_space(space_file)
    from ..compiler.tune.database import Database
    from ..explore.live import LivePage
    from ..explore.measure import open_network
    from ..explore.page import explore_page
    from ..explore.study import explore
    from ..explore.validate import validate
    from .explored import print_study, reasons, results_text, run_line, study_document

    files = [given_file(each, kernels, signature) for each in (*networks, *(more or ()))]
    known = [open_network(each) for each in (in_eight_bits(files, calibrate_with) if calibrate_with else files)]
    checked = None if validated is None else open_network(given_file(validated, kernels, signature))
    count = os.cpu_count() or 1 if workers is None else workers
    with ExitStack() as stack:
        kept = stack.enter_context(Database(database))
        live = None if serve is None else stack.enter_context(LivePage(serve))
        if live is not None:
            err.print(f"the run is shown at {live.url}", highlight=False)
        status = stack.enter_context(progress("starting", err))

        def report(study: Study) -> None:
            status.update(run_line(study))
            if live is not None:
                live.update(study)

        study = explore(
            space, known, kept, workers=count, cluster=cluster, trials=trials, minutes=minutes, point_seconds=seconds,
            retry=retry, report=report,
        )  # fmt: skip
    if results is not None:
        write_atomically(results, results_text(study, results.suffix).encode())
    if page is not None:
        write_atomically(page, explore_page(study).encode())
    checks = []
    if checked is not None:
        with progress("validating", err) as status:
            checks = validate([study.points[place] for place in study.front()], checked, status.update)
    if as_json:
        print_json(study_document(study, database) | ({"validated": [vars(each) for each in checks]} if checks else {}))
    else:
        print_study(study, database)
        for check in checks:
            out.print(str(check), highlight=False, markup=False, soft_wrap=True)
    if not study.count("measured") and not study.interrupted:
        reason = reasons(study.points)[0][0] if study.points else "no point was proposed"
        raise ExploreError(f"none of {len(study.points)} points could be measured; most often {reason}",
                           hint="widen the space or its constraints")  # fmt: skip
    wrong = [check for check in checks if not check.good]
    if wrong:
        raise ExploreError(f"{len(wrong)} of {len(checks)} points of the front differ on the RTL: {wrong[0]}")


def in_eight_bits(networks: Sequence[Given], examples: Sequence[Path]) -> list[Path]:
    """Float networks as files in 8 bits, which workers and other commands can read. ExploreError unless there is one
    file of examples for each network."""
    if len(networks) != len(examples):
        raise ExploreError(f"there are {len(networks)} networks, but {len(examples)} files of examples",
                           hint="--calibrate is repeated, one for each network in order")  # fmt: skip
    from ..compiler.exporters import export_onnx
    from ..compiler.graph import Module

    files = [path.with_name(f"{path.stem}-8bit.onnx") for path in map(path_of, networks)]
    check_places(*files)
    with progress("quantising", err) as status:
        for network, given, path in zip(networks, examples, files, strict=True):
            module = given_model(network, None, given, status.update)
            assert isinstance(module, Module)  # there are examples
            export_onnx(module, path)
    return files
