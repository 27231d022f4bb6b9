"""Casts between all types that have machine code give what they mean, to the bit: also of what does not fit."""

from __future__ import annotations

import numpy as np
import pytest
import weft
from weft.compiler.compile_cpu import link_cpu
from weft.compiler.graph import Attrs, Function, Module, TensorType, Tuple, Var, call, dtypes, evaluate
from weft.compiler.targets.cpu.processor import host_target

FLOATS = (0, -0.0, 0.9, -0.9, 1, -1, 126.9, 127.5, 128, -128.9, -129, 255.5, 256, 32767.9, 65536, 2147483520,
          2147483648, -2147483648, -2147483904, 4294967040, 4294967296, 9.2e18, 9223372036854775808,
          -9223372036854775808, 1.8e19, 1.9e19, 1e38, -1e38, np.inf, -np.inf, np.nan, 65504, 1e-40)  # fmt: skip


@pytest.mark.parametrize("dtype", dtypes.ARITHMETIC)
def test_every_cast(dtype: str) -> None:
    if dtypes.is_float(dtype):
        with np.errstate(over="ignore"):
            values = np.array(FLOATS, np.float64).astype(dtypes.numpy_dtype(dtype))
    else:
        low, high = dtypes.limits(dtype)
        values = np.array([low, high, 0, 1, high // 2, low // 3], object).astype(dtype)
    x = Var("x", TensorType(values.shape, dtype))
    results = {to: call("nn.cast", x, to=to) for to in dtypes.ARITHMETIC if to != dtype}
    module = Module(Function((x,), Tuple(tuple(results.values())), Attrs({"name": "main", "outputs": tuple(results)})))
    loaded = weft.load(link_cpu(module, host_target(), 1))
    assert not any(layer.reason for layer in loaded.model.layers)
    found, expected = loaded.run({"x": values}), evaluate(module, {"x": values})
    for name, array in expected.items():
        assert found[name].dtype == array.dtype
        both = [each.astype(np.float64) if dtypes.is_float(name) else each for each in (found[name], array)]
        np.testing.assert_array_equal(*both, err_msg=f"{dtype} to {name}")
