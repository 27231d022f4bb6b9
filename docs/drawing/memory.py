"""Peak memory of a step of training against its time: what `benchmarks/training/memory.py` measured."""

from __future__ import annotations

import json
from pathlib import Path

from .svg import SOFT, Sheet

MEASURED = Path(__file__).parents[1] / "measured" / "train_memory.json"
"""Written by ``python benchmarks/training/memory.py resnet50 --json docs/measured/train_memory.json``."""

WIDTH, HEIGHT = 640, 380
LEFT, RIGHT, TOP, BOTTOM = 70, 610, 80, 320
MIB = 1 << 20


def draw() -> str:
    """The picture as SVG: a point for each step that was planned, the bounds that it meets beside it."""
    workload, points = measured(json.loads(MEASURED.read_text()))
    slowest, largest = max(time for _, time in points.values()), max(peak for peak, _ in points.values())
    last, most = 0.1 * (int(slowest * 10) + 2), 20 * MIB * (largest // (20 * MIB) + 1)
    sheet = Sheet(WIDTH, HEIGHT, "Peak memory of a step of training against its time")
    sheet.text(24, 32, "Forward values computed again: peak memory against time", size=16, bold=True)
    sheet.text(24, 54, f"{workload}; between kernels, as planned", colour=SOFT)

    def across(time: float) -> float:
        return LEFT + (time - 1) / (last - 1) * (RIGHT - LEFT)

    def up(peak: float) -> float:
        return BOTTOM - peak / most * (BOTTOM - TOP)

    for tenth in range(10, round(last * 10) + 1):
        sheet.line([(across(tenth / 10), BOTTOM), (across(tenth / 10), BOTTOM + 4)])
        sheet.text(across(tenth / 10) - 9, BOTTOM + 20, f"{tenth / 10:.1f}", size=11)
    for peak in range(0, most + 1, most // 4):
        sheet.line([(LEFT - 4, up(peak)), (LEFT, up(peak))])
        sheet.text(LEFT - 34, up(peak) + 4, f"{peak / MIB:.0f}", size=11)
    sheet.line([(LEFT, TOP), (LEFT, BOTTOM), (RIGHT, BOTTOM)])
    sheet.text(24, TOP - 8, "MiB", size=11, colour=SOFT)
    sheet.text(RIGHT - 160, BOTTOM + 42, "time, all kept = 1.0", size=11, colour=SOFT)
    curve = sorted(points.values(), key=lambda each: -each[0])
    sheet.line([(across(time), up(peak)) for peak, time in curve])
    for bounds, (peak, time) in points.items():
        sheet.box(across(time) - 4, up(peak) - 4, 8, 8, "#1f6feb", "#1f6feb")
        sheet.text(across(time) + 9, up(peak) - 8, f"{bounds}: {peak / MIB:.1f} MiB, {time:.2f}", size=11)
    return sheet.svg()


def measured(records: list[dict[str, object]]) -> tuple[str, dict[str, tuple[int, float]]]:
    """The workload, and the peak and time of each step, by the bounds that led to it. Bounds with one peak have one
    step: its time is the least of theirs."""
    figures = {(str(each["config"]), str(each["figure"])): each["value"] for each in records}
    ways = list(dict.fromkeys(way for way, _ in figures))
    by_peak: dict[int, list[str]] = {}
    for way in ways:
        by_peak.setdefault(int(str(figures[way, "planned peak, bytes"])), []).append(way)
    points = {}
    for peak, alike in by_peak.items():
        time = min(float(str(figures[way, "time of a step, ratio"])) for way in alike)
        points[alike[0] if len(alike) == 1 else f"{alike[0]} to {alike[-1]}"] = (peak, time)
    return str(records[0]["workload"]), points
