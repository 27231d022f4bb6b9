"""Drawn graphs: nothing lies upon another, and every edge goes down."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from weft.view.layout import HEIGHT, WIDTH, layout


@st.composite
def graphs(draw: st.DrawFn) -> tuple[int, list[tuple[int, int]]]:
    count = draw(st.integers(1, 14))
    pairs = [(one, other) for other in range(count) for one in range(other)]
    edges = draw(st.lists(st.sampled_from(pairs), unique=True, max_size=24)) if pairs else []
    return count, sorted(edges)


@given(graphs())
def test_boxes_lie_apart_and_edges_go_down(graph: tuple[int, list[tuple[int, int]]]) -> None:
    count, edges = graph
    found = layout(count, edges)
    assert len(found.places) == count
    for one in range(count):
        (x, y), (width, height) = found.places[one], found.size
        assert 0 <= x <= width - WIDTH + 0.1
        assert 0 <= y <= height - HEIGHT + 0.1
        for other in range(one):
            x2, y2 = found.places[other]
            assert y != y2 or abs(x - x2) >= WIDTH
    for (source, target), route in zip(edges, found.routes, strict=True):
        heights = [found.places[source][1], *(y for _, y in route), found.places[target][1]]
        assert heights == sorted(heights)
        assert len(set(heights)) == len(heights)
        for x, y in route:  # an edge passes beside boxes, never through one
            assert not any(left < x < left + WIDTH and top < y < top + HEIGHT for left, top in found.places)


def test_a_chain_is_straight_although_edges_pass_it() -> None:
    chain = [(box, box + 1) for box in range(6)]
    found = layout(7, sorted([*chain, (1, 3), (3, 5)]))
    assert max(x for x, _ in found.places) - min(x for x, _ in found.places) < 12


def test_what_reads_nothing_stands_above_its_reader() -> None:
    found = layout(5, [(0, 1), (1, 2), (3, 4), (2, 4)])
    rows = [y for _, y in found.places]
    assert rows[3] == rows[2]
