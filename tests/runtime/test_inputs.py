"""What a user gives a model, whatever it runs on."""

from __future__ import annotations

from pathlib import Path

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


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (np.zeros(1), r"the model has 2 inputs; hint: give a dict: a, b"),
        ({"a": np.zeros(1), "c": np.zeros(1)}, r"the model has no input 'c'; hint: its inputs: a, b"),
        ({"a": np.zeros(1)}, "input 'b' is missing"),
    ],
)
def test_wrong_names_are_refused(inputs: np.ndarray | dict[str, np.ndarray], message: str) -> None:
    with pytest.raises(InputError, match=message):
        named_inputs(inputs, ["a", "b"])


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
