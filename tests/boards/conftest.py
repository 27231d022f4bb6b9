"""Virtual boards: the real pynq, in environments that are made here, drives the RTL."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import weft
from weft.boards import virtual
from weft.boards.environments import PYNQ_4, pynq_python
from weft.boards.hosts import Host
from weft.boards.virtual_files import VirtualBoard, write_virtual_board
from weft.compiler.model import CompiledModel
from weft.hw.config import TINY
from weft.runtime.module import Array

from tests.boards import forked_board
from tests.boards.virtual_boards import BOARDS, MODEL, MakeBoard, design_of

Forked = Callable[[VirtualBoard], Host]


@pytest.fixture(scope="session")
def digits() -> CompiledModel:
    model = weft.compile(MODEL, TINY)
    assert isinstance(model, CompiledModel)
    return model


@pytest.fixture(scope="session")
def image() -> Array:
    return np.random.default_rng(7).integers(0, 16, (1, 1, 8, 8)).astype(np.float32) / 16


@pytest.fixture(scope="session")
def pynq_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The socket of a process with pynq 4.0.0 in it, for boards of ``forked``."""
    path = tmp_path_factory.mktemp("pynq") / "socket"
    command = [str(pynq_python(PYNQ_4, print)), "-W", "ignore", forked_board.__file__, "serve", str(path)]
    with subprocess.Popen([*command, virtual.__file__], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            yield path
        finally:
            process.kill()


@pytest.fixture
def forked(pynq_process: Path) -> Forked:
    """Reaches a virtual board in a fork of a process that has pynq: ten times as fast as a process of its own."""

    def host(board: VirtualBoard) -> Host:
        caller = (sys.executable, "-I", "-S", forked_board.__file__, "call", str(pynq_process))
        return replace(board.host(), python=(*caller, str(board.folder / "board.json")))

    return host


@pytest.fixture
def make_board(tmp_path: Path) -> MakeBoard:
    """A virtual board, with the options of ``write_virtual_board``; by default an Ultra96 with pynq 4.0.0."""

    def make(board: str = "ultra96-v2", **options: object) -> VirtualBoard:
        folder = tmp_path / f"{board}-{len(list(tmp_path.iterdir()))}"
        return write_virtual_board(folder, design_of(board), BOARDS[board], progress=print, **options)  # type: ignore[arg-type]

    return make
