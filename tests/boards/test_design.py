"""What a design chooses, and which cores a board refuses."""

from __future__ import annotations

from dataclasses import replace

import pytest
from weft.boards.block_design import block_design
from weft.boards.board import all_boards, find_board
from weft.boards.design import fitted_core, make_design
from weft.boards.errors import BoardError
from weft.boards.ranges import Range
from weft.hw.config import PYNQ, WIDE, CoreConfig
from weft.hw.system_config import SystemConfig

BOARDS = sorted(all_boards())


def test_a_design_for_a_z2() -> None:
    design = make_design(find_board("pynq-z2"))
    assert design.core == PYNQ
    assert design.control.base == 0x43C0_0000
    assert [(each.name, each.addresses) for each in design.memory] == [("HP0_DDR_LOWOCM", Range(0, 512 << 20))]
    assert (design.port_bits, design.clock.mhz, design.splits_bursts) == (64, 100, True)


def test_a_design_for_a_large_board_reaches_all_memory() -> None:
    design = make_design(find_board("rfsoc4x2"))
    assert design.control.base == 0xA000_0000
    assert [each.addresses for each in design.memory] == [Range(0, 2 << 30), Range(0x8_0000_0000, 2 << 30)]
    assert (design.port_bits, design.splits_bursts) == (128, False)
    assert design.core.address_bits == 40


def test_another_clock_is_one_argument() -> None:
    assert make_design(find_board("pynq-z2"), mhz=77).clock.mhz == pytest.approx(1000 / 13, rel=0.01)


@pytest.mark.parametrize("name", BOARDS)
def test_every_choice_changes_the_hash(name: str) -> None:
    board = find_board(name)
    design = make_design(board)
    others = [
        make_design(board, mhz=50),
        make_design(board, replace(board.default_core, wgt_depth=256)),
        replace(design, control=Range(design.control.base + 0x40000, design.control.bytes)),
        replace(design, board=replace(board, part="other")),
    ]
    assert len({design.hash, *(other.hash for other in others)}) == 5
    assert make_design(board).hash == design.hash


@pytest.mark.parametrize(
    ("board", "core", "message"),
    [
        (
            "pynq-z2",
            WIDE,
            "'wide' has a bus of 128 bits, but S_AXI_HP0 of pynq-z2 has at most 64.*hint: .*bus_bits=64$",
        ),
        ("pynq-z2", replace(PYNQ, address_bits=40), "40 address bits, but S_AXI_HP0 .* takes 32; .* address_bits=32"),
        ("zcu104", replace(PYNQ, address_bits=64), "64 address bits, but S_AXI_HP0_FPD .* takes 49"),
        ("zcu104", replace(PYNQ, bus_bits=512), "at most 128; hint: a core with bus_bits=64 or bus_bits=128"),
        ("kv260", PYNQ, "memory of kv260 ends at 0x87fffffff.*hint: a core with address_bits=40"),
        ("kv260", replace(PYNQ, address_bits=35), "35 address bits, but memory"),
        (
            "pynq-z2",
            SystemConfig(name="apart", cores=(PYNQ, PYNQ), ports=(0, 1)),
            "system 'apart' has 2 memory ports, but a design has one: S_AXI_HP0; hint: leave out ports",
        ),
        ("pynq-z2", SystemConfig(cores=(WIDE, WIDE)), "'wide' has a bus of 128 bits"),
    ],
)
def test_a_core_that_does_not_suit_a_board_is_refused(
    board: str, core: CoreConfig | SystemConfig, message: str
) -> None:
    with pytest.raises(BoardError, match=message):
        make_design(find_board(board), core)


def test_a_core_gets_the_address_bits_that_a_board_asks_for() -> None:
    assert fitted_core(find_board("kv260"), PYNQ) == replace(PYNQ, address_bits=40)
    assert fitted_core(find_board("pynq-z2"), PYNQ) == PYNQ


@pytest.mark.parametrize("name", BOARDS)
def test_a_block_design_connects_each_pin_once_and_clocks_every_bus(name: str) -> None:
    blocks = block_design(make_design(find_board(name)))
    buses = [pin for link in blocks.links for pin in (link.master, link.slave)]
    wires = [pin for net in blocks.nets for pin in (net.driver, *net.sinks)]
    assert len(set(buses)) == len(buses)
    sinks = [pin for net in blocks.nets for pin in net.sinks]
    assert len(set(sinks)) == len(sinks)
    cells = {cell.name for cell in blocks.cells}
    assert {pin.cell for pin in (*buses, *wires)} == cells
    (clock,) = [net for net in blocks.nets if net.kind == "clk"]
    assert {pin.cell for pin in clock.sinks} == cells
    ranges = [each.addresses for each in blocks.addresses]
    assert not any(one.overlaps(other) for one in ranges for other in ranges if one is not other)
