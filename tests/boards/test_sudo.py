"""The lines for sudo in the documentation, read by a real sudo: they allow what the host asks for, and nothing else.

A user without rights asks. The line lies in a folder that only that process finds in place of ``/etc/sudoers.d``.
"""

from __future__ import annotations

import os
import pwd
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import weft
from weft.boards.hosts import IMAGE_PYTHON, Host
from weft.boards.remote import BOOT, BoardLinkError, Link
from weft.boards.zipapp import zipapp

DOCUMENTS = Path(weft.__file__).parents[1] / "docs" / "boards-running.md"
INSTALLED = "/usr/local/lib/weft-link.pyz"
USER = "nobody"
PROGRAMS = "/usr/sbin:/usr/local/sbin"


def documented_lines() -> list[str]:
    return re.findall(r"^ *(xilinx ALL=.*)$", DOCUMENTS.read_text(), re.MULTILINE)


def needs(*programs: str) -> None:
    path = f"{os.environ.get('PATH', '')}:{PROGRAMS}"
    if missing := [name for name in programs if shutil.which(name, path=path) is None]:
        pytest.skip(f"apt-get install sudo util-linux: there is no {missing[0]}")


def escaped(path: str) -> str:
    return re.sub(r"([,:=\\ ])", r"\\\1", path)


@pytest.fixture
def asked(tmp_path: Path) -> Host:
    """Asks sudo as a user who may do what the documented lines say, for a Python and a program of this machine."""
    needs("visudo", "sudo", "unshare", "setpriv")
    probe = ["unshare", "--mount", "--", "mount", "--bind", str(tmp_path), "/etc/sudoers.d"]
    if os.geteuid() or subprocess.run(probe, capture_output=True, check=False).returncode:
        pytest.skip("only root of a machine that can mount folders can try lines for sudo without touching its own")
    program = tmp_path / "weft-link.pyz"
    program.write_bytes(zipapp())
    folder = tmp_path / "sudoers"
    folder.mkdir(mode=0o755)
    lines = [
        line.replace("xilinx ", f"{USER} ")
        .replace(IMAGE_PYTHON, escaped(sys.executable))
        .replace(INSTALLED, str(program))
        for line in documented_lines()
    ]
    (folder / "weft").write_text("".join(f"{line}\n" for line in lines))
    (folder / "weft").chmod(0o440)
    group = pwd.getpwnam(USER).pw_gid
    become = f"exec setpriv --reuid={USER} --regid={group} --clear-groups"
    script = f'mount --bind {folder} /etc/sudoers.d && {become} sh -c "$0"'
    return Host(
        "it", command=("unshare", "--mount", "--", "sh", "-c", script), python=(sys.executable,),
        installed=str(program), connect_seconds=60.0,
    )  # fmt: skip


def test_there_is_a_line_for_each_way_and_sudo_understands_them(tmp_path: Path) -> None:
    needs("visudo")
    path = f"{os.environ.get('PATH', '')}:{PROGRAMS}"
    installed, sent = documented_lines()
    assert installed.endswith(f"{IMAGE_PYTHON} {INSTALLED}")
    assert f"{IMAGE_PYTHON} -c " in sent
    for line, status in ((installed, 0), (sent, 0), (sent.replace("\\,", ","), 1)):
        file = tmp_path / "weft"
        file.write_text(f"{line}\n")
        said = subprocess.run(["visudo", "-cf", file], env={"PATH": path}, capture_output=True, text=True, check=False)
        assert said.returncode == status, said


@pytest.mark.parametrize("way", ["installed", "sent"])
def test_the_program_runs_as_root_for_a_user_without_rights(way: str, asked: Host) -> None:
    link = Link(asked if way == "installed" else replace(asked, installed=""))
    assert link.peer.user == 0
    link.close()
    with pytest.raises(BoardLinkError, match="closed") as caught:
        Link(replace(asked, sudo=("sh", "-c", "echo user $(id -u) >&2; exit 1")))
    assert f"user {pwd.getpwnam(USER).pw_uid}" in str(caught.value)


@pytest.mark.parametrize(
    "words",
    [
        ("-c", "print(1)"),
        ("-c", BOOT, "more"),
        ("-c", f"{BOOT} "),
        ("-I", "-c", BOOT),
        ("{installed}", "more"),
        ("/dev/stdin",),
        (),
    ],
)
def test_nothing_else_is_allowed(words: tuple[str, ...], asked: Host) -> None:
    command = (*asked.python, *(word.format(installed=asked.installed) for word in words))
    with pytest.raises(BoardLinkError, match="sudo: a password is required"):
        Link(replace(asked, python=command[:-1], installed=command[-1]))
