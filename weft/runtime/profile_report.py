"""The profile as records and tables: where each layer's cycles went, what it could reach, what other hardware does."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from rich.console import Group, RenderableType
from rich.text import Text

from ..compiler.model import CompiledModel
from ..hw.dram_rate import DramRate
from .colours import CAUSE_NAMES
from .profile import Profile
from .profile_cycles import Cause
from .profile_whatif import Outcome
from .tables import Column, Record, count, records_table, share, total_of, words

_GEMM_CLASSES = (
    *("busy", "token_load", "token_loadw", "token_vector", "token_store"),
    *("memory", "instruction", "conflict", "send", "idle"),
)
_NONE = "·"
_DITTO = '"'
"""As in the row above, with which it is counted together."""


def cause_records(profile: Profile) -> list[Record]:
    """For each layer its cycles by what the array did or, through all waits, waited for; these sum to its cycles."""
    return [
        {
            "layer": item.layer.name,
            "cycles": item.cycles,
            "utilisation": profile.utilisation(item.layer.macs, item.cycles) if item.layer.macs else None,
            **{cause.name.lower(): item.causes[cause] for cause in Cause},
            "verdict": item.verdict,
        }
        for item in profile.layers
    ]


def cause_table(profile: Profile) -> RenderableType:
    """:func:`cause_records`, their sum, and its parts of the run."""
    records = cause_records(profile)
    keys = [cause.name.lower() for cause in Cause]
    total = total_of(records, "cycles", *keys)
    run = {"layer": "total", **total, "utilisation": profile.utilisation(profile.macs, profile.cycles)}
    parts = {key: f"{total[key] / profile.cycles:.1%}" if total[key] else "" for key in keys}
    columns = [
        words("layer"), count("cycles"), share("utilisation"),
        *(count(cause.name.lower(), CAUSE_NAMES[cause], zero=_NONE) for cause in Cause), words("verdict", fold=True),
    ]  # fmt: skip
    title = f"{profile.name} on {profile.config.name}, device {profile.device}: why is it slow (cycles)"
    return records_table(title, columns, records, [run, parts])


def bound_records(profile: Profile, least: Sequence[Record] = ()) -> list[Record]:
    """For each layer the cycles that it needs at least, and how many times the greatest of them it takes. ``least``:
    of each layer, what else is known of the best that a program reaches (`tune.least_report.layer_records`)."""
    records = [
        {
            "layer": item.layer.name,
            "kind": item.layer.kind,
            "compute": item.bounds.compute,
            "array": item.bounds.array,
            "vector": item.bounds.vector,
            "memory": item.bounds.memory,
            "dram_bytes": item.dram_bytes,
            "macs_per_byte": item.layer.macs / item.dram_bytes if item.layer.macs and item.dram_bytes else None,
            "cycles": item.cycles,
            "limit": item.bounds.limit,
            "times_the_limit": item.cycles / item.bounds.limit if item.bounds.limit else None,
            "bound_by": item.bounds.kind,
        }
        for item in profile.layers
    ]
    return [{**record, **more} for record, more in zip(records, least, strict=True)] if least else records


def bound_table(profile: Profile, least: Sequence[Record] = (), least_cycles: int = 0) -> RenderableType:
    """:func:`bound_records`, and their sum. Layers that share what no program gets below are shown with it once.
    ``least_cycles``: what no program for the whole gets below."""
    records = bound_records(profile, least)
    total = {
        "layer": "total",
        **total_of(records, "compute", "array", "vector", "memory", "dram_bytes", "cycles", "limit"),
    }
    total["macs_per_byte"] = profile.macs / total["dram_bytes"] if total["dram_bytes"] else None
    total["times_the_limit"] = total["cycles"] / total["limit"] if total["limit"] else None
    columns = [
        words("layer"), words("kind"), count("compute", "useful MACs", zero=_NONE),
        count("array", "with padding", zero=_NONE), count("vector", zero=_NONE), count("memory", zero=_NONE),
        count("dram_bytes", "DRAM bytes"), Column("macs_per_byte", "MACs/byte", "{:.1f}".format, number=True),
        count("cycles"), Column("times_the_limit", "of the bound", "{:.2f}x".format, number=True),
        words("bound_by", "bound by"),
    ]  # fmt: skip
    if least:
        columns.append(Column("times_the_least", "of the least", "{:.3f}x".format, number=True))
        total["times_the_least"] = total["cycles"] / least_cycles if least_cycles else None
        shared = [each["least_of"] == before["least_of"] for before, each in pairwise(records)]
        records = [{**each, "times_the_least": _DITTO} if same else each
                   for each, same in zip(records, [False, *shared], strict=True)]  # fmt: skip
    return records_table("what each layer needs at least (cycles)", columns, records, [total])


def gemm_records(profile: Profile) -> list[Record]:
    """For each layer the gemm engine's own cycles by class: at work, or waiting for a token, and of which engine."""
    return [
        {"layer": item.layer.name, "cycles": item.cycles, **{kind: item.gemm[kind] for kind in _GEMM_CLASSES}}
        for item in profile.layers
    ]


def gemm_table(profile: Profile) -> RenderableType:
    """:func:`gemm_records`, without the classes that do not occur, and their sum."""
    records = gemm_records(profile)
    total = total_of(records, "cycles", *_GEMM_CLASSES)
    classes = [count(kind, kind.replace("_", " of "), zero=_NONE) for kind in _GEMM_CLASSES if total[kind]]
    columns = [words("layer"), count("cycles"), *classes]
    title = "what the gemm engine did in the layer's cycles"
    return records_table(title, columns, records, [{"layer": "total", **total}])


def outcome_records(outcomes: Sequence[Outcome]) -> list[Record]:
    """For each hardware its cycles, whole and by layer, by the timing model; None and the reason where there is no
    figure. The first is the core as it is."""
    base = outcomes[0].cycles if outcomes else None
    return [
        {
            "hardware": outcome.name,
            "cycles": outcome.cycles,
            "speedup": base / outcome.cycles if base and outcome.cycles else None,
            "layers": dict(outcome.layers),
            "why": outcome.why,
        }
        for outcome in outcomes
    ]


def outcome_table(outcomes: Sequence[Outcome]) -> RenderableType:
    """:func:`outcome_records`, a column for each hardware; then the hardware without a figure, and why."""
    base, *others = outcome_records(outcomes)
    predicted = [base, *(record for record in others if record["cycles"] is not None)]
    names = [record["hardware"] for record in predicted]

    def row(title: str, cycles: Sequence[int | None]) -> Record:
        first, *rest = cycles
        texts = [f"{first:,}" if first else _NONE, *(_change(each, first) for each in rest)]
        return {"layer": title, **dict(zip(names, texts, strict=True))}

    rows = [row(layer, [record["layers"].get(layer) for record in predicted]) for layer in base["layers"]]
    total = row("total", [record["cycles"] for record in predicted])
    columns = [words("layer"), *(Column(name, name, number=True) for name in names)]
    table = records_table("what other hardware would change (cycles, by the timing model)", columns, rows, [total])
    reasons = (Text(f"{record['hardware']}: no figure, {record['why']}") for record in others if record["why"])
    return Group(table, *reasons)


def _change(cycles: int | None, base: int | None) -> str:
    if cycles is None or not base:
        return "-"
    return f"{cycles:,} ({base / cycles:.2f}x)" if cycles else "0"


def memory_note(model: CompiledModel, dram: DramRate) -> str:
    """What to tell if schedules were chosen for memory of another rate than ``dram``; empty if they were not.

    Artifacts of before do not say what they were scheduled for; nothing is told of them.
    """
    try:
        chosen = (int(model.statistics["dram_bytes_per_cycle"]), int(model.statistics["dram_latency"]))
    except KeyError:
        return ""
    bus = model.config.bus_bytes
    if (min(chosen[0], bus), chosen[1]) == (dram.for_bus(model.config), dram.latency):
        return ""
    return (
        f"Schedules were chosen for DRAM of {chosen[0]} bytes a cycle and a latency of {chosen[1]}; this one has "
        f"{dram.bytes_per_cycle} and {dram.latency}: compiled with --dram {dram.bytes_per_cycle},{dram.latency} "
        "it may be faster here."
    )
