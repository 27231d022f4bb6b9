"""The profile of several cores: sums that have to be right, and what a bus that is shared has to show."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
import weft
from weft.hw.config import TINY
from weft.runtime.profile_cycles import Cause
from weft.runtime.profile_system import SystemProfile, profile_system
from weft.runtime.profile_system_report import bus_records, core_records, layer_records
from weft.runtime.trace_system import write_system
from weft.sim.dram import DramModel
from weft.sim.dram_kinds import parse_dram_kind

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx"
MEMORY = DramModel(latency=40, bytes_per_cycle=4)
SYSTEMS = {
    "one port": weft.SystemConfig(name="one port", cores=(TINY,) * 3),
    "shared reads": weft.SystemConfig(name="shared reads", cores=(TINY,) * 3, shared_reads=True),
    "two ports": weft.SystemConfig(name="two ports", cores=(TINY,) * 3, ports=(0, 1, 0)),
}


@pytest.fixture(scope="module")
def model() -> weft.CompiledModel:
    compiled = weft.compile(DIGITS, TINY)
    assert isinstance(compiled, weft.CompiledModel)
    return compiled


@pytest.fixture(scope="module", params=SYSTEMS)
def measured(request: pytest.FixtureRequest, model: weft.CompiledModel) -> SystemProfile:
    return profile_system(model, SYSTEMS[request.param], MEMORY)


def test_cycles_are_those_of_a_run(model: weft.CompiledModel, measured: SystemProfile) -> None:
    module = weft.load(model, measured.config, dram=MEMORY)
    spec = model.inputs[0]
    module.run([np.zeros(spec.shape, spec.dtype)] * 3)
    assert measured.cycles == module.cycles
    ends = [[core and core.cycles for core in result.cores] for result in module.results]
    assert [sum(each) for each in zip(*ends, strict=True)] == [core.together.cycles for core in measured.cores]
    assert module.profile().cycles == measured.cycles


@pytest.mark.parametrize("name", SYSTEMS)
def test_where_windows_lie_counts_in_a_dram_with_banks(name: str, model: weft.CompiledModel) -> None:
    memory = DramModel(latency=40, bytes_per_cycle=4, banks=parse_dram_kind("ddr3-1066x16"))
    module = weft.load(model, SYSTEMS[name], dram=memory)
    spec = model.inputs[0]
    module.run([np.zeros(spec.shape, spec.dtype)] * 3)
    profile = module.profile()
    assert profile.cycles == module.cycles
    assert [result.dram for result in module.results] == [profile.dram_use]


def test_what_a_core_loses_is_accounted_for_by_cause_and_by_layer(measured: SystemProfile) -> None:
    for core in measured.cores:
        assert sum(core.lost.values()) == core.waited
        assert abs(core.lost[Cause.ARRAY]) <= 0.01 * core.alone.cycles  # the work is the same
        assert sum(layer.cycles for layer in core.together.layers) == core.together.cycles
    alone = [core for core in measured.cores if measured.config.cores_of(core.port) == (core.core,)]
    assert all(core.waited == 0 and core.bursts_read is None for core in alone)
    assert all(core.waited > 0 for core in measured.cores if core not in alone)
    records = layer_records(measured)
    assert sum(record["alone"] for record in records) == measured.cores[0].alone.cycles
    assert records[0]["lost"] >= records[-1]["lost"]


def test_words_on_the_bus_are_the_bytes_of_the_cores(measured: SystemProfile) -> None:
    shares = measured.config.shared_reads
    for port in measured.ports:
        several = port.words(None, writes=False)
        assert (several > 0) == shares
        assert port.words(None, writes=True) == 0
        for number in port.cores:
            results = [run.result for run in measured.cores[number].runs]
            read = sum(result.bytes_read for result in results) // TINY.bus_bytes
            assert port.words(number, writes=True) * TINY.bus_bytes == sum(each.bytes_written for each in results)
            if not shares:
                assert port.words(number, writes=False) == read
            else:
                assert read - several <= port.words(number, writes=False) < read
    assert [record["core"] for record in bus_records(measured.ports)].count("several") == len(measured.ports)
    for record in core_records(measured):
        if record["bursts_read"] is not None:
            assert (record["bursts_shared"] > 0) == shares


def test_bins_of_the_bus_sum_to_its_words(measured: SystemProfile) -> None:
    for port in measured.ports:
        for bins in (1, 7, 200):
            edges = np.unique(np.linspace(0, measured.cycles, bins + 1).astype(np.int64))
            for core in (*port.cores, None):
                for writes in (False, True):
                    binned = port.binned(edges, core, writes=writes)
                    assert binned.sum() == port.words(core, writes=writes)
                    assert (binned >= 0).all()
                    assert (binned <= np.diff(edges)).all()


def test_the_trace_has_every_core_and_every_bus(
    model: weft.CompiledModel, measured: SystemProfile, tmp_path: Path
) -> None:
    path = tmp_path / "trace.json.gz"
    slices = write_system(model, measured, path)
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    assert sum(event["ph"] == "X" for event in events) == slices
    titles = [event["args"]["name"] for event in events if event["name"] == "process_name"]
    several = len(model.programs) > 1
    cores = [f"core {core}" + (f", program {n}" if several else "") for core in range(3)
             for n in range(len(model.programs))]  # fmt: skip
    assert titles == [*cores, *(f"bus of port {port.port}" for port in measured.ports)]
    bus = [event for event in events if event.get("cat") == "bus"]
    words = sum(port.words(core, writes=kind) for port in measured.ports for core in (*port.cores, None)
                for kind in (False, True))  # fmt: skip
    assert sum(event["dur"] for event in bus) == words
    assert max(event["ts"] + event["dur"] for event in events if event["ph"] == "X") <= measured.cycles


def test_traces_change_no_cycle_and_are_those_of_one_core_on_a_port_of_its_own(model: weft.CompiledModel) -> None:
    measured = profile_system(model, SYSTEMS["two ports"], MEMORY)
    single, first = measured.cores[1], measured.cores[1].alone
    assert [layer.causes for layer in single.together.layers] == [layer.causes for layer in first.layers]
