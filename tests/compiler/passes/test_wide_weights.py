"""Weights of 16 bits: digits of base 256, each a product of bytes, equal to exact integers on every target."""

from __future__ import annotations

import numpy as np
import pytest
import weft
from weft.compiler.graph import Attrs, Constant, Expr, Function, Module, TensorType, Var, call, calls
from weft.compiler.passes import PassManager, integer_passes

X_SCALE, W_SCALE, Y_SCALE = np.float32(0.05), np.float32(1e-4), np.float32(0.5)


def network(weights: np.ndarray, groups: int = 1) -> Module:
    x = Var("x", TensorType((1, weights.shape[1] * groups, 7, 5), "int8"))
    real = call("dequantise", x, Constant(X_SCALE), Constant(np.int8(3)))
    w = call("dequantise", Constant(weights), Constant(W_SCALE), Constant(np.zeros((), weights.dtype)))
    y: Expr = call("nn.conv2d", real, w, pads=(1, 1, 1, 1), groups=groups)
    y = call("quantise", y, Constant(Y_SCALE), Constant(np.int8(-5)))
    return Module(Function((x,), y, Attrs({"name": "main", "outputs": ("y",)})))


def exact(x: np.ndarray, w: np.ndarray, groups: int) -> np.ndarray:
    """Rounded once, ties to even, from sums of whole numbers."""
    padded = np.pad(x.astype(np.int64) - 3, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
    parts = zip(np.split(windows, groups, 1), np.split(w.astype(np.int64), groups), strict=True)
    sums = np.concatenate([np.einsum("ncijkl,ockl->noij", part, kernel) for part, kernel in parts], 1)
    real = sums * float(X_SCALE) * float(W_SCALE) / float(Y_SCALE)
    return np.clip(np.rint(real) - 5, -128, 127)


@pytest.mark.parametrize("target", ["cpu", "accel"])
@pytest.mark.parametrize(("kind", "groups"), [("int16", 1), ("int16", 2), ("uint16", 1)])
def test_wide_weights_give_exact_sums(kind: str, groups: int, target: str) -> None:
    random, limits = np.random.default_rng(groups), np.iinfo(kind)
    w = random.integers(limits.min, limits.max, (6, 4, 3, 3), kind, endpoint=True)
    w.reshape(-1)[:2] = limits.min, limits.max
    module = network(w, groups)
    x = random.integers(-128, 127, (1, 4 * groups, 7, 5), np.int8, endpoint=True)
    model = weft.compile(module, target=target)
    found = weft.load(model).run({"x": x})["y"]
    wanted = exact(x, w, groups)
    assert 10 < np.abs(wanted).mean() < 125
    assert np.abs(found - wanted).max() <= 1  # a tie of the fixed-point factor
    assert (found != wanted).mean() < 0.02


def test_there_is_one_product_for_each_byte() -> None:
    w = np.random.default_rng(0).integers(-32768, 32767, (8, 8, 3, 3), np.int16, endpoint=True)
    integers = PassManager(integer_passes()).run(network(w))
    inner = [node for each in calls(integers.main.body)
             for node in (calls(each.op.body) if isinstance(each.op, Function) else [each])]  # fmt: skip
    convolutions = [node for node in inner if node.op == "conv2d"]
    assert len(convolutions) <= 3
    assert all(node.args[1].shape == w.shape for node in convolutions)


def test_weights_of_a_byte_and_a_zero_point_stay_one_product() -> None:
    w = np.random.default_rng(0).integers(-255, 255, (8, 8, 3, 3), np.int16, endpoint=True)
    integers = PassManager(integer_passes()).run(network(w))
    assert [node.op for node in calls(integers.main.body)].count("conv2d") == 1
