"""Devices that files outside of weft add (`slow_device.py`, `far_device.py`; the manual shows them) work everywhere."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import weft
from weft.hw.isa import Engine
from weft.runtime.errors import CoreFaultError, DeviceError
from weft.runtime.trace import layer_cycles

from tests.forks import status_of_child

ROOT = Path(weft.__file__).parents[1]
DIGITS = ROOT / "examples" / "digits" / "digits.onnx"
FOLDER = Path(__file__).parent
IMAGE = {"image": np.random.default_rng(0).random((1, 1, 8, 8)).astype(np.float32)}
Command = Callable[..., Any]


@pytest.fixture(scope="module")
def model() -> weft.CompiledModel:
    model = weft.compile(DIGITS, "tiny", keep=True)
    assert isinstance(model, weft.CompiledModel)
    return model


@pytest.fixture(scope="module")
def expected(model: weft.CompiledModel) -> dict[str, np.ndarray]:
    return weft.load(model, "fsim").run(IMAGE, keep=True)


@pytest.fixture
def slow(extensions: None) -> ModuleType:
    module = import_module("slow_device")
    weft.register_device(module.SlowDevice)
    return module


@pytest.fixture
def far(extensions: None) -> ModuleType:
    module = import_module("far_device")
    weft.register_device(module.FarDevice)
    return module


def same(results: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    assert results.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(results[name], value, err_msg=name)


def test_a_simulator_computes_and_its_time_is_in_all_accounts(
    slow: ModuleType, model: weft.CompiledModel, expected: dict[str, np.ndarray], tmp_path: Path
) -> None:
    module = weft.load(model, "slow")
    same(module.run(IMAGE, trace=True, keep=True), expected)
    instructions = sum(len(step.layer_of) - 1 for step in model.programs)
    assert module.cycles == instructions * slow.CYCLES
    assert sum(layer_cycles(module)) == module.cycles
    counters = module.device.counters()
    assert {sum(classes.values()) for classes in counters.values()} == {module.runs[-1].result.cycles}
    assert set(counters) == set(Engine)
    slices = weft.write_trace(module, tmp_path / "trace.json.gz")
    events = json.loads(gzip.decompress((tmp_path / "trace.json.gz").read_bytes()))["traceEvents"]
    drawn = [event for event in events if event.get("cat") in {engine.name.lower() for engine in Engine}]
    assert len(drawn) == instructions <= slices
    assert {event["dur"] for event in drawn} == {slow.CYCLES}


def test_a_device_that_has_no_memory_here_runs_all_the_same(
    far: ModuleType, model: weft.CompiledModel, expected: dict[str, np.ndarray]
) -> None:
    with weft.load(model, "far") as module:
        assert not isinstance(module.device, weft.LocalDevice)
        for _ in range(2):
            same(module.run(IMAGE, keep=True), expected)
        assert module.cycles is None
    with pytest.raises(DeviceError, match="the module is closed"):
        module.run(IMAGE)


def test_errors_come_back_from_afar(far: ModuleType, model: weft.CompiledModel) -> None:
    device = weft.open_device("far", model.config)
    device.allocate(1 << 16)
    data = np.arange(100, dtype=np.uint8)
    device.write(64, data)
    np.testing.assert_array_equal(device.read(64, 100), data)
    with pytest.raises(DeviceError, match=r"bytes 65530\.\.65540 are outside the window of 65536 bytes"):
        device.read(65530, 10)
    with pytest.raises(CoreFaultError, match="device 'far': "):
        device.launch(1 << 10, 1)  # there is no FINISH
    np.testing.assert_array_equal(device.read(64, 100), data)


def test_a_board_that_is_gone_is_told_of(far: ModuleType, model: weft.CompiledModel) -> None:
    device = weft.open_device("far", model.config)
    assert isinstance(device, far.FarDevice)
    module = weft.load(model, device)
    device._board.kill()
    device._board.wait()
    with pytest.raises(DeviceError, match="device 'far' does not answer any more; hint: open it again"):
        module.run(IMAGE)


def test_a_fork_leaves_the_board_to_its_parent(far: ModuleType, model: weft.CompiledModel) -> None:
    devices = [weft.open_device("far", model.config)]
    assert status_of_child(devices.clear, 10) == 0
    same(weft.load(model, devices.pop()).run(IMAGE, keep=True), weft.load(model, "fsim").run(IMAGE, keep=True))


def test_the_command_runs_and_compares_what_is_installed(
    installed: Path, weft_command: Command, tmp_path: Path
) -> None:
    artifact, trace = tmp_path / "digits.weft", tmp_path / "trace.json"
    assert weft_command("compile", DIGITS, "--config", "tiny", "-o", artifact).status == 0
    result = weft_command("run", artifact, "-d", "slow", "--trace", trace)
    assert result.status == 0, result.err
    assert "digits on tiny, device slow" in result.out
    assert "cycles of each engine by class" in result.out
    assert json.loads(trace.read_text())["traceEvents"]
    record = weft_command("run", artifact, "-d", "slow", "--json").json
    assert (record["device"], record["cycles"] % 1000) == ("slow", 0)
    compared = weft_command("compare", "slow", "fsim", DIGITS, "--config", "tiny")
    assert compared.status == 0, compared.err
    assert re.search(r"all \d+ tensors agree", compared.out)
    assert weft_command("compare", "far", "reference", DIGITS, "--config", "tiny").status == 0


def test_a_device_without_time_draws_nothing(installed: Path, weft_command: Command, tmp_path: Path) -> None:
    result = weft_command("run", DIGITS, "--config", "tiny", "-d", "far", "--trace", tmp_path / "trace.json")
    message = "error: --trace draws cycles of a core, but device 'far' has none; hint: choose a device with time, such"
    assert (result.status, message in result.err) == (1, True)
    assert not (tmp_path / "trace.json").exists()


def test_a_device_that_is_not_there_is_refused_with_those_that_are(installed: Path, weft_command: Command) -> None:
    result = weft_command("run", DIGITS, "-d", "board")
    assert result.status == 1
    assert "error: unknown device 'board'; hint: known: null, fsim, rtl, slow, far" in result.err


def test_a_name_belongs_to_one_device(slow: ModuleType) -> None:
    with pytest.raises(DeviceError, match="there is a device 'slow' already"):
        weft.register_device(slow.SlowDevice)


PARTS = [("slow_device.py", "class SlowDevice"), ("far_device.py", "class FarDevice")]


@pytest.mark.parametrize(("name", "part"), PARTS)
def test_the_manual_quotes_these_very_files(name: str, part: str) -> None:
    shown = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "extending.md").read_text(), re.DOTALL)
    (quoted,) = [code for code in shown if part in code]
    assert quoted in (FOLDER / name).read_text()
