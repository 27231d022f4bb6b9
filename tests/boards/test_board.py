"""Boards are read from files; what is wrong in one is named with its file and field."""

from __future__ import annotations

from pathlib import Path

import pytest
from weft.boards.board import DATA, Board, ClockSource, all_boards, find_board, read_board
from weft.boards.errors import BoardError
from weft.hw.config import PYNQ

BOARDS = ["kv260", "pynq-z1", "pynq-z2", "rfsoc4x2", "ultra96-v2", "zcu104"]
Z2 = (DATA / "pynq-z2.toml").read_text()


def test_the_boards_of_weft_are_these() -> None:
    assert sorted(all_boards()) == BOARDS


@pytest.mark.parametrize("name", BOARDS)
def test_a_board_has_its_file_and_a_clock_at_most_as_fast_as_asked(name: str) -> None:
    board = find_board(name)
    assert board.name == name == (DATA / f"{name}.toml").stem
    clock = board.clock.clock()
    assert 0.99 * clock.asked_mhz < clock.mhz <= clock.asked_mhz


def test_what_is_derived_of_a_z2() -> None:
    board = find_board("pynq-z2")
    assert board.default_core == PYNQ
    assert board.ddr.bytes == 512 << 20
    assert board.ddr.bytes_per_second == 2.1e9
    assert board.port.protocol.burst_beats == 16
    assert board.resources.BRAM36 == 140


def test_a_core_that_a_board_changes_has_a_name_of_its_own() -> None:
    core = find_board("kv260").default_core
    assert (core.name, core.address_bits) == ("pynq-kv260", 40)
    assert core.hash64 != PYNQ.hash64


@pytest.mark.parametrize(
    ("asked", "mhz", "divisors"),
    [(100, 100, 10), (200, 200, 5), (150, 1000 / 7, 7), (142, 125, 8), (0.3, 1000 / 3339, 53 * 63)],
)
def test_a_clock_is_the_fastest_that_two_dividers_give(asked: float, mhz: float, divisors: int) -> None:
    clock = ClockSource("IO PLL", 1000, 100).clock(asked)
    assert clock.mhz == pytest.approx(mhz)
    assert clock.divisors[0] * clock.divisors[1] == divisors
    assert max(clock.divisors) <= 63


@pytest.mark.parametrize("asked", [0, -1, 0.1, 1001, float("nan"), float("inf")])
def test_a_clock_that_no_divider_gives_is_refused(asked: float) -> None:
    with pytest.raises(BoardError, match=r"MHz is not possible; hint: 0\.252\.\.1000 MHz are"):
        ClockSource("IO PLL", 1000, 100).clock(asked)


def changed(folder: Path, old: str, new: str) -> Path:
    """The Z2's file with one text replaced."""
    assert old in Z2
    path = folder / "mine.toml"
    path.write_text(Z2.replace(old, new, 1))
    return path


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('title = "TUL PYNQ-Z2"', "", "mine.toml: title: field is missing"),
        ("processors = 2", "processors = 2\ncores = 2", "mine.toml: cores: unknown field; hint: known: board_part"),
        ("LUT = 53_200", "", "mine.toml: resources.LUT: field is missing"),
        ("LUT = 53_200", "LUT = -1", "mine.toml: resources.LUT: must be positive, not -1"),
        ("LUT = 53_200", "LUT = true", "mine.toml: resources.LUT: must be an integer, not True"),
        ("LUT = 53_200", "LUTS = 53_200", "mine.toml: resources.LUTS: unknown field"),
        ("DSP = 220", 'DSP = "many"', "mine.toml: resources.DSP: must be an integer, not 'many'"),
        ("pll_mhz = 1000", "pll_mhz = 10", r"mine.toml: clock.pll_mhz: must be in 100..3000 MHz, not 10"),
        ("bits = 16", "bits = 24", "mine.toml: ddr.bits: must be 16, 32 or 64, not 24"),
        ("base = 0x0", "base = -1", "mine.toml: ddr.windows: must name addresses"),
        ("windows = [{", "windows = [{ base = 0x0, bytes = 0x1000 }, {", "mine.toml: ddr.windows: must rise"),
        ("windows = [{ base = 0x0, bytes = 0x2000_0000 }]", "windows = 3", "mine.toml: ddr.windows: must be a list"),
        ("base = 0x0, ", "", r"mine.toml: ddr.windows\[0\].base: field is missing"),
        ('"zynq-7000"', '"versal"', "mine.toml: processing_system: unknown: 'versal'; hint: known: zynq-7000"),
        ("S_AXI_HP0", "S_AXI_HP7", "mine.toml: memory_port: unknown: 'S_AXI_HP7'; hint: known: S_AXI_HP0, "),
        ("134_217_728", "0x2000_0001", "mine.toml: cma_bytes: must be in 1..536870912, the DDR memory"),
        ('config = "pynq"', 'config = "big"', "mine.toml: core.config: unknown configuration 'big'; hint: known: tiny"),
        ('"pynq"\n', '"pynq"\nchanges = { lanes = 3 }\n', "mine.toml: core.changes: .*lanes"),
        ('"pynq"\n', '"pynq"\nchanges = { batch = 3 }\n', "mine.toml: core.changes: batch must be a power of two"),
        ('name = "pynq-z2"', 'name = "../z2"', "mine.toml: name: must be letters"),
        ("[ddr]", "[ddr", "mine.toml: not TOML: "),
        ("processors = 2", "processors = 0", "mine.toml: processors: must be positive"),
    ],
)
def test_what_is_wrong_in_a_file_is_named(tmp_path: Path, old: str, new: str, message: str) -> None:
    with pytest.raises(BoardError, match=message):
        read_board(changed(tmp_path, old, new))


def test_a_new_board_is_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = changed(tmp_path, 'name = "pynq-z2"', 'name = "mine"')
    assert find_board(str(path)).name == "mine"
    monkeypatch.setenv("WEFT_BOARDS", str(tmp_path))
    assert isinstance(find_board("mine"), Board)
    assert set(all_boards()) == {"mine", *BOARDS}


def test_two_boards_of_one_name_in_a_folder_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    changed(tmp_path, "processors = 2", "processors = 1")
    (tmp_path / "other.toml").write_text(Z2)
    monkeypatch.setenv("WEFT_BOARDS", str(tmp_path))
    with pytest.raises(BoardError, match=r"other.toml: name: a second board is called 'pynq-z2'"):
        all_boards()


def test_a_folder_that_is_none_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_BOARDS", str(tmp_path / "absent"))
    with pytest.raises(BoardError, match="WEFT_BOARDS names no folder"):
        all_boards()


def test_an_unknown_board_is_refused_with_the_known_ones() -> None:
    with pytest.raises(BoardError, match="unknown board 'z3'; hint: known: kv260, pynq-z1"):
        find_board("z3")
