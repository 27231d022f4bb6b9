"""Virtual boards for tests: which ones there are, and devices on them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from weft.boards.board import find_board
from weft.boards.design import Design, make_design
from weft.boards.device import PynqDevice
from weft.boards.environments import PYNQ_3, PYNQ_4
from weft.boards.hosts import Host
from weft.boards.virtual_files import VirtualBoard
from weft.hw.config import TINY

MODEL = Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx"

MakeBoard = Callable[..., VirtualBoard]

BOARDS = {"pynq-z2": PYNQ_3, "ultra96-v2": PYNQ_4}
"""Boards whose memory a core with 32 address bits reaches, with the pynq of their images."""


def design_of(board: str) -> Design:
    return make_design(find_board(board), TINY)


def device_on(host: Host) -> PynqDevice:
    return PynqDevice(TINY, host=host, progress=print)
