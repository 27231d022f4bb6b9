"""Traces: arrows from token to wait, counters of DRAM traffic, and the same from the timing model as from the RTL."""

from __future__ import annotations

import errno
import gzip
import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import weft
from weft.compiler.model import CompiledModel
from weft.hw import isa
from weft.hw.config import PYNQ, TINY
from weft.hw.isa import Engine, Instruction
from weft.hw.programs import disassemble
from weft.runtime.module import LoadedModule, StepRun
from weft.runtime.profile_whatif import predict_runs
from weft.runtime.report import engine_records, layer_records
from weft.runtime.trace import write_events, write_runs, write_trace
from weft.runtime.trace_tokens import tokens, traffic
from weft.sim.dram import DramModel
from weft.sim.result import EVENT

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx"
Json = dict[str, Any]


@pytest.fixture(scope="module")
def compiled() -> CompiledModel:
    return weft.compile(DIGITS, PYNQ)


@pytest.fixture(scope="module")
def run(compiled: CompiledModel) -> StepRun:
    (run,) = predict_runs(compiled, DramModel())
    return run


@pytest.fixture(scope="module")
def events(compiled: CompiledModel, tmp_path_factory: pytest.TempPathFactory) -> list[Json]:
    """Of a model that runs twice, so that there are two programs."""
    path = tmp_path_factory.mktemp("trace") / "digits.json"
    write_runs(compiled, predict_runs(compiled, DramModel()) * 2, path)
    loaded: list[Json] = json.loads(path.read_text())["traceEvents"]
    return loaded


def lives(run: StepRun) -> dict[int, tuple[int, int]]:
    """Start and retirement by number of the instruction."""
    assert run.result.trace is not None
    return {number: (start, retire) for _, number, start, retire in run.result.trace.events.tolist()}


def test_every_wait_gets_a_token_that_was_sent_before_it(compiled: CompiledModel, run: StepRun) -> None:
    instructions = disassemble(compiled.config, run.step.program)
    assert run.result.trace is not None
    pairs = tokens(instructions, run.result.trace.events)
    life = lives(run)
    assert len(pairs) == sum(item.wait.bit_count() for item in instructions)
    used = Counter[tuple[int, Engine]]()
    for pair in pairs:
        sender, receiver = instructions[pair.sender], instructions[pair.receiver]
        assert sender.send >> receiver.engine & 1
        assert receiver.wait >> sender.engine & 1
        assert life[pair.sender][1] < life[pair.receiver][0]
        used[pair.sender, receiver.engine] += 1
    assert set(used.values()) == {1}


def test_tokens_are_taken_in_the_order_in_which_they_were_sent() -> None:
    load, gemm = (isa.engine_mask([engine]) for engine in (Engine.LOAD, Engine.GEMM))
    program: list[Instruction] = [
        isa.Sync(engine=Engine.LOAD, send=gemm),
        isa.Sync(engine=Engine.LOAD, send=gemm),
        isa.Sync(engine=Engine.GEMM, wait=load),
        isa.Sync(engine=Engine.GEMM),
        isa.Sync(engine=Engine.GEMM, wait=load),
        isa.Sync(engine=Engine.LOAD, send=gemm),  # nobody takes this one
    ]
    ends = [3, 9, 5, 6, 12, 14]
    recorded = np.array([(item.engine, n, ends[n] - 1, ends[n]) for n, item in enumerate(program)], EVENT)
    pairs = tokens(program, recorded[np.argsort(ends)])
    assert [(pair.sender, pair.receiver) for pair in pairs] == [(0, 2), (1, 4)]


def test_traffic_sums_to_the_bytes_of_the_run(compiled: CompiledModel, run: StepRun) -> None:
    assert run.result.trace is not None
    assert run.result.cycles is not None
    instructions = disassemble(compiled.config, run.step.program)
    edges = np.linspace(0, run.result.cycles, 50).astype(np.int64)
    moved = traffic(compiled.config, instructions, run.result.trace.events, edges)
    assert set(moved) == {Engine.LOAD, Engine.LOADW, Engine.STORE}
    read = moved[Engine.LOAD].sum() + moved[Engine.LOADW].sum()
    assert read == pytest.approx(run.result.bytes_read - run.step.program.nbytes, abs=1e-6)
    assert moved[Engine.STORE].sum() == pytest.approx(run.result.bytes_written, abs=1e-6)


def test_traffic_of_a_transfer_begins_after_the_one_before_it() -> None:
    """Both start early, since the engine works ahead; the second's bytes come when the first's are there."""
    program = [
        isa.Load(scratchpad=isa.Scratchpad.INP, index=0, offset=0, rows=1, columns=columns) for columns in (4, 8, 0)
    ]
    recorded = np.array([(Engine.LOAD, 0, 0, 10), (Engine.LOAD, 1, 2, 30), (Engine.LOAD, 2, 30, 31)], EVENT)
    moved = traffic(TINY, program, recorded, np.array([0, 5, 10, 20, 30, 40]))
    assert moved[Engine.LOAD].tolist() == [2 * TINY.inp_bytes, 2 * TINY.inp_bytes, 4 * TINY.inp_bytes,
                                           4 * TINY.inp_bytes, 0]  # fmt: skip


def test_every_arrow_leads_forward_from_slice_to_slice(compiled: CompiledModel, events: list[Json]) -> None:
    slices = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            slices[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    starts = {event["id"]: event for event in events if event["ph"] == "s"}
    ends = {event["id"]: event for event in events if event["ph"] == "f"}
    assert len(starts) == sum(event["ph"] == "s" for event in events) > 100
    assert starts.keys() == ends.keys()
    for number, start in starts.items():
        end = ends[number]
        assert start["ts"] < end["ts"]
        assert start["pid"] == end["pid"]
        assert any(low <= start["ts"] < high for low, high in slices[start["pid"], start["tid"]])
        assert any(low == end["ts"] for low, _ in slices[end["pid"], end["tid"]])


def test_slices_are_in_order_and_an_engine_always_says_what_it_does(events: list[Json], run: StepRun) -> None:
    tracks = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            tracks[event["pid"], event["tid"]].append(event)
    for track in tracks.values():
        assert all(one["ts"] + one["dur"] <= other["ts"] for one, other in pairwise(track))
    activity = [track for track in tracks.values() if track[0]["cat"] == "activity"]
    assert len(activity) == 2 * len(Engine)
    assert {sum(event["dur"] for event in track) for track in activity} == {run.result.cycles}


def test_counters_add_up_to_the_bytes_of_the_run(events: list[Json], run: StepRun) -> None:
    values = defaultdict(list)
    for event in events:
        if event["ph"] == "C" and event["pid"] == 1:
            values[event["name"]].append((event["ts"], event["args"]["a cycle"]))
    assert set(values) == {
        "DRAM bytes read by load", "DRAM bytes read by loadw", "DRAM bytes written by store",
    }  # fmt: skip
    total = 0.0
    for counter in values.values():
        assert counter[-1][1] == 0
        total += sum(rate * (later - cycle) for (cycle, rate), (later, _) in pairwise(counter))
    expected = run.result.bytes_read - run.step.program.nbytes + run.result.bytes_written
    assert total == pytest.approx(expected, rel=1e-3)


def test_fsim_writes_the_trace_and_the_tables_that_rtl_writes(compiled: CompiledModel, tmp_path: Path) -> None:
    slot = compiled.inputs[0]
    modules: list[LoadedModule] = []
    for device in ("fsim", "rtl"):
        modules.append(weft.load(compiled, device))
        modules[-1].run(np.zeros(slot.shape, slot.dtype), trace=True)
        write_trace(modules[-1], tmp_path / device)
    first, second = modules
    assert first.cycles == second.cycles
    on_core = [[record for record in layer_records(each) if record["on"] == "core"] for each in modules]
    assert on_core[0] == on_core[1]
    assert len(on_core[0]) > 3
    assert engine_records(first) == engine_records(second)
    assert (tmp_path / "fsim").read_bytes() == (tmp_path / "rtl").read_bytes()


# The file


@pytest.mark.parametrize("name", ["run.json", "run.json.gz"])
def test_a_timeline_that_is_interrupted_leaves_no_file(name: str, tmp_path: Path) -> None:
    def events() -> Iterator[str]:
        yield '{"ph":"X"}'
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_events(tmp_path / name, "run", events())
    assert list(tmp_path.iterdir()) == []
    assert write_events(tmp_path / name, "run", ['{"ph":"X"}', '{"ph":"M"}']) == 1
    raw = (tmp_path / name).read_bytes()
    assert len(json.loads(gzip.decompress(raw) if name.endswith(".gz") else raw)["traceEvents"]) == 3


def test_a_full_disk_is_told_with_the_timelines_name() -> None:
    with pytest.raises(OSError, match="/dev/full") as refused:
        write_events("/dev/full", "run", ['{"ph":"X"}'] * 10_000)
    assert refused.value.errno == errno.ENOSPC
