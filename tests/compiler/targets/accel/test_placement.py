"""Space in scratchpads and in the window: never shared by two things that are alive."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from weft.compiler.targets.accel.cost.tile_costs import fill, tilings
from weft.compiler.targets.accel.operators.lower import lower_function
from weft.compiler.targets.accel.schedule.schedule import schedule_kernel
from weft.compiler.targets.accel.schedule.tiling import Problem, Tiling
from weft.compiler.targets.accel.stream.scratchpads import Ring, accumulator_zones
from weft.compiler.targets.accel.walk.emit import Emitter
from weft.compiler.targets.accel.walk.emit_nest import DramBuffer
from weft.compiler.targets.errors import ScratchpadFullError
from weft.compiler.targets.memory_plan import Lifetime, most_alive, plan_memory
from weft.hw.config import PYNQ, TINY
from weft.hw.isa import Vector
from weft.hw.memories import Memory

from .test_kernels import Case


@given(st.lists(st.tuples(st.integers(1, 20), st.booleans(), st.integers(0, 64)), max_size=60))
def test_a_ring_never_hands_out_live_entries(requests: list[tuple[int, bool, int]]) -> None:
    ring = Ring(Memory.ACC, 64)
    live: list[tuple[int, int]] = []
    most = 0
    for entries, release_first, leaving in requests:
        if live and release_first:
            ring.release(live.pop(0)[0])
        try:
            start = ring.take(entries, "x", leaving=leaving)
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


@pytest.mark.parametrize(("taken", "leaving", "start"), [
    (20, 0, 20),  # the next place, wherever it is
    (20, 24, 20),  # where the piece behind is large enough, too
    (20, 40, 0),  # 20 and 36 are left beside it, 56 behind the beginning
    (20, 57, 20),  # no place leaves so many
])  # fmt: skip
def test_what_stays_leaves_room_for_what_comes(taken: int, leaving: int, start: int) -> None:
    ring, zone = Ring(Memory.ACC, 128), (64, 128)
    ring.release(ring.take(taken, "before", (zone,)))
    assert ring.take(8, "parameters", (zone,), leaving=leaving) == 64 + start


def test_the_end_of_a_zone_is_tried_where_its_beginning_is_taken() -> None:
    ring, zone = Ring(Memory.ACC, 64), (0, 64)
    large = ring.take(40, "large", (zone,))
    ring.take(16, "stays", (zone,))
    ring.release(large)  # 40 are free before what stays, 8 behind it
    ring.release(ring.take(8, "turns", (zone,)))
    assert ring.take(6, "parameters", (zone,), leaving=40) == 58


def test_the_last_place_of_a_zone_is_right_before_what_is_in_use_there() -> None:
    ring, zone = Ring(Memory.ACC, 64), (0, 64)
    large, _, between, _ = (ring.take(entries, "x", (zone,)) for entries in (40, 16, 4, 4))
    ring.release(large)
    ring.release(between)  # 40 and 4 are free: the range in the one leaves the other
    assert ring.take(4, "parameters", (zone,), leaving=40) == 56


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


@pytest.mark.parametrize("before", range(0, 512, 64))
def test_results_keep_out_of_the_array_s_bank_wherever_the_layer_before_ended(before: int) -> None:
    """Parameters in the middle of their bank left no piece for the second of two results of 224 entries."""
    case = Case("residual", PYNQ, channels=64, filters=256, size=(2, 56), kernel=(1, 1), pads=(0, 0, 0, 0))
    kernel = lower_function(case.function())
    emitter = Emitter(PYNQ)
    zone = accumulator_zones(PYNQ)["parameters"]
    ring = emitter.rings[Memory.ACC]
    if before:
        ring.release(ring.take(before, "before", zone))
    dram = {tensor.name: DramBuffer(1 << 16) for tensor in (*kernel.inputs, kernel.output)}
    tiling = Tiling(8, 1, 28, 4, "cyx", 8, 1, 2)
    emitter.emit(schedule_kernel(kernel, PYNQ, tiling).func, dram)
    results = [each.instruction for each in emitter.issues if isinstance(each.instruction, Vector)]
    assert results
    assert all(each.dst >= PYNQ.acc_depth // 2 for each in results if each.target.memory is Memory.ACC)
