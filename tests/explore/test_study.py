"""Runs: every point has an outcome, an interrupted run goes on, the seed decides what is measured."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
import pytest
import weft
from weft.compiler.targets.errors import CompileError
from weft.compiler.tune.database import Database
from weft.compiler.tune.errors import TuningError
from weft.explore.errors import ExploreError
from weft.explore.measure import LAYER_FIELDS, Measure, Network, measure, open_network
from weft.explore.outcome import cycles_allowed, design_of, record_of
from weft.explore.space import Constraints, Design, Space, assignment_text
from weft.explore.study import Study, explore
from weft.runtime.errors import DeviceError
from weft.runtime.profile_whatif import predict_runs
from weft.sim.dram import DramModel

from benchmarks.zoo.litert_networks import digits as litert_digits

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx"
NETWORKS = (Network("a", "a.onnx", "1" * 32), Network("b", "b.onnx", "2" * 32))


def space_of(**tables: Any) -> Space:
    core = {"block_in": [4, 8, 16, 32], "block_out": [4, 8, 16, 32], "depthwise": [0]}
    return Space.model_validate({"core": core, **tables})


class FakeMeasure:
    """Cycles that follow from the shape; it counts, and can be told to fail or to be interrupted."""

    def __init__(self, interrupt_after: int = 1 << 30) -> None:
        self.calls: list[tuple[str, str]] = []
        self.interrupt_after = interrupt_after
        self.broken = True

    def __call__(self, design: Design, network: Network) -> Measure:
        if len(self.calls) == self.interrupt_after:
            raise KeyboardInterrupt
        config = design.config
        self.calls.append((config.name, network.name))
        if config.block_in == 32 and config.block_out == 4:
            raise CompileError("no room for a tile")
        if config.block_in == 4 and config.block_out == 32 and self.broken:
            raise RuntimeError("a mistake in the compiler")
        cycles = 1_000_000 // (config.block_in * min(config.block_out, 16)) + config.block_out
        return Measure(cycles, config.batch, 500, cycles // 2, 10, 1000, 1000, ())


def run(space: Space, path: Path, fake: FakeMeasure, networks: Sequence[Network] = NETWORKS, **how: Any) -> Study:
    with Database(path) as database:
        return explore(space, networks, database, workers=0, measurer=fake, **how)


def summary(study: Study) -> list[tuple[str, str, str, dict[str, float]]]:
    return [(assignment_text(each.assignment), each.status, each.reason, dict(each.figures)) for each in study.points]


def test_every_point_of_the_grid_has_an_outcome(tmp_path: Path) -> None:
    study = run(space_of(constraints={"DSP": 400, "cycles": 50_000}), tmp_path / "e.sqlite", FakeMeasure())
    by_shape = {(p.assignment["core.block_in"], p.assignment["core.block_out"]): p for p in study.points}
    assert len(by_shape) == 16
    assert [each.assignment for each in study.points] == list(study.space.assignments())
    assert by_shape[32, 4].status == "refused"
    assert by_shape[32, 4].reason == "a: no room for a tile; b: no room for a tile"
    assert by_shape[4, 32].status == "failed"
    assert "a: RuntimeError: a mistake in the compiler (test_study.py:" in by_shape[4, 32].reason
    assert "takes 579 DSP, more than 400 (the constraint)" in by_shape[32, 32].reason
    assert by_shape[4, 4].reason.startswith("a: 62,504 cycles an image, more than 50,000")
    front = {(study.points[place].assignment["core.block_in"], study.points[place].assignment["core.block_out"])
             for place in study.front()}  # fmt: skip
    assert (32, 16) in front
    assert not front & {(32, 4), (4, 32), (32, 32), (4, 4)}
    for place in study.front():
        mine = study.points[place].cost(study.objectives)
        assert not any(
            all(a < b for a, b in zip(each.cost(study.objectives), mine, strict=True))
            for each in study.points if each.status == "measured"
        )  # fmt: skip


@pytest.mark.parametrize(
    ("constraints", "cycles", "text"),
    [
        ({}, math.inf, ""),
        ({"cycles": 500}, 500, ""),
        ({"milliseconds": 2, "mhz": 50}, 100_000, " (2 ms at 50 MHz)"),
        ({"milliseconds": 2, "mhz": 50, "cycles": 100_001}, 100_000, " (2 ms at 50 MHz)"),
        ({"milliseconds": 2, "mhz": 50, "cycles": 99_999}, 99_999, ""),
        ({"milliseconds": 2, "part": "pynq-z2"}, 200_000, " (2 ms at 100 MHz)"),
        ({"milliseconds": 2, "part": "pynq-z2", "mhz": 51}, 100_000, " (2 ms at 50 MHz)"),
    ],
)
def test_a_time_allows_cycles_by_its_clock(constraints: dict[str, Any], cycles: float, text: str) -> None:
    assert cycles_allowed(Constraints(**constraints)) == (cycles, text)


def test_points_that_take_too_long_are_refused(tmp_path: Path) -> None:
    study = run(space_of(constraints={"milliseconds": 0.5, "mhz": 100}), tmp_path / "e.sqlite", FakeMeasure())
    whole = run(space_of(constraints={"cycles": 50_000}), tmp_path / "e.sqlite", FakeMeasure())
    assert [each.status for each in study.points] == [each.status for each in whole.points]
    assert any("cycles an image, more than 50,000 (0.5 ms at 100 MHz)" in each.reason for each in study.points)


def test_a_clock_that_the_board_cannot_make_is_told_before_anything_is_measured(tmp_path: Path) -> None:
    measure = FakeMeasure()
    with pytest.raises(ExploreError, match=r"constraints\.mhz"):
        run(space_of(constraints={"part": "pynq-z2", "milliseconds": 1, "mhz": 5000}), tmp_path / "e.sqlite", measure)
    assert not measure.calls


@pytest.mark.parametrize("algorithm", ["grid", "random", "tpe", "nsga2"])
def test_an_interrupted_run_goes_on_and_ends_as_if_it_was_not(algorithm: str, tmp_path: Path) -> None:
    space = space_of(search={"algorithm": algorithm, "trials": 10, "seed": 5, "batch": 4})
    whole = run(space, tmp_path / "whole.sqlite", FakeMeasure())
    cut = run(space, tmp_path / "cut.sqlite", first := FakeMeasure(interrupt_after=7))
    assert cut.interrupted
    assert len(cut.outcomes) < len(whole.outcomes)
    rest = run(space, tmp_path / "cut.sqlite", second := FakeMeasure())
    assert summary(rest) == summary(whole)
    assert len(first.calls) + len(second.calls) == whole.measured
    again = run(space, tmp_path / "cut.sqlite", third := FakeMeasure())
    assert not third.calls
    assert again.reused == whole.measured
    assert summary(again) == summary(whole)


@pytest.mark.parametrize("fault", ["full", "locked"])
def test_a_database_that_cannot_be_written_loses_nothing(
    fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = run(space_of(), tmp_path / "whole.sqlite", FakeMeasure())
    path = tmp_path / "cut.sqlite"
    monkeypatch.setattr("weft.compiler.tune.database.PATIENCE_SECONDS", 0.2)
    other = sqlite3.connect(path, isolation_level=None)

    class Spoiling(FakeMeasure):
        def __call__(self, design: Design, network: Network) -> Measure:
            if len(self.calls) == 9 and fault == "locked":
                other.execute("BEGIN IMMEDIATE")  # another run is writing, and does not end
            if len(self.calls) == 9 and fault == "full":
                database._connection.execute("PRAGMA max_page_count = 1")  # what a full disk does to it

            return super().__call__(design, network)

    with Database(path) as database:
        first = Spoiling()
        with pytest.raises(TuningError, match=rf"database (or disk )?is {fault}; hint"):
            explore(space_of(), NETWORKS, database, workers=0, measurer=first)
    if fault == "locked":
        other.execute("ROLLBACK")
    rest = run(space_of(), path, second := FakeMeasure())
    assert summary(rest) == summary(whole)
    assert rest.reused >= 9
    assert not {*first.calls[: rest.reused]} & {*second.calls}


@pytest.mark.parametrize("algorithm", ["random", "tpe", "nsga2"])
def test_the_seed_decides(algorithm: str, tmp_path: Path) -> None:
    found = [
        summary(run(space_of(search={"algorithm": algorithm, "trials": 8, "seed": seed}), tmp_path / f"{n}.sqlite",
                    FakeMeasure()))
        for n, seed in enumerate((1, 1, 2))
    ]  # fmt: skip
    assert found[0] == found[1] != found[2]
    texts = [text for text, *_ in found[0]]
    assert len(set(texts)) == len(texts)


@pytest.mark.parametrize("algorithm", ["tpe", "nsga2"])
def test_a_sampler_ends_when_the_space_does(algorithm: str, tmp_path: Path) -> None:
    space = space_of(core={"block_in": [4, 8], "block_out": [8, 12], "depthwise": [0]},
                     search={"algorithm": algorithm, "trials": 50})  # fmt: skip
    study = run(space, tmp_path / "e.sqlite", FakeMeasure())
    assert len(study.outcomes) == 4
    assert study.count("refused") == 2


def test_what_failed_is_kept_until_it_is_asked_for_again(tmp_path: Path) -> None:
    path, space = tmp_path / "e.sqlite", space_of()
    assert run(space, path, FakeMeasure()).count("failed") == 1
    kept = run(space, path, FakeMeasure())
    assert (kept.count("failed"), kept.measured) == (1, 0)
    mended = FakeMeasure()
    mended.broken = False
    again = run(space, path, mended, retry=True)
    assert (again.count("failed"), again.measured) == (0, 2)
    assert again.count("refused") == 1  # not asked again


def test_another_network_measures_only_itself(tmp_path: Path) -> None:
    path, space = tmp_path / "e.sqlite", space_of()
    run(space, path, FakeMeasure(), NETWORKS[:1])
    study = run(space, path, FakeMeasure())
    assert study.measured == study.reused == 16


def test_what_is_known_is_known_for_its_knobs_and_memory_alone(tmp_path: Path) -> None:
    space = space_of(core={}, compiler={"vthreads": [1, 2, 4]}, memory={"bytes_per_cycle": [2, 4], "latency": [50, 60]})
    assert run(space, tmp_path / "e.sqlite", FakeMeasure(), NETWORKS[:1]).measured == 12
    assert run(space, tmp_path / "e.sqlite", FakeMeasure(), NETWORKS[:1]).reused == 12


@pytest.mark.parametrize(
    ("out_kib", "reason"), [(16, ""), (32, "takes 122.5 BRAM36, more than 119 (85% of xc7z020clg400-1)")]
)
def test_a_part_is_full_before_its_end(out_kib: int, reason: str) -> None:
    space = Space.model_validate({"core": {"inp_kib": [64], "out_kib": [out_kib]}, "constraints": {"part": "pynq-z2"}})
    (assignment,) = space.assignments()
    assert design_of(space, assignment).reason == reason


def test_networks_need_names_of_their_own(tmp_path: Path) -> None:
    for networks in ((), (NETWORKS[0], NETWORKS[0])):
        with pytest.raises(ExploreError, match="names of their own"):
            run(space_of(), tmp_path / "e.sqlite", FakeMeasure(), networks)
    with pytest.raises(ExploreError, match="there is no part 'xc9'; hint: known: LFE5U-45F"):
        run(space_of(constraints={"part": "xc9"}), tmp_path / "e.sqlite", FakeMeasure())


def product_model(path: Path) -> Path:
    """A quantised product of two computed matrices: which passes it takes depends on the core's array."""
    constant = [onnx.helper.make_tensor("scale", onnx.TensorProto.FLOAT, (), [0.05]),
                onnx.helper.make_tensor("zero", onnx.TensorProto.INT8, (), [3])]  # fmt: skip
    nodes = []
    for name in ("x", "y"):
        nodes.append(onnx.helper.make_node("QuantizeLinear", [name, "scale", "zero"], [f"q{name}"]))
        nodes.append(onnx.helper.make_node("DequantizeLinear", [f"q{name}", "scale", "zero"], [f"d{name}"]))
    nodes.append(onnx.helper.make_node("MatMul", ["dx", "dy"], ["product"]))
    nodes.append(onnx.helper.make_node("QuantizeLinear", ["product", "scale", "zero"], ["q"]))
    nodes.append(onnx.helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["z"]))
    values = {name: onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)
              for name, shape in (("x", (1, 12, 20)), ("y", (1, 20, 8)), ("z", (1, 12, 8)))}  # fmt: skip
    graph = onnx.helper.make_graph(nodes, "product", [values["x"], values["y"]], [values["z"]], constant)
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=9), path)
    return path


def test_a_network_of_which_nothing_runs_on_a_core_is_refused_there(tmp_path: Path) -> None:
    """An array that is not square does not multiply computed matrices."""
    space = Space.model_validate({"base": "tiny", "core": {"block_in": 4, "block_out": 8, "depthwise": 0}})
    (assignment,) = space.assignments()
    with pytest.raises(DeviceError, match="has no program on the core"):
        measure(space.design(assignment), open_network(product_model(tmp_path / "product.onnx")))


@pytest.mark.parametrize(("kind", "block_out"), [("digits", 4), ("digits", 8), ("product", 4)])
def test_a_measure_is_what_compile_and_the_timing_model_say(kind: str, block_out: int, tmp_path: Path) -> None:
    path = DIGITS if kind == "digits" else product_model(tmp_path / "product.onnx")
    core = {"block_in": 4, "block_out": block_out, "depthwise": 0}
    space = Space.model_validate({"base": "tiny", "core": core, "memory": {"bytes_per_cycle": [2], "latency": [60]}})
    (assignment,) = space.assignments()
    design, network = space.design(assignment), open_network(path)
    found = measure(design, network)
    model = weft.compile(path, design.config, dram="2,60")
    assert isinstance(model, weft.CompiledModel)
    runs = predict_runs(model, DramModel(bytes_per_cycle=2, latency=60))
    assert found.cycles == sum(run.result.cycles or 0 for run in runs)
    assert found.macs == sum(layer.macs for layer in model.layers)
    rows = [dict(zip(LAYER_FIELDS, row, strict=True)) for row in found.layers]
    assert sum(row["cycles"] for row in rows) <= found.cycles
    assert all(0 <= row["macs"] <= row["array"] * design.config.macs_per_cycle for row in rows)
    assert sum(row["memory"] for row in rows) < found.cycles
    assert Measure.from_values(found.to_values()) == found


def test_a_network_of_another_front_end_is_measured(tmp_path: Path) -> None:
    path = tmp_path / "digits.tflite"
    path.write_bytes(litert_digits().model)
    space = Space(base="tiny")
    (assignment,) = space.assignments()
    design = space.design(assignment)
    found = measure(design, open_network(path))
    model = weft.compile(path, design.config)
    assert isinstance(model, weft.CompiledModel)
    runs = predict_runs(model, DramModel(bytes_per_cycle=design.rate.bytes_per_cycle, latency=design.rate.latency))
    assert found.cycles == sum(run.result.cycles or 0 for run in runs) > 0


def test_a_core_for_several_images_gets_them() -> None:
    space = Space.model_validate({"base": "tiny", "core": {"batch": [2]}})
    (assignment,) = space.assignments()
    found = measure(space.design(assignment), open_network(DIGITS))
    single = measure(Space(base="tiny").design({**assignment, "core.batch": 1}), open_network(DIGITS))
    assert found.batch == 2
    assert found.macs == 2 * single.macs
    assert found.cycles_per_image == found.cycles / 2
    assert found.cycles_per_image < single.cycles


NOTHING = {"cycles": 0, "batch": 1, "macs": 0, "array": 0, "vector": 0, "bytes_read": 0, "bytes_written": 0}


@pytest.mark.parametrize("values", [{}, {"cycles": 1}, {**NOTHING, "layers": []}])
def test_a_measure_from_a_strange_database_is_refused(values: dict[str, Any]) -> None:
    with pytest.raises(ExploreError, match="a database holds a measurement that is none"):
        Measure.from_values(values)


def test_records_hold_all_that_reproduces_a_point(tmp_path: Path) -> None:
    study = run(space_of(), tmp_path / "e.sqlite", FakeMeasure())
    for outcome in study.points:
        record = record_of(study.space, outcome)
        assert record["status"] == outcome.status
        if outcome.status == "measured":
            assert outcome.design is not None
            assert weft.CoreConfig(**record["config"]) == outcome.design.config
            assert set(record["networks"]) == {"a", "b"}
            assert sum(record["networks"]["a"]["energy_pj"].values()) > 0


def test_the_front_is_of_linked_programs_where_layers_were_judged(tmp_path: Path) -> None:
    """The judge prefers other points than the programs do: in the end all of the front is exact, the rest is not."""

    def judge(design: Design, network: Network) -> Measure:
        found = fake(design, network)
        return replace(found, cycles=found.cycles // (5 if design.config.block_in == 8 else 1), exact=False)

    fake = FakeMeasure()
    space = space_of(search={"judge": "layers"}, constraints={"DSP": 400})
    study = run(space, tmp_path / "e.sqlite", fake, judge=judge)
    assert study.front()
    assert not study.inexact()
    whole = run(space_of(constraints={"DSP": 400}), tmp_path / "whole.sqlite", FakeMeasure())
    for place in study.front():
        point = study.points[place]
        assert point.figures == whole.outcomes[assignment_text(point.assignment)].figures
    for network in NETWORKS:
        best, exact = study.best_of(network.name), whole.best_of(network.name)
        assert best is not None
        assert exact is not None
        assert study.points[best].figures == whole.outcomes[assignment_text(study.points[best].assignment)].figures
        least = min(each.measures[network.name].cycles for each in whole.points if each.status == "measured")
        assert whole.points[exact].measures[network.name].cycles == least
    inexact = [point for point in study.points if point.measures and not next(iter(point.measures.values())).exact]
    assert inexact
    calls = len(fake.calls)
    again = run(space, tmp_path / "e.sqlite", fake, judge=judge)
    assert len(fake.calls) == calls
    assert [point.figures for point in again.points] == [point.figures for point in study.points]


def test_layers_are_judged_by_default(tmp_path: Path) -> None:
    """With the real judge: the layers are in the study's own database."""
    space = Space.model_validate({"base": "tiny", "core": {"wgt_kib": [4, 16]}, "compiler": {"chains": False},
                                  "search": {"judge": "layers"}})  # fmt: skip
    with Database(tmp_path / "e.sqlite") as database:
        study = explore(space, [open_network(DIGITS)], database, workers=0)
    assert study.count("measured") == 2
    assert not study.inexact()
    with sqlite3.connect(tmp_path / "e.sqlite") as connection:
        ((kept,),) = connection.execute("SELECT count(*) FROM results WHERE kernel LIKE 'alone %'")
    assert kept
