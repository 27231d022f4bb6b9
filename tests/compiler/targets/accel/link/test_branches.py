"""Branches side by side: plans in which each call runs once, behind what it needs; networks whose results stay."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import weft
from weft.compiler.graph import Call, Expr, TensorType, Var
from weft.compiler.graph.ir import Attrs
from weft.compiler.targets.accel.check_turn import meeting
from weft.compiler.targets.accel.link import branches
from weft.compiler.targets.accel.link.branches import TURN_CYCLES, Cost, Turn, with_branches
from weft.hw.config import TINY, CoreConfig
from weft.hw.pipelines import HANDOVER_CYCLES
from weft.runtime.split_module import SplitModule

from tests.effort import few

from ....branching import random_branches
from ....onnx_models import FloatModel, quantise

Graph = tuple[list[Call], dict[Call, list[Call]], dict[Call, Cost]]


def random_graph(seed: int, cores: int) -> Graph:
    """Calls in an order in which they can run, what each needs, and what each takes."""
    rng = np.random.default_rng(seed)
    calls: list[Call] = []
    needs: dict[Call, list[Call]] = {}
    costs: dict[Call, Cost] = {}
    for _ in range(int(rng.integers(1, 14))):
        needed = [calls[int(at)] for at in set(rng.integers(0, len(calls), rng.integers(0, 3)))] if calls else []
        node = named(needed, len(calls))
        calls.append(node)
        needs[node] = needed
        whole = int(rng.integers(50, 2000))
        costs[node] = Cost(whole, int(rng.integers(whole // cores, whole + 1)))
    return calls, needs, costs


def named(needed: Sequence[Expr], number: int) -> Call:
    kind = TensorType((1,), "int8")
    return Call("copy", tuple(needed) or (Var("x", kind),), Attrs({"number": number}), kind)


def row_of(count: int) -> tuple[list[Call], dict[Call, list[Call]]]:
    calls: list[Call] = []
    needs: dict[Call, list[Call]] = {}
    for number in range(count):
        node = named(calls[-1:], number)
        needs[node] = calls[-1:]
        calls.append(node)
    return calls, needs


def estimated(turns: Sequence[Turn], cores: int, costs: dict[Call, Cost]) -> int:
    return sum(TURN_CYCLES + branches._estimate(turn, cores, costs) for turn in turns)


def test_a_turn_takes_what_the_relay_takes() -> None:
    assert TURN_CYCLES == HANDOVER_CYCLES


@pytest.mark.parametrize("cores", [2, 4])
def test_each_call_runs_once_behind_what_it_needs(cores: int) -> None:
    side_by_side = 0
    for seed in range(150):
        calls, needs, costs = random_graph(seed, cores)
        turns = with_branches(calls, needs.__getitem__, cores, costs, partial(estimated, cores=cores, costs=costs))
        assert sorted(map(id, calls)) == sorted(id(node) for turn in turns for node in turn.calls)
        ended: set[Call] = set()
        for turn in turns:
            assert len(turn.calls) == 1 or len(turn.cores) == len(turn.calls)
            assert set(turn.cores) <= set(range(cores))
            core_of = dict(zip(turn.calls, turn.cores, strict=False))
            for at, node in enumerate(turn.calls):
                before = {other for other in turn.calls[:at] if core_of[other] == core_of[node]}
                assert ended.union(before).issuperset(needs[node])
            ended.update(turn.calls)
            side_by_side += len(set(turn.cores)) > 1
        one_by_one = estimated(branches.shared(calls), cores, costs)
        assert estimated(turns, cores, costs) <= one_by_one
    assert side_by_side > 20


def test_calls_that_cannot_be_cut_lie_side_by_side_and_large_ones_are_shared() -> None:
    """A fork, three small branches, one of two calls, and a large one; by hand."""
    fork = named([], 0)
    first, second, large = (named([fork], number) for number in (1, 2, 3))
    third = named([second], 4)
    join = named([first, third, large], 5)
    calls = [fork, first, second, third, large, join]
    needs = {node: [arg for arg in node.args if isinstance(arg, Call)] for node in calls}
    costs = {**dict.fromkeys(calls, Cost(100, 100)), first: Cost(210, 205), large: Cost(1000, 500)}

    def cycles(plan: Sequence[Turn]) -> int:
        return estimated(plan, 2, costs)

    turns = with_branches(calls, needs.__getitem__, 2, costs, cycles)
    assert [(turn.calls, turn.cores) for turn in turns] == [
        ((fork,), ()), ((first, second, third), (0, 1, 1)), ((large,), ()), ((join,), ()),
    ]  # fmt: skip

    def waiting(plan: Sequence[Turn]) -> int:
        return sum(9 if turn.cores else 1 for turn in plan)

    measured = with_branches(calls, needs.__getitem__, 2, costs, waiting)
    assert all(not turn.cores for turn in measured)  # where they wait for each other at a port


def compiled(source: Path, config: CoreConfig, cores: int, ports: tuple[int, ...] = ()) -> weft.CompiledModel:
    made = weft.compile(source, config, split=cores, ports=ports) if cores > 1 else weft.compile(source, config)
    assert isinstance(made, weft.CompiledModel)
    return made


def turns_with_branches(model: weft.CompiledModel) -> int:
    """Turns in which a core has a layer that another core with layers has not."""
    count = 0
    for turn in range(model.programs[-1].turn + 1):
        layers = [{*step.layer_of[:-1].tolist()} for step in model.programs if step.turn == turn]
        busy = [own - {-1} for own in layers if own - {-1}]
        count += len(busy) > 1 and any(own != busy[0] for own in busy)
    return count


def check(source: Path, config: CoreConfig, cores: int, ports: tuple[int, ...] = ()) -> weft.CompiledModel:
    """Results are those of one core, no core meets another, all is proved, and traffic is that of the programs."""
    whole, model = compiled(source, config, 1), compiled(source, config, cores, ports)
    for turn in range(model.programs[-1].turn + 1):
        programs = [step for step in model.programs if step.turn == turn]
        assert [step.core for step in programs] == list(range(cores))
        assert meeting(config, [step.program for step in programs]) is None
    x = np.random.default_rng(0).normal(size=model.inputs[0].shape).astype(np.float32)
    system = weft.SystemConfig(cores=(config,) * cores, ports=ports or tuple(range(cores)), relay=True)
    module = weft.load(model, system=system)
    assert isinstance(module, SplitModule)
    expected, (found,) = weft.load(whole).run(x), module.run([x])
    assert all(np.array_equal(expected[name], found[name]) for name in expected)
    for layer in (layer for layer in model.layers if layer.device == "core"):
        most = model.on_core.slots[layer.output].nbytes
        assert layer.bytes_stored <= most if layer.kind == "concat" else layer.bytes_stored in (0, most)
    assert weft.certify(model).proved
    return model


@pytest.mark.parametrize("seed", few([2, 5, 4, 0, 1, 3, *range(6, 12)], 2))
def test_random_networks_with_branches(seed: int, tmp_path: Path) -> None:
    cores = 2 + seed % 2
    check(random_branches(seed, tmp_path), TINY, cores, (0,) * cores if seed % 4 == 1 else ())


def inception(folder: Path) -> Path:
    """A block as GoogLeNet has them, on a picture of 7x7: four branches, of which one has most of the work."""
    network = FloatModel((1, 24, 7, 7))
    x = network.op("Relu", network.conv("x", 24, 24, kernel=1))
    one = network.conv(x, 24, 12, kernel=1)
    three = network.conv(network.op("Relu", network.conv(x, 24, 8, kernel=1)), 8, 16)
    five = network.conv(network.op("Relu", network.conv(x, 24, 4, kernel=1)), 4, 8, kernel=5)
    pool = network.conv(network.op("MaxPool", x, kernel_shape=[3, 3], strides=[1, 1], pads=[1] * 4), 24, 8, kernel=1)
    quantise(network.build(network.op("Concat", one, three, five, pool, axis=1)), folder)
    return folder / "quantised.onnx"


def latency(model: weft.CompiledModel, ports: tuple[int, ...]) -> int:
    system = weft.SystemConfig(cores=(model.on_core.config,) * model.shared_by, ports=ports, relay=True)
    module = weft.load(model, system=system)
    assert isinstance(module, SplitModule)
    module.run([np.zeros(model.inputs[0].shape, np.float32)])
    return module.latency


@pytest.mark.parametrize("ports", [(0, 1), (0, 0)], ids=["own ports", "one port"])
def test_a_block_with_branches_is_sooner(ports: tuple[int, ...], tmp_path: Path) -> None:
    source, told = inception(tmp_path), ports if ports == (0, 0) else ()
    model = check(source, TINY, 2, told)
    assert turns_with_branches(model) >= 1
    working = {step.turn for step in model.programs if len(step.layer_of) > 1}
    assert working == {step.turn for step in model.programs}  # what lies where it was made needs no turn
    without = weft.compile(source, TINY, split=2, ports=told, branches=False)
    assert isinstance(without, weft.CompiledModel)
    assert turns_with_branches(without) == 0
    assert latency(model, ports) < latency(without, ports)


def test_stretches_are_the_shortest_that_fall_into_branches() -> None:
    """As looking at each stretch says."""
    found = 0
    for seed in range(200):
        calls, needs, _ = random_graph(seed, 2)
        stretches = branches._Stretches(calls, needs.__getitem__)
        for first in range(0, len(calls), 1 + seed % 3):
            counts = [len(branches.branches(calls[first:stop], needs.__getitem__)) for stop in range(len(calls) + 1)]
            joins = (stop for stop in range(first + 1, len(calls)) if counts[stop] > 1 and counts[stop + 1] == 1)
            at_the_end = len(calls) if counts[-1] > 1 else None
            assert stretches.stop(first) == next(joins, at_the_end)
            found += stretches.stop(first) is not None
    assert found > 200


def test_calls_in_a_row_are_asked_a_few_times_at_most_what_they_need() -> None:
    """However many there are: a stretch was looked at anew from each of them."""
    calls, needs = row_of(500)
    asked = []

    def needs_of(node: Call) -> list[Call]:
        asked.append(node)
        return needs[node]

    costs = dict.fromkeys(calls, Cost(100, 60))
    turns = with_branches(calls, needs_of, 2, costs, len)
    assert [turn.calls for turn in turns] == [(node,) for node in calls]
    assert len(asked) <= 2 * len(calls)


def test_of_many_calls_the_longest_are_shared_in_all_small_numbers() -> None:
    calls, _ = row_of(200)
    costs = {node: Cost(100 + number, 60) for number, node in enumerate(calls)}
    sets = list(branches._to_be_shared(calls, costs))
    counts = [len(large) for large in sets]
    assert counts[: branches.ALL_COUNTS + 2] == list(range(branches.ALL_COUNTS + 2))
    assert branches.ALL_COUNTS + 2 < len(counts) < 50
    assert all(large == set(calls[len(calls) - len(large) :]) for large in sets)


def test_a_long_stretch_without_its_first_call_is_not_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two rows beside each other, of which no plan is faster: from each call on, both rows are left."""
    rows = [row_of(100) for _ in range(2)]
    calls = [node for both in zip(rows[0][0], rows[1][0], strict=True) for node in both]
    needs = rows[0][1] | rows[1][1]
    looks = []
    fastest = branches._fastest
    monkeypatch.setattr(
        branches, "_fastest", lambda stretch, *rest: looks.append(len(stretch)) or fastest(stretch, *rest)
    )
    turns = with_branches(calls, needs.__getitem__, 2, dict.fromkeys(calls, Cost(100, 10)), len)
    assert [turn.calls for turn in turns] == [(node,) for node in calls]
    assert looks[:3] == [200, 100, 50]
    assert len(looks) < 20
