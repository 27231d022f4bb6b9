"""Boards without a processor are read from files; what is wrong in one is named with its file and field."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from weft.boards.board import Board, all_boards
from weft.boards.errors import BoardError
from weft.boards.standalone.board import (
    DATA,
    StandaloneBoard,
    any_board,
    read_standalone_board,
    standalone_boards,
)
from weft.boards.standalone.pll import OUTPUT_MHZ, VCO_MHZ, find_pll
from weft.boards.standalone.top import top_verilog

BOARDS = ["ecpix5", "tangmega138k", "ulx3s", "ulx3s-sdram"]
ULX3S = (DATA / "ulx3s.toml").read_text()
SDRAM = (DATA / "ulx3s-sdram.toml").read_text()


def test_the_boards_of_weft_are_these() -> None:
    assert sorted(standalone_boards()) == BOARDS


@pytest.mark.parametrize("name", BOARDS)
def test_a_board_has_its_file_and_its_pins_are_all_constrained(name: str) -> None:
    board = any_board(name)
    assert isinstance(board, StandaloneBoard)
    assert board.name == name == (DATA / f"{name}.toml").stem
    assert board.core_clock().mhz <= board.clock.mhz
    pins = tomllib.loads((DATA / f"{name}.toml").read_text())["pins"]
    chip = [site for each in pins.pop("sdram", {}).values() for site in ([each] if isinstance(each, str) else each)]
    assert bool(chip) == (board.sdram is not None)
    sites = chip + [each["site"] for each in (*pins.pop("leds"), *pins.values())]
    text = next(iter(board.kind.constraints(board.pins, board.clock.crystal_mhz).values()))
    located = re.findall(r'^(?:LOCATE COMP|IO_LOC) "(.+?)(?:\[\d+\])?" (?:SITE ")?(\w+)"?;$', text, re.MULTILINE)
    assert sorted(sites) == sorted(site for _, site in located)
    ports = {port for port, _ in located}
    head = top_verilog(board, board.core_clock()).split(");", 1)[0]
    assert {word.strip() for word in head.partition("(")[2].replace(",", " ").split()} >= ports


def changed(folder: Path, old: str, new: str, text: str = ULX3S) -> Path:
    assert text.count(old) == 1, old
    path = folder / "mine.toml"
    path.write_text(text.replace(old, new))
    return path


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('family = "ecp5"', 'family = "ecp6"', "family: unknown: 'ecp6'; hint: known: ecp5, gowin"),
        ('part = "LFE5U-85F"', 'part = "LFE5U-95F"', "part: unknown: 'LFE5U-95F'; hint: known: LFE5U-25F"),
        ("grade = 6", "grade = 5", "grade: unknown: 5; hint: known: 6, 7, 8"),
        ("CABGA381", "CABGA 381", "package: must be letters and digits, not"),
        ('name = "ulx3s"', 'name = "a b"', "name: must be letters and digits, - and _, not 'a b'"),
        ("memory_bytes = 131_072", "memory_bytes = 100_000", "memory_bytes: must be a power of two"),
        ("memory_bytes = 131_072", "memory_bytes = 2_048", "memory_bytes: must be a power of two in 4096"),
        ("baud = 1_000_000", "baud = 20_000_000", "baud: must be in 1..12500000"),
        ("baud = 1_000_000", "baud = 11_000_000", "the nearest rate is 10000000"),
        ("crystal_mhz = 25", "crystal_mhz = 4", "clock.crystal_mhz: must be in 8..400 MHz, not 4"),
        ("\nmhz = 50", "\nmhz = 5", "clock.mhz: a clock of 5 MHz is not possible"),
        ('site = "G2"', 'site = "G-2"', "pins.clock.site: must be a ball's letters and digits"),
        ('site = "M1"', 'site = "L4"', "pins.site: two pins are at L4"),
        ('pull = "DOWN"', 'pull = "SIDEWAYS"', "pins.reset.pull: unknown: 'SIDEWAYS'"),
        ('{ site = "L4" }', '{ site = "L4", inverted = 1 }', "pins.tx.inverted: must be true or false, not 1"),
        ('{ site = "L4" }', '{ site = "L4", standard = "3.3" }', "pins.tx.standard: must be an I/O standard"),
        ('{ site = "B2" }', '{ site = "B2" }, { site = "A1" }', "pins.leds: the design has 8 LEDs, not 9"),
        ('config = "tiny"', 'config = "small"', "core.config: unknown configuration 'small'"),
        ("grade = 6", "speed = 6", "speed: unknown field"),
    ],
)
def test_a_mistake_is_named_with_its_field(tmp_path: Path, old: str, new: str, message: str) -> None:
    path = changed(tmp_path, old, new)
    with pytest.raises(BoardError) as caught:
        read_standalone_board(path)
    assert message in str(caught.value)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("memory_bytes = 33_554_432", "memory_bytes = 131_072", "memory_bytes: must be 33554432, all of the chip, not"),
        ("row_bits = 13", "row_bits = 12", "pins.sdram.address: the chip has 12, not 13"),
        ("row_bits = 13", "row_bits = 14", "sdram.row_bits: must be in 11..13, not 14"),
        ("ras_ns = 45", "ras_ns = 5", "sdram.rrd_ns: must not be above ras_ns, 5, but is 15"),
        ("startup_ns = 200_000\n", "", "sdram.startup_ns: field is missing"),
        ("\nmhz = 50", "\nmhz = 75", "clock: at most 71.4 MHz, as data take 6 ns, not 75 MHz"),
        ('clock = "F19"', 'clock = "F 19"', "pins.sdram.clock: must be a ball's letters and digits, not 'F 19'"),
        ('clock = "F19"', 'clock = "F20"', "pins.site: two pins are at F20"),
        ('["U19", "E20"]', '["U19"]', "pins.sdram.mask: the chip has 2, not 1"),
        ('["U19", "E20"]', '"U19"', "pins.sdram.mask: must be a list, not 'U19'"),
        ('["U19", "E20"]', '["U19", "E-20"]', "pins.sdram.mask: must be a ball's letters and digits, not 'E-20'"),
        (SDRAM[SDRAM.index("[sdram]") : SDRAM.index("[core]")], "", "sdram: a board with pins.sdram needs this table"),
        (SDRAM[SDRAM.index("[pins.sdram]") : SDRAM.index("[sdram]")], "", "pins.sdram: a board with sdram needs this"),
    ],
)
def test_a_mistake_in_sdram_is_named_with_its_field(tmp_path: Path, old: str, new: str, message: str) -> None:
    with pytest.raises(BoardError) as caught:
        read_standalone_board(changed(tmp_path, old, new, SDRAM))
    assert message in str(caught.value)


def test_a_board_of_ones_own_is_used_by_its_path_and_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = changed(tmp_path, 'name = "ulx3s"', 'name = "mine"')
    found = any_board(str(path))
    assert isinstance(found, StandaloneBoard)
    assert found.name == "mine"
    monkeypatch.setenv("WEFT_BOARDS", str(tmp_path))
    assert any_board("mine") == found
    assert "mine" not in all_boards()
    assert isinstance(any_board("pynq-z2"), Board)
    with pytest.raises(BoardError, match=r"unknown board 'z3'; hint: known: .*pynq-z2.*ulx3s"):
        any_board("z3")


@pytest.mark.parametrize(
    ("crystal", "asked", "mhz"),
    [(25, 50, 50), (25, 60, 60), (100, 50, 50), (12, 48, 48), (25, 66, 25 * 21 / 8), (48, 95, 48 * 29 / 15)],
)
def test_a_clock_is_the_fastest_that_the_dividers_give(crystal: float, asked: float, mhz: float) -> None:
    pll = find_pll(crystal, asked)
    assert pll.mhz == pytest.approx(mhz)
    assert VCO_MHZ[0] <= pll.mhz * pll.output <= VCO_MHZ[1]


@pytest.mark.parametrize("asked", [0, -1, OUTPUT_MHZ[0] - 0.1, 401, float("nan"), float("inf")])
def test_a_clock_that_no_divider_gives_is_refused(asked: float) -> None:
    with pytest.raises(BoardError, match=r"MHz is not possible; hint: 10\.\.400 MHz are"):
        find_pll(25, asked)
