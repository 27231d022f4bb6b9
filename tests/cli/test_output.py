"""What commands print and write: JSON that every reader takes, and places that are looked at before long work."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from functools import cache
from inspect import signature
from pathlib import Path
from typing import Any

import pytest
import weft
from weft.cli import app
from weft.cli.commands import PARTS, loaded
from weft.cli.errors import run
from weft.cli.output import check_folders, check_places, err, json_text

EXAMPLES = Path(weft.__file__).parents[1] / "examples" / "digits"


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


@cache
def every_command() -> list[tuple[list[str], Any]]:
    """All commands, those of groups as well, with their words."""

    def below(words: list[str], command: Any) -> Iterator[tuple[list[str], Any]]:
        if hasattr(command, "commands"):
            for name, each in command.commands.items():
                yield from below([*words, name], each)
        else:
            yield words, command

    return [found for name in PARTS for found in below([name], loaded(name))]


READ = {
    "--input", "--liberty", "--networks", "--validate", "--calibrate",
    "--prefill", "--model", "--system", "--labels",
}  # fmt: skip
"""Options with the path of something that is read."""


def written() -> list[tuple[str, str, bool]]:
    """Every option with a path that a command writes: command, option, whether it is a folder."""
    found = []
    for words, command in every_command():
        kinds = {name: str(each.annotation) for name, each in signature(command.callback).parameters.items()}
        for each in command.params:
            is_path = re.search(r"\bPath\b", kinds.get(each.name, ""))
            if is_path and each.param_type_name == "option" and not READ & set(each.opts):
                found.append((" ".join(words), each.opts[0], "older" in (each.help or "")))
    return found


def read_options() -> list[tuple[str, str]]:
    """Every option with a path that a command reads, but networks, whose front end says what is wrong with them."""
    found = []
    for words, command in every_command():
        kinds = {name: str(each.annotation) for name, each in signature(command.callback).parameters.items()}
        for each in command.params:
            names = READ & set(each.opts) if each.param_type_name == "option" else set()
            if names - {"--networks"} and re.search(r"\bPath\b", kinds.get(each.name, "")):
                found.append((" ".join(words), min(names)))
    return found


@pytest.mark.parametrize(("command", "option"), read_options())
def test_every_option_that_is_read_is_opened_before_all_else(
    command: str, option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for place, why in (("none.x", "No such file or directory"), (".", "Is a directory")):
        assert run(app, [*command.split(), option, place], err) == 1
        assert capfd.readouterr().err == f"error: {place}: {why}\n"


def test_options_that_are_read_are_found() -> None:
    assert {("run", "--system"), ("synth", "--liberty"), ("explore", "--calibrate")} <= set(read_options())
    assert len(read_options()) > 15


def test_options_that_are_written_are_found() -> None:
    names = {(command, option) for command, option, _ in written()}
    assert names >= {
        ("hw", "--output"),
        ("hw", "--waivers"),
        ("run", "--trace"),
        ("tune", "--database"),
        ("gpu check", "--write"),
    }


@pytest.mark.parametrize(("command", "option", "folder"), written())
def test_every_option_that_is_written_is_tried_before_all_else(
    command: str,
    option: str,
    folder: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Even before other words are missed: so the command has done nothing."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    cases = [("file/x", "Not a directory")]
    cases += [] if folder else [("nowhere/x", "No such file or directory"), (".", "Is a directory")]
    for place, why in cases:
        assert run(app, [*command.split(), option, place], err) == 1
        assert capfd.readouterr().err == f"error: {place}: {why}\n"


def test_places_that_may_not_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked of the system, since tests may run as root, who may write everywhere."""
    (tmp_path / "old").touch()
    locked: set[Path] = set()
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) not in locked)
    check_places(tmp_path / "old", tmp_path / "new", Path("/dev/null"))
    check_folders(tmp_path, tmp_path / "a" / "b")
    locked.add(tmp_path)
    for path in (tmp_path / "old", tmp_path / "new"):
        with pytest.raises(PermissionError, match=re.escape(str(path))):
            check_places(path)
    with pytest.raises(PermissionError):
        check_folders(tmp_path / "a" / "b")
    locked.add(Path("/dev"))
    check_places(Path("/dev/null"))
    locked.clear()
    locked.add(tmp_path / "old")
    with pytest.raises(PermissionError):
        check_places(tmp_path / "old")
