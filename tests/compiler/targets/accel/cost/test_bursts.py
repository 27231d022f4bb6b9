"""Short bursts and late answers: what the estimate says of them beside the exact cycles of the timing model."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache

import numpy as np
import pytest
from weft.compiler.graph import Function
from weft.compiler.targets.accel.cost.bursts import answered, inputs_together, lost_to_latency, moved, places_of
from weft.compiler.targets.accel.cost.tile_costs import estimate, tilings, works_of
from weft.compiler.targets.accel.cost.tiles import Tiles
from weft.compiler.targets.accel.link.alone import Program, kernel_program
from weft.compiler.targets.accel.link.compile_kernel import attempts
from weft.compiler.targets.accel.operators.lower import lower_function
from weft.compiler.targets.accel.schedule.tiling import Problem, Tiling
from weft.compiler.targets.errors import ScratchpadFullError
from weft.hw.config import PYNQ, TINY, CoreConfig
from weft.hw.dram_rate import DramRate
from weft.sim.dram import DramModel
from weft.sim.timing import predict

from ..kernels import Build

MEMORIES = [DramRate(latency=latency, bytes_per_cycle=8) for latency in (200, 400)]
MEMORIES += [DramRate(latency=400, bytes_per_cycle=4)]


def convolution(config: CoreConfig, channels: int, filters: int, size: tuple[int, int], kernel: int = 1) -> Function:
    build = Build(config)
    pads = (kernel // 2,) * 4
    acc = build.conv(build.input(1, channels, *size), channels, filters, (kernel, kernel), pads=pads, pad_value=0)
    return build.function(build.requantise(acc, filters, 74 * 74 * (channels * kernel**2) ** 0.5))


def pool(config: CoreConfig, channels: int, size: tuple[int, int], kernel: tuple[int, int], stride: int) -> Function:
    build = Build(config)
    x = build.op("max_pool", build.input(1, channels, *size), kernel=kernel, strides=(stride, stride))
    return build.function(x)


def layers(config: CoreConfig) -> Iterator[Function]:
    """Products of a picture and of one row, and pools: the same in each run."""
    random = np.random.default_rng(5)
    for _ in range(2):
        channels, filters = (int(each) for each in 8 * random.integers(3, 12, 2))
        height, width = (int(each) for each in random.integers(1, 24, 2))
        yield convolution(config, channels, filters, (height, 4 * width))
        yield convolution(config, 8 * int(random.integers(20, 60)), filters, (1, 1))
        yield pool(config, channels // 2, (height + 6, width + 6), (3, 3), int(random.integers(1, 3)))
    yield convolution(config, 24, 32, (12, 12), 3)


@cache
def _program(function: Function, config: CoreConfig, tiling: Tiling) -> Program:
    return kernel_program(lower_function(function), config, DramRate(), tiling)


def cycles(function: Function, config: CoreConfig, tiling: Tiling, rate: DramRate) -> int:
    """Exact."""
    program, end = _program(function, config, tiling)
    dram = DramModel(latency=rate.latency, bytes_per_cycle=rate.bytes_per_cycle)
    found = predict(config, program, dram, offset=end).cycles
    assert found is not None
    return found


def chosen(function: Function, problem: Problem) -> Tiling:
    """The first of those that are tried that finds room in one piece."""
    for tiling in attempts(problem, tilings(problem)):
        try:
            _program(function, problem.config, tiling)
        except ScratchpadFullError:
            continue
        return tiling
    raise AssertionError("nothing fits")


def test_a_memory_that_is_told_costs_no_layer_much_and_is_faster_in_all() -> None:
    """Cycles of the tiling for the memory beside those of the tiling for the usual latency."""
    gains = []
    for function in layers(TINY):
        kernel = lower_function(function)
        usual = chosen(function, Problem(TINY, kernel, 2))
        for rate in MEMORIES:
            told = chosen(function, Problem(TINY, kernel, 2, rate=rate))
            gains.append(math.log(cycles(function, TINY, told, rate) / cycles(function, TINY, usual, rate)))
            assert gains[-1] < math.log(1.1), f"{rate}: {told} for {kernel.name}, usually {usual}"
    assert np.mean(gains) < math.log(0.98)


@pytest.mark.parametrize("latency", [200, 400])
def test_what_a_pool_takes_is_estimated_whatever_its_tiling(latency: int) -> None:
    """Each tile waits for its load where there are two places for them: without that, 0.25 of the exact cycles."""
    function = pool(TINY, 64, (29, 29), (3, 3), 2)
    rate = DramRate(latency=latency)
    problem = Problem(TINY, lower_function(function), 2, rate=rate)
    for groups, rows, columns in ((1, 1, 14), (1, 2, 7), (1, 3, 7), (2, 2, 4)):
        tiling = Tiling(groups, rows, columns, 0, "yxc", groups, rows, 2)
        estimated = estimate(problem, tiling)
        assert estimated is not None
        assert 0.75 < estimated / cycles(function, TINY, tiling, rate) < 1.3, tiling


def test_weights_of_few_channels_at_a_time_are_bursts_of_their_own() -> None:
    """One group of 128 for 25 groups of results: 25 bursts of 16 bytes each, of which 16 are under way."""
    function = convolution(TINY, 512, 100, (1, 1))
    rate = DramRate(latency=400)
    problem = Problem(TINY, lower_function(function), 2, rate=rate)
    apart = Tiling(25, 1, 1, 1, "cyx", 25, 1, 2)
    slots = 128 * (25 + 1) * rate.latency / TINY.read_outstanding
    assert works_of(problem, Tiles.of([apart])).traffic[0] == pytest.approx(slots, rel=0.01)
    assert cycles(function, TINY, apart, rate) == pytest.approx(slots, rel=0.1)
    best = chosen(function, problem)
    assert cycles(function, TINY, best, rate) < 0.2 * cycles(function, TINY, apart, rate)


@pytest.mark.parametrize("latency", [1, 50, 100])
def test_a_memory_no_slower_than_usual_costs_nothing_more(latency: int) -> None:
    problem = Problem(PYNQ, lower_function(convolution(PYNQ, 64, 64, (14, 14))), 2, rate=DramRate(latency=latency))
    assert np.asarray(answered(problem, np.full(3, 1e6), 8)).tolist() == [0, 0, 0]
    places, bus, work = np.arange(1, 4), np.full(3, 10.0), np.full(3, 5.0)
    assert lost_to_latency(problem, places, bus, work).tolist() == [0, 0, 0]


def test_bursts_are_of_pixels_that_lie_together_and_no_longer_than_the_core_makes_them() -> None:
    problem = Problem(PYNQ, lower_function(convolution(PYNQ, 64, 64, (14, 14))), 2)
    window = problem.kernel.window
    assert window is not None
    height, width = np.array([2, 2, 14, 14]), np.array([7, 14, 14, 7])
    together = inputs_together(problem, window, (height, width), np.full(4, 3))
    assert together.tolist() == [7, 28, 3 * 196, 7]
    _, bursts = moved(problem, 16, together, PYNQ.read_outstanding)
    assert np.asarray(bursts).tolist() == [1 / 7, 1 / 28, 1 / 32, 1 / 7]  # 64 beats of 8 bytes are 32 entries


def test_a_load_waits_for_its_place_for_the_work_and_for_its_answer() -> None:
    """In two places a load of 100 cycles, with 200 of work, comes every (400 + 100 + 200) / 2 cycles; in four, 200."""
    kernel = lower_function(pool(PYNQ, 16, (1, 64), (1, 64), 1))
    problem = Problem(PYNQ, kernel, 2, rate=DramRate(latency=400))
    bus, work = np.full(2, 100.0), np.full(2, 200.0)
    assert lost_to_latency(problem, np.array([2, 4]), bus, work).tolist() == [150, 0]
    entries, copies = np.array([100, 300, 600]), np.full(3, 2)
    assert places_of(problem, entries, copies, np.full(3, 650), vector=True).tolist() == [5, 2, 2]
    assert places_of(problem, entries, copies, np.full(3, 650), vector=False).tolist() == [8, 4, 3]
