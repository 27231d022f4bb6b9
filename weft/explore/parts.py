"""Parts that cores are explored for: those of the boards, and ECP5s, for which there is no board."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ..boards.area import LUT4_OF_LUT6, Area, area_of, ecp5_area
from ..boards.board import Board, all_boards
from ..boards.standalone.ecp5 import Ecp5
from ..hw.config import CoreConfig
from ..hw.system_config import SystemConfig
from .errors import ExploreError

REFERENCE_PART = "xc7z020"
"""The part that ``area`` is a share of where a space names none."""

ECP5: Mapping[str, Area] = {part: Ecp5.sizes[part] for part in ("LFE5U-45F", "LFE5U-85F")}
"""Those that cores of use fit, without serial transceivers."""

ARBITER_LUT = {False: (207.0, 9.5), True: (84.0, 176.0)}
"""Of an arbiter on 7-series, without and with shared reads: LUT, and LUT for each core on its port. Lines through two
and four cores with buses of 64 bits, which were synthesised (`benchmarks/systems/systems.py --area`)."""


@dataclass(frozen=True)
class Part:
    """``resources``: what the part has; ``area``: what a core takes there; ``board``: one that carries it, if known;
    ``lut_factor``: its look-up tables for one of 7-series."""

    name: str
    resources: Area
    area: Callable[[CoreConfig], Area]
    board: Board | None = None
    lut_factor: float = 1.0

    def system_area(self, system: SystemConfig) -> Area:
        """What a system takes: its cores, and an arbiter for each port that several share."""
        cores = [self.area(core) for core in system.cores]
        sharing = [len(system.cores_of(port)) for port in range(system.port_count)]
        fixed, each = ARBITER_LUT[system.shared_reads]
        arbiters = sum(fixed + each * count for count in sharing if count > 1)
        return Area(
            round(sum(core.LUT for core in cores) + self.lut_factor * arbiters),
            sum(core.DSP for core in cores),
            sum(core.BRAM36 for core in cores),
        )


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
            return Part(part, resources, ecp5_area, lut_factor=LUT4_OF_LUT6)
    names = ", ".join(sorted({*boards, *(board.part for board in boards.values()), *ECP5}))
    raise ExploreError(f"there is no part {wanted!r}", at="constraints.part", hint=f"known: {names}")
