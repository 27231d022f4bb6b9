"""The profile: every cycle in one cause, told apart as a plain walk over the cycles would; tables, pictures, trace."""

from __future__ import annotations

import gzip
import io
import json
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import weft
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console, RenderableType
from typer.testing import CliRunner
from weft.cli import app
from weft.compiler.model import CompiledModel, CoreStep
from weft.hw.config import PYNQ
from weft.hw.isa import Engine, Opcode
from weft.runtime import profile_whatif
from weft.runtime.artifact import save
from weft.runtime.errors import DeviceError
from weft.runtime.module import StepRun
from weft.runtime.profile import Bounds, LayerProfile, Profile, memory_cycles, profile
from weft.runtime.profile_cycles import KINDS, Cause, ProgramCycles, Runs, totals
from weft.runtime.profile_report import bound_table, cause_table, gemm_table, outcome_table
from weft.runtime.profile_timeline import timeline
from weft.runtime.profile_whatif import predict_runs, variants, what_if
from weft.runtime.trace import layer_cycles, write_runs
from weft.sim.dram import DramModel
from weft.sim.result import ACTIVITY, EVENT, RunResult, Trace

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx"
LOAD, LOADW, GEMM, VECTOR, STORE = Engine
IDLE, BUSY, INSTRUCTION, MEMORY = (KINDS[name] for name in ("IDLE", "BUSY", "INSTRUCTION", "MEMORY"))


def token(engine: Engine) -> int:
    return KINDS["TOKEN_LOAD"] + engine


def made_run(
    kinds: dict[Engine, list[int]], events: list[tuple[Engine, int, int, int]], layers: list[int], opcodes: list[Opcode]
) -> StepRun:
    """A run whose engines spend cycle ``i`` in ``kinds[engine][i]``; events are (engine, number, start, retire)."""
    cycles = len(next(iter(kinds.values())))
    activity = []
    for engine in Engine:
        values = kinds.get(engine, [IDLE] * cycles)
        starts = [cycle for cycle in range(cycles) if cycle == 0 or values[cycle] != values[cycle - 1]]
        ends = [*starts[1:], cycles]
        activity += [(engine, values[start], start, end - start) for start, end in zip(starts, ends, strict=True)]
    trace = Trace(np.array(events, EVENT), np.array(activity, ACTIVITY))
    program = np.zeros((len(layers), 16), np.uint8)
    program[:, 0] = opcodes
    numbers = np.array(layers, np.int32)
    step = CoreStep(program.reshape(-1), 0, (), (), numbers, np.zeros_like(numbers))
    return StepRun(step, RunResult(cycles, None, 0, 0, trace=trace))


def cause_of_each_cycle(kinds: dict[Engine, list[int]]) -> list[Cause]:
    """The causes by a plain walk, for runs without waits for instructions."""
    result = []
    for cycle in range(len(kinds[GEMM])):
        engine = next((each for each in (GEMM, VECTOR, STORE, LOADW, LOAD) if kinds[each][cycle] != IDLE), LOAD)
        seen = set()
        while kinds[engine][cycle] >= KINDS["TOKEN_LOAD"] and engine not in seen:
            seen.add(engine)
            engine = Engine(kinds[engine][cycle] - KINDS["TOKEN_LOAD"])
        works = kinds[engine][cycle] in (BUSY, MEMORY, KINDS["CONFLICT"])
        own = {LOAD: Cause.INPUTS, LOADW: Cause.WEIGHTS, VECTOR: Cause.VECTOR, STORE: Cause.STORES}
        if engine == GEMM and kinds[engine][cycle] == BUSY:
            result.append(Cause.ARRAY)
        else:
            result.append(own.get(engine, Cause.TOKENS) if works else Cause.TOKENS)
    return result


@given(st.data(), st.integers(1, 40))
def test_causes_are_those_of_a_walk_over_the_cycles(data: st.DataObject, cycles: int) -> None:
    allowed = {
        engine: [kind for name, kind in KINDS.items() if name != "INSTRUCTION" and kind != token(engine)]
        for engine in Engine
    }
    lists = {
        engine: data.draw(st.lists(st.sampled_from(allowed[engine]), min_size=cycles, max_size=cycles))
        for engine in Engine
    }
    program = ProgramCycles(made_run(lists, [(GEMM, 0, 0, cycles)], [0], [Opcode.GEMM]), queue_depth=4)
    assert program.causes.at(np.arange(cycles)).tolist() == cause_of_each_cycle(lists)


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 3)), min_size=1, max_size=20), st.data())
def test_totals_add_up_what_a_walk_counts(pieces: list[tuple[int, int]], data: st.DataObject) -> None:
    values = [value for length, value in pieces for _ in range(length)]
    starts = np.cumsum([0, *(length for length, _ in pieces[:-1])])
    run = Runs(starts, np.array([value for _, value in pieces]), len(values))
    edges = sorted(data.draw(st.lists(st.integers(0, len(values)), min_size=2, max_size=6)))
    expected = [np.bincount(values[low:high], minlength=4).tolist() for low, high in pairwise(edges)]
    assert totals(np.array(edges), [run], [4]).tolist() == expected


def test_a_chain_of_tokens_leads_to_the_engine_that_works() -> None:
    kinds = {
        GEMM: [token(LOAD)] * 3 + [BUSY],
        LOAD: [token(STORE)] * 2 + [MEMORY] + [IDLE],
        STORE: [token(VECTOR), BUSY, IDLE, IDLE],
        VECTOR: [BUSY, IDLE, IDLE, IDLE],
    }
    program = ProgramCycles(made_run(kinds, [(GEMM, 0, 3, 4)], [0], [Opcode.GEMM]), queue_depth=4)
    assert program.causes.values.tolist() == [Cause.VECTOR, Cause.STORES, Cause.INPUTS, Cause.ARRAY]


@pytest.mark.parametrize(("queue_depth", "cause"), [(2, Cause.VECTOR), (3, Cause.INSTRUCTIONS)])
def test_a_full_queue_of_another_engine_is_why_no_instruction_comes(queue_depth: int, cause: Cause) -> None:
    """Fetch has to bring four vector instructions, of which one has started, before the one that gemm waits for."""
    kinds = {GEMM: [INSTRUCTION] * 8 + [BUSY], VECTOR: [BUSY] * 8 + [IDLE]}
    events = [(VECTOR, number, 2 * number, 2 * number + 2) for number in range(4)] + [(GEMM, 4, 8, 9)]
    run = made_run(kinds, events, [0, 0, 0, 0, 1], [Opcode.VECTOR] * 4 + [Opcode.GEMM])
    assert ProgramCycles(run, queue_depth).causes.at(np.array([0])).tolist() == [cause]


def test_a_layer_starts_and_ends_with_ramps() -> None:
    """LOOP is no work: the ramp lasts to the first micro-op. The last one's result still has to be stored."""
    kinds = {GEMM: [BUSY, token(LOAD), BUSY, BUSY, token(LOAD), BUSY, IDLE, IDLE], LOAD: [MEMORY] * 6 + [IDLE] * 2}
    kinds[STORE] = [IDLE] * 6 + [BUSY] * 2
    events = [(GEMM, 0, 0, 1), (GEMM, 1, 2, 4), (GEMM, 2, 5, 6), (STORE, 3, 6, 8)]
    run = made_run(kinds, events, [0, 0, 0, 0], [Opcode.LOOP, Opcode.GEMM, Opcode.GEMM, Opcode.STORE])
    program = ProgramCycles(run, queue_depth=4)
    span = program.spans[0]
    assert (span.start, span.fill, span.drain, span.end, span.main) == (0, 2, 6, 8, GEMM)
    counts = dict(zip(Cause, program.layer_causes()[0].tolist(), strict=True))
    assert {cause: count for cause, count in counts.items() if count} == {
        Cause.ARRAY: 4, Cause.RAMP: 3, Cause.INPUTS: 1,
    }  # fmt: skip
    assert program.work(GEMM, 1).tolist() == [3]


def test_a_run_without_a_trace_is_refused() -> None:
    run = made_run({GEMM: [BUSY]}, [(GEMM, 0, 0, 1)], [0], [Opcode.GEMM])
    untraced = StepRun(run.step, replace(run.result, trace=None))
    with pytest.raises(DeviceError, match=r"recorded no trace.*; hint: run\(\.\.\., trace=True\) on a device"):
        ProgramCycles(untraced, 4)


def test_reads_and_writes_share_the_dram_but_not_the_bus() -> None:
    assert memory_cycles(PYNQ, DramModel(bytes_per_cycle=8), 800, 160) == 120
    assert memory_cycles(PYNQ, DramModel(bytes_per_cycle=64), 800, 160) == 100


@pytest.mark.parametrize(
    ("causes", "bounds", "verdict"),
    [
        ({Cause.ARRAY: 95, Cause.INPUTS: 5}, Bounds(94, 95, 9, 60), "array-bound"),
        ({Cause.ARRAY: 95, Cause.INPUTS: 5}, Bounds(20, 95, 9, 60), "array-bound, padding"),
        ({Cause.ARRAY: 10, Cause.WEIGHTS: 90}, Bounds(9, 10, 9, 98), "memory-bound"),
        ({Cause.ARRAY: 10, Cause.VECTOR: 90}, Bounds(9, 10, 92, 60), "vector-bound"),
        ({Cause.ARRAY: 50, Cause.STORES: 40, Cause.RAMP: 10}, Bounds(50, 50, 9, 60), "waits for stores (40%)"),
    ],
)  # fmt: skip
def test_the_verdict_names_the_bound_or_the_greatest_loss(
    causes: dict[Cause, int], bounds: Bounds, verdict: str, digits: Profile
) -> None:
    item = LayerProfile(digits.layers[0].layer, 0, 100, dict.fromkeys(Cause, 0) | causes, {}, bounds, 0)
    assert item.verdict == verdict


@pytest.fixture(scope="module")
def compiled() -> CompiledModel:
    return weft.compile(DIGITS, PYNQ)


@pytest.fixture(scope="module")
def digits(compiled: CompiledModel) -> Profile:
    return profile(compiled, predict_runs(compiled, DramModel()), "model")


def test_every_cycle_of_a_network_is_in_one_layer_and_one_cause(compiled: CompiledModel, digits: Profile) -> None:
    assert sum(item.cycles for item in digits.layers) == digits.cycles
    for item in digits.layers:
        assert sum(item.causes.values()) == item.cycles
        assert sum(item.gemm.values()) == item.cycles
        assert min(item.causes.values()) >= 0
        assert item.bounds.compute <= item.bounds.array
    assert sum(item.causes[Cause.ARRAY] for item in digits.layers) == sum(item.gemm["busy"] for item in digits.layers)
    with pytest.raises(DeviceError, match="digits has no program on the core"):
        profile(compiled, [], "model")


def test_layers_have_the_cycles_of_the_layer_table(compiled: CompiledModel) -> None:
    module = weft.load(compiled, "rtl")
    slot = compiled.inputs[0]
    module.run(np.zeros(slot.shape, slot.dtype), trace=True)
    found = profile(compiled, module.runs, "rtl")
    assert [item.cycles for item in found.layers] == [count for count in layer_cycles(module) if count]
    assert found.cycles == module.cycles


def test_tables_say_where_the_cycles_went(compiled: CompiledModel, digits: Profile) -> None:
    text = printed(cause_table(digits), bound_table(digits), gemm_table(digits))
    assert f"{digits.cycles:,}" in text
    for words in ("why is it slow", "array works", "what each layer needs at least", "token of load", "conv3"):
        assert words in text


def printed(*tables: RenderableType) -> str:
    console = Console(width=180, record=True, file=io.StringIO())
    console.print(*tables)
    return console.export_text()


def test_the_timeline_has_every_cycle_once(digits: Profile) -> None:
    binned = timeline(digits, 50)
    assert len(binned.edges) == 51
    for counts in (binned.causes, *binned.kinds.values()):
        assert (counts.sum(axis=1) == np.diff(binned.edges)).all()
    array = sum(item.causes[Cause.ARRAY] for item in digits.layers)
    assert binned.kinds[GEMM][:, BUSY].sum() == array == binned.causes[:, Cause.ARRAY].sum()
    assert binned.causes[:, Cause.RAMP].sum() == sum(item.causes[Cause.RAMP] for item in digits.layers)
    assert binned.kinds[GEMM][:, token(LOAD)].sum() == sum(item.gemm["token_load"] for item in digits.layers)


def test_faster_memory_does_not_slow_the_network_down(compiled: CompiledModel) -> None:
    outcomes = {outcome.name: outcome for outcome in what_if(compiled, DramModel(), None)}
    base = outcomes["as it is"]
    assert base.cycles == sum(base.layers.values())
    for name in ("2x bandwidth", "no DRAM latency"):
        cycles = outcomes[name].cycles
        assert cycles is not None
        assert base.cycles is not None
        assert cycles < base.cycles
    text = printed(outcome_table(list(outcomes.values())))
    assert "2x lanes: no figure, needs another program: profile the model's ONNX file instead of the artifact" in text


def test_hardware_that_needs_another_program_is_compiled_for(
    compiled: CompiledModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def recompile(core: object) -> CompiledModel:
        asked.append(core)
        return compiled

    predicted = predict_runs(compiled, DramModel())
    monkeypatch.setattr(profile_whatif, "predict_runs", lambda *_: predicted)
    outcomes = {outcome.name: outcome for outcome in what_if(compiled, DramModel(), recompile)}
    assert [(core.block_out, core.acc_bytes * core.acc_depth) for core in asked] == [  # type: ignore[attr-defined]
        (16, 2 * PYNQ.acc_bytes * PYNQ.acc_depth),
        (32, PYNQ.acc_bytes * PYNQ.acc_depth),
    ]
    assert outcomes["2x scratchpads"].cycles == outcomes["as it is"].cycles


def test_hardware_that_cannot_be_built_is_named_with_the_reason() -> None:
    _, impossible = variants(replace(PYNQ, bus_bits=512), DramModel())
    assert [(outcome.name, outcome.why) for outcome in impossible] == [
        ("2x bandwidth", "bus_bits must be a power of two in 64..512, not 1024")
    ]


def test_the_trace_names_layer_tile_and_instruction_and_what_the_array_waits_for(
    compiled: CompiledModel, digits: Profile, tmp_path: Path
) -> None:
    path = tmp_path / "trace.json.gz"
    slices = write_runs(compiled, predict_runs(compiled, DramModel()), path)
    with gzip.open(path, "rt", encoding="utf-8") as file:
        events = json.load(file)["traceEvents"]
    drawn = [event for event in events if event["ph"] == "X"]
    assert len(drawn) == slices
    names = {event["name"] for event in drawn}
    assert {"conv2 · tile 0 · GEMM", "conv2 · tile 0 · LOAD inp", "conv2 · tile 0 · VECTOR requantise"} <= names
    gemm = next(event for event in drawn if event["name"] == "conv2 · tile 0 · GEMM")
    assert gemm["args"]["nodes"].startswith("conv2, ")
    assert gemm["args"]["assembly"].startswith("gemm ")
    causes = [event for event in drawn if event["cat"] == "cause"]
    assert sum(event["dur"] for event in causes) == digits.cycles


def test_the_command_writes_everything_into_one_folder(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["profile", str(DIGITS), "--no-what-if", "--output", str(tmp_path / "found")])
    assert result.exit_code == 0, result.output
    assert {path.name for path in (tmp_path / "found").iterdir()} >= {
        "layers.json", "report.txt", "trace.perfetto.json.gz",
    }  # fmt: skip
    records = json.loads((tmp_path / "found" / "layers.json").read_text())
    assert sum(record["cycles_array"] for record in records) == sum(record["gemm_busy"] for record in records)
    assert all(record["layer"] in record["least_of"] and record["least"] > 0 for record in records)
    assert "of the least" in (tmp_path / "found" / "report.txt").read_text()
    assert (tmp_path / "found" / "report.txt").read_text().splitlines()[0].strip() == (
        "digits on pynq, device model: why is it slow (cycles)"
    )


def test_the_command_takes_an_artifact_and_a_slower_memory(
    compiled: CompiledModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And does without pictures where there is no matplotlib, but says so."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    path = tmp_path / "digits.weft"
    save(compiled, path)
    result = CliRunner().invoke(app, ["profile", str(path), "--bandwidth", "2", "--latency", "300"])
    assert result.exit_code == 0, result.output
    assert "no pictures: the pictures need matplotlib; hint: pip install 'weft[plot]'" in result.output
    report = (tmp_path / "digits.profile" / "report.txt").read_text()
    assert "2x scratchpads: no figure, needs another program" in report
    fast = profile(compiled, predict_runs(compiled, DramModel()), "model")
    records = json.loads((tmp_path / "digits.profile" / "layers.json").read_text())
    assert sum(record["cycles"] for record in records) > fast.cycles
