"""Small pictures for the tutorials: bars, points under a roof, and what each engine did when.

All take plain figures and give SVG text. The same figures give the same text, on every machine.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt
from weft.hw.isa import Engine
from weft.runtime.colours import CLASS_OF_KIND, COLOURS, WORDS
from weft.sim.result import Trace

from .svg import LINE, SOFT, Sheet, width_of

BLUE, RED, GREY = "#2f6690", "#d1495b", "#8d99ae"
WIDTH, LEFT, RIGHT = 760, 170, 736


def bars(title: str, values: Mapping[str, float], unit: str, note: str = "") -> str:
    """A horizontal bar for each name, from 0, with its figure behind it."""
    top = 74 if note else 52
    sheet = Sheet(WIDTH, top + 32 * len(values) + 16, title)
    sheet.text(24, 32, title, size=16, bold=True)
    if note:
        sheet.text(24, 54, note, colour=SOFT)
    left = 36 + max(width_of(name, 13) for name in values)
    most = max(values.values())
    room = WIDTH - left - 160
    for row, (name, value) in enumerate(values.items()):
        y = top + 32 * row
        sheet.text(left - 12, y + 16, name, anchor="end")
        sheet.box(left, y, max(1.0, round(room * value / most, 1)), 22, BLUE, BLUE, radius=2)
        text = f"{value:,.0f}" if value >= 100 else f"{value:,.3g}"
        sheet.text(left + round(room * value / most, 1) + 8, y + 16, f"{text} {unit}")
    return sheet.svg()


def timeline(title: str, runs: Mapping[str, Trace], bins: int = 400) -> str:
    """What each engine did, for one run or several below each other, on one scale of cycles.

    ``runs``: traces of programs by what they are called. A column of ``bins`` has the class that took most of its
    cycles.
    """
    last = max(int((each.activity["start"] + each.activity["cycles"]).max()) for each in runs.values())
    bins = min(bins, last)
    block = 26 + 24 * len(Engine)
    used: set[str] = set()
    classes = {name: _classes(trace, last, bins) for name, trace in runs.items()}
    for table in classes.values():
        used |= {CLASS_OF_KIND[int(kind)] for kind in np.unique(table)}
    shown = [name for name in WORDS if name in used]
    height = 56 + (block + 14) * len(runs) + 34 + 22 * math.ceil(len(shown) / 3) + 8
    sheet = Sheet(WIDTH, height, title)
    sheet.text(24, 32, title, size=16, bold=True)
    y = 56.0
    for name, table in classes.items():
        sheet.text(24, y + 12, name, colour=SOFT)
        for engine in Engine:
            row = y + 22 + 24 * engine
            sheet.text(LEFT - 12, row + 15, engine.name.lower(), anchor="end")
            _strip(sheet, row, table[engine])
        y += block + 14
    for part in range(5):
        x = LEFT + (RIGHT - LEFT) * part / 4
        sheet.line([(x, y - 6), (x, y)], colour=LINE)
        sheet.text(x, y + 14, f"{last * part / 4:,.0f}", size=11, colour=SOFT, anchor="middle" if part < 4 else "end")
    sheet.text(24, y + 14, "cycles", size=11, colour=SOFT)
    for place, name in enumerate(shown):
        x, row = 24 + 244 * (place % 3), y + 34 + 22 * (place // 3)
        sheet.box(x, row, 14, 14, COLOURS[name], LINE, radius=2)
        sheet.text(x + 21, row + 12, WORDS[name], size=11)
    return sheet.svg()


def _classes(trace: Trace, cycles: int, bins: int) -> npt.NDArray[np.int64]:
    """The class of most cycles, by engine and column."""
    edges = np.linspace(0, cycles, bins + 1).round().astype(np.int64)
    table = np.zeros((len(Engine), bins), np.int64)
    for engine in Engine:
        mine = trace.activity[trace.activity["engine"] == engine]
        each = np.zeros(cycles, np.int64)
        for start, count, kind in zip(
            mine["start"].tolist(), mine["cycles"].tolist(), mine["kind"].tolist(), strict=True
        ):
            each[start : start + count] = kind
        table[engine] = [np.bincount(each[a:b]).argmax() for a, b in pairwise(edges)]
    return table


def _strip(sheet: Sheet, y: float, kinds: npt.NDArray[np.int64]) -> None:
    """One row, a box for each run of equal columns."""
    change = np.flatnonzero(np.append(True, kinds[1:] != kinds[:-1]))
    ends = np.append(change[1:], len(kinds))
    step = (RIGHT - LEFT) / len(kinds)
    for first, end in zip(change.tolist(), ends.tolist(), strict=True):
        colour = COLOURS[CLASS_OF_KIND[int(kinds[first])]]
        sheet.box(round(LEFT + first * step, 1), y, round((end - first) * step, 1), 19, colour, "none", radius=0)


def points(
    title: str, series: Mapping[str, Sequence[tuple[float, float]]], across: str, up: str, *, joined: bool = True,
    names: Mapping[tuple[float, float], str] | None = None,
) -> str:  # fmt: skip
    """Points of several series, by default joined to lines. Both axes are linear; the one upwards starts at 0.

    ``names``: words beside single points.
    """
    every = [point for each in series.values() for point in each]
    xs, ys = _ticks([x for x, _ in every]), _ticks([0.0, *(y for _, y in every)])
    rows = math.ceil(len(series) / 3)
    sheet = Sheet(WIDTH, 356 + 18 * rows, title)
    sheet.text(24, 32, title, size=16, bold=True)
    left, right, top, bottom = 90, 716, 74 + 18 * rows, 298 + 18 * rows

    def place(x: float, y: float) -> tuple[float, float]:
        width, height = (x - xs[0]) / (xs[-1] - xs[0]), (y - ys[0]) / (ys[-1] - ys[0])
        return round(left + 16 + width * (right - left - 32), 1), round(bottom - height * (bottom - top), 1)

    for x in xs:
        sheet.text(place(x, ys[0])[0], bottom + 18, f"{x:,.10g}", size=11, anchor="middle")
    for y in ys:
        sheet.text(left - 8, place(xs[0], y)[1] + 4, f"{y:,.10g}", size=11, anchor="end")
        sheet.line([(left, place(xs[0], y)[1]), (right, place(xs[0], y)[1])], colour=LINE, width=0.6)
    sheet.line([(left, top - 8), (left, bottom), (right, bottom)])
    sheet.text(24, top - 14, up, size=12, colour=SOFT)
    sheet.text(right, bottom + 40, across, size=12, colour=SOFT, anchor="end")
    for (name, each), colour in zip(series.items(), (BLUE, RED, "#5a9367", "#8f2d56", GREY), strict=False):
        placed = [place(x, y) for x, y in each]
        if joined and len(placed) > 1:
            sheet.line(placed, colour=colour)
        for x, y in placed:
            sheet.box(x - 4, y - 4, 8, 8, colour, colour, radius=4)
        number = list(series).index(name)
        sheet.box(150 + 190 * (number % 3), 45 + 18 * (number // 3), 12, 12, colour, colour, radius=2)
        sheet.text(168 + 190 * (number % 3), 55 + 18 * (number // 3), name, size=12)
    for point, name in (names or {}).items():
        x, y = place(*point)
        sheet.text(x + (8 if x < 600 else -8), y - 8, name, size=11, anchor="start" if x < 600 else "end")
    return sheet.svg()


def _ticks(values: Sequence[float], wanted: int = 5) -> list[float]:
    """Round numbers at equal distances, from the last below all values to the first above them."""
    least, most = min(values), max(values)
    rough = (most - least or 1.0) / wanted
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough)
    first, last = math.floor(least / step), max(math.ceil(most / step), math.floor(least / step) + 1)
    return [float(f"{step * number:.10g}") for number in range(first, last + 1)]
