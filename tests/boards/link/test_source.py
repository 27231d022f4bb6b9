"""The program for boards is Python 3.10 with its standard library, NumPy and pynq, and the same file each time."""

from __future__ import annotations

import ast
import io
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from weft.boards import link, virtual, virtual_interrupt, zipapp
from weft.boards.link.constants import Constants
from weft.boards.link.frames import pack
from weft.boards.link.messages import PROTOCOL
from weft.hw.registers import MAGIC, Register, Status

SOURCES = [*sorted(Path(link.__file__).parent.glob("*.py")), Path(virtual.__file__), Path(virtual_interrupt.__file__)]
ALLOWED = {*sys.stdlib_module_names, "numpy", "pynq", "pynqmetadata"} - {"tomllib"}


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.name)
def test_it_is_python_3_10_and_imports_what_a_board_has(source: Path) -> None:
    tree = ast.parse(source.read_text(), feature_version=(3, 10))
    imported = {
        name.split(".")[0]
        for node in ast.walk(tree)
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
        )
    }  # fmt: skip
    assert imported <= ALLOWED


def test_the_zip_file_is_the_same_each_time() -> None:
    first = zipapp.zipapp()
    zipapp.zipapp.cache_clear()
    assert zipapp.zipapp() == first
    names = zipfile.ZipFile(io.BytesIO(first)).namelist()
    assert names == sorted(names)
    assert {"__main__.py", "weft_link/server.py", "weft_link/constants.json"} <= set(names)


def test_the_constants_are_those_of_the_core() -> None:
    constants = zipapp.core_constants()
    assert Constants.from_json(constants.to_json()) == constants
    assert constants.magic == MAGIC
    assert constants.registers["WINDOW_BASE_LO"] == Register.WINDOW_BASE_LO
    assert constants.status["BUS_BUSY"] == Status.BUS_BUSY
    assert len({address for _, _, address in constants.counters}) == len(constants.counters)


def test_it_runs_where_there_is_no_weft(tmp_path: Path) -> None:
    program = tmp_path / "weft-link.pyz"
    program.write_bytes(zipapp.zipapp())
    question = b"".join(bytes(piece) for piece in pack({"do": "hello", "protocols": [PROTOCOL, 99]}))
    answer = subprocess.run(
        [sys.executable, "-I", str(program)], input=question, capture_output=True, timeout=60, check=True
    )
    assert f'"ok":true,"protocol":{PROTOCOL}'.encode() in answer.stdout
    assert zipapp.code_digest().encode() in answer.stdout
    assert answer.stderr == b""
