"""Dilated windows run on the core whatever they span, with the integers of the plain operators."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import weft
from hypothesis import given, settings
from hypothesis import strategies as st
from weft.compiler.graph import Call, Constant, Function, Module, TensorType, Var, call, calls, evaluate, operator
from weft.compiler.targets.accel.operators.packed_layout import Blocks
from weft.compiler.targets.accel.passes import accel_passes
from weft.compiler.targets.accel.passes.dilation_phases import dilation_phases
from weft.compiler.targets.accel.passes.fuse import fuse
from weft.hw.config import PYNQ, TINY
from weft.hw.dram_rate import DramRate

from ..test_random_shapes import Layer

FLAT = replace(TINY, name="flat", inp_depth=32, acc_depth=64)
"""A core on which few dilated windows fit."""


def fused(layer: Layer) -> Module:
    return fuse(layer.module())


def sorted_of(layer: Layer) -> Module:
    return dilation_phases(layer.config, DramRate.of(layer.config))(fused(layer))


def anchors_of(module: Module) -> list[Call]:
    functions = [node.op for node in calls(module.main.body) if isinstance(node.op, Function)]
    return [each for function in functions for each in calls(function.body) if "dilations" in each.attrs]


@given(
    kind=st.sampled_from(["convolution", "grouped", "depthwise", "residual", "max_pool", "swish"]),
    batch=st.integers(1, 2),
    size=st.tuples(st.integers(1, 19), st.integers(1, 19)),
    kernel=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    dilations=st.tuples(st.integers(1, 9), st.integers(1, 9)),
    strides=st.tuples(st.integers(1, 2), st.integers(1, 2)),
    pads=st.tuples(*[st.integers(0, 9)] * 4),
    seed=st.integers(0, 100),
)
@settings(max_examples=40, deadline=None)
def test_sorted_layers_give_the_integers_of_the_plain_ones(
    kind: str,
    batch: int,
    size: tuple[int, int],
    kernel: tuple[int, int],
    dilations: tuple[int, int],
    strides: tuple[int, int],
    pads: tuple[int, int, int, int],
    seed: int,
) -> None:
    if kind == "max_pool":  # none of its windows may lie outside
        pads = tuple(min(pad, (kernel[axis % 2] - 1) * dilations[axis % 2]) for axis, pad in enumerate(pads))  # type: ignore[assignment]
    layer = Layer(
        kind, FLAT, batch=batch, channels=4, groups=2 if kind == "grouped" else 1, size=size, kernel=kernel,
        dilations=dilations, strides=strides, pads=pads, seed=seed,
    )  # fmt: skip
    if min(layer.output) < 1:
        return
    module = fused(layer)
    inputs = layer.inputs(module)
    wanted, found = evaluate(module, inputs), evaluate(sorted_of(layer), inputs)
    for name, value in wanted.items():
        np.testing.assert_array_equal(found[name], value)


SPARSE = {
    "convolution": Layer("convolution", PYNQ, size=(60, 60), channels=16, filters=16, pads=(36,) * 4,
                         dilations=(36, 36)),
    "depthwise": Layer("depthwise", PYNQ, size=(49, 49), channels=16, pads=(24,) * 4, dilations=(24, 24)),
    "residual": Layer("residual", TINY, size=(23, 23), channels=8, filters=8, pads=(11,) * 4, dilations=(11, 11)),
    "two pictures": Layer("swish", TINY, batch=2, size=(24, 25), channels=8, pads=(12,) * 4, dilations=(12, 12)),
    "rows and columns": Layer("convolution", FLAT, size=(13, 12), pads=(12,) * 4, dilations=(12, 12)),
}  # fmt: skip


@pytest.mark.parametrize("what", SPARSE)
def test_windows_that_no_tile_could_hold_run_on_the_core(what: str) -> None:
    layer = SPARSE[what]
    module = layer.module()
    inputs = layer.inputs(module)
    blocks = Blocks.of(layer.config)
    packed = module
    for item in accel_passes(blocks, layer.rate.for_bus(layer.config), layer.config):
        packed = item(packed)
    model = weft.compile(replace(packed, stage="packed"), layer.config)
    wanted = evaluate(module, inputs)
    (window,) = (node for node in calls(module.main.body) if node.op == "conv2d")
    assert sum(each.macs for each in model.layers if each.device == "core") == operator(str(window.op)).macs(window)
    for name, value in weft.load(model, "fsim").run(inputs).items():
        np.testing.assert_array_equal(value, wanted[name])


def test_the_window_has_no_gaps_in_the_axes_that_are_sorted() -> None:
    (both,) = anchors_of(sorted_of(SPARSE["rows and columns"]))
    assert (both.attr("dilations"), both.attr("pads"), both.shape) == ((1, 1), (0,) * 4, (144, 8, 2, 1))
    (rows,) = anchors_of(sorted_of(SPARSE["depthwise"]))
    assert (rows.attr("dilations"), rows.attr("pads"), rows.shape) == ((1, 24), (0, 24, 0, 24), (24, 16, 3, 49))


def test_a_window_that_costs_little_stays() -> None:
    """Sorting costs two steps of the host."""
    layer = Layer("convolution", PYNQ, size=(33, 33), channels=64, filters=64, pads=(2,) * 4, dilations=(2, 2))
    assert [each.attr("dilations") for each in anchors_of(sorted_of(layer))] == [(2, 2)]


@pytest.mark.parametrize("strides", [(2, 2), (3, 3)])
def test_windows_that_leave_out_places_stay(strides: tuple[int, int]) -> None:
    layer = replace(SPARSE["depthwise"], strides=strides)
    assert [each.attr("dilations") for each in anchors_of(sorted_of(layer))] == [(24, 24)]


def test_what_is_read_beside_the_window_must_be_pictures_of_its_size() -> None:
    """The gate of a squeeze and excite has one number for a picture, which its phases would have to repeat."""
    module = SPARSE["depthwise"].module()
    gate = Var("gate", TensorType((1, 16, 1, 1), "int8"))
    factors = [call("subtract_immediate", each, value=3) for each in (module.main.body, gate)]
    numbers = [np.full(16, number, np.int32) for number in (0, 1 << 22, 30)]
    body = call("requantise", call("multiply", *factors), *map(Constant, numbers))
    gated = Module(Function((*module.main.params, gate), body, module.main.attrs))
    found = dilation_phases(PYNQ, DramRate.of(PYNQ))(fuse(gated))
    assert [each.attr("dilations") for each in anchors_of(found)] == [(24, 24)]
