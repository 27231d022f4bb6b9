"""Token insertion: any stream becomes a program without races and deadlocks, with no token too many."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from weft.compiler.targets.accel.check import check_program
from weft.compiler.targets.accel.stream.conflicts import conflicts_of
from weft.compiler.targets.accel.stream.stream import Access, Issue
from weft.compiler.targets.accel.stream.tokens import tokens_of
from weft.compiler.targets.errors import ProgramError
from weft.hw.config import TINY, CoreConfig
from weft.hw.isa import (
    Engine,
    Finish,
    Gemm,
    Instruction,
    Load,
    Scratchpad,
    Store,
    Vector,
    VectorOp,
    VectorTarget,
    mask_engines,
    vector_targets,
)
from weft.hw.memories import Memory
from weft.hw.programs import assemble

WINDOW = 4096


def load(index: int, offset: int = 0, engine: Engine = Engine.LOAD, pad: Scratchpad = Scratchpad.INP) -> Issue:
    unit = {Scratchpad.WGT: 4, Scratchpad.ACC: 4}.get(pad, 1)
    instruction = Load(engine=engine, scratchpad=pad, index=index, offset=offset * 4, rows=1, columns=1)
    read, written = Access(Memory.DRAM, offset * 4, (unit,), (1,)), Access(pad.memory, index, (1,), (1,))
    return Issue(instruction, (read,), (written,))


def gemm(dst: int, src: int, wgt: int) -> Issue:
    target = Access(Memory.ACC, dst, (), ())
    reads = (Access(Memory.INP, src, (), ()), Access(Memory.WGT, wgt, (), ()), target)
    return Issue(Gemm(dst=dst, src=src, wgt=wgt), reads, (target,))


def vector(dst: int, a: int, target: VectorTarget = VectorTarget.OUT) -> Issue:
    instruction = Vector(op=VectorOp.ADD, b_immediate=1, target=target, dst=dst, a=a)
    return Issue(instruction, (Access(Memory.ACC, a, (), ()),), (Access(instruction.target.memory, dst, (), ()),))


def store(index: int, offset: int) -> Issue:
    instruction = Store(index=index, offset=offset * 4, rows=1, columns=1)
    return Issue(instruction, (Access(Memory.OUT, index, (1,), (1,)),), (Access(Memory.DRAM, offset * 4, (1,), (1,)),))


few = st.integers(0, 3)
issues = st.one_of(
    st.builds(load, few, few),
    st.builds(load, few, few, st.just(Engine.LOADW), st.just(Scratchpad.WGT)),
    st.builds(load, few, few, st.just(Engine.LOADW), st.just(Scratchpad.ACC8)),
    st.builds(gemm, few, few, few),
    st.builds(vector, few, few, st.sampled_from(vector_targets(TINY, VectorOp.ADD))),
    st.builds(store, few, few),
)
streams = st.lists(issues, max_size=60)


def with_tokens(config: CoreConfig, stream: Sequence[Issue]) -> list[Instruction]:
    """The instructions of a stream with waits and sends."""
    conflicts = conflicts_of(stream)
    tokens = zip(*(each.tolist() for each in tokens_of(config, conflicts.engines, conflicts)), strict=True)
    return [
        replace(issue.instruction, wait=wait, send=send) for issue, (wait, send) in zip(stream, tokens, strict=True)
    ]


def program(config: CoreConfig, stream: list[Issue]) -> list[Instruction]:
    return [*with_tokens(config, stream), Finish()]


def check(config: CoreConfig, instructions: list[Instruction]) -> None:
    check_program(config, assemble(config, instructions), WINDOW)


@given(streams, st.sampled_from([1, 2, 15]), st.sampled_from([2, 16]))
def test_any_stream_becomes_a_safe_program(stream: list[Issue], token_depth: int, queue_depth: int) -> None:
    config = replace(TINY, token_depth=token_depth, queue_depth=queue_depth)
    instructions = program(config, stream)
    check(config, instructions)
    assert [replace(item, wait=0, send=0) for item in instructions[:-1]] == [issue.instruction for issue in stream]


@given(streams, st.data())
@settings(max_examples=60)
def test_no_token_can_be_left_out(stream: list[Issue], data: st.DataObject) -> None:
    instructions = program(TINY, stream)
    waits = [(number, engine) for number, item in enumerate(instructions) for engine in mask_engines(item.wait)]
    if not waits:
        return
    receiver, sender = data.draw(st.sampled_from(waits))
    # Take out the whole edge: the k-th wait of the pair, and the k-th send.
    target = instructions[receiver].engine
    order = sum(1 for number, engine in waits if engine == sender and instructions[number].engine == target
                and number < receiver)  # fmt: skip
    senders = [number for number, item in enumerate(instructions) if item.engine == sender and item.send >> target & 1]
    mutant = list(instructions)
    mutant[receiver] = replace(mutant[receiver], wait=mutant[receiver].wait & ~(1 << sender))
    source = senders[order]
    mutant[source] = replace(mutant[source], send=mutant[source].send & ~(1 << target))
    with pytest.raises(ProgramError, match=r"race: instruction \d+ .* and instruction \d+ .* no tokens between them"):
        check(TINY, mutant)


def test_a_dependence_that_another_implies_costs_no_token() -> None:
    stream = with_tokens(TINY, [load(0), gemm(0, 0, 0), vector(0, 0), store(0, 9), load(0)])
    assert [mask for issue in stream for mask in (issue.wait, issue.send)] == [
        0, 1 << Engine.GEMM,
        1 << Engine.LOAD, 1 << Engine.VECTOR | 1 << Engine.LOAD,
        1 << Engine.GEMM, 1 << Engine.STORE,
        1 << Engine.VECTOR, 0,
        1 << Engine.GEMM, 0,
    ]  # fmt: skip


@pytest.mark.parametrize(("depth", "senders", "takers"), [(1, [3], [0]), (2, [1, 3], [0, 2])])
def test_tokens_that_would_pile_up_are_joined_where_it_costs_least(
    depth: int, senders: list[int], takers: list[int]
) -> None:
    config = replace(TINY, token_depth=depth)
    loads = [load(index, index) for index in range(4)]
    stream = with_tokens(config, [*loads, *(gemm(index, index, 0) for index in range(4))])
    assert [number for number, issue in enumerate(stream[:4]) if issue.send] == senders
    assert [number for number, issue in enumerate(stream[4:]) if issue.wait] == takers
    check(config, [*stream, Finish()])


def test_tokens_that_were_taken_are_not_joined() -> None:
    """The first token is gone when the others pile up: the second and the third become one, not the last two."""
    before = [load(0, 0), load(1, 1), gemm(0, 0, 0), load(2, 2), load(3, 3)]
    stream = with_tokens(replace(TINY, token_depth=2), [*before, *(gemm(index, index, 0) for index in (1, 2, 3))])
    assert [number for number, issue in enumerate(stream) if issue.send] == [0, 3, 4]
    assert [number for number, issue in enumerate(stream) if issue.wait] == [2, 5, 7]


def test_strided_accesses_that_interleave_do_not_meet() -> None:
    even = Issue(load(0).instruction, (), (Access(Memory.ACC, 0, (4,), (2,)),))
    odd = Issue(vector(1, 1).instruction, (Access(Memory.ACC, 1, (4,), (2,)),), ())
    assert [issue.wait for issue in with_tokens(TINY, [even, odd])] == [0, 0]
