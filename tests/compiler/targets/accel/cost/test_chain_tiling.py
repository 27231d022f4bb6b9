"""Tiles of chains: of each tile the largest epilogue that fits in any way, and the first of these ways."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import product

import pytest
from weft.compiler.targets.accel.cost.chain_tiling import WAYS, WAYS_IN_MODE, chain_estimate, chain_tilings
from weft.compiler.targets.accel.operators.depthwise_mode import in_depthwise_mode
from weft.compiler.targets.accel.operators.lower import lower_function
from weft.compiler.targets.accel.schedule.tiling import (
    ChainTiling,
    Problem,
    divides_epilogue,
    epilogues,
    sizes_worth_trying,
)
from weft.hw.config import CoreConfig

from ..chains import SQUARE, chain_function, random_case
from ..operators.test_depthwise_mode import MODES


def problems() -> Iterator[Problem]:
    for seed in range(24):
        case, config = random_case(seed), SQUARE[seed % len(SQUARE)]
        yield Problem(config, lower_function(chain_function(case, config)), 1)
        yield Problem(replace(config, acc_depth=config.acc_depth // 4), lower_function(chain_function(case, config)), 1)
    for seed in range(8):
        core: CoreConfig = MODES[seed % len(MODES)]
        form = partial(in_depthwise_mode, core)
        yield Problem(core, lower_function(chain_function(random_case(seed), core, form)), 1)


def first_that_fits(problem: Problem, tile: ChainTiling) -> ChainTiling | None:
    """By asking the whole estimate for each epilogue in each way."""
    in_mode = any(section.tapped for section in problem.kernel.sections)
    for groups, rows in epilogues(problem, tile.groups, tile.rows, tile.columns):
        if groups > 1 and divides_epilogue(problem, tile):
            continue
        for resident, skewed, ahead in WAYS_IN_MODE if in_mode else WAYS:
            tiling = replace(tile, epilogue_groups=groups, epilogue_rows=rows, resident=resident, skewed=skewed,
                             ahead=ahead)  # fmt: skip
            if chain_estimate(problem, tiling) is not None:
                return tiling
    return None


@pytest.mark.parametrize(
    "problem", list(problems()), ids=lambda problem: f"{problem.config.name}: {problem.kernel.name}"
)
def test_a_tile_has_the_first_epilogue_and_way_that_fit(problem: Problem) -> None:
    found = chain_tilings(problem)
    costs = [chain_estimate(problem, tiling) or 0 for tiling in found]
    assert costs == sorted(costs)
    _, groups, height, _ = problem.output
    whole = problem.kernel.section.input_groups
    of_tile = {(each.groups, each.rows, each.columns, each.reduction): each for each in found}
    assert len(of_tile) == len(found)
    widths = {each.columns for each in found}
    chunks = {each.reduction for each in found}
    for columns, rows, reduction, group in product(
        widths, sizes_worth_trying(height), chunks, sizes_worth_trying(groups)
    ):
        if reduction < whole and group < groups:
            continue
        tile = ChainTiling(group, rows, columns, reduction, "yxc", 1, 1, 1)
        assert of_tile.get((group, rows, columns, reduction)) == first_that_fits(problem, tile)
