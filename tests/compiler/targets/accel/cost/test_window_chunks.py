"""Windows that the vector engine reduces in chunks: equal to NumPy whatever the chunk, near the bound, of any size."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from weft.compiler.graph import Function
from weft.compiler.targets.accel.cost.space import features, lower_bound, space
from weft.compiler.targets.accel.cost.tile_costs import estimate, tilings
from weft.compiler.targets.accel.link import compile_kernel
from weft.compiler.targets.accel.operators.lower import lower_function
from weft.compiler.targets.accel.schedule.tiling import Problem, Tiling
from weft.hw.config import PYNQ, CoreConfig
from weft.sim.timing import predict

from ..kernels import CONFIGS, Build, check, program_of

WIDE_IN = replace(PYNQ, name="1x16x8", block_out=8, depthwise=0)
WIDE_OUT = replace(PYNQ, name="1x8x16", block_in=8, depthwise=0)


def pool(
    config: CoreConfig, op: str, channels: int, size: tuple[int, int], kernel: tuple[int, int], **attrs: object
) -> Function:
    build = Build(config)
    pooled = build.op(op, build.input(1, channels, *size), kernel=kernel, **attrs)
    if op == "sum_pool":
        pooled = build.requantise(pooled, channels, 127.0 * kernel[0] * kernel[1])
    return build.function(pooled)


def problem_of(function: Function, config: CoreConfig) -> Problem:
    return Problem(config, lower_function(function), 2)


def cycles_of(function: Function, config: CoreConfig) -> tuple[int, float]:
    """Exact cycles, and the bound, of a function that equals NumPy."""
    step = program_of(check(function, config))
    cycles = predict(config, step.program, offset=step.program_offset).cycles
    assert cycles is not None
    return cycles, lower_bound(problem_of(function, config))


@pytest.mark.parametrize("config", [PYNQ, WIDE_IN, WIDE_OUT], ids=lambda config: config.name)
@pytest.mark.parametrize(
    ("op", "channels", "size"),
    [("max_pool", 64, (1, 1024)), ("sum_pool", 64, (64, 64)), ("max_pool", 20, (1000, 1)), ("sum_pool", 40, (28, 28))],
)
def test_a_reduction_of_a_picture_is_near_its_bound(
    config: CoreConfig, op: str, channels: int, size: tuple[int, int]
) -> None:
    cycles, bound = cycles_of(pool(config, op, channels, size, size), config)
    assert cycles <= 1.2 * bound, f"{cycles} cycles are {cycles / bound:.2f} times the bound"


def test_windows_side_by_side_are_not_cut_into_bursts_of_an_entry() -> None:
    cycles, bound = cycles_of(pool(PYNQ, "max_pool", 16, (40, 48), (20, 24), strides=(20, 24)), PYNQ)
    assert cycles <= 1.2 * bound


@st.composite
def cut(draw: st.DrawFn) -> tuple[Function, CoreConfig, Tiling]:
    """A pool with a long window, and one of its tilings that takes a part of it at a time."""
    config = draw(st.sampled_from(CONFIGS))
    kernel = draw(st.tuples(st.integers(1, 20), st.integers(16, 40)))
    if draw(st.booleans()):
        kernel = kernel[::-1]
    outputs = draw(st.tuples(st.integers(1, 2), st.integers(1, 2)))
    strides = tuple(draw(st.integers(1, each)) for each in kernel)
    pads = (draw(st.integers(0, kernel[0] // 2)), draw(st.integers(0, kernel[1] // 2)), 0, 0)
    axes = zip(outputs, strides, kernel, pads[:2], strict=True)
    size = tuple((many - 1) * step + each - pad for many, step, each, pad in axes)
    op, channels = draw(st.sampled_from(("max_pool", "sum_pool"))), draw(st.integers(1, 2 * config.block_in + 1))
    function = pool(config, op, channels, size, kernel, strides=strides, pads=pads)
    problem = problem_of(function, config)
    reduction = draw(st.sampled_from(problem.reductions[1:]))
    threads = draw(st.integers(1, 2))
    return function, config, Tiling(1, 1, 1, reduction, draw(st.sampled_from(("cyx", "yxc"))), 1, 1, threads)


@given(cut())
@settings(max_examples=25, deadline=None)
def test_every_chunk_gives_what_numpy_does(case: tuple[Function, CoreConfig, Tiling]) -> None:
    function, config, tiling = case
    problem = problem_of(function, config)
    if estimate(problem, tiling) is None:  # it does not fit the scratchpads
        return
    with pytest.MonkeyPatch.context() as patch:
        for chooser in ("tilings", "first_tilings"):
            patch.setattr(compile_kernel, chooser, lambda *_, **__: [tiling, *tilings(problem)])
        check(function, config, tiling.threads)


def test_short_windows_and_products_are_not_cut() -> None:
    assert problem_of(pool(PYNQ, "max_pool", 16, (9, 9), (3, 3)), PYNQ).reductions == (0,)
    build = Build(PYNQ)
    conv = build.conv(build.input(1, 64, 40, 40), 64, 16, (20, 20))
    function = build.function(build.requantise(conv, 16, 1e6))
    assert 0 not in problem_of(function, PYNQ).reductions
    assert np.all(np.array(problem_of(function, PYNQ).reductions) <= 4)


def test_a_search_sees_chunks_of_windows_as_it_does_those_of_products() -> None:
    """Every point has features, and a window that is cut in two counts two chunks, though it reduces no channels."""
    problem = problem_of(pool(PYNQ, "max_pool", 40, (1, 1000), (1, 1000)), PYNQ)
    found = {point.tiling.reduction: features(problem, point)["chunks"] for point in space(problem)}
    assert {size: found[size] for size in (250, 125)} == {250: 2, 125: 3}
    whole = problem_of(pool(PYNQ, "max_pool", 40, (1, 64), (1, 64)), PYNQ)
    assert {features(whole, point)["chunks"] for point in space(whole) if not point.tiling.reduction} == {0}
