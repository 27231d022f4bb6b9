"""The picture of the convolution layers under other DRAM latencies and bandwidths."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

Memory = tuple[int, int, int]
"""(virtual threads, latency in cycles, bytes a cycle)"""

_COLOURS = ("#c44e52", "#4c72b0", "#55a868", "#8172b2")
_STYLES = (":", "--", "-", "-.")


def draw(path: Path, shares: Mapping[Memory, Mapping[str, float]], weighted: Mapping[Memory, float]) -> None:
    """Write a PNG and an SVG (``path`` with these endings): C2..C12 together over the latency, and every layer.

    ``shares``: utilisation of each layer; ``weighted``: of C2..C12 together. Needs matplotlib: ``weft[plot]``.
    """
    import matplotlib  # only this picture needs it

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    threads = sorted({memory[0] for memory in shares})
    latencies = sorted({memory[1] for memory in shares})
    bandwidths = sorted({memory[2] for memory in shares})
    figure, (lines, grid) = plt.subplots(1, 2, figsize=(13, 4.8), width_ratios=(1, 1.5), layout="constrained")
    for bandwidth, colour in zip(bandwidths, _COLOURS, strict=False):
        for count, style in zip(reversed(threads), reversed(_STYLES[-len(threads) - 1 : -1]), strict=True):
            values = [100 * weighted[count, latency, bandwidth] for latency in latencies]
            label = f"{bandwidth} B/cycle, {count} virtual thread{'s' if count > 1 else ''}"
            lines.plot(latencies, values, style, color=colour, marker="o", markersize=4, label=label)
    lines.set(xlabel="DRAM latency (cycles)", ylabel="utilisation of the array (%)", xticks=latencies)
    lines.set_title("C2..C12 together, weighted by work")
    lines.grid(alpha=0.3)
    lines.legend(fontsize=8)

    columns = [(bandwidth, latency) for bandwidth in bandwidths for latency in latencies]
    names = list(next(iter(shares.values())))
    most = threads[-1]
    table = [[100 * shares[most, latency, bandwidth][name] for bandwidth, latency in columns] for name in names]
    picture = grid.imshow(table, aspect="auto", cmap="viridis", vmin=0, vmax=100)
    for row, values in enumerate(table):
        for column, value in enumerate(values):
            grid.text(column, row, f"{value:.0f}", ha="center", va="center", fontsize=7,
                      color="white" if value < 60 else "black")  # fmt: skip
    grid.set_xticks(range(len(columns)), [f"{latency}" for _, latency in columns])
    grid.set_yticks(range(len(names)), names)
    parts = ", ".join(map(str, bandwidths))
    grid.set_xlabel(f"DRAM latency (cycles); bandwidth {parts} B/cycle from left to right")
    for edge in range(1, len(bandwidths)):
        grid.axvline(edge * len(latencies) - 0.5, color="white", linewidth=2)
    grid.set_title(f"utilisation of each layer (%), {most} virtual threads")
    figure.colorbar(picture, ax=grid)
    path.parent.mkdir(parents=True, exist_ok=True)
    for ending in (".png", ".svg"):
        figure.savefig(path.with_suffix(ending), dpi=120)
    plt.close(figure)
