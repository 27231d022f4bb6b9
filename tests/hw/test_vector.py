"""The vector engine against the meaning of its instructions, and its rate."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from weft.hw.isa import Engine, Fault, Instruction, Loop, Vector, VectorOp, VectorTarget
from weft.hw.memories import Memory
from weft.hw.vector import VectorEngine

from tests.effort import few
from tests.sim.rounding_operands import OPERANDS

from .engine_bench import Bench, check, random_memories
from .engine_programs import NARROW, ONE_BANK, SMALL, TABLES, UNLIKE, VECTOR_CONFIGS, programs, varied_memories


@pytest.fixture(scope="module")
def benches() -> dict[str, Bench]:
    return {name: Bench(config, VectorEngine) for name, config in VECTOR_CONFIGS.items()}


@pytest.mark.parametrize("name", VECTOR_CONFIGS)
@settings(max_examples=100)
@given(data=st.data())
def test_any_program_has_its_meaning(benches: dict[str, Bench], name: str, data: st.DataObject) -> None:
    config = VECTOR_CONFIGS[name]
    program = data.draw(programs(config, Engine.VECTOR))
    seed = data.draw(st.one_of(st.none(), st.integers(0, 1000)))
    disturb = 0 if seed is None else data.draw(st.sampled_from((0, 0.4, 0.9)))
    memories = varied_memories(config, data.draw(st.integers(0, 1000)))
    check(benches[name], memories, program, seed=seed, disturb=disturb)


EXTREMES = np.array([-(2**31), -(2**31) + 1, -(2**24) - 1, -1, 0, 1, 2**24 - 1, 2**24, 2**31 - 2, 2**31 - 1])


@pytest.mark.parametrize("shift", range(64))
def test_requantise_at_every_shift(benches: dict[str, Bench], shift: int) -> None:
    random = np.random.default_rng(shift)
    memories = random_memories(SMALL, shift)
    lanes = SMALL.lanes
    memories.acc[:4] = random.choice(EXTREMES, (4, lanes))
    # Half of the lanes: products near the rounding point of results that fit.
    memories.acc[4:8] = random.integers(-300, 300, (4, lanes))
    memories.acc[8] = random.choice((0, 0, 1, -1), lanes)
    memories.acc[9] = np.where(random.random(lanes) < 0.5, random.choice(EXTREMES, lanes), 1 << min(shift, 24) >> 1)
    memories.acc[10] = shift + 64 * random.integers(0, 1000, lanes)
    order = Vector(
        op=VectorOp.REQUANTISE, dst=8, a=0, b=8, levels=1, zero_point=-7, low=-256, high=255, left_shift=shift % 32
    )
    program: list[Instruction] = [
        Loop(engine=Engine.VECTOR, level=0, extent=8, a_stride=1, dst_stride=1),
        replace(order, target=VectorTarget.OUT, dst=0),
        replace(order, low=10, high=-10),
        order,
    ]
    check(benches["small"], memories, program)


@pytest.mark.parametrize("seed", few(range(8)))
@pytest.mark.parametrize(("mode", "operands"), OPERANDS.items(), ids=list(OPERANDS))
def test_requantise_rounds_as_the_core_does(
    benches: dict[str, Bench], mode: str, operands: Callable[..., tuple[np.ndarray, ...]], seed: int
) -> None:
    random, count, config = np.random.default_rng(seed), 96, VECTOR_CONFIGS[mode]
    memories = random_memories(config, seed)
    values, *parameters = operands(random, (count, config.lanes))
    memories.acc[:count] = values
    for place, each in enumerate(parameters):
        memories.acc[count + place : 4 * count : 3] = each
    order = Vector(op=VectorOp.REQUANTISE, dst=4 * count, a=0, b=count, levels=1, low=-256, high=255, rounding=1)
    program: list[Instruction] = [
        Loop(engine=Engine.VECTOR, level=0, extent=count, a_stride=1, b_stride=3, dst_stride=1),
        replace(order, zero_point=seed - 4),
        replace(order, target=VectorTarget.OUT, dst=0, rounding=seed % 2),  # next to others, which it leaves alone
        Loop(engine=Engine.VECTOR, level=0, extent=24, a_stride=1, dst_stride=1),
        *(Vector(op=op, b=5, dst=8, a=2, levels=1, zero=1, rounding=1) for op in VectorOp if op != VectorOp.REQUANTISE),
    ]
    check(benches[mode], memories, program)


@pytest.mark.parametrize("between", range(0, 14, 3))
@pytest.mark.parametrize("entry", range(VectorOp.REQUANTISE.b_entries))
def test_requantise_waits_for_each_parameter(benches: dict[str, Bench], entry: int, between: int) -> None:
    """A parameter is written so many micro-ops before it is read."""
    memories = random_memories(SMALL, entry)
    memories.acc[0] = 500
    memories.acc[8], memories.acc[9], memories.acc[10] = 0, 1, 3
    add = Vector(op=VectorOp.ADD, b_immediate=1, dst=0, a=0, b=2)
    order = Vector(op=VectorOp.REQUANTISE, dst=4, a=0, b=8, low=-256, high=255)
    others = [replace(add, dst=12 + number % 4, a=1) for number in range(between)]
    check(benches["small"], memories, [replace(add, dst=8 + entry, a=8 + entry), *others, order])


def steady_cycles(benches: dict[str, Bench], levels: list[Loop], work: Vector, name: str = "narrow") -> float:
    """Cycles per micro-op between the first and the last write."""
    memories = random_memories(VECTOR_CONFIGS[name], 0)
    observed = check(benches[name], memories, [*levels, replace(work, levels=len(levels))])
    return (observed.writes[-1] - observed.writes[0]) / (len(observed.writes) - 1)


def level(number: int, extent: int, dst: int = 0, a: int = 0, b: int = 0) -> Loop:
    return Loop(engine=Engine.VECTOR, level=number, extent=extent, dst_stride=dst, a_stride=a, b_stride=b)


# NARROW has banks of eight entries.
RATES = {
    "requantise to out": (
        [level(0, 24, 1, 1)],
        Vector(op=VectorOp.REQUANTISE, target=VectorTarget.OUT, dst=0, a=0, b=24),
        1,
    ),
    "requantise in place": ([level(0, 24, 1, 1)], Vector(op=VectorOp.REQUANTISE, dst=0, a=0, b=24), 1),
    "immediate": ([level(0, 30, 1, 1)], Vector(op=VectorOp.ADD, dst=0, a=0, b=-5, b_immediate=1), 1),
    "two banks": ([level(0, 8, 1, 1, 1)], Vector(op=VectorOp.ADD, dst=24, a=0, b=8), 1),
    "one bank twice": ([level(0, 8, 1, 1, 1)], Vector(op=VectorOp.ADD, dst=24, a=0, b=0), 2),
    "max of a window": (
        [level(0, 4, 0, 1), level(1, 6, 1, 4)], Vector(op=VectorOp.MAX_ACCUMULATE, zero=1, dst=24, a=0), 1,
    ),
    "sum into one entry": ([level(0, 20, 0, 1)], Vector(op=VectorOp.SUM, zero=1, dst=24, a=0), 1),
    "depthwise, taps inside": (
        [level(0, 3, 0, 1, 1), level(1, 5, 1, 3)], Vector(op=VectorOp.MAC, zero=1, dst=24, a=0, b=16), 1,
    ),
    "depthwise, taps outside": (
        [level(0, 8, 1, 1), level(1, 8, 0, 1, 1)], Vector(op=VectorOp.MAC, zero=1, dst=24, a=0, b=16), 15 / 8,
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", RATES)
def test_rate(benches: dict[str, Bench], case: str) -> None:
    levels, work, cycles = RATES[case]
    assert steady_cycles(benches, levels, work) <= cycles + 0.13


@pytest.mark.parametrize("mode", OPERANDS)
def test_another_rounding_costs_time_once(benches: dict[str, Bench], mode: str) -> None:
    """Its pipeline is longer, and there are slots for that."""
    work = Vector(op=VectorOp.REQUANTISE, target=VectorTarget.OUT, dst=0, a=0, b=128, rounding=1)
    assert steady_cycles(benches, [level(0, 100, 1, 1)], work, mode) == 1


@pytest.mark.parametrize("seed", range(3))
def test_results_that_wait_long_for_their_bank_are_not_lost(benches: dict[str, Bench], seed: int) -> None:
    program: list[Instruction] = [
        level(0, 30, 1, 1),
        Vector(op=VectorOp.ADD, dst=1, a=1, b=5, b_immediate=1, levels=1),
        Vector(op=VectorOp.ADD, target=VectorTarget.OUT, dst=0, a=1, b=-5, b_immediate=1, levels=1),
    ]
    check(benches["narrow"], random_memories(NARROW, seed), program, seed=seed, disturb=0.95)


RESULTS_TO_INP = Vector(op=VectorOp.ADD, target=VectorTarget.INP, dst=0, a=0, b=-3, b_immediate=1, levels=1)


@pytest.mark.parametrize(
    ("loop", "work"),
    [
        (level(0, 7, 1, 1), RESULTS_TO_INP),
        (level(0, 7, 1, 1), replace(RESULTS_TO_INP, dst=1)),  # each reads at the index that the one before writes
        (
            level(0, 7, 1, b=1),
            replace(RESULTS_TO_INP, a=3, b=1, b_immediate=0),
        ),  # one writes at the index that all read
        (level(0, 7, 1, a=1), replace(RESULTS_TO_INP, op=VectorOp.REQUANTISE, dst=1, b=3, b_immediate=0, high=99)),
    ],
)
def test_inp_costs_what_out_costs(benches: dict[str, Bench], loop: Loop, work: Vector) -> None:
    """Its port never makes vector wait, and its indices have nothing to do with those of ``acc``."""
    spans = []
    for target in (VectorTarget.INP, VectorTarget.OUT):
        program = [loop, replace(work, target=target), replace(work, target=target)]
        spans.append(check(benches["one-bank"], random_memories(ONE_BANK, 0), program).span)
    assert spans[0] == spans[1]


@pytest.mark.parametrize("seed", range(3))
def test_results_for_inp_do_not_wait_for_a_bank_of_acc(benches: dict[str, Bench], seed: int) -> None:
    """Another writer has the only bank nearly always."""
    program: list[Instruction] = [level(0, 8, dst=1), RESULTS_TO_INP]  # one read
    observed = check(benches["one-bank"], random_memories(ONE_BANK, seed), program, seed=seed, disturb=0.95)
    assert observed.writes[-1] - observed.writes[0] == 7


@pytest.mark.parametrize("target", [VectorTarget.ACC, VectorTarget.OUT, VectorTarget.INP])
@pytest.mark.parametrize("beyond", [False, True])
def test_each_target_ends_where_its_memory_ends(benches: dict[str, Bench], target: VectorTarget, beyond: bool) -> None:
    """The memories have 16, 32 and 8 entries."""
    depth = UNLIKE.depth(target.memory)
    program = [level(0, 3, 1), replace(RESULTS_TO_INP, target=target, dst=depth - (2 if beyond else 3))]
    observed = check(benches["unlike"], random_memories(UNLIKE, 0), program)
    assert observed.fault == ((Fault.INDEX, 1) if beyond else None)
    assert len(observed.writes) == (2 if beyond else 3)


@pytest.mark.parametrize("op", [op for op in VectorOp if op.accumulates])
def test_what_accumulates_cannot_go_to_inp(benches: dict[str, Bench], op: VectorOp) -> None:
    observed = benches["one-bank"].run(random_memories(ONE_BANK, 0), [replace(RESULTS_TO_INP, op=op)])
    assert observed.fault == (Fault.ILLEGAL, 0)
    assert not observed.writes


TABLE_OF_ADD = Vector(op=VectorOp.ADD, b_immediate=1, dst=0, a=0, table=1)
TABLE_OF_REQUANTISE = Vector(op=VectorOp.REQUANTISE, dst=0, a=0, b=28, low=-128, high=127, table=2)


@pytest.mark.parametrize("target", [VectorTarget.ACC, VectorTarget.OUT, VectorTarget.INP])
@pytest.mark.parametrize("work", [TABLE_OF_ADD, TABLE_OF_REQUANTISE], ids=["add", "requantise"])
def test_a_table_is_a_function_of_each_lane(benches: dict[str, Bench], work: Vector, target: VectorTarget) -> None:
    """Values of both signs, and some that do not fit in eight bits; each lane has other entries."""
    memories = random_memories(TABLES, 0)
    values = np.array([0, 1, -1, 127, -128, 255, 1000, -1000])
    memories.acc[:8] = values[:, None]
    memories.acc[28:31] = np.array([0, 1, 0])[:, None]
    work = replace(work, dst=8 if target is VectorTarget.ACC else 0, target=target, levels=1)
    observed = check(benches["tables"], memories, [level(0, 8, 1, 1), work])
    arguments = values.clip(-128, 127) if work.op is VectorOp.REQUANTISE else values
    table = memories.array(Memory.TAB)[256 * (work.table - 1) :]
    results = observed.memories.array(target.memory)[work.dst : work.dst + 8]
    np.testing.assert_array_equal(results, table[arguments % 256])


@pytest.mark.parametrize("target", [VectorTarget.ACC, VectorTarget.OUT, VectorTarget.INP])
@pytest.mark.parametrize("between", range(4))
def test_a_result_sees_what_has_just_been_written_to_its_table(
    benches: dict[str, Bench], between: int, target: VectorTarget
) -> None:
    """The entry is written so many micro-ops before, and read once more before another value is written to it."""
    memories = random_memories(TABLES, between)
    memories.acc[0], memories.acc[1], memories.acc[2] = 7, -100, 99
    look = replace(TABLE_OF_ADD, a=0, target=target)
    fill = Vector(op=VectorOp.ADD, b_immediate=1, target=VectorTarget.TAB, dst=7, a=1)
    others = [Vector(op=VectorOp.ADD, b_immediate=1, dst=20 + number, a=3) for number in range(between)]
    program = [fill, *others, replace(look, dst=4), replace(fill, a=2), *others, replace(look, dst=5)]
    observed = check(benches["tables"], memories, program)
    results = observed.memories.array(target.memory)
    assert (results[4] == -100).all()
    assert (results[5] == 99).all()


@pytest.mark.parametrize("distance", [1, 2, 3, 9])
def test_a_table_is_written_and_read_by_turns(benches: dict[str, Bench], distance: int) -> None:
    """Also while results wait for their bank: a table shows what it held when its result came to it."""
    program: list[Instruction] = [
        level(0, distance, 1, 1),
        level(1, 16 // distance, 0, 1),
        replace(TABLE_OF_ADD, levels=2, dst=16),
        Vector(op=VectorOp.ADD, b_immediate=1, b=3, levels=2, target=VectorTarget.TAB, dst=0, a=16),
    ]
    memories = random_memories(TABLES, distance)
    memories.acc[:] = np.arange(32)[:, None] % 8
    check(benches["tables"], memories, program * 3, seed=distance, disturb=0.8)


def test_a_table_chain_takes_each_result_from_the_one_before(benches: dict[str, Bench]) -> None:
    """What a table gives for acc is an operand like any other result."""
    memories = random_memories(TABLES, 1)
    program: list[Instruction] = [level(0, 20, 1, 1), replace(TABLE_OF_ADD, levels=1, dst=1)]
    observed = check(benches["tables"], memories, program)
    table, value = memories.array(Memory.TAB)[:256].astype(int), memories.acc[0]
    for _ in range(20):
        value = table[value % 256, np.arange(TABLES.lanes)]
    np.testing.assert_array_equal(observed.memories.acc[20], value)


@pytest.mark.parametrize("target", [VectorTarget.ACC, VectorTarget.OUT, VectorTarget.INP])
def test_tables_cost_nothing(benches: dict[str, Bench], target: VectorTarget) -> None:
    spans = []
    for table in (0, 1):
        work = replace(TABLE_OF_ADD, levels=1, table=table, target=target)
        program = [level(0, 7, 1, 1), work, replace(work, a=1)]
        spans.append(check(benches["tables"], random_memories(TABLES, 0), program).span)
    assert spans[0] == spans[1]


@pytest.mark.parametrize("beyond", [False, True])
def test_tables_end_where_their_memory_ends(benches: dict[str, Bench], beyond: bool) -> None:
    depth = TABLES.tab_depth
    fill = Vector(op=VectorOp.ADD, b_immediate=1, levels=1, target=VectorTarget.TAB, dst=0, a=0)
    program = [level(0, 3, 1), replace(fill, dst=depth - (2 if beyond else 3))]
    observed = check(benches["tables"], random_memories(TABLES, 0), program)
    assert observed.fault == ((Fault.INDEX, 1) if beyond else None)
    assert len(observed.writes) == (2 if beyond else 3)


@pytest.mark.parametrize(
    "instruction",
    [
        replace(TABLE_OF_ADD, table=3),
        replace(TABLE_OF_ADD, table=1, target=VectorTarget.TAB),
        *(Vector(op=op, dst=0, a=0, table=1) for op in VectorOp if op.accumulates),
        Vector(op=VectorOp.SUM, dst=0, a=0, target=VectorTarget.TAB),
    ],
)
def test_a_table_that_means_nothing_is_illegal(benches: dict[str, Bench], instruction: Vector) -> None:
    observed = benches["tables"].run(random_memories(TABLES, 0), [instruction])
    assert observed.fault == (Fault.ILLEGAL, 0)
    assert not observed.writes


@pytest.mark.parametrize("cycle", [4, 12, 22, 30])
def test_a_stopped_core_gets_what_was_issued_and_no_more(benches: dict[str, Bench], cycle: int) -> None:
    program: list[Instruction] = [
        level(0, 14, 1, 1),
        Vector(op=VectorOp.ADD, dst=0, a=0, b=1, b_immediate=1, levels=1),
        Vector(op=VectorOp.ADD, dst=1, a=1, b=1, b_immediate=1, levels=1),
    ]
    memories = random_memories(SMALL, 0)
    observed = benches["small"].run(memories, program, stop_at=cycle)
    assert observed.cycles <= cycle + 20
    # Entries up to some place have been raised once; some of them, up to a place before it, once more.
    raised = (observed.memories.acc.astype(np.int64) - memories.acc).max(axis=1)
    done = len(observed.writes)
    expected = np.zeros(SMALL.acc_depth, np.int64)
    for micro_op in range(done):
        expected[micro_op if micro_op < 14 else micro_op - 13] += 1
    np.testing.assert_array_equal(raised, expected)


def test_an_index_fault_is_precise(benches: dict[str, Bench]) -> None:
    program: list[Instruction] = [
        level(0, 6, dst=1, a=1),
        Vector(op=VectorOp.ADD, dst=0, a=0, b=1, b_immediate=1),
        Vector(op=VectorOp.ADD, dst=0, a=SMALL.acc_depth - 3, b=1, b_immediate=1, levels=1),
        Vector(op=VectorOp.ADD, dst=0, a=0, b=1, b_immediate=1),
    ]
    observed = check(benches["small"], random_memories(SMALL, 0), program)
    assert observed.fault == (Fault.INDEX, 2)
    assert len(observed.writes) == 1 + 3


@pytest.mark.parametrize(("b", "fault"), [(SMALL.acc_depth - 3, False), (SMALL.acc_depth - 2, True), (-1, True)])
def test_all_three_parameters_must_be_inside(benches: dict[str, Bench], b: int, fault: bool) -> None:
    program = [Vector(op=VectorOp.REQUANTISE, dst=0, a=0, b=b)]
    assert (check(benches["small"], random_memories(SMALL, 0), program).fault is not None) == fault


def test_an_operand_that_is_not_used_is_not_checked(benches: dict[str, Bench]) -> None:
    program = [Vector(op=VectorOp.SUM, dst=0, a=0, b=-1), Vector(op=VectorOp.MAX_ACCUMULATE, dst=0, a=0, b=2**20)]
    assert check(benches["small"], random_memories(SMALL, 0), program).fault is None


@pytest.mark.parametrize(
    "instruction",
    [
        Vector(op=VectorOp.ADD, dst=0, a=0, levels=7),
        Vector(op=VectorOp.SUM, dst=0, a=0, target=VectorTarget.OUT),
        Vector(op=VectorOp.ADD, dst=0, a=0, target=VectorTarget.INP),  # entries of another size
        Vector(op=VectorOp.ADD, dst=0, a=0, target=3),  # type: ignore[arg-type]
        Vector(op=VectorOp.REQUANTISE, dst=0, a=0, b_immediate=1),
        Vector(op=7, dst=0, a=0),  # type: ignore[arg-type]
        Vector(op=15, dst=0, a=0),  # type: ignore[arg-type]
        Loop(engine=Engine.VECTOR, level=7, extent=1),
        Loop(engine=Engine.VECTOR, level=0, extent=0),
    ],
)
def test_an_illegal_instruction_stops_the_engine_after_what_came_before(
    benches: dict[str, Bench], instruction: Instruction
) -> None:
    # Each micro-op needs the result before it, so the last one waits for long when the illegal instruction is seen.
    before: list[Instruction] = [
        level(0, 4, dst=1, a=1),
        Vector(op=VectorOp.ADD, dst=1, a=0, b=3, b_immediate=1, levels=1),
    ]
    memories = random_memories(SMALL, 0)
    expected = check(benches["small"], memories, before)
    observed = benches["small"].run(memories, [*before, instruction, Vector(op=VectorOp.SUM, dst=9, a=0)])
    assert observed.fault == (Fault.ILLEGAL, 2)
    assert (observed.memories.acc == expected.memories.acc).all()


@pytest.mark.parametrize("extent", [1, 2, 3])
def test_an_illegal_instruction_waits_for_the_last_micro_op_before_it(benches: dict[str, Bench], extent: int) -> None:
    # The micro-ops need nothing that is under way: the last one may still be in the loops when fetch has none.
    before: list[Instruction] = [
        level(0, extent, dst=1, a=1),
        Vector(op=VectorOp.ADD, dst=4, a=0, b=3, b_immediate=1, levels=1),
    ]
    memories = random_memories(SMALL, 0)
    expected = check(benches["small"], memories, before)
    observed = benches["small"].run(memories, [*before, Vector(op=VectorOp.ADD, dst=0, a=0, levels=7)])
    assert observed.fault == (Fault.ILLEGAL, 2)
    assert (observed.memories.acc == expected.memories.acc).all()


def test_an_index_fault_comes_before_an_illegal_instruction(benches: dict[str, Bench]) -> None:
    outside = Vector(op=VectorOp.REQUANTISE, dst=0, a=0, b=-1)
    illegal = Vector(op=VectorOp.ADD, dst=0, a=0, levels=7)
    assert benches["small"].run(random_memories(SMALL, 0), [outside, illegal]).fault == (Fault.INDEX, 0)
