"""Parts: of boards, by name or beginning, and ECP5s without a board; limits and clocks of points follow from them."""

from __future__ import annotations

import pytest
from weft.boards.area import area_of, ecp5_area
from weft.boards.board import all_boards
from weft.explore.errors import ExploreError
from weft.explore.outcome import Outcome, cycles_allowed, design_of
from weft.explore.parts import ECP5, REFERENCE_PART, find_part
from weft.explore.space import Constraints, Space
from weft.hw.config import PYNQ

SMALL = {"block_in": 8, "depthwise": 0, "inp_kib": 32, "wgt_kib": 64, "acc_kib": 64, "out_kib": 16}


@pytest.mark.parametrize("name", [*all_boards(), *(board.part for board in all_boards().values()), "xczu3eg", None])
def test_a_part_of_a_board_has_its_resources(name: str | None) -> None:
    part = find_part(name)
    assert part.board is not None
    assert part.name.startswith(name or REFERENCE_PART) or name == part.board.name or name in all_boards()
    assert {key: getattr(part.board.resources, key) for key in vars(part.resources)} == vars(part.resources)
    assert part.area(PYNQ) == area_of(PYNQ)


def test_the_smallest_ecp5_is_named_by_its_beginning() -> None:
    assert find_part("LFE5U").name == next(iter(ECP5))
    with pytest.raises(ExploreError, match=r"no part 'LFE5X'; hint: known: LFE5U-45F, LFE5U-85F, kv260"):
        find_part("LFE5X")


def point_of(block_out: int, part: str) -> Outcome:
    space = Space.model_validate({"core": {**SMALL, "block_out": block_out}, "constraints": {"part": part}})
    (assignment,) = space.assignments()
    return design_of(space, assignment)


def test_what_fits_an_ecp5_is_counted_in_its_own_blocks() -> None:
    """8x8 takes 99 multipliers there, 51 on 7-series: 85F has 132 for use, 45F 61."""
    fits = point_of(8, "LFE5U-85F")
    assert (fits.status, fits.area) == ("measured", fits.design and ecp5_area(fits.design.config))
    refused = point_of(8, "LFE5U-45F")
    assert refused.status == "refused"
    assert "takes 99 DSP, more than 61.2 (85% of LFE5U-45F)" in refused.reason


def test_a_part_without_a_board_has_no_clock_of_its_own() -> None:
    asked = Constraints(part="LFE5U-85F", milliseconds=2, mhz=80)
    assert cycles_allowed(asked) == (160_000, " (2 ms at 80 MHz)")
    with pytest.raises(
        ExploreError, match=r"no board with LFE5U-85F is known, so milliseconds need a clock; hint: give mhz"
    ):
        cycles_allowed(Constraints(part="LFE5U-85F", milliseconds=2))
