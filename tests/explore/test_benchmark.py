"""``explore.py``, a grid that is measured once and searched; ``shared_system.py``, systems beside a core."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from benchmarks.exploring import explore
from benchmarks.systems import shared_system, stream_peer

from .test_host import two_layers

SPACE = """
name = "two cores"
base = "tiny"
[core]
block_in = [4, 8]
acc_banks = [2, 4]
[compiler]
chains = [false]
[constraints]
part = "xc7z020"
"""


def test_searches_are_compared_with_the_grid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "space.toml").write_text(SPACE)
    files = [f"--{name}={tmp_path / file}" for name, file in
             (("space", "space.toml"), ("database", "kept.sqlite"), ("json", "out.json"))]  # fmt: skip
    monkeypatch.setattr(sys, "argv", ["explore.py", *files, "--seeds=1", "--workers=0"])
    assert explore.main() == 0
    assert "grid of 4 points: 4 measured, 0 refused, 0 failed" in capsys.readouterr().out
    shares = {each["workload"]: each["value"] for each in json.loads((tmp_path / "out.json").read_text())
              if each["figure"].endswith("after 100")}  # fmt: skip
    assert shares == {"random": 1, "nsga2": 1, "tpe": 1}  # each has seen all there is


def test_systems_are_compared_with_one_big_core(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [two_layers(tmp_path / "short.onnx"), two_layers(tmp_path / "long.onnx", third=True)]
    places = [f"--{name}={tmp_path / file}" for name, file in
              (("database", "kept.sqlite"), ("json", "out.json"), ("picture", "out.svg"))]  # fmt: skip
    monkeypatch.setattr(sys, "argv", ["shared_system.py", "--networks", *map(str, files), *places])
    assert shared_system.main() == 0
    assert "26 measurements" in capsys.readouterr().err
    assert (tmp_path / "out.svg").read_text().count("32x32d") > 0
    records = json.loads((tmp_path / "out.json").read_text())
    assert len(records) == 2 * 13
    big = {each["figure"]: each for each in records if each["config"].startswith("32x32d")}
    assert big["latency"]["value"] == big["latency"]["reference"]
    assert {each["reference"] for each in records if each["figure"] == "latency"} == {big["latency"]["value"]}


def test_stream_is_told_the_system_and_asked_for_by_its_interpreter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = stream_peer.hardware(tmp_path).read_text()
    assert "cores: {0: ./core.yaml, 1: ./core.yaml, 2: ./core.yaml, 3: ./core.yaml, 4: ./offchip.yaml}" in text
    core = json.loads((tmp_path / "core.yaml").read_text())
    assert core["operational_array"]["sizes"] == [4, 4]
    assert core["memories"]["scratchpads"]["size"] == 8 * (2048 + 4096 + 4096 + 512)
    monkeypatch.setattr(sys, "argv", ["stream_peer.py"])
    assert stream_peer.main() == 2
    assert "nothing was compared" in capsys.readouterr().err
