"""Tables of a function of one 8-bit value join the kernels around them, and pick the same entries."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from weft.compiler import tensor as t
from weft.compiler.graph import Constant, Expr, TensorType, Var, call
from weft.compiler.targets.loops.tables import as_look_up

from ..cpu.jit import HOST, run_compiled
from ..cpu.test_link import check, kinds, module_of

TABLE = np.random.default_rng(5).permutation(np.arange(-128, 128)).astype(np.int8)
X = Var("x", TensorType((1, 16, 5, 7), "int8"))


def gathered(x: Expr, first: int = 128, table: np.ndarray = TABLE) -> Expr:
    wide = call("nn.cast", x, to="int32")
    place = call("nn.add", wide, Constant(np.array(first, np.int32)))
    return call("gather", Constant(table), place, axis=0)


@pytest.mark.parametrize("target", [HOST, replace(HOST, vector_bytes=16, registers=16)])
@pytest.mark.parametrize("size", [1, 7, 64, 256, 300])
def test_every_entry_is_picked_in_lanes(size: int, target: object) -> None:
    x, table = t.placeholder((size,), "int8", "x"), t.placeholder((256,), "int8", "table")
    out = t.compute((size,), lambda i: table[x[i].astype("int64") + 128], "out")
    schedule = t.create_schedule(out, [x, table])
    schedule.vectorize("i")
    values = np.resize(np.arange(-128, 128), size)[::-1].astype(np.int8)
    found = run_compiled(schedule.func, {"x": values, "table": TABLE}, target)["out"]  # type: ignore[arg-type]
    np.testing.assert_array_equal(found, TABLE[values.astype(int) + 128])


def test_a_table_joins_the_convolution_before_it() -> None:
    random = np.random.default_rng(0)
    weights = Constant(random.integers(-128, 127, (16, 16, 3, 3), np.int8, endpoint=True))
    numbers = [(0, np.int32), (1 << 23, np.int32), (34, np.int32)]
    sums = call("conv2d", X, weights, pads=(1, 1, 1, 1))
    narrow = call("requantise", sums, *(Constant(np.full(16, value, kind)) for value, kind in numbers))
    model = check(module_of(gathered(narrow), params=(X,)), threads=2)
    assert "gather" not in {operator for layer in model.layers for operator in layer.operators}
    assert kinds(model).count("convolution") == 1
    assert any({"conv2d", "look_up"} <= set(layer.operators) for layer in model.layers)


def test_what_is_no_such_table_stays_a_gather() -> None:
    wide = np.concatenate([TABLE, TABLE])
    for node in (gathered(X, 129), gathered(X, 128, wide), gathered(X, 128, TABLE.astype(np.int16))):
        assert as_look_up(node) is None  # type: ignore[arg-type]
    check(module_of(gathered(X, 200, wide), params=(X,)))
