"""``serial://``: digits on the RTL of a board's top, from the bits of the serial line to the results."""

from __future__ import annotations

import os
import pty
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import weft
from weft.boards.standalone.device import SerialDevice
from weft.boards.standalone.simulated import SimulatedBoard, Terminal
from weft.compiler.graph import parse
from weft.compiler.model import CompiledModel
from weft.errors import WeftError
from weft.hw.config import PYNQ, TINY
from weft.runtime.device import device_forms, open_device
from weft.runtime.errors import CoreFaultError, DeviceError

from tests.effort import few

MODEL = Path(__file__).parents[3] / "examples" / "digits" / "digits.onnx"


@pytest.fixture(scope="module")
def digits() -> CompiledModel:
    model = weft.compile(MODEL, TINY)
    assert isinstance(model, CompiledModel)
    return model


@pytest.fixture
def terminal(board: SimulatedBoard) -> Iterator[Terminal]:
    with Terminal(board) as made:
        yield made


def device_at(terminal: Terminal, config: weft.CoreConfig = TINY) -> SerialDevice:
    found = open_device(f"serial://{terminal.path}?seconds=600", config)
    assert isinstance(found, SerialDevice)
    return found


@pytest.fixture(scope="module")
def layer() -> CompiledModel:
    """One convolution, whose bytes take less time than those of digits on the serial line."""
    weights = np.random.default_rng(1).integers(-128, 128, 32)
    model = weft.compile(
        parse(f"""fn @main(%x: int8[1, 4, 8, 8]) {{
            %weights = int8[8, 4, 1, 1]({", ".join(map(str, weights))})
            %y = nn.conv2d(dequantise(%x, float32(0.05), int8(3)), dequantise(%weights, float32(0.01), int8(0)))
            return quantise(%y, float32(0.1), int8(-10))
        }}"""),
        TINY,
    )
    assert isinstance(model, CompiledModel)
    return model


@pytest.mark.parametrize(
    ("model", "name", "slower"),
    few([("layer", "sdram_board", 1.5), ("digits", "sdram_board", 1.1), ("digits", "board", 1.1)], 1),
)
def test_results_are_those_of_the_functional_simulator(
    model: str, name: str, slower: float, request: pytest.FixtureRequest
) -> None:
    """With SDRAM a chip that knows the rules stands at the pins; a program as short as a layer's waits most for it."""
    with Terminal(request.getfixturevalue(name)) as terminal:
        check(device_at(terminal), request.getfixturevalue(model), slower)


def check(device: SerialDevice, model: CompiledModel, slower: float) -> None:
    """``slower``: cycles at most, in those of the functional simulator's memory."""
    module, reference = weft.load(model, device=device), weft.load(model, device="fsim")
    (asked,) = model.inputs
    numbers = np.random.default_rng(3).integers(0, 17, asked.shape)
    image = (numbers / 16 if asked.dtype == "float32" else numbers).astype(asked.dtype)
    got, expected = module.run(image, keep=True), reference.run(image, keep=True)
    assert got.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(got[name], value, err_msg=name)
    (cycles,) = {sum(classes.values()) for classes in device.counters().values()}  # all engines have the same
    (predicted,) = {sum(classes.values()) for classes in reference.device.counters().values()}
    assert predicted * 0.9 < cycles < predicted * slower
    assert device.clock_mhz == 50.0
    device.allocate(0)


@pytest.mark.long
def test_a_window_that_no_block_ram_holds_is_in_sdram(sdram_board: SimulatedBoard) -> None:
    """Two minutes, nearly all of them for bytes on the serial line."""
    channels, height, width = 16, 64, 64
    weights = np.random.default_rng(1).integers(-128, 128, channels * channels)
    model = weft.compile(
        parse(f"""fn @main(%x: int8[1, {channels}, {height}, {width}]) {{
            %weights = int8[{channels}, {channels}, 1, 1]({", ".join(map(str, weights))})
            %y = nn.conv2d(dequantise(%x, float32(0.05), int8(3)), dequantise(%weights, float32(0.01), int8(0)))
            return quantise(%y, float32(0.3), int8(-10))
        }}"""),
        TINY,
    )
    assert isinstance(model, CompiledModel)
    x = np.random.default_rng(2).integers(-128, 128, (1, channels, height, width)).astype(np.int8)
    with Terminal(sdram_board) as terminal:
        device = device_at(terminal)
        module, reference = weft.load(model, device=device), weft.load(model, device="fsim")
        assert model.on_core.window_bytes > 131_072
        (got,), (expected,) = module.run({"x": x}).values(), reference.run({"x": x}).values()
        np.testing.assert_array_equal(got, expected)
        device.allocate(0)


def test_a_window_is_zeros_but_for_what_was_written(terminal: Terminal) -> None:
    device = device_at(terminal)
    for size in (300, 400):
        device.allocate(size)
        device.write(size - 3, np.frombuffer(b"end", np.uint8))
        device.write(101, np.arange(5, dtype=np.int32))
        expected = np.zeros(size, np.uint8)
        expected[size - 3 :] = np.frombuffer(b"end", np.uint8)
        expected[101:121] = np.arange(5, dtype=np.int32).view(np.uint8)
        np.testing.assert_array_equal(device.read(0, size), expected)
    with pytest.raises(DeviceError, match=r"bytes 399..401 are outside"):
        device.read(399, 2)
    device.allocate(0)


def test_a_program_that_cannot_be_ends_in_a_fault_and_the_core_goes_on(terminal: Terminal) -> None:
    device = device_at(terminal)
    device.allocate(4096)
    device.write(0, np.full(64, 255, np.uint8))
    for _ in range(2):
        with pytest.raises(CoreFaultError, match="ILLEGAL"):
            device.launch(0, 1)
    device.allocate(0)


def test_another_core_a_window_too_large_and_a_port_in_use_are_named(terminal: Terminal) -> None:
    with pytest.raises(DeviceError, match=r"compiled for .*compile for the core that the bitstream"):
        device_at(terminal, PYNQ).allocate(4096)
    device = device_at(terminal)
    with pytest.raises(DeviceError, match="the window takes 131073 bytes, the board has 131072"):
        device.allocate(131_073)
    device.allocate(16)
    with pytest.raises(DeviceError, match="in use by another program"):
        device_at(terminal).allocate(16)
    device.allocate(0)
    device_at(terminal).allocate(0)


def test_a_port_that_is_none_is_named(tmp_path: Path) -> None:
    plain = tmp_path / "file"
    plain.touch()
    for place, message in {
        f"{tmp_path}/none": "cannot be opened: No such file",
        f"{plain}": "it is no serial port",
        f"{plain}?baud=12345": "no serial line of 12345 bits a second; hint: known: 9600, ",
    }.items():
        with pytest.raises(DeviceError, match=message):
            open_device(f"serial://{place}", TINY).allocate(16)
    with pytest.raises(WeftError, match="is no serial port"):
        open_device("serial://x?speed=1", TINY)
    assert "serial://NAME" in device_forms()


def test_a_board_that_goes_is_an_error_with_its_port() -> None:
    ours, theirs = pty.openpty()
    device = open_device(f"serial://{os.ttyname(theirs)}", TINY)
    os.close(theirs)
    os.close(ours)
    with pytest.raises(DeviceError, match="/dev/pts"):
        device.allocate(16)
