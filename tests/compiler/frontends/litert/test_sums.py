"""Sums and differences of 8-bit values: the interpreter's integers, for all pairs of them."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.frontends.litert_suite import computed
from benchmarks.zoo.litert_cases import Case
from benchmarks.zoo.litert_models import interpreted
from benchmarks.zoo.litert_sums import FORMS, sums


def _of_form(form: str) -> list[Case]:
    return [case for case in sums() if form in case.name]


@pytest.mark.parametrize("form", FORMS)
def test_a_compiled_sum_is_the_interpreters(form: str) -> None:
    cases = _of_form(form)
    assert len(cases) == 6
    for case in cases:
        found = computed(case, "cpu")[0]
        assert len(np.unique(found)) > 1, case.name
        np.testing.assert_array_equal(found, interpreted(case.model, case.arrays)[0], case.name)


@pytest.mark.parametrize("form", FORMS)
def test_a_sum_on_the_core_is_the_interpreters(form: str) -> None:
    for case in _of_form(form)[::3]:
        np.testing.assert_array_equal(computed(case, "accel")[0], interpreted(case.model, case.arrays)[0], case.name)
