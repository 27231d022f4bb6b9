"""No point of a space is below its bound, no region above one of its points, and a proof says no more than that."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from math import prod

import pytest
from weft.compiler.compile import prepared
from weft.compiler.targets.accel.cost.least_tiles import _met_by, least_of
from weft.compiler.targets.accel.link.tuned import Setting
from weft.compiler.targets.accel.operators.builder import Window
from weft.compiler.targets.accel.operators.lower import lower_function
from weft.compiler.targets.accel.schedule.tiling import Problem, Tiling
from weft.compiler.targets.accel.target import Accel, AccelOptions
from weft.hw.config import PYNQ
from weft.hw.dram_rate import DramRate
from weft.tune.prove import Proof, prove
from weft.tune.task import Bounded, RefusedError, Region, Task
from weft.tune.tasks import ChainTask, KernelTask, LayerTask, tasks_of

from tests.compiler.targets.accel.cost import test_first_layer
from tests.compiler.targets.accel.quantised_layers import layer, module_of, quantised, variable
from tests.compiler.targets.accel.test_kernels import Case
from tests.effort import few
from tests.tune.test_least_cycles import CORES, RATES, network, row


def tasks(seed: int) -> list[Task]:
    core, rate = CORES[seed % len(CORES)], RATES[seed // 7 % len(RATES)]
    module = network(seed) if seed % 3 else row(("wide", "depthwise", "narrow"), 6 + seed % 9)
    options = AccelOptions(core, rate)
    return tasks_of(prepared(module, Accel(), options), core, rate, options.vthreads)


def opened(chance: random.Random, parts: list[Bounded]) -> Iterator[tuple[float, Setting]]:
    """Some points, of some regions; none is below what its region says."""
    for bound, part in chance.sample(parts, min(3, len(parts))):
        if isinstance(part, Setting):
            yield bound, part
            continue
        inside = list(part.parts())
        assert all(each >= bound - 1e-6 for each, _ in inside)
        yield from opened(chance, inside)


def require_sound(seed: int) -> None:
    chance = random.Random(seed)
    for task in tasks(seed):
        for bound, setting in opened(chance, list(task.regions())):
            try:
                cycles = task.cycles(setting)
            except RefusedError:
                continue
            assert cycles >= bound, (seed, task.name, setting, cycles, bound)


@pytest.mark.parametrize("seed", [0, 1, 249])  # 249: reads and writes have a bus each
def test_no_point_is_below_its_bound(seed: int) -> None:
    require_sound(seed)


@pytest.mark.long
@pytest.mark.parametrize("first", range(1000, 1300, 10))
def test_no_point_of_many_is_below_its_bound(first: int) -> None:
    for seed in range(first, first + 10):
        require_sound(seed)


def points(parts: list[Bounded]) -> Iterator[Setting]:
    for _, part in parts:
        if isinstance(part, Region):
            yield from points(list(part.parts()))
        else:
            yield part


@pytest.mark.parametrize("seed", few([3, 9, 33]))
def test_regions_hold_the_whole_space(seed: int) -> None:
    for task in tasks(seed):
        found = [setting.point for setting in points(list(task.regions()))]
        assert len(found) == len({str(each) for each in found})
        wanted = {str(each.setting.point) for each in task.space()}
        assert wanted <= {str(each) for each in found}, task.name


def small() -> list[Task]:
    """A convolution, a depthwise layer, and the chain of both, so small that all is looked at."""
    x = variable(1, 32, 6, 6)
    body = layer(layer(quantised(x), 32), 32, kernel=3, groups=32, pads=1)
    options = AccelOptions(PYNQ, DramRate())
    return tasks_of(prepared(module_of(x, body), Accel(), options), PYNQ, DramRate(), options.vthreads)


def test_what_is_looked_at_whole_is_the_best() -> None:
    for proof in prove(small()[:1], 60, close=0):
        costs = []
        for setting in points(list(proof.task.regions())):
            try:
                costs.append(proof.task.cycles(setting))
            except RefusedError:
                continue
        assert proof.default is not None  # what the compiler takes need not be in the space
        assert proof.least == proof.best == min(proof.default, *costs)
        assert proof.measured <= len(costs) + 1
        assert proof.gap == proof.default / proof.least - 1


def test_without_time_a_proof_says_what_the_bound_says() -> None:
    seen: list[int] = []
    proofs = prove(small(), 0, report=lambda each: seen.append(len(each)))
    assert any(isinstance(proof.task, ChainTask) for proof in proofs)
    assert any(isinstance(proof.task, LayerTask) for proof in proofs)
    for proof in proofs:
        assert proof.default == proof.best
        assert proof.measured == 1
        assert proof.least == proof.task.bound < proof.best
    assert seen == [len(proofs)] * len(proofs)


def test_what_is_close_takes_no_more_time() -> None:
    (task, *_) = small()
    taken: list[Setting] = []

    def measure(task: Task, setting: Setting) -> int:
        taken.append(setting)
        return task.cycles(setting)

    (proof,) = prove([task], 60, close=10, measure=measure)
    assert len(taken) == proof.measured == 1


WIDE = replace(test_first_layer.SHORT, kernel=(3, 3), pads=(1, 1, 1, 1))


@pytest.mark.parametrize(("case", "tiling", "waiting"), [
    # All weights come with the first tile, and hardly a product can run beside them.
    (test_first_layer.SHORT, Tiling(32, 3, 3, 16, "cyx", 1, 3, 1, 2), 12_000),
    # The first product waits for the matrices of 16 output groups: of all input groups, or of one.
    (test_first_layer.SHORT, Tiling(16, 7, 7, 16, "cyx", 1, 7, 1), 8_192),
    (WIDE, Tiling(16, 7, 7, 1, "cyx", 1, 7, 1), 4_608),
])  # fmt: skip
def test_the_array_waits_for_what_its_products_read(case: Case, tiling: Tiling, waiting: int) -> None:
    kernel = lower_function(case.function())
    products, latencies = 25_088 * prod(case.kernel), 3 * DramRate().latency
    (bound,) = least_of(Problem(PYNQ, kernel, 1), [tiling])
    cycles = KernelTask("alone", PYNQ, DramRate(), 1, 1, kernel).cycles(Setting(tiling))
    assert products + waiting + latencies < bound <= cycles


@pytest.mark.parametrize(("default", "best", "least", "is_open"), [
    (1009, 1000, 1000, False),
    (1015, 1008, 1000, True),  # the compiler's choice may still be close, once the bound is nearer
    (1030, 1008, 1000, False),  # it is not, and no better point gains a hundredth more
    (1030, 1020, 1000, True),
    (None, 1000, 1, False),
])  # fmt: skip
def test_a_proof_is_open_until_the_choice_or_the_best_is_close(
    default: int | None, best: int, least: int, is_open: bool
) -> None:
    proof = Proof(small()[0], default, best)
    proof._left[:] = [(float(least), 0, Region(tuple))]
    proof.task.__dict__["bound"] = 0.0
    assert proof.least == least
    assert proof.is_open(0.01) is is_open


def test_the_choice_is_that_for_a_program_of_the_task_alone() -> None:
    short = test_first_layer.SHORT
    kernel = lower_function(short.function())
    task = KernelTask("short", PYNQ, DramRate(), 2, 1, kernel)
    (proof,) = prove([task], 0)
    alone, behind_others = next(iter(task.alone())), next(iter(task.settings()))
    assert alone.tiling != behind_others.tiling
    assert proof.setting == alone
    assert proof.default == task.cycles(alone) < task.cycles(behind_others)


def test_a_refused_choice_gives_way_to_the_next() -> None:
    (task, *_) = small()
    asked: list[Setting] = []

    def measure(task: Task, setting: Setting) -> int:
        asked.append(setting)
        if len(asked) == 1:
            raise RefusedError("no room")
        return 10**6

    proof = Proof(task)
    proof.measure_default(measure)
    assert (proof.default, proof.refused, proof.measured) == (10**6, 1, 1)
    assert proof.setting == asked[1]


def test_all_that_is_below_the_best_is_kept() -> None:
    proof = Proof(small()[0])
    proof._left.clear()
    proof.best, tiling = 1e6, next(iter(proof.task.settings()))
    proof._add([(0.95e6, tiling), (1e6, tiling)])
    assert [bound for bound, _, _ in proof._left] == [0.95e6] == [proof.least]


def test_padding_is_not_loaded() -> None:
    """Two tiles of three of six rows, with 3 x 3 windows: -1 .. 3 and 2 .. 6, of which 0 .. 5 are there."""
    assert _met_by(Window((3, 3), (1, 1), (1, 1, 1, 1), (1, 1)), 0, 6, 6, 3) == (8, 4)
