"""The profile as pictures: a roofline with a point for each layer, and a timeline of all engines.

matplotlib is an optional dependency (extra ``plot``) and is imported only when something is drawn.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..hw.isa import Engine
from .errors import DeviceError
from .profile import LayerProfile, Profile
from .profile_cycles import Cause
from .profile_timeline import Timeline, Wait, timeline

Box = npt.NDArray[np.float64]
"""Left, bottom, right, top, in pixels."""

FORMATS = ("png", "svg")

CAUSE_COLOURS = {
    Cause.ARRAY: "#2f6690",
    Cause.RAMP: "#e9c46a",
    Cause.INPUTS: "#d1495b",
    Cause.WEIGHTS: "#8f2d56",
    Cause.STORES: "#f08a5d",
    Cause.VECTOR: "#5a9367",
    Cause.TOKENS: "#a5a5a5",
    Cause.INSTRUCTIONS: "#6d597a",
}

CAUSE_LABELS = {
    Cause.ARRAY: "array works",
    Cause.RAMP: "ramp (first loads, last stores)",
    Cause.INPUTS: "activations from DRAM",
    Cause.WEIGHTS: "weights, parameters from DRAM",
    Cause.STORES: "stores to DRAM",
    Cause.VECTOR: "vector engine",
    Cause.TOKENS: "tokens on their way",
    Cause.INSTRUCTIONS: "instruction fetch",
}

_LAYER_COLOURS = (
    "#4e79a7", "#f28e2b", "#59a14f", "#b07aa1", "#edc948", "#76b7b2", "#e15759", "#9c755f", "#6b8e9e", "#d4a6c8",
)  # fmt: skip
_WAIT_COLOURS = {Wait.MEMORY: "#f3d3d6", Wait.PORT: "#c3c6d4", Wait.TOKEN: "#ececec"}
_PADDED_COLOUR = "#81b1d5"
_INCH_A_LABEL = 0.19
_LABELLED_POINTS = 12
_SAME_PLACE = 6.0
"""Pixels between points that share one name."""

_NAMED_LOSS = 0.05
"""Share of its cycles that a layer must lose to be named in the roofline."""


def write_plots(profile: Profile, folder: Path) -> list[Path]:
    """Draw roofline and timeline into ``folder``, each as PNG and SVG; the files written.

    :class:`DeviceError` if matplotlib is not installed.
    """
    pyplot = _pyplot()
    written = []
    for name, figure in (("roofline", roofline(profile)), ("timeline", engine_timeline(profile))):
        for kind in FORMATS:
            path = folder / f"{name}.{kind}"
            figure.savefig(path, dpi=130)
            written.append(path)
        pyplot.close(figure)
    return written


def roofline(profile: Profile) -> Any:
    """Multiply-accumulates a cycle over multiply-accumulates a byte, under the roof of array and memory."""
    figure, axes = _pyplot().subplots(figsize=(11, 7), layout="constrained")
    shown = [item for item in profile.layers if item.layer.macs and item.dram_bytes and item.cycles]
    peak, slope = profile.config.macs_per_cycle, profile.dram.bytes_per_cycle
    places = [(item.layer.macs / item.dram_bytes, item.layer.macs / item.cycles) for item in shown]
    low_x = min([x for x, _ in places] + [peak / slope]) / 2
    high_x = max([x for x, _ in places] + [peak / slope]) * 2
    low_y = min([y for _, y in places] + [low_x * slope]) / 2
    axes.set(xscale="log", yscale="log", xlim=(low_x, high_x), ylim=(low_y, peak * 1.8))
    grid = np.geomspace(low_x, high_x, 200)
    axes.plot(grid, np.minimum(peak, grid * slope), color="#333333", linewidth=1.6, zorder=2)
    axes.text(high_x / 1.05, peak * 1.05, f"array: {peak:,} MACs a cycle", ha="right", va="bottom", color="#333333")
    total = max(1, profile.cycles)
    used: dict[str, str] = {}
    for item, (x, y) in zip(shown, places, strict=True):
        label, colour = _point_class(item)
        used[label] = colour
        size = 30 + 1500 * item.cycles / total
        axes.scatter(x, y, s=size, color=colour, alpha=0.75, edgecolors="white", linewidths=0.8, zorder=3)
    share = profile.utilisation(profile.macs, profile.cycles)
    axes.set_title(
        f"{profile.name} on {profile.config.name}, device {profile.device}: "
        f"{profile.cycles:,} cycles, {share:.1%} of the array's peak"
    )
    left_out = [item.layer.name for item in profile.layers if item not in shown]
    note = f"\nnot shown, because without multiply-accumulates: {_some(left_out)}" if left_out else ""
    if any(y > 1.01 * min(peak, x * slope) for x, y in places):
        note += "\nabove the roof: part of the layer's work was done in cycles of layers before it"
    axes.set_xlabel(f"useful multiply-accumulates / byte of DRAM traffic{note}", linespacing=1.5)
    axes.set_ylabel("useful multiply-accumulates / cycle")
    axes.grid(True, which="both", color="#e6e6e6", linewidth=0.5, zorder=0)
    handles = [axes.scatter([], [], s=60, color=colour, label=label) for label, colour in used.items()]
    axes.legend(
        handles=handles, loc="lower right", title="area: the layer's cycles; colour: why", frameon=True, fontsize=9
    )
    figure.canvas.draw()  # fixes the layout, which the texts below follow and must not change
    start = low_x * 1.25
    text = axes.annotate(
        f"DRAM: {slope} bytes a cycle", (start, start * slope), xytext=(8, -4), textcoords="offset points", va="top",
        rotation=_angle(axes, slope), rotation_mode="anchor", color="#333333",
    )  # fmt: skip
    text.set_in_layout(False)
    _label_points(figure, axes, shown, places, np.stack([grid, np.minimum(peak, grid * slope)], axis=1))
    return figure


def _point_class(item: LayerProfile) -> tuple[str, str]:
    """Label and colour: whether the array was the limit, or else what the layer lost most cycles to."""
    if item.verdict.startswith("array-bound") or item.worst is None:
        if item.verdict.endswith("padding"):
            return "array-bound, padded lanes", _PADDED_COLOUR
        return "array-bound", CAUSE_COLOURS[Cause.ARRAY]
    return f"most lost to: {CAUSE_LABELS[item.worst]}", CAUSE_COLOURS[item.worst]


def _angle(axes: Any, slope: float) -> float:
    """Angle on paper of the line y = slope * x, in degrees."""
    (left, bottom), (right, top) = axes.transData.transform([(1, slope), (10, 10 * slope)])
    return float(np.degrees(np.arctan2(top - bottom, right - left)))


def _label_points(
    figure: Any,
    axes: Any,
    shown: Sequence[LayerProfile],
    places: Sequence[tuple[float, float]],
    roof: npt.NDArray[np.float64],
) -> None:
    """Name the layers that lose most, each where its name covers neither another name, a point nor the roof."""
    renderer = figure.canvas.get_renderer()
    pixels_a_point = figure.dpi / 72
    frame, legend = (part.get_window_extent(renderer).extents for part in (axes, axes.get_legend()))
    points = axes.transData.transform(np.array(places)) if places else np.zeros((0, 2))
    obstacles = np.concatenate([points, axes.transData.transform(roof)])
    taken = [legend, *(text.get_window_extent(renderer).extents for text in axes.texts)]
    lost = [item.cycles - item.bounds.compute for item in shown]
    named = [place for place, item in enumerate(shown) if lost[place] > _NAMED_LOSS * item.cycles]
    for index, alike in _clusters(points, sorted(named, key=lambda place: -lost[place]))[:_LABELLED_POINTS]:
        name = shown[index].layer.name + (f" and {alike} more" if alike else "")
        measured = axes.text(0.5, 0.5, name, fontsize=8, transform=axes.transAxes)
        extent = measured.get_window_extent(renderer)
        measured.remove()
        for right, up in _offsets():
            x, y = points[index] + np.array([right, up]) * pixels_a_point
            left = x if right > 0 else x - extent.width
            box = np.array([left - 3, y - extent.height / 2 - 3, left + extent.width + 3, y + extent.height / 2 + 3])
            if _inside(box, frame) and not any(_overlap(box, other) for other in taken) and not _covers(box, obstacles):
                taken.append(box)
                axes.annotate(
                    name, places[index], xytext=(right, up), textcoords="offset points", fontsize=8,
                    ha="left" if right > 0 else "right", va="center", zorder=4,
                    arrowprops={"arrowstyle": "-", "color": "#888888", "linewidth": 0.5, "shrinkA": 0, "shrinkB": 3},
                ).set_in_layout(False)  # fmt: skip
                break


def _clusters(points: npt.NDArray[np.float64], order: Sequence[int]) -> list[tuple[int, int]]:
    """Points that share no place on paper, in ``order``, each with the number of others of ``order`` in its place."""
    found: dict[int, int] = {}
    for index in order:
        near = (first for first in found if np.hypot(*(points[index] - points[first])) < _SAME_PLACE)
        first = next(near, None)
        if first is None:
            found[index] = 0
        else:
            found[first] += 1
    return list(found.items())


def _offsets() -> Iterator[tuple[float, float]]:
    """Places for a name around its point, in points, the nearest first."""
    for distance in (12, 18, 26, 36, 48, 62, 78, 96):
        for right, up in ((1, 0.2), (1, -0.5), (-1, 0.3), (-1, -0.5), (0.5, 1), (0.5, -1), (-0.5, 1), (-0.5, -1)):
            yield right * distance, up * distance


def _inside(box: Box, frame: Box) -> bool:
    return bool(frame[0] < box[0] and frame[1] < box[1] and box[2] < frame[2] and box[3] < frame[3])


def _overlap(box: Box, other: Box) -> bool:
    return bool(box[0] < other[2] and other[0] < box[2] and box[1] < other[3] and other[1] < box[3])


def _covers(box: Box, points: npt.NDArray[np.float64]) -> bool:
    x, y = points.T
    margin = 4
    inside = (box[0] - margin < x) & (x < box[2] + margin) & (box[1] - margin < y) & (y < box[3] + margin)
    return bool(inside.any())


def engine_timeline(profile: Profile, bins: int = 1000) -> Any:
    """What each engine did over the run, coloured by layer, and below it what kept the array from working."""
    binned = timeline(profile, bins)
    rows = len(Engine) + 1
    figure, axes = _pyplot().subplots(
        rows, 1, figsize=(16, 9.5), sharex=True, layout="constrained", height_ratios=[1] * len(Engine) + [1.4]
    )
    figure.get_layout_engine().set(rect=(0, 0, 0.965, 1))  # the last layers' slanted names reach beyond the axes
    colours = [_LAYER_COLOURS[place % len(_LAYER_COLOURS)] for place in range(len(profile.layers))]
    scale, unit = (1e6, "million cycles") if profile.cycles >= 2_000_000 else (1e3, "thousand cycles")
    edges = binned.edges / scale
    for engine in Engine:
        _draw_engine(axes[engine], binned, engine, edges, colours)
        axes[engine].set_ylabel(
            f"{engine.name.lower()}\n{binned.busy[engine].sum() / max(1, profile.cycles):.0%} busy",
            rotation=0, ha="right", va="center",
        )  # fmt: skip
    _draw_causes(axes[-1], binned, edges)
    axes[-1].set_ylabel("array", rotation=0, ha="right", va="center")
    axes[-1].set_xlabel(unit)
    axes[-1].set_xlim(0, profile.cycles / scale)
    for axis in axes:
        axis.set(ylim=(0, 1), yticks=[0, 1])
        axis.set_yticklabels(["0", "1"], fontsize=7)
        for item in profile.layers:
            axis.axvline(item.end / scale, color="#00000040", linewidth=0.5)
        for side in ("top", "right"):
            axis.spines[side].set_visible(False)
    _name_layers(axes[0], profile, colours, scale)
    _timeline_legends(figure, profile)
    return figure


def _draw_engine(axis: Any, binned: Timeline, engine: Engine, edges: Any, colours: Sequence[str]) -> None:
    widths = np.diff(binned.edges)
    base = np.zeros(len(widths))
    for layer, counts in enumerate(binned.busy[engine].T):
        used = np.flatnonzero(counts)
        if len(used):
            _steps(axis, edges, base, base + counts / widths, used, colours[layer])
        base = base + counts / widths
    for wait, counts in binned.waits[engine].items():
        used = np.flatnonzero(counts)
        if len(used):
            _steps(axis, edges, base, base + counts / widths, used, _WAIT_COLOURS[wait])
        base = base + counts / widths


def _draw_causes(axis: Any, binned: Timeline, edges: Any) -> None:
    widths = np.diff(binned.edges)
    base = np.zeros(len(widths))
    for cause in Cause:
        share = binned.causes[:, cause] / widths
        used = np.flatnonzero(share)
        if len(used):
            _steps(axis, edges, base, base + share, used, CAUSE_COLOURS[cause])
        base = base + share


def _steps(axis: Any, edges: Any, low: Any, high: Any, used: Any, colour: str) -> None:
    """Fill between two step functions over the bins from the first to the last of ``used``."""
    first, last = int(used[0]), int(used[-1]) + 1
    where = slice(first, last)
    x = np.repeat(edges[first : last + 1], 2)[1:-1]
    axis.fill_between(x, np.repeat(low[where], 2), np.repeat(high[where], 2), color=colour, linewidth=0)


def _name_layers(axis: Any, profile: Profile, colours: Sequence[str], scale: float) -> None:
    """Write each layer's name above its cycles, where there is room for it."""
    room = profile.cycles * _INCH_A_LABEL / 13.5  # the axes are about 13.5 inches wide
    reached = -room
    for item, colour in zip(profile.layers, colours, strict=True):
        middle = (item.start + item.end) / 2
        if item.cycles < room / 2 or middle - reached < room:
            continue
        reached = middle
        axis.annotate(
            item.layer.name, (middle / scale, 1.04), xycoords=("data", "axes fraction"), rotation=55, ha="left",
            va="bottom", fontsize=8, color=_darker(colour), fontweight="bold", annotation_clip=False,
        )  # fmt: skip


def _darker(colour: str) -> tuple[float, ...]:
    return tuple(0.7 * part for part in importlib.import_module("matplotlib.colors").to_rgb(colour))


def _timeline_legends(figure: Any, profile: Profile) -> None:
    patch = importlib.import_module("matplotlib.patches").Patch
    used = [cause for cause in Cause if any(item.causes[cause] for item in profile.layers)]
    figure.suptitle(
        f"{profile.name} on {profile.config.name}, device {profile.device}: {profile.cycles:,} cycles, "
        f"{profile.utilisation(profile.macs, profile.cycles):.1%} of the array's peak"
    )
    handles = [
        patch(color=_LAYER_COLOURS[0], label="engine busy (colour: its layer)"),
        *(patch(color=colour, label=f"engine waits for {wait.value}") for wait, colour in _WAIT_COLOURS.items()),
    ]
    labels = {cause: f"array: {CAUSE_LABELS[cause].removeprefix('array ')}" for cause in used}
    handles += [patch(color=CAUSE_COLOURS[cause], label=label) for cause, label in labels.items()]
    figure.legend(handles=handles, loc="outside lower center", ncols=6, fontsize=8.5, frameon=False)


def _some(names: Sequence[str], count: int = 8) -> str:
    return ", ".join(names[:count]) + (f" and {len(names) - count} more" if len(names) > count else "")


def _pyplot() -> Any:
    try:
        importlib.import_module("matplotlib").use("Agg")  # files only: no display is needed
    except ImportError:
        raise DeviceError("the pictures need matplotlib", hint="pip install 'weft[plot]'") from None
    return importlib.import_module("matplotlib.pyplot")
