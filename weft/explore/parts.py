"""Parts that cores are explored for: those of the boards, and ECP5s, for which there is no board."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ..boards.area import Area, area_of, ecp5_area
from ..boards.board import Board, all_boards
from ..hw.config import CoreConfig
from .errors import ExploreError

REFERENCE_PART = "xc7z020"
"""The part that ``area`` is a share of where a space names none."""

ECP5: Mapping[str, Area] = {
    "LFE5U-45F": Area(43_848, 72, 54),
    "LFE5U-85F": Area(83_640, 156, 104),
}
"""What there is of look-up tables, multipliers of 18 bits and, two for one, block RAMs of 18 Kibit (Lattice
FPGA-DS-02012, table 1.1)."""


@dataclass(frozen=True)
class Part:
    """``resources``: what the part has; ``area``: what a core takes there; ``board``: one that carries it, if known."""

    name: str
    resources: Area
    area: Callable[[CoreConfig], Area]
    board: Board | None = None


def find_part(name: str | None) -> Part:
    """The part with a name, of a board, or whose name begins so; that of :data:`REFERENCE_PART` for None. ExploreError
    lists what is known."""
    wanted = name or REFERENCE_PART
    boards = all_boards()
    for known, board in sorted(boards.items()):
        if wanted == known or board.part.startswith(wanted):
            has = board.resources
            return Part(board.part, Area(has.LUT, has.DSP, has.BRAM36), area_of, board)
    for part, resources in ECP5.items():
        if part.startswith(wanted):
            return Part(part, resources, ecp5_area)
    names = ", ".join(sorted({*boards, *(board.part for board in boards.values()), *ECP5}))
    raise ExploreError(f"there is no part {wanted!r}", at="constraints.part", hint=f"known: {names}")
