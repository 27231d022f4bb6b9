"""One law for what engines take beside each other, and how far it is from the exact cycles of the timing model."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from weft.compiler.targets.accel.cost.chain_tiling import chain_space
from weft.compiler.targets.accel.cost.tile_costs import estimates, tilings
from weft.compiler.targets.accel.cost.work import Work, overlapped
from weft.compiler.targets.accel.link.alone import kernel_program
from weft.compiler.targets.accel.operators.depthwise_mode import in_depthwise_mode
from weft.compiler.targets.accel.operators.lower import Kernel, lower_function
from weft.compiler.targets.accel.schedule.tiling import Problem, Tiling
from weft.compiler.targets.errors import CompileError
from weft.hw.config import TINY, CoreConfig
from weft.hw.dram_rate import DramRate
from weft.sim.dram import DramModel
from weft.sim.timing import predict

from ..chains import SQUARE, chain_function, random_case
from ..operators.test_depthwise_mode import MODES
from .test_bursts import layers

OTHERS = 3
"""Tilings of a kernel that are timed beside the one that is estimated to be the fastest."""


@dataclass(frozen=True)
class Judged:
    """Tilings of a kernel, the one first that is estimated to be the fastest: their estimates, and exact cycles."""

    estimated: Sequence[float]
    exact: Sequence[int]

    @property
    def ratios(self) -> list[float]:
        return [estimate / cycles for estimate, cycles in zip(self.estimated, self.exact, strict=True)]

    @property
    def lost(self) -> float:
        """What the first one takes, as a multiple of the fastest."""
        return self.exact[0] / min(self.exact)


def judged(seed: int, kernel: Kernel, config: CoreConfig, rate: DramRate, ranked: list[tuple[Tiling, float]]) -> Judged:
    """Of the tilings of a kernel the first that finds room in one piece, and some at random."""
    dram = DramModel(latency=rate.latency, bytes_per_cycle=rate.bytes_per_cycle)
    shuffled = random.Random(seed).sample(ranked, len(ranked))
    found: list[tuple[float, int]] = []
    for order, count in ((ranked, 1), (shuffled, 1 + OTHERS)):
        for tiling, cost in order:
            if len(found) == count:
                break
            try:
                program, end = kernel_program(kernel, config, rate, tiling)
            except CompileError:
                continue
            found.append((cost, predict(config, program, dram, offset=end).cycles or 0))
    return Judged(*zip(*found, strict=True))


def of_layers() -> Iterator[Judged]:
    for seed, function in enumerate(layers(TINY)):
        rate, kernel = DramRate(bytes_per_cycle=TINY.bus_bytes >> seed % 2), lower_function(function)
        problem = Problem(TINY, kernel, 2, rate=rate)
        chosen = tilings(problem)
        ranked = list(zip(chosen, estimates(problem, chosen).tolist(), strict=True))
        yield judged(seed, kernel, TINY, rate, ranked)


def of_chains() -> Iterator[Judged]:
    for seed in range(8):
        in_mode = seed % 2 == 1
        config = (MODES if in_mode else SQUARE)[seed // 2 % 2]
        form = (partial(in_depthwise_mode, config),) if in_mode else ()
        kernel = lower_function(chain_function(random_case(seed), config, *form))
        ranked = chain_space(Problem(config, kernel, 1, rate=DramRate.of(config)))
        if ranked:
            yield judged(seed, kernel, config, DramRate.of(config), list(ranked))


@pytest.mark.parametrize(("kind", "first", "others", "most_lost"), [
    (of_layers, (0.85, 1.1), (0.8, 1.4), 1.02), (of_chains, (0.15, 1.1), (0.15, 1.25), 1.1),
])  # fmt: skip
def test_an_estimate_is_near_the_exact_cycles(
    kind: Callable[[], Iterator[Judged]], first: tuple[float, float], others: tuple[float, float], most_lost: float
) -> None:
    """Nearest where it is the least, since that is what is chosen. Chains of few pixels take several times as long as
    they are estimated to, whatever their tiling: the turns of their engines count too little."""
    found = list(kind())
    for each in found:
        assert first[0] < each.ratios[0] < first[1]
        assert all(others[0] < ratio < others[1] for ratio in each.ratios)
    assert np.mean([each.lost for each in found]) < most_lost


@given(st.lists(st.floats(1, 1e9), min_size=3, max_size=3))
def test_engines_beside_each_other_take_the_longest_and_a_little_more(cycles: list[float]) -> None:
    assert max(cycles) <= overlapped(*cycles) <= 1.0175 * max(cycles)


def test_engines_that_are_nearly_as_busy_hold_each_other_up() -> None:
    equal, near, far = (overlapped(100.0, other, 1.0) for other in (100.0, 95.0, 50.0))
    assert equal == pytest.approx(100 * 2 ** (1 / 64))
    assert 100 < near < equal
    assert far == pytest.approx(100, rel=1e-9)


@given(st.lists(st.tuples(*[st.floats(1, 1e9)] * 4), min_size=1, max_size=5))
def test_the_work_of_many_is_that_of_each(several: list[tuple[float, ...]]) -> None:
    """Bit by bit, so that a tiling alone costs what it costs among others. What is left unused counts for nobody."""
    together = Work(*np.array(several).T)
    for place, each in enumerate(several):
        assert together.cycles[place] == Work(*each).cycles  # type: ignore[index]
        assert together.used[place] == Work(*each).used == pytest.approx(sum(each))  # type: ignore[index]
