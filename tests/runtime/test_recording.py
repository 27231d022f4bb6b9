"""What ran on one device runs again on another, differences have names, and a file that was touched is refused."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import weft
from typer.testing import CliRunner
from weft.cli import app
from weft.compiler.model import CompiledModel, CoreStep
from weft.hw import isa
from weft.hw.config import PYNQ, TINY
from weft.hw.isa import Engine, Finish, Sync
from weft.hw.programs import assemble
from weft.runtime.device import Bytes, FsimDevice, NullDevice, RtlDevice
from weft.runtime.errors import ArtifactError, CoreFaultError, DeviceError
from weft.runtime.recording import (
    Launch,
    Recording,
    RecordingDevice,
    load_recording,
    recording_bytes,
    recording_from,
    save_recording,
)
from weft.runtime.replay import replay
from weft.runtime.sealed import seal
from weft.sim.dram import DramModel
from weft.sim.result import RunResult

X = np.linspace(-6, 6, 24, dtype=np.float32).reshape(6, 4)


def recorded(model: CompiledModel, device: weft.Device | None = None, runs: int = 1) -> Recording:
    recorder = RecordingDevice(device or RtlDevice(TINY))
    module = weft.load(model, recorder)
    for number in range(runs):
        module.run(X * (number + 1))
    return recorder.recording(model)


class Bad(FsimDevice):
    """Changes one byte of the window after every run."""

    name = "bad"
    place, value = 64, 99

    def execute(self, offset: int, count: int, trace: bool) -> RunResult:
        result = super().execute(offset, count, trace)
        self.memory()[self.place] = self.value
        return result


def test_a_recording_is_that_of_the_device(model: CompiledModel) -> None:
    recorder = RecordingDevice(RtlDevice(TINY))
    module, plain = weft.load(model, recorder), weft.load(model, "rtl")
    np.testing.assert_array_equal(module.run(X)["y"], plain.run(X)["y"])
    assert module.cycles == plain.cycles
    assert recorder.name == "rtl"
    (launch,) = recorder.recording().launches
    assert launch.result == plain.runs[0].result
    assert launch.after is not None
    slot = model.on_core.slots["r"]
    np.testing.assert_array_equal(launch.before[:24].view(np.int8), np.rint(X / 0.5).reshape(-1))
    np.testing.assert_array_equal(launch.after[slot.offset : slot.offset + 24], launch.before[:24] + 1)
    module.close()


def test_a_file_holds_all_of_it(model: CompiledModel, tmp_path: Path) -> None:
    first = recorded(model, runs=3)
    save_recording(first, tmp_path / "a")
    second = load_recording(tmp_path / "a")
    assert (second.config, second.device, second.clock_mhz) == (first.config, first.device, first.clock_mhz)
    for one, other in zip(first.launches, second.launches, strict=True):
        assert one.result == other.result
        np.testing.assert_array_equal(one.before, other.before)
        np.testing.assert_array_equal(one.after, other.after)  # type: ignore[arg-type]
    assert second.model is not None
    assert recording_bytes(second) == (tmp_path / "a").read_bytes()


@pytest.mark.parametrize("runs", [1, 3])
def test_nothing_differs_on_the_same_device(model: CompiledModel, runs: int) -> None:
    recording = recording_from(recording_bytes(recorded(model, runs=runs)))
    assert replay(recording, RtlDevice(TINY)) == []
    assert replay(recording, FsimDevice(TINY)) == []


def test_a_memory_of_other_timing_is_a_difference_of_timing_alone(model: CompiledModel) -> None:
    found = replay(recorded(model), RtlDevice(TINY, dram=DramModel(latency=200)))
    assert {each.kind for each in found} == {"cycles", "counters"}
    assert all(each.is_timing for each in found)


def test_a_difference_names_tensor_index_values_and_instruction(model: CompiledModel) -> None:
    class Worse(Bad):
        place = 64 + 4 * 2 + 1

    (difference,) = replay(recorded(model), Worse(TINY))
    right = int(np.rint(X / 0.5)[2, 1]) + 1
    assert (difference.kind, difference.launch) == ("memory", 0)
    assert "tensor 'r' at [2, 1] of int8[6, 4], 1 of its bytes differ (layer 'add', written by instruction 3" in str(
        difference
    )
    assert (difference.recorded, difference.found) == (str(right), "99")


def test_where_two_tensors_share_bytes_it_is_that_of_the_layer(model: CompiledModel) -> None:
    core = model.on_core
    slots = {"old": replace(core.slots["r"], name="old", shape=(24,)), **core.slots}
    recording = replace(recorded(model), model=replace(model, core=replace(core, slots=slots)))
    (difference,) = replay(recording, Bad(TINY))
    assert "tensor 'r' at [0, 0]" in difference.what


def test_a_launch_begins_with_what_the_one_before_it_left(model: CompiledModel) -> None:
    first, second = recorded(model, runs=2).launches
    assert first.after is not None
    output = slice(64, 64 + 24)
    np.testing.assert_array_equal(second.before[output], first.after[output])
    assert second.before[output].any()


def test_without_a_model_it_is_the_byte(model: CompiledModel) -> None:
    (difference,) = replay(replace(recorded(model), model=None), Bad(TINY))
    assert "1 bytes of the window differ, first byte 0x40 (written by instruction 3: store" in difference.what
    assert difference.found == "0x63"


def test_a_byte_that_nobody_writes(model: CompiledModel) -> None:
    class Stray(Bad):
        place = 600

    (difference,) = replay(recorded(model), Stray(TINY))
    assert "first byte 0x258 (no STORE of the program writes there)" in difference.what


def test_the_first_difference_is_the_one_that_was_made_first() -> None:
    """Two stores; the later one lies at the lower address."""
    program = [
        isa.Load(scratchpad=isa.Scratchpad.ACC8, index=0, offset=64, rows=1, columns=2, send=1 << Engine.VECTOR),
        isa.Loop(engine=Engine.VECTOR, level=0, extent=2, dst_stride=1, a_stride=1),
        isa.Vector(op=isa.VectorOp.ADD, levels=1, target=isa.VectorTarget.OUT, b_immediate=1, dst=0, a=0,
                   wait=1 << Engine.LOAD, send=1 << Engine.STORE),
        isa.Store(index=0, offset=100, rows=1, columns=1, wait=1 << Engine.VECTOR),
        isa.Store(index=1, offset=80, rows=1, columns=1),
        Finish(),
    ]  # fmt: skip
    device = RecordingDevice(FsimDevice(TINY))
    device.allocate(1024)
    device.write(0, assemble(TINY, program))
    device.write(256, np.arange(8, dtype=np.uint8) + 1)
    device.launch(0, len(program))
    (difference,) = replay(device.recording(), NullDevice(TINY))
    assert "first byte 0x190 (written by instruction 3" in difference.what
    assert (difference.recorded, difference.found) == ("0x01", "0x00")


def lost(model: CompiledModel) -> CompiledModel:
    """The model, with a program that waits for ever."""
    program = assemble(TINY, [Sync(wait=1 << Engine.STORE, engine=Engine.LOAD), *[Finish()] * 4])
    steps = tuple(replace(each, program=program) if isinstance(each, CoreStep) else each for each in model.steps)
    return replace(model, steps=steps)


def test_a_fault_is_kept_and_comes_again(model: CompiledModel, tmp_path: Path) -> None:
    device = RecordingDevice(RtlDevice(TINY))
    with pytest.raises(CoreFaultError, match="device 'rtl': WATCHDOG fault"):
        weft.load(lost(model), device).run(X)
    recording = recording_from(recording_bytes(device.recording(lost(model))))
    assert replay(recording, RtlDevice(TINY)) == []
    found = [each for each in replay(recording, NullDevice(TINY)) if not each.is_timing]
    assert [(each.kind, each.found) for each in found] == [("fault", "FINISH")]
    assert "WATCHDOG fault, engine 'load', instruction 0" in found[0].recorded


def test_a_device_that_fails_is_kept_with_its_words(model: CompiledModel) -> None:
    class Gone(FsimDevice):
        name = "gone"

        def execute(self, offset: int, count: int, trace: bool) -> RunResult:
            raise DeviceError("board 'z2': no answer before the deadline")

    device = RecordingDevice(Gone(TINY))
    with pytest.raises(DeviceError, match="no answer"):
        weft.load(model, device).run(X)
    recording = recording_from(recording_bytes(device.recording(model)))
    assert replay(recording, Gone(TINY)) == []
    (difference,) = replay(recording, FsimDevice(TINY))
    assert (difference.kind, difference.found) == ("end", "FINISH")
    assert "no answer before the deadline" in difference.recorded
    (backward,) = replay(recorded(model), Gone(TINY))
    assert (backward.kind, backward.recorded) == ("end", "FINISH")


def test_a_device_of_another_core_is_refused(model: CompiledModel) -> None:
    with pytest.raises(DeviceError, match=r"the recording is of the core 'tiny' .* the device has 'pynq'"):
        replay(recorded(model, FsimDevice(TINY)), FsimDevice(PYNQ))


# Files from strangers


def changed(raw: bytes, edit: Callable[[Any], object], **members: bytes) -> bytes:
    """A recording's file with another manifest, other members and a right checksum."""
    with zipfile.ZipFile(BytesIO(raw)) as archive:
        content = {name: archive.read(name) for name in archive.namelist()}
    manifest = json.loads(content["recording.json"])
    edit(manifest)
    return seal({**content, "recording.json": json.dumps(manifest).encode(), **members})


LIES: list[tuple[Callable[[Any], object], str]] = [
    (lambda m: m.update(format=7), "field 'format' is 7, but this weft reads 1"),
    (lambda m: m.pop("format"), "field 'format' is missing"),
    (lambda m: m.update(extra=1), "recording.json, field 'extra': Extra inputs"),
    (lambda m: m.update(isa_version=1), "field 'isa_version' is 1"),
    (lambda m: m.update(config_hash="0" * 16), "field 'config_hash' does not belong"),
    (lambda m: m["config"].update(batch=3), "field 'config': batch must be a power of two"),
    (lambda m: m.update(window_bytes=[]), "does not have one number for each launch"),
    (lambda m: m.update(window_bytes=[1 << 39]), "has 1024 bytes, but the window 549755813888"),
    (lambda m: m.update(clock_mhz=-1), "field 'clock_mhz'"),
    (lambda m: m["launches"][0].update(offset=1000), "launch 0: 5 instructions at byte 1000 are no program"),
    (lambda m: m["launches"][0].update(offset=8), "are no program in the window"),
    (lambda m: m["launches"][0].update(count=-1), "field 'launches.0.count'"),
    (lambda m: m["launches"][0].update(count=1 << 30), "are no program in the window"),
    (lambda m: m["launches"][0].update(before="no"), "member 'no' is missing"),
    (lambda m: m["launches"][0].update(after="windows/0.before.bin"), "two windows are one member"),
    (lambda m: m["launches"][0].update(after=None), "a result without a window"),
    (lambda m: m["launches"][0].update(result=None), "a window without a result"),
    (lambda m: m["launches"][0]["result"].update(fault=[99, 0, 0]), "names what does not exist"),
    (lambda m: m["launches"][0]["result"].update(fault=[1, 6, 0]), "names what does not exist"),
    (lambda m: m["launches"][0]["result"].update(counters=[[9, 0, 0]]), "names what does not exist"),
    (lambda m: m["launches"][0]["result"].update(cycles=-5), "field 'launches.0.result.cycles'"),
    (lambda m: m.update(launches=m["launches"] * 5000), "field 'launches'"),
]


@pytest.mark.parametrize(("edit", "message"), LIES, ids=[message[:40] for _, message in LIES])
def test_a_file_with_a_lie_is_refused(edit: Callable[[Any], object], message: str, model: CompiledModel) -> None:
    raw = recording_bytes(recorded(model, FsimDevice(TINY, timing=False)))
    recording_from(changed(raw, lambda manifest: None))
    with pytest.raises(ArtifactError) as caught:
        recording_from(changed(raw, edit))
    assert message in caught.value.message


def test_a_model_inside_is_checked_like_any(model: CompiledModel) -> None:
    raw = recording_bytes(recorded(model, FsimDevice(TINY, timing=False)))
    inner = seal({"manifest.json": b"{}"})
    with pytest.raises(ArtifactError, match=r"member 'model\.weft': field 'format' is missing"):
        recording_from(changed(raw, lambda manifest: None, **{"model.weft": inner}))


def test_a_program_that_asks_for_years_is_refused(model: CompiledModel) -> None:
    extents = [isa.Loop(engine=Engine.GEMM, level=level, extent=256) for level in range(6)]
    code = assemble(TINY, [*extents, isa.Gemm(levels=6, dst=0, src=0, wgt=0), Finish()])
    window: Bytes = np.zeros(1024, np.uint8)
    window[: code.size] = code
    recording = Recording(TINY, "fsim", (Launch(0, 8, window, None, None, "it took years"),))
    with pytest.raises(ArtifactError, match=r"launch 0, program: instruction 6 has .* micro-ops"):
        recording_from(recording_bytes(recording))


def test_files_that_are_no_recordings(model: CompiledModel, tmp_path: Path) -> None:
    good = recording_bytes(recorded(model, FsimDevice(TINY, timing=False)))
    weft.save(model, tmp_path / "model.weft")
    (tmp_path / "text").write_text("hello")
    (tmp_path / "cut").write_bytes(good[:-100])
    for name, message in (
        ("model.weft", "this is an artifact, not a recording"),
        ("text", "this is not a weft recording; hint: make one with 'weft run --record'"),
        ("cut", "damaged or cut off; hint: record it again"),
        ("none", "cannot read .*none: No such file"),
    ):
        with pytest.raises(ArtifactError, match=message):
            load_recording(tmp_path / name)


# The command


def weft_says(*words: str | Path) -> tuple[int, str]:
    result = CliRunner().invoke(app, list(map(str, words)))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        return 1, str(result.exception)
    return result.exit_code, result.output


def test_the_command_records_and_replays(model: CompiledModel, tmp_path: Path) -> None:
    weft.save(model, tmp_path / "model.weft")
    status, text = weft_says("run", tmp_path / "model.weft", "--record", tmp_path / "it")
    assert status == 0
    assert "wrote" in text
    assert weft_says("replay", tmp_path / "it", "--device", "fsim")[0] == 0
    status, text = weft_says("replay", tmp_path / "it", "--device", "null")
    assert status == 1
    assert "tensor 'r' at [0, 0]" in text
    assert "results differ" in text
    status, text = weft_says("replay", tmp_path / "it", "--device", "null", "--json")
    record = json.loads(text[text.index("{") :])
    assert (status, record["same"], record["recorded_on"], len(record["differences"])) == (1, False, "fsim", 1)


def test_what_failed_is_recorded(model: CompiledModel, tmp_path: Path) -> None:
    weft.save(lost(model), tmp_path / "model.weft")
    status, text = weft_says("run", tmp_path / "model.weft", "--record", tmp_path / "it")
    assert (status, "WATCHDOG" in text) == (1, True)
    (launch,) = load_recording(tmp_path / "it").launches
    assert launch.result is not None
    assert launch.result.fault is not None


def test_there_is_nothing_to_record_without_a_core(tmp_path: Path) -> None:
    digits = Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx"
    status, text = weft_says("run", digits, "--target", "cpu", "--record", tmp_path / "it")
    assert status == 1
    assert "--record keeps programs of a core, but target 'cpu' makes none" in text
    assert not (tmp_path / "it").exists()
