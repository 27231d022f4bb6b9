"""The roofline of a profile on a processor: a point for each kernel, under the roofs of arithmetic and memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .machine_roof import MachineRoof
from .profile_host import KernelProfile

COLOURS = {"compute": "#1f6fb2", "memory": "#b08fd8", "call": "#999999", "NumPy": "#c43c39", "": "#e08a2c"}
LABELS = {"compute": "bound by arithmetic", "memory": "bound by memory", "call": "too short to tell",
          "NumPy": "runs in NumPy", "": "far from every bound"}  # fmt: skip
NAMED = 8
"""Of the kernels so many are named: those that take longest."""


def host_roofline(name: str, kernels: Sequence[KernelProfile], roof: MachineRoof, pyplot: Any) -> Any:
    """10^9 operations a second over operations a byte; the area of a point is the kernel's time."""
    figure, axes = pyplot.subplots(figsize=(11, 7), layout="constrained")
    shown = [each for each in kernels if each.operations and each.nbytes and each.seconds]
    left_out = len(kernels) - len(shown)
    xs, ys = [each.intensity for each in shown] or [1.0], [each.gops for each in shown] or [1.0]
    top = max(roof.float_gops, roof.byte_gops)
    low_x, high_x = min(*xs, 0.1) / 2, max(*xs, 100.0) * 2
    axes.set(xscale="log", yscale="log", xlim=(low_x, high_x), ylim=(min(*ys, top) / 3, top * 2.5))
    grid = np.geomspace(low_x, high_x, 200)
    for size, rate in (roof.gbytes[0], roof.gbytes[-1]):
        axes.plot(grid, np.minimum(top, grid * rate), color="#333333", linewidth=1.4, zorder=2)
        place = "first cache" if size == roof.gbytes[0][0] else "memory"
        axes.annotate(f"{place}: {rate:.0f} GB/s", (low_x * 1.3, low_x * 1.3 * rate), fontsize=8, rotation=30,
                      xytext=(0, 6), textcoords="offset points", color="#333333")  # fmt: skip
    for rate, word in ((roof.float_gops, "float32"), (roof.byte_gops, "bytes")):
        axes.axhline(rate, color="#333333", linewidth=0.8, linestyle=":", zorder=1)
        axes.annotate(f"{word}: {rate:.0f} Gop/s", (high_x / 1.1, rate), ha="right", va="bottom", fontsize=8)
    total = sum(each.seconds for each in kernels) or 1.0
    for each in shown:
        axes.scatter(each.intensity, each.gops, s=20 + 1500 * each.seconds / total, color=COLOURS[each.bound(roof)],
                     alpha=0.75, edgecolors="white", linewidths=0.8, zorder=3)  # fmt: skip
    for each in sorted(shown, key=lambda each: -each.seconds)[:NAMED]:
        axes.annotate(each.layer.name[:40], (each.intensity, each.gops), fontsize=7, xytext=(6, 4),
                      textcoords="offset points", zorder=4)  # fmt: skip
    used = dict.fromkeys(each.bound(roof) for each in shown)
    handles = [axes.scatter([], [], s=60, color=COLOURS[key], label=LABELS[key]) for key in used]
    axes.legend(handles=handles, loc="lower right", fontsize=9, title="area: the kernel's time")
    note = f"\nnot shown, because they only move data: {left_out} kernels" if left_out else ""
    axes.set_xlabel(f"operations / byte read or written{note}")
    axes.set_ylabel("10^9 operations / second")
    where = f"{name} on {roof.processor}, threads: {roof.threads}"
    axes.set_title(f"{where}: {total * 1e3:.3f} ms in {len(kernels)} kernels")
    axes.grid(True, which="both", color="#e6e6e6", linewidth=0.5, zorder=0)
    return figure
