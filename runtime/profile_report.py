"""The profile as tables: where each layer's cycles went, what it could reach, what other hardware would change."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table

from .profile import LayerProfile, Profile
from .profile_cycles import Cause
from .profile_whatif import Outcome

CAUSE_HEADINGS = {
    Cause.ARRAY: "array works",
    Cause.RAMP: "ramp",
    Cause.INPUTS: "activations",
    Cause.WEIGHTS: "weights",
    Cause.STORES: "stores",
    Cause.VECTOR: "vector",
    Cause.TOKENS: "tokens",
    Cause.INSTRUCTIONS: "instructions",
}

_GEMM_CLASSES = (
    *("busy", "token_load", "token_loadw", "token_vector", "token_store"),
    *("memory", "instruction", "conflict", "send", "idle"),
)


def cause_table(profile: Profile) -> Table:
    """For each layer its cycles by what the array did or, through all waits, waited for; a row sums to its cycles."""
    table = _table(
        f"{profile.name} on {profile.config.name}, device {profile.device}: why is it slow (cycles)",
        ["layer"], ["cycles", "utilisation", *CAUSE_HEADINGS.values()], ["verdict"],
    )  # fmt: skip
    for item in profile.layers:
        share = f"{profile.utilisation(item.layer.macs, item.cycles):.1%}" if item.layer.macs else "-"
        counts = [_count(item.causes[cause]) for cause in CAUSE_HEADINGS]
        table.add_row(item.layer.name, _count(item.cycles), share, *counts, item.verdict)
    table.add_section()
    sums = [sum(item.causes[cause] for item in profile.layers) for cause in CAUSE_HEADINGS]
    share = f"{profile.utilisation(profile.macs, profile.cycles):.1%}"
    table.add_row("total", _count(profile.cycles), share, *map(_count, sums), "")
    table.add_row("", "", "", *(f"{count / profile.cycles:.1%}" if count else "" for count in sums), "")
    return table


def bound_table(profile: Profile) -> Table:
    """For each layer what it needs at least, and how far from that it is."""
    table = _table(
        "what each layer needs at least (cycles)",
        ["layer", "kind"],
        ["useful MACs", "with padding", "vector", "memory", "DRAM bytes", "MACs/byte", "cycles", "of the bound"],
        ["bound by"],
    )
    for item in profile.layers:
        bounds = item.bounds
        table.add_row(
            item.layer.name,
            item.layer.kind,
            _count(bounds.compute),
            _count(bounds.array),
            _count(bounds.vector),
            _count(bounds.memory),
            f"{item.dram_bytes:,}",
            f"{item.layer.macs / item.dram_bytes:.1f}" if item.layer.macs and item.dram_bytes else "-",
            _count(item.cycles),
            f"{item.cycles / bounds.limit:.2f}x" if bounds.limit else "-",
            bounds.kind,
        )
    table.add_section()
    sums = [_sum(profile, lambda item: item.bounds.compute), _sum(profile, lambda item: item.bounds.array)]
    sums += [_sum(profile, lambda item: item.bounds.vector), _sum(profile, lambda item: item.bounds.memory)]
    traffic, limit = _sum(profile, lambda item: item.dram_bytes), _sum(profile, lambda item: item.bounds.limit)
    table.add_row(
        "total", "", *map(_count, sums), f"{traffic:,}", f"{profile.macs / traffic:.1f}" if traffic else "-",
        _count(profile.cycles), f"{profile.cycles / limit:.2f}x" if limit else "-", "",
    )  # fmt: skip
    return table


def gemm_table(profile: Profile) -> Table:
    """For each layer what the gemm engine itself did: at work, or waiting for a token, and of which engine."""
    used = [kind for kind in _GEMM_CLASSES if any(item.gemm[kind] for item in profile.layers)]
    headings = [kind.replace("_", " of ") for kind in used]
    table = _table("what the gemm engine did in the layer's cycles", ["layer"], ["cycles", *headings], [])
    for item in profile.layers:
        table.add_row(item.layer.name, _count(item.cycles), *(_count(item.gemm[kind]) for kind in used))
    table.add_section()
    sums = [sum(item.gemm[kind] for item in profile.layers) for kind in used]
    table.add_row("total", _count(profile.cycles), *map(_count, sums))
    return table


def outcome_table(outcomes: Sequence[Outcome]) -> RenderableType:
    """Cycles of each layer, by the timing model, on the core as it is (first outcome) and on others."""
    base, *others = outcomes
    known = [outcome for outcome in others if outcome.cycles is not None]
    names = [outcome.name for outcome in (base, *known)]
    table = _table("what other hardware would change (cycles, by the timing model)", ["layer"], names, [])
    for name, cycles in base.layers.items():
        table.add_row(name, _count(cycles), *(_change(outcome.layers.get(name), cycles) for outcome in known))
    table.add_section()
    table.add_row("total", _count(base.cycles or 0), *(_change(outcome.cycles, base.cycles) for outcome in known))
    return Group(table, *(f"{outcome.name}: no figure, {outcome.why}" for outcome in others if outcome.why))


def _sum(profile: Profile, value: Callable[[LayerProfile], int]) -> int:
    return sum(value(item) for item in profile.layers)


def _change(cycles: int | None, base: int | None) -> str:
    if cycles is None or not base:
        return "-"
    return f"{cycles:,} ({base / cycles:.2f}x)" if cycles else "0"


def _count(value: int) -> str:
    return f"{value:,}" if value else "·"


def _table(title: str, words: Sequence[str], numbers: Sequence[str], remarks: Sequence[str]) -> Table:
    table = Table(title=title, box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for heading in words:
        table.add_column(heading, no_wrap=True)
    for heading in numbers:
        table.add_column(heading, justify="right", no_wrap=True)
    for heading in remarks:
        table.add_column(heading, overflow="fold")
    return table
