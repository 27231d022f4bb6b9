"""What a DRAM with banks did while a model ran: rows, refreshes, and how much of its data bus was in use."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import RenderableType

from ..sim.dram import DramModel
from ..sim.dram_interface import DramUse
from .tables import Column, Record, count, records_table, share


def dram_record(dram: DramModel, uses: Iterable[DramUse | None], cycles: int) -> Record | None:
    """Of programs that took so many cycles; None for a memory without banks.

    Shares of the time are of the DRAM's clocks in these cycles, those of ``row_hits`` and ``conflicts`` of accesses.
    """
    known = [use for use in uses if use is not None]
    if dram.banks is None or not known:
        return None
    kind, whole = dram.banks.kind, sum(known, DramUse())
    clocks = max(1, int(cycles * dram.banks.ticks_per_cycle))
    accesses = max(1, whole.accesses)
    return {
        "memory": str(dram.banks),
        "accesses": whole.accesses,
        "row_hits": whole.hits / accesses,
        "activations": whole.activations,
        "conflicts": whole.conflicts / accesses,
        "turns": whole.turns,
        "refreshes": whole.refreshes,
        "refresh_share": whole.refreshes * (kind.RPA + kind.RFC) / clocks,
        "bus_busy": whole.busy_ticks / clocks,
    }


def dram_table(record: Record) -> RenderableType:
    """:func:`dram_record` in a table."""
    columns: list[Column] = [
        count("accesses"), share("row_hits", "row hits"), count("activations"), share("conflicts", "row conflicts"),
        count("turns", "read/write turns"), count("refreshes"), share("refresh_share", "time in refresh"),
        share("bus_busy", "data bus in use"),
    ]  # fmt: skip
    return records_table(f"what the DRAM did: {record['memory']}", columns, [record], [])
