"""The timeline of several cores: what keeps each core's array from working, and who has the bus."""

from __future__ import annotations

import importlib
from typing import Any

from .colours import CLASS_OF_CAUSE, COLOURS, WORDS
from .plot_timeline import columns_of_legend, draw_stack, name_row
from .profile_cycles import Cause
from .profile_system import PortProfile, SystemProfile
from .profile_timeline import timeline

CORE_COLOURS = ("#1b9e77", "#d95f02", "#7570b3", "#e7298a", "#66a61e", "#a6761d", "#386cb0", "#c2a5cf")
SHARED = "#222222"
WRITES = "#c7d3dd"


def system_timeline(profile: SystemProfile, pyplot: Any, bins: int) -> Any:
    """A row for each core, in which every cycle has the colour of what its array did or waited for, and one for the bus
    of each port that cores share. A bin of several cycles is a stack of shares."""
    count = len(profile.cores) + len(profile.ports)
    figure, axes = pyplot.subplots(
        count, 1, figsize=(16, 1.4 + 1.25 * count), sharex=True, layout="constrained", squeeze=False
    )
    scale, unit = (1e6, "million cycles") if profile.cycles >= 2_000_000 else (1e3, "thousand cycles")
    used: set[str] = set()
    rows = list(axes[:, 0])
    for each, axis in zip(profile.cores, rows[: len(profile.cores)], strict=True):
        binned = timeline(each.together, bins, profile.cycles)
        shares = {CLASS_OF_CAUSE[cause]: binned.causes[:, cause] for cause in Cause}
        used |= draw_stack(axis, binned.edges, binned.edges / scale, shares, COLOURS)
        busy = shares["BUSY"].sum() / profile.cycles
        name_row(axis, f"core {each.core}: {busy:.0%} busy", f"the others cost {each.waited:,} cycles")
    buses: set[str] = set()
    for port, axis in zip(profile.ports, rows[len(profile.cores) :], strict=True):
        buses |= _draw_bus(axis, profile, port, bins, scale)
    rows[-1].set_xlabel(unit)
    rows[-1].set_xlim(0, profile.cycles / scale)
    for axis in rows:
        axis.set(ylim=(0, 1), yticks=[])
        for side in ("top", "right", "left"):
            axis.spines[side].set_visible(False)
    figure.suptitle(
        f"{profile.name} on {profile.config.name}: {len(profile.cores)} items in {profile.cycles:,} cycles, "
        f"{profile.throughput:.2f} x the throughput of one core"
    )
    patch = importlib.import_module("matplotlib.patches").Patch
    colours = bus_colours(profile)
    handles = [patch(facecolor=COLOURS[name], edgecolor="#cccccc", label=WORDS[name]) for name in WORDS if name in used]
    handles += [patch(facecolor=colours[name], edgecolor="#cccccc", label=name) for name in colours if name in buses]
    figure.legend(
        handles=handles, loc="outside lower center", ncols=columns_of_legend(len(handles)), fontsize=9, frameon=False
    )
    return figure


def bus_colours(profile: SystemProfile) -> dict[str, str]:
    """What has the bus, in the order in which it is stacked."""
    cores = {f"bus: reads of core {each.core}": CORE_COLOURS[each.core] for each in profile.cores}
    return {**cores, "bus: one read for several": SHARED, "bus: writes": WRITES}


def _draw_bus(axis: Any, profile: SystemProfile, port: PortProfile, bins: int, scale: float) -> set[str]:
    edges = timeline(profile.cores[0].together, bins, profile.cycles).edges
    shares = {f"bus: reads of core {core}": port.binned(edges, core, writes=False) for core in port.cores}
    shares["bus: one read for several"] = port.binned(edges, None, writes=False)
    shares["bus: writes"] = sum(
        (port.binned(edges, core, writes=True) for core in port.cores), port.binned(edges, None, writes=True)
    )
    taken = sum(int(share.sum()) for share in shares.values()) / port.cycles
    name_row(axis, f"bus {port.port}: {taken:.0%} busy", "words read and written")
    return draw_stack(axis, edges, edges / scale, shares, bus_colours(profile))
