"""Convolutions of bfloat16 by twos: sums of whole numbers are exact, and rounded once."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from weft.compiler.graph import Constant, TensorType, Var, call, evaluate

from .programs import program_of
from .test_link import kinds, module_of
from .test_pair_products import BFLOAT16, Array, run, whole_numbers


@pytest.fixture(autouse=True)
def by_twos(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels are made as for a processor with the instruction; threads share small ones, too."""
    monkeypatch.setattr("weft.compiler.targets.cpu.convolution.CpuConvolutions.pairs", True)
    monkeypatch.setattr("weft.compiler.targets.cpu.kernels.WORK_WORTH_THREADS", 0)


def weights(shape: tuple[int, ...], random: np.random.Generator) -> Constant:
    return Constant(random.integers(-4, 5, shape).astype(BFLOAT16))


CHANNELS = st.sampled_from([1, 2, 3, 4, 8, 10, 16, 24, 32, 34])


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_convolutions_of_any_shape(data: st.DataObject) -> None:
    """Two in a row, with strides, padding and dilations, and a bias and an activation behind the first."""
    draw = data.draw
    random = np.random.default_rng(draw(st.integers(0, 99)))
    channels, middle, out = draw(CHANNELS), draw(CHANNELS), draw(CHANNELS)
    size = draw(st.integers(3, 15)), draw(st.integers(3, 15))
    kernel, pad = draw(st.integers(1, 3)), draw(st.integers(0, 1))
    stride, dilation = draw(st.integers(1, 2)), draw(st.integers(1, 2))
    if (kernel - 1) * dilation >= min(size) + 2 * pad:
        dilation = 1
    x = Var("x", TensorType((draw(st.integers(1, 2)), channels, *size), "bfloat16"))
    first = call(
        "nn.conv2d", x, weights((middle, channels, kernel, kernel), random), pads=(pad,) * 4, strides=(stride,) * 2,
        dilations=(dilation,) * 2,
    )  # fmt: skip
    bias = Constant(random.integers(-9, 9, (1, middle, 1, 1)).astype(BFLOAT16))
    value = call("nn.clip", call("nn.add", first, bias), low=0.0, high=6.0)  # whole numbers of few bits again
    second = call("nn.conv2d", value, weights((out, middle, 1, 1), random))
    values = {"x": whole_numbers(x.shape, random)}
    module = module_of(second, params=(x,))
    found, model = run(module, values, draw(st.sampled_from([1, 2])))
    assert kinds(model).count("convolution") == 2
    assert any("pair_product" in code.text for code in program_of(model).kernels)
    np.testing.assert_array_equal(found, evaluate(module, values)["out0"])


@pytest.mark.parametrize(("groups", "each", "filters"), [(2, 16, 16), (4, 4, 4), (3, 8, 16), (16, 1, 1), (8, 2, 2)])
def test_groups(groups: int, each: int, filters: int) -> None:
    """Also where several fit into a block, and of single channels."""
    random = np.random.default_rng(0)
    x = Var("x", TensorType((1, groups * each, 9, 13), "bfloat16"))
    value = call("nn.conv2d", x, weights((groups * filters, each, 3, 3), random), pads=(1,) * 4, groups=groups)
    module, values = module_of(value, params=(x,)), {"x": whole_numbers(x.shape, random)}
    found, _ = run(module, values)
    np.testing.assert_array_equal(found, evaluate(module, values)["out0"])


def test_volumes() -> None:
    random = np.random.default_rng(0)
    x = Var("x", TensorType((1, 6, 5, 7, 9), "bfloat16"))
    value = call("nn.conv3d", x, weights((16, 6, 3, 3, 3), random), pads=(1,) * 6)
    module, values = module_of(value, params=(x,)), {"x": whole_numbers(x.shape, random)}
    found, model = run(module, values)
    assert "convolution" in kinds(model)
    np.testing.assert_array_equal(found, evaluate(module, values)["out0"])


def test_infinite_numbers_stay_where_they_are() -> None:
    """Three channels are held as four, the last of which is 0."""
    random = np.random.default_rng(0)
    x = Var("x", TensorType((1, 3, 8, 8), "bfloat16"))
    value = call("nn.conv2d", x, weights((16, 3, 3, 3), random))
    module = module_of(value, params=(x,))
    image: Array = whole_numbers(x.shape, random)
    image[0, 0, 0, 0] = np.inf
    found, _ = run(module, {"x": image})
    expected = evaluate(module, {"x": image})["out0"].astype(np.float32)
    assert not np.all(np.isfinite(expected))
    np.testing.assert_array_equal(found.astype(np.float32), expected)


def test_other_processors_have_no_such_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weft.compiler.targets.cpu.convolution.CpuConvolutions.pairs", False)
    random = np.random.default_rng(0)
    x = Var("x", TensorType((1, 16, 9, 9), "bfloat16"))
    module = module_of(call("nn.conv2d", x, weights((16, 16, 3, 3), random)), params=(x,))
    values = {"x": whole_numbers(x.shape, random)}
    found, model = run(module, values)
    assert kinds(model) == ["plain"]
    np.testing.assert_array_equal(found, evaluate(module, values)["out0"])
