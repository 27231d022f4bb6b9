"""Convolutions of bytes by Winograd's method: the integers of the graph at every level, for any sizes, and at the ends
of data and weights."""

from __future__ import annotations

import numpy as np
import pytest
import weft
from hypothesis import given, settings
from hypothesis import strategies as st
from weft.compiler.graph import Constant, TensorType, Var, call, evaluate
from weft.compiler.targets.cpu.processor import PRETENDED
from weft.compiler.targets.cpu.winograd import POSITIONS, chosen_blocks
from weft.compiler.targets.loops.winograd import TiledAxis, Winograd

from .programs import WITHOUT_DOT_PRODUCTS, compiled
from .test_convolution import requantised
from .test_link import bytes_, check, module_of


def forms(model: weft.CompiledModel) -> list[str]:
    return [layer.form.partition("; ")[2] for layer in model.layers if "Winograd" in layer.form]


pytestmark = pytest.mark.usefixtures("small_models_use_threads")


@pytest.mark.skipif(not WITHOUT_DOT_PRODUCTS, reason="this machine executes no level of x86")
@settings(max_examples=2, deadline=None)
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
    """Images and volumes, odd and even, in groups, with windows of three along one axis or two; behind another
    convolution, and with readers of the sums beside the requantise."""
    draw = data.draw
    axes = draw(st.sampled_from([2, 2, 3]))
    groups, taken, made = draw(st.sampled_from([(1, 16, 16), (1, 24, 40), (2, 16, 32), (1, 20, 30), (1, 8, 64)]))
    kernel = [3, 3, draw(st.sampled_from([3, 3, 1, 2]))][::-1] if axes == 3 else [draw(st.sampled_from([3, 3, 1])), 3]
    size = [draw(st.integers(6, 13)), draw(st.integers(12, 20))]
    size = [draw(st.integers(3, 4)), *size] if axes == 3 else size
    dilations = tuple(draw(st.sampled_from([1, 1, 2])) for _ in range(axes))
    pads = [draw(st.integers(0, 2)) for _ in range(2 * axes)]
    for axis in range(axes):
        if size[axis] + pads[axis] + pads[axes + axis] < 2 * dilations[axis] + (kernel[axis] - 1) * dilations[axis]:
            pads[axis] = 2 * dilations[axis]
    attrs = {"groups": groups, "pads": tuple(pads), "dilations": dilations, "pad_value": draw(st.integers(-128, 127))}
    x = Var("x", TensorType((draw(st.integers(1, 2)), 8, *size), "int8"))
    name = f"conv{axes}d"
    image = requantised(call(name, x, bytes_(groups * taken, 8, *[1] * axes)))
    sums = call(name, image, bytes_(groups * made, taken, *kernel), **attrs)
    results = (requantised(sums),) if draw(st.booleans()) else (sums, requantised(sums))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(PRETENDED, draw(st.sampled_from(WITHOUT_DOT_PRODUCTS)))
        patch.setattr("weft.compiler.targets.cpu.winograd.WORTH", 9.0)
        patch.setattr("weft.compiler.targets.cpu.winograd.POSITIONS", draw(st.sampled_from([8, POSITIONS])))
        model = check(module_of(*results, params=(x,)), threads=draw(st.sampled_from([1, 2])))
    assert len(forms(model)) == 1


@pytest.mark.skipif(not WITHOUT_DOT_PRODUCTS, reason="this machine executes no level of x86")
@pytest.mark.parametrize("shape", [(14, 18), (1, 40)])
def test_the_ends_are_exact(shape: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PRETENDED, WITHOUT_DOT_PRODUCTS[-1])
    random = np.random.default_rng(1)
    kernel = (3 if shape[0] > 1 else 1, 3)
    weights = random.choice(np.array([-128, 127], np.int8), (32, 32, *kernel))
    weights[:2] = np.array([-128, 127], np.int8).reshape(2, 1, 1, 1)
    x = Var("x", TensorType((1, 32, *shape), "int8"))
    sums = call("conv2d", x, Constant(weights), pads=(kernel[0] // 2, 1) * 2, pad_value=-128)
    module = module_of(sums, requantised(sums), params=(x,))
    loaded = weft.load(compiled(module))
    assert forms(loaded.model) == ["16 products for 36" if shape[0] > 1 else "4 products for 6"]
    for image in (*np.array([-128, 127], np.int8), random.choice(np.array([-128, 127], np.int8), x.type.shape)):
        values = {"x": np.broadcast_to(image, x.type.shape).copy()}
        for name, array in evaluate(module, values).items():
            np.testing.assert_array_equal(loaded.run(values)[name], array)


@given(st.integers(1, 70), st.integers(1, 70), st.integers(1, 3))
def test_blocks_are_whole(height: int, width: int, dilation: int) -> None:
    plan = Winograd((TiledAxis(height, dilation), TiledAxis(width, 1)))
    found = chosen_blocks(plan, 64, 64)
    if found is None:
        return
    assert found.blocks * found.rows == found.axes[0].positions
    assert found.blocks == 1 or (found.positions <= POSITIONS and height == 2 * found.rows * found.blocks)


def test_it_is_taken_where_it_saves() -> None:
    """Not for few channels, whose products are no more than the work around them, nor for a result of few tiles."""
    plan = Winograd((TiledAxis(28, 1), TiledAxis(28, 1)))
    assert chosen_blocks(plan, 64, 64) is not None
    assert chosen_blocks(plan, 4, 4) is None
    assert chosen_blocks(Winograd((TiledAxis(2, 1), TiledAxis(2, 1))), 64, 64) is None
    assert chosen_blocks(Winograd((TiledAxis(9, 4), TiledAxis(9, 4))), 64, 64) is None  # most tiles' results are unused
