"""What ``weft explore`` prints and writes of a study."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..explore.measure import Measure, used
from ..explore.outcome import Outcome, core_mhz, cycles_of, host_cycles, host_of, record_of
from ..explore.space import Space
from ..explore.study import Study
from .output import out, table, wide_console

FORMATS = {
    "cycles": ",.0f", "core_cycles": ",.0f", "host_cycles": ",.0f", "on_core": ".1%", "throughput": ",.2f",
    "latency": ",.0f", "energy": ".3f", "area": ".1%",
    "throughput_per_area": ".2f", "LUT": ",.0f", "DSP": ",.0f", "BRAM36": ",g",
}  # fmt: skip
"""How each figure is shown."""

TITLES = {
    "on_core": "on the core",
    "core_cycles": "core's cycles",
    "host_cycles": "host's cycles",
    "energy": "energy, µJ",
    "throughput": "images a Gcycle",
}
"""Of columns whose figure has a longer name for people."""


def run_line(study: Study) -> str:
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


def _title(axis: str) -> str:
    """Of a column: the field of an axis, and of a further core its name, too."""
    return axis.removeprefix("cores.") if axis.startswith("cores.") else axis.partition(".")[2]


def print_study(study: Study, database: Path) -> None:
    front = study.front()
    axes, points = shown_axes(study.space), study.points
    names = [network.name for network in study.networks]
    others = [name for name in ("cycles", "on_core", "energy", "LUT", "DSP", "BRAM36") if name not in study.objectives]
    columns = ["point", *(_title(name) for name in axes),
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
    for reason, count in reasons(points)[:5]:
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
    costs = [
        f"{each.cycles_per_image:,.0f} + {host_cycles(space, each):,.0f}, {used(point.design, each):.0%}"
        for each in (point.measures[name] for name in names)
    ]
    return [str(place), *(str(point.assignment[name]) for name in axes),
            *(f"{point.figures[name]:{FORMATS[name]}}" for name in figures), *costs]  # fmt: skip


def reasons(points: Sequence[Outcome]) -> list[tuple[str, int]]:
    """Why points have no figures, the most frequent first; numbers in the text do not make another reason."""
    counts: dict[str, list[str]] = {}
    for each in points:
        if each.status != "measured":
            key = "".join("#" if letter.isdigit() else letter for letter in each.reason)
            counts.setdefault(key, []).append(f"{each.status}: {each.reason}")
    return sorted(((texts[0], len(texts)) for texts in counts.values()), key=lambda item: -item[1])


def study_document(study: Study, database: Path) -> dict[str, Any]:
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


def results_text(study: Study, suffix: str) -> str:
    if suffix == ".json":
        return json.dumps(study_document(study, Path()), indent=1) + "\n"
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
