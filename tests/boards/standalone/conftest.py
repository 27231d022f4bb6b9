"""The RTL of a board's top, built once."""

from __future__ import annotations

import pytest
from weft.boards.standalone.board import standalone_boards
from weft.boards.standalone.simulated import SimulatedBoard, simulated_board


@pytest.fixture(scope="session")
def board() -> SimulatedBoard:
    """An ULX3S with its default core."""
    return simulated_board(standalone_boards()["ulx3s"], quick=True)


@pytest.fixture(scope="session")
def sdram_board() -> SimulatedBoard:
    """One whose memory is SDRAM, with a model of the chip at its pins."""
    return simulated_board(standalone_boards()["ulx3s-sdram"], quick=True)
