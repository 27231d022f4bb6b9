"""Products with weights of 8 bits and fewer on GPUs: what they mean, and how many bytes of weights a model holds."""

from __future__ import annotations

import numpy as np
import pytest
import weft
from hypothesis import given, settings
from hypothesis import strategies as st
from weft.compiler.graph import Attrs, Expr, Function, Module, Var, call
from weft.compiler.targets.loops.prepare import prepare

from ..weights import DTYPES, SCALES, weights
from .graphs import RUN_ON, check, variable


@pytest.fixture(autouse=True)
def small_weights_stay_narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weft.compiler.targets.loops.quantised_weights.WORTH_BYTES", 0)


def module_of(x: Var, result: Expr) -> Module:
    return Module(Function((x,), result, Attrs({"name": "main", "outputs": ("y",)})))


@given(
    form=st.sampled_from([("nn.dense", (1,)), ("nn.dense", (16,)), ("nn.dense", (70,)), ("nn.matmul", (2,)),
                          ("nn.matmul", (2, 3)), ("nn.matmul", (5,)), ("nn.matmul", (70,))]),
    dtype=DTYPES, scales=SCALES,
    blocks=st.integers(1, 4), block=st.sampled_from([4, 8, 32, 64]), columns=st.sampled_from([1, 3, 16, 33, 64, 130]),
    seed=st.integers(0, 1 << 30),
)  # fmt: skip
@settings(max_examples=12)
def test_any_product_has_the_graphs_meaning(
    form: tuple[str, tuple[int, ...]], dtype: str, scales: str, blocks: int, block: int, columns: int, seed: int
) -> None:
    (op, rows), depth = form, blocks * block
    x = variable("x", "float32", *rows, depth)
    matrix = weights(op, dtype, scales, depth, columns, block, np.random.default_rng(seed))
    model = check(prepare(module_of(x, call("nn.clip", call(op, x, matrix), low=-1e3)), weight_only=True))
    assert len(model.layers) == 1


@pytest.mark.parametrize("target", RUN_ON)
@pytest.mark.parametrize("rows", [1, 64])
@pytest.mark.parametrize(("dtype", "bits"), [("uint4", 4), ("int2", 2), ("int8", 8)])
def test_weights_stay_packed(dtype: str, bits: int, rows: int, target: str) -> None:
    depth, columns, block = 128, 64, 32
    x = variable("x", "float32", rows, depth)
    matrix = weights("nn.dense", dtype, "in blocks", depth, columns, block, np.random.default_rng(1))
    model = weft.compile(module_of(x, call("nn.dense", x, matrix)), target=target)
    assert isinstance(model, weft.CompiledModel)
    by_block = 2 * 4 * depth // block * columns  # scales and zero points
    assert model.statistics["constant_bytes"] == depth * columns * bits // 8 + by_block
