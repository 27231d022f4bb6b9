"""The timeline of a profile: what each engine did in every cycle, and what kept the array from working."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from ..hw.isa import Engine
from .colours import CLASS_OF_CAUSE, CLASS_OF_KIND, COLOURS, WORDS
from .profile import Profile
from .profile_cycles import KINDS, Cause, Integers
from .profile_timeline import timeline

_INCH_A_LABEL = 0.19
_AXES_INCHES = 13.5
"""Width of the axes, about."""

_ENGINE_WORK = {
    Engine.LOAD: "DRAM to chip: activations",
    Engine.LOADW: "DRAM to chip: weights",
    Engine.GEMM: "multiply-accumulates",
    Engine.VECTOR: "lane by lane",
    Engine.STORE: "chip to DRAM",
}


def engine_timeline(profile: Profile, pyplot: Any, bins: int) -> Any:
    """A row for each engine, in which every cycle has the colour of its class, and one for the array's causes.

    A bin of several cycles is a stack: its heights are the shares of the classes.
    """
    binned = timeline(profile, bins)
    figure, axes = pyplot.subplots(
        len(Engine) + 2, 1, figsize=(16, 9.5), sharex=True, layout="constrained",
        height_ratios=[0.22] + [1] * len(Engine) + [1.4],
    )  # fmt: skip
    figure.get_layout_engine().set(rect=(0, 0, 0.965, 1))  # the last layers' slanted names reach beyond the axes
    scale, unit = (1e6, "million cycles") if profile.cycles >= 2_000_000 else (1e3, "thousand cycles")
    edges = binned.edges / scale
    layers, *rows, array = axes
    used: set[str] = set()
    for engine, axis in zip(Engine, rows, strict=True):
        shares = {CLASS_OF_KIND[kind]: binned.kinds[engine][:, kind] for kind in KINDS.values()}
        used |= draw_stack(axis, binned.edges, edges, shares, COLOURS)
        busy = shares["BUSY"].sum() / max(1, profile.cycles)
        name_row(axis, f"{engine.name.lower()}: {busy:.0%} busy", _ENGINE_WORK[engine])
    used |= draw_stack(
        array, binned.edges, edges, {CLASS_OF_CAUSE[cause]: binned.causes[:, cause] for cause in Cause}, COLOURS
    )
    name_row(array, "why the array", "is not busy")
    array.set_xlabel(unit)
    array.set_xlim(0, profile.cycles / scale)
    for axis in (*rows, array):
        axis.set(ylim=(0, 1), yticks=[])
        for item in profile.layers:
            axis.axvline(item.end / scale, color="#00000050", linewidth=0.5)
    for axis in axes:
        for side in ("top", "right", "left"):
            axis.spines[side].set_visible(False)
    _draw_layers(layers, profile, scale)
    _add_legend(figure, profile, used)
    return figure


def name_row(axis: Any, name: str, work: str) -> None:
    """The name of a row, and below it what it does, in front of the axis."""
    axis.set_ylabel(f"{name}\n", rotation=0, ha="right", va="center", fontsize=10)
    axis.text(-0.0075, 0.36, work, transform=axis.transAxes, ha="right", va="center", fontsize=8, color="#666666")


def draw_stack(
    axis: Any, limits: Integers, edges: npt.NDArray[np.float64], shares: Mapping[str, Integers],
    colours: Mapping[str, str],
) -> set[str]:  # fmt: skip
    """Stack the classes' shares of every bin in the order of ``colours``; the names of those that occur."""
    widths = np.diff(limits)
    base = np.zeros(len(widths))
    used = set()
    for name in colours:
        if name not in shares or not shares[name].any():
            continue
        used.add(name)
        top = base + shares[name] / widths
        axis.add_patch(_steps(edges, base, top, colours[name]))
        base = top
    return used


def _steps(edges: npt.NDArray[np.float64], low: Any, high: Any, colour: str) -> Any:
    """The area between two step functions, as a rectangle for each run of equal bins that is not empty."""
    change = np.flatnonzero(np.append(True, (low[1:] != low[:-1]) | (high[1:] != high[:-1])))
    ends = np.append(change[1:], len(low))
    kept = high[change] > low[change]
    first, last = edges[change[kept]], edges[ends[kept]]
    bottom, top = low[change[kept]], high[change[kept]]
    corners = np.stack([first, bottom, first, top, last, top, last, bottom, first, bottom], axis=1).reshape(-1, 2)
    path = importlib.import_module("matplotlib.path").Path
    codes = np.tile([path.MOVETO, path.LINETO, path.LINETO, path.LINETO, path.CLOSEPOLY], len(first))
    patch = importlib.import_module("matplotlib.patches").PathPatch
    return patch(path(corners, codes), facecolor=colour, linewidth=0, antialiased=False)


def _draw_layers(axis: Any, profile: Profile, scale: float) -> None:
    """A strip of two shades in turn, and above it each layer's name where there is room for it."""
    axis.set(ylim=(0, 1), yticks=[])
    axis.spines["bottom"].set_visible(False)
    axis.tick_params(bottom=False)
    axis.set_ylabel("layer", rotation=0, ha="right", va="center", fontsize=10)
    room = profile.cycles * _INCH_A_LABEL / _AXES_INCHES
    reached = -room
    for place, item in enumerate(profile.layers):
        axis.axvspan(item.start / scale, item.end / scale, color=("#5c6b7a", "#b8c4ce")[place % 2], linewidth=0)
        middle = (item.start + item.end) / 2
        if item.cycles < room / 2 or middle - reached < room:
            continue
        reached = middle
        axis.annotate(
            item.layer.name, (middle / scale, 1.3), xycoords=("data", "axes fraction"), rotation=55, ha="left",
            va="bottom", fontsize=8, color="#333333", annotation_clip=False,
        )  # fmt: skip


def _add_legend(figure: Any, profile: Profile, used: set[str]) -> None:
    patch = importlib.import_module("matplotlib.patches").Patch
    figure.suptitle(
        f"timeline of {profile.name} on {profile.config.name}, device {profile.device}: {profile.cycles:,} cycles, "
        f"{profile.utilisation(profile.macs, profile.cycles):.1%} of the array's peak"
    )
    handles = [patch(facecolor=COLOURS[name], edgecolor="#cccccc", label=WORDS[name]) for name in WORDS if name in used]
    figure.legend(
        handles=handles, loc="outside lower center", ncols=columns_of_legend(len(handles)), fontsize=9, frameon=False
    )


def columns_of_legend(entries: int, most: int = 5) -> int:
    """Columns for a legend, so that its rows are as even as they can be."""
    rows = -(-entries // most)
    return -(-entries // max(1, rows))
