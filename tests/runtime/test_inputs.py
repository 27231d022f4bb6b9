"""What a user gives a model, whatever it runs on."""

from __future__ import annotations

import numpy as np
import pytest
from weft.runtime.errors import InputError
from weft.runtime.inputs import named_inputs


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
