"""One web page with all points of an exploration: no network, no server, everything is inside."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..runtime.web_page import web_page
from .front import growing_hypervolume
from .measure import LAYER_FIELDS, listed_core
from .outcome import HIGHER_IS_BETTER, Outcome, core_mhz, host_cycles, host_of
from .space import Design
from .study import Study
from .system_space import core_names

PARTS = Path(__file__).parent
"""Where the page's frame, style and script are."""

LAYER_ROWS = 40_000
"""Layers that a page holds: those of the front first, then of other points in their order."""

UNITS = {
    "cycles": "an image, core and host, geometric mean", "core_cycles": "an image", "host_cycles": "an image, estimate",
    "on_core": "least share of the arithmetic", "throughput": "images per Gcycle, all networks equally often",
    "latency": "cycles until every network has its images", "energy": "µJ an image, estimate",
    "area": "largest share of the part",
    "throughput_per_area": "images per Gcycle and kLUT", "LUT": "model", "BRAM36": "exact", "DSP": "exact",
}  # fmt: skip


CONVERGENCE_PLACES = 60
"""Numbers of points at which the page shows the hypervolume."""

SHUFFLES = 20
"""Random orders that the search is compared with."""


def explore_page(study: Study, version: int | None = None) -> str:
    """The page. Points without figures are counted, with their reasons, and not drawn. With a ``version``, it asks its
    server now and then whether there is another one."""
    data = page_data(study) | {"version": version}
    return web_page(PARTS, study.space.name, {"DATA": data}, "'none'" if version is None else "'self'")


def page_data(study: Study) -> dict[str, Any]:
    """What the script draws."""
    points, front = study.points, study.front()
    axes = [name for name, values in study.space.axes.items() if len(values) > 1]
    known = next((each for each in points if each.status == "measured"), None)
    layers, room = {}, LAYER_ROWS
    for place in dict.fromkeys([*front, *range(len(points))]):
        each = points[place]
        size = sum(len(found.layers) for found in each.measures.values())
        if each.status == "measured" and size <= room:
            room -= size
            layers[place] = {name: found.layers for name, found in each.measures.items()}
    counts = ", ".join(f"{study.count(name):,} {name}" for name in ("measured", "refused", "failed"))
    return {
        "summary": f"{len(points):,} of {study.space.size:,} points: {counts}. {len(front)} on the front of "
        f"{', '.join(study.objectives)}. {_host_text(study)}",
        "objectives": study.objectives,
        "figures": list(known.figures) if known else study.objectives,
        "units": UNITS,
        "higher": HIGHER_IS_BETTER,
        "axes": axes,
        "without_effect": _without_effect(points, axes),
        "networks": [network.name for network in study.networks],
        "layer_fields": LAYER_FIELDS,
        "front": front,
        "convergence": _convergence(study),
        "layers": layers,
        "points": [_point(study, place, each, axes) for place, each in enumerate(points)],
    }


def _without_effect(points: Sequence[Outcome], axes: Sequence[str]) -> list[str]:
    """Axes that were tried, and that change no figure: wherever measured points differ in one of them alone, all of
    their figures are the same."""
    measured = [each for each in points if each.status == "measured"]
    found = []
    for axis in axes:
        alike: dict[tuple[object, ...], list[Outcome]] = {}
        for each in measured:
            rest = tuple(each.assignment[name] for name in axes if name != axis)
            alike.setdefault(rest, []).append(each)
        tried = [group for group in alike.values() if len(group) > 1]
        if tried and all(each.figures == group[0].figures for group in tried for each in group):
            found.append(axis)
    return found


def _host_text(study: Study) -> str:
    """Which networks, on what, and where the host's time comes from."""
    processor, names = host_of(study.space), ", ".join(network.name for network in study.networks)
    return (
        f"{names} on cores like {study.space.base}. What is left to the host counts as cycles at "
        f"{core_mhz(study.space.constraints):g} MHz: an estimate for one core of a {processor.name}."
    )


def _convergence(study: Study) -> dict[str, Any]:
    """How much of its last hypervolume the front had after some of the points, and in random orders of them."""
    costs = np.array([each.cost(study.objectives) for each in study.points if each.status == "measured"])
    counts = sorted({round(each) for each in np.linspace(1, len(costs), CONVERGENCE_PLACES)}) if len(costs) else []
    if not counts:
        return {"counts": [], "measured": [], "shuffled": []}
    low, high = costs.min(axis=0), costs.max(axis=0)
    places = (costs - low) / np.where(high > low, high - low, 1)  # all figures count alike
    reference = [1.1] * len(study.objectives)
    measured = np.array(growing_hypervolume(places, counts, reference))
    draw = np.random.default_rng(0)
    shuffled = np.mean(
        [growing_hypervolume(draw.permutation(places), counts, reference) for _ in range(SHUFFLES)], axis=0
    )
    whole = measured[-1]
    return {"counts": counts, "measured": (measured / whole).tolist(), "shuffled": (shuffled / whole).tolist()}


def _point(study: Study, place: int, each: Outcome, axes: Sequence[str]) -> dict[str, Any]:
    measured = each.status == "measured" and each.design is not None
    design = each.design
    return {
        "assignment": [each.assignment[name] for name in axes],
        "status": each.status,
        "reason": each.reason,
        "figures": {name: float(f"{value:.12g}") for name, value in each.figures.items()} if measured else {},
        "cycles": {name: found.cycles_per_image for name, found in each.measures.items()},
        "host": {name: host_cycles(study.space, found) for name, found in each.measures.items()},
        "on_core": {name: found.on_core for name, found in each.measures.items()},
        "config": _config_text(design) if measured and design else "",
        "macs_per_cycle": {name: listed_core(design, found).macs_per_cycle for name, found in each.measures.items()}
        if design
        else {},
        "space": _space_text(study, each) if measured else "",
        "commands": _commands(study, place, each) if measured else [],
    }


def _config_text(design: Design) -> str:
    return design.config.to_json() if design.system is None else design.system.config.to_json()


def _commands(study: Study, place: int, each: Outcome) -> list[str]:
    """What measures the point again, and what shows its layers; its configuration and its space are files."""
    assert each.design is not None  # it was measured
    design, paths = each.design, [network.path for network in study.networks]
    rate, knobs = design.rate, design.knobs
    again = [shlex.join(["weft", "explore", f"point-{place}.toml", "--networks", *paths])]
    if not knobs["chains"] or not (design.system is None or design.system.alike):
        return again  # `weft profile` compiles with chains, and for alike cores
    file = "--config" if design.system is None else "--system"
    banks = design.system and design.system.memory.banks
    memory = ["--memory", each.assignment["memory.banks"]] if banks else []
    return again + [
        shlex.join([
            "weft", "profile", path, file, f"point-{place}.json", "--bandwidth", str(rate.bytes_per_cycle),
            "--latency", str(rate.latency), "--vthreads", str(knobs["vthreads"]), *memory,
        ])
        for path in paths
    ]  # fmt: skip


def _space_text(study: Study, each: Outcome) -> str:
    """A space file with this point alone."""
    tables: dict[str, list[str]] = {}
    others = set(study.space.cores) - set(core_names(each.assignment.get("system.cores", 1)))
    for axis, value in each.assignment.items():
        table, _, name = axis.rpartition(".")
        if table.removeprefix("cores.") in others:
            continue
        tables.setdefault(table, []).append(f"{name} = {json.dumps(value)}")
    parts = [f"base = {json.dumps(study.space.base)}\n"]
    space = study.space
    asked = {"part": space.constraints.part, "mhz": space.constraints.mhz}
    for table, fields in (("constraints", asked), ("host", space.host.model_dump())):
        given = [f"{name} = {json.dumps(value)}" for name, value in fields.items() if value is not None]
        if given:
            tables[table] = given  # else the host's time would be another
    return "\n".join([*parts, *("\n".join([f"[{table}]", *lines]) + "\n" for table, lines in tables.items())])
