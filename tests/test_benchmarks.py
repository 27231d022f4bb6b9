"""The measurements: each can be found, says how it is called, and stands where texts say that it does."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.__main__ import SUBJECTS, main, measurements

ROOT = Path(__file__).parents[1]
NAMED = re.compile(r"benchmarks/[\w/]+\.\w+")
APART = {".git", ".venv", "build", "dist", "findings"}


def texts() -> list[Path]:
    kinds = (".py", ".md", ".toml", ".cpp", ".h", ".js")
    return [path for path in ROOT.rglob("*") if path.suffix in kinds and not APART & set(path.relative_to(ROOT).parts)]


def test_every_measurement_says_what_it_is_and_how_it_is_called() -> None:
    found = measurements()
    assert {name.partition(".")[0] for name in found} == set(SUBJECTS)
    for name, line in found.items():
        path = "benchmarks/" + name.replace(".", "/") + ".py"
        assert line.endswith((".", ":")), f"the first line of {path} is no sentence"
        if not name.startswith("campaigns."):
            assert f"python {path}" in (ROOT / path).read_text(), f"{path} does not say how it is called"


def test_subjects_are_the_folders() -> None:
    folders = {path.parent.name for path in (ROOT / "benchmarks").glob("*/*.py")}
    assert folders - {"zoo"} == set(SUBJECTS)


def test_what_texts_name_is_there() -> None:
    missing = {
        (path.relative_to(ROOT).as_posix(), name)
        for path in texts()
        for name in NAMED.findall(path.read_text())
        if not (ROOT / name).is_file()
    }
    assert not missing


@pytest.mark.parametrize(
    ("word", "answer"), [("networks", "core.networks"), ("core.network", "core.networks"), ("zzz", "lists")]
)
def test_an_unknown_name_is_answered(word: str, answer: str) -> None:
    done = subprocess.run([sys.executable, "-m", "benchmarks", word], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1
    assert answer in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("missing", ["openvino", "weft.nothing"])
def test_a_peer_that_is_not_installed_is_named(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*_: object, **__: object) -> None:
        raise ModuleNotFoundError(f"No module named {missing!r}", name=missing)

    monkeypatch.setattr(runpy, "run_module", run)
    monkeypatch.setattr(sys, "argv", ["benchmarks", "cpu.peers"])
    if missing == "openvino":
        with pytest.raises(
            SystemExit, match=r"cpu.peers needs openvino, .*: pip install .* benchmarks/cpu/peers.py say"
        ):
            main()
    else:  # a mistake of this repository
        with pytest.raises(ModuleNotFoundError):
            main()


def test_a_measurement_runs_by_its_short_name() -> None:
    command = [sys.executable, "-m", "benchmarks", "hardware.area", "--help"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0
    assert done.stdout.startswith("usage: ")
