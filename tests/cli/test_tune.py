"""``weft tune``: a table, records, a database that ``weft compile`` takes; what cannot be tuned is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NoReturn

import pytest
from weft.cli import app
from weft.cli.errors import run
from weft.cli.output import err
from weft.tune.tasks import KernelTask

DIGITS = str(Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx")


def test_tuned_and_compiled(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    database, artifact = str(tmp_path / "t.sqlite"), str(tmp_path / "digits.weft")
    words = ["tune", DIGITS, "--dram", "2", "--trials", "6", "--database", database]
    assert run(app, [*words, "--json"], err) == 0
    record = json.loads(capsys.readouterr().out)
    assert {each["kernel"] for each in record["kernels"]} >= {"conv1", "conv2", "conv3", "dense"}
    assert all(each["bound"] <= each["best"] <= each["default"] for each in record["kernels"])
    assert any(each["best"] < each["default"] for each in record["kernels"])
    assert run(app, words, err) == 0
    shown = capsys.readouterr().out
    assert "sum of the kernels: " in shown
    assert "--tuned" in shown
    assert run(app, ["compile", DIGITS, "--dram", "2", "--tuned", database, "-o", artifact, "--json"], err) == 0
    assert json.loads(capsys.readouterr().out)["tuned_kernels"] > 0


def test_proved(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    database = str(tmp_path / "t.sqlite")
    words = ["tune", DIGITS, "--prove", "--minutes", "0.02", "--database", database]
    assert run(app, [*words, "--json"], err) == 0
    record = json.loads(capsys.readouterr().out)
    assert {each["kernel"] for each in record["kernels"]} >= {"conv1", "conv2", "conv3", "dense"}
    assert all(each["least"] <= each["best"] <= each["default"] for each in record["kernels"])
    assert 0 <= record["share_close"] <= 1
    assert run(app, words, err) == 0  # what the database knows is not measured again
    shown = capsys.readouterr().out
    assert "no point below" in shown
    assert "the sum is no bound of the network" in shown
    assert f"--tuned {database}" in shown


def test_spaces_that_nothing_was_measured_of_are_not_listed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Listing a space takes as long as some measurements: a command whose time is over does not do it for a column."""

    def listed(self: KernelTask) -> NoReturn:
        raise AssertionError(f"the space of {self.name!r} was listed")

    monkeypatch.setattr(KernelTask, "space", listed)
    words = ["tune", DIGITS, "--minutes", "0", "--database", str(tmp_path / "t.sqlite")]
    assert run(app, [*words, "--json"], err) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["kernels"]
    assert all(each["settings"] is None and not each["measured"] for each in record["kernels"])
    assert run(app, words, err) == 0
    assert "had a turn" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["tune", DIGITS, "--database", "nowhere/t.sqlite"], "nowhere/t.sqlite: No such file or directory"),
        (["tune", DIGITS, "--dram", "fast"], "DRAM: 'fast' is no rate"),
        (["tune", DIGITS, "--gpu", "generic"], "target 'accel' has no option --gpu"),
        (["tune", DIGITS, "--tuned", "t.sqlite"], "--tuned is an option of compilation"),
        (["tune", DIGITS, "--target", "opencl"], "target 'opencl' has no schedules to choose from"),
        (["tune", DIGITS, "--target", "cpu", "--prove"], "nothing is proved of schedules for a processor"),
        (["tune", DIGITS, "--target", "cpu", "--dram", "2"], "target 'cpu' has no option --dram"),
        (["tune", DIGITS, "--target", "cpu", "--processor", "aarch64"], "cannot be measured on this machine"),
        (["compile", DIGITS, "--target", "cpu", "--tuned", "nowhere.sqlite"], "there is no tuning database"),
        (["compile", DIGITS, "--tuned", "nowhere.sqlite"], "there is no tuning database 'nowhere.sqlite'"),
    ],
)
def test_what_cannot_be_done_is_one_line(
    words: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(app, words, err) == 1
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
    assert message in line


def test_tuned_for_this_processor(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    database, artifact = str(tmp_path / "t.sqlite"), str(tmp_path / "digits.weft")
    words = ["tune", DIGITS, "--target", "cpu", "--trials", "2", "--database", database]
    assert run(app, [*words, "--json"], err) == 0
    record = json.loads(capsys.readouterr().out)
    assert {each["kernel"] for each in record["kernels"]} >= {"conv1", "conv2", "conv3"}
    assert all(0 < each["confirmed"] <= 1 and each["microseconds"] > 0 for each in record["kernels"])
    assert run(app, words, err) == 0
    assert "kernels are faster with another schedule" in capsys.readouterr().out
    words = ["compile", DIGITS, "--target", "cpu", "--tuned", database, "-o", artifact, "--json"]
    assert run(app, words, err) == 0
    assert json.loads(capsys.readouterr().out)["tuned_kernels"] >= 0
