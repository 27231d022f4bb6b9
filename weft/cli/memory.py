"""``--memory``: a DRAM with banks behind the simulated core."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from ..sim.dram import DramModel
from ..sim.dram_kinds import DRAM_KINDS, parse_dram_kind

MemoryOption = Annotated[
    str | None,
    typer.Option(
        "--memory",
        metavar="KIND[@MHZ]",
        help=f"A DRAM with banks, all ports on it: {', '.join(DRAM_KINDS)}; @MHZ: the core's clock, by default 100. "
        "Default: a flat memory, whose addresses decide nothing.",
    ),
]


def with_banks(memory: DramModel, kind: str | None) -> DramModel:
    """The memory with the banks of the kind that was asked for, if one was."""
    return memory if kind is None else replace(memory, banks=parse_dram_kind(kind))
