"""A requantise of known numbers, as the verifier works it out, against its meaning in the graph."""

from __future__ import annotations

import numpy as np
import pytest
from weft.compiler.graph.rounding import rounded_shift
from weft.roundings import ROUNDINGS
from weft.verify.integer_operators import _rounded

from tests.sim.rounding_operands import OPERANDS


@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_numbers_are_rounded_as_the_graph_has_it(rounding: str) -> None:
    operands = OPERANDS.get(rounding, OPERANDS["half_even"])(np.random.default_rng(0), (4000,))
    sums, bias, multiplier, shift = (each.astype(np.int64) for each in operands)
    sums = (sums + bias).astype(np.int32).astype(np.int64)
    shift = np.clip(shift & 63, 1, 62)
    wanted = rounded_shift(sums, multiplier, shift, rounding)
    np.testing.assert_array_equal(_rounded(sums, multiplier, shift, rounding), wanted)
    assert rounding == "half_up" or np.mean(wanted != rounded_shift(sums, multiplier, shift, "half_up")) > 0.02
