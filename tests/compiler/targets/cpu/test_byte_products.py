"""Dense layers of tokens in bytes: the integers of the graph, whatever the sizes, and in plain layouts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from weft.compiler.graph import Constant, Expr, TensorType, Var, call

from .test_link import check, kinds, module_of


@pytest.fixture(autouse=True)
def small_models_use_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weft.compiler.targets.cpu.kernels.WORK_WORTH_THREADS", 0)


def dense(x: Expr, channels: int, random: np.random.Generator, *, narrow: bool = True) -> Expr:
    weights = random.integers(-128, 127, (channels, x.shape[1], 1, 1), np.int8, endpoint=True)
    sums = call("conv2d", x, Constant(weights))
    if not narrow:
        return sums
    bias = random.integers(-9999, 9999, channels).astype(np.int32)
    multiplier = random.integers(1 << 23, 1 << 24, channels).astype(np.int32)
    shift = random.integers(30, 36, channels).astype(np.int32)
    return call("requantise", sums, Constant(bias), Constant(multiplier), Constant(shift), zero_point=3)


@settings(max_examples=25, deadline=None)
@given(
    st.integers(2, 40), st.integers(1, 70), st.sampled_from([4, 8, 12, 16, 24, 40, 48, 64, 1000]), st.integers(0, 9),
    st.sampled_from([1, 2]), st.booleans(),
)  # fmt: skip
def test_any_sizes_give_the_graphs_integers(
    rows: int, depth: int, channels: int, seed: int, threads: int, narrow: bool
) -> None:
    x = Var("x", TensorType((rows, depth, 1, 1), "int8"))
    result = dense(x, channels, np.random.default_rng(seed), narrow=narrow)
    model = check(module_of(result, params=(x,)), threads=threads)
    assert kinds(model) == ["product"]


def test_layers_behind_each_other_need_no_other_layout() -> None:
    random = np.random.default_rng(0)
    x = Var("x", TensorType((197, 64, 1, 1), "int8"))
    model = check(module_of(dense(dense(x, 96, random), 64, random), params=(x,)))
    assert kinds(model) == ["product", "product"]


def test_odd_channels_and_single_rows_are_computed_as_convolutions() -> None:
    random = np.random.default_rng(0)
    for rows, channels in ((1, 16), (5, 7)):
        x = Var("x", TensorType((rows, 12, 1, 1), "int8"))
        assert "product" not in kinds(check(module_of(dense(x, channels, random), params=(x,))))
