"""The gemm engine against the meaning of its instructions, and its rate."""

from __future__ import annotations

import pytest
from amaranth.back import rtlil
from hypothesis import given, settings
from hypothesis import strategies as st
from weft.hw.config import PYNQ, CoreConfig
from weft.hw.gemm import GemmEngine
from weft.hw.isa import Engine, Fault, Gemm, Instruction, Loop, Sync
from weft.hw.pipelines import array_latency
from weft.hw.verilog import run_yosys

from .engine_bench import Bench, check, random_memories
from .engine_programs import DEPTHWISE, GEMM_CONFIGS, SMALL, programs


@pytest.fixture(scope="module")
def benches() -> dict[str, Bench]:
    return {name: Bench(config, GemmEngine) for name, config in GEMM_CONFIGS.items()}


@pytest.mark.parametrize("name", GEMM_CONFIGS)
@settings(max_examples=60)
@given(data=st.data())
def test_any_program_has_its_meaning(benches: dict[str, Bench], name: str, data: st.DataObject) -> None:
    config = GEMM_CONFIGS[name]
    program = data.draw(programs(config, Engine.GEMM))
    seed = data.draw(st.one_of(st.none(), st.integers(0, 1000)))
    check(benches[name], random_memories(config, data.draw(st.integers(0, 1000))), program, seed=seed)


@pytest.mark.parametrize("distance", range(1, 8))
def test_an_entry_may_be_updated_again_at_any_distance(benches: dict[str, Bench], distance: int) -> None:
    program: list[Instruction] = [
        Loop(engine=Engine.GEMM, level=0, extent=distance, dst_stride=1),
        Loop(engine=Engine.GEMM, level=1, extent=5, a_stride=1, b_stride=2),
        Gemm(dst=1, src=0, wgt=0, levels=2),
    ]
    observed = check(benches["small"], random_memories(SMALL, distance), program)
    assert observed.writes[-1] - observed.writes[0] == 5 * distance - 1


@pytest.mark.parametrize("apart", [1, 2, 4, 8])
@pytest.mark.parametrize("distance", range(1, 6))
def test_entries_that_differ_in_one_bit_of_their_index_are_two(
    benches: dict[str, Bench], distance: int, apart: int
) -> None:
    """An entry, others for a while, and then its neighbour, which must not get the entry's sum."""
    others = [entry for entry in range(SMALL.acc_depth) if entry not in (3, 3 ^ apart)]
    order = [3, *others[: distance - 1], 3 ^ apart]
    program: list[Instruction] = [Gemm(dst=dst, src=dst % 8, wgt=dst) for dst in order]
    check(benches["small"], random_memories(SMALL, distance), program)


def _fill(config: CoreConfig) -> int:
    """Cycles from an instruction's start to its first write: start, issue, operands, array, accumulator."""
    return array_latency(config) + 4


def test_one_wave_a_cycle(benches: dict[str, Bench]) -> None:
    program: list[Instruction] = [
        Loop(engine=Engine.GEMM, level=0, extent=8, dst_stride=1),
        Loop(engine=Engine.GEMM, level=1, extent=7, a_stride=1, b_stride=1),
        Gemm(dst=0, src=0, wgt=0, levels=2, zero=1),
    ]
    observed = check(benches["small"], random_memories(SMALL, 0), program)
    assert len(observed.writes) == 56
    assert observed.writes[-1] - observed.writes[0] == 55
    # A start is reported in the cycle after it, the cycle in which the first micro-op is issued.
    assert observed.writes[0] - observed.started[2][0] == _fill(SMALL)


def test_instructions_follow_one_another_without_a_bubble(benches: dict[str, Bench]) -> None:
    program: list[Instruction] = [
        Loop(engine=Engine.GEMM, level=0, extent=3, dst_stride=1),
        *(Gemm(dst=number, src=number % 4, wgt=0, levels=1) for number in range(12)),
        *(Gemm(dst=number, src=number % 4, wgt=1) for number in range(12)),
    ]
    observed = check(benches["small"], random_memories(SMALL, 0), program)
    assert len(observed.writes) == observed.writes[-1] - observed.writes[0] + 1 == 12 * 3 + 12


def test_a_loop_instruction_takes_one_cycle(benches: dict[str, Bench]) -> None:
    setting = [Loop(engine=Engine.GEMM, level=level, extent=1) for level in range(6)]
    program = [Gemm(dst=0, src=0, wgt=0), *setting, Gemm(dst=1, src=0, wgt=0)]
    observed = check(benches["small"], random_memories(SMALL, 0), program)
    assert observed.writes[1] - observed.writes[0] == 7


def test_a_sync_sends_after_the_work_before_it(benches: dict[str, Bench]) -> None:
    program: list[Instruction] = [
        Loop(engine=Engine.GEMM, level=0, extent=6, dst_stride=1),
        Gemm(dst=0, src=0, wgt=0, levels=1),
        Sync(engine=Engine.GEMM, send=1 << Engine.STORE),
    ]
    observed = check(benches["small"], random_memories(SMALL, 0), program)
    assert observed.sent == [1 << Engine.STORE]
    assert observed.retired[-1][0] > observed.writes[-1]


@pytest.mark.parametrize("cycle", [0, 5, 11, 30])
def test_a_stopped_core_gets_what_was_issued_and_no_more(benches: dict[str, Bench], cycle: int) -> None:
    program: list[Instruction] = [
        Loop(engine=Engine.GEMM, level=0, extent=12, dst_stride=1),
        Gemm(dst=0, src=0, wgt=0, levels=1, zero=1),
    ]
    memories = random_memories(SMALL, 0)
    expected = check(benches["small"], memories, program)
    observed = benches["small"].run(memories, program, stop_at=cycle)
    done = len(observed.writes)
    assert done == min(max(0, cycle - 3), 12)  # the first issue is in cycle 3
    assert (observed.memories.acc[:done] == expected.memories.acc[:done]).all()
    assert (observed.memories.acc[done:] == memories.acc[done:]).all()


TAPS = {"depthwise": 1, "row_pitch": 13, "column_pitch": 1}


def row_of(count: int, **strides: int) -> Loop:
    return Loop(engine=Engine.GEMM, level=0, extent=count, dst_stride=1, **strides)


@pytest.mark.parametrize(
    ("strides", "column_pitch", "cycles"),
    [
        ({"a_stride": 1}, 1, 1),
        ({"a_stride": 2}, 1, 2),
        ({"a_stride": 3}, 1, 3),
        ({"a_stride": 2}, 2, 1),
        ({"a_stride": 4}, 2, 2),
        ({"a_stride": 1}, 2, 3),
        ({}, 1, 3),
        ({}, 0, 1),
        ({"a_stride": 1, "b_stride": 1}, 1, 3),  # other taps: the sums so far are of no use
    ],
)
def test_a_row_of_depthwise_outputs_reads_each_column_once(
    benches: dict[str, Bench], strides: dict[str, int], column_pitch: int, cycles: int
) -> None:
    count, rows = 5, 3
    program: list[Instruction] = [
        row_of(count, **strides),
        Loop(engine=Engine.GEMM, level=1, extent=rows, dst_stride=count, a_stride=7),
        Gemm(dst=0, src=0, wgt=1, levels=2, zero=1, **TAPS | {"column_pitch": column_pitch}),
        Gemm(dst=20, src=40, wgt=0),
    ]
    observed = check(benches["depthwise"], random_memories(DEPTHWISE, 0), program)
    row = 3 + (count - 1) * cycles
    first = observed.writes[0]
    assert observed.writes == [
        *(first + row * y + cycles * x for y in range(rows) for x in range(count)),
        first + rows * row - 2,  # the product follows at once; what came first was two cycles late
    ]
    assert first - observed.started[2][0] == _fill(DEPTHWISE) + 2


def test_only_the_innermost_level_is_a_row(benches: dict[str, Bench]) -> None:
    program: list[Instruction] = [
        Loop(engine=Engine.GEMM, level=1, extent=6, dst_stride=1, a_stride=1),
        Gemm(dst=0, src=0, wgt=1, levels=2, **TAPS),
    ]
    observed = check(benches["depthwise"], random_memories(DEPTHWISE, 0), program)
    assert observed.writes[-1] - observed.writes[0] == 5 * 3


def test_a_depthwise_sum_is_added_to_one_that_is_not_yet_written(benches: dict[str, Bench]) -> None:
    """Kernels larger than three by three: the same outputs again, in rows of one to six."""
    for count in range(1, 7):
        program: list[Instruction] = [
            row_of(count, a_stride=1),
            Loop(engine=Engine.GEMM, level=1, extent=4, a_stride=3, b_stride=1),
            Gemm(dst=3, src=0, wgt=1, levels=2, **TAPS),
            Gemm(dst=3, src=9, wgt=4, levels=1, **TAPS),
            Gemm(dst=3, src=9, wgt=4, levels=1),
            Gemm(dst=3, src=2, wgt=0, levels=2, zero=1, **TAPS),
        ]
        check(benches["depthwise"], random_memories(DEPTHWISE, count), program)


@pytest.mark.parametrize(("row_pitch", "column_pitch"), [(1, 0), (13, 1), (1, 13), (31, 0), (63, 63), (3, 63)])
@pytest.mark.parametrize("inside", [0, 1, 3])
def test_the_last_of_nine_entries_is_checked(
    benches: dict[str, Bench], row_pitch: int, column_pitch: int, inside: int
) -> None:
    src = max(0, DEPTHWISE.inp_depth - 2 * (row_pitch + column_pitch) - inside)
    program: list[Instruction] = [
        row_of(6, a_stride=1),
        Gemm(dst=1, src=1, wgt=0),
        Gemm(dst=3, src=src, wgt=0, levels=1, depthwise=1, row_pitch=row_pitch, column_pitch=column_pitch),
    ]
    observed = check(benches["depthwise"], random_memories(DEPTHWISE, 0), program)
    fits = max(0, DEPTHWISE.inp_depth - src - 2 * (row_pitch + column_pitch))
    assert observed.fault == (Fault.INDEX, 2)
    assert len(observed.writes) == 1 + fits


def test_rows_in_one_bank_are_refused(benches: dict[str, Bench]) -> None:
    for pitch in (0, 2, 4):
        program = [Gemm(dst=0, src=0, wgt=0), Gemm(dst=1, src=0, wgt=0, **TAPS | {"row_pitch": pitch})]
        memories = random_memories(DEPTHWISE, 0)
        expected = check(benches["depthwise"], memories, program[:1])
        observed = benches["depthwise"].run(memories, program)
        assert observed.fault == (Fault.ILLEGAL, 1)
        assert (observed.memories.acc == expected.memories.acc).all()
    check(benches["depthwise"], random_memories(DEPTHWISE, 0), [Gemm(dst=0, src=0, wgt=0, row_pitch=2)])


@pytest.mark.parametrize("operand", ["dst", "src", "wgt"])
def test_an_index_fault_is_precise(benches: dict[str, Bench], operand: str) -> None:
    stride = {"dst": "dst_stride", "src": "a_stride", "wgt": "b_stride"}[operand]
    depth = {"dst": SMALL.acc_depth, "src": SMALL.inp_depth, "wgt": SMALL.wgt_depth}[operand]
    program: list[Instruction] = [
        Loop(engine=Engine.GEMM, level=0, extent=6, **{stride: 1}),
        Gemm(dst=0, src=0, wgt=0),
        Gemm(levels=1, **({"dst": 0, "src": 0, "wgt": 0} | {operand: depth - 3})),
        Gemm(dst=5, src=0, wgt=0),
    ]
    observed = check(benches["small"], random_memories(SMALL, 0), program)
    assert observed.fault == (Fault.INDEX, 2)
    assert len(observed.writes) == 1 + 3


@pytest.mark.parametrize(
    "instruction",
    [
        Gemm(dst=0, src=0, wgt=0, levels=7),
        Loop(engine=Engine.GEMM, level=6, extent=1),
        Loop(engine=Engine.GEMM, level=0, extent=0),
    ],
)
def test_an_illegal_instruction_has_no_effect(benches: dict[str, Bench], instruction: Instruction) -> None:
    before: list[Instruction] = [
        Loop(engine=Engine.GEMM, level=0, extent=4, dst_stride=1),
        Gemm(dst=0, src=0, wgt=0, levels=1),
    ]
    memories = random_memories(SMALL, 0)
    expected = check(benches["small"], memories, before)
    observed = benches["small"].run(memories, [*before, instruction, Gemm(dst=9, src=0, wgt=0)])
    assert observed.fault == (Fault.ILLEGAL, 2)
    assert (observed.memories.acc == expected.memories.acc).all()


def test_the_engine_of_a_real_core_becomes_verilog() -> None:
    text = run_yosys(rtlil.convert(GemmEngine(PYNQ), emit_src=False))
    assert "module top(" in text
    assert text.count(" * ") == PYNQ.macs_per_cycle
