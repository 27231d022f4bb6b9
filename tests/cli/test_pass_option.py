"""``--pass``: a pass from outside runs on every target and says how often it matched."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import weft
from weft.cli import app
from weft.cli.errors import run
from weft.cli.output import err
from weft.compiler.passes import PassRecord, load_pass

DIGITS = Path(weft.__file__).parents[1] / "examples" / "digits" / "digits.onnx"

CODE = """
from weft.compiler.graph import call
from weft.compiler.graph.pattern import any_value, op
from weft.compiler.passes import Counted, PatternRule, graph_pass, pattern_pass

pair = op("nn.relu", op("nn.relu", any_value("x")))
idle = pattern_pass("idle", [PatternRule(pair, lambda match: call("nn.relu", match["x"]))])
sums = op("nn.add", any_value("a"), any_value("b"))
differ = pattern_pass(
    "differ", [PatternRule(sums, lambda match: call("nn.subtract", match["a"], call("nn.negative", match["b"])))]
)


@graph_pass("silent")
def silent(module):
    return module


@graph_pass("counting")
def counting(module):
    return Counted(module, 1234)
"""


@pytest.fixture(autouse=True)
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    information = tmp_path / "others-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: others\nVersion: 1.0\n")
    names = ("idle", "differ", "silent", "counting")
    points = "\n".join(f"{name} = others_passes:{name}" for name in names)
    (information / "entry_points.txt").write_text(f"[weft.passes]\n{points}\n")
    (tmp_path / "others_passes.py").write_text(CODE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "others_passes", raising=False)


def printed(capsys: pytest.CaptureFixture[str], *words: str | Path) -> str:
    capsys.readouterr()
    status = run(app, list(map(str, words)), err)
    captured = capsys.readouterr()
    assert status == 0, captured.err
    return captured.out


@pytest.mark.parametrize("target", ["accel", "cpu"])
def test_compile_prints_how_often_each_matched(target: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    passes = [word for name in ("differ", "idle", "silent", "counting") for word in ("--pass", name)]
    lines = printed(capsys, "compile", DIGITS, "--target", target, "-o", tmp_path / "m.weft", *passes).splitlines()
    own = [line for line in lines if line.startswith("pass ")]
    assert len(own) == 4
    assert own.count("pass 'idle': matched 0 times, changed nothing") == 1
    assert own.count("pass 'silent': changed nothing") == 1
    assert own.count("pass 'counting': matched 1,234 times, changed nothing") == 1
    assert own.count("pass 'differ': matched 5 times, 41 -> 46 calls") == 1


def test_run_and_json_say_it_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words: tuple[str | Path, ...] = ("run", DIGITS, "--target", "cpu", "--pass", "counting")
    assert "pass 'counting': matched 1,234 times, changed nothing" in printed(capsys, *words)
    for words in (("run", DIGITS), ("compile", DIGITS, "-o", tmp_path / "m.weft")):
        record = json.loads(printed(capsys, *words, "--target", "cpu", "--pass", "counting", "--json"))
        (own,) = record["passes"]
        assert (own["pass"], own["matches"]) == ("counting", 1234)
        assert own["calls_before"] == own["calls_after"] > 0


def test_in_python_the_record_of_every_pass_is_reported() -> None:
    records: list[PassRecord] = []
    options = weft.PassOptions(added=(load_pass("differ"),), report=records.append)
    weft.compile(DIGITS, target="cpu", passes=options)
    names = [record.name for record in records]
    assert names[0] == "differ"
    assert "fold-constants" in names
    assert "legalise" in names
    assert records[0].matches == 5
    assert "matched 5 times, 41 -> 46 calls" in str(records[0])
