"""Convolutions of single pixels, whose data is brought together first: the integers of the graph at every level, for
any sizes; and in which blocks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from weft.compiler.graph import Constant, TensorType, Var, call
from weft.compiler.targets.cpu.processor import PRETENDED, named_target
from weft.compiler.targets.cpu.single_pixels import pixel_block

from .programs import WITHOUT_DOT_PRODUCTS, program_of
from .test_convolution import requantised
from .test_link import bytes_, check, floats, module_of

pytestmark = pytest.mark.usefixtures("small_models_use_threads")


@pytest.mark.skipif(not WITHOUT_DOT_PRODUCTS, reason="this machine executes no level of x86")
@settings(max_examples=1, deadline=None)
@given(st.data())
def test_any_sizes(data: st.DataObject) -> None:
    any_sizes(data)


@pytest.mark.long
@pytest.mark.skipif(not WITHOUT_DOT_PRODUCTS, reason="this machine executes no level of x86")
@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_of_many_sizes(data: st.DataObject) -> None:
    any_sizes(data)


def any_sizes(data: st.DataObject) -> None:
    """Images and volumes, batches, strides, groups, and data with a halo that another reader needs; weights that are
    words, or bear pairs but for a few; one block of pixels, or many."""
    draw = data.draw
    axes = draw(st.sampled_from([2, 2, 3]))
    groups, taken, made = draw(st.sampled_from([(1, 16, 16), (1, 64, 24), (2, 16, 32), (1, 20, 30), (1, 40, 64)]))
    size = [draw(st.integers(1, 3)) for _ in range(axes - 2)] + [draw(st.integers(1, 9)), draw(st.integers(1, 17))]
    x = Var("x", TensorType((draw(st.integers(1, 2)), 8, *size), "int8"))
    name = f"conv{axes}d"
    image = requantised(call(name, x, bytes_(groups * taken, 8, *[1] * axes)))
    weights = bytes_(groups * made, taken, *[1] * axes).value
    few = np.random.default_rng(draw(st.integers(0, 9))).random(weights.shape) < draw(st.sampled_from([0, 0.01, 1]))
    strides = tuple(draw(st.integers(1, 2)) for _ in range(axes))
    weights = np.where(few, weights, weights // 2).astype(np.int8)
    results = [requantised(call(name, image, Constant(weights), groups=groups, strides=strides))]
    if draw(st.booleans()):
        window = bytes_(8, groups * taken, *[3] * axes)
        results.append(requantised(call(name, image, window, pads=(1,) * (2 * axes), pad_value=-128)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(PRETENDED, draw(st.sampled_from(WITHOUT_DOT_PRODUCTS)))
        patch.setattr("weft.compiler.targets.cpu.single_pixels.PIXELS_SHARE", draw(st.sampled_from([4, 1 << 12])))
        patch.setattr("weft.compiler.targets.cpu.single_pixels.FEWEST_BLOCKS", draw(st.sampled_from([2, 8])))
        patch.setattr("weft.compiler.targets.cpu.single_pixels.FEWEST_PIXELS", draw(st.sampled_from([8, 48])))
        check(module_of(*results, params=(x,)), threads=draw(st.sampled_from([1, 2])))


@pytest.mark.skipif(not WITHOUT_DOT_PRODUCTS, reason="this machine executes no level of x86")
def test_pixels_of_several_rows_make_a_tile(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of rows of seven pixels a tile of six would leave five empty places in each."""
    monkeypatch.setenv(PRETENDED, WITHOUT_DOT_PRODUCTS[0])
    x = Var("x", TensorType((1, 32, 7, 7), "int8"))
    image = requantised(call("conv2d", x, bytes_(32, 32, 1, 1)))
    sums = call("conv2d", image, bytes_(64, 32, 1, 1))
    model = check(module_of(requantised(sums), params=(x,)), threads=2)
    texts = [code.text for code in program_of(model).kernels if "gathered" in code.text]
    assert texts
    assert all("gathered[0, min(" in text for text in texts)


@pytest.mark.parametrize(
    ("sizes", "nbytes", "wanted"),
    [((14, 14), 2048, 98), ((7, 7), 2048, 49), ((56, 56), 128, 784), ((1, 4000), 256, 500), ((13, 13), 1024, 169),
     ((13, 13), 512, 169), ((2, 8, 8), 64, 64), ((1, 1), 4096, 1)],
)  # fmt: skip
def test_blocks_of_pixels(sizes: tuple[int, ...], nbytes: int, wanted: int) -> None:
    """The largest of whole rows whose data takes a part of the second-level cache, where all cost the same; as few as
    are worth reading all weights where pixels have many channels."""
    target = named_target("x86-64-v3")
    assert pixel_block(sizes, nbytes, float, target) == wanted


@pytest.mark.skipif(not WITHOUT_DOT_PRODUCTS, reason="this machine executes no level of x86")
def test_floats_of_many_channels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of pixels that would lie a part of the nearest cache apart have gaps between them."""
    monkeypatch.setenv(PRETENDED, WITHOUT_DOT_PRODUCTS[0])
    x = Var("x", TensorType((2, 8, 3, 5), "float32"))
    image = call("nn.conv2d", x, floats(512, 8, 1, 1))
    value = call("nn.conv2d", image, floats(32, 512, 1, 1), strides=(2, 1))
    model = check(module_of(value, params=(x,)), 2, 1e-4)
    (text,) = (code.text for code in program_of(model).kernels if "gathered" in code.text)
    assert "_528(" in text


def test_blocks_whose_tiles_are_full_come_first() -> None:
    target = named_target("x86-64-v3")
    assert pixel_block((12, 14), 1, lambda pixels: -(-pixels // 12) * 12.0, target) == 168
    assert pixel_block((9, 24), 1, lambda pixels: 400.0 if pixels == 216 else pixels, target) == 72
