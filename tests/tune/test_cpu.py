"""Tuning a processor's kernels: what is measured computes the same, only what is confirmed is used, nothing is lost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
import weft
from onnx import helper, numpy_helper
from weft.compiler.compile import prepared
from weft.compiler.frontends import read
from weft.compiler.graph import Attrs, Constant, Expr, Function, Module, TensorType, Var, call
from weft.compiler.model import CompiledModel
from weft.compiler.targets.cpu.knobs import answer_point, point_answer
from weft.compiler.targets.cpu.processor import host_target
from weft.compiler.targets.cpu.target import Cpu, CpuOptions
from weft.compiler.targets.cpu.tuned import confirmed_key, searched_key
from weft.compiler.tune.database import Database, point_text
from weft.compiler.tune.errors import TuningError
from weft.tune import cpu_search as module
from weft.tune.cpu_kernels import CpuTask, cpu_tasks, in_turns
from weft.tune.cpu_search import search_cpu

HERE = host_target()
FLOAT = onnx.TensorProto.FLOAT


def network() -> onnx.ModelProto:
    """A convolution with a halo in its result, one of groups, a dense layer with constant weights, a product."""
    draw = np.random.default_rng(3)

    def array(name: str, *shape: int) -> onnx.TensorProto:
        return numpy_helper.from_array(draw.standard_normal(shape).astype(np.float32), name)

    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["a"], name="conv0", pads=[1] * 4),
        helper.make_node("Relu", ["a"], ["b"], name="relu"),
        helper.make_node("Conv", ["b", "w1"], ["c"], name="conv1", pads=[1] * 4, group=8),
        helper.make_node("Reshape", ["c", "rows"], ["d"], name="reshape"),
        helper.make_node("MatMul", ["d", "w2"], ["e"], name="dense"),
        helper.make_node("MatMul", ["e", "y"], ["z"], name="product"),
    ]
    weights = [array("w0", 32, 16, 3, 3), array("w1", 32, 4, 3, 3), array("w2", 49, 40),
               numpy_helper.from_array(np.array([32, 49]), "rows")]  # fmt: skip
    graph = helper.make_graph(
        nodes, "net", [helper.make_tensor_value_info("x", FLOAT, (1, 16, 7, 7)),
                       helper.make_tensor_value_info("y", FLOAT, (40, 48))],
        [helper.make_tensor_value_info("z", FLOAT, (32, 48))], weights,
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.fixture(scope="module")
def tasks() -> list[CpuTask]:
    found = prepared(read(network()).module({}, require_quantised=False), Cpu(), CpuOptions())
    return cpu_tasks(found, HERE, 1)


def faked(
    monkeypatch: pytest.MonkeyPatch, share: Callable[[CpuTask, int], float], log: list[int] | None = None
) -> None:
    """Let the second point, third and so on of each measurement take such shares, instead of measuring."""

    def shares(runs: Sequence[Any], rounds: int, seconds: float, task: CpuTask) -> tuple[Any, float]:
        if log is not None:
            log.append(len(runs) - 1)
        row = [1.0, *(share(task, place) for place in range(1, len(runs)))]
        return np.tile(row, (rounds, 1)), 1e-6

    monkeypatch.setattr(module, "_shares", shares)


def test_every_schedule_computes_what_the_default_does(tasks: list[CpuTask]) -> None:
    assert {task.kind.name for task in tasks} == {"convolution", "product"}
    assert len(tasks) == 4
    for task in tasks:
        expected = task.run(task.default)().copy()
        texts = list(task.points)
        for text in texts[:: max(1, len(texts) // 5)]:
            np.testing.assert_allclose(task.run(text)(), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("constant", [False, True])
def test_every_schedule_of_a_product_of_bfloat16_computes_what_the_default_does(
    constant: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the bit: sums of whole numbers are exact."""
    monkeypatch.setattr("weft.compiler.targets.cpu.products.CpuProducts.pairs", True)
    a = Var("a", TensorType((70, 33), "bfloat16"))
    b: Expr = Var("b", TensorType((33, 100), "bfloat16"))
    if constant:
        whole = np.random.default_rng(0).integers(-16, 17, (33, 100)).astype(ml_dtypes.bfloat16)
        b = Constant(whole)
    value = call("nn.matmul", a, b)
    params = (a,) if constant else (a, b)  # type: ignore[assignment]
    graph = Module(Function(params, value, Attrs({"name": "main", "outputs": ("c",)})))
    (task,) = cpu_tasks(prepared(graph, Cpu(), CpuOptions()), HERE, 1)
    inputs = [np.random.default_rng(1).integers(-16, 17, param.shape).astype(ml_dtypes.bfloat16) for param in params]

    def result(point: str) -> np.ndarray[Any, Any]:
        run = task.run(point)
        assert "pair_product" in run.program.kernels[0].text
        run.use(inputs, [np.zeros((70, 100), ml_dtypes.bfloat16)])
        return run().astype(np.float32)

    expected = result(task.default)
    assert np.any(expected)
    texts = list(task.points)
    for text in texts[:: max(1, len(texts) // 8)]:
        np.testing.assert_array_equal(result(text), expected)


def test_points_are_answers(tasks: list[CpuTask]) -> None:
    for task in tasks:
        assert all(point_answer(answer_point(each.answer)) == each.answer for each in task.points.values())
        assert len({each.answer for each in task.points.values()}) == len(task.points)


@pytest.mark.parametrize(
    "point",
    [{}, {"rows": 4}, {"rows": 0, "lanes": 16}, {"rows": True, "lanes": 16}, {"rows": "4", "lanes": 16},
     {"tile_rows": 1, "lanes": 16, "rows": 1, "columns": 16, "copied": 1, "packed": False},
     {"tile_rows": 1, "lanes": 16, "rows": -1, "columns": 16, "copied": True, "packed": False}],
)  # fmt: skip
def test_a_strange_point_is_none(point: dict[str, Any]) -> None:
    with pytest.raises(TuningError, match="no schedule"):
        point_answer(point)


def compiled(path: Path) -> CompiledModel:
    model = weft.compile(network(), target="cpu", tuned=str(path))
    assert isinstance(model, CompiledModel)
    return model


def test_what_is_confirmed_is_compiled_and_gives_the_same(
    tasks: list[CpuTask], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t.sqlite"
    faked(monkeypatch, lambda task, place: 0.8 - 0.01 * place)
    with Database(path) as database:
        outcome = search_cpu(tasks, database, trials=3)
    for state in outcome.states:
        assert state.confirmed is not None
        assert state.confirmed < 0.8
        assert state.winner != state.task.default
        assert state.curve == sorted(state.curve, reverse=True)
    model, plain = compiled(path), weft.compile(network(), target="cpu")
    assert model.statistics["tuned_kernels"] == 4
    assert all("of the default schedule's time" in layer.schedule for layer in model.layers if layer.schedule)
    draw = np.random.default_rng(5)
    inputs = {"x": draw.standard_normal((1, 16, 7, 7)).astype(np.float32),
              "y": draw.standard_normal((40, 48)).astype(np.float32)}  # fmt: skip
    found, expected = (weft.load(each).run(inputs)["z"] for each in (model, plain))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-3)


def test_the_best_of_a_search_is_not_believed(
    tasks: list[CpuTask], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half the time when it was searched, more than the default's afresh: the default stays."""
    path = tmp_path / "t.sqlite"
    faked(monkeypatch, lambda task, place: 0.5)
    with monkeypatch.context() as patched, Database(path) as database:
        patched.setattr(module, "_confirm", lambda state, database: None)
        search_cpu(tasks[:2], database, trials=2)
    assert compiled(path).statistics["tuned_kernels"] == 0
    faked(monkeypatch, lambda task, place: 1.01)
    with Database(path) as database:
        outcome = search_cpu(tasks[:2], database, trials=1)
    assert all(state.winner == state.task.default and state.confirmed == 1 for state in outcome.states)
    assert compiled(path).statistics["tuned_kernels"] == 0


def test_a_winner_that_loses_later_is_used_no_more(
    tasks: list[CpuTask], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t.sqlite"
    faked(monkeypatch, lambda task, place: 0.5)
    with Database(path) as database:
        search_cpu(tasks[:1], database, trials=2)
    assert compiled(path).statistics["tuned_kernels"] == 1
    faked(monkeypatch, lambda task, place: 0.99)
    with Database(path) as database:
        search_cpu(tasks[:1], database, trials=2)
    assert compiled(path).statistics["tuned_kernels"] == 0


def test_a_search_goes_on_where_it_was_interrupted(
    tasks: list[CpuTask], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = sorted(tasks, key=lambda task: len(task.points))[:2]
    calls = 0

    def interrupt(task: CpuTask, place: int) -> float:
        nonlocal calls
        calls += 1
        if calls > 3:
            raise KeyboardInterrupt
        return 0.9

    faked(monkeypatch, interrupt)
    with Database(tmp_path / "t.sqlite") as database:
        first = search_cpu(few, database, trials=2)
        assert first.interrupted
        known = [set(database_points(database, task)) for task in few]
        assert any(known)
        log: list[int] = []
        faked(monkeypatch, lambda task, place: 0.9, log)
        second = search_cpu(few[:1], database, trials=10_000)
        assert not second.interrupted
        assert known[0] <= second.states[0].shares.keys()
        assert second.states[0].measured == len(few[0].points) - max(1, len(known[0]))
        assert not second.states[0].left
        log.clear()
        search_cpu(few[:1], database, trials=8)
        assert log == []


def database_points(database: Database, task: CpuTask) -> list[str]:
    return [point_text(each.point) for each in database.results(searched_key(task.signature, HERE, 1))]


def test_a_schedule_outside_of_the_space_is_not_used(tasks: list[CpuTask], tmp_path: Path) -> None:
    """A stranger's record may name a tile that would leave a part of the result as it was."""
    task = next(task for task in tasks if task.kind.name == "convolution" and len(task.points) > 5)
    with Database(tmp_path / "t.sqlite") as database:
        database.add(confirmed_key(task.signature, HERE, 1), {"rows": 3, "lanes": 24}, 0.1)
    assert compiled(tmp_path / "t.sqlite").statistics["tuned_kernels"] == 0


def test_results_belong_to_a_processor_and_a_number_of_threads(tasks: list[CpuTask]) -> None:
    task = tasks[0]
    keys = {
        confirmed_key(task.signature, target, threads)
        for target in (HERE, replace(HERE, cpu="another")) for threads in (1, 2)
    }  # fmt: skip
    assert len(keys) == 4
    assert not keys & {searched_key(task.signature, HERE, 1)}


def test_runs_take_turns() -> None:
    order: list[int] = []
    ticks = iter(range(10_000))
    runs = [lambda: order.append(0), lambda: order.append(1)]
    times = in_turns(runs, 4, 0.0, lambda: float(next(ticks)))
    assert order == [0, 0, 1, 1, *(0, 1, 1, 0, 0, 1, 1, 0)]
    assert times.shape == (4, 2)
    assert np.all(times == 1.0)


def test_all_schedules_run_on_the_same_arrays(tasks: list[CpuTask], monkeypatch: pytest.MonkeyPatch) -> None:
    """And on others in each part of the rounds: where arrays lie decides some of the time."""
    seen: list[set[int]] = []

    def turns(runs: Sequence[Any], rounds: int, seconds: float, clock: Callable[[], float]) -> Any:
        seen.append({id(array) for run in runs for array in (*run._inputs, *run._outputs)})
        return np.ones((rounds, len(runs)))

    monkeypatch.setattr(module, "in_turns", turns)
    task = min(tasks, key=lambda task: len(task.points))
    texts = list(task.points)[:2]
    module._shares([task.run(text) for text in texts], 6, 0.0, task)
    assert len(seen) == module.PLACES
    assert all(len(each) == len(seen[0]) for each in seen)
    assert len(set().union(*seen)) == sum(map(len, seen))
