"""Streams as arrays hold the same instructions, with the same accesses, and give the same programs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from weft.compiler.targets.accel.stream.rows import Rows, columns_of_rows, last_of, loops_held, transferred
from weft.compiler.targets.accel.stream.stream import Access, Issue
from weft.hw.config import PYNQ, TINY
from weft.hw.errors import InstructionError
from weft.hw.isa import Engine, Finish, Gemm, Load, Loop, Opcode, Scratchpad, Store, Vector, VectorOp, VectorTarget
from weft.hw.load_counts import bytes_of
from weft.hw.memories import Memory
from weft.hw.programs import assemble, assemble_columns

few = st.integers(0, 3)
accesses = st.lists(
    st.builds(Access, st.sampled_from([Memory.DRAM, Memory.ACC, Memory.INP]), few, st.sampled_from([(), (2,)]),
              st.sampled_from([(1,)])).map(lambda each: replace(each, strides=each.strides[: len(each.extents)])),
    max_size=3,
).map(tuple)  # fmt: skip
instructions = st.one_of(
    st.builds(lambda level, extent, engine: Loop(engine=engine, level=level, extent=extent, a_stride=extent), few,
              st.integers(1, 5), st.sampled_from([Engine.GEMM, Engine.VECTOR])),
    st.builds(lambda index, rows, left, wide: Load(scratchpad=Scratchpad.ACC if wide else Scratchpad.ACC8, index=index,
              offset=9, rows=rows, columns=5, pad_left=left), few, few, few, st.booleans()),
    st.builds(lambda index, rows: Store(index=index, offset=7, rows=rows, columns=3, stride=4), few, few),
    st.builds(lambda dst, src, zero: Gemm(dst=dst, src=src, wgt=1, zero=zero, levels=1), few, few, st.integers(0, 1)),
    st.builds(lambda dst, b, own: Vector(op=VectorOp.ADD, target=VectorTarget.OUT, dst=dst, a=1, b=b, b_immediate=own),
              few, st.integers(-3, 3).map(abs), st.integers(0, 1)),
)  # fmt: skip


@st.composite
def drawn_issues(draw: st.DrawFn) -> Issue:
    """Some read what they write, and some know already that nothing has to wait for DRAM."""
    reads, writes = draw(accesses), draw(accesses)
    if writes and draw(st.booleans()):
        reads = (*reads, writes[0])
    issue = Issue(draw(instructions), reads, writes, draw(few), draw(few))
    for written in (False, True):
        if draw(st.booleans()):
            issue.forget(Memory.DRAM, written=written)
    return issue


streams = st.lists(drawn_issues(), max_size=12)


def same(rows: Rows, issues: list[Issue]) -> bool:
    kept = [each.accesses for each in rows] == [each.accesses for each in issues]
    one_by_one = [rows[place] for place in range(len(rows))]
    return kept and list(rows) == one_by_one == rows[:] == issues


@given(streams, streams, st.randoms(use_true_random=False))
def test_instructions_come_back(first: list[Issue], second: list[Issue], random) -> None:  # type: ignore[no-untyped-def]
    """Also of streams that are joined, and in another order."""
    assert same(Rows.of(first), first)
    joined = Rows.joined([Rows.of(each) for each in (first, [], second)])
    assert same(joined, [*first, *second])
    order = list(range(len(joined)))
    random.shuffle(order)
    assert same(joined.picked(np.array(order, np.int64)), [[*first, *second][place] for place in order])
    assert not len(Rows.joined([]))


def test_what_is_read_and_written_is_one_access() -> None:
    both = Access(Memory.ACC, 3, (2,), (1,))
    (found,) = Rows.of([Issue(Gemm(dst=3, src=0, wgt=0), (both,), (both,))])
    assert found.reads[0] is found.writes[0]
    assert found.accesses == ((), (both,))


@given(streams)
def test_fields_are_those_of_the_instructions(issues: list[Issue]) -> None:
    rows = Rows.of(issues)
    assert rows.engines.tolist() == [each.instruction.engine for each in issues]
    assert rows.opcodes.tolist() == [each.instruction.opcode for each in issues]
    everywhere = np.arange(len(rows))
    for name in ("dst", "b", "b_immediate", "index", "scratchpad", "extent", "rows", "wait"):
        assert rows.column(name, everywhere).tolist() == [getattr(each.instruction, name, 0) for each in issues]
    moving = rows.places(Opcode.LOAD, Opcode.STORE)
    assert moving.tolist() == [
        place for place, each in enumerate(issues) if isinstance(each.instruction, Load | Store)
    ]  # fmt: skip
    for config in (TINY, PYNQ):
        moved = [bytes_of(config, issues[place].instruction) for place in moving.tolist()]
        assert transferred(config, rows, moving).tolist() == moved
    stores = [place for place, each in enumerate(issues) if isinstance(each.instruction, Store)]
    assert last_of(rows, Opcode.STORE) == max(stores, default=-1)


@given(streams, st.sampled_from([Engine.GEMM, Engine.VECTOR]))
def test_registers_hold_what_was_set_last(issues: list[Issue], engine: Engine) -> None:
    held = [[0, 0] for _ in range(6)]
    wanted = []
    for issue in issues:
        wanted.append([list(each) for each in held])
        if isinstance(issue.instruction, Loop) and issue.instruction.engine is engine:
            held[issue.instruction.level] = [issue.instruction.extent, issue.instruction.a_stride]
    found = loops_held(Rows.of(issues), engine, np.arange(len(issues)), ["extent", "a_stride"])
    assert np.moveaxis(found, 0, -1).tolist() == wanted


@given(streams, st.data())
def test_programs_are_those_of_the_instructions(issues: list[Issue], data: st.DataObject) -> None:
    masks = st.lists(st.integers(0, 31), min_size=len(issues), max_size=len(issues))
    own = [1 << each.instruction.engine for each in issues]  # with which no engine has tokens
    waits, sends = ([mask & ~bit for mask, bit in zip(data.draw(masks), own, strict=True)] for _ in range(2))
    plain = [replace(each.instruction, wait=wait, send=send)
             for each, wait, send in zip(issues, waits, sends, strict=True)]  # fmt: skip
    columns = columns_of_rows(TINY, Rows.of(issues), *(np.array(each, np.int64) for each in (waits, sends)))
    assert np.array_equal(assemble_columns(TINY, columns), assemble(TINY, [*plain, Finish()]))


@pytest.mark.parametrize("wrong", [Load(scratchpad=Scratchpad.INP, index=0, offset=0, rows=1 << 20, columns=1),
                                   Gemm(dst=-1, src=0, wgt=0)])  # fmt: skip
def test_what_cannot_be_encoded_is_refused_as_one_by_one(wrong: Load | Gemm) -> None:
    rows, none = Rows.of([Issue(Gemm(dst=0, src=0, wgt=0)), Issue(wrong)]), np.zeros(2, np.int64)
    with pytest.raises(InstructionError) as alone:
        assemble(TINY, [wrong])
    with pytest.raises(InstructionError) as together:
        assemble_columns(TINY, columns_of_rows(TINY, rows, none, none))
    assert str(alone.value) == str(together.value)
