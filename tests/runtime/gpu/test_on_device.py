"""Tensors that stay in a GPU's memory, given and taken by DLPack; the driver is a stand-in."""

from __future__ import annotations

import ctypes
import gc
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import weft
from weft.compiler.graph import Constant, TensorType, Var, call, evaluate
from weft.compiler.graph.dtypes import numpy_dtype
from weft.runtime.errors import DeviceError, InputError
from weft.runtime.gpu import dlpack
from weft.runtime.gpu.dlpack import CODES, TensorThere, capsule_of, taken
from weft.runtime.gpu.on_device import DeviceTensor
from weft.runtime.module import LoadedModule

from .test_cuda import PRODUCT, Opened, compiled, library, module_of, numbers, opened

__all__ = ["library", "opened"]

Y = Var("x", TensorType((6, 24), "float32"))
SECOND = module_of(call("nn.multiply", Y, Constant(np.float32(3).reshape(1, 1), "factor")), Y)


class Foreign:
    """A tensor of another library, on the host unless a test says that it is elsewhere."""

    def __init__(self, tensor: TensorThere, change: Any = lambda managed: None) -> None:
        self.tensor, self.change = tensor, change
        self.stream: int | None = None

    def __dlpack_device__(self) -> tuple[int, int]:
        return dlpack.CUDA, self.tensor.number

    def __dlpack__(self, *, stream: int | None = None) -> Any:
        self.stream = stream
        capsule = capsule_of(self.tensor)
        self.change(dlpack._Managed.from_address(dlpack._pointer_in(capsule, dlpack.NAME)).tensor)
        return capsule


def loaded_with_result(opened: Opened) -> tuple[LoadedModule, DeviceTensor]:
    opened()
    loaded = weft.load(compiled())
    return loaded, loaded.run_on_device({"x": numbers()})["y"]


def test_results_stay_on_the_gpu_and_go_into_the_next_model(opened: Opened) -> None:
    driver = opened()
    loaded = weft.load(compiled())
    second = weft.load(compiled(SECOND))
    wanted = evaluate(PRODUCT, {"x": numbers()})["y"]
    driver.calls.clear()
    between = loaded.run_on_device({"x": numbers()})["y"]
    assert "cuMemcpyDtoHAsync_v2" not in driver.calls
    result = second.run_on_device({"x": between})["y"]
    assert driver.calls.count("cuMemcpyHtoDAsync_v2") == 1
    assert (result.shape, result.dtype) == ((6, 24), "float32")
    np.testing.assert_allclose(result.numpy(), 3 * wanted, rtol=1e-5, atol=1e-6)
    other = loaded.run_on_device({"x": numbers(1)})["y"]  # a later run leaves what an earlier one gave
    np.testing.assert_allclose(between.numpy(), wanted, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(other.numpy(), evaluate(PRODUCT, {"x": numbers(1)})["y"], rtol=1e-5, atol=1e-6)
    del loaded, second, between, result, other
    gc.collect()
    assert not driver.sizes, "memory is given back"
    assert not dlpack._given


def test_memory_lives_as_long_as_who_took_it(opened: Opened) -> None:
    driver = opened()
    loaded = weft.load(compiled())
    result = loaded.run_on_device({"x": numbers()})["y"]
    held = taken("y", result, 0, 1)
    wanted = result.numpy()
    del result, loaded
    gc.collect()
    assert len(driver.sizes) == 1
    borrowed = np.empty(wanted.shape, np.float32)
    driver.memory.read(held.address, borrowed)
    np.testing.assert_array_equal(borrowed, wanted)
    del held
    gc.collect()
    assert not driver.sizes
    assert not dlpack._given


def test_a_capsule_that_nobody_takes_is_given_back(opened: Opened) -> None:
    _, result = loaded_with_result(opened)
    capsule = result.__dlpack__(stream=2, max_version=(1, 0))
    assert len(dlpack._given) == 1
    del capsule
    assert not dlpack._given


@pytest.mark.parametrize("dtype", CODES)
def test_all_types_and_shapes_go_there_and_back(dtype: str) -> None:
    for shape in ((), (3,), (2, 1, 4), (0, 5)):
        given = TensorThere(0, 4096, shape, dtype, object())
        found = taken("x", Foreign(given), 0, 7)
        assert (found.address, found.shape, found.dtype, found.number) == (4096, shape, dtype, 0)
        assert found.nbytes == np.empty(shape, numpy_dtype(dtype)).nbytes


class Elsewhere:
    """NumPy's capsule of an array, said to be on a GPU; or one of weft's, said to be on the host."""

    def __init__(self, capsule: Any, kind: int) -> None:
        self.capsule, self.kind = capsule, kind

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.kind, 0

    def __dlpack__(self, **_: Any) -> Any:
        return self.capsule


def test_the_structure_is_that_of_another_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """NumPy's, both ways."""
    array = np.arange(24, dtype=np.int16).reshape(2, 3, 4)
    found = taken("x", Elsewhere(array.__dlpack__(), dlpack.CUDA), 0, 1)
    assert (found.address, found.shape, found.dtype) == (array.ctypes.data, (2, 3, 4), "int16")
    with pytest.raises(InputError, match="not contiguous"):
        taken("x", Elsewhere(array.transpose(0, 2, 1).__dlpack__(), dlpack.CUDA), 0, 1)
    monkeypatch.setattr(dlpack, "CUDA", 1)
    given = np.from_dlpack(Elsewhere(capsule_of(TensorThere(0, array.ctypes.data, (2, 3, 4), "int16", array)), 1))
    np.testing.assert_array_equal(given, array)
    assert np.shares_memory(given, array)
    del given
    gc.collect()
    assert not dlpack._given


def strided(*strides: int) -> Any:
    kept = (ctypes.c_int64 * len(strides))(*strides)
    return lambda tensor: setattr(tensor, "strides", ctypes.cast(kept, ctypes.POINTER(ctypes.c_int64)))


def test_strides_of_a_dense_tensor_may_be_given_and_an_offset() -> None:
    given = TensorThere(0, 4096, (6, 1, 40), "float32", None)
    assert taken("x", Foreign(given, strided(40, 7, 1)), 0, 1).shape == (6, 1, 40)
    assert taken("x", Foreign(given, lambda tensor: setattr(tensor, "offset", 16)), 0, 1).address == 4112


def test_the_other_library_is_told_the_stream(opened: Opened) -> None:
    _, result = loaded_with_result(opened)
    foreign = Foreign(TensorThere(0, taken("y", result, 0, 1).address, (6, 24), "float32", result))
    weft.load(compiled(SECOND)).run_on_device({"x": foreign})
    assert foreign.stream is not None
    assert foreign.stream > 2  # a handle, not one of the numbers that DLPack has for streams of all


def change_type(tensor: Any) -> None:
    tensor.dtype.lanes = 4


REFUSED = {
    "GPU 3, but the model is on GPU 0": lambda good: Foreign(replace(good, number=3)),
    "is not contiguous": lambda good: Foreign(good, strided(1, 6)),
    r"must be float32\[6, 40\], not float32\[6, 41\]": lambda good: Foreign(replace(good, shape=(6, 41))),
    r"must be float32\[6, 40\], not float16": lambda good: Foreign(replace(good, dtype="float16")),
    "DLPack's type 2 with 32 bits": lambda good: Foreign(good, change_type),
}


@pytest.mark.parametrize("message", REFUSED)
def test_tensors_that_do_not_fit(message: str, opened: Opened) -> None:
    loaded, result = loaded_with_result(opened)
    good = TensorThere(0, taken("y", result, 0, 1).address, (6, 40), "float32", result)
    with pytest.raises(InputError, match=message):
        loaded.run_on_device({"x": REFUSED[message](good)})
    gc.collect()
    assert len(dlpack._given) == 0, "what was refused is given back"


def test_what_is_wrong_is_named(opened: Opened) -> None:
    loaded, result = loaded_with_result(opened)
    for inputs in ({"z": numbers()}, {"z": result, "x": numbers()}):
        with pytest.raises(InputError, match="no input 'z'"):
            loaded.run_on_device(inputs)
    with pytest.raises(InputError, match="input 'x' is missing"):
        loaded.run_on_device({})
    with pytest.raises(InputError, match=r"must be float32\[6, 40\]"):
        loaded.run_on_device({"x": numbers()[:3]})
    with pytest.raises(InputError, match="use run_on_device"):
        weft.load(compiled(SECOND)).run({"x": result})
    with pytest.raises(BufferError, match="where it is"):
        result.__dlpack__(copy=True)
    with pytest.raises(DeviceError, match="does not run on a GPU"):
        weft.load(weft.compile(SECOND, target="cpu")).run_on_device({"x": numbers()[:, :24]})
    loaded.close()
    with pytest.raises(DeviceError):
        loaded.run_on_device({"x": numbers()})
