"""What a stream touches is known for each instruction, also where others have come into the place of some."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from weft.compiler.targets.accel.stream.accesses import Touched, accesses_of
from weft.compiler.targets.accel.stream.accesses import stream_of as known_stream
from weft.compiler.targets.accel.stream.split_products import levels_at
from weft.compiler.targets.accel.stream.stream import Issue
from weft.hw.isa import Engine, Gemm, Loop

from .test_conflicts import drawn_issues, stream_of


def rows(touched: Touched) -> list[tuple[object, ...]]:
    """Position, whether it writes, and the units of each access; then the engines."""
    sets = [touched.known[each] for each in touched.sets.tolist()]
    return [*zip(touched.positions.tolist(), touched.writes.tolist(), sets, strict=True), *touched.engines.tolist()]


def plain_rows(issues: list[Issue]) -> list[tuple[object, ...]]:
    found: list[tuple[object, ...]] = []
    for position, issue in enumerate(issues):
        for writes, several in enumerate(issue.accesses):
            for each in several:
                found.append((position, bool(writes), (each.memory, each.start, each.extents, each.strides)))
    return [*found, *(int(issue.instruction.engine) for issue in issues)]  # type: ignore[list-item]


@given(drawn_issues, st.lists(st.lists(st.integers(0, 30), max_size=3), max_size=8), st.randoms(use_true_random=False))
def test_instructions_in_the_place_of_others(drawn: list[tuple], several: list[list[int]], random) -> None:  # type: ignore[type-arg, no-untyped-def]
    whole = stream_of(drawn)
    chosen = sorted(random.sample(range(len(whole)), min(len(several), len(whole))))
    parts = {
        position: [whole[each % len(whole)] for each in own]  # also none at all
        for position, own in zip(chosen, several, strict=False)
    }
    plain = [each for position, issue in enumerate(whole) for each in parts.get(position, [issue])]
    stream = known_stream(whole).cut(parts)
    assert list(stream) == plain
    assert rows(stream.touched) == plain_rows(plain) == rows(known_stream(plain).touched)
    assert rows(known_stream(whole).touched) == plain_rows(whole)


@given(drawn_issues)
def test_each_memory_has_its_own_accesses(drawn: list[tuple]) -> None:  # type: ignore[type-arg]
    stream = stream_of(drawn)
    for memory, found in accesses_of(stream).items():
        wanted = [each for each in plain_rows(stream)[: -len(stream) or None] if each[2][0] is memory]  # type: ignore[index]
        assert list(zip(found.positions.tolist(), found.writes.tolist(), strict=True)) == [each[:2] for each in wanted]
        assert found.engines.tolist() == [stream[each].instruction.engine for each in found.positions.tolist()]


def test_loops_are_those_set_last() -> None:
    def loop(engine: Engine, level: int, extent: int) -> Issue:
        return Issue(Loop(engine=engine, level=level, extent=extent, dst_stride=level, a_stride=2, b_stride=3))

    stream = [
        loop(Engine.GEMM, 0, 9), loop(Engine.GEMM, 1, 5), loop(Engine.GEMM, 0, 4), loop(Engine.VECTOR, 0, 7),
        Issue(Gemm(dst=0, src=0, wgt=0, levels=2)), loop(Engine.GEMM, 0, 8),
    ]  # fmt: skip
    assert levels_at(stream, 4, Engine.GEMM, 2) == [(4, 0, 2, 3), (5, 1, 2, 3)]
    assert levels_at(stream, 6, Engine.GEMM, 1) == [(8, 0, 2, 3)]
    assert levels_at(stream, 4, Engine.VECTOR, 1) == [(7, 0, 2, 3)]
    assert levels_at(stream, 4, Engine.VECTOR, 0) == []
