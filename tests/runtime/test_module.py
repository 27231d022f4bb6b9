"""A loaded module gives the same integers on every device, and refuses what does not fit."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import weft
from weft.compiler.model import CompiledModel, CoreStep
from weft.hw import isa, programs
from weft.hw.config import PYNQ, TINY
from weft.runtime.device import Device, FsimDevice, NullDevice, RtlDevice, open_device
from weft.runtime.errors import CoreFaultError, DeviceError, InputError
from weft.runtime.trace import layer_cycles, write_trace

from .conftest import SHAPE

X = np.linspace(-70.0, 70.0, 24, dtype=np.float32).reshape(SHAPE)


def expected(x: np.ndarray) -> np.ndarray:
    quantised = np.clip(np.rint(x / np.float32(0.5)), -128, 127).astype(np.int8)
    return (quantised + np.int8(1)).astype(np.float32) * np.float32(0.5)


@pytest.mark.parametrize("device", ["fsim", "rtl"])
def test_every_device_gives_the_same_integers(model: CompiledModel, device: str) -> None:
    module = weft.load(model, device)
    for scale in (1.0, 0.1, -1.0):
        np.testing.assert_array_equal(module.run({"x": X * np.float32(scale)})["y"], expected(X * np.float32(scale)))


def test_one_input_needs_no_name(model: CompiledModel) -> None:
    np.testing.assert_array_equal(weft.load(model).run(X)["y"], expected(X))


def test_a_run_without_checks_gives_the_same(model: CompiledModel) -> None:
    loaded, inputs = weft.load(model), {"x": X}
    np.testing.assert_array_equal(loaded.run_unchecked(inputs)["y"], expected(X))
    assert list(inputs) == ["x"]  # nothing was put into the caller's
    loaded.close()
    with pytest.raises(DeviceError, match="closed"):
        loaded.run_unchecked(inputs)


def test_null_moves_bytes_and_runs_nothing(model: CompiledModel) -> None:
    assert not weft.load(model, "null").run(X)["y"].any()


def test_every_value_can_be_kept(model: CompiledModel) -> None:
    values = weft.load(model).run(X, keep=True)
    assert {"x", "q", "r", "y"} <= set(values)
    np.testing.assert_array_equal(values["r"], values["q"] + np.int8(1))


def test_rtl_accounts_for_every_cycle(model: CompiledModel) -> None:
    module = weft.load(model, "rtl")
    module.run(X, trace=True)
    assert module.cycles is not None
    assert sum(layer_cycles(module)) == module.cycles
    for counts in module.runs[0].result.counters.values():
        assert sum(counts.values()) == module.cycles


def test_a_trace_names_node_and_instruction(model: CompiledModel, tmp_path_factory: pytest.TempPathFactory) -> None:
    module = weft.load(model, "rtl")
    module.run(X, trace=True)
    path = tmp_path_factory.mktemp("trace") / "run.perfetto.json"
    assert write_trace(module, path) > 4
    text = path.read_text()
    assert "add · tile 0 · VECTOR add" in text
    assert "op=add" in text
    assert "Add_0" in text


def test_a_device_without_time_has_no_trace(model: CompiledModel) -> None:
    module = weft.load(model, "null")
    module.run(X, trace=True)
    message = (
        "the last run on device 'null' recorded no trace; "
        r"hint: run\(\.\.\., trace=True\) on a device with time, such as 'fsim' or 'rtl'"
    )
    with pytest.raises(DeviceError, match=message):
        write_trace(module, "unused")


def test_devices_say_whether_they_have_time(model: CompiledModel) -> None:
    devices = [NullDevice(TINY), FsimDevice(TINY), FsimDevice(TINY, timing=False), RtlDevice(TINY)]
    modules = [weft.load(model, device) for device in devices]
    for module in modules:
        module.run(X)
    assert [device.has_time for device in devices] == [module.cycles is not None for module in modules]
    assert [device.has_time for device in devices] == [False, True, False, True]


@pytest.mark.parametrize("device", ["fsim", "rtl"])
def test_a_fault_names_the_instruction_and_the_device_lives_on(model: CompiledModel, device: str) -> None:
    target = open_device(device, TINY)
    step = next(step for step in model.steps if isinstance(step, CoreStep))
    broken = step.program.copy()
    broken[2 * 16 : 3 * 16] = programs.assemble(
        TINY, [isa.Load(scratchpad=isa.Scratchpad.INP, index=0, offset=4096, rows=1, columns=1)]
    )
    bad = replace(model, steps=tuple(replace(s, program=broken) if s is step else s for s in model.steps))
    with pytest.raises(CoreFaultError, match="WINDOW fault, engine 'load', instruction 2"):
        weft.load(bad, target).run(X)
    np.testing.assert_array_equal(weft.load(model, target).run(X)["y"], expected(X))


@pytest.mark.parametrize("device", ["fsim", "rtl"])
def test_a_flipped_bit_of_the_program_is_reported_and_the_next_run_is_right(model: CompiledModel, device: str) -> None:
    module = weft.load(model, device)
    step = next(step for step in model.steps if isinstance(step, CoreStep))
    module.device.memory()[step.program_offset + 16 + 5] ^= 1 << 3
    with pytest.raises(CoreFaultError, match="CORRUPT fault, engine 'fetch', instruction 1"):
        module.run(X)
    np.testing.assert_array_equal(module.run(X)["y"], expected(X))


def test_places_for_results_that_are_none_are_refused(model: CompiledModel) -> None:
    module = weft.load(model, "null")
    with pytest.raises(InputError, match=r"outputs is no dict of arrays; hint: by name: y$"):
        module.run(X, np.zeros(expected(X).shape, np.float32))  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"output 'y' must be a contiguous, writable float32"):
        module.run(X, {"y": expected(X).tolist()})  # type: ignore[dict-item]


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"z": X}, "the model has no input 'z'; hint: its inputs: x"),
        ({}, "input 'x' is missing"),
        ({"x": X[:2]}, r"input 'x' must be float32\[6, 4\], not float32\[2, 4\]"),
        ({"x": X[:, :3]}, r"input 'x' must be float32\[6, 4\], not float32\[6, 3\]; hint: sizes are fixed at "
                          r"compilation: --shape x=6x3, if the model has them open"),
        ({"x": np.ascontiguousarray(X.T)}, r"not float32\[4, 6\]; hint: the same sizes in another order: numpy.transp"),
        ({"x": X[:, None]}, r"not float32\[6, 1, 4\]; hint: insert axes of 1, .*: numpy.reshape to \[6, 4\]"),
        ({"x": X[0]}, r"input 'x' must be float32\[6, 4\], not float32\[4\]$"),
        ({"x": X.astype(np.int8)}, r"input 'x' must be float32\[6, 4\], not int8\[6, 4\]"),
    ],
)  # fmt: skip
def test_data_that_does_not_fit_is_refused(model: CompiledModel, inputs: dict[str, np.ndarray], message: str) -> None:
    with pytest.raises(InputError, match=message):
        weft.load(model, "null").run(inputs)


def test_a_model_for_another_core_is_refused(model: CompiledModel) -> None:
    with pytest.raises(InputError, match="compiled for 'tiny', but the device is a 'pynq'; hint: compile for 'pynq'"):
        weft.load(model, NullDevice(PYNQ))


def test_an_unknown_device_lists_the_known_ones() -> None:
    with pytest.raises(DeviceError, match="unknown device 'fpga'; hint: known: null, fsim, rtl"):
        open_device("fpga", TINY)


@pytest.mark.parametrize("kind", [NullDevice, FsimDevice, RtlDevice])
def test_memory_outside_the_window_is_refused(kind: type[Device]) -> None:
    device = kind(TINY)
    device.allocate(128)
    device.write(120, np.arange(8, dtype=np.uint8))
    assert device.read(120, 8).tolist() == list(range(8))
    with pytest.raises(DeviceError, match=r"bytes 121\.\.129 are outside the window of 128 bytes"):
        device.write(121, np.arange(8, dtype=np.uint8))
    with pytest.raises(DeviceError, match="outside the window"):
        device.read(-1, 8)


def test_races_are_found_when_asked(model: CompiledModel) -> None:
    np.testing.assert_array_equal(weft.load(model, FsimDevice(TINY, check_races=True)).run(X)["y"], expected(X))


@pytest.mark.parametrize("take", [pickle.dumps, copy.copy, copy.deepcopy])
def test_what_is_loaded_is_not_copied_and_its_model_is(model: CompiledModel, take: Callable[[object], object]) -> None:
    module = weft.load(model)
    with pytest.raises(
        DeviceError, match=r"LoadedModule cannot be copied or pickled: .*hint: copy or pickle its model"
    ):
        take(module)
    with pytest.raises(DeviceError, match=r"FsimDevice cannot be copied or pickled: .*hint: open another one"):
        take(module.device)
    np.testing.assert_array_equal(weft.load(pickle.loads(pickle.dumps(module.model))).run(X)["y"], expected(X))
