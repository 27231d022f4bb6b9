"""The timing model predicts what the RTL does, cycle for cycle; nothing that it skips matters."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from weft.hw.config import PYNQ, TINY, WIDE, CoreConfig
from weft.hw.cycle_class import CycleClass
from weft.hw.errors import InstructionError
from weft.hw.isa import (
    Engine,
    Finish,
    Gemm,
    Instruction,
    Load,
    Loop,
    Scratchpad,
    Store,
    Sync,
    Vector,
    VectorOp,
    encode,
    encode_unchecked,
)
from weft.hw.programs import assemble
from weft.hw.weight_form import FOUR_BITS
from weft.runtime.device import FsimDevice
from weft.sim.dram import DramModel
from weft.sim.errors import BuildError, SimulationError
from weft.sim.fuzz import MEMORY_BYTES, Case, random_case, seeded
from weft.sim.result import RunResult
from weft.sim.rtl import RtlSimulator
from weft.sim.timing import Predictor, predict, predict_details
from weft.sim.timing_library import timing_library

from .programs import cases, parse

STALE = (
    "the timing model no longer follows the RTL: find in hw/ what changed the cycles, and change the part of "
    "sim/timing_*.h that repeats it (docs/timing.md)"
)

ONE_OF_EACH = replace(
    TINY, name="one", acc_banks=1, queue_depth=2, token_depth=1, read_outstanding=1, write_outstanding=1, burst_beats=1
)
UNEVEN = replace(TINY, name="uneven", batch=4, block_in=8, bus_bits=512, acc_banks=2)

COUNTED = """
loop gemm level=0 extent=9 dst_stride=1
gemm gemm levels=1 zero=1 dst=0 src=0 wgt=0 send=vector
loop vector level=0 extent=9 dst_stride=1 a_stride=1
vector vector op=add b_immediate=1 levels=1 dst=0 a=0 b=1 target=out wait=gemm send=store
store store index=0 offset=1024 rows=3 columns=3 stride=5 wait=vector
finish
"""


def calm(case: Case) -> Case:
    """Without what is random in the memory."""
    return replace(case, dram=replace(case.dram, jitter=0, reorder=False))


def run_both(rtl: RtlSimulator, case: Case) -> tuple[RunResult, RunResult]:
    """A case on the RTL and in the model, both traced."""
    code = assemble(rtl.config, case.instructions)
    start = case.window_start + case.program_offset
    rtl.dram[start : start + len(code)] = code
    rtl.set_dram(case.dram)
    run = rtl.run(case.program_offset, len(case.instructions), window_start=case.window_start, trace=True)
    return run, predict(rtl.config, code, case.dram, offset=case.program_offset, trace=True)


def assert_same(run: RunResult, predicted: RunResult) -> None:
    """Everything that both report is equal."""
    assert predicted.cycles == run.cycles, STALE
    assert predicted.counters == run.counters, STALE
    assert (predicted.bytes_read, predicted.bytes_written) == (run.bytes_read, run.bytes_written)
    if run.trace is not None and predicted.trace is not None:
        np.testing.assert_array_equal(predicted.trace.activity, run.trace.activity)
        by_number = (np.sort(trace.events, order=["engine", "number"]) for trace in (predicted.trace, run.trace))
        np.testing.assert_array_equal(*by_number)


@settings(max_examples=60, deadline=None)
@given(case=cases(TINY).map(calm))
def test_random_programs_take_the_predicted_cycles(tiny_rtl: RtlSimulator, case: Case) -> None:
    assert_same(*run_both(tiny_rtl, case))


@pytest.mark.parametrize("seed", range(40))
def test_long_random_programs_take_the_predicted_cycles(tiny_rtl: RtlSimulator, seed: int) -> None:
    assert_same(*run_both(tiny_rtl, calm(random_case(TINY, seeded(seed), most_instructions=100))))


@pytest.mark.parametrize("behind", [0, 1, 7, 40, 200])
def test_what_stands_behind_finish_is_read_and_dropped(tiny_rtl: RtlSimulator, behind: int) -> None:
    program = parse(COUNTED + "sync gemm\n" * behind)
    code = assemble(TINY, program)
    tiny_rtl.dram[: len(code)] = code
    tiny_rtl.set_dram(DramModel())
    assert_same(tiny_rtl.run(0, len(program), trace=True), predict(TINY, code, trace=True))


@pytest.mark.parametrize("distance", range(1, 7))
def test_sums_that_are_forwarded_leave_their_bank_to_others(tiny_rtl: RtlSimulator, distance: int) -> None:
    program = parse(f"""
    loop gemm level=0 extent={distance} dst_stride=1
    loop gemm level=1 extent=60
    gemm gemm levels=2 dst=0 src=0 wgt=0
    loop vector level=0 extent=50 dst_stride=1 a_stride=1
    vector vector op=add target=out b_immediate=1 levels=1 dst=0 a=8 b=1
    finish
    """)
    code = assemble(TINY, program)
    tiny_rtl.dram[: len(code)] = code
    tiny_rtl.set_dram(DramModel())
    assert_same(tiny_rtl.run(0, len(program), trace=True), predict(TINY, code, trace=True))


@pytest.mark.parametrize("delay", [0, 1, 2, 3, 30])
@pytest.mark.parametrize("a_stride", [0, 1])
def test_a_load_waits_while_results_go_to_inp(tiny_rtl: RtlSimulator, delay: int, a_stride: int) -> None:
    """Results that come every cycle hold it up, those that come at times let it through; those for out do not count."""
    lines = [
        "load load scratchpad=inp index=0 offset=64 rows=4 columns=9 stride=11 pad_left=1 pad_bottom=2 pad_value=3",
        "load load scratchpad=inp index=100 offset=64 rows=1 columns=90",
        "load loadw scratchpad=wgt index=0 offset=256 rows=1 columns=60",
        *["sync vector"] * delay,
        f"loop vector level=0 extent=60 dst_stride=1 a_stride={a_stride} b_stride=1",
        "vector vector op=add levels=1 target=inp dst=192 a=190 b=64",
        "vector vector op=sub levels=1 dst=128 a=0 b=0",
        "loop vector level=1 extent=3",
        "vector vector op=shr b_immediate=1 levels=2 target=inp dst=192 a=8 b=1",
        "finish",
    ]
    text = "\n".join(lines)
    counters = []
    for program in (parse(text), parse(text.replace("target=inp dst=192", "target=out dst=20"))):
        code = assemble(TINY, program)
        tiny_rtl.dram[: len(code)] = code
        tiny_rtl.set_dram(DramModel(latency=3, bytes_per_cycle=16))
        dram = DramModel(latency=3, bytes_per_cycle=16)
        predicted = predict(TINY, code, dram, trace=True)
        assert_same(tiny_rtl.run(0, len(program), trace=True), predicted)
        counters.append(predicted.counters)
    beside, alone = counters
    conflicts = {engine: [each[engine].get(CycleClass.CONFLICT, 0) for each in (beside, alone)] for engine in Engine}
    assert conflicts[Engine.LOAD][0] > conflicts[Engine.LOAD][1] + 10
    for engine in (Engine.VECTOR, Engine.LOADW):
        assert conflicts[engine][0] == conflicts[engine][1]


@pytest.mark.parametrize("latency", [1, 20, 200])
@pytest.mark.parametrize("bandwidth", [1, 4, 8, 16])
def test_every_memory_is_followed(tiny_rtl: RtlSimulator, latency: int, bandwidth: int) -> None:
    case = random_case(TINY, seeded(latency + bandwidth), most_instructions=100)
    assert_same(*run_both(tiny_rtl, replace(case, dram=DramModel(latency=latency, bytes_per_cycle=bandwidth))))


@pytest.mark.long
@pytest.mark.parametrize("config", [PYNQ, WIDE, ONE_OF_EACH, UNEVEN], ids=lambda config: config.name)
def test_random_programs_on_other_cores_take_the_predicted_cycles(config: CoreConfig) -> None:
    rtl = RtlSimulator(config, MEMORY_BYTES)
    for seed in range(200):
        assert_same(*run_both(rtl, calm(random_case(config, seeded(seed), most_instructions=60))))


@pytest.mark.long
def test_the_memory_is_at_rest_when_a_program_starts() -> None:
    """A beat of 64 bytes at one byte a cycle: what the accesses to registers, or a program before, left shows."""
    rtl = RtlSimulator(UNEVEN, MEMORY_BYTES)
    code = assemble(UNEVEN, [Finish()])
    rtl.dram[: len(code)] = code
    slow = DramModel(latency=8, bytes_per_cycle=1)
    rtl.set_dram(slow)
    assert [rtl.run(0, 1).cycles for _ in range(3)] == [predict(UNEVEN, code, slow).cycles] * 3


def test_jitter_gives_other_cycles_of_the_same_kind(tiny_rtl: RtlSimulator) -> None:
    ratios = []
    for seed in range(40):
        case = random_case(TINY, seeded(seed), most_instructions=60)
        case = replace(case, dram=replace(case.dram, jitter=20, reorder=True))
        run, predicted = run_both(tiny_rtl, case)
        assert run.cycles is not None
        assert predicted.cycles is not None
        ratios.append(predicted.cycles / run.cycles)
    assert np.median(ratios) == pytest.approx(1, abs=0.03)


core_shapes = st.builds(
    lambda **values: replace(TINY, name="any", **values),
    batch=st.sampled_from([1, 2, 4]),
    block_in=st.sampled_from([4, 8]),
    block_out=st.sampled_from([4, 8]),
    acc_banks=st.sampled_from([1, 2, 4]),
    queue_depth=st.sampled_from([2, 16]),
    token_depth=st.sampled_from([1, 15]),
    bus_bits=st.sampled_from([64, 128, 512]),
    read_outstanding=st.sampled_from([1, 2, 16]),
    write_outstanding=st.sampled_from([1, 2, 8]),
    burst_beats=st.sampled_from([1, 2, 16, 256]),
) | st.sampled_from(
    (
        replace(PYNQ, name="any", inp_depth=64, acc_depth=64),
        replace(PYNQ, name="any", weight_group=64),
        replace(TINY, name="any", weight_group=32),
        replace(TINY, name="any", block_in=32, weight_group=128, bus_bits=128),
    )
)


@settings(max_examples=60, deadline=None)
@given(config=core_shapes, seed=st.integers(0, 1 << 20))
def test_what_is_skipped_does_not_matter(config: CoreConfig, seed: int) -> None:
    case = calm(random_case(config, seeded(seed), most_instructions=60))
    code = assemble(config, case.instructions)
    quick = predict_details(config, code, case.dram, offset=case.program_offset, trace=True)
    slow = predict_details(config, code, case.dram, offset=case.program_offset, trace=True, every_cycle=True)
    assert_same(slow.result, quick.result)
    assert quick.evaluated <= slow.evaluated


own_loads = st.builds(
    lambda engine, rows, columns, gap, left, top: Load(
        engine=engine, scratchpad=Scratchpad.INP if engine is Engine.LOAD else Scratchpad.WGT, index=0, offset=0,
        rows=rows, columns=columns, stride=columns + gap, pad_left=left, pad_top=top,
    ),
    st.sampled_from([Engine.LOAD, Engine.LOAD, Engine.LOADW]), st.integers(1, 3), st.sampled_from([1, 2, 9, 60, 400]),
    st.sampled_from([0, 3]), st.sampled_from([0, 0, 2]), st.sampled_from([0, 0, 1]),
)  # fmt: skip
records = st.builds(
    lambda rows, columns, gap: Load(
        engine=Engine.LOADW, scratchpad=Scratchpad.WGT, index=0, offset=0, rows=rows, columns=columns,
        stride=columns + gap, pad_value=FOUR_BITS,
    ),
    st.integers(1, 3), st.sampled_from([1, 2, 9, 40]), st.sampled_from([0, 3]),
)  # fmt: skip
others = st.one_of(
    st.builds(
        lambda engine, columns: Load(
            engine=engine, scratchpad=Scratchpad.ACC8, index=0, offset=0, rows=1, columns=columns
        ),
        st.sampled_from([Engine.LOAD, Engine.LOADW]), st.sampled_from([1, 40]),
    ),
    st.builds(
        lambda rows, columns: Store(index=0, offset=0, rows=rows, columns=columns, stride=columns + 1),
        st.integers(1, 3), st.sampled_from([1, 20]),
    ),
    st.builds(lambda entry: Vector(op=VectorOp.ADD, levels=0, dst=entry, a=entry), st.integers(0, 3)),
    st.builds(lambda extent: Loop(engine=Engine.GEMM, level=0, extent=extent, dst_stride=1), st.integers(1, 63)),
    st.just(Gemm(levels=1, dst=0, src=0, wgt=0)),
)  # fmt: skip


@settings(max_examples=200, deadline=None)
@given(
    config=core_shapes | st.sampled_from((PYNQ, replace(PYNQ, weight_group=128))),
    program=st.lists(
        st.tuples(own_loads | records | others | st.just(Sync(engine=Engine.LOAD)), st.sampled_from([1, 1, 4, 16])),
        min_size=1,
        max_size=10,
    ),
    latency=st.sampled_from([1, 5, 40, 100]),
    bytes_per_cycle=st.sampled_from([4, 8, 12, 64]),
    outstanding=st.sampled_from([1, 2, 32]),
)
def test_words_that_stream_in_are_worked_out_together(
    config: CoreConfig, program: list[tuple[Instruction, int]], latency: int, bytes_per_cycle: int, outstanding: int
) -> None:
    instructions = [instruction for instruction, times in program for _ in range(times)]
    code = assemble(config, [*(as_the_core_has_it(config, each) for each in instructions), Finish()])
    dram = DramModel(latency=latency, bytes_per_cycle=bytes_per_cycle, outstanding=outstanding)
    quick = predict_details(config, code, dram, trace=True)
    slow = predict_details(config, code, dram, trace=True, every_cycle=True)
    assert_same(slow.result, quick.result)


def as_the_core_has_it(config: CoreConfig, instruction: Instruction) -> Instruction:
    """Without 4-bit weights where the core unpacks none."""
    if isinstance(instruction, Load) and instruction.pad_value == FOUR_BITS and not config.weight_group:
        return replace(instruction, pad_value=0)
    return instruction


def test_instructions_retire_while_words_stream_in() -> None:
    def load(columns: int) -> Load:
        return Load(scratchpad=Scratchpad.INP, index=0, offset=0, rows=1, columns=columns)

    code = assemble(PYNQ, [load(4), *[Sync(engine=Engine.LOAD)] * 3, load(100), Finish()])
    quick, slow = (predict_details(PYNQ, code, trace=True, every_cycle=every) for every in (False, True))
    assert_same(slow.result, quick.result)


@pytest.mark.parametrize("engine", [Engine.LOAD, Engine.LOADW])
def test_a_long_load_is_not_looked_at_word_by_word(engine: Engine) -> None:
    scratchpad = Scratchpad.INP if engine is Engine.LOAD else Scratchpad.WGT
    load = Load(engine=engine, scratchpad=scratchpad, index=0, offset=0, rows=1, columns=900, stride=900)
    predicted = predict_details(PYNQ, assemble(PYNQ, [load, Finish()]))
    assert predicted.result.cycles is not None
    assert predicted.evaluated < predicted.result.cycles / 4


@pytest.mark.parametrize(
    ("strides", "further"),
    [("a_stride=1", 1), ("a_stride=2", 2), ("a_stride=3", 3), ("", 3), ("a_stride=1 b_stride=1", 3)],
)
def test_a_depthwise_row_takes_a_cycle_for_each_column(strides: str, further: int) -> None:
    """Rows of 30: the columns of the first output, and what each further one does not share."""

    def cycles(gemm: str) -> int:
        program = parse(f"""
        loop gemm level=0 extent=30 dst_stride=1 {strides}
        loop gemm level=1 extent=20 dst_stride=30 a_stride=40
        {gemm}
        finish
        """)
        total = predict(PYNQ, assemble(PYNQ, program)).cycles
        assert total is not None
        return total

    depthwise = cycles("gemm gemm levels=2 dst=0 src=0 wgt=0 depthwise=1 row_pitch=41 column_pitch=1")
    product = cycles("gemm gemm levels=2 dst=0 src=0 wgt=0")
    assert depthwise - product == 20 * (3 + 29 * further) - 20 * 30


def test_long_work_is_not_looked_at_cycle_by_cycle() -> None:
    program = """
    loop gemm level=0 extent=256
    loop gemm level=1 extent=256
    loop gemm level=2 extent=256
    gemm gemm levels=3 zero=1 dst=0 src=0 wgt=0 send=store
    sync store wait=gemm
    finish
    """
    predicted = predict_details(TINY, assemble(TINY, parse(program)))
    assert predicted.result.cycles is not None
    assert 256**3 < predicted.result.cycles < 256**3 + 300
    assert predicted.evaluated < 500


def test_every_cycle_of_every_engine_has_a_class() -> None:
    result = predict(TINY, assemble(TINY, parse(COUNTED)), trace=True)
    assert {sum(kinds.values()) for kinds in result.counters.values()} == {result.cycles}
    assert result.counters[Engine.GEMM][CycleClass.BUSY] == 2 + 9  # both starts, and the micro-ops after them
    assert result.counters[Engine.STORE][CycleClass.TOKEN_VECTOR] > 0
    assert result.trace is not None
    assert sorted(result.trace.events["number"]) == list(range(5))
    assert result.trace.activity["cycles"].sum() == len(Engine) * (result.cycles or 0)


def test_programs_that_cannot_be_predicted_are_refused() -> None:
    def refused(text: str) -> None:
        predict(TINY, assemble(TINY, parse(text)))

    with pytest.raises(SimulationError, match="does not end: its engines wait for each other; hint: run it on the"):
        refused("sync gemm wait=vector\nfinish")
    with pytest.raises(SimulationError, match="the program has no FINISH"):
        refused("sync gemm")
    with pytest.raises(SimulationError, match="program offset 0x10 is not a multiple of 64"):
        predict(TINY, assemble(TINY, parse("finish")), offset=16)
    with pytest.raises(InstructionError, match="a program of 15 bytes is not a whole number of 16-byte instructions"):
        predict(TINY, assemble(TINY, parse("finish"))[:15])
    with pytest.raises(InstructionError, match="instruction 0: no instruction has opcode 0"):
        predict(TINY, np.zeros(16, np.uint8))
    words = [encode_unchecked(TINY, Loop(engine=Engine.GEMM, level=7, extent=3)), encode(TINY, Finish())]
    broken = np.frombuffer(b"".join(word.to_bytes(16, "little") for word in words), np.uint8)
    with pytest.raises(InstructionError, match="instruction 0: LOOP: loop level 7 does not exist"):
        predict(TINY, broken)


def test_without_a_compiler_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    monkeypatch.setenv("WEFT_CACHE", str(tmp_path_factory.mktemp("cache")))
    monkeypatch.setenv("CXX", "no-such-compiler")
    timing_library.cache_clear()
    with pytest.raises(BuildError, match=r"'no-such-compiler' is not installed; hint: install it: apt install g\+\+"):
        predict(TINY, assemble(TINY, parse("finish")))


def test_a_predictor_remembers_programs() -> None:
    predictor = Predictor(TINY, DramModel())
    code = assemble(TINY, parse(COUNTED))
    assert predictor.predict(code) is predictor.predict(code.copy())
    assert predictor.predict(code) is not predictor.predict(code, offset=64)


def test_fsim_reports_the_prediction() -> None:
    code = assemble(TINY, parse(COUNTED))
    for timing in (True, False):
        device = FsimDevice(TINY, dram=DramModel(latency=30), timing=timing)
        device.allocate(8192)
        device.write(0, code)
        result = device.launch(0, len(code) // TINY.instruction_bytes, trace=True)
        if timing:
            predicted = predict(TINY, code, DramModel(latency=30))
            assert (result.cycles, result.counters) == (predicted.cycles, predicted.counters)
            assert result.trace is not None
        else:
            assert result.cycles is None
        assert result.tokens_left == {}


def test_a_fault_on_fsim_has_no_cycles() -> None:
    code = assemble(TINY, parse("gemm gemm dst=0 src=511 wgt=256\nfinish"))
    device = FsimDevice(TINY)
    device.allocate(8192)
    device.write(0, code)
    result = device.execute(0, 2, False)
    assert result.fault is not None
    assert result.cycles is None
