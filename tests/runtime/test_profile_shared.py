"""The profile of a model that cores share: its cycles are those of a run, and each of a core is accounted for."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import weft
from weft.hw.config import TINY
from weft.hw.pipelines import HANDOVER_CYCLES
from weft.runtime.errors import DeviceError
from weft.runtime.pipeline_module import PipelineModule
from weft.runtime.plots import write_shared_plot
from weft.runtime.profile_shared import ITEMS_A_STAGE, SharedProfile, profile_shared, window_start
from weft.runtime.profile_shared_report import cause_records, core_records, turn_records
from weft.runtime.split_module import SplitModule
from weft.runtime.trace_system import PROGRAMS, write_shared
from weft.sim.dram import DramModel
from weft.sim.dram_interface import DramUse
from weft.sim.dram_kinds import parse_dram_kind

from .items import DIGITS, PAIR, images

MEMORY = DramModel(latency=40, bytes_per_cycle=4)
BANKED = replace(MEMORY, banks=parse_dram_kind("ddr3-1066x16"))
SYSTEMS = {
    "rounds": PAIR,
    "relay": replace(PAIR, relay=True),
    "one port": replace(PAIR, ports=(0, 0)),
    "one port, relay": replace(PAIR, ports=(0, 0), relay=True),
}
Measured = tuple[SharedProfile, PipelineModule | SplitModule]


@pytest.fixture(scope="module", params=["split", "stages"])
def model(request: pytest.FixtureRequest) -> weft.CompiledModel:
    compiled = weft.compile(DIGITS, TINY, **{request.param: 2})
    assert isinstance(compiled, weft.CompiledModel)
    return compiled


@pytest.fixture(scope="module", params=SYSTEMS)
def measured(request: pytest.FixtureRequest, model: weft.CompiledModel) -> Measured:
    return measure(model, SYSTEMS[request.param], MEMORY)


def measure(model: weft.CompiledModel, system: weft.SystemConfig, memory: DramModel) -> Measured:
    """A profile, and a module after a run of as many items."""
    module = weft.load(model, system=system, dram=memory)
    assert isinstance(module, PipelineModule | SplitModule)
    profile = module.profile()
    module.run(images(model, profile.items))
    return profile, module


def test_cycles_are_those_of_a_run(measured: Measured) -> None:
    profile, module = measured
    assert profile.cycles == module.cycles
    assert profile.items == (1 if isinstance(module, SplitModule) else 2 * ITEMS_A_STAGE)
    for core, use in enumerate(module.use()):
        assert (profile.busy(core), profile.waited(core)) == (use.cycles, use.waited)
    if isinstance(module, SplitModule):
        assert profile.starts == module.starts
    elif module.relays:
        assert (profile.starts, profile.config.relay) == (1, True)


def test_where_windows_lie_counts_in_a_dram_with_banks(model: weft.CompiledModel) -> None:
    for system in SYSTEMS.values():
        profile, module = measure(model, system, BANKED)
        assert profile.cycles == module.cycles
        relayed = module.relayed if isinstance(module, SplitModule) else filter(None, [module.relayed])
        uses = [done.dram for done in (*relayed, *module.results) if done.dram is not None]
        assert profile.dram_use == sum(uses, DramUse())
        pitch = 0 if model.shared_by > 1 else module.device.pitch
        count = 4 if system.relay else 2
        assert [window_start(model, system, item) for item in range(5)] == [item % count * pitch for item in range(5)]


def test_every_cycle_of_a_core_is_work_or_a_wait(measured: Measured) -> None:
    profile, _ = measured
    for core, waits in enumerate(profile.waits):
        assert profile.busy(core) + sum(waits.values()) == profile.cycles
        assert waits.get(core, 0) % HANDOVER_CYCLES == 0
        assert bool(waits.get(core, 0)) == profile.config.relay
        for before, after in zip(profile.work[core], profile.work[core][1:], strict=False):
            assert before.stop <= after.start


def test_records_say_who_waits_for_whom(measured: Measured) -> None:
    profile, module = measured
    first, second = core_records(profile)
    assert (first["for_1"], second["for_0"]) == (profile.waits[0].get(1, 0), profile.waits[1].get(0, 0))
    assert sum(record["busy"] for record in (first, second)) == sum(map(profile.busy, (0, 1)))
    turns = turn_records(profile)
    if isinstance(module, SplitModule):
        assert len(turns) == module.turns
        assert sum(turn["longest"] for turn in turns) + HANDOVER_CYCLES * (module.turns - profile.starts) == (
            profile.cycles
        )
        assert turns[-1]["idle"] == abs(turns[-1]["core_0"] - turns[-1]["core_1"]) > 0
        assert turns[0]["layers"] == ["conv1"]
    else:
        assert [turn["core_0"] is None for turn in turns] == [False, True]
        assert "conv1" in turns[0]["layers"]


@pytest.fixture(scope="module")
def traced(measured: Measured) -> SharedProfile:
    profile, _ = measured
    return profile_shared(profile.model, profile.config, MEMORY, trace=True)


def test_traces_change_no_cycle_and_have_every_run(measured: Measured, traced: SharedProfile) -> None:
    assert measured[0] == replace(traced, ports=())
    for own in traced.work:
        for work in own:
            assert work.trace is not None
            activity, events = work.trace.activity, work.trace.events
            cycles: Counter[int] = Counter()
            for use in activity:
                cycles[int(use["engine"])] += int(use["cycles"])
            assert set(cycles.values()) == {work.cycles}
            assert sorted(events["number"].tolist()) == list(range(len(work.step.layer_of) - 1))  # FINISH is none
            assert events["retire"].max(initial=0) <= work.cycles
    sums = [sum(count for name, count in record.items() if name not in ("core", "busy")) for record in
            cause_records(traced)]  # fmt: skip
    assert sums == [traced.busy(core) for core in range(2)]


def test_words_on_a_shared_bus_are_those_of_the_programs(measured: Measured, traced: SharedProfile) -> None:
    _, module = measured
    assert len(traced.ports) == (len(set(traced.config.ports)) == 1)
    for port in traced.ports:
        for core, use in enumerate(module.use()):
            words = [port.words(core, writes=kind) for kind in (False, True)]
            assert [each * TINY.bus_bytes for each in words] == [use.bytes_read, use.bytes_written]
            spans = [range(work.start, work.stop) for work in traced.work[core]]
            starts = port.uses["start"][port.uses["cores"] == 1 << core]
            assert all(any(start in span for span in spans) for start in starts.tolist())


def test_the_timeline_has_every_core_its_waits_and_every_bus(traced: SharedProfile, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    slices = write_shared(traced, path)
    events = json.loads(path.read_text())["traceEvents"]
    assert sum(event["ph"] == "X" for event in events) == slices
    names = {event["args"]["name"] for event in events if event["name"] == "process_name"}
    assert names == {"core 0", "core 1", *(f"bus of port {port.port}" for port in traced.ports)}
    for core in range(2):
        own = [event for event in events if event["ph"] == "X" and event["pid"] == core]
        spans = sorted((each["ts"], each["ts"] + each["dur"]) for each in own if each["tid"] == PROGRAMS)
        assert (spans[0][0], spans[-1][1]) == (0, traced.cycles)
        assert all(before[1] == after[0] for before, after in pairwise(spans))
        works = [event for event in own if event["tid"] < PROGRAMS]
        assert all(any(work.start <= event["ts"] < work.stop for work in traced.work[core]) for event in works)
    arrows = Counter(event["id"] for event in events if event.get("cat") == "token")
    assert set(arrows.values()) == {2}


def test_a_module_writes_the_timeline_of_its_last_run(measured: Measured, tmp_path: Path) -> None:
    profile, module = measured
    assert module.write_trace(tmp_path / "run.json") > 0
    ends = [event["ts"] + event["dur"] for event in json.loads((tmp_path / "run.json").read_text())["traceEvents"]
            if event["ph"] == "X"]  # fmt: skip
    assert max(ends) == profile.cycles
    fresh = weft.load(profile.model, system=profile.config, dram=MEMORY)
    assert isinstance(fresh, PipelineModule | SplitModule)
    with pytest.raises(DeviceError, match="there is nothing to draw: 'digits' has not run; hint: run it, then write"):
        fresh.write_trace(tmp_path / "none.json")
    with pytest.raises(DeviceError, match=r"hint: weft\.load makes one; a model on several cores has its own"):
        weft.write_trace(module, tmp_path / "none.json")  # type: ignore[arg-type]


def test_turns_go_on_where_the_host_starts_again(model: weft.CompiledModel) -> None:
    if model.shared_by == 1:
        return
    made = model.programs[3].outputs[0]
    slot = model.on_core.slots[made]
    tensor = replace(model.outputs[0], name=made, shape=slot.shape, dtype=str(slot.dtype))
    profile, module = measure(replace(model, outputs=(*model.outputs, tensor)), SYSTEMS["relay"], MEMORY)
    assert isinstance(module, SplitModule)
    assert (profile.cycles, profile.starts) == (module.cycles, 2)
    for own in profile.work:
        assert [each.turn for each in own] == [each.step.turn for each in own] == list(range(module.turns))


def test_a_picture_has_a_row_for_each_core(measured: Measured, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    profile, _ = measured
    (path,) = write_shared_plot(profile, tmp_path, ("svg",))
    assert path.stat().st_size > 1000


def test_a_system_of_other_cores_is_refused(model: weft.CompiledModel) -> None:
    with pytest.raises(DeviceError, match="but the system has 3"):
        profile_shared(model, replace(PAIR, cores=(TINY,) * 3, ports=()), MEMORY)
