"""Scans are what Python says that they are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from weft.cache import made_entries
from weft.compiler.targets.llvm.scan import Scan, llvm_text, scan

Ints = npt.NDArray[np.int64]
STEP = 7


@scan
def _all_that_there_is(values: Ints, others: Ints, count: int, least: int) -> int:
    """Every kind of statement and expression, in some order."""
    total = 0
    for place in range(count):
        if values[place] < 0 or (place > 3 and values[place] == 5):
            continue
        if not total < 1000:
            break
        total += values[place] * STEP
        others[place] = min(total, 50) if place & 1 else -values[place]
        others[place] ^= place << 2 | values[place] >> 1
    rest = count
    while True:
        rest -= 3
        if rest <= least or total == 12:
            break
        if rest != 4 and place >= 2:
            others[max(rest, 0)] &= ~rest
        else:
            pass
    for place in range(count - 1, 0, -2):
        others[place] = others[place] + rest
        if others[place] > 10_000:
            return place
    return total - rest


numbers = st.lists(st.integers(-20, 200), min_size=1, max_size=20)


@given(numbers, st.integers(-5, 5))
def test_machine_code_does_what_python_does(values: list[int], least: int) -> None:
    first, second = (np.array(values) for _ in range(2))
    others, again = (np.arange(len(values)) for _ in range(2))
    found = _all_that_there_is(first, others, len(values), least)
    assert found == _all_that_there_is.python(second, again, len(values), least)
    assert first.tolist() == second.tolist()
    assert others.tolist() == again.tolist()


@scan
def _sum_of(values: Ints, count: int) -> int:
    total = 0
    for place in range(count):
        total += values[place]
    return total


@pytest.mark.parametrize("values", [np.zeros(4, np.int32), np.zeros((2, 2), np.int64), np.zeros(8, np.int64)[::2]])
def test_arrays_of_another_form_are_refused(values: npt.NDArray[Any]) -> None:
    with pytest.raises(TypeError, match="_sum_of takes arrays of int64 of one axis, without gaps"):
        _sum_of(values, 2)


def _with_a_quotient(count: int) -> int:
    return count // 2


def _with_another_call(count: int) -> int:
    return abs(count)


def _with_an_unknown_name(count: int) -> int:
    return count + len  # type: ignore[operator]


@pytest.mark.parametrize("function", [_with_a_quotient, _with_another_call, _with_an_unknown_name])
def test_what_a_scan_cannot_have_is_named(function: Callable[..., Any]) -> None:
    with pytest.raises(SyntaxError, match=f"a scan cannot have .*{function.__name__}"):
        llvm_text(function)


def test_machine_code_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_CACHE", str(tmp_path))
    values = np.arange(5)
    before = made_entries().get("cpu", 0)
    assert [Scan(_sum_of.python)(values, 5) for _ in range(2)] == [10, 10]
    assert made_entries()["cpu"] == before + 1
