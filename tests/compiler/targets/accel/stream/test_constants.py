"""What a stream of instructions touches: constants in DRAM are left out, and nothing else changes."""

from __future__ import annotations

from copy import copy

from hypothesis import given
from weft.compiler.targets.accel.stream.accesses import accesses_of
from weft.compiler.targets.accel.stream.constants import forget_constants
from weft.compiler.targets.accel.stream.stream import Access, Issue
from weft.compiler.targets.accel.stream.tokens import insert_tokens
from weft.hw.config import TINY
from weft.hw.memories import Memory

from .test_issue_early import advance
from .test_tokens import load, store, streams


def finished(issues: list[Issue]) -> list[object]:
    return [issue.finished for issue in insert_tokens(TINY, advance(issues))]


@given(streams)
def test_order_and_tokens_are_those_of_all_that_is_touched(stream: list[Issue]) -> None:
    known = [copy(issue) for issue in stream]
    forget_constants(known)
    assert finished(known) == finished([copy(issue) for issue in stream])


def test_what_nobody_writes_is_left_out() -> None:
    stream = [load(0, offset=9), store(0, offset=1), load(1, offset=1)]
    forget_constants(stream)
    memories = [[memory for place in issue.places for memory, _ in place] for issue in stream]
    assert memories == [[Memory.INP], [Memory.OUT, Memory.DRAM], [Memory.DRAM, Memory.INP]]


def test_an_instruction_that_reads_a_constant_too_keeps_both() -> None:
    both = load(1, offset=1)
    both.reads = (*both.reads, Access(Memory.DRAM, 40, (1,), (1,)))
    stream = [store(0, offset=1), both]
    forget_constants(stream)
    assert [memory for memory, _ in both.places[0]] == [Memory.DRAM] * 2


def test_results_that_nobody_reads_are_left_out() -> None:
    stream = [load(0, offset=9), store(0, offset=1), store(1, offset=1)]
    forget_constants(stream)
    assert not len(accesses_of(stream)[Memory.DRAM].sets)
