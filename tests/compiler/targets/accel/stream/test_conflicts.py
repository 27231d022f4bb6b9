"""Conflicts of whole streams equal what a look at every single unit finds, one instruction after the other."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from weft.compiler.targets.accel.stream import issue_early
from weft.compiler.targets.accel.stream.conflicts import conflicts_of
from weft.compiler.targets.accel.stream.issue_early import DISTANCE, REORDERED, early_order
from weft.compiler.targets.accel.stream.stream import Access, Issue
from weft.compiler.targets.accel.stream.tokens import ENGINES, _find_edges
from weft.hw.config import TINY
from weft.hw.dram_rate import USUAL_RATE
from weft.hw.isa import Engine
from weft.hw.memories import Memory

from .test_issue_early import KINDS

Unit = tuple[Memory, int]

shapes = st.sampled_from([((), ()), ((3,), (1,)), ((2, 2), (5, 1)), ((2, 3), (3, 1)), ((4,), (2,)), ((2, 2), (1, 1))])
places = st.tuples(st.integers(0, 12), shapes)
drawn_issues = st.lists(st.tuples(st.sampled_from(list(KINDS)), places, places, st.booleans()), max_size=70)


def access(memory: Memory, place: tuple[int, tuple[tuple[int, ...], tuple[int, ...]]]) -> Access:
    start, (extents, strides) = place
    return Access(memory, start, extents, strides)


def stream_of(drawn: list[tuple]) -> list[Issue]:  # type: ignore[type-arg]
    """``in_place``: what is written is read as well."""
    stream = []
    for number, (engine, read, write, in_place) in enumerate(drawn):
        instruction, sources, target = KINDS[engine]
        written = access(target, write)
        reads = [access(memory, read) for memory in sources]
        stream.append(Issue(instruction, (*reads, written) if in_place else tuple(reads), (written,), tile=number))
    return stream


def units(accesses: tuple[Access, ...]) -> Iterator[Unit]:
    for each in accesses:
        yield from ((each.memory, unit) for unit in np.arange(1000)[each.selector()].tolist())


def earlier_of(stream: list[Issue]) -> list[set[int]]:
    """For each instruction, all earlier ones that it has to stay behind."""
    writers: dict[Unit, set[int]] = {}
    readers: dict[Unit, set[int]] = {}
    found = []
    for position, issue in enumerate(stream):
        reads, writes = set(units(issue.reads)), set(units(issue.writes))
        before = [writers.get(unit, set()) for unit in reads | writes] + [readers.get(unit, set()) for unit in writes]
        found.append(set().union(*before))
        for unit in reads:
            readers.setdefault(unit, set()).add(position)
        for unit in writes:
            writers.setdefault(unit, set()).add(position)
    return found


def closure(pairs: list[set[int]]) -> list[set[int]]:
    found: list[set[int]] = []
    for before in pairs:
        found.append(before.union(*(found[each] for each in before)))
    return found


def pairs_of(stream: list[Issue]) -> list[set[int]]:
    before: list[set[int]] = [set() for _ in stream]
    for earlier, later in zip(*(each.tolist() for each in conflicts_of(stream).pairs), strict=True):
        before[later].add(earlier)
    return before


@given(drawn_issues)
def test_pairs_are_conflicts_and_imply_all_others(drawn: list[tuple]) -> None:  # type: ignore[type-arg]
    stream = stream_of(drawn)
    found = pairs_of(stream)
    wanted = earlier_of(stream)
    assert all(some <= every for some, every in zip(found, wanted, strict=True))
    # Two reads of an engine, of which the first alone meets the write behind them, follow from its order.
    in_order = [before | {place for place, other in enumerate(stream[:position])
                          if other.instruction.engine == stream[position].instruction.engine}
                for position, before in enumerate(found)]  # fmt: skip
    assert all(every <= implied for every, implied in zip(wanted, closure(in_order), strict=True))


def plain_order(stream: list[Issue]) -> list[int]:
    """As `early_order`, where no load goes further than its distance."""
    before, moved, last = earlier_of(stream), [], dict.fromkeys(Engine, -1)
    for position, issue in enumerate(stream):
        engine, place = issue.instruction.engine, position
        if engine in DISTANCE:
            distance = DISTANCE[engine] if position >= issue_early.BEGINNING else DISTANCE[Engine.LOAD]
            place = max(position - distance, -1, *(moved[each] for each in before[position]))
            place = place if engine in REORDERED else max(place, last[engine])
        moved.append(place)
        last[engine] = place
    return sorted(range(len(stream)), key=lambda each: (moved[each], each))


def plain_edges(stream: list[Issue]) -> list[tuple[int, int]]:
    """Tokens by clocks, each conflict looked at."""
    before, clocks = earlier_of(stream), [[-1] * ENGINES for _ in range(ENGINES)]
    known: list[list[int]] = []
    edges = []
    for position, issue in enumerate(stream):
        engine = issue.instruction.engine
        clock = clocks[engine]
        for other in sorted(before[position], reverse=True):
            sender = stream[other].instruction.engine
            if sender != engine and clock[sender] < other:
                edges.append((other, position))
                clock[:] = map(max, clock, known[other])
        clock[engine] = position
        known.append(clock.copy())
    return edges


@settings(max_examples=300)
@given(drawn_issues, st.integers(2, 60))
def test_order_and_tokens_are_those_that_every_unit_asks_for(
    drawn: list[tuple], distance: int  # type: ignore[type-arg]
) -> None:  # fmt: skip
    assert_order_and_tokens(stream_of(drawn), distance)


def assert_order_and_tokens(stream: list[Issue], distance: int) -> list[int]:
    """The order of `early_order`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(issue_early, "prefetches", lambda *_: {})
        patch.setitem(DISTANCE, Engine.LOAD, distance)
        conflicts = conflicts_of(stream)
        order = early_order(TINY, USUAL_RATE, stream, conflicts)
        moved = [stream[each] for each in order]
        earlier, later = _find_edges(conflicts.moved(order))
        assert order.tolist() == plain_order(stream)
        assert list(zip(earlier.tolist(), later.tolist(), strict=True)) == plain_edges(moved)
    found: list[int] = order.tolist()
    return found


@pytest.mark.parametrize("engine", REORDERED)
@given(drawn_issues, st.integers(4, 60))
def test_a_store_waits_for_the_load_that_reads_last(
    engine: Engine, drawn: list[tuple], distance: int  # type: ignore[type-arg]
) -> None:  # fmt: skip
    """Of two loads that read what is stored behind them, the first waits for a product, which waits for the vector
    engine, and the second overtakes all three."""
    one, two, three = ((start, ((2,), (1,))) for start in (100, 200, 300))
    behind = stream_of(
        [(Engine.VECTOR, two, one, False), (Engine.GEMM, one, two, False), (engine, one, one, False),
         (engine, one, three, False), (Engine.STORE, two, one, False)]
    )  # fmt: skip
    order = assert_order_and_tokens([*stream_of(drawn), *behind], distance)
    waiting, overtaking = (order.index(len(drawn) + place) for place in (2, 3))
    assert overtaking < waiting
