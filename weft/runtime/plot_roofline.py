"""The roofline of a profile: a point for each layer, under the roof of array and memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from .colours import CLASS_OF_CAUSE, COLOURS, WORDS
from .profile import LayerProfile, Profile

Box = npt.NDArray[np.float64]
"""Left, bottom, right, top, in pixels."""

_PADDED_COLOUR = "#81b1d5"
_LABELLED_POINTS = 12
_SAME_PLACE = 6.0
"""Pixels between points that share one name."""

_NAMED_LOSS = 0.05
"""Share of its cycles that a layer must lose to be named in the roofline."""


def roofline(profile: Profile, pyplot: Any) -> Any:
    """Multiply-accumulates a cycle over multiply-accumulates a byte, under the roof of array and memory."""
    figure, axes = pyplot.subplots(figsize=(11, 7), layout="constrained")
    shown = [item for item in profile.layers if item.layer.macs and item.dram_bytes and item.cycles]
    peak, slope = profile.config.macs_per_cycle, profile.dram.bytes_per_cycle
    places = [(item.layer.macs / item.dram_bytes, item.layer.macs / item.cycles) for item in shown]
    low_x = min([x for x, _ in places] + [peak / slope]) / 2
    high_x = max([2 * x for x, _ in places] + [4 * peak / slope])  # room for words beside the ridge
    low_y = min([y for _, y in places] + [low_x * slope]) / 2
    high_y = max([y for _, y in places] + [peak]) * 2.5
    axes.set(xscale="log", yscale="log", xlim=(low_x, high_x), ylim=(low_y, high_y))
    grid = np.geomspace(low_x, high_x, 200)
    axes.plot(grid, np.minimum(peak, grid * slope), color="#333333", linewidth=1.6, zorder=2)
    axes.axvline(peak / slope, color="#999999", linewidth=0.8, linestyle=":", zorder=1)
    for side, align, text in (
        (1 / 1.04, "right", f"DRAM is the limit:\n{slope} bytes a cycle"),
        (1.04, "left", f"the array is the limit:\n{peak:,} MACs a cycle"),
    ):
        place = (peak / slope * side, high_y / 1.12)
        axes.text(*place, text, ha=align, va="top", color="#333333", fontsize=9, linespacing=1.4)
    total = max(1, profile.cycles)
    used: dict[str, str] = {}
    for item, (x, y) in zip(shown, places, strict=True):
        label, colour = _point_class(item)
        used[label] = colour
        size = 30 + 1500 * item.cycles / total
        axes.scatter(x, y, s=size, color=colour, alpha=0.75, edgecolors="white", linewidths=0.8, zorder=3)
    share = profile.utilisation(profile.macs, profile.cycles)
    axes.set_title(
        f"roofline of {profile.name} on {profile.config.name}, device {profile.device}: "
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
        handles=handles, loc="lower right", title="area: the layer's cycles; colour: what limits it", fontsize=9
    )
    figure.canvas.draw()  # fixes the layout, which the texts below follow and must not change
    _label_points(figure, axes, shown, places, np.stack([grid, np.minimum(peak, grid * slope)], axis=1))
    return figure


def _point_class(item: LayerProfile) -> tuple[str, str]:
    """Label and colour: whether the array was the limit, or else what the layer lost most cycles to."""
    if item.verdict.startswith("array-bound") or item.worst is None:
        if item.verdict.endswith("padding"):
            return "array-bound, padded lanes", _PADDED_COLOUR
        return "array-bound", COLOURS["BUSY"]
    lost_to = CLASS_OF_CAUSE[item.worst]
    return WORDS[lost_to], COLOURS[lost_to]


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


def _some(names: Sequence[str], count: int = 8) -> str:
    return ", ".join(names[:count]) + (f" and {len(names) - count} more" if len(names) > count else "")
