"""``weft board bench``, ``weft board serve``, and a profile and a recording on a board."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import weft
from typer.testing import CliRunner
from weft.boards.hosts import Host
from weft.boards.remote import Link
from weft.boards.zipapp import code_digest, zipapp
from weft.cli import app
from weft.compiler.model import CompiledModel, CoreStep
from weft.hw.config import TINY
from weft.runtime.device import RtlDevice
from weft.runtime.module import Array
from weft.runtime.recording import RecordingDevice, recording_bytes, recording_from
from weft.runtime.replay import replay

from tests.boards.conftest import Forked
from tests.boards.virtual_boards import MODEL, MakeBoard, device_on


@pytest.fixture
def host(make_board: MakeBoard, forked: Forked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    """A virtual board that is called ``it`` in the file of boards."""
    host = forked(make_board())
    settings = {"command": host.command, "sudo": [], "python": host.python, "overlay": str(host.overlay)}
    text = "".join(f"{key} = {json.dumps(value)}\n" for key, value in {**settings, "connect_seconds": 300}.items())
    (tmp_path / "hosts.toml").write_text(f"[it]\n{text}")
    monkeypatch.setenv("WEFT_HOSTS", str(tmp_path / "hosts.toml"))
    return host


def weft_says(*words: str | Path) -> str:
    result = CliRunner().invoke(app, list(map(str, words)))
    assert result.exit_code == 0, (result.output, result.exception)
    return result.stdout


def test_a_board_is_measured(host: Host) -> None:
    figures = json.loads(
        weft_says("board", "bench", "it", "--launches", "3", "--megabytes", "1", "--images", "1", "--json")
    )
    assert figures["core"] == "tiny"
    assert figures["clock_mhz"] == pytest.approx(100, abs=0.01)
    assert 0 < figures["launch_seconds"] <= figures["longest_launch_seconds"]
    assert figures["launch_seconds"] < figures["connect_seconds"]
    for name in ("up_bytes_per_second", "down_bytes_per_second", "images_per_second"):
        assert figures[name] > 0
    assert figures["cycles"] > 10_000
    assert figures["first_result_seconds"] > 0


def test_a_profile_on_a_board_is_what_the_core_counted(
    host: Host, tmp_path: Path, digits: CompiledModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weft.cli.profile_core.write_plots", lambda measured, folder: None)  # pictures take seconds
    weft.save(digits, tmp_path / "digits.weft")
    options = ["--device", "pynq://it", "--no-what-if", "--output", tmp_path / "out", "--json"]
    record = json.loads(weft_says("profile", tmp_path / "digits.weft", *options))
    expected = weft.load(digits, "rtl")
    expected.run(np.zeros((1, 1, 8, 8), np.float32))
    (program,) = record["measured"]["programs"]
    assert program["measured"] == expected.cycles
    assert program["layers"] == [layer.name for layer in digits.layers if layer.device == "core"]
    counters = expected.device.counters()
    for each in record["measured"]["engines"]:
        (cycles,) = [
            count
            for engine, kinds in counters.items()
            for kind, count in kinds.items()
            if (engine.name.lower(), kind.name.lower()) == (each["engine"], each["class"])
        ]
        assert each["measured"] == cycles
    assert record["causes"]  # by layer, of the timing model
    assert "by engine, not by layer" in (tmp_path / "out" / "report.txt").read_text()


def test_a_device_without_cycles_has_no_profile(digits: CompiledModel, tmp_path: Path) -> None:
    weft.save(digits, tmp_path / "digits.weft")
    result = CliRunner().invoke(app, ["profile", str(tmp_path / "digits.weft"), "--device", "null"])
    assert result.exit_code == 1
    assert "device 'null' knows no cycles" in str(result.exception)


def test_what_ran_on_a_board_runs_on_the_rtl(
    make_board: MakeBoard, forked: Forked, digits: CompiledModel, image: Array
) -> None:
    device = RecordingDevice(device_on(forked(make_board())))
    with weft.load(digits, device) as module:
        module.run(image)
    recording = recording_from(recording_bytes(device.recording(digits)))
    assert recording.device == "pynq"
    assert recording.clock_mhz == pytest.approx(100, abs=0.01)
    assert replay(recording, RtlDevice(TINY)) == []


def test_a_run_is_recorded_wherever_its_kernels_would_run(
    host: Host, tmp_path: Path, digits: CompiledModel, image: Array
) -> None:
    """A recording sees every program, so the steps between them are this machine's."""
    hosts = tmp_path / "hosts.toml"
    hosts.write_text(f'{hosts.read_text()}kernels = "board"\n')
    weft.save(digits, tmp_path / "digits.weft")
    np.savez(tmp_path / "image.npz", image=image)
    source, seen = tmp_path / "digits.weft", tmp_path / "seen.wrec"
    options = ["--device", "pynq://it", "--input", tmp_path / "image.npz", "--json"]
    recorded = json.loads(weft_says("run", source, *options, "--record", seen))
    on_board = json.loads(weft_says("run", source, *options))
    expected = weft.load(digits, "rtl")
    logits = expected.run(image)["logits"].tolist()
    for record in (recorded, on_board):
        assert (record["results"]["logits"], record["cycles"]) == (logits, expected.cycles)
    recording = weft.load_recording(seen)
    programs = [step for step in digits.steps if isinstance(step, CoreStep)]
    assert [each.count for each in recording.launches] == [
        step.program.size // TINY.instruction_bytes for step in programs
    ]
    assert replay(recording, RtlDevice(TINY)) == []


def test_a_wrong_byte_on_a_board_is_found_on_the_simulator(
    make_board: MakeBoard, forked: Forked, digits: CompiledModel, image: Array
) -> None:
    device = RecordingDevice(device_on(forked(make_board(defects=["stuck_write_bit"]))))
    with weft.load(digits, device) as module:
        module.run(image)
    found = [each for each in replay(device.recording(digits), weft.FsimDevice(TINY)) if not each.is_timing]
    assert [each.kind for each in found] == ["memory"]
    assert "layer 'conv" in found[0].what
    assert int(found[0].recorded) & 0x10
    assert int(found[0].recorded) & ~0x10 == int(found[0].found)


# The program on the board

WEFT = "from weft.cli import main; main()"


def test_the_program_for_a_board_is_written(tmp_path: Path) -> None:
    said = weft_says("board", "serve", "--write", tmp_path / "weft-link.pyz")
    assert (tmp_path / "weft-link.pyz").read_bytes() == zipapp()
    assert code_digest() in said


def test_weft_itself_serves_a_link() -> None:
    host = Host("here", command=("sh", "-c"), sudo=(), python=(sys.executable, "-c", WEFT, "board"), installed="serve")
    link = Link(replace(host, connect_seconds=60.0))
    assert link.peer.code == code_digest()
    with pytest.raises(weft.WeftError, match="no design is loaded"):
        link.ask("state", 10)
    link.close()


def test_the_examples_are_those_of_the_repository() -> None:
    from weft.cli.doctor import DIGITS

    assert DIGITS.resolve() == MODEL.resolve()
