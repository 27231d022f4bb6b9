"""Folded nests do what the loops did, whatever the extents and strides."""

from __future__ import annotations

from itertools import product

from hypothesis import given
from hypothesis import strategies as st
from weft.compiler.targets.accel.walk.fold import (
    CopyLoop,
    Gap,
    NestLoop,
    boxes,
    fold_copies,
    fold_levels,
    iterate,
    over_gaps,
)
from weft.hw.config import LOOP_LEVELS

LARGEST = 255


@st.composite
def nests(draw: st.DrawFn) -> tuple[NestLoop, ...]:
    strides = st.integers(-2, 12)
    loops = draw(st.lists(st.tuples(st.integers(1, 3), strides, strides, strides, st.booleans()), max_size=7))
    return tuple(NestLoop(extent, (0 if starts else dst, a, b), starts) for extent, dst, a, b, starts in loops)


@given(nests())
def test_levels_and_outer_loops_visit_what_the_nest_visits(nest: tuple[NestLoop, ...]) -> None:
    has_start = any(loop.starts for loop in nest)
    folded = fold_levels(nest, has_start, LARGEST)

    expected = []
    for index in product(*(range(loop.extent) for loop in nest)):
        place = tuple(sum(i * loop.strides[d] for i, loop in zip(index, nest, strict=True)) for d in range(3))
        expected.append((*place, all(not i for i, loop in zip(index, nest, strict=True) if loop.starts)))

    found = []
    for base, at_start in iterate(folded.outer):
        for index in product(*(range(level.extent) for level in folded.levels)):
            pairs = list(zip(index, folded.levels, strict=True))
            place = tuple((base or (0, 0, 0))[d] + sum(i * level.strides[d] for i, level in pairs) for d in range(3))
            # The hardware's rule: at 0 in every level that does not move the destination.
            first = at_start and all(not i for i, level in pairs if level.strides[0] == 0)
            found.append((*place, first if has_start else True))
    assert sorted(found) == sorted(expected)
    assert len(folded.levels) <= LOOP_LEVELS
    assert all(0 <= stride <= LARGEST for level in folded.levels for stride in level.strides)


def test_contiguous_loops_become_one_level() -> None:
    nest = (NestLoop(4, (12, 24, 0)), NestLoop(3, (4, 8, 0)), NestLoop(1, (7, 7, 7)), NestLoop(4, (1, 2, 0)))
    assert fold_levels(nest, False, LARGEST).levels == (NestLoop(48, (1, 2, 0)),)


def test_a_loop_that_repeats_a_destination_without_being_a_reduction_stays_outside() -> None:
    nest = (NestLoop(2, (0, 5, 0)), NestLoop(3, (0, 1, 1), starts=True), NestLoop(4, (1, 1, 0)))
    folded = fold_levels(nest, True, LARGEST)
    assert folded.outer == (nest[0],)
    assert folded.levels == (nest[2], nest[1])


@st.composite
def copies(draw: st.DrawFn) -> tuple[CopyLoop, ...]:
    """A dense row-major scratchpad region, any DRAM strides, any part of each loop inside."""
    extents = draw(st.lists(st.integers(1, 40) | st.integers(1, 3), min_size=1, max_size=3))
    loops: list[CopyLoop] = []
    stride = 1
    for place, extent in enumerate(reversed(extents)):
        low = draw(st.integers(0, extent))
        high = draw(st.integers(low, extent))
        whole = draw(st.booleans())
        dram = 1 if place == 0 and draw(st.booleans()) else draw(st.sampled_from([0, 1, 3, stride, 200]))
        loops.insert(0, CopyLoop(extent, stride, dram, *((0, extent) if whole else (low, high))))
        stride *= extent
    return tuple(loops)


@given(copies())
def test_rectangles_copy_what_the_nest_copies(nest: tuple[CopyLoop, ...]) -> None:
    expected = {}
    for index in product(*(range(loop.extent) for loop in nest)):
        pairs = list(zip(index, nest, strict=True))
        inside = all(loop.low <= i < loop.high for i, loop in pairs)
        source = sum(i * loop.dram_stride for i, loop in pairs) if inside else None
        expected[sum(i * loop.scratchpad_stride for i, loop in pairs)] = source

    found: dict[int, int | None] = {}
    for piece in fold_copies(nest, 1000):
        assert max(piece.top, piece.bottom, piece.left, piece.right) <= 15
        width = piece.left + piece.columns + piece.right
        for row, column in product(range(piece.top + piece.rows + piece.bottom), range(width)):
            target = piece.scratchpad + row * width + column
            y, x = row - piece.top, column - piece.left
            inside = 0 <= y < piece.rows and 0 <= x < piece.columns
            assert target not in found
            found[target] = piece.dram + y * piece.stride + x if inside else None
    assert found == expected


def test_a_padded_picture_is_one_rectangle() -> None:
    rows, columns = CopyLoop(9, 8, 6, 1, 8), CopyLoop(8, 1, 1, 1, 7)
    (piece,) = fold_copies((rows, columns), 1000)
    assert (piece.top, piece.rows, piece.bottom, piece.left, piece.columns, piece.right) == (1, 7, 1, 1, 6, 1)
    assert piece.dram == 7
    assert piece.entries == 72


def test_whole_rows_without_padding_become_one_run() -> None:
    (piece,) = fold_copies((CopyLoop(3, 35, 35, 0, 3), CopyLoop(5, 7, 7, 0, 5), CopyLoop(7, 1, 1, 0, 7)), 1000)
    assert (piece.rows, piece.columns) == (1, 105)


@given(nests(), st.data())
def test_boxes_are_the_nest_in_parts_and_the_first_is_what_lies_inside(
    nest: tuple[NestLoop, ...], data: st.DataObject
) -> None:
    inside = []
    for loop in nest:
        low = data.draw(st.integers(0, loop.extent - 1))
        inside.append((low, data.draw(st.integers(low + 1, loop.extent))))
    kept, borders = boxes(nest, inside)
    assert kept is not None
    found = []
    for box in (kept, *borders):
        parts = [range(first, first + loop.extent) for first, loop in zip(box.first, box.loops, strict=True)]
        found.append(set(product(*parts)))
        assert box.starts([5, 7, 9]) == [
            start + sum(part[0] * loop.strides[operand] for part, loop in zip(parts, nest, strict=True))
            for operand, start in enumerate((5, 7, 9))
        ]
    assert sum(map(len, found)) == len(set().union(*found))
    assert set().union(*found) == set(product(*(range(loop.extent) for loop in nest)))
    assert found[0] == set(product(*(range(low, high) for low, high in inside)))


def test_where_nothing_is_inside_all_is_border() -> None:
    nest = (NestLoop(4, (1, 1, 0)), NestLoop(2, (4, 4, 0)))
    kept, (border,) = boxes(nest, None)
    assert kept is None
    assert border.loops == nest


def test_padding_goes_into_gaps_between_whole_rows_only() -> None:
    rows, gap = CopyLoop(4, 11, 30, 1, 4), Gap(step=1, columns=10, pitch=11)
    whole, part, one = CopyLoop(10, 1, 1, 1, 9), CopyLoop(9, 1, 1, 0, 9), CopyLoop(1, 11, 30, 0, 1)
    assert over_gaps([rows, whole], [gap]) == [rows, CopyLoop(11, 1, 1, 1, 9)]
    assert len(fold_copies(tuple(over_gaps([rows, whole], [gap])), LARGEST)) == 1
    for untouched in ([rows, part], [one, whole], [whole]):  # other columns, or nothing behind the row, may be in use
        assert over_gaps(untouched, [gap]) == untouched
    assert over_gaps([rows, whole], []) == [rows, whole]
