"""Stages of a pipeline: cut where the longest is shortest, each a program, results as without them, and proved."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
import weft
from weft.compiler.compile import compile_model
from weft.compiler.graph import Call, Var, call
from weft.compiler.graph.ir import TensorType
from weft.compiler.targets.accel.link.alone import Program
from weft.compiler.targets.accel.link.phases import Phase
from weft.compiler.targets.accel.link.split import cycles_of_stages
from weft.compiler.targets.accel.link.stages import balanced, staged
from weft.compiler.targets.errors import CompileError
from weft.compiler.targets.target import Job
from weft.hw.config import PYNQ, PYNQ_TABLES, TINY
from weft.hw.dram_rate import DramRate
from weft.sim.system_timing import cycles_together
from weft.sim.timing import predict

from ....onnx_models import FloatModel, quantise

SLOW = DramRate(bytes_per_cycle=4)
DIGITS = Path(__file__).parents[5] / "examples" / "digits" / "digits.onnx"


def nodes(count: int, name: str = "x") -> list[Call]:
    return [call("nn.negative", Var(f"{name}{number}", TensorType((1,), "float32"))) for number in range(count)]


def longest(costs: Sequence[float], cuts: Sequence[int]) -> float:
    return max(sum(costs[first:stop]) for first, stop in zip((0, *cuts), (*cuts, len(costs)), strict=True))


@pytest.mark.parametrize("seed", range(20))
def test_no_other_cuts_have_a_shorter_longest_run(seed: int) -> None:
    random = np.random.default_rng(seed)
    count = int(random.integers(1, 6))
    costs = random.integers(1, 100, size=int(random.integers(count, 11))).astype(float).tolist()
    cuts = balanced([[(0, cost) for cost in costs]] * count)
    assert len(cuts) == count - 1
    assert list(cuts) == sorted({*cuts} - {0, len(costs)})  # no run is empty
    best = min(longest(costs, each) for each in combinations(range(1, len(costs)), count - 1))
    assert longest(costs, cuts) == best


@pytest.mark.parametrize("seed", range(20))
def test_no_other_cuts_of_unlike_cores_leave_less_to_the_host_or_have_a_shorter_longest_run(seed: int) -> None:
    random = np.random.default_rng(seed)
    count = int(random.integers(2, 5))
    items = int(random.integers(count, 9))
    cycles, left = random.integers(0, 100, size=(count, items)), random.integers(0, 8, size=(count, items)) // 6

    def cost_of(cuts: Sequence[int]) -> tuple[int, int]:
        runs = [slice(first, stop) for first, stop in zip((0, *cuts), (*cuts, items), strict=True)]
        return (
            sum(int(own[run].sum()) for own, run in zip(left, runs, strict=True)),
            max(int(own[run].sum()) for own, run in zip(cycles, runs, strict=True)),
        )

    cuts = balanced([list(zip(*each, strict=True)) for each in zip(left.tolist(), cycles.tolist(), strict=True)])
    assert len({*cuts} - {0, items}) == count - 1
    assert cost_of(cuts) == min(map(cost_of, combinations(range(1, items), count - 1)))


def test_cuts_follow_what_calls_take_together() -> None:
    """Alone the first calls take as long as the others; together hardly more than one of them."""
    calls_of = nodes(8)
    few = set(calls_of[:4])

    def measure(run: Sequence[Call]) -> int:
        together = sum(node in few for node in run)
        return 100 * (len(run) - together) + (100 + together if together else 0)

    phases = staged([Phase(True, calls_of)], 2, measure)
    assert [len(phase.calls) for phase in phases] == [5, 3]
    assert [phase.stage for phase in phases] == [0, 1]


def test_a_stage_may_be_parts_of_several_programs() -> None:
    first, between, second = nodes(3, "a"), nodes(1), nodes(3, "b")
    measured: list[list[Call]] = []

    def measure(run: Sequence[Call]) -> int:
        measured.append(list(run))
        return 10 * len(run)

    phases = [Phase(False, nodes(1)), Phase(True, first), Phase(False, between), Phase(True, second)]
    found = staged(phases, 3, measure)
    assert [(phase.on_core, phase.stage, len(phase.calls)) for phase in found] == [
        (False, 0, 1), (True, 0, 2), (True, 1, 1), (False, 0, 1), (True, 1, 1), (True, 2, 2),
    ]  # fmt: skip
    assert [node for phase in found for node in phase.calls if phase.on_core] == [*first, *second]
    assert not any({*first} & {*run} and {*second} & {*run} for run in measured)  # no program holds calls of both
    at_edges = staged(phases, 2, measure)
    assert [(phase.stage, len(phase.calls)) for phase in at_edges if phase.on_core] == [(0, 3), (1, 3)]


def test_cuts_follow_what_stages_cost_each_other() -> None:
    """Alone every call takes the same; beside others, those of the first stage take three times as long."""
    everything, asked = nodes(12), []

    def together(stages: Sequence[Sequence[Sequence[Call]]]) -> list[int]:
        asked.append([[len(program) for program in stage] for stage in stages])
        return [10 * factor * sum(map(len, stage)) for factor, stage in zip((3, 1, 1), stages, strict=True)]

    phases = staged([Phase(True, everything)], 3, lambda run: 10 * len(run), together)
    first, *others = [len(phase.calls) for phase in phases]
    assert max(3 * first, *others) == 6  # of four each it would be 12
    assert asked[0] == [[4], [4], [4]]
    two = [Phase(True, everything[:3]), Phase(False, nodes(1, "h")), Phase(True, everything[3:6])]
    asked.clear()
    staged(two, 2, lambda run: 10 * len(run), lambda stages: together([*stages, []])[:2])
    assert all(sum(map(sum, stages)) == 6 for stages in asked)
    assert [[1], [2, 3], []] in asked  # a stage with a program on each side of the host


def test_programs_of_a_round_run_at_once_on_the_ports_of_their_cores() -> None:
    asked = []

    def together(
        cores: Sequence[weft.CoreConfig], ports: Sequence[int], rate: DramRate, programs: Sequence[Program]
    ) -> list[int]:
        asked.append((list(cores), list(ports), [offset for _, offset in programs]))
        return [offset for _, offset in programs]

    def program(cycles: int) -> Program:
        return np.zeros(0, np.uint8), cycles

    stages = [[program(5)], [program(10), program(20)], [program(7)], [program(1), program(2)]]
    cores = [TINY, PYNQ, TINY, PYNQ_TABLES]
    assert cycles_of_stages(stages, cores, (0, 1, 1, 2), SLOW, Job(together=together)) == [5, 30, 7, 3]
    assert asked == [(cores, [0, 1, 1, 2], [5, 10, 7, 1]), ([PYNQ, PYNQ_TABLES], [0, 1], [20, 2])]


def test_more_stages_than_calls_are_refused() -> None:
    with pytest.raises(CompileError, match="2 functions run on the core, too few for 3 stages; hint: ask for fewer"):
        staged([Phase(True, nodes(2))], 3, len)
    with pytest.raises(CompileError, match="stages is 0, but must be at least 1"):
        weft.compile(DIGITS, TINY, stages=0)
    with pytest.raises(CompileError, match="what cores share is cut by measured cycles, but nothing measures them"):
        compile_model(DIGITS, options={"config": TINY, "stages": 2})


def test_a_stage_is_a_program_and_the_longest_is_as_short_as_a_cut_makes_it() -> None:
    whole, model = weft.compile(DIGITS, TINY), weft.compile(DIGITS, TINY, stages=2)
    assert isinstance(whole, weft.CompiledModel)
    assert isinstance(model, weft.CompiledModel)
    assert (whole.stages, model.stages) == (1, 2)
    assert [step.stage for step in model.programs] == [0, 1]
    layers = [sorted(set(step.layer_of.tolist())) for step in model.programs]
    assert [*layers[0], *layers[1]] == sorted(set(whole.programs[0].layer_of.tolist()))
    cycles = [predict(TINY, step.program, offset=step.program_offset).cycles or 0 for step in model.programs]
    alone = predict(TINY, whole.programs[0].program, offset=whole.programs[0].program_offset).cycles or 0
    assert max(cycles) < 0.7 * alone  # one layer takes more than half
    x = np.random.default_rng(0).random(model.inputs[0].shape).astype(np.float32)
    expected, found = (weft.load(each).run(x) for each in (whole, model))
    assert all(np.array_equal(expected[name], found[name]) for name in expected)
    assert weft.certify(model).proved


def bytes_first(folder: Path) -> Path:
    """A network, quantised, whose layers of many bytes come first."""
    network, value = FloatModel((1, 16, 24, 24)), "x"
    for _ in range(4):
        value = network.op("Relu", network.conv(value, 16, 16, kernel=1))
    for _ in range(4):
        value = network.op("Relu", network.conv(value, 16, 16))
    quantise(network.build(value), folder)
    return folder / "quantised.onnx"


def test_cores_that_share_ports_get_stages_for_them(tmp_path: Path) -> None:
    """Two cores have the first port, and a third has its own."""
    source, ports, wish = bytes_first(tmp_path), (0, 0, 1), {"dram": SLOW, "chains": False}
    own, told = (weft.compile(source, PYNQ, stages=3, **wish, **named) for named in ({}, {"ports": ports}))
    assert isinstance(own, weft.CompiledModel)
    assert isinstance(told, weft.CompiledModel)
    cycles = [
        max(cycles_together([PYNQ] * 3, ports, SLOW, [(step.program, step.program_offset) for step in each.programs]))
        for each in (own, told)
    ]
    assert cycles[1] < 0.95 * cycles[0]
    x = np.random.default_rng(0).normal(size=told.inputs[0].shape).astype(np.float32)
    expected, found = (weft.load(each).run(x) for each in (own, told))
    assert all(np.array_equal(expected[name], found[name]) for name in expected)
    assert weft.certify(told).proved


def test_stages_of_a_model_with_the_host_between(tmp_path: Path) -> None:
    network = FloatModel((1, 3, 12, 12))
    first = network.op("Relu", network.conv("x", 3, 8))
    between = network.op("Sin", network.conv(first, 8, 8))
    network.conv(network.op("Relu", network.conv(between, 8, 8)), 8, 8)
    quantise(network.build(network.nodes[-1].output[0]), tmp_path)
    path = tmp_path / "quantised.onnx"
    model = weft.compile(path, PYNQ, stages=3, chains=False)
    assert isinstance(model, weft.CompiledModel)
    assert model.stages == 3
    assert len(model.programs) > 3 or [step.stage for step in model.programs] == [0, 1, 2]
    x = np.random.default_rng(0).normal(size=(1, 3, 12, 12)).astype(np.float32)
    expected, found = (weft.load(each).run(x) for each in (weft.compile(path, PYNQ), model))
    assert all(np.array_equal(expected[name], found[name]) for name in expected)
