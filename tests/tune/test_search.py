"""The search: seeded, resumed without measuring twice, interrupted without loss; what it finds is right."""

from __future__ import annotations

import random
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import weft
from weft.compiler.compile import prepared
from weft.compiler.frontends import read
from weft.compiler.graph import Module
from weft.compiler.targets.accel.cost.space import space
from weft.compiler.targets.accel.cost.tile_costs import estimate
from weft.compiler.targets.accel.link.tuned import Setting, point_tiling
from weft.compiler.targets.accel.target import Accel, AccelOptions
from weft.compiler.tune.database import Database
from weft.compiler.tune.errors import TuningError
from weft.hw.config import PYNQ, TINY
from weft.hw.dram_rate import DramRate
from weft.runtime.profile_whatif import predict_runs
from weft.sim.dram import DramModel
from weft.tune import search as module
from weft.tune.ranking import choose_ranking
from weft.tune.search import Outcome, search
from weft.tune.task import Task
from weft.tune.tasks import KernelTask, tasks_of

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx"
SLOW = DramRate(bytes_per_cycle=2)


@pytest.fixture(scope="module")
def packed() -> Module:
    source = read(DIGITS)
    return prepared(source.module({}, require_quantised=True), Accel(), AccelOptions(PYNQ, SLOW))


@pytest.fixture(scope="module")
def tasks(packed: Module) -> list[Task]:
    return tasks_of(packed, PYNQ, SLOW, 2)


def kernels(tasks: list[Task]) -> list[KernelTask]:
    return [task for task in tasks if isinstance(task, KernelTask)]


def costs(outcome: Outcome) -> list[dict[str, float]]:
    return [dict(state.costs) for state in outcome.states]


def test_a_kernel_comes_once_and_the_space_holds_the_default(tasks: list[Task]) -> None:
    assert len({task.key for task in tasks}) == len(tasks)
    assert all(set(task.defaults) <= task.points.keys() for task in tasks)
    assert all(task.features(text) for task in tasks for text in task.defaults)
    for task in kernels(tasks):
        found = space(task.problem)
        assert [each.estimate for each in found] == sorted(each.estimate for each in found)
        assert len({each.tiling for each in found}) == len(found)


def test_every_point_is_measured_as_it_compiles(tasks: list[Task]) -> None:
    """No tiling of a small space is refused, and none is below the bound."""
    for task in tasks:
        if len(task.points) > 200:
            continue
        for point in list(task.points.values())[:40:4]:
            assert task.cycles(point.setting) >= task.bound


def test_the_space_has_four_threads_and_portions_of_several_sizes(tasks: list[Task]) -> None:
    tilings = [candidate.tiling for task in kernels(tasks) for candidate in space(task.problem)]
    assert {tiling.threads for tiling in tilings} == {1, 2, 4}
    for task in kernels(tasks):
        reduction = task.problem.reduction
        found = {each.tiling.portion for each in space(task.problem)}
        assert found <= {0, *(-(-reduction // count) for count in (2, 4, 8))}
        assert reduction == 0 or reduction not in found


def test_a_batch_holds_what_is_nearest_to_the_best_so_far(tasks: list[Task]) -> None:
    """The first of these differ from it in no more knobs than any other point that is ranked and not chosen."""
    task = max(tasks, key=lambda each: len(each.points))
    texts = list(task.points)
    best = texts[len(texts) // 2]
    state = module.Progress(task, costs={texts[0]: 2.0, best: 1.0})
    left = [text for text in texts if text not in state.costs]

    def apart(text: str) -> int:
        one, other = (task.points[each].setting.point for each in (text, best))
        return sum(one.get(name) != other.get(name) for name in {**one, **other})

    nearest = module._nearest(state, left)
    assert [apart(text) for text in nearest] == sorted(map(apart, left))[: module.NEARBY]
    assert module._nearest(module.Progress(task), left) == []
    chosen = module._batch(state, choose_ranking([], 0), random.Random(0), module.BATCH)
    assert len(set(chosen)) == module.BATCH
    assert sum(apart(text) == apart(nearest[0]) for text in chosen) >= 1


def test_the_same_seed_and_database_search_the_same(tasks: list[Task], tmp_path: Path) -> None:
    outcomes = []
    for name in ("a", "b"):
        with Database(tmp_path / name) as database:
            outcomes.append(search(tasks, database, trials=4, seed=7))
    assert costs(outcomes[0]) == costs(outcomes[1])
    with Database(tmp_path / "c") as database:
        assert costs(search(tasks, database, trials=4, seed=8)) != costs(outcomes[0])


def test_what_is_known_is_not_measured_again(tasks: list[Task], tmp_path: Path) -> None:
    with Database(tmp_path / "t.sqlite") as database:
        first = search(tasks, database, trials=3)
        measured = sum(state.measured for state in first.states)
        assert measured == 3 * len(tasks)
        second = search(tasks, database, trials=2)
    assert sum(state.measured for state in second.states) == 2 * len(tasks)
    for before, after in zip(first.states, second.states, strict=True):
        assert before.costs.items() <= after.costs.items()
        assert after.default == before.default


def test_an_interruption_keeps_what_was_measured(
    tasks: list[Task], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left, cycles = [9], Task.cycles

    def interrupted(task: Task, setting: Setting) -> int:
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt
        return cycles(task, setting)

    monkeypatch.setattr(Task, "cycles", interrupted)
    with Database(tmp_path / "t.sqlite") as database:
        outcome = search(tasks, database, trials=50)
        assert outcome.interrupted
        assert sum(len(database.results(task.key)) for task in tasks) == 9


def test_the_best_are_compiled_and_give_the_same_integers(tasks: list[Task], tmp_path: Path) -> None:
    path = tmp_path / "t.sqlite"
    with Database(path) as database:
        outcome = search(tasks, database, trials=12)
    gained = [state for state in outcome.states if state.default and state.best and state.best < state.default]
    assert gained
    plain, tuned = (weft.compile(DIGITS, PYNQ, dram=SLOW, tuned=which) for which in ("", str(path)))
    on_core = [each for each in tuned.layers if each.device == "core"]
    recorded = [each for each in on_core if "of the tuning database" in each.schedule]
    assert tuned.statistics["tuned_kernels"] == len(recorded)
    assert all(each in recorded for each in on_core if each.kind != "chain")
    dram = DramModel(bytes_per_cycle=SLOW.bytes_per_cycle)
    before, after = (sum(run.result.cycles or 0 for run in predict_runs(each, dram)) for each in (plain, tuned))
    assert after < 1.05 * before  # kernels are measured alone; without a database the faster of two programs is taken
    image = np.random.default_rng(0).uniform(-1, 1, plain.inputs[0].shape).astype(plain.inputs[0].dtype)
    results = [
        weft.load(each, weft.FsimDevice(PYNQ, check_races=True, timing=False)).run(image) for each in (plain, tuned)
    ]
    for name, value in results[0].items():
        np.testing.assert_array_equal(results[1][name], value)


def test_results_of_another_core_or_memory_are_not_used(tasks: list[Task], tmp_path: Path) -> None:
    path = tmp_path / "t.sqlite"
    with Database(path) as database:
        search(tasks, database, trials=1)
    for core, dram in ((TINY, "2"), (PYNQ, "4"), (PYNQ, "2,50")):
        assert weft.compile(DIGITS, core, dram=dram, tuned=str(path)).statistics["tuned_kernels"] == 0


def test_a_tiling_that_does_not_fit_leaves_the_default(tmp_path: Path) -> None:
    """As after a change by hand: the compiler does not trust what it reads."""
    source, path = read(DIGITS), tmp_path / "t.sqlite"
    module = prepared(source.module({}, require_quantised=True), Accel(), AccelOptions(TINY, SLOW))
    huge = dict.fromkeys(("groups", "rows", "columns", "reduction", "epilogue_groups", "epilogue_rows"), 1 << 19)
    with Database(path) as database:
        for task in kernels(tasks_of(module, TINY, SLOW, 2)):
            database.add(task.key, {**huge, "threads": 2, "portion": 0, "order": "cyx"}, 1.0)
    model = weft.compile(DIGITS, TINY, dram=SLOW, tuned=str(path))
    plain = weft.compile(DIGITS, TINY, dram=SLOW)
    assert model.statistics["tuned_kernels"] < len(plain.layers)
    image = np.random.default_rng(0).uniform(-1, 1, plain.inputs[0].shape).astype(plain.inputs[0].dtype)
    results = [weft.load(each, weft.FsimDevice(TINY, timing=False)).run(image) for each in (plain, model)]
    for name, value in results[0].items():
        np.testing.assert_array_equal(results[1][name], value)


@pytest.mark.parametrize(
    "point",
    [
        {},
        {"groups": True},
        {"threads": 0},
        {"rows": -1},
        {"columns": "1"},
        {"extra": 1},
        {"order": "cc"},
        {"order": 1},
        {"rows": 2.0},
    ],
)
def test_a_point_that_is_no_tiling_is_refused(point: dict[str, object]) -> None:
    whole = {"groups": 1, "rows": 1, "columns": 1, "reduction": 0, "order": "cyx", "epilogue_groups": 1,
             "epilogue_rows": 1, "threads": 1, "portion": 0}  # fmt: skip
    assert point_tiling(whole).groups == 1
    with pytest.raises(TuningError, match="which is no tiling"):
        point_tiling({**whole, **point} if point else point)


def test_candidates_fit(tasks: list[Task]) -> None:
    for task in kernels(tasks):
        for point in list(task.points.values())[:50]:
            assert point.setting.tiling is not None
            assert estimate(task.problem, point.setting.tiling) is not None or point.estimate == float("inf")


def test_no_program_is_begun_when_the_time_is_over(
    tasks: list[Task], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each program takes a minute. What the compiler takes by itself counts as any other, and so does a batch."""
    now = [0.0]
    cycles = Task.cycles

    def slowly(task: Task, setting: Setting) -> int:
        now[0] += 60
        return cycles(task, setting)

    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(Task, "cycles", slowly)
    with Database(tmp_path / "results.sqlite") as database:
        for minutes, programs in ((-1, 0), (1.5, 2), (len(tasks) + 2.5, len(tasks) + 3)):
            now[0] = 0
            before = sum(
                len(each.costs) + len(each.refused) for each in search(tasks, database, trials=1, minutes=-1).states
            )
            outcome = search(tasks, database, trials=8, minutes=minutes)
            assert sum(state.measured for state in outcome.states) == programs
            assert sum(len(each.costs) + len(each.refused) for each in outcome.states) == before + programs
            assert outcome.untouched == max(0, len(tasks) - before - programs)
            assert all(state.default is not None for state in outcome.states if state.costs)
