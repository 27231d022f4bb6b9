"""The bound of a kernel: below the cycles of every tiling, and not far below those of the best."""

from __future__ import annotations

import random

import pytest
from hypothesis import example, given, settings
from weft.compiler.targets.accel.cost.space import lower_bound, orders_of, space
from weft.compiler.targets.accel.link.alone import kernel_program
from weft.compiler.targets.accel.operators.lower import lower_function
from weft.compiler.targets.accel.schedule.tiling import Problem
from weft.compiler.targets.errors import CompileError
from weft.hw.config import PYNQ, TINY, CoreConfig
from weft.hw.dram_rate import DramRate
from weft.sim.timing import program_cycles

from tests.effort import few

from ..kernels import CONFIGS
from ..operators.test_empty_matrices import sparse
from ..test_kernels import Case, cases

SLOW, FAST = DramRate(bytes_per_cycle=2), DramRate(latency=20, bytes_per_cycle=8)


def costs(problem: Problem, count: int, seed: int = 0) -> list[int]:
    """Of the cheapest by the estimate, and of some at random."""
    points = space(problem)
    chosen = [*points[:count], *random.Random(seed).sample(points, min(count, len(points)))]
    found = []
    for each in chosen:
        try:
            program, end = kernel_program(problem.kernel, problem.config, problem.rate, each.tiling)
        except CompileError:
            continue
        found.append(program_cycles(problem.config, problem.rate, program, end))
    return found


WIDE_OUT = next(each for each in CONFIGS if each.block_out > each.block_in)
EMPTY_MATRICES = Case("conv", WIDE_OUT, batch=1, channels=1, filters=WIDE_OUT.block_out + 1, size=(7, 14),
                      kernel=(3, 2), pads=(0, 0, 0, 0))  # fmt: skip


@settings(max_examples=25)
@given(case=cases())
@example(case=EMPTY_MATRICES)  # some weights of the last filter, alone in its matrices, are zero
def test_no_tiling_is_below_the_bound(case: Case) -> None:
    rate = SLOW if case.seed % 2 else FAST
    problem = Problem(case.config, lower_function(case.function()), 2, rate=rate)
    assert all(each >= lower_bound(problem) for each in costs(problem, 2, case.seed))


@pytest.mark.parametrize("share", [0.1, 0.4])
def test_the_bound_counts_the_weights_that_are_loaded(share: float) -> None:
    """Few pixels and a slow bus: weights take most of the time, and matrices of zeros are not read."""
    function = sparse(PYNQ, 1, share, channels=384, filters=384, size=(2, 2), empty_groups=False)
    problem = Problem(PYNQ, lower_function(function), 2, rate=SLOW)
    best, bound = min(costs(problem, 2)), lower_bound(problem)
    assert bound <= best <= 1.2 * bound


LARGE = (
    ("conv", (28, 28), (3, 3), (1, 1)),
    ("depthwise", (28, 28), (3, 3), (2, 2)),
    ("conv", (42, 42), (1, 1), (3, 2)),
    ("conv", (56, 56), (1, 1), (2, 2)),
    ("conv", (28, 28), (3, 3), (2, 2)),
    ("residual", (28, 28), (1, 1), (1, 1)),
    ("max_pool", (28, 28), (2, 2), (2, 2)),
    ("add", (28, 28), (1, 1), (1, 1)),
)


@pytest.mark.parametrize(("core", "rate"), [(PYNQ, SLOW), (TINY, FAST)], ids=["slow", "fast"])
@pytest.mark.parametrize(("kind", "size", "kernel", "strides"), few(LARGE, 3))
def test_the_bound_is_close(
    kind: str, size: tuple[int, int], kernel: tuple[int, int], strides: tuple[int, int], core: CoreConfig,
    rate: DramRate,
) -> None:  # fmt: skip
    pad = kernel[0] // 2 if kind != "max_pool" else 0
    case = Case(kind, core, channels=32, filters=32, size=size, kernel=kernel, strides=strides, pads=(pad,) * 4)
    problem = Problem(core, lower_function(case.function()), 2, rate=rate)
    best, bound = min(costs(problem, 1)), lower_bound(problem)
    assert bound <= best <= 1.6 * bound


@pytest.mark.parametrize(
    ("several", "orders"),
    [
        ((True, True, True), ["cyx", "yxc", "cxy", "xyc", "ycx", "xcy"]),
        ((True, True, False), ["cyx", "yxc"]),
        ((True, False, True), ["cyx", "yxc"]),
        ((False, True, True), ["cyx", "cxy"]),
        ((False, False, False), ["cyx"]),
    ],
)
def test_orders_differ_where_there_are_several_tiles(several: tuple[bool, bool, bool], orders: list[str]) -> None:
    assert orders_of(*several) == orders
