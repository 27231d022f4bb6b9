"""Which cores fit: by figures that the manual's page of syntheses has, too."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from weft.boards.board import all_boards, find_board
from weft.boards.design import fitted_core, make_design
from weft.boards.errors import BoardError
from weft.boards.fit import (
    ARBITER,
    MEASURED,
    RELAY,
    SHARING_ARBITER,
    find_measurement,
    fit,
    measured_cores,
    measurement_text,
    measurements,
)
from weft.hw.config import PYNQ, TINY, WIDE, CoreConfig
from weft.hw.system_config import SystemConfig

PAGE = Path(__file__).parents[2] / "docs" / "synthesis.md"
SYSTEMS = PAGE.with_name("systems.md")


def test_the_figures_are_those_of_the_manual() -> None:
    rows = {}
    for name, *figures in re.findall(
        r"^\| ([^|]+) \| xc7 \| (\S+) \| (\S+) \| (\S+) \| (\S+) \|", PAGE.read_text(), re.M
    ):
        rows[name] = dict(
            zip(("LUT", "FF", "DSP", "BRAM36"), (float(one.replace(",", "")) for one in figures), strict=True)
        )
    assert rows == {each.core.name: dict(each.figures) for each in measurements() if not each.base}


def test_figures_that_start_from_a_core_start_from_one_that_was_measured_whole() -> None:
    whole = {each.core.name for each in measurements() if not each.base}
    assert {each.base for each in measurements() if each.base} <= whole


def test_the_file_is_as_its_command_writes_it() -> None:
    assert measurement_text(measurements()) == MEASURED.read_text()


@pytest.mark.parametrize("name", sorted(all_boards()))
def test_the_default_core_of_a_board_fits(name: str) -> None:
    board = find_board(name)
    found = fit(board, board.default_core)
    assert found.measured
    assert not found.shortages
    found.require()
    make_design(board)


@pytest.mark.parametrize("name", sorted(all_boards()))
def test_no_measured_core_with_a_larger_array_than_the_default_fits(name: str) -> None:
    board = find_board(name)
    larger = [core for core in measured_cores() if core.macs_per_cycle > board.default_core.macs_per_cycle]
    assert all(fit(board, fitted_core(board, core)).shortages for core in larger)


def test_what_is_short_is_named() -> None:
    found = fit(find_board("pynq-z2"), WIDE)
    assert found.shortages == (
        "it needs 68,872 LUT, xc7z020clg400-1 has 53,200 of which 85% may be used",
        "it needs 579 DSP, xc7z020clg400-1 has 220 of which 85% may be used",
        "it needs 328.5 BRAM36, xc7z020clg400-1 has 140 of which 85% may be used",
    )
    with pytest.raises(BoardError, match="core 'wide' does not fit pynq-z2: it needs 68,872 LUT"):
        found.require()


def test_a_core_with_other_address_bits_takes_about_as_much() -> None:
    found = find_measurement(replace(PYNQ, name="mine", address_bits=40))
    assert found is not None
    assert found[0].core == PYNQ
    assert found[1] == ("address_bits",)
    exact = find_measurement(replace(PYNQ, name="mine"))
    assert exact is not None
    assert exact[1] == ()


def test_a_core_that_nobody_measured_is_not_judged() -> None:
    found = fit(find_board("pynq-z2"), CoreConfig(block_in=32))
    assert not found.measured
    assert not found.shortages
    assert not found.shares


def test_the_figures_of_what_is_between_cores_are_those_of_the_manual() -> None:
    rows = re.findall(r"^\| (\d) \| (\d+) \| (\d+) \| (\d+) \| ?(\d*)", SYSTEMS.read_text(), re.M)
    found = {(int(cores), bool(last)): tuple(map(int, figures)) for cores, *figures, last in rows}
    for cores in (2, 4):
        plain, sharing, relay = ARBITER[cores], SHARING_ARBITER[cores], RELAY[cores]
        assert found[cores, True][:3] == (plain["LUT"], plain["FF"], sharing["LUT"])
        assert found[cores, False] == (relay["LUT"], relay["FF"], relay["BRAM36"])


def test_a_system_takes_what_its_cores_and_what_is_between_them_do() -> None:
    alone = find_measurement(TINY)
    assert alone is not None
    for system, more in (
        (SystemConfig(cores=(TINY, TINY)), ARBITER[2]["LUT"]),
        (SystemConfig(cores=(TINY, TINY), ports=(0, 1)), 0),
        (SystemConfig(cores=(TINY, TINY), shared_reads=True), SHARING_ARBITER[2]["LUT"]),
        (SystemConfig(cores=(TINY, TINY), relay=True), ARBITER[2]["LUT"] + RELAY[2]["LUT"]),
    ):
        needs = fit(find_board("pynq-z2"), system).needs
        assert needs is not None
        assert needs["LUT"] == 2 * alone[0].figures["LUT"] + more
    eight, four = (fit(find_board("zcu104"), SystemConfig(cores=(TINY,) * count)).needs for count in (8, 4))
    assert eight is not None
    assert four is not None
    assert eight["FF"] == 2 * four["FF"]
    fit(find_board("pynq-z2"), SystemConfig(cores=(TINY, TINY))).require()
    with pytest.raises(BoardError, match=r"system 'two' does not fit pynq-z2: .*LUT"):
        fit(find_board("pynq-z2"), SystemConfig(name="two", cores=(PYNQ, PYNQ))).require()
    fit(find_board("zcu104"), SystemConfig(cores=(PYNQ, PYNQ))).require()
    unknown = replace(TINY, block_in=2, block_out=2)
    assert fit(find_board("pynq-z2"), SystemConfig(cores=(TINY, unknown))).needs is None
