"""Moving instructions up: the stream keeps its meaning, and loads do not wait behind work that they do not need."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from weft.compiler.targets.accel.stream import issue_early as module
from weft.compiler.targets.accel.stream.conflicts import conflicts_of
from weft.compiler.targets.accel.stream.issue_early import early_order
from weft.compiler.targets.accel.stream.stream import Access, Issue
from weft.hw.config import TINY
from weft.hw.dram_rate import USUAL_RATE
from weft.hw.isa import Engine, Gemm, Instruction, Load, Scratchpad, Store, Vector, VectorOp
from weft.hw.memories import Memory

LOAD = Load(scratchpad=Scratchpad.ACC8, index=0, offset=0, rows=1, columns=1)

KINDS: dict[Engine, tuple[Instruction, tuple[Memory, ...], Memory]] = {
    Engine.LOAD: (LOAD, (Memory.DRAM,), Memory.INP),
    Engine.LOADW: (replace(LOAD, engine=Engine.LOADW), (Memory.DRAM,), Memory.ACC),
    Engine.GEMM: (Gemm(dst=0, src=0, wgt=0), (Memory.INP, Memory.ACC), Memory.ACC),
    Engine.VECTOR: (Vector(op=VectorOp.ADD, dst=0, a=0), (Memory.ACC,), Memory.OUT),
    Engine.STORE: (Store(index=0, offset=0, rows=1, columns=1), (Memory.OUT,), Memory.DRAM),
}


def advance(stream: list[Issue]) -> list[Issue]:
    order = early_order(TINY, USUAL_RATE, stream, conflicts_of(stream))
    return [stream[position] for position in order]


def issue(engine: Engine, read: int, write: int, tile: int = 0) -> Issue:
    instruction, sources, target = KINDS[engine]
    reads = tuple(Access(memory, read, (2,), (1,)) for memory in sources)
    return Issue(instruction, reads, (Access(target, write, (2,), (1,)),), tile=tile)


def conflict(first: Issue, second: Issue) -> bool:
    def meet(some: tuple[Access, ...], others: tuple[Access, ...]) -> bool:
        return any(a.memory == b.memory and abs(a.start - b.start) < 2 for a in some for b in others)

    return (
        meet(first.writes, second.reads) or meet(first.reads, second.writes) or meet(first.writes, second.writes)
    )  # fmt: skip


@given(st.lists(st.tuples(st.sampled_from(list(KINDS)), st.integers(0, 6), st.integers(0, 6)), max_size=30))
def test_instructions_that_share_an_entry_keep_their_order(drawn: list[tuple[Engine, int, int]]) -> None:
    stream = [issue(engine, read, write, number) for number, (engine, read, write) in enumerate(drawn)]
    moved = [each.tile for each in advance(stream)]
    assert sorted(moved) == list(range(len(stream)))
    for place, number in enumerate(moved):
        for earlier in moved[place + 1 :]:
            if earlier < number:
                assert not conflict(stream[earlier], stream[number])
                engines = {stream[each].instruction.engine for each in (earlier, number)}
                assert len(engines) == 2 or engines <= set(module.REORDERED)


def test_a_load_overtakes_an_epilogue() -> None:
    epilogue = [issue(Engine.VECTOR, 0, 0), issue(Engine.STORE, 0, 0)]
    stream = [issue(Engine.GEMM, 0, 0), *epilogue, issue(Engine.LOAD, 8, 4)]
    assert [each.instruction.engine for each in advance(stream)] == [
        Engine.GEMM, Engine.LOAD, Engine.VECTOR, Engine.STORE,
    ]  # fmt: skip


def test_nothing_moves_further_than_the_queues_are_long() -> None:
    stream = [*(issue(Engine.VECTOR, 0, 0) for _ in range(100)), issue(Engine.LOAD, 8, 4)]
    moved = [each.instruction.engine for each in advance(stream)]
    assert moved.index(Engine.LOAD) == 100 - module.DISTANCE[Engine.LOAD] + 1
