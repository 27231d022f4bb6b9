"""Tiles of chains: of each tile the largest epilogue that fits in any way, and the first of these ways."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pytest
from weft.compiler.targets.accel.cost.chain_tiling import (
    WAYS,
    WAYS_IN_MODE,
    chain_estimates,
    chain_tilings,
    layers_of,
)
from weft.compiler.targets.accel.cost.tiles import ChainTiles
from weft.compiler.targets.accel.link.alone import kernel_program
from weft.compiler.targets.accel.operators.depthwise_mode import in_depthwise_mode
from weft.compiler.targets.accel.operators.lower import lower_function
from weft.compiler.targets.accel.schedule.chain_schedule import rolled_reader
from weft.compiler.targets.accel.schedule.schedule import schedule_kernel
from weft.compiler.targets.accel.schedule.tiling import (
    ChainTiling,
    Problem,
    divides_epilogue,
    epilogues,
    sizes_worth_trying,
)
from weft.hw.config import PYNQ, TINY, CoreConfig
from weft.hw.dram_rate import USUAL_RATE
from weft.sim.timing import program_cycles

from ..chains import SQUARE, ChainCase, LayerCase, chain_function, random_case
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


def in_all_ways(problem: Problem, tile: ChainTiling) -> Iterator[ChainTiling]:
    """Each epilogue in each way, in the order in which they are wanted."""
    in_mode = any(section.tapped for section in problem.kernel.sections)
    for groups, rows in epilogues(problem, tile.groups, tile.rows, tile.columns):
        if groups > 1 and divides_epilogue(problem, tile):
            continue
        for resident, skewed, ahead in WAYS_IN_MODE if in_mode else WAYS:
            yield replace(tile, epilogue_groups=groups, epilogue_rows=rows, resident=resident, skewed=skewed,
                          ahead=ahead)  # fmt: skip


@pytest.mark.parametrize(
    "problem", list(problems()), ids=lambda problem: f"{problem.config.name}: {problem.kernel.name}"
)
def test_a_tile_has_the_first_epilogue_and_way_that_fit(problem: Problem) -> None:
    """By asking the whole estimate for each epilogue in each way."""
    found = list(chain_tilings(problem))
    costs = chain_estimates(problem, found).tolist()
    assert costs == sorted(costs)
    _, groups, height, _ = problem.output
    whole = problem.kernel.section.input_groups
    widths, chunks = {each.columns for each in found}, {each.reduction for each in found}
    tiles = [
        ChainTiling(group, rows, columns, reduction, order, 1, 1, 1, rolling=order == "xyc")
        for columns, rows, reduction, group, order in product(
            widths, sizes_worth_trying(height), chunks, sizes_worth_trying(groups), ("yxc", "xyc")
        )
        if reduction == whole or group == groups
    ]
    tiles = [tile for tile in tiles if not tile.rolling or rolled_reader(problem, tile)]
    tried = [(tile, tiling) for tile in tiles for tiling in in_all_ways(problem, tile)]
    fits = chain_estimates(problem, [tiling for _, tiling in tried]) < np.inf
    first: dict[ChainTiling, ChainTiling] = {}
    for (tile, tiling), fitting in zip(tried, fits.tolist(), strict=True):
        if fitting:
            first.setdefault(tile, tiling)
    assert len(found) == len(first)
    assert set(found) == set(first.values())


@pytest.mark.parametrize("place", [0, 30, 52])
def test_a_tiling_costs_among_others_what_it_costs_alone(place: int) -> None:
    problem = list(problems())[place]
    tilings = chain_tilings(problem)[:6]
    alone = [float(chain_estimates(problem, [tiling])[0]) for tiling in tilings]
    assert chain_estimates(problem, tilings).tolist() == alone


CONV_AND_POOL = ChainCase((1, 160, 56, 56), (
    LayerCase("dense", 64), LayerCase("maximum", 64, (3, 3), (2, 2), (1, 1, 1, 1)),
))  # fmt: skip
"""The first layers of a ResNet."""


def conv_and_pool() -> Problem:
    return Problem(PYNQ, lower_function(chain_function(CONV_AND_POOL, PYNQ)), 1)


@pytest.mark.parametrize("rows", [1, 2, 3, 5, 28])
def test_rows_that_stay_are_made_once_and_are_there_once(rows: int) -> None:
    rolling = ChainTiling(4, rows, 4, 0, "xyc", 1, 1, 1, ahead=True, rolling=True)
    first, last = layers_of(conv_and_pool(), ChainTiles.of([rolling]))
    assert last.rolled == (rows < 28)
    assert first.rows.all_made == 56
    assert first.rows.made == min(2 * rows, 56)
    assert last.rows.read == 2 * rows + 1


@pytest.mark.parametrize("rows", [1, 2, 3, 5])
def test_buffers_before_rows_that_stay_have_room_for_what_a_tile_makes(rows: int) -> None:
    """Of 56 columns a tile of 4 meets 9."""
    rolling = ChainTiling(4, rows, 4, 0, "xyc", 1, 1, 1, ahead=True, rolling=True)
    buffers = schedule_kernel(conv_and_pool().kernel, PYNQ, rolling).buffers()
    entries = {each.name: each.shape[1:4] for each in buffers}
    assert entries["data"] == (10, 2 * rows, 9)
    assert entries["acc"] == (4, 2 * rows, 9)
    assert entries["requantised"] == (4, 2 * rows + 1, 9)


def test_conv_and_pool_keep_rows_where_that_is_faster() -> None:
    problem = conv_and_pool()
    best = chain_tilings(problem)[0]
    assert best.rolling
    apart = next(tiling for tiling in chain_tilings(problem) if not tiling.rolling)
    cycles = [
        program_cycles(PYNQ, USUAL_RATE, *kernel_program(problem.kernel, PYNQ, USUAL_RATE, tiling))
        for tiling in (best, apart)
    ]
    assert cycles[0] < 0.9 * cycles[1]


def layers(*kinds: tuple[str, int, int, int]) -> ChainCase:
    """Square layers: kind, kernel, stride and pad."""
    made = (LayerCase(kind, 8, (size, size), (stride, stride), (pad,) * 4) for kind, size, stride, pad in kinds)
    return ChainCase((1, 8, 16, 16), tuple(made))


@pytest.mark.parametrize(
    ("case", "change", "number"),
    [
        (layers(("dense", 1, 1, 0), ("maximum", 3, 2, 1)), {}, 1),
        (layers(("dense", 1, 1, 0), ("maximum", 3, 2, 1)), {"rolling": False}, 0),
        (layers(("dense", 1, 1, 0), ("maximum", 3, 2, 1)), {"order": "yxc"}, 0),  # a row of tiles lies between
        (layers(("dense", 1, 1, 0), ("maximum", 3, 2, 1)), {"order": "yxc", "columns": 8}, 1),
        (layers(("dense", 1, 1, 0), ("maximum", 3, 2, 1)), {"groups": 1}, 0),  # tiles of channels, too
        (layers(("dense", 1, 1, 0), ("maximum", 3, 2, 1)), {"rows": 8}, 0),
        (layers(("dense", 1, 1, 0), ("maximum", 2, 2, 0)), {}, 0),  # windows do not meet
        (layers(("dense", 1, 1, 0), ("depthwise", 3, 1, 1)), {}, 1),
        (layers(("dense", 1, 1, 0), ("depthwise", 3, 1, 1)), {"rows": 1}, 0),  # they meet in more than half
        (layers(("dense", 1, 1, 0), ("depthwise", 3, 1, 1), ("dense", 1, 1, 0)), {"reduction": 2}, 1),
        (layers(("dense", 1, 1, 0), ("depthwise", 3, 1, 1), ("dense", 1, 1, 0)), {"reduction": 1}, 0),
        (layers(("dense", 1, 1, 0), ("dense", 3, 1, 1)), {"reduction": 2}, 0),  # the array reads inp
    ],
)  # fmt: skip
def test_which_layer_finds_rows_where_they_stayed(case: ChainCase, change: dict[str, Any], number: int) -> None:
    problem = Problem(TINY, lower_function(chain_function(case, TINY)), 1)
    tiling = ChainTiling(2, 2, 4, 0, "xyc", 1, 1, 1, rolling=True)
    assert rolled_reader(problem, replace(tiling, **change)) == number
    several = ChainTiles.of([replace(tiling, rolling=False), replace(tiling, **change)])
    assert rolled_reader(problem, several).tolist() == [0, number]
