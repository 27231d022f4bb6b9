"""``weft explore``: a table, files of all points, a run that goes on; what is wrong is one line."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from weft.cli import app
from weft.cli.errors import run
from weft.cli.output import err

DIGITS = str(Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx")
SPACE = """
base = "tiny"
[core]
block_in = [4, 8]
block_out = [4, 12]
[compiler]
chains = false
"""


@pytest.fixture
def space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    Path("space.toml").write_text(SPACE)
    return "space.toml"


def test_explored_and_explored_again(space: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["explore", space, "--networks", DIGITS, "--workers", "0"]
    assert run(app, [*words, "-o", "all.csv"], err) == 0
    captured = capsys.readouterr()
    assert "4 of 4 points: 2 measured, 2 refused, 0 failed" in captured.out
    assert "2 x refused: block_out must be a power of two in 2..128, not 12" in captured.out
    assert "Pareto front" in captured.out
    assert "best cycles" in captured.err
    with Path("all.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["status"] for row in rows] == ["measured", "refused", "measured", "refused"]
    assert run(app, [*words, "--json", "-o", "all.json"], err) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["measured"], document["reused"]) == (0, 2)
    assert [str(point["networks"]["digits"]["cycles"]) for point in document["points"][::2]] == [
        row["digits cycles"] for row in rows[::2]
    ]
    assert [place for place, row in enumerate(rows) if row["front"] == "1"] == document["front"]
    assert json.loads(Path("all.json").read_text())["front"] == document["front"]


def test_networks_may_follow_one_option(space: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("other.onnx").write_bytes(Path(DIGITS).read_bytes())
    assert run(app, ["explore", space, "--networks", DIGITS, "other.onnx", "--workers", "0", "--json"], err) == 0
    document = json.loads(capsys.readouterr().out)
    assert [each["name"] for each in document["networks"]] == ["digits", "other"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nowhere.toml", "--networks", DIGITS], "nowhere.toml: cannot be read: No such file"),
        (["space.toml", "--networks", "nowhere.onnx"], "nowhere.onnx: cannot be read"),
        (["space.toml", "--networks", DIGITS, DIGITS], "networks must have names of their own"),
        (["space.toml", "--networks", DIGITS, "-o", "all.txt"], "results are written as .json or .csv"),
        (["space.toml", "--networks", DIGITS, "--database", "no/e.sqlite"], "no/e.sqlite: No such file or directory"),
    ],
)
def test_what_cannot_be_done_is_one_line(
    words: list[str], message: str, space: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(app, ["explore", *words], err) == 1
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
    assert message in line
