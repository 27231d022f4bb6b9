"""roll: what windows of neighbouring iterations share is moved, not computed again; and its refusals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from weft.compiler import tensor as t

from .test_random_schedules import random_step

Array = npt.NDArray[Any]


def windows(rows: int, kernel: int, stride: int, pad: int, tile: int) -> t.Schedule:
    """Sums over windows of padded rows, tile by tile, for which the padded rows are computed; two pictures."""
    x = t.placeholder((2, rows, 4), "int32", "x")
    made = t.compute((2, rows, 4), lambda n, y, c: x[n, y, c] * 3 + 1, "made")
    padded = t.compute(
        (2, rows + 2 * pad, 4),
        lambda n, y, c: t.select((y >= pad) & (y < rows + pad), made[n, y - pad, c], -7),
        "padded",
    )
    k = t.reduce_axis(kernel, "k")
    height = (rows + 2 * pad - kernel) // stride + 1
    out = t.compute((2, height, 4), lambda n, y, c: t.sum(padded[n, y * stride + k, c], k), "out")
    schedule = t.create_schedule(out)
    schedule.split("out_y", tile)
    return schedule


def tiled(rows: int, kernel: int, stride: int, pad: int, tile: int) -> t.Schedule:
    schedule = windows(rows, kernel, stride, pad, tile)
    schedule.compute_at("padded", "out_y_o", exact=True)
    return schedule


def rolled() -> t.Schedule:
    schedule = tiled(12, 3, 2, 1, 2)
    schedule.roll("padded", "out_y_o", 1)
    return schedule


def values(schedule: t.Schedule, x: Array) -> Array:
    return t.interpret(schedule.func, {"x": x})["out"]


def made_at_once(rows: int, kernel: int, stride: int, pad: int, tile: int) -> int:
    """The most rows inside of the picture that a tile meets and the one before it did not."""
    height, met, most = (rows + 2 * pad - kernel) // stride + 1, 0, 0
    for first in range(0, height, tile):
        stop = min((min(first + tile, height) - 1) * stride + kernel - pad, rows)
        most, met = max(most, stop - met), stop
    return most


def most_rows(schedule: t.Schedule, name: str) -> int:
    return next(buffer.shape[1] for buffer in schedule.buffers() if buffer.name == name)


CASES = [
    (12, 3, 2, 1, 1), (13, 3, 2, 1, 2), (12, 3, 1, 1, 2), (11, 3, 1, 1, 4), (9, 2, 1, 0, 3), (16, 5, 2, 2, 3),
    (15, 4, 3, 3, 1), (10, 5, 1, 0, 4), (20, 3, 2, 0, 3),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_rolled_rows_are_the_same_and_made_once(case: tuple[int, int, int, int, int]) -> None:
    x = np.random.default_rng(0).integers(-100, 100, (2, case[0], 4)).astype(np.int32)
    expected = values(windows(*case), x)
    schedule = tiled(*case)
    assert schedule.roll("padded", "out_y_o", 1) == "padded_kept"
    np.testing.assert_array_equal(values(schedule, x), expected)
    schedule.compute_at("made", "out_y_o", exact=True)
    np.testing.assert_array_equal(values(schedule, x), expected)
    assert most_rows(schedule, "made") == made_at_once(*case)
    assert t.parse(t.function_text(schedule.func)) == schedule.func
    t.check_legal(schedule.func, t.SCHEDULED)
    again = t.replay(windows(*case), t.trace_from_json(t.trace_to_json(schedule.trace[1:])))
    assert again.func == schedule.func


@given(data=st.data())
@settings(max_examples=150)
def test_whatever_follows_keeps_the_meaning(data: st.DataObject) -> None:
    x = np.random.default_rng(0).integers(-100, 100, (2, 12, 4)).astype(np.int32)
    schedule, expected = rolled(), values(windows(12, 3, 2, 1, 2), x)
    for _ in range(data.draw(st.integers(1, 6), "steps")):
        try:
            random_step(schedule, data)
        except t.ScheduleError:
            continue
        np.testing.assert_array_equal(values(schedule, x), expected, err_msg=f"{schedule.trace[-1]}\n{schedule}")


def with_source_inside() -> t.Schedule:
    schedule = tiled(12, 3, 2, 1, 2)
    schedule.compute_at("made", "out_y_o", exact=True)
    return schedule


REFUSED: list[tuple[Callable[[], t.Schedule], Callable[[t.Schedule], Any], str]] = [
    (lambda: windows(12, 3, 2, 1, 2), lambda s: s.roll("padded", "out_y_o", 1), "not allocated inside loop"),
    (lambda: tiled(12, 3, 2, 1, 2), lambda s: s.roll("out", "out_y_o", 1), "'out' is not allocated inside loop"),
    (lambda: tiled(12, 3, 2, 1, 2), lambda s: s.roll("padded", "out_y_o", 3), "axis is 3, but 'padded' has 3 dim"),
    (lambda: tiled(12, 3, 2, 1, 2), lambda s: s.roll("padded", "out_y_o", 0), "axis 0 of 'padded' has one element"),
    (lambda: tiled(12, 3, 2, 1, 2), lambda s: s.roll("padded", "out_y_o", 2), "not known to share elements"),
    (lambda: tiled(12, 2, 2, 1, 2), lambda s: s.roll("padded", "out_y_o", 1), "not known to share elements"),
    (lambda: tiled(12, 3, 1, 1, 1), lambda s: s.roll("padded", "out_y_o", 1), "at most half of them"),
    (lambda: tiled(12, 3, 2, 1, 6), lambda s: s.roll("padded", "out_y_o", 1), "not known to share elements"),
    (lambda: tiled(12, 3, 2, 1, 2), lambda s: s.roll("padded", "out_n", 1), "would fill 'padded' several times"),
    (with_source_inside, lambda s: s.roll("padded", "out_y_o", 1), "'made', which block 'padded' reads, is written"),
    (rolled, lambda s: s.roll("padded", "out_y_o", 1), "'padded' is not allocated inside loop"),
    (rolled, lambda s: s.roll("padded", "out_n", 1), "written by other blocks than 'padded' too"),
    (rolled, lambda s: s.split("out_y_o", 2), "the iterations of loop 'out_y_o' go on from one another"),
    (rolled, lambda s: s.split_shifted("out_y_o", 2), "go on from one another"),
    (rolled, lambda s: s.vthread("out_y_o"), "go on from one another"),
    (rolled, lambda s: s.parallel("out_y_o"), "go on from one another"),
]


@pytest.mark.parametrize(("make", "step", "message"), REFUSED)
def test_refusals(make: Callable[[], t.Schedule], step: Callable[[t.Schedule], Any], message: str) -> None:
    with pytest.raises(t.ScheduleError, match=message):
        step(make())


def test_a_reduction_is_not_rolled() -> None:
    x = t.placeholder((9, 2), "int32", "x")
    k, j = t.reduce_axis(2, "k"), t.reduce_axis(3, "j")
    row = t.compute((9,), lambda y: t.sum(x[y, k], k), "row")
    schedule = t.create_schedule(t.compute((6,), lambda y: t.sum(row[y + j], j), "out"))
    outer, _ = schedule.split(schedule.get_loops("out")[0], 3)
    schedule.compute_at("row", outer, exact=True)
    with pytest.raises(t.ScheduleError, match="block 'row' is a reduction"):
        schedule.roll("row", outer)


def test_rows_that_grow_are_not_rolled() -> None:
    """The next iteration needs columns that this one did not make."""
    x = t.placeholder((9, 9), "int32", "x")
    half = t.compute((9, 9), lambda y, c: x[y, c] >> 1, "half")
    j, k = t.reduce_axis(2, "j"), t.reduce_axis(6, "k")
    out = t.compute((6,), lambda y: t.sum(t.select(k <= y, half[y + j, t.minimum(k, y)], 0), [j, k]), "out")
    schedule = t.create_schedule(out)
    outer, _ = schedule.split(schedule.get_loops("out")[0], 2)
    schedule.compute_at("half", outer, exact=True)
    assert "for c in range(out_y_o * 2 + 2):" in str(schedule)
    with pytest.raises(t.ScheduleError, match="not known to share"):
        schedule.roll("half", outer)
