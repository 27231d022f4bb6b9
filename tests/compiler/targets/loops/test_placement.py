"""Layouts for the whole graph: reshapes of images in blocks that their readers do themselves."""

from __future__ import annotations

import numpy as np
import pytest
import weft
from weft.compiler.graph import Constant, Expr, Module, call, evaluate
from weft.compiler.targets.loops.prepare import prepare

from ..cpu.test_link import check, kinds, module_of, random_inputs
from ..gpu.graphs import RUN_ON
from .test_joins import RANDOM, conv, image


def pixels_last(x: Expr) -> Expr:
    """(N, C, H, W) as (N, C, H W)."""
    return call("reshape", x, shape=(*x.shape[:2], x.shape[2] * x.shape[3]))


def tokens(x: Expr) -> Expr:
    """(N, C, H, W) as (N, H W, C)."""
    return call("transpose", pixels_last(x), perm=(0, 2, 1))


def patches(dtype: str, channels: int) -> Module:
    x = image(dtype, batch=2)
    made = tokens(conv(x, channels, 3))
    if dtype == "float32":
        made = call("nn.add", made, Constant(RANDOM.standard_normal(made.shape[1:]).astype(np.float32)))
    return module_of(made, params=(x,))


@pytest.mark.parametrize("dtype", ["float32", "int8"])
@pytest.mark.parametrize("channels", [16, 12, 7])
def test_tokens_are_made_of_the_image_as_it_lies(dtype: str, channels: int) -> None:
    model = check(patches(dtype, channels))
    assert kinds(model)[-1] == "plain"
    assert "convert" not in kinds(model)[-2:]


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_tokens_on_a_gpu(dtype: str) -> None:
    module = prepare(patches(dtype, 12))
    values = random_inputs(module)
    model = weft.compile(module, target="cuda", gpu="sm_80", strict=True)
    assert kinds(model)[-1] == "plain"
    assert "convert" not in kinds(model)[-2:]
    found = weft.load(model, RUN_ON["cuda"]).run(values)
    for name, array in evaluate(module, values).items():
        np.testing.assert_allclose(found[name], array, rtol=1e-5, atol=1e-5 if dtype == "float32" else 0)


def test_all_readers_take_the_reshape_or_none() -> None:
    x = image()
    flat = pixels_last(conv(x, 16, 3))
    weights = Constant(RANDOM.standard_normal((30, 5)).astype(np.float32))
    turned = call("transpose", flat, perm=(0, 2, 1))
    model = check(module_of(turned, call("nn.matmul", flat, weights), params=(x,)))
    assert not any("reshape" in layer.operators for layer in model.layers)


def test_several_readers_and_a_reshape_that_is_a_result() -> None:
    x = image()
    made = conv(x, 16, 3)
    left, right = tokens(made), call("nn.clip", tokens(made), low=0.0)
    check(module_of(call("nn.matmul", left, call("transpose", right, perm=(0, 2, 1))), right, params=(x,)))
    check(module_of(tokens(made), pixels_last(made), params=(x,)))


@pytest.mark.parametrize("channels", [16, 13])
def test_a_plain_residual_is_brought_into_blocks(channels: int) -> None:
    """Else lanes would read it element by element. What is padded by channels, as between sizes of an image, is made in
    the plain layout."""
    x = image(batch=2)
    residual = call("pad", conv(x, 8), pads=(0, 0, 0, 0, 0, channels - 8, 0, 0))
    made = call("nn.add", conv(x, channels, 3), residual)
    assert kinds(check(module_of(made, params=(x,))))[-3:] == ["convert", "convolution", "convert"]
    again = call("nn.maximum", conv(made, channels, 1), residual)
    check(module_of(made, call("nn.max_pool", again, kernel=(2, 2)), params=(x,)))


@pytest.mark.parametrize("channels", [16, 13])
def test_a_plain_residual_of_bytes(channels: int) -> None:
    x = image("int8", batch=2)
    residual = call("pad", conv(x, 8), pads=(0, 0, 0, 0, 0, channels - 8, 0, 0))
    total = call("multiply_accumulate", call("multiply_immediate", residual, weight=3), conv(x, channels, 3), weight=2)
    parameters = (Constant(np.full(channels, number, np.int32)) for number in (5, 1 << 22, 28))
    check(module_of(call("requantise", total, *parameters), params=(x,)))
