"""Depthwise layers on both engines, and convolutions in groups within channel blocks: the integers are NumPy's."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from weft.compiler.graph import Function
from weft.compiler.model import CompiledModel
from weft.compiler.operators.numerics import output_size
from weft.compiler.targets.accel.link.depthwise_split import array_groups, split
from weft.compiler.targets.accel.operators import packed_layout
from weft.compiler.targets.accel.operators.lower import lower_function
from weft.hw.config import PYNQ, TINY, CoreConfig
from weft.hw.dram_rate import USUAL_RATE
from weft.hw.isa import Gemm, Store, Vector, VectorOp
from weft.hw.programs import disassemble

from ..kernels import CONFIGS, Build, check, compile_function, program_of

SQUARE = (
    TINY,
    replace(TINY, batch=2),
    replace(TINY, acc_banks=1),
    replace(TINY, block_in=8, block_out=8, bus_bits=128),
)


@dataclass(frozen=True)
class Case:
    """A depthwise layer, or one in groups of ``group`` channels."""

    config: CoreConfig = TINY
    group: int = 0
    batch: int = 1
    channels: int = 16
    size: tuple[int, int] = (9, 9)
    kernel: tuple[int, int] = (3, 3)
    strides: tuple[int, int] = (1, 1)
    dilations: tuple[int, int] = (1, 1)
    pads: tuple[int, int, int, int] = (1, 1, 1, 1)
    residual: bool = False
    seed: int = 0

    def function(self) -> Function:
        build = Build(self.config, self.seed)
        channels = -(-self.channels // self.group) * self.group if self.group else self.channels
        x = build.input(self.batch, channels, *self.size)
        window = {"strides": self.strides, "dilations": self.dilations, "pads": self.pads, "pad_value": 3}
        if self.group:
            acc = build.grouped(x, channels, self.group, self.kernel, **window)
        else:
            acc = build.depthwise(x, channels, self.kernel, **window)
        spread = 74 * 74 * (max(1, self.group) * self.kernel[0] * self.kernel[1]) ** 0.5
        if not self.residual:
            return build.function(build.requantise(acc, channels, spread))
        wide = build.requantise(acc, channels, spread, zero_point=0, low=-200, high=190, left_shift=9, out="int32")
        both = build.op("multiply_accumulate", wide, build.like(acc), weight=-700)
        return build.function(build.requantise(both, channels, 150_000))


@st.composite
def cases(draw: st.DrawFn) -> Case:
    pair = st.integers(1, 3)
    case = Case(
        config=draw(st.sampled_from(SQUARE)),
        group=draw(st.sampled_from((0, 0, 0, 1, 2, 4))),
        batch=draw(st.integers(1, 3)),
        channels=draw(st.integers(1, 60)),
        size=draw(st.tuples(st.integers(1, 20), st.integers(1, 20))),
        kernel=draw(st.tuples(pair, pair)),
        strides=draw(st.tuples(pair, pair)),
        dilations=draw(st.tuples(st.integers(1, 2), st.integers(1, 2))),
        pads=draw(st.tuples(*[st.integers(0, 3)] * 4)),
        residual=draw(st.booleans()),
        seed=draw(st.integers(0, 1000)),
    )
    fits = [output_size(case.size[axis], case.kernel[axis], case.strides[axis], case.pads[axis], case.pads[axis + 2],
                        case.dilations[axis]) for axis in (0, 1)]  # fmt: skip
    grown = 3 * max(0, 1 - min(fits))  # the largest stride for every output that is missing
    return replace(case, size=(case.size[0] + grown, case.size[1] + grown))


@given(cases(), st.integers(1, 3))
@settings(max_examples=15)
def test_a_layer_of_any_shape_equals_numpy(case: Case, threads: int) -> None:
    check(case.function(), case.config, threads, case.seed)


@pytest.mark.long
@given(cases(), st.integers(1, 3))
@settings(max_examples=1000)
def test_many_layers_of_any_shape_equal_numpy(case: Case, threads: int) -> None:
    check(case.function(), case.config, threads, case.seed)


def engines(model: CompiledModel) -> set[str]:
    """Which engines multiply in a program."""
    program = program_of(model).program
    found = set()
    for instruction in disassemble(model.config, program):
        if isinstance(instruction, Gemm):
            found.add("array")
        if isinstance(instruction, Vector) and instruction.op is VectorOp.MAC:
            found.add("vector")
    return found


EDGES = {
    "both engines": (Case(channels=40), {"array", "vector"}),
    "three batch groups": (Case(channels=40, batch=3), {"array", "vector"}),
    "strides": (Case(channels=40, size=(14, 14), strides=(2, 2)), {"array", "vector"}),
    "a residual beside it": (Case(channels=40, residual=True), {"array", "vector"}),
    "an even share": (Case(config=replace(PYNQ, depthwise=0), channels=32, size=(20, 20)), {"array", "vector"}),
    "one channel group": (Case(config=PYNQ, channels=16, size=(14, 14)), {"array"}),
    "no faster than memory": (Case(config=PYNQ, channels=40, kernel=(1, 1), pads=(0, 0, 0, 0)), {"vector"}),
    "no diagonal": (Case(config=CONFIGS[2], channels=40), {"vector"}),
    "no diagonal, more rows": (Case(config=CONFIGS[3], channels=40), {"vector"}),
    "groups within blocks": (Case(group=4, channels=40), {"array"}),
}


@pytest.mark.parametrize("name", EDGES)
def test_the_engines_that_a_layer_takes(name: str) -> None:
    case, wanted = EDGES[name]
    assert engines(check(case.function(), case.config)) == wanted


def test_scratchpads_that_cannot_be_shared_leave_the_layer_to_the_vector_engine() -> None:
    config = replace(TINY, acc_depth=32, acc_banks=8)
    assert engines(check(Case(config=config, channels=16, size=(4, 4), kernel=(2, 2)).function(), config)) == {"vector"}


@pytest.mark.parametrize(
    ("channels", "size", "stride", "count"),
    [
        (32, 112, 1, 1),  # nine micro-ops for each entry of the array, ten of the vector engine, and one more for each
        (144, 28, 1, 5),
        (576, 14, 1, 20),
        (16, 14, 1, 0),  # the first products wait for their matrices: alone 2,814 cycles, the vector engine 2,541
        (64, 112, 2, 4),  # bound by memory: the array takes larger tiles, whose borders overlap less
        (512, 14, 2, 0),  # bound by memory: no matrices beside the data
    ],
)
def test_the_share_follows_from_the_work(channels: int, size: int, stride: int, count: int) -> None:
    case = Case(config=PYNQ, channels=channels, size=(size, size), strides=(stride, stride))
    function = case.function()
    assert array_groups(PYNQ, USUAL_RATE, function, lower_function(function), 2) == count


def test_parts_know_where_they_begin() -> None:
    case = Case(config=PYNQ, channels=64, batch=2)
    function = case.function()
    first, second = split(PYNQ, USUAL_RATE, function, lower_function(function), 2)
    shape = function.params[0].type.shape
    group = 9 * 9 * 16
    assert [part.function.params[0].type.shape[1] for part in first.slices] == [2, 2]
    assert [part.shift(shape) for part in first.slices] == [2 * group, 0]
    assert [part.shift(shape) for part in second.slices] == [6 * group, 4 * group]
    assert second.whole.shift(shape) == 4 * group


def test_tiles_of_both_parts_are_numbered() -> None:
    step = program_of(compile_function(Case(channels=40).function(), TINY))
    stored = [
        int(tile)
        for instruction, tile in zip(disassemble(TINY, step.program), step.tile_of, strict=True)
        if isinstance(instruction, Store)
    ]
    assert len(set(stored)) == len(stored) > 2


def test_weights_of_groups_lie_on_the_diagonal() -> None:
    blocks = packed_layout.Blocks(1, 4, 4)
    w = np.arange(1, 13, dtype=np.int8).reshape(6, 2, 1, 1)
    packed = packed_layout.pack_grouped_weights(w, blocks)
    assert packed.shape == (2, 1, 1, 4, 4)
    assert packed[0, 0, 0].tolist() == [[1, 2, 0, 0], [3, 4, 0, 0], [0, 0, 5, 6], [0, 0, 7, 8]]
    assert packed[1, 0, 0].tolist() == [[9, 10, 0, 0], [11, 12, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]]
    assert packed_layout.groups_fit_blocks(3, 6, 2, blocks)
    assert not packed_layout.groups_fit_blocks(3, 12, 2, blocks)
    assert not packed_layout.groups_fit_blocks(2, 6, 3, blocks)
    assert not packed_layout.groups_fit_blocks(3, 6, 2, packed_layout.Blocks(1, 4, 8))
