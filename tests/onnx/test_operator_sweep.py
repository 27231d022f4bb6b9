"""A sample of `operator_sweep.py`: weft on the side of exact numbers, and a judge that sees what is not."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction
from functools import cache

import numpy as np
import pytest
from weft.compiler.targets.cpu.processor import PRETENDED, executable_here

from benchmarks.frontends import operator_sweep as sweep
from benchmarks.frontends import sweep_exact as exact
from benchmarks.frontends.sweep_cases import Case

EVERY = {"numpy": 3, "cpu": 31}
EVERY_AT_A_LEVEL = 97


@cache
def all_cases() -> list[Case]:
    return list(sweep.all_cases())


def wrong(cases: Sequence[Case], target: str) -> list[sweep.Outcome]:
    found = sweep.outcomes(cases, {target: sweep.by_weft(target)})
    return [each for each in found if each.wrong or each.missing]


@pytest.mark.parametrize("target", sorted(EVERY))
def test_weft_gives_what_exact_arithmetic_gives(target: str) -> None:
    cases = all_cases()[:: EVERY[target]]
    assert not wrong(cases, target)
    assert len(cases) > 20


@pytest.mark.parametrize(("first", "level"), list(enumerate(executable_here()[1:])))
def test_every_level_of_processor_gives_it_too(first: int, level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PRETENDED, level)
    assert not wrong(all_cases()[first::EVERY_AT_A_LEVEL], "cpu")


def test_names_of_cases_are_unique_and_the_page_tells_their_number() -> None:
    names = [case.name for case in all_cases()]
    assert len(names) == len(set(names))
    assert re.search(r"It runs (\d+) small models", sweep.PAGE.read_text()).group(1) == str(len(names))  # type: ignore[union-attr]


def test_every_explanation_is_about_a_case() -> None:
    names = [case.name for case in all_cases()]
    about = [name for name in sweep.explained() if any(each.startswith(name) for each in names)]
    assert len(about) > 20


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_fractions_are_rounded_as_numpy_rounds(dtype: str) -> None:
    generator = np.random.default_rng(0)
    for power in (-160, -149, -30, -24, -14, 0, 15, 127, 128):
        for mantissa in generator.integers(1, 2**53, 20):
            value = float(mantissa) * 2.0 ** (power - 52)
            with np.errstate(over="ignore"):
                assert exact.nearest(Fraction(value), dtype) == float(np.array(value).astype(dtype))


def test_the_judge_sees_one_unit_one_nan_and_another_type() -> None:
    wanted = np.array([1, np.nan, -0.0, np.inf], np.float32)
    assert sweep.differing(wanted.copy(), wanted, 0) == 0
    assert sweep.differing(np.nextafter(wanted, np.float32(5)), wanted, 0) == 3
    assert sweep.differing(np.array([np.nan, np.nan, 0, 3e38], np.float32), wanted, 4) == 2
    assert sweep.differing(wanted.astype(np.float64), wanted, 4) == 4
