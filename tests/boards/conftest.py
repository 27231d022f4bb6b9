"""Virtual boards: the real pynq, in environments that are made here, drives the RTL."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import weft
from weft.boards.virtual_files import VirtualBoard, write_virtual_board
from weft.compiler.model import CompiledModel
from weft.hw.config import TINY
from weft.runtime.module import Array
from weft.tests.boards.virtual_boards import BOARDS, MODEL, MakeBoard, design_of


@pytest.fixture(scope="session")
def digits() -> CompiledModel:
    model = weft.compile(MODEL, TINY)
    assert isinstance(model, CompiledModel)
    return model


@pytest.fixture(scope="session")
def image() -> Array:
    return np.random.default_rng(7).integers(0, 16, (1, 1, 8, 8)).astype(np.float32) / 16


@pytest.fixture
def make_board(tmp_path: Path) -> MakeBoard:
    """A virtual board, with the options of ``write_virtual_board``; by default an Ultra96 with pynq 4.0.0."""

    def make(board: str = "ultra96-v2", **options: object) -> VirtualBoard:
        folder = tmp_path / f"{board}-{len(list(tmp_path.iterdir()))}"
        return write_virtual_board(folder, design_of(board), BOARDS[board], progress=print, **options)  # type: ignore[arg-type]

    return make
