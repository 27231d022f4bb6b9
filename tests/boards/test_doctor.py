"""The doctor finds nothing wrong with a board that is well, and names what was planted in one that is not."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner
from weft.boards.doctor import NAMES, State, Verdict, core_of, examine
from weft.boards.doctor_core import judged_rate
from weft.boards.finding import FindingError
from weft.boards.hosts import Host
from weft.boards.virtual_files import DEFECTS, write_overlay
from weft.cli import app
from weft.hw.config import TINY
from weft.runtime.errors import DeviceError

from tests.boards.conftest import Forked
from tests.boards.virtual_boards import BOARDS, MakeBoard, design_of

FOUND = {
    "no_flush": ("fetch", "what the host writes does not reach the core"),
    "only_first_flush": ("fetch", "does not reach the core"),
    "no_invalidate": ("copies", "nothing that the core wrote is there"),
    "no_cma": ("window", "memory for the core: Failed to allocate Memory!"),
    "hung_memory": ("fetch", "the memory does not answer the core"),
    "dead_clock": ("start", "the core has no clock"),
    "wrong_address": ("hash", "no core answers: its first register is 0x0"),
    "wrong_clock": ("clock", "the clock is 49.9995 MHz, but 99.999 MHz are meant"),
    "little_cma": ("memory", "too little memory: 1.0 MiB of 1.0 MiB"),
    "no_permission": ("permissions", "no permission: the program runs as user 1000"),
    "stuck_register": ("registers", "register PROGRAM_OFFSET reads 0xffffdfff after 0xffffffff"),
    "refused_reads": ("fetch", "the bus refuses reads"),
    "refused_writes": ("copies", "the bus refuses writes"),
    "swapped_read_lanes": ("fetch", "byte lanes are exchanged when the core reads: bytes are reversed in groups of 2"),
    "swapped_write_lanes": ("copies", "byte lanes are exchanged: byte 0 of a bus word comes from byte 1, byte 1"),
    "stuck_read_bit": ("fetch", "a data line is stuck when the core reads: bit 4 of byte 2 of a bus word is always 1"),
    "stuck_write_bit": ("copies", "data lines are stuck: bit 4 of byte 2 of a bus word is always 1"),
    "dead_interrupt": ("interrupt", "a program has ended, but its interrupt does not come"),
    "stuck_interrupt": ("interrupt", "the interrupt has come 5 times while the core ran"),
    "vanish": ("start", "the other end closed the link"),
    "silence": ("start", "no answer before the deadline"),
}
"""For each defect, the check that fails, and what it says."""


def ills(host: Host, **options: object) -> list[Verdict]:
    """What is not well; all checks are there, in their order, and nothing else was tried after what makes it vain."""
    verdicts = list(examine(host, TINY, **options))  # type: ignore[arg-type]
    assert tuple(each.check for each in verdicts) == NAMES
    return [each for each in verdicts if each.state is State.FAILED]


def the_ill(host: Host) -> Verdict:
    (verdict,) = ills(host)
    assert verdict.remedy
    return verdict


@pytest.mark.parametrize("name", BOARDS)
def test_a_board_that_is_well(
    name: str, make_board: MakeBoard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = make_board(name).host()
    settings = {"command": host.command, "sudo": [], "python": host.python, "overlay": str(host.overlay)}
    text = "".join(f"{key} = {json.dumps(value)}\n" for key, value in {**settings, "connect_seconds": 300}.items())
    (tmp_path / "hosts.toml").write_text(f"[it]\n{text}")
    monkeypatch.setenv("WEFT_HOSTS", str(tmp_path / "hosts.toml"))
    said = CliRunner().invoke(app, ["board", "doctor", "it", "--json"])
    assert said.exit_code == 0, said.output
    record = json.loads(said.stdout)
    assert record["well"] is True
    assert [(each["check"], each["state"]) for each in record["checks"]] == [(name, "ok") for name in NAMES]
    figures = {each["check"]: each["figures"] for each in record["checks"]}
    assert figures["pynq"]["pynq"] == BOARDS[name].version
    assert figures["clock"]["mhz"] == pytest.approx(100, abs=0.01)
    assert all(wakes >= 1 for wakes in figures["interrupt"]["wakes"])
    assert figures["bandwidth"]["reads"]["64"] > 2 * figures["bandwidth"]["reads"]["1"]


def test_every_defect_of_a_virtual_board_is_looked_for() -> None:
    assert set(FOUND) == set(DEFECTS)


@pytest.mark.parametrize("defect", FOUND)
def test_a_planted_defect_is_named(
    defect: str, make_board: MakeBoard, forked: Forked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weft.boards.patient.SLACK_SECONDS", 1.0)
    ends = defect.endswith("_interrupt")  # programs do, and the simulator takes its time
    host = replace(forked(make_board(defects=[defect])), run_seconds=30.0 if ends else 1.0)
    if defect == "silence":
        host = replace(host, connect_seconds=5.0)
    check, text = FOUND[defect]
    verdict = the_ill(host)
    assert verdict.check == check
    assert text in verdict.text


@pytest.mark.parametrize("driver", ["other", "none"])
def test_a_kernel_that_has_no_interrupt_for_pynq(driver: str, make_board: MakeBoard, forked: Forked) -> None:
    """That is an ill only for who asks for the interrupt."""
    host = forked(make_board(interrupt_driver=driver))
    words = {"auto": "none, so the core is looked at instead", "poll": "not used"}
    for wait, text in words.items():
        verdicts = {each.check: each for each in examine(replace(host, wait=wait), TINY)}
        assert not [each for each in verdicts.values() if each.state is State.FAILED]
        assert verdicts["interrupt"].text.startswith(text)
    verdict = the_ill(replace(host, wait="interrupt"))
    assert verdict.check == "interrupt"
    why = {"other": "No such file or directory: '/sys/class/uio'", "none": "Could not find UIO device"}
    assert why[driver] in verdict.text


def test_memory_that_the_core_does_not_reach(make_board: MakeBoard, forked: Forked) -> None:
    verdict = the_ill(forked(make_board(memory_base=0x8_0000_0000)))
    assert verdict.check == "window"
    assert "the memory at 0x800000000" in verdict.text
    assert "address_bits" in verdict.remedy


def test_another_core_in_the_overlay(make_board: MakeBoard, forked: Forked) -> None:
    board = make_board()
    other = replace(TINY, queue_depth=32)
    found = [each for each in examine(forked(board), other) if each.state is State.FAILED]
    assert [each.check for each in found] == ["hash"]
    assert f"the design holds the core {TINY.hash64:016x}" in found[0].text
    assert f"{other.hash64:016x}" in found[0].text


@pytest.mark.parametrize(
    ("damage", "text"),
    [
        (("bit", b"weft", b"nothing"), "the configuration logic refuses"),
        (("hwh", b"weft_core", b"else_core"), "the design has 0 cores, not one"),
    ],
)
def test_another_design_in_the_overlay(
    damage: tuple[str, bytes, bytes], text: str, make_board: MakeBoard, forked: Forked
) -> None:
    board = make_board()
    path = board.overlay.with_suffix(f".{damage[0]}")
    path.write_bytes(path.read_bytes().replace(*damage[1:]))
    verdict = the_ill(forked(board))
    assert (verdict.check, text in verdict.text) == ("overlay", True)


# What goes wrong before there is a board: no pynq is needed for these


def words(text: str) -> tuple[str, ...]:
    return (sys.executable, "-I", "-c", text)


HERE = Host("here", command=("sh", "-c"), sudo=(), python=(sys.executable,), connect_seconds=30.0)

OLD = "import sys; sys.version_info = (3, 8, 10); sys.argv.pop(1); exec(sys.argv[1])"


@pytest.mark.parametrize(
    ("host", "check", "text"),
    [
        (replace(HERE, command=("sh", "-c", "sleep 99; :"), connect_seconds=0.5), "link", "the link is silent"),
        (
            replace(HERE, command=("sh", "-c", "echo 'xilinx@pynq: Permission denied (publickey).' >&2; exit 255")),
            "link",
            "ssh does not reach the board: xilinx@pynq: Permission denied",
        ),
        (
            replace(HERE, command=("sh", "-c", "echo 'Welcome to PYNQ'; eval \"$0\"")),
            "link",
            "'Welcome to PYNQ | weft'",
        ),
        (replace(HERE, command=("no-such-ssh",)), "link", "no-such-ssh cannot be run here"),
        (replace(HERE, python=("/no/python3",)), "python", "/no/python3 does not run on the board"),
        (replace(HERE, python=words(OLD)), "python", "the board's Python is 3.8.10, too old"),
        (
            replace(HERE, python=(sys.executable, "-S")),
            "python",
            "has no NumPy",
        ),
        (
            replace(HERE, sudo=("sh", "-c", "echo 'sudo: a password is required' >&2; exit 1")),
            "permissions",
            "sudo: a password is required",
        ),
    ],
    ids=["silent", "key", "banner", "no-ssh", "no-python", "old-python", "no-numpy", "sudo"],
)
def test_a_board_that_is_not_reached(host: Host, check: str, text: str) -> None:
    verdict = the_ill(host)
    assert verdict.check == check
    assert text in verdict.text


def test_no_pynq(tmp_path: Path) -> None:
    root = "import os, sys; os.geteuid = lambda: 0; sys.argv.pop(1); exec(sys.argv[1], {'__name__': '__main__'})"
    verdict = the_ill(replace(HERE, python=words(root)))
    assert verdict.check == "pynq"
    assert "pynq cannot be imported: ModuleNotFoundError" in verdict.text
    assert "image's own Python" in verdict.remedy


def test_a_program_that_is_not_root() -> None:
    """Where this process is root the board's becomes somebody else, who may read root's files, as Python is there."""
    reads = ("--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search")
    user = os.geteuid() or 65534
    verdict = the_ill(replace(HERE, sudo=() if os.geteuid() else ("setpriv", f"--reuid={user}", *reads)))
    assert (verdict.check, f"user {user}" in verdict.text) == ("permissions", True)


def test_an_installed_program_of_another_version(tmp_path: Path) -> None:
    from weft.boards.zipapp import zipapp

    program = tmp_path / "weft-link.pyz"
    program.write_bytes(zipapp() + b"\0\0")
    verdict = the_ill(replace(HERE, installed=str(program)))
    assert verdict.check == "python"
    assert "another version of weft" in verdict.text


# Judgements


def test_a_clock_that_is_not_the_one_that_pynq_reads() -> None:
    text, figures = judged_rate(100.0, 20_000_000, 0.204)
    assert figures["measured_mhz"] == pytest.approx(98.04, abs=0.01)
    assert "98.0 MHz" in text
    for seconds in (0.4, 0.1):
        with pytest.raises(FindingError, match="by its counter, but pynq reads 100 MHz"):
            judged_rate(100.0, 20_000_000, seconds)


def test_the_core_is_that_of_the_manifest(tmp_path: Path) -> None:
    write_overlay(tmp_path / "weft.bit", design_of("pynq-z2"))
    host = Host("it", overlay=tmp_path / "weft.bit")
    assert core_of(host) == TINY
    for content, message in (
        ("{}", "not the manifest of an overlay"),
        ('{"core": {"name": 5}}', "not the manifest of an overlay"),
        ("[" * 100_000, "not the manifest of an overlay"),
        (None, "has no manifest"),
    ):
        path = tmp_path / "weft.json"
        path.unlink() if content is None else path.write_text(content)
        with pytest.raises(DeviceError, match=message):
            core_of(host)
    with pytest.raises(DeviceError, match=r"board .it. (is not|has no)"):
        core_of(Host("it"))
