"""The window: constants of equal bytes once, however often they are asked for."""

from __future__ import annotations

import numpy as np
from weft.compiler.targets.accel.link.window import DmaWindow


def test_equal_bytes_are_placed_once() -> None:
    window = DmaWindow()
    first = np.arange(12, dtype=np.int8).reshape(3, 4)
    fixed = first.copy()
    fixed.setflags(write=False)
    places = [window.constant(each).offset for each in (first, fixed, fixed, first.copy(), first.reshape(4, 3))]
    assert places == [0] * 5
    assert window.constant(fixed.T).offset != 0  # its bytes stand in another order
    assert [each.data.tobytes() for each in window.constants.values()] == [first.tobytes(), first.T.tobytes()]


def test_an_array_that_changed_is_another_constant() -> None:
    window = DmaWindow()
    value = np.zeros(8, np.int8)
    before = window.constant(value)
    value[3] = 1
    assert window.constant(value) is not before
    assert before.data.tobytes() == bytes(8)
