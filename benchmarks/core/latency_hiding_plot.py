"""The picture of what latency hiding is worth: a roofline, each layer once for each step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_COLOURS = ("#c44e52", "#dd8452", "#4c72b0", "#55a868")
_MARKS = ("v", "s", "o", "^")


@dataclass(frozen=True)
class Point:
    """Work: multiply-accumulates, cycles, bytes to and from DRAM."""

    macs: int
    cycles: int
    bytes_moved: int

    @property
    def rate(self) -> float:
        """Multiply-accumulates a cycle."""
        return self.macs / self.cycles

    @property
    def intensity(self) -> float:
        """Multiply-accumulates a byte of DRAM."""
        return self.macs / self.bytes_moved


def draw(
    path: Path, points: Mapping[str, Sequence[Point]], steps: Sequence[str], peak: int, bytes_per_cycle: float
) -> None:
    """Write the roofline: ``points`` has one point for each of the ``steps`` and layer, ``peak`` is in
    multiply-accumulates a cycle. Needs matplotlib: ``weft[plot]``."""
    import matplotlib  # only this picture needs it

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "weft"  # the same figures give the same file
    import matplotlib.pyplot as plt

    figure, axis = plt.subplots(figsize=(8.5, 5), layout="constrained")
    intensities = [point.intensity for each in points.values() for point in each]
    least, most = min(intensities) / 1.3, max(intensities) * 1.3
    ridge = peak / bytes_per_cycle
    axis.plot([least, max(ridge, least), most], [min(peak, least * bytes_per_cycle), peak, peak], color="black")
    axis.annotate(f"array: {peak} a cycle", (most, peak), (-4, 4), textcoords="offset points", ha="right", fontsize=8)
    for name, each in points.items():
        axis.plot([p.intensity for p in each], [p.rate for p in each], color="grey", linewidth=0.6, zorder=1)
        axis.annotate(name, (each[0].intensity, each[0].rate), (0, -11), textcoords="offset points", ha="center",
                      fontsize=7)  # fmt: skip
    for number, (step, colour, mark) in enumerate(zip(steps, _COLOURS, _MARKS, strict=True)):
        chosen = [each[number] for each in points.values()]
        axis.scatter([p.intensity for p in chosen], [p.rate for p in chosen], color=colour, marker=mark, s=26,
                     label=step, zorder=2)  # fmt: skip
    axis.set(xscale="log", xlabel="multiply-accumulates a byte of DRAM", ylabel="multiply-accumulates a cycle",
             ylim=(0, peak * 1.08))  # fmt: skip
    axis.grid(alpha=0.3, which="both")
    axis.legend(loc="lower right", fontsize=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120, metadata={"Date": None} if path.suffix == ".svg" else None)
    plt.close(figure)
