"""What commands print and write: JSON that every reader takes, and places that are looked at before long work."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import weft
from weft.cli import app
from weft.cli.errors import run
from weft.cli.output import err, json_text

EXAMPLES = Path(weft.__file__).parent / "examples" / "digits"


def test_json_has_no_floats_that_json_lacks() -> None:
    text = json_text({"a": [1.5, float("nan"), (float("inf"), {"b": -float("inf")})], "c": Path("x")})

    def refuse(word: str) -> None:
        raise AssertionError(word)

    read = json.loads(text, parse_constant=refuse)
    assert read == {"a": [1.5, "NaN", ["Infinity", {"b": "-Infinity"}]], "c": "x"}


@pytest.mark.parametrize(
    "words",
    [
        ("compile", "digits.onnx", "--target", "cpu", "-o"),
        ("run", "digits.onnx", "--target", "cpu", "-o"),
        ("run", "digits.onnx", "--record"),
        ("explore", "space.toml", "--networks", "digits.onnx", "--page"),
    ],
)
def test_results_without_a_place_are_refused_before_the_work(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    full = [str(EXAMPLES / word) if word.endswith((".onnx", ".toml")) else word for word in words]
    (tmp_path / "file").touch()
    for place, why in (
        ("nowhere/x", "No such file or directory"),
        ("file/x", "Not a directory"),
        (".", "Is a directo"),
    ):
        assert run(app, [*full, place], err) == 1
        told = capfd.readouterr().err
        assert f"error: {place}: {why}" in told
        assert len(told.splitlines()) == 1  # no line of progress


def test_a_seed_below_zero_is_a_wrong_word(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(app, ["run", str(EXAMPLES / "digits.onnx"), "--target", "cpu", "--seed", "-1"], err) == 2
    assert "--seed" in capfd.readouterr().err
