"""Convolutions of bytes of each channel by itself, as products of words: the integers of the graph at every level, for
any window, and at the ends of data and weights."""

from __future__ import annotations

import re

import numpy as np
import pytest
import weft
from hypothesis import given, settings
from hypothesis import strategies as st
from weft.compiler.graph import Call, Constant, Expr, TensorType, Var, call, evaluate
from weft.compiler.targets.cpu.depthwise import FEWEST, CpuDepthwise
from weft.compiler.targets.cpu.processor import executable_here, host_target, named_target

from .programs import compiled, program_of
from .test_convolution import requantised
from .test_link import GENERATOR, bytes_, check, floats, kinds, module_of


def products(model: weft.CompiledModel) -> int:
    return sum("window_product_" in code.text for code in program_of(model).kernels)


def by_words() -> bool:
    return host_target().triple.startswith("x86_64")


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_any_windows(data: st.DataObject) -> None:
    draw = data.draw
    channels, made = draw(st.sampled_from([4, 8, 12, 16, 24, 48])), draw(st.booleans())
    kernel = draw(st.integers(1, 6)), draw(st.integers(1, 7))
    attrs = {name: (draw(st.integers(1, 3)), draw(st.integers(1, 3))) for name in ("strides", "dilations")}
    size = [draw(st.integers((taps - 1) * step + 1, 24))
            for taps, step in zip(kernel, attrs["dilations"], strict=True)]  # fmt: skip
    pads = tuple(draw(st.integers(0, 2)) for _ in range(4))
    x = Var("x", TensorType((draw(st.integers(1, 2)), channels, *size), "int8"))
    image = requantised(call("conv2d", x, bytes_(channels, channels, 1, 1))) if made else x
    sums = call("conv2d", image, bytes_(channels, 1, *kernel), groups=channels, pads=pads, pad_value=-7, **attrs)
    results = (requantised(sums),) if draw(st.booleans()) else (sums, requantised(sums))
    model = check(module_of(*results, params=(x,)), threads=draw(st.sampled_from([1, 2])))
    assert products(model) == by_words()


@settings(max_examples=12, deadline=None)
@given(st.data())
def test_channels_that_fill_no_block(data: st.DataObject) -> None:
    """Behind and before convolutions that make as many, in floats and in integers, with constants of each channel."""
    draw = data.draw
    channels, integer = draw(st.sampled_from([3, 17, 30, 36, 58, 116])), draw(st.booleans())
    name, make = ("conv2d", bytes_) if integer else ("nn.conv2d", floats)

    def narrow(value: Call) -> Call:
        if integer:
            return requantised(value)
        added = call("nn.add", value, floats(1, channels, 1, 1))
        return call("nn.multiply", added, call("nn.sigmoid", added)) if draw(st.booleans()) else added

    x = Var(
        "x",
        TensorType((draw(st.integers(1, 2)), channels, 6, draw(st.integers(3, 9))), "int8" if integer else "float32"),
    )
    before: Expr = narrow(call(name, x, make(channels, channels, 1, 1))) if draw(st.booleans()) else x
    kernel = draw(st.sampled_from([1, 3])), draw(st.sampled_from([2, 3]))
    each = narrow(call(name, before, make(channels, 1, *kernel), groups=channels, pads=(1, 0, 1, 1)))
    behind = narrow(call(name, each, make(channels, channels, 1, 1)))
    window = {"kernel": (2, 2), "strides": (1, 2), "pads": (0,) * 4, "dilations": (1, 1)}
    pooled = call("max_pool" if integer else "nn.max_pool", each, **window)
    results = draw(st.sampled_from([(behind,), (behind, each), (behind, pooled)]))
    model = check(module_of(*results, params=(x,)), draw(st.sampled_from([1, 2])), 2e-5)
    if integer:
        assert products(model) == by_words()
    else:
        assert "blocked" in kinds(model)


@pytest.mark.parametrize("kernel", [(3, 3), (2, 5), (1, 7), (5, 1)])
def test_the_ends_are_exact(level: str, kernel: tuple[int, int]) -> None:
    random = np.random.default_rng(1)
    weights = random.choice(np.array([-128, 127, 1], np.int8), (16, 1, *kernel))
    weights[:2] = np.array([-128, 127], np.int8).reshape(2, 1, 1, 1)
    x = Var("x", TensorType((1, 16, 9, 13), "int8"))
    pads = tuple(size // 2 for size in kernel) * 2
    sums = call("conv2d", x, Constant(weights), groups=16, pads=pads, pad_value=-128)
    module = module_of(sums, requantised(sums), params=(x,))
    loaded = weft.load(compiled(module))
    assert products(loaded.model) == 1
    for image in (*np.array([-128, 127, 0], np.int8), random.choice(np.array([-128, 127], np.int8), x.type.shape)):
        values = {"x": np.broadcast_to(image, x.type.shape).copy()}
        for name, array in evaluate(module, values).items():
            np.testing.assert_array_equal(loaded.run(values)[name], array)


def test_elementwise_operators_behind_it_are_one_kernel(level: str) -> None:
    x = Var("x", TensorType((1, 32, 10, 10), "int8"))
    bias, shift = Constant(GENERATOR.integers(0, 99, 32, "int32")), Constant(np.full(32, 12, np.int32))
    narrow = requantised(call("conv2d", x, bytes_(32, 1, 3, 3), groups=32, pads=(1,) * 4))
    again = call("requantise", narrow, bias, Constant(np.full(32, 3000, np.int32)), shift, zero_point=-3)
    model = check(module_of(again, params=(x,)))
    assert products(model) == 1
    assert [layer.operators for layer in model.layers if "conv2d" in layer.operators] == [
        ("conv2d", "requantise", "requantise")
    ]


@pytest.mark.parametrize("name", [name for name in executable_here() if name != "host"])
def test_tiles_leave_registers_for_the_weights_of_a_row(name: str) -> None:
    schedule = CpuDepthwise(named_target(name))
    registers = named_target(name).registers
    for taps in range(1, registers):
        assert schedule.takes(taps) == (registers - taps >= FEWEST + 3)
        for width in range(1, 60) if schedule.takes(taps) else ():
            assert 1 <= schedule.pixels(width, taps) <= min(width, registers - taps - 3)


def test_long_rows_of_a_window_have_the_plain_form(level: str) -> None:
    taps = named_target(level).registers
    x = Var("x", TensorType((1, 16, 3, taps + 5), "int8"))
    model = check(module_of(requantised(call("conv2d", x, bytes_(16, 1, 3, taps), groups=16)), params=(x,)))
    assert products(model) == 0
    assert not any(re.search("window", code.text) for code in program_of(model).kernels)
