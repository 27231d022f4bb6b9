"""Where the packages for QEMU come from: the sources of this machine's apt, or of a file that somebody names."""

from __future__ import annotations

from pathlib import Path

import pytest
from weft.boards import debian_python as module
from weft.boards.debian_python import EMULATED, SOURCES_VARIABLE, debian_python, emulation_missing
from weft.runtime.errors import DeviceError

APT = """\
#!/bin/sh
echo "$@" >> {folder}/calls
case "$*" in
*" update") {update} ;;
*) {install} ;;
esac
"""


@pytest.fixture
def apt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which ``calls`` holds what apt was asked for; the apt of :func:`answers`."""
    monkeypatch.setenv("WEFT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.delenv(SOURCES_VARIABLE, raising=False)
    monkeypatch.setattr(module, "emulation_missing", lambda machine: "")
    return tmp_path


def answers(folder: Path, update: str, install: str) -> None:
    program = folder / "apt-get"
    program.write_text(APT.format(folder=folder, update=update, install=install))
    program.chmod(0o755)


def asked_for(machine: str, message: str) -> DeviceError:
    with pytest.raises(DeviceError, match=message) as caught:
        debian_python(machine)
    return caught.value


def test_the_sources_of_the_machine_are_used_unless_a_file_of_others_is_named(
    apt: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers(apt, "true", "exit 1")
    asked_for("armv7l", "apt-get failed")
    said = (apt / "calls").read_text()
    assert "APT::Architecture=armhf" in said
    assert "Dir::Etc" not in said
    others = apt / "arm.sources"
    others.write_text("")
    monkeypatch.setenv(SOURCES_VARIABLE, str(others))
    asked_for("aarch64", "apt-get failed")
    said = (apt / "calls").read_text().splitlines()[-1]
    assert "APT::Architecture=arm64" in said
    assert f"Dir::Etc::sourcelist={others} -o Dir::Etc::sourceparts=-" in said


def test_no_packages_for_the_processor(apt: Path) -> None:
    answers(apt, "echo 'E: the mirror changes' >&2; exit 100", "echo 'E: Unable to locate it' >&2; exit 100")
    error = asked_for("armv7l", "Unable to locate it; before that, apt-get failed: E: the mirror changes")
    assert SOURCES_VARIABLE in error.hint


def test_a_source_that_fails_does_not_matter_if_the_packages_come(apt: Path) -> None:
    answers(apt, "exit 100", "true")
    asked_for("armv7l", "apt-get has fetched nothing")  # and no complaint before


def test_a_file_of_sources_that_is_not_there(apt: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SOURCES_VARIABLE, str(apt / "none"))
    asked_for("armv7l", f"{SOURCES_VARIABLE} names no file")


def test_what_is_missing_is_a_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    for machine in EMULATED:
        assert emulation_missing(machine) == "apt-get install apt dpkg qemu-user"
