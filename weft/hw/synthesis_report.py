"""Rows of text for what :mod:`weft.hw.synthesis` has found; the command, the benchmark and the manual show them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .synthesis import Step, Synthesis, Target

PARTS: dict[Target, tuple[str, Mapping[str, float]]] = {
    Target.XC7: ("xc7z020", {"LUT": 53200, "FF": 106400, "DSP": 220, "BRAM36": 140}),
    Target.ECP5: ("LFE5U-85F", {"LUT": 83640, "FF": 83640, "DSP": 156, "BRAM18": 208}),
}
"""The part that shares are given of."""

SHARE_LIMIT = 0.85
"""Share of a part that a core may take: a fuller one is hard to route."""

LEG_COLUMNS = ["module", "last cell", "cells", "logic", "wires", "until"]
"""Columns of :func:`leg_rows`."""


@dataclass
class _Leg:
    """A stretch of a path; delays in ns."""

    module: str
    cell: str = ""
    cells: int = 0
    logic: float = 0.0
    wires: float = 0.0
    until: float = 0.0


def usage_rows(result: Synthesis, depth: int = 1) -> tuple[list[str], list[list[str]]]:
    """Columns, and a row for each module up to ``depth`` levels; the last one gives shares of a part."""
    columns = list(result.total)
    rows = [[name, *(_number(figures[column]) for column in columns)] for name, figures in result.rows(depth)]
    if result.target in PARTS:
        part, available = PARTS[result.target]
        rows.append([f"share of {part}", *(f"{result.total[column] / available[column]:.0%}" for column in columns)])
    return ["module", *columns], rows


def over_limit(result: Synthesis) -> list[str]:
    """Why a core is too large for the target's part: one text for each figure above :data:`SHARE_LIMIT`."""
    part, available = PARTS.get(result.target, ("", {}))
    return [
        f"{_number(value)} {column}, more than {SHARE_LIMIT:.0%} of the {_number(available[column])} of {part}"
        for column, value in result.total.items()
        if column in available and value > SHARE_LIMIT * available[column]
    ]


def path_rows(steps: Sequence[Step]) -> list[list[str]]:
    """A row for each step of a path: kind, its delay and the time until then in ns, and its name."""
    rows, until = [], 0.0
    for step in steps:
        until += step.delay
        rows.append([step.kind, f"{step.delay:.2f}", f"{until:.2f}", step.name])
    return rows


def leg_rows(steps: Sequence[Step]) -> list[list[str]]:
    """A row for each stretch of a path inside one module.

    Its last cell, how many cells it passes, their delays, those of the wires to them, and the time until its end (ns).
    """
    legs: list[_Leg] = []
    wire, until = 0.0, 0.0
    for step in steps:
        until += step.delay
        if step.kind == "wire":
            wire += step.delay
            continue
        module, _, cell = step.name.rpartition(".")[0].rpartition(".")
        if not legs or legs[-1].module != module:
            legs.append(_Leg(module))
        leg = legs[-1]
        leg.cell, leg.until = cell, until
        leg.cells += 1
        leg.logic += step.delay
        leg.wires += wire
        wire = 0.0
    return [
        [leg.module, leg.cell, f"{leg.cells}", f"{leg.logic:.2f}", f"{leg.wires:.2f}", f"{leg.until:.2f}"]
        for leg in legs
    ]


def _number(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) else f"{value:,.1f}"
