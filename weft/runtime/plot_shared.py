"""The timeline of cores that share a model: which works on what, and which waits."""

from __future__ import annotations

from typing import Any

from .plot_timeline import name_row
from .profile_shared import SharedProfile

SHADES = ("#2b6ca3", "#8fc1e3")
"""Of the items or turns, in turn."""

WAITS = "#efe3d0"


def shared_timeline(profile: SharedProfile, pyplot: Any) -> Any:
    """A row for each core: its programs in two shades, one after the other by item or turn, and its waits between."""
    count = len(profile.config.cores)
    figure, axes = pyplot.subplots(
        count, 1, figsize=(16, 1.1 + 0.8 * count), sharex=True, layout="constrained", squeeze=False
    )
    scale, unit = (1e6, "million cycles") if profile.cycles >= 2_000_000 else (1e3, "thousand cycles")
    split = profile.model.shared_by > 1
    for core, axis in enumerate(axes[:, 0]):
        axis.axvspan(0, profile.cycles / scale, color=WAITS, linewidth=0)
        for place, shade in enumerate(SHADES):
            own = [each for each in profile.work[core] if (each.turn if split else each.item) % len(SHADES) == place]
            spans = [(each.start / scale, each.cycles / scale) for each in own]
            axis.broken_barh(spans, (0, 1), facecolors=shade, linewidth=0)
        waits = profile.waits[core]
        most = max(waits, key=lambda other: waits[other], default=core)
        told = f"waits {sum(waits.values()):,} cycles" + (f", most for core {most}" if most != core else "")
        name_row(axis, f"core {core}: {profile.busy(core) / profile.cycles:.0%} busy", told)
        axis.set(ylim=(0, 1), yticks=[], xlim=(0, profile.cycles / scale))
        for side in ("top", "right", "left"):
            axis.spines[side].set_visible(False)
    axes[-1, 0].set_xlabel(unit)
    items, what = ("1 item", "a turn") if profile.items == 1 else (f"{profile.items} items", "an item")
    figure.suptitle(
        f"{profile.model.name} on {profile.config.name}: {items} in {profile.cycles:,} cycles; "
        f"shades of blue: {what} after the other, sand: a core waits"
    )
    return figure
