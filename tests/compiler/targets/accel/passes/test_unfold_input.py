"""A first layer that unfolds: where it does, that every integer stays the same, and what the report says of it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from weft.compiler.graph import (
    Attrs,
    Call,
    Constant,
    Function,
    GraphError,
    Module,
    Span,
    TensorType,
    Tuple,
    Var,
    call,
    calls,
    evaluate,
)
from weft.compiler.operators import numerics
from weft.compiler.passes import check_stage, infer_types
from weft.compiler.passes.manager import random_inputs
from weft.compiler.targets.accel.link.link import check_strict
from weft.compiler.targets.accel.operators.packed_layout import Blocks
from weft.compiler.targets.accel.passes import accel_passes, unfold_input

PYNQ = Blocks(1, 16, 16)


def convolution(
    shape: tuple[int, ...], weights: tuple[int, ...], strides: tuple[int, int] = (1, 1),
    pads: tuple[int, ...] = (0, 0, 0, 0), dilations: tuple[int, int] = (1, 1), groups: int = 1, pad_value: int = 7,
) -> Module:  # fmt: skip
    """One convolution with its requantise on an input of the model."""
    generator = np.random.default_rng(0)
    w = Constant(generator.integers(-128, 128, weights).astype(np.int8), "w")
    multiplier, shift = numerics.quantise_multiplier(generator.uniform(0.5, 1.5, weights[0]) / 400)
    params = (generator.integers(-500, 500, weights[0]).astype(np.int32), multiplier, shift)
    x = Var("x", TensorType(shape, "int8"))
    window = {"strides": strides, "pads": pads, "dilations": dilations, "groups": groups, "pad_value": pad_value}
    span = Span(("first",), "y")
    y = call("requantise", call("conv2d", x, w, span=span, **window), *map(Constant, params), span=span)
    return Module(Function((x,), y, Attrs({"name": "main"})))


def host_functions(module: Module) -> dict[str, Function]:
    return {function.name: function for function in module.functions if function.host_reason}


def conv_of(module: Module) -> Call:
    (found,) = [node for node in calls(module.main.body) if node.op == "conv2d"]
    return found


def window_of(module: Module) -> Attrs | None:
    """The attributes of the unfold operator, if there is one."""
    found = host_functions(module).get("host_unfold_0")
    if found is None:
        return None
    assert isinstance(found.body, Call)
    return found.body.attrs


def test_the_first_layer_of_resnet() -> None:
    module = convolution((1, 3, 224, 224), (64, 3, 7, 7), (2, 2), (3, 3, 3, 3))
    after = unfold_input(PYNQ)(module)
    check_stage(after, "integer")
    infer_types(after)
    conv = conv_of(after)
    assert (conv.args[0].shape, conv.args[1].shape) == ((1, 147, 112, 112), (64, 147, 1, 1))
    assert (conv.attr("strides"), conv.attr("pads"), conv.attr("pad_value")) == ((1, 1), (0, 0, 0, 0), 7)
    assert conv.span == conv_of(module).span
    assert host_functions(after)["host_unfold_0"].host_reason == (
        "puts side by side what a 7 x 7 window meets, so that 147 of 160 lanes of the array do useful work instead of "
        "3 of 16"
    )


def test_kernels_count_the_models_macs_and_strict_accepts_them() -> None:
    module = convolution((1, 3, 12, 12), (8, 3, 7, 7), (2, 2), (3, 3, 3, 3))
    for item in accel_passes(PYNQ):
        module = item(module)
    check_stage(module, "packed")
    check_strict(module)
    (kernel,) = [function for function in module.functions if function.is_primitive]
    assert (kernel.name, kernel.attrs["macs"]) == ("first", 6 * 6 * 8 * 3 * 7 * 7)
    assert list(host_functions(module)) == ["host_unfold_0", "host_pack_0", "host_unpack_0"]


@pytest.mark.parametrize(
    ("module", "blocks", "bus_bytes", "kernel"),
    [
        (convolution((1, 1, 8, 8), (16, 1, 3, 3), pads=(1, 1, 1, 1)), PYNQ, 8, (3, 3)),
        (convolution((1, 1, 28, 28), (10, 1, 28, 28)), PYNQ, 8, (28, 28)),
        (convolution((1, 3, 32, 32), (64, 3, 1, 5)), PYNQ, 8, (1, 5)),
        # all 27 lanes would be 2 entries instead of 3 for a pixel, but the picture's bytes would take longer than that
        (convolution((1, 3, 32, 32), (16, 3, 3, 3), pads=(1, 1, 1, 1)), PYNQ, 8, (1, 3)),
        (convolution((1, 3, 32, 32), (16, 3, 3, 3), pads=(1, 1, 1, 1)), PYNQ, 64, (3, 3)),
        (convolution((1, 16, 32, 32), (64, 16, 3, 3)), PYNQ, 8, None),
        (convolution((1, 3, 32, 32), (64, 3, 1, 1)), PYNQ, 8, None),
        (convolution((1, 3, 32, 32), (64, 3, 3, 3)), Blocks(1, 1, 1), 8, None),
        (convolution((1, 3, 32, 32), (3, 1, 3, 3), groups=3), PYNQ, 8, None),
    ],
    ids=["one channel", "dense", "row kernel", "bytes", "wide bus", "full lanes", "one tap", "one lane", "depthwise"],
)  # fmt: skip
def test_what_is_unfolded(module: Module, blocks: Blocks, bus_bytes: int, kernel: tuple[int, int] | None) -> None:
    window = window_of(unfold_input(blocks, bus_bytes)(module))
    assert (window and window["kernel"]) == kernel


WIDE = Blocks(1, 32, 32)


def pooled(*, alone: bool) -> Module:
    """The first layers of a ResNet; ``alone``: nothing but the pooling reads the convolution's result."""
    module = convolution((1, 3, 224, 224), (64, 3, 7, 7), (2, 2), (3, 3, 3, 3))
    data = module.main.body
    pool = call("max_pool", data, kernel=(3, 3), strides=(2, 2), pads=(1, 1, 1, 1))
    return module.with_main(pool if alone else Tuple((pool, data)))


@pytest.mark.parametrize(
    ("alone", "chains", "kernel"), [(True, True, (7, 7)), (True, False, (1, 7)), (False, True, (1, 7))]
)
def test_what_a_pooling_reads_on_the_core_is_not_written(
    alone: bool, chains: bool, kernel: tuple[int, int]
) -> None:  # fmt: skip
    """Written, it takes so long that two products less for a pixel do not matter."""
    window = window_of(unfold_input(WIDE, 16, chains=chains)(pooled(alone=alone)))
    assert window is not None
    assert window["kernel"] == kernel


def test_only_what_the_host_makes_is_unfolded() -> None:
    x = Var("x", TensorType((1, 3, 9, 9), "int8"))
    pooled = call("max_pool", x, kernel=(2, 2))
    conv = call("conv2d", pooled, Constant(np.ones((4, 3, 3, 3), np.int8)))
    module = Module(Function((x,), conv, Attrs({"name": "main"})))
    assert unfold_input(PYNQ)(module) == module


def test_a_window_that_two_convolutions_share_is_unfolded_once() -> None:
    module = convolution((1, 3, 12, 12), (8, 3, 3, 3))
    (conv,) = [node for node in calls(module.main.body) if node.op == "conv2d"]
    other = call("conv2d", conv.args[0], Constant(np.ones((8, 3, 3, 3), np.int8)), pad_value=7)
    assert isinstance(module.main.body, Call)
    both = call("requantise", call("multiply", conv, other), *module.main.body.args[1:])
    after = unfold_input(PYNQ)(module.with_main(both))
    assert list(host_functions(after)) == ["host_unfold_0"]


BLOCKS = st.builds(Blocks, st.sampled_from([1, 2]), st.sampled_from([2, 4, 16]), st.sampled_from([2, 4, 16]))


@given(st.data(), BLOCKS, st.sampled_from([1, 8, 64]))
def test_the_integers_stay_the_same(data: st.DataObject, blocks: Blocks, bus_bytes: int) -> None:
    def integers(low: int, high: int, count: int) -> tuple[int, ...]:
        return tuple(data.draw(st.integers(low, high)) for _ in range(count))

    batch, channels, filters = integers(1, 3, 1)[0], integers(1, 5, 1)[0], integers(1, 20, 1)[0]
    height, width = integers(1, 9, 2)
    kernel, strides, dilations = integers(1, 4, 2), integers(1, 3, 2), integers(1, 2, 2)
    pads = integers(0, 2, 4)
    try:
        module = convolution(
            (batch, channels, height, width), (filters, channels, *kernel), (strides[0], strides[1]), pads,
            (dilations[0], dilations[1]), pad_value=integers(-128, 127, 1)[0],
        )  # fmt: skip
    except GraphError:  # the kernel is larger than the picture
        assume(False)
    after = unfold_input(blocks, bus_bytes)(module)
    infer_types(after)
    packed = module
    for item in accel_passes(blocks, bus_bytes):
        packed = item(packed)
    inputs = random_inputs(module, 1)
    (wanted,) = evaluate(module, inputs).values()
    for result in (after, packed):
        assert np.array_equal(*evaluate(result, inputs).values(), wanted)


@given(st.data())
def test_unfold_is_its_definition(data: st.DataObject) -> None:
    def pair(low: int, high: int) -> tuple[int, int]:
        return data.draw(st.integers(low, high)), data.draw(st.integers(low, high))

    kernel, strides, dilations, pads = pair(1, 3), pair(1, 3), pair(1, 2), pair(1, 2) + pair(0, 2)
    x = np.random.default_rng(0).integers(-128, 128, (2, 3, 6, 5)).astype(np.int8)
    padded = np.pad(x, ((0, 0), (0, 0), (pads[0], pads[2]), (pads[1], pads[3])), constant_values=-9)
    node = call(
        "unfold", Var("x", TensorType(x.shape, "int8")), kernel=kernel, strides=strides, pads=pads, dilations=dilations,
        pad_value=-9,
    )  # fmt: skip
    got = numerics.unfold(x, **node.attrs)
    assert (got.shape, got.dtype) == (node.shape, x.dtype)
    for i, j, c, row, column in np.ndindex(*kernel, 3, *node.shape[2:]):
        met = padded[:, c, row * strides[0] + i * dilations[0], column * strides[1] + j * dilations[1]]
        assert np.array_equal(got[:, (i * kernel[1] + j) * 3 + c, row, column], met)


def test_unfold_refuses_what_does_not_fit() -> None:
    x = Var("x", TensorType((1, 3, 2, 2), "int8"))
    with pytest.raises(GraphError, match=r"unfold: a kernel of \(3, 3\) .* does not fit into \(2, 2\)"):
        call("unfold", x, kernel=(3, 3))
    with pytest.raises(GraphError, match="unfold: the input must be int8, not float32"):
        call("unfold", Var("x", TensorType((1, 3, 2, 2), "float32")), kernel=(1, 1))
