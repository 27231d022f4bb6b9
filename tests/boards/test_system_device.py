"""A system on a board as a device: what the host says to it and makes of its answers, and real pynq beneath."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import weft
from weft.boards.board import find_board
from weft.boards.design import make_design
from weft.boards.hosts import hosts_text
from weft.boards.loopback import daemon_missing, loopback_daemon
from weft.boards.remote import BoardLinkError
from weft.boards.system_device import PynqSystem, differences
from weft.boards.virtual_files import VirtualBoard, write_overlay, write_virtual_board
from weft.hw.bus import PAGE_BYTES
from weft.hw.config import TINY
from weft.hw.isa import Finish
from weft.hw.programs import assemble
from weft.hw.relay_plan import RelayPlan
from weft.runtime.errors import CoreFaultError, DeviceError
from weft.sim.system_rtl import RtlSystem
from weft.sim.system_run import SystemResult

from tests.boards.systems import host_of, serve_here
from tests.boards.virtual_boards import BOARDS, MODEL, MakeBoard, device_on
from tests.sim.test_relay import PROGRAMS, RELAY, ring

PAIR = weft.SystemConfig(name="pair", cores=(TINY, TINY))
RELAY_ON_ONE_PORT = replace(RELAY, ports=())


def manifest(path: Path, system: weft.SystemConfig | None) -> Path:
    """What an overlay is known by on this side: a ``.bit``, with a manifest beside it."""
    values = {} if system is None else {"system": json.loads(system.to_json())}
    path.with_suffix(".json").write_text(json.dumps(values))
    path.write_text("bits")
    path.with_suffix(".hwh").write_text("hwh")
    return path


def equal(ours: SystemResult | Any, theirs: Any) -> bool:
    return all(
        (one is None) == (other is None)
        and (one is None or other is None or (one.cycles, one.bytes_read) == (other.cycles, other.bytes_read))
        for one, other in zip(ours, theirs, strict=True)
    )


def test_programs_and_relays_give_what_the_simulator_says_of_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    serve_here(monkeypatch, tmp_path, RtlSystem(RELAY, 4 * PAGE_BYTES, quick=True))
    host = host_of(manifest(tmp_path / "weft.bit", RELAY))
    expected = RtlSystem(RELAY, 2 * PAGE_BYTES, quick=True)
    programs, _ = ring(expected)
    with_host = PynqSystem(RELAY, PAGE_BYTES, host=host, windows=2)
    assert with_host.clock_mhz == 100
    with_host.write(0, expected.dram.copy())
    first = [own[0] for own in programs]
    assert equal(with_host.run([first[0], None, None]).cores, expected.run([first[0], None, None]).cores)
    plan = RelayPlan.barrier(3)
    done, wanted = with_host.relay(plan, programs, 2), expected.relay(plan, programs, 2)
    assert (done.ended, done.cycles, done.spans) == (wanted.ended, wanted.cycles, ())
    assert equal(done.last, wanted.last)
    assert np.array_equal(with_host.window(0).read(0, PROGRAMS), expected.dram[:PROGRAMS])
    with pytest.raises(DeviceError, match=r"bytes 4000\.\.4128 are outside the window of 4096 bytes"):
        with_host.window(0).read(4000, 128)
    with_host.window(0).write(PROGRAMS, np.full(64, 255, np.uint8))
    faults = with_host.run([first[0], None, None]).faults
    assert list(faults) == [0]
    with_host.close()


def test_a_model_runs_and_a_fault_names_its_core(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A program of one instruction for each core, and what the module makes of its fault."""
    serve_here(monkeypatch, tmp_path, RtlSystem(RELAY, 4 * PAGE_BYTES, quick=True))
    device = PynqSystem(RELAY, PAGE_BYTES, host=host_of(manifest(tmp_path / "weft.bit", RELAY)))
    for core, own in zip(RELAY.cores, device.cores, strict=True):
        own.allocate(PAGE_BYTES)
        own.write(0, np.frombuffer(assemble(core, [Finish()]).tobytes(), np.uint8))
    device.begin(1)
    assert device.cores[2].launch(0, 1).cycles
    device.cores[1].write(0, np.full(16, 255, np.uint8))
    device.begin(1)
    with pytest.raises(CoreFaultError):
        device.cores[1].launch(0, 1)
    with pytest.raises(DeviceError, match="a window of 4097 bytes, but each core of the system has one of 4096"):
        device.cores[0].allocate(PAGE_BYTES + 1)
    device.close()


def test_systems_that_the_overlay_is_not_of(tmp_path: Path) -> None:
    overlay = manifest(tmp_path / "weft.bit", PAIR)
    host = host_of(overlay)
    for wanted, message in (
        (replace(PAIR, cores=(TINY,) * 3, ports=()), "another system: it has 2 cores, not 3"),
        (
            replace(PAIR, cores=(TINY, replace(TINY, wgt_depth=512))),
            r"core 1 is a 'tiny' of other fields \(wgt_depth\)",
        ),
        (replace(PAIR, relay=True), "relay is False, not True"),
        (replace(PAIR, shared_reads=True, ports=(0, 0)), "shared_reads is False, not True"),
    ):
        with pytest.raises(DeviceError, match=message):
            PynqSystem(wanted, PAGE_BYTES, host=host)
    with pytest.raises(DeviceError, match='kernels = "host"'):
        PynqSystem(PAIR, PAGE_BYTES, host=host_of(overlay, kernels="board"))
    manifest(overlay, None)
    with pytest.raises(DeviceError, match=r"has one core, not the system 'pair'.*weft board build --system"):
        PynqSystem(PAIR, PAGE_BYTES, host=host)
    for text, message in (("{", "not the manifest"), ('{"system": {"cores": 5}}', "not the manifest")):
        overlay.with_suffix(".json").write_text(text)
        with pytest.raises(DeviceError, match=message):
            PynqSystem(PAIR, PAGE_BYTES, host=host)
    overlay.with_suffix(".json").unlink()
    with pytest.raises(DeviceError, match="has no manifest"):
        PynqSystem(PAIR, PAGE_BYTES, host=host)
    with pytest.raises(DeviceError, match="board 'pair' is not known"):
        PynqSystem(PAIR, PAGE_BYTES, host=host_of(None))
    assert differences(PAIR, replace(PAIR, ports=(0, 1))) == ["ports is (0, 0), not (0, 1)"]


def test_a_system_and_a_core_are_not_taken_for_each_other(
    forked: Any, make_board: MakeBoard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Real pynq reads the .hwh; no RTL is there for a system, as its design is refused before."""
    board = make_board()
    system = make_design(find_board("ultra96-v2"), PAIR)
    bit = board.overlay.read_text()
    write_overlay(board.overlay, system)
    board.overlay.write_text(bit)  # the RTL that is built already
    with pytest.raises(BoardLinkError, match="holds a system of several cores, not one: run with it, as by --system"):
        device_on(forked(board)).allocate(PAGE_BYTES)
    write_overlay(board.overlay, make_design(find_board("ultra96-v2"), TINY))
    manifest_of = json.loads(board.overlay.with_suffix(".json").read_text())
    board.overlay.with_suffix(".json").write_text(json.dumps(manifest_of | {"system": json.loads(PAIR.to_json())}))
    with pytest.raises(BoardLinkError, match="the design holds one core, not a system of several"):
        PynqSystem(PAIR, PAGE_BYTES, host=forked(board))


def virtual(folder: Path, board: str, system: weft.SystemConfig) -> VirtualBoard:
    return write_virtual_board(folder, make_design(find_board(board), system), BOARDS[board], progress=print)


WAYS = {
    "pictures": ({}, PAIR),
    "shared reads": ({}, replace(PAIR, shared_reads=True)),
    "stages": ({"stages": 2}, PAIR),
    "stages that start each other": ({"stages": 2}, replace(PAIR, relay=True)),
    "split": ({"split": 2}, PAIR),
    "split, cores start each other": ({"split": 2}, replace(PAIR, relay=True)),
}


@pytest.mark.long
@pytest.mark.parametrize("way", WAYS)
def test_digits_on_two_cores_of_a_board_are_those_of_the_timing_model(
    way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through the daemon, the command's own door, real pynq, the driver and the RTL of two cores."""
    options, system = WAYS[way]
    name = "pynq-z2" if way == "pictures" else "ultra96-v2"
    board = virtual(tmp_path / "board", name, system)
    hosts = tmp_path / "hosts.toml"
    monkeypatch.setenv("WEFT_HOSTS", str(hosts))
    model = weft.compile(MODEL, TINY, **options)  # type: ignore[arg-type]
    images = [np.random.default_rng(seed).random((1, 1, 8, 8)).astype(np.float32) for seed in range(3)]
    expected = weft.load(model, "fsim", system=system)
    wanted = expected.run(images)
    keys = tmp_path / "keys"
    keys.mkdir()
    if missing := daemon_missing():
        pytest.skip(f"no OpenSSH daemon: {missing}")
    with loopback_daemon(keys) as daemon:
        hosts.write_text(hosts_text([daemon.reaches(board.host("two"))]))
        with weft.load(model, "pynq://two", system=system) as module:
            for _ in range(2):
                got = module.run(images)
                assert all(
                    np.array_equal(one["logits"], other["logits"]) for one, other in zip(got, wanted, strict=True)
                )
                assert module.cycles == expected.cycles
                assert [use.bytes_read for use in module.use()] == [use.bytes_read for use in expected.use()]
                for ours, theirs in zip(module.results, expected.results, strict=True):
                    for one, other in zip(ours.cores, theirs.cores, strict=True):
                        assert (one is None) == (other is None)
                        if one is not None and other is not None:
                            assert (one.cycles, one.counters) == (other.cycles, other.counters)
            window = module.device.window(1 if way in ("pictures", "shared reads") else 0)
            programs = [step for step in model.programs if (step.core, step.stage) != (0, 0)] or list(model.programs)
            window.write(programs[0].program_offset, np.full(programs[0].program.size, 255, np.uint8))
            with pytest.raises(CoreFaultError, match="core 1: "):
                module.run(images)
            assert all(
                np.array_equal(one["logits"], other["logits"])
                for one, other in zip(module.run(images), wanted, strict=True)
            )
