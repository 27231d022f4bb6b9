"""Random layers: the packed kernel computes the integers of the plain operators, whatever the blocks."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from weft.compiler.graph import (
    Array,
    Attrs,
    Call,
    Constant,
    Expr,
    Function,
    Module,
    TensorType,
    Tuple,
    Var,
    call,
    evaluate,
)
from weft.compiler.operators import numerics
from weft.compiler.passes import check_stage
from weft.compiler.passes.manager import random_inputs
from weft.compiler.targets.accel.operators import packed_layout
from weft.compiler.targets.accel.operators.packed_layout import Blocks
from weft.compiler.targets.accel.passes import fuse_with_report, pack_layout

BLOCKS = st.builds(Blocks, st.sampled_from([1, 2]), st.sampled_from([1, 2, 4, 16]), st.sampled_from([1, 2, 4, 16]))
LAYERS = ("conv", "grouped", "depthwise", "max", "sum", "add", "product", "dense", "requantise")


def requantise(draw: st.DrawFn, x: Expr, factor: float) -> Call:
    generator = np.random.default_rng(draw(st.integers(0, 99)))
    channels = x.shape[1]
    bias = generator.integers(-500, 500, channels).astype(np.int32)
    multiplier, shift = numerics.quantise_multiplier(factor * generator.uniform(0.5, 1.5, channels))
    if draw(st.booleans()):
        bias, multiplier, shift = (np.resize(each[:1], channels) for each in (bias, multiplier, shift))
    low = draw(st.integers(-128, 0))
    params = map(Constant, (bias, multiplier, shift))
    return call("requantise", x, *params, zero_point=draw(st.integers(-20, 20)), low=low)


def integers(draw: st.DrawFn, shape: tuple[int, ...]) -> Array:
    generator = np.random.default_rng(draw(st.integers(0, 99)))
    return generator.integers(-128, 128, shape).astype(np.int8)


@st.composite
def networks(draw: st.DrawFn) -> Module:
    channels = draw(st.integers(1, 20))
    shape = (draw(st.integers(1, 3)), channels, draw(st.integers(3, 6)), draw(st.integers(3, 6)))
    x = Var("x", TensorType(shape, "int8"))
    value: Expr = x
    for _ in range(draw(st.integers(1, 4))):
        channels, size = value.shape[1], value.shape[2:]
        pads = draw(st.tuples(*[st.integers(0, 1)] * 4))
        kernel = (draw(st.integers(1, min(3, size[0]))), draw(st.integers(1, min(3, size[1]))))
        window = {"strides": draw(st.tuples(st.integers(1, 2), st.integers(1, 2))), "pads": pads}
        pad_value = draw(st.integers(-128, 127))
        match draw(st.sampled_from(LAYERS)):
            case "conv":
                w = Constant(integers(draw, (draw(st.integers(1, 20)), channels, *kernel)))
                accumulator = call("conv2d", value, w, pad_value=pad_value, **window)
                value = requantise(draw, accumulator, 1 / (64 * channels))
            case "grouped":
                groups = draw(st.sampled_from([size for size in range(1, channels + 1) if channels % size == 0]))
                w = Constant(integers(draw, (groups * draw(st.integers(1, 3)), channels // groups, *kernel)))
                accumulator = call("conv2d", value, w, pad_value=pad_value, groups=groups, **window)
                value = requantise(draw, accumulator, groups / (64 * channels))
            case "depthwise":
                w = Constant(integers(draw, (channels, 1, *kernel)))
                accumulator = call("conv2d", value, w, pad_value=pad_value, groups=channels, **window)
                value = requantise(draw, accumulator, 1 / 128)
            case "max":
                value = call("max_pool", value, kernel=kernel, **window)
            case "sum":
                pooled = call("sum_pool", value, kernel=kernel, pad_value=pad_value, **window)
                value = requantise(draw, pooled, 1 / 4)
            case "add":
                w = Constant(integers(draw, (channels, channels, 1, 1)))
                branch = requantise(draw, call("conv2d", value, w), 1 / (64 * channels))
                total = call("multiply_immediate", branch, weight=1 << draw(st.integers(1, 20)))
                value = requantise(draw, call("multiply_accumulate", total, value, weight=-700_000), 2.0**-19)
            case "product":
                centred = call("subtract_immediate", value, value=pad_value)
                value = requantise(draw, call("multiply", centred, value), 1 / 128)
            case "dense":
                w = Constant(integers(draw, (draw(st.integers(1, 9)), *value.shape[1:])))
                value = requantise(draw, call("conv2d", value, w), 1 / 1024)
            case _:
                value = requantise(draw, value, 0.8)
    flat = call("reshape", value, shape=(value.shape[0], int(np.prod(value.shape[1:]))))
    return Module(Function((x,), Tuple((value, flat)), Attrs({"name": "main"})))


@settings(max_examples=150)
@given(networks(), BLOCKS)
def test_packed_kernels_compute_the_same_integers(module: Module, blocks: Blocks) -> None:
    fused, report = fuse_with_report(module)
    check_stage(fused, "fused")
    packed = pack_layout(blocks).run(fused)
    check_stage(packed, "packed")
    inputs = random_inputs(module, 1)
    wanted = evaluate(module, inputs)
    for result in (evaluate(fused, inputs), evaluate(packed, inputs)):
        assert all(np.array_equal(result[name], wanted[name]) for name in wanted)
    assert all(len(item.operators) >= 1 for item in report)


def test_a_grouped_convolution_counts_the_macs_of_its_groups() -> None:
    x = Var("x", TensorType((1, 8, 5, 5), "int8"))
    w = np.random.default_rng(0).integers(-128, 128, (12, 2, 3, 3)).astype(np.int8)
    params = (np.zeros(12, np.int32), np.full(12, 1 << 23, np.int32), np.full(12, 30, np.int32))
    y = call("requantise", call("conv2d", x, Constant(w), groups=4), *map(Constant, params))
    module = pack_layout(Blocks(1, 4, 4)).run(fuse_with_report(Module(Function((x,), y, Attrs({"name": "main"}))))[0])
    (kernel,) = [function for function in module.functions if function.is_primitive]
    assert kernel.attrs["macs"] == 12 * 3 * 3 * (2 * 3 * 3)
    dense = packed_layout.dense_weights(w, 4)
    assert dense.shape == (12, 8, 3, 3)
    for out in range(12):
        first = out // 3 * 2
        assert np.array_equal(dense[out, first : first + 2], w[out])
        assert not np.delete(dense[out], [first, first + 1], axis=0).any()
