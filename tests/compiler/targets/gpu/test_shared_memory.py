"""Places of a group's buffers: no two that are needed at once share a byte, and others do where they can."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from weft.compiler.targets.gpu.shared_memory import ALIGNMENT, one_memory, placed
from weft.compiler.tensor.ir import Buffer

NAMES = ["a", "b", "c", "d", "e"]


def buffer(name: str, size: int) -> Buffer:
    return Buffer(name, (size,), "int8", "shared")


@given(
    st.lists(st.integers(1, 100), min_size=5, max_size=5),
    st.lists(st.sets(st.sampled_from(NAMES)), min_size=1, max_size=6),
    st.booleans(),
)
def test_buffers_that_are_needed_at_once_lie_apart(sizes: list[int], used: list[set[str]], apart: bool) -> None:
    buffers = [buffer(name, size) for name, size in zip(NAMES, sizes, strict=True)]
    places = placed(buffers, used, apart=apart)
    assert [each.buffer for each in places] == buffers
    together = one_memory(places)
    for one in places:
        assert one.offset % ALIGNMENT == 0
        assert one.end - one.offset == one.buffer.size
        for other in places:
            overlap = bool({*range(one.offset, one.end)} & {*range(other.offset, other.end)})
            assert (other.buffer.name in together[one.buffer.name]) == overlap
            if one is not other and overlap:
                mine, theirs = (
                    [number for number, names in enumerate(used) if each.buffer.name in names] for each in (one, other)
                )
                assert not apart
                assert mine
                assert theirs
                assert mine[-1] < theirs[0] or theirs[-1] < mine[0]


def test_what_is_done_with_makes_room() -> None:
    one, other, last = buffer("a", 64), buffer("b", 32), buffer("c", 80)
    places = placed([one, other, last], [{"a", "b"}, {"c"}], apart=False)
    assert max(each.end for each in places) == 96
    assert max(each.end for each in placed([one, other, last], [{"a", "b"}, {"c"}], apart=True)) == 176
