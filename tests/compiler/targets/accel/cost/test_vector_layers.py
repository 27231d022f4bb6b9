"""Layers of the vector engine alone on a core of small scratchpads: loads come while it works on what came before."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from weft.compiler.targets.accel.cost.tile_costs import tilings
from weft.compiler.targets.accel.link.alone import kernel_program
from weft.compiler.targets.accel.operators.lower import Kernel, lower_function
from weft.compiler.targets.accel.schedule.tiling import Problem
from weft.hw.config import TINY
from weft.hw.dram_rate import DramRate
from weft.sim.timing import program_cycles

from ..kernels import Build, check
from ..test_kernels import Case

RATE = DramRate.of(TINY)
CASES = [
    Case(kind, TINY, channels=channels, size=size)
    for kind in ("add", "mul") for channels, size in ((24, (1, 400)), (13, (1, 1001)), (37, (29, 31)), (16, (32, 32)))
]  # fmt: skip


def cycles(kernel: Kernel, problem: Problem) -> int:
    """Of the tiling that is ranked first."""
    return program_cycles(TINY, RATE, *kernel_program(kernel, TINY, RATE, tilings(problem)[0]))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_sums_and_products_take_little_more_than_the_lanes_need(case: Case) -> None:
    kernel = lower_function(case.function())
    problem = Problem(TINY, kernel, 2, rate=RATE)
    outer, groups, height, width = problem.output
    least = outer * groups * height * width * problem.vector_stages + 2 * RATE.latency
    assert cycles(kernel, problem) <= 1.2 * least


@pytest.mark.parametrize("size", [(32, 32), (1, 400)])
def test_one_operation_for_each_entry_does_not_wait_for_stores(size: tuple[int, int]) -> None:
    kernel = lower_function(Case("requantise", TINY, channels=16, size=size).function())
    problem = Problem(TINY, kernel, 2, rate=RATE)
    outer, groups, height, width = problem.output
    assert cycles(kernel, problem) <= 2.2 * outer * groups * height * width + 2 * RATE.latency


def test_tiles_leave_results_as_many_places_as_stores_are_late() -> None:
    kernel = lower_function(Case("requantise", TINY, channels=24, size=(1, 400)).function())
    problem = Problem(TINY, kernel, 2, rate=RATE)
    best = tilings(problem)[0]
    wide = replace(best, columns=20)  # three places in place of four
    took = [program_cycles(TINY, RATE, *kernel_program(kernel, TINY, RATE, each)) for each in (best, wide)]
    assert took[0] < 0.95 * took[1]


def test_a_product_is_written_over_its_operands_which_lie_in_different_banks() -> None:
    kernel = lower_function(Case("mul", TINY, channels=24, size=(1, 400)).function())
    assert dict(kernel.stages.in_place)["product"] == "scaled"
    assert Problem(TINY, kernel, 1).vector_buffers == 3


@pytest.mark.parametrize("kind", ["add", "mul", "gate", "shifted", "requantise"])
@pytest.mark.parametrize("threads", [1, 2])
def test_what_is_computed_in_place_has_the_integers_of_the_graph(kind: str, threads: int) -> None:
    check(Case(kind, TINY, channels=13, size=(5, 37)).function(), TINY, threads)


@pytest.mark.parametrize("seed", range(30))
def test_what_several_stages_read_is_not_written_over(seed: int) -> None:
    random, build = np.random.default_rng(seed), Build(TINY)
    found = [build.op("subtract_immediate", build.input(1, 8, 3, 5), value=3)]
    for number in range(7):
        one, other = (found[place] for place in random.integers(max(0, len(found) - 3), len(found), 2))
        match random.integers(4):
            case 0:
                found.append(build.op("maximum_immediate", one, value=number))
            case 1:
                found.append(build.op("multiply_immediate", one, weight=number - 3))
            case 2:
                found.append(build.op("add", one, other))
            case _:
                found.append(build.op("multiply_accumulate", one, other, weight=2))
    check(build.function(build.requantise(found[-1], 8, 3_000)), TINY)
