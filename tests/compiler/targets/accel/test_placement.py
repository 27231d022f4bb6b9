"""Space in scratchpads and in the window: never shared by two things that are alive."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from weft.compiler.targets.accel.emit import Emitter
from weft.compiler.targets.accel.emit_nest import DramBuffer
from weft.compiler.targets.accel.lower import lower_function
from weft.compiler.targets.accel.schedule import schedule_kernel
from weft.compiler.targets.accel.scratchpads import Ring
from weft.compiler.targets.accel.tile_costs import fill, tilings
from weft.compiler.targets.accel.tiling import Problem
from weft.compiler.targets.errors import ScratchpadFullError
from weft.compiler.targets.memory_plan import Lifetime, most_alive, plan_memory
from weft.hw.config import TINY
from weft.hw.memories import Memory

from .test_kernels import Case


@given(st.lists(st.tuples(st.integers(1, 20), st.booleans()), max_size=60))
def test_a_ring_never_hands_out_live_entries(requests: list[tuple[int, bool]]) -> None:
    ring = Ring(Memory.ACC, 64)
    live: list[tuple[int, int]] = []
    most = 0
    for entries, release_first in requests:
        if live and release_first:
            ring.release(live.pop(0)[0])
        try:
            start = ring.take(entries, "x")
        except ScratchpadFullError:
            used = sorted(live)
            gaps = zip([0, *(stop for _, stop in used)], [*(begin for begin, _ in used), 64], strict=True)
            assert max(stop - begin for begin, stop in gaps) < entries
            continue
        assert start >= 0
        assert start + entries <= 64
        assert all(stop <= start or start + entries <= begin for begin, stop in live)
        live.append((start, start + entries))
        most = max(most, sum(stop - begin for begin, stop in live))
    assert ring.most_live == most


def test_a_ring_moves_on_before_it_comes_back() -> None:
    ring = Ring(Memory.INP, 16)
    starts = []
    for _ in range(4):
        starts.append(ring.take(6, "tile"))
        ring.release(starts[-1])
    assert starts == [0, 6, 0, 6]


def test_a_full_scratchpad_names_the_buffer() -> None:
    ring = Ring(Memory.ACC, 16)
    ring.take(10, "first")
    text = r"buffer 'second' needs 7 entries in one piece in scratchpad 'acc', which has 16, 10 of them in use; hint"
    with pytest.raises(ScratchpadFullError, match=text):
        ring.take(7, "second")


lifetimes = st.lists(st.tuples(st.integers(1, 500), st.integers(0, 9), st.integers(0, 5)), max_size=12)


@given(lifetimes, st.integers(0, 3))
def test_tensors_alive_at_the_same_time_do_not_share_bytes(tensors: list[tuple[int, int, int]], start: int) -> None:
    wanted = [Lifetime(f"t{i}", size, first, first + length) for i, (size, first, length) in enumerate(tensors)]
    places, end = plan_memory(wanted, 64 * start)
    for one in wanted:
        assert places[one.name] % 64 == 0
        assert 64 * start <= places[one.name]
        assert places[one.name] + one.nbytes <= end
        for other in wanted:
            if other is one or one.last < other.first or other.last < one.first:
                continue
            a, b = places[one.name], places[other.name]
            assert a + one.nbytes <= b or b + other.nbytes <= a


def test_tensors_one_after_another_share_bytes() -> None:
    _, end = plan_memory([Lifetime("a", 640, 0, 1), Lifetime("b", 640, 2, 3)], 0)
    assert end == 640


def test_a_tensor_written_over_another_has_its_place() -> None:
    chain = [Lifetime("a", 640, 0, 2), Lifetime("b", 640, 2, 4, "a"), Lifetime("c", 640, 4, 6, "b")]
    other = Lifetime("d", 128, 5, 9)
    places, end = plan_memory([*chain, other], 64)
    assert places["a"] == places["b"] == places["c"] == 64
    assert places["d"] == 64 + 640
    assert end == 64 + 640 + 128
    assert most_alive([*chain, other]) == 640 + 128
    assert most_alive([replace(each, reuses="") for each in (*chain, other)]) == 2 * 640


@given(lifetimes)
def test_no_plan_needs_less_than_what_is_alive(tensors: list[tuple[int, int, int]]) -> None:
    wanted = [Lifetime(f"t{i}", size, first, first + length) for i, (size, first, length) in enumerate(tensors)]
    _, end = plan_memory(wanted, 0)
    assert most_alive(wanted) <= end


@given(st.sampled_from(["conv", "residual", "depthwise", "max_pool", "add"]), st.integers(1, 3), st.integers(0, 200))
@settings(max_examples=15)
def test_a_tiling_uses_what_it_says(kind: str, threads: int, choice: int) -> None:
    kernel = lower_function(Case(kind, TINY, channels=12, filters=8, size=(11, 9)).function())
    problem = Problem(TINY, kernel, threads)
    found = tilings(problem)
    tiling = found[choice % len(found)]
    dram = {tensor.name: DramBuffer(1 << 16) for tensor in (*kernel.inputs, kernel.output)}
    emitter = Emitter(TINY)
    try:
        emitter.emit(schedule_kernel(kernel, TINY, tiling).func, dram)
    except ScratchpadFullError:
        assert fill(problem, tiling) > 0.5  # room is there, but in pieces
        return
    shares = {scope: ring.most_live / ring.depth for scope, ring in emitter.rings.items()}
    assert max(shares.values()) <= fill(problem, tiling) + 1e-9
