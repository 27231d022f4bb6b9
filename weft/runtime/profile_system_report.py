"""The profile of several cores as records and tables."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import RenderableType

from .colours import CAUSE_NAMES
from .profile_cycles import Cause
from .profile_system import PortProfile, SystemProfile
from .tables import Record, count, records_table, share, words

LAYERS_SHOWN = 12


def core_records(profile: SystemProfile) -> list[Record]:
    """For each core its cycles, those of a core alone, and the difference by what the array waited for."""
    return [
        {
            "core": str(each.core),
            "port": each.port,
            "cycles": each.together.cycles,
            "alone": each.alone.cycles,
            "waited": each.waited,
            **{cause.name.lower(): each.lost[cause] for cause in Cause},
            "bursts_read": each.bursts_read,
            "bursts_shared": each.bursts_shared,
        }
        for each in profile.cores
    ]


def core_table(profile: SystemProfile) -> RenderableType:
    """:func:`core_records`."""
    columns = [
        words("core"), count("port"), count("cycles"), count("alone"), count("waited"),
        *(count(cause.name.lower(), CAUSE_NAMES[cause], zero="·") for cause in Cause if cause is not Cause.ARRAY),
        count("bursts_read", "bursts read"), count("bursts_shared", "shared"),
    ]  # fmt: skip
    title = (
        f"{profile.name} on {profile.config.name}: {len(profile.cores)} items in {profile.cycles:,} cycles, "
        f"{profile.throughput:.2f} x the throughput of one core; what the others cost each core (cycles)"
    )
    return records_table(title, columns, core_records(profile))


def bus_records(ports: Sequence[PortProfile]) -> list[Record]:
    """For each port that cores share, and each core on it, parts of the run in which its words pass."""
    records: list[Record] = []
    for port in ports:
        rows: list[tuple[str, int | None]] = [(str(core), core) for core in port.cores]
        for name, core in [*rows, ("several", None)]:
            reads, writes = (port.words(core, writes=kind) for kind in (False, True))
            records.append(
                {
                    "port": port.port,
                    "core": name,
                    "words_read": reads,
                    "words_written": writes,
                    "reads": reads / port.cycles,
                    "writes": writes / port.cycles,
                }
            )
    return records


def bus_table(ports: Sequence[PortProfile]) -> RenderableType:
    """:func:`bus_records`."""
    columns = [
        count("port"), words("core"), count("words_read", "words read"), count("words_written", "words written"),
        share("reads", "of all cycles: reads"), share("writes"),
    ]  # fmt: skip
    return records_table("who has the bus", columns, bus_records(ports))


def layer_records(profile: SystemProfile) -> list[Record]:
    """For each layer the cycles of a core alone, and of the core that lost most in it; the greatest loss first."""
    records: list[Record] = []
    for place, alone in enumerate(profile.cores[0].alone.layers):
        spans = {each.core: each.together.layers[place] for each in profile.cores}
        core = max(spans, key=lambda number: spans[number].cycles)
        most = spans[core]
        causes = {cause: most.causes[cause] - alone.causes[cause] for cause in Cause}
        worst = max(causes, key=lambda cause: causes[cause])
        records.append(
            {
                "layer": alone.layer.name,
                "alone": alone.cycles,
                "cycles": most.cycles,
                "core": str(core),
                "lost": most.cycles - alone.cycles,
                "to": CAUSE_NAMES[worst] if causes[worst] > 0 else "",
                "bound": alone.bounds.kind,
            }
        )
    return sorted(records, key=lambda record: -record["lost"])


def layer_table(profile: SystemProfile) -> RenderableType:
    """The first of :func:`layer_records`."""
    columns = [
        words("layer"), count("alone"), count("cycles", "at most"), words("core", "on core"), count("lost"),
        words("to", "most of it to"), words("bound", "alone bound by"),
    ]  # fmt: skip
    return records_table("layers that lose most", columns, layer_records(profile)[:LAYERS_SHOWN])
