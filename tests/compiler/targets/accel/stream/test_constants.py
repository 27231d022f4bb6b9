"""What a stream of instructions touches: constants in DRAM are left out, and nothing else changes."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from weft.compiler.targets.accel.stream.accesses import accesses_of
from weft.compiler.targets.accel.stream.constants import forget_constants
from weft.compiler.targets.accel.stream.stream import Access, Issue
from weft.hw.config import TINY
from weft.hw.isa import Instruction
from weft.hw.memories import Memory

from .test_issue_early import advance
from .test_tokens import load, store, streams, with_tokens


def finished(issues: Sequence[Issue]) -> list[Instruction]:
    return with_tokens(TINY, advance(issues))


@given(streams)
def test_order_and_tokens_are_those_of_all_that_is_touched(stream: list[Issue]) -> None:
    assert finished(forget_constants(stream)) == finished(stream)


def test_what_nobody_writes_is_left_out() -> None:
    stream = [load(0, offset=9), store(0, offset=1), load(1, offset=1)]
    memories = [[memory for place in issue.places for memory, _ in place] for issue in forget_constants(stream)]
    assert memories == [[Memory.INP], [Memory.OUT, Memory.DRAM], [Memory.DRAM, Memory.INP]]


def test_an_instruction_that_reads_a_constant_too_keeps_both() -> None:
    both = load(1, offset=1)
    both.reads = (*both.reads, Access(Memory.DRAM, 40, (1,), (1,)))
    stream = [store(0, offset=1), both]
    assert [memory for memory, _ in forget_constants(stream)[1].places[0]] == [Memory.DRAM] * 2


def test_results_that_nobody_reads_are_left_out() -> None:
    stream = [load(0, offset=9), store(0, offset=1), store(1, offset=1)]
    assert not len(accesses_of(forget_constants(stream))[Memory.DRAM].sets)
