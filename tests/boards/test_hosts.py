"""The file of boards: what it says is what is run, and what it cannot say is refused with its place."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest
from weft.boards.hosts import Host, find_host, hosts_file, hosts_text, no_overlay, read_hosts
from weft.runtime.errors import DeviceError

GOOD = """
[z2]
ssh = "xilinx@192.168.2.99"
ssh_options = ["-p", "2222"]
overlay = "/data/z2/weft.bit"
run_seconds = 5
watchdog = 0

[kria]
sudo = []
python = "python3"
clock_mhz = 200
kernels = "board"
wait = "poll"
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "hosts.toml"
    monkeypatch.setenv("WEFT_HOSTS", str(path))
    return path


def test_boards_come_from_the_file(file: Path) -> None:
    file.write_text(GOOD)
    assert hosts_file() == file
    z2 = Host("z2", Path("/data/z2/weft.bit"), "xilinx@192.168.2.99", ("-p", "2222"), run_seconds=5.0, watchdog=0)
    assert find_host("z2") == z2
    assert find_host("kria") == Host(
        "kria", ssh="kria", sudo=(), python=("python3",), clock_mhz=200.0, kernels="board", wait="poll"
    )


def test_other_names_are_those_of_ssh(file: Path) -> None:
    assert find_host("xilinx@pynq.local") == Host("xilinx@pynq.local", ssh="xilinx@pynq.local")


def test_the_file_lies_in_the_user_s_configuration(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("WEFT_HOSTS", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert hosts_file() == tmp_path / "weft" / "hosts.toml"
    assert read_hosts() == {}


@pytest.mark.parametrize("name", ["", "-oProxyCommand=x", "a b", "a;b", "a/b", "$(x)", "x" * 300])
def test_names_that_ssh_could_take_for_something_else(name: str, file: Path) -> None:
    with pytest.raises(DeviceError, match="no name of a board"):
        find_host(name)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[z2", "not a file of boards"),
        ("z2 = 1", r"\[z2\]: not a board"),
        ("[z2]\nshh = 'x'", r"\[z2\]: unknown setting 'shh'; hint: known: clock_mhz"),
        ("[z2]\nssh = '-oProxyCommand=x'", "which is no destination"),
        ("[z2]\nsudo = [1]", "sudo must be a list of words"),
        ("[z2]\nrun_seconds = 0", "run_seconds cannot be 0"),
        ("[z2]\nwatchdog = 1.5", "watchdog cannot be 1.5"),
        ("[z2]\nclock_mhz = true", "clock_mhz cannot be True"),
        ("[z2]\nkernels = 'core'", "kernels cannot be 'core'"),
        ("[z2]\nwait = 'interrupts'", "wait cannot be 'interrupts'"),
        ("[z2]\noverlay = '~nobody-here/weft.bit'", "the home of a user who is not known here; hint: give the whole"),
        ("[z2]\nname = 'x'", "unknown setting 'name'"),
    ],
)
def test_files_that_are_refused(text: str, message: str, file: Path) -> None:
    file.write_text(text)
    with pytest.raises(DeviceError, match=message):
        find_host("z2")


def test_a_missing_file_an_unknown_name_and_no_overlay_are_three_errors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    path = tmp_path / "hosts.toml"
    monkeypatch.setenv("WEFT_HOSTS", str(path))

    def said(name: str) -> str:
        return str(no_overlay(find_host(name)))

    assert said("z2").startswith(f"{path}: board 'z2' is not known: there is no file of boards; hint: ")
    path.write_text("[z1]\n[z3]\n")
    assert said("z2").endswith("nothing says what its overlay is; hint: known: z1, z3")
    assert said("z2").startswith(f"{path}: ")
    assert "board 'z1' has no overlay; hint: weft board build makes one" in said("z1")
    path.write_text("")
    assert said("z2").endswith("hint: known: none")


def test_a_file_of_boards_that_was_written_is_read_as_it_was(tmp_path: Path) -> None:
    odd = Host("a.b@c", Path("/x/ö \"y'.bit"), "u@h", ("-p", "7"), ("sh", "-c"), (), ("py", "-I"), "/w.pyz", "ip0",
               50.0, 3.0, 4.5, 0, "poll", "board")  # fmt: skip
    assert all(getattr(odd, each.name) != getattr(Host(""), each.name) for each in fields(Host))
    hosts = [odd, Host("plain", ssh="plain")]
    path = tmp_path / "hosts.toml"
    path.write_text(hosts_text(hosts))
    assert read_hosts(path) == {host.name: host for host in hosts}
