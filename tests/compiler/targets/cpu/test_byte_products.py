"""Dense layers of tokens in bytes: the integers of the graph, whatever the sizes, and in plain layouts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from weft.compiler.graph import Constant, Expr, TensorType, Var, call
from weft.compiler.targets.cpu.processor import host_target

from .test_link import check, kinds, module_of

pytestmark = pytest.mark.usefixtures("small_models_use_threads")


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


SIZES = st.integers(1, 45)


def requantised(sums: Expr, seed: int = 0) -> Expr:
    random = np.random.default_rng(seed)
    channels = sums.shape[1]
    bias = random.integers(-9999, 9999, channels).astype(np.int32)
    multiplier = random.integers(1 << 23, 1 << 24, channels).astype(np.int32)
    return call("requantise", sums, *map(Constant, (bias, multiplier, np.full(channels, 35, np.int32))), zero_point=3)


@settings(max_examples=40, deadline=None)
@given(
    st.integers(1, 3), SIZES, st.integers(4, 70), SIZES, st.sampled_from([1, 1, 1, 2, 3]),
    st.tuples(*[st.sampled_from([0, -128, 127, 5, -9])] * 2), st.sampled_from([1, 2]), st.booleans(),
)  # fmt: skip
def test_two_computed_tensors_of_any_sizes_and_zero_points(
    images: int, rows: int, depth: int, columns: int, width: int, zeros: tuple[int, int], threads: int, narrow: bool
) -> None:
    x = Var("x", TensorType((images, depth, columns, width), "int8"))
    w = Var("w", TensorType((images, depth, rows, 1), "int8"))
    sums = call("product", x, w, depth=depth, outputs=rows, zero_points=zeros)
    model = check(module_of(requantised(sums) if narrow else sums, params=(x, w)), threads=threads)
    assert kinds(model) == ["product"]


def in_floats(value: Expr, zero: int, dtype: str = "float32") -> Expr:
    return call("nn.subtract", call("nn.cast", value, to=dtype), Constant(np.array(zero, dtype)))


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from([((), ()), ((2,), (2,)), ((2, 3), (2, 3)), ((2, 3), (3,)), ((1, 3), (2, 1)), ((), (2,))]),
    SIZES, st.sampled_from([4, 9, 64, 258, 259, 300]), SIZES, st.sampled_from(["int8", "uint8"]), st.booleans(),
    st.booleans(),
)  # fmt: skip
def test_a_product_of_bytes_in_floats_becomes_one(
    leads: tuple[tuple[int, ...], tuple[int, ...]], rows: int, depth: int, columns: int, dtype: str, turned: bool,
    wide: bool,
) -> None:  # fmt: skip
    """Where floats are exact; matrices repeat, and lie in any order."""
    a = Var("a", TensorType((*leads[0], rows, depth), "int8"))
    b_shape = (*leads[1], *((columns, depth) if turned else (depth, columns)))
    b = Var("b", TensorType(b_shape, dtype))
    rank = len(b_shape)
    right = call("transpose", b, perm=(*range(rank - 2), rank - 1, rank - 2)) if turned else b
    float_ = "float64" if wide else "float32"
    value = call("nn.matmul", in_floats(a, -128, float_), in_floats(right, 7, float_))
    model = check(module_of(call("nn.cast", value, to="int32"), params=(a, b)))
    exact = wide or depth <= 258
    found = [layer for layer in model.layers if "product" in layer.operators]
    assert len(found) == exact * host_target().dot_product


def test_attention_of_a_quantised_model_moves_nothing_before_its_products() -> None:
    """Heads lie side by side in a token, as models have them."""
    if not host_target().dot_product:
        pytest.skip("this processor multiplies floats faster than bytes")
    queries, keys, values = (Var(name, TensorType((1, 50, 3, 16), "int8")) for name in "qkv")
    rows = call("transpose", queries, perm=(0, 2, 1, 3))
    columns = call("transpose", keys, perm=(0, 2, 3, 1))
    scores = call("nn.cast", call("nn.matmul", in_floats(rows, 3), in_floats(columns, -5)), to="int32")
    scale, zero = Constant(np.array(0.07, np.float32)), Constant(np.array(-128, np.int8))
    narrow = call("dequantise", requantised_alike(scores), scale, Constant(np.array(0, np.int8)))
    small = Constant(np.array(1 / 255, np.float32))
    weights = call("quantise", call("nn.softmax", narrow, axis=3), small, zero)
    turned = call("transpose", values, perm=(0, 2, 1, 3))
    summed = call("nn.cast", call("nn.matmul", in_floats(weights, -128), in_floats(turned, 9)), to="int32")
    model = check(module_of(requantised_alike(summed), params=(queries, keys, values)))
    assert kinds(model) == ["product", "plain", "product"]
    assert all("requantise" in layer.operators for layer in model.layers if layer.kind == "product")


def requantised_alike(sums: Expr) -> Expr:
    channels = sums.shape[1]
    values = (np.full(channels, value, np.int32) for value in (77, 12_345_678, 34))
    return call("requantise", sums, *map(Constant, values), zero_point=-3)
