"""Reports are records, of which tables are made; placement is summarised by reason."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import numpy as np
import pytest
import weft
from rich.console import Console, RenderableType
from weft.compiler.model import CompiledModel, Layer
from weft.hw.isa import Engine
from weft.runtime.errors import DeviceError
from weft.runtime.module import LoadedModule
from weft.runtime.profile import profile
from weft.runtime.profile_report import (
    bound_records,
    bound_table,
    cause_records,
    cause_table,
    gemm_records,
    gemm_table,
    outcome_records,
    outcome_table,
)
from weft.runtime.profile_whatif import Outcome
from weft.runtime.report import (
    engine_records,
    engine_table,
    layer_records,
    layer_table,
    placement_records,
    placement_table,
    reason_records,
)
from weft.runtime.tables import Column, count, records_table, shape, share, total_of, words

from .conftest import SHAPE

X = np.zeros(SHAPE, np.float32)


def printed(*items: RenderableType, width: int = 180) -> str:
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(*items)
    return console.export_text()


def squeezed(*items: RenderableType) -> list[str]:
    return [" ".join(line.split()) for line in printed(*items).splitlines()]


@pytest.fixture
def module(model: CompiledModel) -> LoadedModule:
    module = weft.load(model, "fsim")
    module.run(X, trace=True)
    return module


def test_a_table_shows_each_record_and_the_totals() -> None:
    records = [
        {"name": "a", "n": 1200, "part": 0.25, "size": [1, 64], "note": None},
        {"name": "b [0]", "n": 0, "part": 0.75, "size": [2], "note": 2.5},
    ]
    columns = [words("name"), count("n"), share("part"), shape("size"), Column("note", "note", "{:.2f}".format)]
    total = {"name": "total", **total_of(records, "n", "part", "note")}
    lines = squeezed(records_table("all [of] it", columns, records, [total]))
    assert lines[0] == "all [of] it"
    assert "a 1,200 25.0% 1x64 -" in lines
    assert "b [0] 0 75.0% 2 2.50" in lines
    assert "total 1,200 100.0% 2.50" in lines


def test_records_of_a_run_are_json_and_sum_to_its_cycles(module: LoadedModule) -> None:
    layers, engines = layer_records(module), engine_records(module)
    assert json.loads(json.dumps([layers, engines])) == [layers, engines]
    assert sum(record["cycles"] or 0 for record in layers) == module.cycles
    for engine in Engine:
        assert sum(record[engine.name.lower()] for record in engines) == module.cycles
    assert {record["class"] for record in engines} >= {"busy", "memory"}


def test_tables_of_a_run_show_the_records(module: LoadedModule) -> None:
    text = squeezed(layer_table(module), engine_table(module))
    assert f"add 0 {module.cycles:,} 0.0% 24 24" in text
    assert f"total 0 {module.cycles:,} 0.0% 24 24" in text
    assert " ".join(["total", *[f"{module.cycles:,}"] * len(Engine)]) in text


def test_a_run_without_cycles_has_no_table_of_engines(model: CompiledModel) -> None:
    module = weft.load(model, "null")
    module.run(X)
    with pytest.raises(DeviceError, match="the last run on device 'null' has no cycles; hint: use 'fsim' or 'rtl'"):
        engine_table(module)


def many_layers(model: CompiledModel, count: int) -> CompiledModel:
    """Layers of which every third is on the host, for one of two reasons."""
    layer = next(layer for layer in model.layers if layer.device == "core")
    host: list[Layer] = []
    for number in range(count):
        on_host = number % 3 == 0
        reason = ["its result is used as float32", "softmax has no [integer] form"][number % 2] if on_host else ""
        host.append(replace(layer, name=f"node{number}", kind="host" if on_host else "conv2d", macs=number % 5,
                            device="numpy" if on_host else "core", reason=reason))  # fmt: skip
    return replace(model, layers=tuple(host))


def test_reasons_are_counted_with_their_work_and_first_names(model: CompiledModel) -> None:
    placements = placement_records(many_layers(model, 1200))
    assert json.loads(json.dumps(placements)) == placements
    reasons = reason_records(placements)
    assert [record["layers"] for record in reasons] == [200, 200]
    assert {tuple(record["first"]) for record in reasons} == {
        ("node0", "node6", "node12"), ("node3", "node9", "node15"),
    }  # fmt: skip
    assert sum(record["macs"] for record in reasons) == sum(number % 5 for number in range(0, 1200, 3))


def test_reasons_that_differ_in_names_alone_are_one(model: CompiledModel) -> None:
    first, second, third = many_layers(model, 3).layers
    layers = (
        replace(first, device="cpu", reason="softmax 'a' has no integer form"),
        replace(second, device="cpu", reason="softmax 'b' has no integer form"),
        replace(third, device="cpu", reason="input 'x' is float32"),
    )
    reasons = reason_records(placement_records(replace(model, layers=layers)))
    assert {(record["reason"], record["layers"]) for record in reasons} == {
        ("softmax has no integer form", 2), ("input 'x' is float32", 1),
    }  # fmt: skip


def test_the_placement_of_a_large_model_is_a_few_lines(model: CompiledModel) -> None:
    large = many_layers(model, 1200)
    lines = [line for line in squeezed(placement_table(large)) if line]
    assert len(lines) < 12
    assert lines[0] == "add_one on tiny: placement, by kind"
    assert "conv2d core 800 1,600 66.7%" in lines
    assert (
        "200 layers on numpy, 16.7% of the MACs: softmax has no [integer] form (node3, node9, node15 and 197 more)"
        in lines
    )
    full = [line for line in squeezed(placement_table(large, verbose=True)) if line]
    assert len(full) > 1600
    assert "node3 runs on numpy: softmax has no [integer] form" in full


def test_the_placement_of_a_small_model_names_every_layer(model: CompiledModel) -> None:
    lines = squeezed(placement_table(many_layers(model, 4)))
    assert "node1 conv2d 6x4 core 1 16.7%" in lines
    assert "1 layer on numpy: its result is used as float32 (node0)" in lines
    assert "1 layer on numpy, 50.0% of the MACs: softmax has no [integer] form (node3)" in lines


def test_tables_of_a_profile_show_its_records(module: LoadedModule) -> None:
    profiled = profile(module.model, module.runs, "fsim")
    for records, table in (
        (cause_records(profiled), cause_table(profiled)),
        (bound_records(profiled), bound_table(profiled)),
        (gemm_records(profiled), gemm_table(profiled)),
    ):
        assert json.loads(json.dumps(records)) == records
        assert records[0]["cycles"] == module.cycles
        lines = squeezed(table)
        assert sum(f"{module.cycles:,}" in line for line in lines) >= 2  # the layer's and the total's
    assert "add elementwise · ·" in " ".join(squeezed(bound_table(profiled)))


def test_the_table_of_bounds_shows_the_least_of_layers_together_once(module: LoadedModule) -> None:
    (layer,) = profile(module.model, module.runs, "fsim").layers
    profiled = replace(profile(module.model, module.runs, "fsim"), layers=(layer,) * 3)
    both, alone = ["one", "two"], ["three"]
    least = [{"least": 10, "times_the_least": times, "least_of": names}
             for times, names in ((1.5, both), (1.5, both), (1.25, alone))]  # fmt: skip
    records = bound_records(profiled, least)
    assert [each["times_the_least"] for each in records] == [1.5, 1.5, 1.25]
    lines = squeezed(bound_table(profiled, least, 3 * layer.cycles // 2))
    assert [line.rpartition(" ")[2] for line in lines if line.startswith("add ")] == ["1.500x", '"', "1.250x"]
    assert any(line.startswith("total") and line.endswith(f"{3 * layer.cycles / (3 * layer.cycles // 2):.3f}x")
               for line in lines)  # fmt: skip
    assert "of the least" not in " ".join(squeezed(bound_table(profiled)))


def test_outcomes_without_a_figure_have_a_reason() -> None:
    outcomes = [
        Outcome("as it is", 100, {"a": 60, "b": 40}),
        Outcome("faster", 50, {"a": 30}),
        Outcome("larger", None, why="no [room]"),
    ]
    assert [record["speedup"] for record in outcome_records(outcomes)] == [1, 2, None]
    lines = squeezed(outcome_table(outcomes))
    assert "a 60 30 (2.00x)" in lines
    assert "b 40 -" in lines
    assert "total 100 50 (2.00x)" in lines
    assert "larger: no figure, no [room]" in lines
