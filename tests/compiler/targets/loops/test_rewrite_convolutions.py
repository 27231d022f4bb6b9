"""Transposed and padded convolutions as plain ones: the same values, and no multiplications with what is zero."""

from __future__ import annotations

from math import prod

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st
from weft.compiler.graph import Call, Constant, Expr, TensorType, Var, call, calls
from weft.compiler.targets.loops.prepare import prepare
from weft.compiler.targets.loops.rewrite_convolutions import as_plain_images

from ..cpu.test_link import bytes_, check, floats, kinds, module_of


def transposed(x: Expr, weights: Constant, factors: tuple[int, int], pads: tuple[int, ...], groups: int = 1) -> Expr:
    """As the front end writes it."""
    return call("nn.conv2d", call("pad", call("dilate", x, factors=factors), pads=pads), weights, groups=groups)


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_transposed_convolutions(data: st.DataObject) -> None:
    draw = data.draw
    groups = draw(st.sampled_from([1, 1, 2]))
    taken, made = draw(st.sampled_from([1, 3, 8])), draw(st.sampled_from([1, 4, 5]))
    size, factors, kernel = ((draw(st.integers(1, most)), draw(st.integers(1, most))) for most in (6, 3, 5))
    # As many pads as the front end gives (kernel - 1), fewer, and more.
    pads = tuple(max(0, kernel[axis % 2] - 1 + draw(st.integers(-2, 2))) for axis in range(4))
    spread = [(size[axis] - 1) * factors[axis] + 1 + pads[axis] + pads[2 + axis] for axis in (0, 1)]
    if spread[0] < kernel[0] or spread[1] < kernel[1]:
        return
    x = Var("x", TensorType((draw(st.integers(1, 2)), groups * taken, *size), "float32"))
    value = transposed(x, floats(groups * made, taken, *kernel), factors, pads, groups)
    check(module_of(call("nn.add", value, floats(1, groups * made, 1, 1)), params=(x,)), terms=1.0)


def test_one_that_doubles_an_image_multiplies_each_weight_once_a_datum() -> None:
    x = Var("x", TensorType((1, 16, 5, 7), "float32"))
    module = module_of(transposed(x, floats(8, 16, 4, 4), (2, 2), (2, 2, 2, 2)), params=(x,))
    operators = [str(node.op) for node in calls(prepare(module).main.body)]
    assert operators[0] == "nn.conv2d"
    assert "dilate" not in operators
    assert "pad" not in operators
    model = check(module)
    (layer,) = (layer for layer in model.layers if layer.kind == "convolution")
    assert layer.macs == prod((16, 8, 4, 4)) * (5 + 1) * (7 + 1)  # each phase begins or ends one pixel outside


def test_padding_becomes_the_convolution_s_own() -> None:
    x = Var("x", TensorType((1, 4, 5, 7), "float32"))
    padded = call("pad", x, pads=(0, 1, 2, 0, 3, 4))
    value = call("nn.conv2d", padded, floats(8, 4, 3, 3), pads=(1, 0, 0, 1))
    assert isinstance(value, Call)
    changed = as_plain_images(value)
    assert isinstance(changed, Call)
    assert changed.args[0] == x
    assert changed.attr("pads") == (2, 2, 3, 5)
    assert kinds(check(module_of(value, params=(x,)))).count("plain") == 0


def test_what_is_not_padded_with_zeros_or_not_around_the_image_stays() -> None:
    x = Var("x", TensorType((1, 4, 5, 7), "float32"))
    for attrs in ({"pads": (1, 1, 1, 1), "value": 2.0}, {"pads": (1, 0, 0, 1, 0, 0)}):
        padded = call("pad", x, **attrs)
        value = call("nn.conv2d", padded, floats(8, padded.shape[1], 3, 3))
        assert isinstance(value, Call)
        assert as_plain_images(value) is None
        check(module_of(value, params=(x,)))


@settings(max_examples=30, deadline=None)
@example(2, 4, 1, 1, (1, 2), True, False, 1)
@example(2, 8, 1, 1, (2, 2), True, True, 2)
@given(
    st.integers(1, 2), st.sampled_from([4, 8, 12, 16, 48]), st.integers(1, 9), st.integers(1, 9),
    st.tuples(st.integers(1, 3), st.integers(1, 3)), st.booleans(), st.booleans(), st.sampled_from([1, 2]),
)  # fmt: skip
def test_phases_are_written_where_they_belong(
    batch: int, made: int, height: int, width: int, factors: tuple[int, int], integer: bool, read: bool, threads: int
) -> None:
    """In floats and in bytes, with what is elementwise behind them, and with a reader that wants a halo."""
    channels, taken = made * prod(factors), 8
    x = Var("x", TensorType((batch, taken, height, width), "int8" if integer else "float32"))
    if integer:
        value = call("conv2d", x, bytes_(channels, taken, 1, 1))
    else:
        value = call("nn.conv2d", x, floats(channels, taken, 1, 1))
    value = call("reshape", value, shape=(batch, *factors, made, height, width))
    value = call("transpose", value, perm=(0, 3, 4, 1, 5, 2))
    value = call("reshape", value, shape=(batch, made, height * factors[0], width * factors[1]))
    if integer:
        each = (call_.astype("int32") for call_ in (np.arange(made), 2**22 + np.arange(made) * 999, np.full(made, 30)))
        value = call("requantise", value, *map(Constant, each), zero_point=3)
    else:
        value = call("nn.clip", call("nn.add", value, floats(1, made, 1, 1)), low=0.0)
    if read and integer:
        value = call("conv2d", value, bytes_(8, made, 3, 3), pads=(1, 1, 1, 1), pad_value=5)
    elif read:
        value = call("nn.conv2d", value, floats(8, made, 3, 3), pads=(1, 1, 1, 1))
    model = check(module_of(value, params=(x,)), threads, 2e-5)
    if integer and batch > 1 and height * width == 1:
        assert "product" in kinds(model)  # of a batch of rows, turned by a kernel of its own
    else:
        assert "plain" not in kinds(model)
        assert kinds(model).count("convolution") == 1 + read


@settings(max_examples=30, deadline=None)
@given(
    st.sampled_from([4, 16]), st.integers(2, 7), st.integers(2, 7), st.integers(2, 4), st.integers(0, 1),
    st.integers(0, 1), st.sampled_from(["none", "one", "concat"]), st.sampled_from([1, 2]),
)  # fmt: skip
def test_phases_of_which_a_part_is_left_out(
    made: int, height: int, width: int, kernel: int, before: int, behind: int, reader: str, threads: int
) -> None:
    """What is left out is written into the halo, which is filled afterwards."""
    x = Var("x", TensorType((1, 8, height, width), "float32"))
    pads = (kernel - 1 - before, kernel - 1 - before, kernel - 1 - behind, kernel - 1 - before)
    value = call("nn.clip", transposed(x, floats(made, 8, kernel, kernel), (2, 2), pads), low=0.0)
    if reader == "concat":
        other = call("nn.conv2d", call("nn.clip", value, high=1.0), floats(16, made, 1, 1))
        value = call("concat", value, other, axis=1)
    if reader != "none":
        value = call("nn.conv2d", value, floats(8, value.shape[1], 3, 3), pads=(1, 1, 1, 1))
    check(module_of(value, params=(x,)), threads, 2e-5)


def test_the_usual_transposed_convolutions_move_nothing() -> None:
    for kernel, pad, more in ((2, 0, 0), (3, 1, 1), (4, 1, 0)):
        x = Var("x", TensorType((1, 16, 6, 6), "float32"))
        first = call("nn.conv2d", x, floats(16, 16, 1, 1))
        before, behind = kernel - 1 - pad, kernel - 1 - pad + more
        value = transposed(first, floats(16, 16, kernel, kernel), (2, 2), (before, before, behind, behind))
        value = call("nn.conv2d", call("nn.clip", value, low=0.0), floats(16, 16, 3, 3), pads=(1, 1, 1, 1))
        assert value.shape == (1, 16, 12, 12)
        kinds_ = kinds(check(module_of(value, params=(x,)), tolerance=2e-5))
        assert kinds_.count("convolution") == 3
        assert set(kinds_) == {"convolution", "convert"}
        assert kinds_.count("convert") == 2  # of the input and the result


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_images_one_pixel_wide(data: st.DataObject) -> None:
    """Convolutions and poolings along the first axis of an image, or along two of a volume, with a bias and a residual
    sum; in groups; in floats and in integers."""
    draw = data.draw
    integer, axes, groups = draw(st.booleans()), draw(st.sampled_from([2, 2, 3])), draw(st.sampled_from([1, 1, 4]))
    prefix = "" if integer else "nn."
    x = Var("x", TensorType((draw(st.integers(1, 2)), 8, *(5,) * (axes - 2), draw(st.integers(20, 60)), 1),
                            "int8" if integer else "float32"))  # fmt: skip
    value: Expr = x
    for made in (draw(st.sampled_from([4, 16])), 8):
        kernel = (*(draw(st.integers(1, 2)) for _ in range(axes - 2)), draw(st.integers(1, 4)), 1)
        attrs = {
            "groups": groups, "strides": (*(1,) * (axes - 1), 2) if axes == 2 else (1,) * axes,
            "pads": (*(draw(st.integers(0, 2)) for _ in range(axes - 1)), 0) * 2,
            "dilations": (*(1,) * (axes - 2), draw(st.integers(1, 2)), 1),
        }  # fmt: skip
        make = bytes_ if integer else floats
        weights = make(made, value.shape[1] // groups, *kernel)
        sums = call(f"{prefix}conv{axes}d", value, weights, **attrs)
        if integer:
            parameters = (np.full(made, number, np.int32) for number in (9, 1 << 22, 30))
            value = call("requantise", sums, *(Constant(each) for each in parameters))
        else:
            biased = call("nn.add", sums, floats(1, made, *(1,) * axes))
            value = call("nn.add", call("nn.clip", biased, low=0.0), sums)
        if axes == 2 and draw(st.booleans()):
            window = {"kernel": (2, 1), "strides": (2, 1), "pads": (1, 0, 0, 0), "dilations": (1, 1)}
            value = call(f"{prefix}max_pool", value, **window)
    check(module_of(value, params=(x,)), draw(st.sampled_from([1, 2])), 2e-5)


def test_images_one_pixel_wide_are_rows() -> None:
    x = Var("x", TensorType((1, 16, 40, 1), "float32"))
    first = call("nn.conv2d", x, floats(16, 16, 5, 1), strides=(2, 1), pads=(2, 0, 1, 0))
    second = call(
        "nn.conv2d", call("nn.max_pool", call("nn.clip", first, low=0.0), kernel=(2, 1)), floats(32, 16, 3, 1)
    )
    wide = [node for node in calls(prepare(module_of(second, params=(x,))).main.body) if node.op != "reshape"]
    assert [node.shape for node in wide] == [(1, 16, 1, 20), (1, 16, 1, 20), (1, 16, 1, 19), (1, 32, 1, 17)]
    assert wide[0].attr("strides") == (1, 2)
    assert wide[0].attr("pads") == (0, 2, 0, 1)
    assert kinds(check(module_of(second, params=(x,))))[:-1] == ["convert", "convolution", "blocked", "convolution"]
