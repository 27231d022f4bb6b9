"""``weft explore``: cores, memories and compiler knobs searched together, for cycles that equal the RTL's."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

import typer

from ..compiler.graph import Module
from ..compiler.tune.database import Database
from ..explore.errors import ExploreError
from ..explore.live import LivePage
from ..explore.measure import Measure, open_network
from ..explore.outcome import Outcome, core_mhz, cycles_of, host_cycles, host_of, record_of
from ..explore.page import explore_page
from ..explore.space import Space, load_space
from ..explore.study import Study, explore
from ..explore.validate import validate
from ..files import write_atomically
from ..progress import progress
from .app import app
from .output import JsonOption, check_places, err, input_file, out, output_file, print_json, table, wide_console
from .source import given_model

FORMATS = {
    "cycles": ",.0f", "core_cycles": ",.0f", "host_cycles": ",.0f", "on_core": ".1%", "energy": ".3f", "area": ".1%",
    "throughput_per_area": ".2f", "LUT": ",.0f", "DSP": ",.0f", "BRAM36": ",g",
}  # fmt: skip
"""How each figure is shown."""

TITLES = {
    "on_core": "on the core",
    "core_cycles": "core's cycles",
    "host_cycles": "host's cycles",
    "energy": "energy, µJ",
}
"""Of columns whose figure has a longer name for people."""


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
    as_json: JsonOption = False,
) -> None:
    """Measure points of a space of cores, memories and compiler knobs; print those that no other one beats."""
    if results is not None and results.suffix not in (".json", ".csv"):
        raise ExploreError("results are written as .json or .csv", at=results)
    check_places(results, page)
    space = load_space(space_file)
    files = [*networks, *(more or ())]
    if calibrate_with:
        files = in_eight_bits(files, calibrate_with)
    known = [open_network(each) for each in files]
    checked = None if validated is None else open_network(validated)
    count = os.cpu_count() or 1 if workers is None else workers
    with ExitStack() as stack:
        kept = stack.enter_context(Database(database))
        live = None if serve is None else stack.enter_context(LivePage(serve))
        if live is not None:
            err.print(f"the run is shown at {live.url}", highlight=False)
        status = stack.enter_context(progress("starting", err))

        def report(study: Study) -> None:
            status.update(_line(study))
            if live is not None:
                live.update(study)

        study = explore(
            space, known, kept, workers=count, cluster=cluster, trials=trials, minutes=minutes, point_seconds=seconds,
            retry=retry, report=report,
        )  # fmt: skip
    if results is not None:
        write_atomically(results, _results(study, results.suffix).encode())
    if page is not None:
        write_atomically(page, explore_page(study).encode())
    checks = []
    if checked is not None:
        with progress("validating", err) as status:
            checks = validate([study.points[place] for place in study.front()], checked, status.update)
    if as_json:
        print_json(_document(study, database) | ({"validated": [vars(each) for each in checks]} if checks else {}))
    else:
        _print(study, database)
        for check in checks:
            out.print(str(check), highlight=False, markup=False, soft_wrap=True)
    if not study.count("measured") and not study.interrupted:
        reason = _reasons(study.points)[0][0] if study.points else "no point was proposed"
        raise ExploreError(f"none of {len(study.points)} points could be measured; most often {reason}",
                           hint="widen the space or its constraints")  # fmt: skip
    wrong = [check for check in checks if not check.good]
    if wrong:
        raise ExploreError(f"{len(wrong)} of {len(checks)} points of the front differ on the RTL: {wrong[0]}")


def in_eight_bits(networks: Sequence[Path], examples: Sequence[Path]) -> list[Path]:
    """Float networks as files in 8 bits, which workers and other commands can read. ExploreError unless there is one
    file of examples for each network."""
    if len(networks) != len(examples):
        raise ExploreError(f"there are {len(networks)} networks, but {len(examples)} files of examples",
                           hint="--calibrate is repeated, one for each network in order")  # fmt: skip
    from ..compiler.exporters import export_onnx

    files = [network.with_name(f"{network.stem}-8bit.onnx") for network in networks]
    check_places(*files)
    with progress("quantising", err) as status:
        for network, given, path in zip(networks, examples, files, strict=True):
            module = given_model(network, None, given, status.update)
            assert isinstance(module, Module)  # there are examples
            export_onnx(module, path)
    return files


def _line(study: Study) -> str:
    done, of = len(study.outcomes), study.space.size
    if study.budget < of:  # what is refused takes nothing off the budget
        done, of = done - study.count("refused"), study.budget
    parts = [f"{done} of {of} points, {study.count('measured')} measured"]
    if study.reused:
        parts.append(f"{study.reused} results known")
    for name in ("refused", "failed"):
        if count := study.count(name):
            parts.append(f"{count} {name}")
    points = [each for each in study.points if each.status == "measured"]
    if points:
        best = [f"{name} {min((each.cost([name])[0], each.figures[name]) for each in points)[1]:{FORMATS[name]}}"
                for name in study.objectives]  # fmt: skip
        parts.append(f"best {', '.join(best)}")
    return "; ".join(parts)


def shown_axes(space: Space) -> list[str]:
    """Axes with more than one value."""
    return [name for name, values in space.axes.items() if len(values) > 1]


def _print(study: Study, database: Path) -> None:
    front = study.front()
    axes, points = shown_axes(study.space), study.points
    names = [network.name for network in study.networks]
    others = [name for name in ("cycles", "on_core", "energy", "LUT", "DSP", "BRAM36") if name not in study.objectives]
    columns = ["point", *(name.partition(".")[2] for name in axes),
               *(TITLES.get(name, name) for name in (*study.objectives, *others)),
               *(f"{name}: core + host cycles, used" for name in names)]  # fmt: skip
    rows = [_row(study.space, place, points[place], axes, [*study.objectives, *others], names) for place in front]
    rows.sort(key=lambda row: points[int(row[0])].cost(study.objectives))
    wide_console().print(table("Pareto front", columns, rows))
    if rows:
        out.print(_about_the_host(study.space), highlight=False, markup=False, soft_wrap=True)
    for line in _bests(study) if len(names) > 1 else []:
        out.print(line, highlight=False, markup=False, soft_wrap=True)
    counts = ", ".join(f"{study.count(name)} {name}" for name in ("measured", "refused", "failed"))
    out.print(f"{len(points)} of {study.space.size:,} points: {counts}; {study.seconds:.0f} s", highlight=False)
    for reason, count in _reasons(points)[:5]:
        out.print(f"  {count} x {reason}", highlight=False, markup=False, soft_wrap=True)
    if study.interrupted:
        out.print("interrupted; what was measured is kept, and the same command goes on from there")
    out.print(f"results are in {database}", markup=False, highlight=False)


def _about_the_host(space: Space) -> str:
    """How the host's part of the cycles was found."""
    processor = host_of(space)
    return (
        f"cycles are the core's and, at its clock of {core_mhz(space.constraints):g} MHz, those of the host: an "
        f"estimate for one core of a {processor.name} at {processor.mhz:g} MHz with "
        f"{processor.operations_per_cycle:g} operations and {processor.bytes_per_cycle:g} bytes a cycle"
    )


def _bests(study: Study) -> list[str]:
    """For each network, the point that is best for it alone, beside the one that is best for all."""
    measured = [(each.figures["cycles"], place) for place, each in enumerate(study.points) if each.status == "measured"]
    if not measured:
        return []
    lines, overall = [], min(measured)[1]
    for network in study.networks:
        place = study.best_of(network.name)
        assert place is not None  # there are measured points
        own, shared = (cycles_of(study.space, study.points[each].measures[network.name]) for each in (place, overall))
        lines.append(f"{network.name}: {own:,.0f} cycles on point {place}, {shared:,.0f} ({shared / own - 1:+.1%}) on "
                     f"point {overall}, which is best for all networks")  # fmt: skip
    return lines


def _row(
    space: Space, place: int, point: Outcome, axes: Sequence[str], figures: Sequence[str], names: Sequence[str]
) -> list[str]:
    assert point.design is not None  # points of the front were measured
    macs = point.design.config.macs_per_cycle
    used = [
        f"{each.cycles_per_image:,.0f} + {host_cycles(space, each):,.0f}, {each.macs / (each.cycles * macs):.0%}"
        for each in (point.measures[name] for name in names)
    ]
    return [str(place), *(str(point.assignment[name]) for name in axes),
            *(f"{point.figures[name]:{FORMATS[name]}}" for name in figures), *used]  # fmt: skip


def _reasons(points: Sequence[Outcome]) -> list[tuple[str, int]]:
    """Why points have no figures, the most frequent first; numbers in the text do not make another reason."""
    counts: dict[str, list[str]] = {}
    for each in points:
        if each.status != "measured":
            key = "".join("#" if letter.isdigit() else letter for letter in each.reason)
            counts.setdefault(key, []).append(f"{each.status}: {each.reason}")
    return sorted(((texts[0], len(texts)) for texts in counts.values()), key=lambda item: -item[1])


def _document(study: Study, database: Path) -> dict[str, Any]:
    return {
        "space": study.space.model_dump(), "objectives": study.objectives,
        "networks": [vars(network) for network in study.networks], "database": str(database),
        "front": study.front(), "best": {network.name: study.best_of(network.name) for network in study.networks},
        "points": [record_of(study.space, each) for each in study.points],
        "measured": study.measured, "reused": study.reused, "seconds": study.seconds, "interrupted": study.interrupted,
    }  # fmt: skip


def _costs(space: Space, measure: Measure | None) -> tuple[object, ...]:
    """The core's cycles of a run, the host's of an image, the share of the arithmetic on the core; empty without."""
    return ("", "", "") if measure is None else (measure.cycles, host_cycles(space, measure), measure.on_core)


def _results(study: Study, suffix: str) -> str:
    if suffix == ".json":
        return json.dumps(_document(study, Path()), indent=1) + "\n"
    axes, names, text = list(study.space.axes), [network.name for network in study.networks], io.StringIO()
    front, writer = set(study.front()), csv.writer(text, lineterminator="\n")
    costs = [f"{name} {what}" for name in names for what in ("cycles", "host cycles", "on core")]
    writer.writerow(["point", *axes, "status", "reason", "front", *FORMATS, *costs])
    for place, each in enumerate(study.points):
        writer.writerow([
            place, *(each.assignment[name] for name in axes), each.status, each.reason, int(place in front),
            *(each.figures.get(name, "") for name in FORMATS),
            *(value for name in names for value in _costs(study.space, each.measures.get(name))),
        ])  # fmt: skip
    return text.getvalue()
