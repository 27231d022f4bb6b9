"""Signs of zeros in machine code."""

from __future__ import annotations

import numpy as np
import pytest
import weft
from weft.compiler.graph import Attrs, Function, Module, TensorType, Var, call, evaluate_function


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_the_opposite_of_zero_is_the_other_zero(dtype: str) -> None:
    x = Var("x", TensorType((4,), dtype))
    module = Module(Function((x,), call("nn.negative", x), Attrs({"name": "main", "outputs": ("y",)})))
    values = np.array([0.0, -0.0, 1.5, -np.inf], dtype)
    (found,) = weft.load(weft.compile(module, target="cpu")).run({"x": values}).values()
    wanted = evaluate_function(module.main, [values])
    np.testing.assert_array_equal(found, wanted)
    np.testing.assert_array_equal(np.signbit(found), np.signbit(wanted))
