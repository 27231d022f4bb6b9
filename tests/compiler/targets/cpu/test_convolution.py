"""Convolutions in register tiles beyond the plain ones: grouped, and rows that are no multiple of a tile."""

from __future__ import annotations

import numpy as np
import pytest
import weft
from hypothesis import given, settings
from hypothesis import strategies as st
from weft.compiler.graph import Call, Constant, Expr, TensorType, Var, call, evaluate
from weft.compiler.graph.dtypes import numpy_dtype
from weft.compiler.targets.cpu.convolution import CpuConvolutions
from weft.compiler.targets.cpu.processor import host_target, named_target
from weft.compiler.targets.cpu.products import choose_blocking
from weft.compiler.targets.cpu.tiles import channels_together, convolution_tile, grouped_tile, pieces, rated_tiles
from weft.compiler.targets.loops.convolution import data_block, result_block
from weft.compiler.targets.loops.convolution_sums import whole_blocks
from weft.compiler.targets.loops.kernels import Tile
from weft.compiler.targets.loops.layouts import PREFERRED_BLOCKS

from .programs import compiled
from .test_link import GENERATOR, bytes_, check, floats, kinds, module_of


def requantised(value: Expr) -> Call:
    count = value.shape[1]
    bias, multiplier = (Constant(GENERATOR.integers(0, limit, count, "int32")) for limit in (1000, 1 << 23))
    return call("requantise", value, bias, multiplier, Constant(GENERATOR.integers(28, 36, count, "int32")))


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_grouped_convolutions(data: st.DataObject) -> None:
    """Groups of few channels, several of which lie in one block, and of many; in floats and in integers."""
    draw = data.draw
    groups = draw(st.sampled_from([2, 3, 4, 8]))
    taken, made = draw(st.sampled_from([(2, 2), (4, 4), (8, 8), (16, 16), (8, 16), (32, 8), (12, 24), (3, 3), (1, 2)]))
    kernel = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    attrs = {
        "groups": groups,
        "strides": (draw(st.integers(1, 2)), draw(st.integers(1, 2))),
        "pads": tuple(draw(st.integers(0, 2)) for _ in range(4)),
    }
    size = draw(st.integers(3, 6)), draw(st.integers(3, 19))
    integer = draw(st.booleans())
    x = Var("x", TensorType((draw(st.integers(1, 2)), 8, *size), "int8" if integer else "float32"))
    if integer:
        image = requantised(call("conv2d", x, bytes_(groups * taken, 8, 1, 1)))
        value: Expr = requantised(call("conv2d", image, bytes_(groups * made, taken, *kernel), pad_value=5, **attrs))
    else:
        image = call("nn.conv2d", x, floats(groups * taken, 8, 1, 1))
        value = call("nn.conv2d", image, floats(groups * made, taken, *kernel), **attrs)
        value = call("nn.clip", call("nn.add", value, floats(1, groups * made, 1, 1)), low=0.0)
    check(module_of(value, params=(x,)), draw(st.sampled_from([1, 2])))


@pytest.mark.parametrize("integer", [False, True])
@pytest.mark.parametrize(("channels", "groups"), [(128, 32), (64, 8), (32, 2), (96, 4), (24, 3)])
def test_grouped_convolutions_have_tiles(channels: int, groups: int, integer: bool) -> None:
    x = Var("x", TensorType((1, channels, 4, 9), "int8" if integer else "float32"))
    make = bytes_ if integer else floats
    value = call("conv2d" if integer else "nn.conv2d", x, make(channels, channels // groups, 3, 3), groups=groups)
    assert "convolution" in kinds(check(module_of(value, params=(x,))))


@settings(max_examples=20, deadline=None)
@given(st.data())
def test_volumes(data: st.DataObject) -> None:
    """Two in a row, with a bias and a residual between volumes."""
    draw = data.draw
    groups = draw(st.sampled_from([1, 1, 2, 4]))
    channels, made = groups * draw(st.sampled_from([1, 4, 8, 16])), groups * draw(st.sampled_from([3, 4, 16]))
    size, kernel = (tuple(draw(st.integers(least, 5)) for _ in range(3)) for least in (3, 1))
    attrs = {
        "groups": groups, "strides": tuple(draw(st.integers(1, 2)) for _ in range(3)),
        "pads": tuple(draw(st.integers(0, 2)) for _ in range(6)),
        "dilations": tuple(draw(st.integers(1, 2)) for _ in range(3)),
    }  # fmt: skip
    shape = [n + attrs["pads"][a] + attrs["pads"][3 + a] for a, n in enumerate(size)]
    if any((k - 1) * d >= n for k, d, n in zip(kernel, attrs["dilations"], shape, strict=True)):
        return
    x = Var("x", TensorType((draw(st.integers(1, 2)), channels, *size), "float32"))
    first = call("nn.conv3d", x, floats(made, channels // groups, *kernel), **attrs)
    first = call("nn.clip", call("nn.add", first, floats(1, made, 1, 1, 1)), low=0.0)
    second = call("nn.conv3d", first, floats(made, made, 1, 1, 3), pads=(0, 0, 1, 0, 0, 1))
    check(module_of(call("nn.add", second, first), params=(x,)), draw(st.sampled_from([1, 2])), 2e-5)


def test_volumes_have_tiles() -> None:
    x = Var("x", TensorType((1, 16, 3, 4, 9), "float32"))
    value = call("nn.conv3d", x, floats(32, 16, 3, 3, 3), pads=(1,) * 6)
    assert "convolution" in kinds(check(module_of(value, params=(x,))))


@settings(max_examples=15, deadline=None)
@given(st.data())
def test_volumes_of_bytes(data: st.DataObject) -> None:
    """Requantised behind each other; channels in groups, or each by itself; what surrounds them is a zero point."""
    draw = data.draw
    groups, taken, made = draw(st.sampled_from([(1, 3, 16), (1, 16, 8), (2, 16, 16), (4, 4, 4), (16, 1, 1), (1, 8, 5)]))
    size, kernel = (tuple(draw(st.integers(least, 4)) for _ in range(3)) for least in (4, 1))
    attrs = {
        "groups": groups, "strides": tuple(draw(st.integers(1, 2)) for _ in range(3)),
        "pads": tuple(draw(st.integers(0, 2)) for _ in range(6)), "pad_value": draw(st.integers(-128, 127)),
    }  # fmt: skip
    x = Var("x", TensorType((draw(st.integers(1, 2)), 8, *size), "int8"))
    volume = requantised(call("conv3d", x, bytes_(groups * taken, 8, 1, 1, 1)))
    if draw(st.booleans()):
        window = {"kernel": (2, 1, 3), "strides": (1, 1, 1), "pads": (1, 0, 1, 0, 0, 2), "dilations": (1, 1, 1)}
        volume = call("max_pool", volume, **window)
    value = requantised(call("conv3d", volume, bytes_(groups * made, taken, *kernel), **attrs))
    image = call("reshape", value, shape=(*value.shape[:2], value.shape[2] * value.shape[3], value.shape[4]))
    doubled = call("multiply_accumulate", call("multiply_immediate", image, weight=2), image, weight=3)
    check(
        module_of(call("reshape", requantised(doubled), shape=value.shape), params=(x,)), draw(st.sampled_from([1, 2]))
    )


def test_nothing_pads_a_volume_before_its_convolution() -> None:
    """Its producer writes into the inside of a halo: between convolutions, a pooling and one of each channel."""
    x = Var("x", TensorType((1, 16, 4, 5, 7), "float32"))
    first = call("nn.conv3d", x, floats(16, 16, 1, 1, 1))
    second = call("nn.conv3d", first, floats(16, 1, 3, 3, 3), pads=(1, 1, 2, 1, 0, 1), groups=16)
    pooling = {"kernel": (2, 3, 2), "strides": (1, 2, 1), "dilations": (1, 1, 1), "pads": (0, 1, 1, 1, 0, 0)}
    pooled = call("nn.max_pool", second, **pooling)
    third = call("nn.conv3d", pooled, floats(32, 16, 2, 3, 3), pads=(1, 0, 1, 0, 2, 1))
    fourth = call(
        "nn.conv3d", pooled, floats(16, 16, 1, 2, 2), pads=(0, 1, 0, 0, 0, 0)
    )  # the same halo, another padding
    model = check(module_of(third, fourth, params=(x,)))
    assert sorted(kinds(model)) == ["blocked"] * 2 + ["convert"] * 3 + ["convolution"] * 3


def test_volumes_on_every_processor(level: str) -> None:
    x = Var("x", TensorType((1, 8, 3, 4, 9), "int8"))
    first = requantised(call("conv3d", x, bytes_(16, 8, 3, 3, 3), pads=(1,) * 6, pad_value=4))
    second = requantised(call("conv3d", first, bytes_(16, 1, 3, 3, 3), pads=(1,) * 6, pad_value=-3, groups=16))
    assert kinds(check(module_of(second, params=(x,)))).count("convolution") == 1


@pytest.mark.parametrize("integer", [False, True])
@pytest.mark.parametrize("group", [4, 8])
def test_groups_on_every_processor(level: str, group: int, integer: bool) -> None:
    x = Var("x", TensorType((1, 32, 4, 9), "int8" if integer else "float32"))
    make = bytes_ if integer else floats
    value = call("conv2d" if integer else "nn.conv2d", x, make(32, group, 3, 3), groups=32 // group)
    assert "convolution" in kinds(check(module_of(value, params=(x,))))


@pytest.mark.parametrize(("taken", "made", "groups"), [(20, 12, 3), (20, 20, 2), (36, 8, 3)])
def test_no_block_ends_beyond_its_group(taken: int, made: int, groups: int, level: str) -> None:
    """Of channels that whole registers do not divide."""
    x = Var("x", TensorType((1, groups * taken, 3, 5), "float32"))
    value = call("nn.conv2d", x, floats(groups * made, taken, 2, 2), groups=groups)
    assert "convolution" in kinds(check(module_of(value, params=(x,))))


@pytest.mark.parametrize(
    ("taken", "made", "groups", "blocks"),
    [(4, 4, 32, (16, 16)), (2, 2, 4, (8, 8)), (16, 16, 4, (16, 16)), (8, 16, 4, (8, 16)), (24, 24, 4, (8, 8)),
     (3, 2, 2, None), (1, 2, 4, None), (4, 8, 2, (4, 8))],
)  # fmt: skip
def test_blocks_hold_whole_groups_or_parts_of_one(
    taken: int, made: int, groups: int, blocks: tuple[int, int] | None
) -> None:
    x = Var("x", TensorType((1, taken * groups, 4, 4), "float32"))
    value = call("nn.conv2d", x, floats(made * groups, taken, 1, 1), groups=groups)
    assert result_block(value) == (blocks[1] if blocks else 0)
    if blocks:
        assert data_block(value, 0) == blocks[0]


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_channels_that_fill_no_block(data: st.DataObject) -> None:
    """Long kernels and large strides over few channels, and odd counts of channels made and taken, with constants of
    each channel, residual sums and poolings behind; in floats and in integers."""
    draw = data.draw
    integer = draw(st.booleans())
    taken, middle, made = (draw(st.sampled_from(counts)) for counts in ((1, 2, 3, 17), (3, 13, 19, 37, 67), (1, 7, 33)))
    kernel, stride, width = draw(st.integers(1, 40)), draw(st.sampled_from([1, 3, 16])), draw(st.integers(40, 90))
    pads = (0, draw(st.integers(0, 3)), 0, draw(st.integers(0, 3)))
    name, make = ("conv2d", bytes_) if integer else ("nn.conv2d", floats)
    x = Var("x", TensorType((draw(st.integers(1, 2)), taken, 1, width), "int8" if integer else "float32"))
    value: Expr = call(name, x, make(middle, taken, 1, kernel), strides=(1, stride), pads=pads)
    value = requantised(value) if integer else call("nn.add", value, floats(1, middle, 1, 1))
    if draw(st.booleans()) and not integer:
        size = floats(value.shape[3])
        value = call("nn.divide", call("nn.add", value, size), call("nn.clip", floats(1, middle, 1, 1), low=0.5))
    if draw(st.booleans()):
        window = {"kernel": (1, 2), "strides": (1, 1), "pads": (0, 1, 0, 0), "dilations": (1, 1)}
        value = call("max_pool" if integer else "nn.max_pool", value, **window)
    last: Expr = call(name, value, make(made, middle, 1, 1))
    if not integer and draw(st.booleans()):
        again = call(name, value, make(middle, middle, 1, 3), pads=(0, 1, 0, 1))
        residual = value if draw(st.booleans()) else call("nn.clip", Var("y", again.tensor_type), low=0.0)
        params = (x,) if residual is value else (x, residual.args[0])
        check(module_of(last, call("nn.add", again, residual), params=params), draw(st.sampled_from([1, 2])), 2e-5)
        return
    check(module_of(requantised(last) if integer else last, params=(x,)), draw(st.sampled_from([1, 2])), 2e-5)


@pytest.mark.parametrize("channels", [58, 67, 116])
def test_quotients_by_what_is_brought_into_blocks(channels: int) -> None:
    """Channels that nobody uses were 0 there, and an infinity behind it, of which the next convolution made nan."""
    x, y = (Var(name, TensorType((1, count, 3, 5), "float32")) for name, count in (("x", 8), ("y", channels)))
    quotient = call("nn.divide", call("nn.conv2d", x, floats(channels, 8, 1, 1)), y)
    check(module_of(call("nn.conv2d", quotient, floats(4, channels, 1, 1)), params=(x, y)), 1, 2e-5)


@pytest.mark.parametrize("channels", [58, 67, 116, 129])
@pytest.mark.parametrize(("made", "kernel"), [(4, (1, 1)), (16, (3, 3)), (1, (1, 3))])
def test_infinities_in_the_last_channel(channels: int, made: int, kernel: tuple[int, int]) -> None:
    """Channels that fill a block repeat the last one: 0 times an infinity there was nan in every channel."""
    x = Var("x", TensorType((1, 8, 4, 9), "float32"))
    pads = tuple(size // 2 for size in kernel) * 2
    shapes = (channels, 8, 1, 1), (made, channels, *kernel)
    weights = [GENERATOR.integers(1, 9, shape).astype(np.float32) for shape in shapes]
    weights[1][::2, -1] *= -1
    weights[0][-1, 0] = 3e38
    before = call("nn.conv2d", x, Constant(weights[0]))
    module = module_of(call("nn.conv2d", before, Constant(weights[1]), pads=pads), params=(x,))
    image = GENERATOR.integers(0, 9, x.type.shape).astype(np.float32)
    image[:, 0] = 0
    image[0, 0, 1, 4] = 9
    expected, found = (next(iter(run({"x": image}).values())) for run in (
        lambda values: evaluate(module, values), weft.load(compiled(module)).run))  # fmt: skip
    assert np.isinf(expected).any()
    assert np.isfinite(expected).any()
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8"])
def test_weights_of_whole_blocks(dtype: str) -> None:
    """The last channel and those that repeat it have its weight together, to the bit; bytes that nobody uses have 0."""
    for channels, wanted in ((1, 4), (3, 4), (58, 64), (67, 72), (257, 272), (16, 16)):
        weights = GENERATOR.integers(1, 127, (5, channels, 1, 3)).astype(numpy_dtype(dtype))
        wide = whole_blocks(weights, wanted)
        assert wide.shape == (5, wanted, 1, 3)
        assert wide.dtype == weights.dtype
        np.testing.assert_array_equal(wide[:, : channels - 1], weights[:, :-1])
        last = wide[:, channels - 1 :].astype(np.float64)
        assert (last[:, 1:] == 0).all() if dtype == "int8" else (last > 0).all()
        np.testing.assert_array_equal(last.sum(1), weights[:, -1].astype(np.float64))


@pytest.mark.parametrize("processor", ["x86-64-v2", "x86-64-v3", "x86-64-v4", "armv7a", "aarch64"])
def test_any_number_of_channels_fills_its_tiles(processor: str) -> None:
    """A channel takes at most 1.65 times as long as one of 256; 116 took more than twice as long in blocks of four."""
    target = named_target(processor)

    def cycles(channels: int) -> float:
        block = channels_together(channels, target)
        whole = -(-channels // block) * block
        return whole / channels * min(cost for cost, _ in rated_tiles(56, whole, block, target))

    assert all(cycles(channels) <= 1.65 * cycles(256) for channels in range(36, 400))


@pytest.mark.parametrize("width", [12, 14, 28, 56, 112])
def test_sums_of_floats_leave_time_for_late_loads(width: int) -> None:
    """With AVX2 tiles of four pixels had eight sums, which is just enough. Integers keep such tiles."""
    target = named_target("x86-64-v3")
    schedule = CpuConvolutions(target)

    def sums(tile: Tile) -> int:
        return tile.rows * len(pieces(tile.lanes, target.float_lanes))

    assert sums(schedule.tile(width, 64, 16, "floats")) >= 10
    assert sums(schedule.tile(28, 64, 16, "words")) == sums(schedule.tile(28, 64, 16, "bytes")) == 8
    assert sums(choose_blocking((width * width, 256), 256, (True, True), True, target).tile) >= 10
    assert schedule.tile(4, 24, 8, "bytes").rows == 4 > schedule.tile(4, 24, 8, "words").rows  # a register is kept


@pytest.mark.parametrize("made", [3, 7, 21, 67, 127, 257, 402])
def test_odd_counts_of_channels_have_whole_registers(made: int) -> None:
    value = call("nn.conv2d", Var("x", TensorType((1, 1, 1, 900), "float32")), floats(made, 1, 1, 400))
    block = result_block(value)
    assert block in PREFERRED_BLOCKS
    assert 3 * (-made % block) <= made


@pytest.mark.parametrize("width", [13, 17, 31, 37])
def test_a_row_that_is_no_multiple_of_the_tile(width: int) -> None:
    x = Var("x", TensorType((1, 16, 3, width), "float32"))
    residual = call("nn.conv2d", x, floats(32, 16, 1, 1))
    value = call("nn.add", call("nn.conv2d", residual, floats(32, 32, 1, 3), pads=(0, 1, 0, 1)), residual)
    check(module_of(value, params=(x,)), threads=2)
    assert convolution_tile(width, 32, 16, host_target()).rows > 1


@given(st.integers(1, 300), st.sampled_from([4, 8, 16]))
@pytest.mark.parametrize("processor", ["host", "armv7a", "aarch64"])
def test_tiles_fit_the_row(processor: str, width: int, block: int) -> None:
    target = named_target(processor)
    for tile in (convolution_tile(width, 4 * block, block, target), grouped_tile(width, block, target)):
        assert 1 <= tile.rows <= width
        assert tile.lanes % block == 0


@given(st.integers(1, 300), st.sampled_from([4, 8, 16]), st.integers(1, 40))
@pytest.mark.parametrize("processor", ["host", "armv7a", "aarch64"])
def test_sums_weights_and_a_value_have_registers(processor: str, width: int, block: int, blocks: int) -> None:
    """Else a step writes sums to the stack and reads them again: 7 pixels x 64 channels did with 32 registers."""
    target = named_target(processor)
    tile = convolution_tile(width, blocks * block, block, target)
    weights = len(pieces(tile.lanes, target.float_lanes))
    assert tile.rows * weights + weights + 1 <= target.registers
