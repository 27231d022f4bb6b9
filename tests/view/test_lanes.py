"""Cores that share a model, on the page of `weft view`: a lane for each with its programs, and what a click opens."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import weft
from weft.compiler.model import CompiledModel
from weft.hw.config import PYNQ, TINY, CoreConfig
from weft.hw.isa import Finish
from weft.hw.programs import assemble
from weft.runtime.device import memory_of
from weft.runtime.profile_shared import profile_shared
from weft.view.lanes import as_one_core_has_it, lanes, usual_system
from weft.view.page import view_page
from weft.view.side import side

from tests.browser import shown_by_browser

from .conftest import DIGITS

WAYS = {"stages": {"stages": 2}, "split": {"split": 2}, "unlike": {"cores": (TINY, PYNQ)}}


@pytest.fixture(scope="module", params=WAYS)
def shared(request: pytest.FixtureRequest) -> CompiledModel:
    options: dict[str, Any] = WAYS[request.param]
    model = weft.compile(DIGITS, **({} if "cores" in options else {"config": TINY}), **options)
    assert isinstance(model, CompiledModel)
    return model


def test_lanes_are_what_the_profile_says(shared: CompiledModel) -> None:
    system, dram = usual_system(shared), memory_of(shared)
    record, busiest = lanes(shared, system, dram)
    measured = profile_shared(shared, system, dram)
    assert (record["cycles"], record["items"]) == (measured.cycles, measured.items)
    for core, lane in enumerate(record["cores"]):
        assert lane["busy"] == measured.busy(core) <= measured.busy(busiest)
        assert dict(lane["waits"]) == measured.waits[core]
        work = [(each["start"], each["stop"], each["turn"], each["item"]) for each in lane["work"]]
        assert work == [(each.start, each.stop, each.turn, each.item) for each in measured.work[core]]
    on_core = {number for number, layer in enumerate(shared.layers) if layer.device == "core"}
    assert {layer for lane in record["cores"] for each in lane["work"] for layer in each["layers"]} == on_core


def test_a_page_has_the_lanes_and_the_cycles_of_all(shared: CompiledModel) -> None:
    dram = memory_of(shared)
    made = side(shared, dram, {})
    record, busiest = lanes(shared, usual_system(shared), dram)
    assert made["lanes"] == record
    per_item = [
        sum(each["stop"] - each["start"] for each in lane["work"]) // record["items"] for lane in record["cores"]
    ]
    assert made["cycles"] == (per_item[busiest] if record["split"] else sum(per_item))
    if record["split"]:
        alone = as_one_core_has_it(shared, busiest)
        assert (alone.shared_by, len(alone.programs)) == (1, len(shared.programs) // 2)
    whole = weft.compile(DIGITS, TINY)
    assert isinstance(whole, CompiledModel)
    if len(whole.layers) == len(shared.layers):  # who reads what is the same, whoever does it
        assert made["graph"]["edges"] == side(whole, dram, {})["graph"]["edges"]
    probe = """
      const settle = async () => { let seen; do { seen = shown; await seen; } while (seen !== shown); };
      await settle();
      const bars = [...document.querySelectorAll(".cores .work")];
      bars.at(-1).dispatchEvent(new MouseEvent("click"));
      await settle();
      const texts = [...document.querySelectorAll(".cores text")].map(each => each.firstChild.textContent);
      return { bars: bars.length, texts, layer: state.layer };
    """
    found = shown_by_browser(view_page([made]), probe, "--window-size=1300,1000")
    assert found["bars"] == sum(len(lane["work"]) for lane in record["cores"])
    assert [text.split(":")[0] for text in found["texts"]] == [
        f"core {number}, {lane['name']}" for number, lane in enumerate(record["cores"])
    ]
    assert found["layer"] == record["cores"][-1]["work"][-1]["layers"][0]


def test_a_core_may_have_nothing_in_a_turn(shared: CompiledModel) -> None:
    code, busiest = assemble(TINY, [Finish()]), lanes(shared, usual_system(shared), memory_of(shared))[1]
    first = next(step for step in shared.programs if busiest == (step.core if shared.shared_by > 1 else step.stage))
    if shared.on_core.config_of(first) != TINY:
        return
    nothing = replace(first, program=code, layer_of=first.layer_of[-1:], tile_of=first.tile_of[-1:])
    steps = tuple(nothing if step is first else step for step in shared.steps)
    made = side(replace(shared, steps=steps), memory_of(shared), {})
    assert made["cycles"] > 0


def test_one_core_has_no_lanes(digits: CompiledModel) -> None:
    assert side(digits, memory_of(digits), {})["lanes"] is None


def test_cores_of_a_system_are_shown_by_their_names() -> None:
    slow = CoreConfig(name="slow", block_in=8, block_out=8)
    model = weft.compile(DIGITS, cores=(slow, PYNQ))
    assert isinstance(model, CompiledModel)
    assert ("core", "slow, pynq") in side(model, memory_of(model), {})["facts"]
