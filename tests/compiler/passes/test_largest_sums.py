"""Sums up to the last of 32 bits are integers of the contract; larger ones are left to floats."""

from __future__ import annotations

import numpy as np
import pytest
import weft
from weft.compiler.graph import Attrs, Constant, Function, Module, TensorType, Var, call

SCALE = np.float32(2.0**-4)
ZERO = Constant(np.int8(-128))
LARGEST = (2**31 - 1) // 255**2


def product(depth: int) -> Module:
    a, b = (Var(name, TensorType(shape, "int8")) for name, shape in (("a", (2, depth)), ("b", (depth, 2))))
    real = [call("dequantise", each, Constant(SCALE), ZERO) for each in (a, b)]
    y = call("quantise", call("nn.matmul", *real), Constant(np.float32(2.0**17)), Constant(np.int8(0)))
    return Module(Function((a, b), y, Attrs({"name": "main", "outputs": ("y",)})))


@pytest.mark.parametrize("target", ["cpu", "accel"])
@pytest.mark.parametrize("depth", [16513, LARGEST, LARGEST + 1])
def test_sums_of_the_largest_bytes_do_not_wrap(depth: int, target: str) -> None:
    values = {"a": np.full((2, depth), 127, np.int8), "b": np.full((depth, 2), 127, np.int8)}
    values["a"][1] = np.random.default_rng(0).integers(-128, 127, depth, np.int8, endpoint=True)
    model = weft.compile(product(depth), target=target)
    wanted = (values["a"].astype(np.int64) + 128) @ (values["b"].astype(np.int64) + 128)
    found = weft.load(model).run(values)["y"]
    assert wanted.max() == 255**2 * depth
    assert np.array_equal(found, np.rint(wanted * float(SCALE) ** 2 / 2.0**17))
