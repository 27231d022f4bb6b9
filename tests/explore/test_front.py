"""Fronts and volumes against definitions that are slow and plain."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from weft.explore.front import hypervolume, pareto_front


def points_of(dimensions: int) -> st.SearchStrategy[list[list[int]]]:
    return st.lists(st.lists(st.integers(0, 6), min_size=dimensions, max_size=dimensions), max_size=12)


@given(st.integers(1, 4).flatmap(points_of))
def test_the_front_is_what_nothing_dominates(points: list[list[int]]) -> None:
    def beaten(place: int) -> bool:
        mine = points[place]
        return any(
            all(a <= b for a, b in zip(other, mine, strict=True)) and (other != mine or number < place)
            for number, other in enumerate(points) if number != place
        )  # fmt: skip

    assert pareto_front(points) == [place for place in range(len(points)) if not beaten(place)]


@given(st.integers(1, 3).flatmap(points_of))
def test_the_volume_is_the_number_of_cells(points: list[list[int]]) -> None:
    dimensions = len(points[0]) if points else 2
    limit = [5] * dimensions
    cells = sum(
        any(all(p <= c for p, c in zip(point, cell, strict=True)) for point in points)
        for cell in itertools.product(range(5), repeat=dimensions)
    )
    assert hypervolume(points, limit) == pytest.approx(cells)


def test_a_large_front_is_quick() -> None:
    values = np.random.default_rng(0).random((10_000, 2))
    front = pareto_front(values.tolist())
    assert 3 < len(front) < 60
    assert hypervolume(values.tolist(), [1.0, 1.0]) > 0.99
