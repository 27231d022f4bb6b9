"""The real pynq, 4.0.0 and 3.1.2, drives the RTL through overlay, driver and server: same integers, same cycles."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import weft
from weft.boards.remote import BoardLinkError
from weft.boards.virtual_files import BUSY_SECONDS, write_overlay
from weft.compiler.model import CompiledModel, CoreStep
from weft.hw.config import TINY
from weft.hw.isa import Engine, Fault, Finish, Sync
from weft.hw.programs import assemble
from weft.runtime.errors import CoreFaultError, DeviceError
from weft.runtime.module import Array

from tests.boards.virtual_boards import BOARDS, MODEL, MakeBoard, design_of, device_on

LOST = Sync(wait=1 << Engine.STORE, engine=Engine.LOAD)
"""Waits for a token that nobody sends."""


@pytest.mark.parametrize("board", BOARDS)
def test_digits_on_a_board_are_those_of_the_rtl(
    board: str, make_board: MakeBoard, digits: CompiledModel, image: Array
) -> None:
    device = device_on(make_board(board).host())
    module, expected = weft.load(digits, device), weft.load(digits, "rtl")
    for scale in (1, 2):
        np.testing.assert_array_equal(module.run(image * scale)["logits"], expected.run(image * scale)["logits"])
        assert module.cycles == expected.cycles
        assert module.device.counters() == expected.device.counters()
        for ours, theirs in zip(module.runs, expected.runs, strict=True):
            assert ours.result.bytes_read == theirs.result.bytes_read
            assert ours.result.bytes_written == theirs.result.bytes_written
    assert device.clock_mhz == pytest.approx(100, abs=0.01)
    module.close()


def test_two_models_stay_on_one_board(make_board: MakeBoard, digits: CompiledModel, image: Array) -> None:
    host = make_board().host()
    first, second = weft.load(digits, device_on(host)), weft.load(digits, device_on(host))
    expected = weft.load(digits, "fsim")
    for module, scale in ((first, 1), (second, 2), (first, 3)):
        np.testing.assert_array_equal(module.run(image * scale)["logits"], expected.run(image * scale)["logits"])
    first.close()
    np.testing.assert_array_equal(second.run(image)["logits"], expected.run(image)["logits"])
    second.close()


@pytest.mark.parametrize("defect", ["no_flush", "no_invalidate"])
def test_a_forgotten_sync_does_not_go_unnoticed(
    defect: str, make_board: MakeBoard, digits: CompiledModel, image: Array
) -> None:
    """Memory apart from the core's: without a sync the core runs garbage, or the host reads it."""
    module = weft.load(digits, device_on(make_board(defects=[defect]).host()))
    expected = weft.load(digits, "fsim").run(image)["logits"]
    if defect == "no_flush":
        with pytest.raises(CoreFaultError, match="fault, engine"):
            module.run(image)
    else:
        assert not np.array_equal(module.run(image)["logits"], expected)
    module.close()


def test_data_that_was_not_flushed_gives_wrong_results(
    make_board: MakeBoard, digits: CompiledModel, image: Array
) -> None:
    """The program has arrived, the next image has not."""
    module = weft.load(digits, device_on(make_board(defects=["only_first_flush"]).host()))
    expected = weft.load(digits, "fsim")
    other = np.ascontiguousarray(image[..., ::-1])
    np.testing.assert_array_equal(module.run(image)["logits"], expected.run(image)["logits"])
    assert not np.array_equal(module.run(other)["logits"], expected.run(other)["logits"])
    module.close()


@pytest.mark.parametrize(
    ("defect", "kind", "message"),
    [
        ("no_cma", "memory", "no .* bytes of memory for the core: Failed to allocate Memory!"),
        ("wrong_address", "identity", "no core answers: its first register is 0x0, not 0x54464557"),
    ],
)
def test_defects_that_show_while_loading(
    defect: str, kind: str, message: str, make_board: MakeBoard, digits: CompiledModel
) -> None:
    with pytest.raises(BoardLinkError, match=message) as caught:
        weft.load(digits, device_on(make_board(defects=[defect]).host()))
    assert caught.value.kind == kind


@pytest.mark.parametrize(
    ("defect", "kind", "message"),
    [
        ("hung_memory", "stuck", "not ended after .*BUS_BUSY RUNNING.*does not stop"),
        ("dead_clock", "clock", "not ended after .* status is 0x2 .*its counter of cycles stands still"),
        ("vanish", "closed", "closed the link"),
        ("silence", "deadline", "no answer before the deadline"),
    ],
)
def test_a_board_that_fails_in_a_run_is_named_in_time_and_the_next_run_works(
    defect: str, kind: str, message: str, make_board: MakeBoard, digits: CompiledModel, image: Array,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr("weft.boards.device.SLACK_SECONDS", 1.0)
    board = make_board(defects=[defect])
    device = device_on(replace(board.host(), run_seconds=1.0, watchdog=0))
    module = weft.load(digits, device)
    if defect == "silence":
        device.board.host = replace(device.board.host, connect_seconds=1.0)
    started = time.monotonic()
    with pytest.raises(BoardLinkError, match=message) as caught:
        module.run(image)
    assert caught.value.kind == kind
    assert time.monotonic() - started < BUSY_SECONDS
    board.repair()
    device.board.host = replace(board.host(), run_seconds=BUSY_SECONDS)
    np.testing.assert_array_equal(module.run(image)["logits"], weft.load(digits, "fsim").run(image)["logits"])
    module.close()


@pytest.mark.parametrize("board", BOARDS)
def test_pynq_waits_for_the_core_s_interrupt(
    board: str, make_board: MakeBoard, digits: CompiledModel, image: Array
) -> None:
    """``wait = "interrupt"`` takes nothing else; the polls of the link's own answers say that it did not."""
    device = device_on(replace(make_board(board).host(), wait="interrupt"))
    module, expected = weft.load(digits, device), weft.load(digits, "rtl")
    for scale in (1, 2, 3):
        np.testing.assert_array_equal(module.run(image * scale)["logits"], expected.run(image * scale)["logits"])
        assert module.cycles == expected.cycles
    link = device.board.link(TINY, print)
    answer, _ = link.ask("allocate", 60, size=4096)
    link.ask("write", 60, assemble(TINY, [LOST, Finish()]).tobytes(), window=answer["window"], offset=0)
    request = {"window": answer["window"], "offset": 0, "count": 2, "seconds": BUSY_SECONDS, "watchdog": 200_000}
    for _ in range(2):
        run, _ = link.ask("run", BUSY_SECONDS, wait="interrupt", **request)
        assert run["fault"][0] == Fault.WATCHDOG
        assert run["wakes"] >= 1
        assert run["polls"] == 2  # where some hundred looks would be needed
    module.close()


@pytest.mark.parametrize("board", BOARDS)
@pytest.mark.parametrize("defect", ["dead_interrupt", "stuck_interrupt"])
def test_an_interrupt_that_is_of_no_use_does_not_stop_a_run(
    defect: str, board: str, make_board: MakeBoard, digits: CompiledModel, image: Array
) -> None:
    host = make_board(board, defects=[defect]).host()
    module = weft.load(digits, device_on(host))
    expected = weft.load(digits, "rtl")
    started = time.monotonic()
    for scale in (1, 2):
        np.testing.assert_array_equal(module.run(image * scale)["logits"], expected.run(image * scale)["logits"])
        assert module.cycles == expected.cycles
    assert time.monotonic() - started < BUSY_SECONDS / 2
    module.close()
    step = next(step for step in digits.steps if isinstance(step, CoreStep))
    lost = assemble(TINY, [LOST, Finish()])
    steps = tuple(replace(each, program=lost) if each is step else each for each in digits.steps)
    strict = device_on(replace(host, wait="interrupt", watchdog=100_000))
    module = weft.load(replace(digits, steps=steps), strict)
    with pytest.raises(BoardLinkError, match="interrupt") as caught:
        module.run(image)
    assert caught.value.kind == "interrupt"
    module.close()


def test_an_overlay_for_another_core(make_board: MakeBoard, digits: CompiledModel) -> None:
    other = replace(TINY, queue_depth=32)
    device = weft.PynqDevice(other, host=make_board().host())
    with pytest.raises(BoardLinkError, match=f"{TINY.hash64:016x}.*compiled for {other.hash64:016x}") as caught:
        weft.load(weft.compile(MODEL, other), device)
    assert caught.value.kind == "identity"


def test_memory_beyond_the_core_s_address_bits(make_board: MakeBoard, digits: CompiledModel) -> None:
    with pytest.raises(BoardLinkError, match=r"memory at 0x800000000\.\..* it has 32 address bits") as caught:
        weft.load(digits, device_on(make_board(memory_base=0x8_0000_0000).host()))
    assert caught.value.kind == "address"


def test_overlays_that_cannot_be_loaded(make_board: MakeBoard, digits: CompiledModel) -> None:
    board = make_board()
    good = board.overlay.read_bytes(), board.overlay.with_suffix(".hwh").read_bytes()
    for bit, hwh, message in (
        (b"something else", good[1], "the configuration logic refuses"),
        (good[0], b"<EDKSYSTEM/>", "the design cannot be loaded"),
        (good[0], good[1].replace(b"weft_core", b"else_core"), "the design has 0 cores, not one; its blocks: "),
    ):
        board.overlay.write_bytes(bit)
        board.overlay.with_suffix(".hwh").write_bytes(hwh)
        with pytest.raises(BoardLinkError, match=message) as caught:
            weft.load(digits, device_on(board.host()))
        assert caught.value.kind == "overlay"


def test_a_fault_is_that_of_the_rtl(make_board: MakeBoard, digits: CompiledModel, image: Array) -> None:
    step = next(step for step in digits.steps if isinstance(step, CoreStep))
    lost = assemble(TINY, [LOST, Finish()])
    steps = tuple(replace(each, program=lost) if each is step else each for each in digits.steps)
    host = replace(make_board().host(), watchdog=5000)
    module = weft.load(replace(digits, steps=steps), device_on(host))
    with pytest.raises(CoreFaultError, match="device 'pynq': WATCHDOG fault, engine 'load', instruction 0"):
        module.run(image)
    module.close()


def test_a_second_process_finds_the_board_in_use(make_board: MakeBoard, digits: CompiledModel, image: Array) -> None:
    host = make_board().host()
    module = weft.load(digits, device_on(host))
    with pytest.raises(BoardLinkError, match="in use by process") as caught:
        weft.load(digits, device_on(replace(host, name="again")))
    assert caught.value.kind == "busy"
    module.close()
    again = weft.load(digits, device_on(replace(host, name="again")))
    again.close()


def test_pynq_s_description_of_an_earlier_design_is_not_believed(make_board: MakeBoard, digits: CompiledModel) -> None:
    board = make_board()
    packages = next((board.python.parent.parent / "lib").glob("python3.*")) / "site-packages"
    stale = packages / "pynq" / "pl_server" / "_current_metadata.pkl"
    stale.write_bytes(b"cos\nsystem\n(S'false'\ntR.")
    weft.load(digits, device_on(board.host())).close()
    assert not stale.exists()


def test_a_run_without_a_board(digits: CompiledModel, make_board: MakeBoard, image: Array) -> None:
    module = weft.load(digits, device_on(make_board().host()))
    module.close()
    with pytest.raises(DeviceError, match="closed"):
        module.run(image)


def test_a_board_without_rtl_ends_programs_at_once(
    make_board: MakeBoard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its Python finds its own modules, whatever this one's PYTHONPATH says."""
    (tmp_path / "numpy.py").write_text("raise SystemExit('this is not the NumPy of the board')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    device = device_on(make_board("pynq-z2", idle=True).host())
    device.allocate(8192)
    data = np.random.default_rng(0).integers(0, 256, 5000, np.uint8)
    device.write(64, data)
    result = device.launch(0, 1)
    assert (result.cycles, result.fault, result.bytes_read) == (0, None, 0)
    np.testing.assert_array_equal(device.read(64, 5000), data)
    device.allocate(0)


def test_the_overlay_of_a_design_is_a_bit_with_what_belongs_to_it(tmp_path: Path) -> None:
    write_overlay(tmp_path / "x.bit", design_of("pynq-z2"))
    assert (tmp_path / "x.hwh").read_text().startswith("<?xml")
