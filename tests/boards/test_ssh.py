"""The whole chain: ``weft run`` and ``weft.load`` over a real ``sshd`` on this machine to pynq to the RTL."""

from __future__ import annotations

import getpass
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import weft
from typer.testing import CliRunner
from weft.boards.loopback import Daemon, daemon_missing, loopback_daemon
from weft.boards.remote import BoardLinkError
from weft.boards.virtual_files import VirtualBoard
from weft.cli import app
from weft.compiler.model import CompiledModel
from weft.runtime.errors import DeviceError
from weft.runtime.module import Array

from tests.boards.virtual_boards import MakeBoard


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    if missing := daemon_missing():
        pytest.skip(f"no OpenSSH daemon: {missing}")
    with loopback_daemon(tmp_path_factory.mktemp("sshd")) as running:
        yield running


def hosts_text(board: VirtualBoard, daemon: Daemon, **others: object) -> str:
    settings = {
        "ssh": f"{getpass.getuser()}@127.0.0.1", "ssh_options": list(daemon.options), "sudo": [],
        "python": list(board.command), "overlay": str(board.overlay), "connect_seconds": 300, **others,
    }  # fmt: skip
    return "[z2]\n" + "".join(f"{name} = {json.dumps(value)}\n" for name, value in settings.items())


@pytest.fixture
def hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "hosts.toml"
    monkeypatch.setenv("WEFT_HOSTS", str(path))
    return path


def test_the_command_runs_a_model_on_the_board(
    daemon: Daemon, hosts: Path, make_board: MakeBoard, digits: CompiledModel, image: Array, tmp_path: Path
) -> None:
    board = make_board("pynq-z2")
    hosts.write_text(hosts_text(board, daemon))
    weft.save(digits, tmp_path / "digits.weft")
    np.savez(tmp_path / "image.npz", image=image)
    options = ["--input", str(tmp_path / "image.npz")]
    expected = weft.load(digits, "rtl")
    logits = expected.run(image)["logits"]
    said = CliRunner().invoke(app, ["run", str(tmp_path / "digits.weft"), "--device", "pynq://z2", "--json", *options])
    assert said.exit_code == 0, said.output
    record = json.loads(said.stdout)
    assert record["device"] == "pynq"
    assert record["cycles"] == expected.cycles
    assert record["results"]["logits"] == logits.tolist()
    hosts.write_text(hosts_text(board, daemon, kernels="board"))
    options += ["--output", str(tmp_path / "logits.npz")]
    text = CliRunner().invoke(app, ["run", str(tmp_path / "digits.weft"), "--device", "pynq://z2", *options])
    assert text.exit_code == 0, text.output
    np.testing.assert_array_equal(np.load(tmp_path / "logits.npz")["logits"], logits)
    assert f"{expected.cycles:,}" in text.output
    assert "token" in text.output  # cycles of each engine by class


def test_a_link_that_is_cut_is_an_error_and_the_next_run_works(
    daemon: Daemon, hosts: Path, make_board: MakeBoard, digits: CompiledModel, image: Array
) -> None:
    hosts.write_text(hosts_text(make_board(), daemon))
    expected = weft.load(digits, "fsim").run(image)["logits"]
    module = weft.load(digits, device="pynq://z2")
    np.testing.assert_array_equal(module.run(image)["logits"], expected)
    module.device._memory._link._far._process.kill()  # type: ignore[attr-defined]
    with pytest.raises(DeviceError, match="board 'z2': the other end closed the link"):
        module.run(image)
    np.testing.assert_array_equal(module.run(image)["logits"], expected)
    module.close()


def test_a_host_that_is_not_known_is_refused(
    daemon: Daemon, hosts: Path, make_board: MakeBoard, digits: CompiledModel
) -> None:
    board = make_board()
    stranger = Daemon(make_board().folder, daemon.port)
    (stranger.folder / "user").write_bytes((daemon.folder / "user").read_bytes())
    (stranger.folder / "user").chmod(0o600)
    hosts.write_text(hosts_text(board, stranger))
    with pytest.raises(BoardLinkError, match="Host key verification failed") as caught:
        weft.load(digits, device="pynq://z2")
    assert caught.value.kind == "closed"
