"""Layers of the vector engine alone on a core of small scratchpads: loads come while it works on what came before."""

from __future__ import annotations

import pytest
from weft.compiler.targets.accel.cost.tile_costs import tilings
from weft.compiler.targets.accel.link.alone import kernel_program
from weft.compiler.targets.accel.operators.lower import Kernel, lower_function
from weft.compiler.targets.accel.schedule.tiling import Problem
from weft.hw.config import TINY
from weft.hw.dram_rate import DramRate
from weft.sim.timing import program_cycles

from ..kernels import check
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
    assert cycles(kernel, problem) <= 1.12 * least


def test_a_product_is_written_over_its_operands_which_lie_in_different_banks() -> None:
    kernel = lower_function(Case("mul", TINY, channels=24, size=(1, 400)).function())
    assert dict(kernel.stages.in_place)["product"] == "scaled"
    assert Problem(TINY, kernel, 1).vector_buffers == 3


@pytest.mark.parametrize("kind", ["add", "mul", "gate", "shifted", "requantise"])
@pytest.mark.parametrize("threads", [1, 2])
def test_what_is_computed_in_place_has_the_integers_of_the_graph(kind: str, threads: int) -> None:
    check(Case(kind, TINY, channels=13, size=(5, 37)).function(), TINY, threads)
