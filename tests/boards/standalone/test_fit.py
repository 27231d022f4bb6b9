"""Cores that are too large for a board's part are refused before the tools run."""

from __future__ import annotations

from dataclasses import replace

import pytest
from weft.boards.errors import BoardError
from weft.boards.standalone.board import DATA, StandaloneBoard, any_board, read_standalone_board, standalone_boards
from weft.boards.standalone.fit import require_fit, shortages
from weft.hw.config import NAMED, PYNQ, TINY


def _board(name: str) -> StandaloneBoard:
    board = any_board(name)
    assert isinstance(board, StandaloneBoard)
    return board


def test_every_board_has_room_for_its_own_core() -> None:
    for board in standalone_boards().values():
        require_fit(board, board.default_core)


def test_what_synthesis_fits_is_not_refused() -> None:
    eight = replace(PYNQ, name="8x8", block_in=8, block_out=8, depthwise=0, inp_depth=1024, wgt_depth=512,
                    acc_depth=512, acc_banks=2, out_depth=512, queue_depth=8)  # fmt: skip
    require_fit(_board("ulx3s"), eight)  # docs/synthesis.md: 63 % of its multipliers


def test_each_shortage_is_named_and_what_to_do() -> None:
    text = (
        r"core 'pynq' does not fit ulx3s-sdram, by estimate: it needs 323 DSP, LFE5U-85F has 156; "
        r"it needs 112 BRAM36, .* has 104; hint: .*--force"
    )
    with pytest.raises(BoardError, match=text):
        require_fit(_board("ulx3s-sdram"), NAMED["pynq"])


def test_memory_in_block_ram_counts_and_sdram_does_not() -> None:
    """``ulx3s`` has 32 BRAM36 for its memory, so that 72 are left."""
    core = replace(TINY, wgt_depth=TINY.wgt_depth * 64, inp_depth=TINY.inp_depth * 32)
    assert not shortages(_board("ulx3s-sdram"), core)
    (short,) = shortages(_board("ulx3s"), core)
    assert "BRAM36" in short


def test_of_gowin_tables_and_block_ram_are_judged() -> None:
    board = read_standalone_board(DATA / "tangmega138k.toml")
    require_fit(board, board.default_core)
    (short,) = shortages(board, NAMED["wide"])
    assert "BRAM36, GW5AST-LV138 has 170" in short
