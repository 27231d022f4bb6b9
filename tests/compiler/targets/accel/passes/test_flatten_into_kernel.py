"""A picture that a dense layer reads whole stays where it lies only where that costs less than moving it."""

from __future__ import annotations

import pytest
from weft.compiler.graph import Expr, call
from weft.hw.config import PYNQ, TINY, CoreConfig

from tests.compiler.targets.accel.quantised_layers import compiled, layer, quantised, variable


def flattened(x: Expr, outputs: int) -> Expr:
    flat = call("reshape", x, shape=(x.shape[0], x.tensor_type.size // x.shape[0], 1, 1))
    return layer(flat, outputs)


@pytest.mark.parametrize("config", [TINY, PYNQ], ids=lambda config: config.name)
def test_a_small_picture_is_one_window(config: CoreConfig) -> None:
    x = variable(1, 8, 6, 6)
    model = compiled(x, flattened(layer(quantised(x), 12, kernel=3), 10), config)
    assert len(model.programs) == 1


def test_a_picture_of_one_channel_is_moved_where_its_window_would_take_longer() -> None:
    """A window of 48 x 48 has 2304 matrices for each 16 outputs, of which a row does useful work."""
    x = variable(1, 1, 50, 50)
    model = compiled(x, flattened(layer(quantised(x), 1, kernel=3), 96), PYNQ)
    weights = 48 * 48 * 96
    assert sum(each.bytes_loaded for each in model.layers) < 2 * weights
    assert len(model.programs) == 2


def test_what_the_host_makes_is_read_as_channels() -> None:
    """It is given the core's layout anyway, so that windows save nothing."""
    x = variable(1, 2, 8, 8)
    model = compiled(x, flattened(quantised(x), 16), PYNQ)
    assert sum(each.bytes_loaded for each in model.layers) < 2 * 2 * 8 * 8 * 16
