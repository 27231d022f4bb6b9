"""Convolutions that make one channel or two, whose lanes run over the channels of the data: the graph's numbers for any
window, in floats and in integers, at the ends of data and weights, and on every processor by its own form."""

from __future__ import annotations

import numpy as np
import pytest
import weft
from hypothesis import given, settings
from hypothesis import strategies as st
from weft.compiler.graph import Constant, Expr, Module, TensorType, Var, call, evaluate
from weft.compiler.targets.cpu.few_channels import KEPT, CpuFewChannels
from weft.compiler.targets.cpu.kernels import loop_target
from weft.compiler.targets.cpu.llvm.byte_products import byte_form
from weft.compiler.targets.cpu.processor import PROCESSORS, named_target
from weft.compiler.targets.loops.few_channels import FEWEST_TAKEN, MOST_MADE
from weft.compiler.targets.loops.model import link_model
from weft.compiler.targets.loops.prepare import prepare
from weft.compiler.targets.target import Job

from .programs import compiled, program_of
from .test_byte_forms import MNEMONICS, loop_of, text_of
from .test_convolution import requantised
from .test_link import bytes_, check, floats, module_of


def across_lanes(model: weft.CompiledModel) -> int:
    """Kernels with a stage of parts for each lane."""
    return sum("parts[" in code.text for code in program_of(model).kernels)


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_any_windows(data: st.DataObject) -> None:
    draw = data.draw
    axes, integer, made = draw(st.sampled_from([2, 2, 3])), draw(st.booleans()), draw(st.integers(1, MOST_MADE))
    channels = draw(st.sampled_from([8, 12, 16, 19, 21, 32, 40, 67]))
    kernel = [draw(st.integers(1, 4)) for _ in range(axes)]
    attrs = {name: tuple(draw(st.integers(1, 3)) for _ in kernel) for name in ("strides", "dilations")}
    size = [draw(st.integers((taps - 1) * step + 1, (taps - 1) * step + 12 // axes))
            for taps, step in zip(kernel, attrs["dilations"], strict=True)]  # fmt: skip
    attrs["pads"] = tuple(draw(st.integers(0, 2)) for _ in range(2 * axes))
    batch, before, after = draw(st.integers(1, 2)), draw(st.booleans()), draw(st.booleans())
    op, x = f"conv{axes}d", Var("x", TensorType((batch, channels, *size), "int8" if integer else "float32"))
    one = (1,) * axes
    image: Expr = x
    if integer:
        if before and axes == 2:
            image = requantised(call(op, x, bytes_(channels, channels, *one)))
        sums = call(op, image, bytes_(made, channels, *kernel), pad_value=-7, **attrs)
        results = [requantised(sums)] if after else [sums, requantised(sums)]
    else:
        if before:
            image = call(f"nn.{op}", x, floats(channels, channels, *one))
        sums = call(f"nn.{op}", image, floats(made, channels, *kernel), **attrs)
        bias = call("nn.add", sums, floats(1, made, *one))
        results = [call("nn.sigmoid", bias)] if after else [sums, call("nn.multiply", bias, sums)]
    model = check(module_of(*results, params=(x,)), draw(st.sampled_from([1, 2])), 2e-5)
    assert across_lanes(model) == 1


@pytest.mark.parametrize("made", [1, 2])
def test_the_ends_are_exact(level: str, made: int) -> None:
    random = np.random.default_rng(1)
    weights = random.choice(np.array([-128, 127, 1], np.int8), (made, 36, 3, 3))
    weights[:, :18] = np.array([-128, 127], np.int8)[:made].reshape(made, 1, 1, 1)
    x = Var("x", TensorType((1, 36, 9, 13), "int8"))
    sums = call("conv2d", x, Constant(weights), pads=(1,) * 4, pad_value=-128)
    module = module_of(sums, requantised(sums), params=(x,))
    loaded = weft.load(compiled(module))
    assert across_lanes(loaded.model) == 1
    for image in (*np.array([-128, 127, 0], np.int8), random.choice(np.array([-128, 127], np.int8), x.type.shape)):
        values = {"x": np.broadcast_to(image, x.type.shape).copy()}
        for name, array in evaluate(module, values).items():
            np.testing.assert_array_equal(loaded.run(values)[name], array)


def test_what_is_elementwise_behind_it_is_in_its_kernel() -> None:
    x, other = (Var(name, TensorType((1, channels, 10, 11), "float32")) for name, channels in (("x", 32), ("other", 1)))
    mask = call("nn.conv2d", x, floats(1, 32, 3, 3), pads=(1,) * 4)
    joined = call("nn.sigmoid", call("nn.add", call("nn.add", mask, floats(1, 1, 1, 1)), other))
    model = check(module_of(joined, params=(x, other)))
    assert ("nn.conv2d", "nn.add", "nn.add", "nn.sigmoid") in [layer.operators for layer in model.layers]
    assert across_lanes(model) == 1


def test_others_have_the_usual_tiles() -> None:
    """Three channels, groups, and data with few channels."""
    for made, taken, groups in ((MOST_MADE + 1, 32, 1), (2, 16, 2), (1, FEWEST_TAKEN - 1, 1)):
        x = Var("x", TensorType((1, taken, 6, 7), "float32"))
        value = call("nn.conv2d", x, floats(made, taken // groups, 3, 3), groups=groups)
        assert across_lanes(check(module_of(value, params=(x,)))) == 0


def test_their_result_may_feed_a_convolution_and_one_in_bytes_too() -> None:
    x = Var("x", TensorType((1, 16, 9, 9), "int8"))
    one = requantised(call("conv2d", x, bytes_(1, 16, 3, 3), pads=(1,) * 4, pad_value=3))
    again = requantised(call("conv2d", one, bytes_(8, 1, 3, 3), pads=(1,) * 4, pad_value=2))
    assert across_lanes(check(module_of(again, one, params=(x,)))) == 1


def mask(integer: bool) -> Module:
    x = Var("x", TensorType((1, 64, 28, 28), "int8" if integer else "float32"))
    if integer:
        return module_of(requantised(call("conv2d", x, bytes_(1, 64, 3, 3), pads=(1,) * 4)), params=(x,))
    return module_of(call("nn.conv2d", x, floats(1, 64, 3, 3), pads=(1,) * 4), params=(x,))


@pytest.mark.parametrize("name", PROCESSORS)
def test_bytes_are_multiplied_by_the_form_of_the_processor(name: str) -> None:
    """Four lanes of four bytes each, in a loop that no sum leaves its register in."""
    processor = named_target(name)
    form = byte_form(processor, 4)
    model = link_model(prepare(mask(True), dot_products=processor.dot_product), "cpu", loop_target(processor), 1, Job())
    (code,) = (each for each in program_of(model).kernels if "lane_product_" in each.text)
    loop, found = loop_of(text_of(code, processor), processor, MNEMONICS.get(form.name, form.name))
    assert form.name != "mul"
    assert found >= CpuFewChannels(processor).pixels(28, 4), "\n".join(loop)
    assert len(loop) <= 3.5 * form.cost * found, "\n".join(loop)


@pytest.mark.parametrize("name", ["x86-64-v2", "x86-64-v3", "x86-64-v4", "cortex-a53"])
def test_floats_are_multiplied_in_whole_registers(name: str) -> None:
    processor = named_target(name)
    model = link_model(prepare(mask(False)), "cpu", loop_target(processor), 1, Job())
    (code,) = (each for each in program_of(model).kernels if "parts[" in each.text)
    multiply = {"x86-64-v2": "mulps", "cortex-a53": r"fml[as]"}.get(name, r"vfn?madd\d+ps")
    loop, found = loop_of(text_of(code, processor), processor, multiply)
    registers = 64 // processor.vector_bytes  # of a block of 16 channels
    assert found >= 9 * registers * CpuFewChannels(processor).pixels(28, 16), "\n".join(loop)
    assert len(loop) <= 3.5 * found, "\n".join(loop)


@pytest.mark.parametrize("name", PROCESSORS)
def test_tiles_fit_into_registers(name: str) -> None:
    schedule = CpuFewChannels(named_target(name))
    for width in range(1, 60):
        for lanes in range(1, 17):
            rows = schedule.pixels(width, lanes)
            parts = -(-lanes // schedule.target.float_lanes)
            assert 1 <= rows <= width
            assert rows == 1 or rows * parts <= schedule.target.registers - KEPT - parts
