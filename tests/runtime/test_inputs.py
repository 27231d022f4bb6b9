"""What a user gives a model, whatever it runs on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import weft
from weft.compiler.graph import parse
from weft.compiler.model import CompiledModel
from weft.runtime.errors import InputError
from weft.runtime.inputs import named_inputs, read_inputs


def test_inputs_come_in_the_order_of_the_names() -> None:
    assert list(named_inputs({"b": np.zeros(1), "a": np.zeros(2)}, ["a", "b"])) == ["a", "b"]


def test_other_byte_orders_become_this_machines() -> None:
    (found,) = named_inputs(np.array([1.5, -2.0], ">f4"), ["x"]).values()
    assert found.dtype == np.float32
    assert found.dtype.isnative
    np.testing.assert_array_equal(found, [1.5, -2.0])


def test_masked_elements_have_no_value() -> None:
    masked = np.ma.masked_greater(np.arange(4.0, dtype=np.float32), 2)
    with pytest.raises(InputError, match=r"input 'x' has masked elements.*; hint: .*filled"):
        named_inputs(masked, ["x"])
    (found,) = named_inputs(masked[:2], ["x"]).values()
    np.testing.assert_array_equal(found, [0, 1])


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (np.zeros(1), r"the model has 2 inputs; hint: give each by its name, in a dict or a .npz file: a, b"),
        ({"a": np.zeros(1), "c": np.zeros(1)}, r"the model has no input 'c'; hint: its inputs: a, b"),
        ({"a": np.zeros(1)}, "input 'b' is missing"),
    ],
)
def test_wrong_names_are_refused(inputs: np.ndarray | dict[str, np.ndarray], message: str) -> None:
    with pytest.raises(InputError, match=message):
        named_inputs(inputs, ["a", "b"])


class Exported:
    """An array of another library, on a device of DLPack's, or one that it does not give away."""

    def __init__(self, array: np.ndarray, device: tuple[int, int] = (1, 0), refuses: str = "") -> None:
        self.array, self.device, self.refuses = array, device, refuses

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device

    def __dlpack__(self, **attrs: Any) -> Any:
        if self.refuses:
            raise BufferError(self.refuses)
        return self.array.__dlpack__(**attrs)


def test_arrays_of_other_libraries_are_read_where_they_are() -> None:
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    (found,) = named_inputs({"x": Exported(array)}, ["x"]).values()  # type: ignore[dict-item]
    assert np.shares_memory(found, array)
    np.testing.assert_array_equal(found, array)


def test_a_model_runs_on_what_dlpack_gives() -> None:
    model = weft.compile(parse("fn @main(%x: float32[4]) { return nn.negative(%x) }"), target="cpu")
    assert isinstance(model, CompiledModel)
    module = weft.load(model)
    array = np.arange(8, dtype=np.float32)
    for given in (array[:4], array[::2]):  # the second is not contiguous
        (result,) = module.run({"x": Exported(given)}).values()  # type: ignore[dict-item]
        np.testing.assert_array_equal(result, -given)
    with pytest.raises(InputError, match=r"input 'x' must be float32\[4\], not float32\[8\]"):
        module.run({"x": Exported(array)})  # type: ignore[dict-item]
    with pytest.raises(InputError, match=r"input 'x' must be float32\[4\], not int32\[4\]"):
        module.run({"x": Exported(array[:4].astype(np.int32))})  # type: ignore[dict-item]


@pytest.mark.parametrize(
    ("device", "refuses", "message"),
    [
        ((2, 1), "", r"input 'x' is on device 1 \(CUDA\), not in this machine's memory; hint: copy it to the host"),
        (
            (1, 0),
            "it requires a gradient",
            r"input 'x' is no array that NumPy can hold: it requires a gradient; hint: det",
        ),
        ((99, 0), "", r"input 'x' is on device 0 \(of DLPack's kind 99\)"),
    ],
)
def test_arrays_elsewhere_are_refused_by_name(device: tuple[int, int], refuses: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        named_inputs({"x": Exported(np.zeros(1), device, refuses)}, ["x"])  # type: ignore[dict-item]


def test_strings_come_from_npy_files_without_pickles(tmp_path: Path) -> None:
    model = weft.compile(parse("fn @main(%x: string[2]) { return nn.string_concat(%x, %x) }"), target="cpu")
    assert isinstance(model, CompiledModel)
    module = weft.load(model)
    path = tmp_path / "x.npy"
    for given in (np.array(["a", "é"]), np.array([b"a", "é".encode()])):
        np.save(path, given)
        (result,) = module.run(read_inputs(model.inputs, path, 0)).values()
        assert result.tolist() == ["aa", "éé"]
    np.save(path, np.array(["a", "b"], object), allow_pickle=True)
    with pytest.raises(InputError, match=r"x.npy is not a .npy or .npz file"):
        read_inputs(model.inputs, path, 0)
    drawn = [read_inputs(model.inputs, None, seed)["x"].tolist() for seed in (0, 0, 1)]
    assert drawn[0] == drawn[1] != drawn[2]
