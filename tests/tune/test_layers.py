"""Sums of layers: near the linked program, kept in the database, refused with the compiler's reason."""

from __future__ import annotations

import gc
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import pytest
from weft.compiler.targets.errors import CompileError
from weft.compiler.tune.database import Database
from weft.compiler.tune.errors import TuningError
from weft.explore.measure import (
    Network,
    integer_module,
    integers,
    measure,
    measure_layers,
    open_network,
    packed,
)
from weft.explore.space import Design
from weft.hw.config import PYNQ, TINY
from weft.hw.dram_rate import DramRate
from weft.tune.layers import KernelCost, LayerCost, LayerJudge, loaded_ahead

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx"
DESIGN = Design(TINY, DramRate(bytes_per_cycle=TINY.bus_bytes), 2, chains=False)


@pytest.fixture(scope="module")
def digits() -> Network:
    return open_network(DIGITS)


@pytest.mark.parametrize("design", [DESIGN, replace(DESIGN, config=PYNQ, rate=DramRate(bytes_per_cycle=4))])
def test_the_sum_is_near_the_linked_program(digits: Network, design: Design) -> None:
    whole, layers = measure(design, digits), measure_layers(design, digits)
    assert whole.exact
    assert not layers.exact
    assert layers.macs == whole.macs
    assert whole.cycles < layers.cycles < 1.25 * whole.cycles  # its layers are short
    assert 0.9 * whole.bytes_read < layers.bytes_read < 1.1 * whole.bytes_read
    assert layers.bytes_written == whole.bytes_written
    assert [row[:2] for row in layers.layers] == [row[:2] for row in whole.layers]
    assert sum(row[2] for row in layers.layers) == layers.cycles
    assert 0.8 * whole.vector < layers.vector < 1.2 * whole.vector
    assert 0.8 * whole.array < layers.array < 1.2 * whole.array


def test_what_designs_share_is_done_once(digits: Network) -> None:
    module = integers(DESIGN, digits)
    before = integer_module.cache_info().misses
    packed(DESIGN, digits)
    assert integers(replace(DESIGN, vthreads=1), digits) is module
    assert integer_module.cache_info().misses == before


def test_waits_for_weights_are_less_by_what_the_bus_had_time_for() -> None:
    """At 8 bytes a cycle, with room for 6,144 cycles of weights."""
    config, rate = replace(PYNQ, wgt_depth=256), DramRate(bytes_per_cycle=8)

    def layer(cycles: int, waits: int, moved: int) -> LayerCost:
        return LayerCost("", "", 0, KernelCost(cycles, waits, 0, 0, 8 * moved, 0))

    layers = [layer(1000, 300, 900), layer(2000, 150, 500), layer(900, 700, 900), layer(60000, 0, 1000),
              layer(50000, 40000, 50000), layer(5000, 4000, 5000)]  # fmt: skip
    found = loaded_ahead(layers, config, rate)
    assert [each.cost.cycles for each in found] == [1000, 1900, 200, 60000, 50000 - 6144, 5000]
    assert [each.cost.waits for each in found] == [300, 50, 0, 0, 40000 - 6144, 4000]
    assert loaded_ahead([], config, rate) == []


def judge_with(database: Database | None, design: Design = DESIGN) -> LayerJudge:
    return LayerJudge(design.config, design.rate, design.vthreads, database)


def test_what_is_known_is_not_compiled_again(digits: Network, tmp_path: Path) -> None:
    module = packed(DESIGN, digits)
    with Database(tmp_path / "t.sqlite") as database:
        first = judge_with(database)
        layers = first.layers(module)
        assert 0 < first.judged <= len(layers)
        assert first.layers(module) == layers
        second = judge_with(database)
        assert second.layers(module) == layers
        assert second.judged == 0
        slower = judge_with(database, replace(DESIGN, rate=DramRate(bytes_per_cycle=1)))
        assert sum(each.cost.cycles for each in slower.layers(module)) > sum(each.cost.cycles for each in layers)
        assert slower.judged == first.judged
        threads = judge_with(database, replace(DESIGN, vthreads=1))
        threads.layers(module)
        assert threads.judged == first.judged
    assert judge_with(None).layers(module) == layers


def test_refusals_are_kept_with_their_reasons(digits: Network, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise CompileError("no room for a tile")

    module = packed(DESIGN, digits)
    with Database(tmp_path / "t.sqlite") as database:
        with monkeypatch.context() as patched:
            patched.setattr("weft.tune.layers.slice_program", refuse)
            with pytest.raises(CompileError, match="no room for a tile") as first:
                judge_with(database).layers(module)
        assert "function" in str(first.value)
        again = judge_with(database)
        with pytest.raises(CompileError, match="no room for a tile"):
            again.layers(module)
        assert again.judged == 0


def test_a_strange_record_is_no_cost(digits: Network, tmp_path: Path) -> None:
    module = packed(DESIGN, digits)
    with Database(tmp_path / "t.sqlite") as database:
        judge = judge_with(database)
        judge.layers(module)
        text = next(iter(judge._known))
        database.add(judge._key(text), {"vthreads": 2}, 5.0, features={"cycles": 5})
        with pytest.raises(TuningError, match="no cost of a kernel"):
            judge_with(database).layers(module)


@pytest.mark.parametrize("enabled", [True, False])
def test_the_collector_waits_for_a_layer_and_is_then_as_it_was(
    digits: Network, monkeypatch: pytest.MonkeyPatch, enabled: bool
) -> None:
    seen = []

    def refused(*_: object) -> NoReturn:
        seen.append(gc.isenabled())
        raise CompileError("no room")

    monkeypatch.setattr("weft.tune.layers.slice_program", refused)
    module, judge = packed(DESIGN, digits), judge_with(None)
    was_enabled = gc.isenabled()
    (gc.enable if enabled else gc.disable)()
    try:
        with pytest.raises(CompileError, match="no room"):
            judge.layers(module)
        assert gc.isenabled() is enabled
    finally:
        (gc.enable if was_enabled else gc.disable)()
    assert seen == [False]
