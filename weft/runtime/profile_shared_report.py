"""The profile of a model that cores share, as records and tables."""

from __future__ import annotations

from itertools import groupby

import numpy as np
from rich.console import RenderableType

from ..compiler.model import CompiledModel, CoreStep
from .colours import CAUSE_NAMES
from .profile_cycles import Cause, ProgramCycles, totals
from .profile_shared import SharedProfile, Work
from .tables import Record, count, records_table, share, words

TURNS_SHOWN = 16


def layer_names(model: CompiledModel, steps: list[CoreStep]) -> list[str]:
    """Names of the layers in programs."""
    return list(dict.fromkeys(model.layers[layer].name for step in steps for layer in step.layer_of))


def core_records(profile: SharedProfile) -> list[Record]:
    """For each core its cycles in programs, what the bus cost it, and its waits by the core that it waited for."""
    cores = range(len(profile.config.cores))
    return [
        {
            "core": str(core),
            "port": profile.config.ports[core],
            "programs": len(profile.work[core]),
            "busy": profile.busy(core),
            "of_all": profile.busy(core) / profile.cycles,
            "bus": profile.waited(core),
            **{f"for_{other}": profile.waits[core].get(other, 0) for other in cores if other != core},
            "starts": profile.waits[core].get(core, 0),
        }
        for core in cores
    ]


def core_table(profile: SharedProfile) -> RenderableType:
    """:func:`core_records`."""
    columns = [
        words("core"), count("port"), count("programs"), count("busy", "cycles in them"), share("of_all", "of all"),
        count("bus", "cost by the bus", zero="·"),
        *(count(f"for_{core}", f"waits for {core}", zero="·") for core in range(len(profile.config.cores))),
        count("starts", "starts", zero="·"),
    ]  # fmt: skip
    kind = f"{profile.model.shared_by} parts" if profile.model.shared_by > 1 else f"{profile.model.stages} stages"
    items = "1 item" if profile.items == 1 else f"{profile.items} items"
    starts = "1 start" if profile.starts == 1 else f"{profile.starts} starts"
    title = (
        f"{profile.model.name} in {kind} on {profile.config.name}: {items} in {profile.cycles:,} cycles, "
        f"by {starts} of the host"
    )
    own = [{**record, f"for_{core}": None} for core, record in enumerate(core_records(profile))]
    return records_table(title, columns, own)


def cause_records(profile: SharedProfile) -> list[Record]:
    """For each core, of a profile with traces, its cycles in programs by what its array did or waited for."""
    records: list[Record] = []
    for core, own in enumerate(profile.work):
        sums = np.zeros(len(Cause), np.int64)
        for work in own:
            queue = profile.model.on_core.config_of(work.step).queue_depth
            edges = np.array([0, work.cycles])
            sums += totals(edges, [ProgramCycles(work.run, queue).causes], [len(Cause)])[0]
        causes = {cause.name.lower(): int(sums[cause]) for cause in Cause if cause is not Cause.RAMP}
        records.append({"core": str(core), "busy": profile.busy(core), **causes})
    return records


def cause_table(profile: SharedProfile) -> RenderableType:
    """:func:`cause_records`."""
    shown = [cause for cause in Cause if cause is not Cause.RAMP]
    columns = [
        words("core"), count("busy", "cycles in programs"),
        *(count(cause.name.lower(), CAUSE_NAMES[cause], zero="·") for cause in shown),
    ]  # fmt: skip
    return records_table("what the arrays wait for in programs (cycles)", columns, cause_records(profile))


def turn_records(profile: SharedProfile) -> list[Record]:
    """For each turn of an item (of a model in stages: each program of a stage) the cycles of each core, and how many
    cycles all cores together have nothing to do beside the longest; in the order of the turns."""
    cores = range(len(profile.config.cores))
    steps = [each for own in profile.work for each in own if each.item == 0]
    steps.sort(key=lambda each: (each.step.stage, each.turn, each.step.core))
    records: list[Record] = []
    for (stage, turn), group in groupby(steps, key=lambda each: (each.step.stage, each.turn)):
        own: list[Work] = list(group)
        cycles = {each.step.core if profile.model.shared_by > 1 else stage: each.cycles for each in own}
        most = max(cycles.values())
        records.append(
            {
                "turn": f"{stage}" if profile.model.shared_by == 1 else f"{turn}",
                "layers": layer_names(profile.model, [each.step for each in own]),
                **{f"core_{core}": cycles.get(core) for core in cores},
                "longest": most,
                "idle": sum(most - each for each in cycles.values()),
            }
        )
    return records


def turn_table(profile: SharedProfile) -> RenderableType:
    """Those of :func:`turn_records` in which most is lost, or all stages."""
    split = profile.model.shared_by > 1
    records = turn_records(profile)
    if split:
        records = sorted(records, key=lambda record: -record["idle"])[:TURNS_SHOWN]
    columns = [
        words("turn", "turn" if split else "stage"), words("layers", fold=True),
        *(count(f"core_{core}", f"core {core}") for core in range(len(profile.config.cores))),
        *([count("idle", "idle beside the longest")] if split else []),
    ]  # fmt: skip
    return records_table("turns in which most is lost" if split else "stages", columns, records)
