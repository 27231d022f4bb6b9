"""In which order blocks of instructions wait for each other, however they are numbered."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from weft.sim.ptx.order import waiting_order

from .lines import run

LOOPS = {
    0: (1,), 1: (2, 6), 2: (3, 5), 3: (4,), 4: (3, 5), 5: (1,), 6: (7, 8), 7: (9,), 8: (9,), 9: (),
}  # fmt: skip
"""A loop (1 to 5) with a loop (3, 4) under a condition in it, and a condition behind it."""


@given(st.permutations(range(1, 10)))
def test_ways_meet_where_they_can_whatever_the_numbers(numbers: list[int]) -> None:
    named = [0, *numbers]
    successors: list[tuple[int, ...]] = [()] * 10
    for block, leads in LOOPS.items():
        successors[named[block]] = tuple(named[each] for each in leads)
    order = waiting_order(successors)
    place = [order.index(named[block]) for block in LOOPS]
    assert sorted(order) == list(range(10))
    assert place[0] < place[1] < place[2] < place[3] < place[4] < place[5] < place[6] < min(place[7:9])
    assert max(place[7:9]) < place[9]


@given(st.lists(st.lists(st.integers(0, 11), max_size=3), min_size=1, max_size=12))
def test_any_text_has_an_order(graph: list[list[int]]) -> None:
    successors = [[each % len(graph) for each in leads] for leads in graph]
    order = waiting_order(successors)
    assert sorted(order) == list(range(len(graph)))
    onward = [[each for each in leads if each > block] for block, leads in enumerate(successors)]
    order = waiting_order(onward)
    assert all(order.index(block) < order.index(each) for block, leads in enumerate(onward) for each in leads)


@pytest.mark.parametrize("exits", [False, True], ids=["condition", "loop"])
def test_a_warp_is_whole_where_its_ways_meet_above_in_the_text(exits: bool) -> None:
    """What stands at MEET is for a whole warp; the ways to it stand below it."""
    a = np.arange(64, dtype=np.uint32)
    lines = """
      mov.u32 D0, 0; setp.lt.u32 %p1, %thread, 7; bra BEGIN;
      MEET: shfl.sync.idx.b32 D0, D0, 3, 31, -1; bra DONE;
      BEGIN: @%p1 bra MEET; mov.u32 D0, A0; bra MEET;
      DONE: add.u32 D0, D0, A0;
    """
    if exits:
        lines = """
          and.b32 %r1, A0, 7; mov.u32 D0, 0; bra HEAD;
          MEET: shfl.sync.idx.b32 D0, D0, 5, 31, -1; bra DONE;
          BODY: sub.u32 %r1, %r1, 1; add.u32 D0, D0, 2;
          HEAD: setp.eq.u32 %p1, %r1, 0; @%p1 bra MEET; bra BODY;
          DONE: add.u32 D0, D0, A0;
        """
    (found,) = run(lines, [a], [np.uint32])
    np.testing.assert_array_equal(found, a + (10 if exits else np.where(a < 32, 0, 35)))
