"""``weft board`` as a user types it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from weft.boards.board import DATA


def weft(*words: str | Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run ``weft board`` in ``folder``."""
    command = [sys.executable, "-m", "weft", "board", *map(str, words)]
    environment = {**os.environ, "COLUMNS": "180"}
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600, env=environment)


def test_all_boards_are_shown_with_their_cores(tmp_path: Path) -> None:
    result = weft("list", folder=tmp_path)
    assert result.returncode == 0, result.stderr
    for path in DATA.glob("*.toml"):
        assert path.stem in result.stdout
    assert "79% BRAM36" in result.stdout


def test_cores_are_shown_with_what_is_short(tmp_path: Path) -> None:
    result = weft("list", "--cores", folder=tmp_path)
    assert "it needs 68,872 LUT, xc7z020clg400-1 has 53,200" in " ".join(result.stdout.replace("│", " ").split())


def test_boards_as_json(tmp_path: Path) -> None:
    boards = {each["name"]: each for each in json.loads(weft("list", "--json", folder=tmp_path).stdout)}
    assert boards["pynq-z2"]["protocol"] == "AXI3"
    assert boards["rfsoc4x2"]["core"] == "wide-rfsoc4x2"
    verdicts = {each["core"]: each["verdict"] for each in boards["zcu104"]["cores"]}
    assert verdicts["pynq"] == "yes"
    assert "328.5 BRAM36" in verdicts["wide"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["pynq-z3"], "unknown board 'pynq-z3'; hint: known: kv260"),
        (["mine.toml"], "mine.toml: No such file"),
        (["pynq-z2", "--config", "wide"], "it needs 68,872 LUT, xc7z020clg400-1 has 53,200"),
        (["pynq-z2", "--config", "wide", "--force"], "has a bus of 128 bits"),
        (["pynq-z2", "--clock", "5000"], "a clock of 5000 MHz is not possible"),
        (["pynq-z2", "--vivado", "vivado-9999"], "there is no program 'vivado-9999'"),
        (["pynq-z2", "--system", "pynqs.json"], "system 'pynqs' does not fit pynq-z2: it needs 75,742 LUT"),
        (["zcu104", "--system", "apart.json"], "system 'apart' has 2 memory ports, but a design has one"),
        (["pynq-z2", "--system", "pynqs.json", "--config", "tiny"], "--config: a system says which cores it has"),
        (["ulx3s", "--config", "wide"], "by estimate: it needs 98,953 LUT, LFE5U-85F has 83,640; it needs 1,155 DSP"),
        (["ulx3s", "--system", "pynqs.json"], "--system: the design of ulx3s has one core"),
    ],
)
def test_what_cannot_be_built_is_refused_before_anything_is_written(
    words: list[str], message: str, tmp_path: Path
) -> None:
    (tmp_path / "pynqs.json").write_text('{"name": "pynqs", "cores": ["pynq", "pynq"]}')
    (tmp_path / "apart.json").write_text('{"name": "apart", "cores": ["tiny", "tiny"], "ports": [0, 1]}')
    result = weft("build", *words, "--output", "out", folder=tmp_path)
    assert result.returncode == 1
    assert message in result.stderr
    assert not (tmp_path / "out").exists()


def test_a_design_is_written(tmp_path: Path) -> None:
    result = weft("build", "pynq-z2", "--config", "tiny", "--output", "out", folder=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "out/README.txt has the next steps" in result.stdout
    assert json.loads((tmp_path / "out" / "core.json").read_text())["name"] == "tiny"
    assert "module weft_core" in (tmp_path / "out" / "weft_core.v").read_text()


@pytest.mark.long
def test_a_design_of_a_system_is_written(tmp_path: Path) -> None:
    (tmp_path / "two.json").write_text('{"name": "two", "cores": ["tiny", "tiny"], "relay": true}')
    result = weft("build", "pynq-z2", "--system", "two.json", "--output", "out", folder=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "two on TUL PYNQ-Z2" in result.stdout
    assert json.loads((tmp_path / "out" / "system.json").read_text())["relay"] is True
    assert "module weft_system" in (tmp_path / "out" / "weft_core.v").read_text()
