"""``weft doctor``: what it tells of this machine, and of one where parts are missing."""

from __future__ import annotations

import json
from importlib import metadata
from pathlib import Path

import pytest
from weft.cli import app
from weft.cli.console import PlainConsole
from weft.cli.errors import run
from weft.compiler.targets.cpu.processor import PRETENDED


def told(capsys: pytest.CaptureFixture[str], status: int = 0) -> dict[str, dict[str, str]]:
    assert run(app, ["doctor", "--json"], PlainConsole(stderr=True)) == status
    return {each["name"]: each for each in json.loads(capsys.readouterr().out)["checks"]}


def test_every_check_has_a_state_and_what_is_missing_a_remedy(capsys: pytest.CaptureFixture[str]) -> None:
    checks = told(capsys)
    assert {"weft", "processor", "C++ compiler", "verilator", "yosys", "opencl", "cuda", "cache"} <= set(checks)
    assert checks["weft"]["text"].startswith(metadata.version("weft"))
    extras = set(metadata.metadata("weft").get_all("Provides-Extra") or ()) - {"dev", "bench"}
    assert {f"weft[{name}]" for name in extras} <= set(checks)
    for each in checks.values():
        assert each["state"] == "ok" or each["remedy"] or each["text"] == "no device"


def test_without_a_compiler_the_status_says_so(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weft.sim.cpp_compiler.compiler_version", lambda: "")
    check = told(capsys, status=1)["C++ compiler"]
    assert check["state"] == "missing"
    assert "apt install g++" in check["remedy"]


def test_a_file_of_the_cache_may_go_meanwhile(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """One is gone as soon as it has been looked at, one before."""
    (tmp_path / "rtl").mkdir()
    for name in ("entry", "first.lock"):
        (tmp_path / "rtl" / name).write_bytes(b"12345")
    monkeypatch.setenv("WEFT_CACHE", str(tmp_path))
    found, look = Path.glob, Path.stat

    def looked_at_once(self: Path, **how: bool) -> object:
        told = look(self, **how)
        if self.name == "first.lock":
            self.unlink()
        return told

    monkeypatch.setattr(Path, "stat", looked_at_once)
    monkeypatch.setattr(Path, "glob", lambda self, pattern: [*found(self, pattern), self / "rtl" / "gone.lock"])
    assert told(capsys)["cache"]["text"].startswith(str(tmp_path))


def test_an_extra_that_is_not_installed_is_named_with_its_command(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weft.cli.machine._is_installed", lambda package: package != "optuna")
    check = told(capsys)["weft[explore]"]
    assert (check["state"], check["remedy"]) == ("not here", "pip install 'weft[explore]'")


def test_a_processor_that_cannot_be_pretended_is_told(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PRETENDED, "cortex-a53")
    check = told(capsys, status=1)["processor"]
    assert "cannot execute code for 'cortex-a53'" in check["text"]


def test_the_table_is_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(app, ["doctor"], PlainConsole(stderr=True)) == 0
    assert "products of bytes by" in capsys.readouterr().out
