"""The host's end of a link against boards that vanish, stop, lie and talk nonsense: a named error, in time."""

from __future__ import annotations

import os
import shlex
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from weft.boards.hosts import Host
from weft.boards.link.frames import PREFIX, pack
from weft.boards.link.messages import PROTOCOL
from weft.boards.remote import BOOT, BoardLinkError, Link, command_line, remote_command
from weft.runtime.errors import DeviceError

from benchmarks.campaigns.fuzz_link import fuzz

HELLO = {
    "ok": True,
    "protocol": PROTOCOL,
    "python": "3",
    "numpy": "1",
    "pynq": "4",
    "machine": "m",
    "user": 0,
    "code": "",
}

LOCAL = Host("here", command=("sh", "-c"), sudo=(), python=(sys.executable, "-I"), connect_seconds=30)


def peer(tmp_path: Path, *answers: bytes, rest: str = "") -> Host:
    """A board that takes the program and a request, and answers each request with what is given; then ``rest``."""
    script = tmp_path / "peer.py"
    script.write_text(
        "import os, sys, time\n"
        f"for answer in {list(answers)!r}:\n"
        "    os.read(0, 1 << 20)\n"
        "    os.write(1, answer)\n"
        f"{rest}\n"
    )
    command = ("sh", "-c", f"exec {shlex.join([sys.executable, '-I', str(script)])}")
    return replace(LOCAL, command=command, installed="x", connect_seconds=2.0)


def frame(header: dict[str, object], payload: bytes = b"") -> bytes:
    return b"".join(bytes(piece) for piece in pack(header, payload))


def test_the_program_travels_and_says_what_it_is() -> None:
    link = Link(LOCAL)
    assert link.peer.python == ".".join(map(str, sys.version_info[:3]))
    assert link.peer.user == os.geteuid()
    with pytest.raises(DeviceError, match="'here': no design is loaded"):
        link.ask("state", 10)
    with pytest.raises(DeviceError, match="there is no window 7"):
        link.read(7, 0, 1)
    link.close()
    assert link.dead


def test_a_program_that_was_put_on_the_board(tmp_path: Path) -> None:
    from weft.boards.zipapp import code_digest, zipapp

    program = tmp_path / "weft-link.pyz"
    program.write_bytes(zipapp())
    link = Link(replace(LOCAL, installed=str(program)))
    assert link.peer.code == code_digest()
    link.close()


def test_what_is_run() -> None:
    host = Host("z2", ssh="xilinx@pynq", ssh_options=("-p", "2222"))
    line = command_line(host)
    assert line[0] == "ssh"
    assert line[-5:-1] == ["-p", "2222", "--", "xilinx@pynq"]
    assert shlex.split(line[-1]) == ["sudo", "-n", "/usr/local/share/pynq-venv/bin/python3", "-c", BOOT]
    assert shlex.split(remote_command(replace(host, installed="/opt/w.pyz", sudo=()))) == [host.python[0], "/opt/w.pyz"]


def test_no_such_command() -> None:
    with pytest.raises(DeviceError, match="no-such-ssh cannot be run"):
        Link(replace(LOCAL, command=("no-such-ssh",)))


def test_what_the_child_said_last_is_told() -> None:
    with pytest.raises(BoardLinkError, match=r"closed the link.*sudo: a password is required") as caught:
        Link(replace(LOCAL, command=("sh", "-c", "echo 'sudo: a password is required' >&2; exit 1")))
    assert caught.value.kind == "closed"


LIES = {
    "closed": (b"", "closed the link"),
    "banner": (b"Welcome to PYNQ Linux, based on Ubuntu 22.04\r\n", "begins with b'Welc'"),
    "length": (PREFIX.pack(b"WEF1", 1 << 30, 0), "over the limits"),
    "no JSON": (PREFIX.pack(b"WEF1", 4, 0) + b"nope", "not JSON"),
    "fields": (frame({"ok": True, "protocol": PROTOCOL}), "missing or unknown fields"),
    "types": (frame({**HELLO, "user": -1}), "user is -1"),
    "payload": (frame(HELLO, b"123"), "nobody asked for"),
    "verdict": (frame({**HELLO, "ok": 1}), "does not say whether it went well"),
    "kind": (frame({"ok": False, "kind": "evil", "message": "x"}), "kind is evil"),
    "escapes": (frame({"ok": False, "kind": "version", "message": "\x1b[2Jgone"}), r"\\x1b\[2Jgone"),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_board_that_talks_nonsense(tmp_path: Path, lie: str) -> None:
    raw, message = LIES[lie]
    with pytest.raises(BoardLinkError, match=message):
        Link(peer(tmp_path, raw))


def test_a_board_that_says_nothing(tmp_path: Path) -> None:
    started = time.monotonic()
    with pytest.raises(BoardLinkError, match="no answer before the deadline") as caught:
        Link(peer(tmp_path, rest="time.sleep(600)"))
    assert caught.value.kind == "deadline"
    assert time.monotonic() - started < 30


@pytest.mark.parametrize(
    ("frames", "message"),
    [
        ([({"ok": True, "more": False}, b"12")], "2 bytes came, not 4"),
        ([({"ok": True, "more": False}, b"12345")], "5 bytes came, not 4"),
        ([({"ok": True, "more": True}, b"1234")], "4 bytes came, not 4"),
        ([({"ok": True, "more": True}, b"12"), ({"ok": True, "more": False}, b"345")], "5 bytes came, not 4"),
        ([({"ok": True, "more": True}, b"12")], "no answer before the deadline"),
        ([({"ok": True, "more": True}, b"12"), ({"ok": True, "more": False}, b"34")], ""),
    ],
)
def test_results_that_come_in_parts(
    tmp_path: Path, frames: list[tuple[dict[str, object], bytes]], message: str
) -> None:
    link = Link(peer(tmp_path, frame(HELLO), b"".join(frame(*each) for each in frames), rest="time.sleep(600)"))
    if not message:
        assert link.read(1, 0, 4) == b"1234"
        link.close()
        return
    with pytest.raises(BoardLinkError, match=message):
        link.read(1, 0, 4)
    assert link.dead
    with pytest.raises(DeviceError, match="the link to board 'here' is gone"):
        link.read(1, 0, 4)


@pytest.mark.parametrize("side", ["board", "host"])
def test_hostile_frames_end_in_an_error_or_an_answer(side: str) -> None:
    """A short form of ``benchmarks/campaigns/fuzz_link.py``."""
    ends = fuzz(side, 1000, seed=1).ends
    assert ends["protocol"] > 20
    assert ends["answer"] + ends["result"] > 10


def test_a_forked_process_does_not_use_the_link_of_its_parent() -> None:
    link = Link(LOCAL)
    child = os.fork()
    if child == 0:
        try:
            link.ask("state", 1)
        except DeviceError as error:
            os._exit(0 if "forked" in str(error) else 2)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    with pytest.raises(DeviceError, match="no design is loaded"):
        link.ask("state", 10)
    link.close()
