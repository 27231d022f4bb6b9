"""split_shifted: what it makes of a loop, what moves under it, and what is refused."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from weft.compiler import tensor as t


def total(extent: int = 13) -> t.Schedule:
    """total[i] = sum of x[i, k]; y[i] = 3 * total[i]"""
    x, k = t.placeholder((extent, 5), "int32", "x"), t.reduce_axis(5, "k")
    rows = t.compute((extent,), lambda i: t.sum(x[i, k], [k]), "total")
    return t.create_schedule(t.compute((extent,), lambda i: rows[i] * 3, "y"))


def body(schedule: t.Schedule) -> str:
    return str(schedule).split("):\n", maxsplit=1)[1]


def check(schedule: t.Schedule) -> None:
    x = np.arange(65, dtype=np.int32).reshape(13, 5)
    np.testing.assert_array_equal(t.interpret(schedule.func, {"x": x})["y"], x.sum(1) * 3)


def test_the_last_run_starts_earlier() -> None:
    schedule = total()
    assert [var.name for var in schedule.split_shifted("y_i", 4)] == ["y_i_o", "y_i_i"]
    assert body(schedule).endswith(
        """\
        for y_i_o in range(4):
            for y_i_i in range(4):
                with block("y", "spatial"):
                    y[y_i_i + min(9, y_i_o * 4)] = total[y_i_i + min(9, y_i_o * 4)] * int32(3)
"""
    )
    check(schedule)
    assert t.replay(total(), schedule.trace).func == schedule.func


def test_a_factor_that_divides_is_a_plain_split() -> None:
    first, second = total(12), total(12)
    first.split_shifted("y_i", 4)
    second.split("y_i", 4)
    assert first.func == second.func


def test_a_producer_that_moves_under_it_has_a_constant_size() -> None:
    """Also within blocks of which the last is shorter."""
    schedule = total()
    block, rest = schedule.split("y_i", 7)
    schedule.parallel(block)
    tile, _ = schedule.split_shifted(rest, 4)
    schedule.compute_at("total", tile)
    check(schedule)
    assert "with allocate(int32[4]" in body(schedule)
    assert "for i in range(4):" in body(schedule)


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda s: s.split_shifted("y_i", 14), "factor is 14, but loop 'y_i' may run only 13 times.*use split"),
        (lambda s: s.split_shifted("y_i", 0), "the factor is 0, but must be at least 1"),
        (lambda s: s.split_shifted("k", 2), "loop 'k' is a reduction of block 'total', which would add"),
        (lambda s: (s.reorder("k", "i"), s.split_shifted("i", 4)),
         "loop 'i_o' computes elements of block 'total' twice, and the second time the block would go on"),
        (lambda s: (s.split_shifted("i", 4), s.reorder("k", "i_o")),
         "reorder: loop 'i_o' computes elements of block 'total' twice.*keep the whole reduction inside of loop 'i_o'"),
        (lambda s: (s.split_shifted("i", 4), s.decompose_reduction("total", t.Var("i_o"))),
         "decompose_reduction: loop 'i_o' computes elements"),
        (lambda s: (s.split_shifted("y_i", 4), s.inplace("y", "total")), "inplace: elements of block 'y' are computed"),
        (lambda s: (s.split_shifted("y_i", 4), s.parallel("y_i_o")), "iterations of loop 'y_i_o' may meet"),
    ],
)  # fmt: skip
def test_what_would_change_the_meaning_is_refused(use: Callable[[t.Schedule], object], message: str) -> None:
    with pytest.raises(t.ScheduleError, match=message):
        use(total())


def test_inside_of_it_a_reduction_may_be_decomposed() -> None:
    schedule = total()
    schedule.split_shifted("i", 4)
    schedule.decompose_reduction("total", t.Var("k"))
    check(schedule)
